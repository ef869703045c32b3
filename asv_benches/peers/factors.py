"""CartPole made heavier, as in the paper's Figure 9: state factor S, compute factor C.

The state is S copies of CartPole's four numbers. A step takes the first copy C steps of the physics
further and puts it behind the others: every number of the state is read and written, and the
arithmetic does not depend on S. An episode ends when the copy that moved has fallen.

Built on the public contract alone, as a user's environment is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs import Dynamics
from rlcpu.envs.cartpole import Params
from rlcpu.envs.cartpole import reset as reset_one
from rlcpu.envs.cartpole import step as step_one

FACTORS = (1, 2, 4, 8, 16, 32, 64)


def make_dynamics(state_factor: int, compute_factor: int) -> Dynamics:
    """The environment of one pair of factors.

    Raises:
        ValueError: a factor is no power of two up to 64: functions are doubled, not looped over,
            because a loop inside a step does not vectorise.
    """
    for name, factor in (("state", state_factor), ("compute", compute_factor)):
        if factor not in FACTORS:
            raise ValueError(f"{name}_factor={factor}: expected one of {FACTORS}")
    size = 4 * state_factor
    return Dynamics(
        id=f"CartPoleS{state_factor}C{compute_factor}-v0",
        step=make_step(state_factor, compute_factor),
        reset=make_reset(state_factor),
        observation_space=Box(-np.inf, np.inf, (size,), np.float32),
        action_space=Discrete(2),
        params=Params(),
        reset_draws=4,
        max_episode_steps=500,
    )


def make_step(state_factor: int, compute_factor: int) -> Callable[..., Any]:
    """The scalar step."""
    advance: Callable[..., Any] = step_one
    while compute_factor > 1:
        advance, compute_factor = _twice(advance), compute_factor // 2
    return advance if state_factor == 1 else _rotating(advance)


def _twice(advance: Callable[..., Any]) -> Callable[..., Any]:
    def two_steps(state, action, params):  # type: ignore[no-untyped-def]
        middle, _, fallen = advance(state, action, params)
        new, reward, fallen_later = advance(middle, action, params)
        return new, reward, fallen | fallen_later

    return two_steps


def _rotating(advance: Callable[..., Any]) -> Callable[..., Any]:
    def step(state, action, params):  # type: ignore[no-untyped-def]
        new, reward, fallen = advance(state[:4], action, params)
        return state[4:] + new, reward, fallen

    return step


def make_reset(state_factor: int) -> Callable[..., Any]:
    """The scalar reset: all copies begin alike."""
    reset: Callable[..., Any] = reset_one
    while state_factor > 1:
        reset, state_factor = _doubled(reset), state_factor // 2
    return reset


def _doubled(reset: Callable[..., Any]) -> Callable[..., Any]:
    def both(uniforms, params):  # type: ignore[no-untyped-def]
        half = reset(uniforms, params)
        return half + half

    return both
