"""Boxes of one to six go into three bins of twelve, and a full bin pays more: action masks."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    room: int = 12  # of a bin
    bonus: float = 6.0  # for a bin without room


class State(NamedTuple):
    first: int  # what is in the bins
    second: int
    third: int
    box: int


def step(state, action, params, rng):
    """Put the box into a bin."""
    first = state.first + (state.box if action == 0 else 0)
    second = state.second + (state.box if action == 1 else 0)
    third = state.third + (state.box if action == 2 else 0)
    now = first if action == 0 else second if action == 1 else third
    paid = state.box + (params.bonus if now == params.room else 0.0)
    box = rng.integers(0, 6) + 1
    is_full = min(first, second, third) + box > params.room
    return State(first, second, third, box), (0.0 if now > params.room else paid), is_full


def reset(rng, params):
    return State(0, 0, 0, rng.integers(0, 6) + 1)


def observe(state, params):
    return state.first, state.second, state.third, state.box


def action_mask(state, params):
    most = params.room - state.box
    return state.first <= most, state.second <= most, state.third <= most


def act(observation, params, uniforms):
    """Put it where the least room is left."""
    first, second, third, box = observation
    a = first if first + box < 12.5 else -1.0
    b = second if second + box < 12.5 else -1.0
    c = third if third + box < 12.5 else -1.0
    return (0 if a >= max(b, c) else 1 if b >= c else 2), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Packing-v0",
    step=step,
    reset=reset,
    observe=observe,
    action_mask=action_mask,
    params=Params(),
    observation_space=Box(0.0, 20.0, (4,), np.float32),
    action_space=Discrete(3),
)
TASK = Task(
    DYNAMICS,
    act,
    chance=38.3,
    good=43.0,
    steps=50_000,
)
