"""A walk along twelve cells, of which only the last one pays: rare rewards, slips, whole states."""

from typing import NamedTuple

from gymnasium.spaces import Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    slip: float = 0.1  # chance of going the other way


class State(NamedTuple):
    cell: int


def step(state, action, params, rng):
    way = 2 * action - 1
    way = -way if rng.uniform(0) < params.slip else way
    cell = max(state.cell + way, 0)
    arrived = cell >= 11
    return State(min(cell, 11)), (1.0 if arrived else 0.0), arrived


def reset(rng, params):
    return State(0)


def observe(state, params):
    return state.cell


def act(observation, params, uniforms):
    return 1, 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Chain-v0",
    step=step,
    reset=reset,
    observe=observe,
    params=Params(),
    observation_space=Discrete(12),
    action_space=Discrete(2),
    max_episode_steps=50,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=0.207,
    good=1.0,
    steps=50_000,
)
