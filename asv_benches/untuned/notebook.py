"""A sign is seen once and asked for three steps later: what is to be remembered can be noted."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    turns: int = 4


class State(NamedTuple):
    sign: int  # 1 to 3
    note: int  # 0: nothing is written
    turn: int


def step(state, action, params):
    """Answer (a number below 3) and write a note; 0 leaves the note as it is."""
    note = action[1] if action[1] > 0 else state.note
    ends = state.turn + 1 >= params.turns
    right = ends and action[0] + 1 == state.sign
    return State(state.sign, note, state.turn + 1), (1.0 if right else 0.0), ends


def reset(rng, params):
    return State(rng.integers(0, 3) + 1, 0, 0)


def observe(state, params):
    return (state.sign if state.turn == 0 else 0), state.note, state.turn


def act(observation, params, uniforms):
    sign, note, _ = observation
    return (max(int(note) - 1, 0), int(sign)), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Notebook-v0",
    step=step,
    reset=reset,
    observe=observe,
    params=Params(),
    observation_space=Box(0.0, 10.0, (3,), np.float32),
    action_space=MultiDiscrete((3, 4)),
)
TASK = Task(
    DYNAMICS,
    act,
    chance=1 / 3,
    good=1.0,
    steps=50_000,
)
