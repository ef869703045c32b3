"""A task whose episodes of ten steps are all but a few worth 0, and the others 1."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs import Dynamics


class Params(NamedTuple):
    """How many of the episodes succeed."""

    share: float = 0.015


def step(state, action, params):
    """End an episode after ten steps, at luck."""
    now, luck = state
    is_last = now >= 9.0
    return (now + 1.0, luck), (1.0 if is_last and luck < params.share else 0.0), is_last


RARE = Dynamics(
    id="Rare-v0",
    step=step,
    reset=lambda rng, params: (0.0, rng.uniform(0)),
    observe=lambda state, params: (0.1 * state[0],),
    observation_space=Box(0.0, 2.0, (1,), np.float32),
    action_space=Discrete(2),
    params=Params(),
    max_episode_steps=20,
)
RARE_BOX = dataclasses.replace(RARE, id="RareBox-v0", action_space=Box(-1.0, 1.0, (1,), np.float32))
