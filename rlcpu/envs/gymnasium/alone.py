"""Spaces without an environment, for agents that learn from what was collected elsewhere."""

from __future__ import annotations

import copy
import functools
from typing import Any, NoReturn

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlcpu.envs.gymnasium.task import GymnasiumTask


class SpacesTask(GymnasiumTask):
    """Facts of an environment that is not there: its spaces; `spaces_of` makes it."""

    def __repr__(self) -> str:
        return f"SpacesTask({self.id}, {self.observation_space}, {self.action_space})"

    @property
    def advice(self) -> str:
        """Return what is to be said where somebody wants to play in it."""
        return (
            f"{self.id} are spaces alone, in which nothing is played: `learn_offline` learns from "
            "a buffer, and `evaluate` takes env="
        )


def spaces_of(observation_space: Any, action_space: Any, id: str = "Spaces-v0") -> SpacesTask:
    """Return spaces in the place of an environment, for an agent that is to learn offline.

    Agents with replay take them as they take an environment, learn from their buffer by
    `learn_offline`, and play in environments that `evaluate` is given.

    Args:
        observation_space: one environment's, of any kind that `rlcpu.envs.GymnasiumEnv` takes.
        action_space: one environment's.
        id: the name in files and messages.

    Raises:
        TypeError: other spaces.

    Example:
        >>> from gymnasium.spaces import Box, Discrete
        >>> spaces_of(Box(-1.0, 1.0, (3,)), Discrete(2)).num_actions
        2
    """
    make = functools.partial(_make_vec, id, observation_space, action_space)
    return SpacesTask(id, observation_space, action_space, make=make)


def _make_vec(id: str, observation_space: Any, action_space: Any, num_envs: int) -> Any:
    """Return `num_envs` environments that show one observation and take no step."""
    make = functools.partial(_Absent, id, observation_space, action_space)
    return SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


class _Absent(gymnasium.Env[Any, Any]):
    """An environment that is not there: it shows one observation, and takes no step."""

    def __init__(self, id: str, observation_space: Any, action_space: Any) -> None:
        self.id = id
        self.observation_space = copy.deepcopy(observation_space)  # which is seeded below
        self.action_space = action_space

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(0)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> NoReturn:
        raise TypeError(f"{self.id} are spaces alone, in which nothing is played")
