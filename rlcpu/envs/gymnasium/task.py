"""Facts of an environment of Gymnasium that is not ours: its spaces, and how it is made."""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.groups import describe_space

logger = logging.getLogger("rlcpu")


class EnvironmentFailure(RuntimeError):
    """Raised for an exception of an environment that is not ours, which is its cause."""


class GymnasiumTask(Dynamics):
    """Facts of an environment of Gymnasium: a `Dynamics` without scalar functions.

    Args:
        id: Gymnasium's id, or the name of a class.
        observation_space: a `Box`, `Discrete`, `MultiBinary` or `MultiDiscrete` of one axis, or a
            `Dict` of these.
        action_space: a `Discrete`, or a `MultiDiscrete` or a `Box` of floats, of one axis.
        make: makes `num_envs` environments; None if users gave them.
        spec: Gymnasium's, with the limit of steps and the reward threshold.
        is_masked: whether infos have `action_mask`; `GymnasiumEnv` finds it out in a reset.

    Attributes:
        observation_space, action_space: as given, but a `Box` of floats is of float32.

    Raises:
        TypeError: other spaces.
    """

    runs_in_kernels = False
    make: functools.partial[Any] | None
    is_masked: bool

    def __init__(
        self,
        id: str,
        observation_space: Any,
        action_space: Any,
        make: functools.partial[Any] | None = None,
        spec: Any = None,
        is_masked: bool = False,
    ) -> None:
        vars(self).update(
            id=id,
            observation_space=_convert_observed(id, observation_space),
            action_space=_convert_actions(id, action_space),
            varied={},
            randomized=(),
            make=make,
            is_masked=is_masked,
            max_episode_steps=getattr(spec, "max_episode_steps", None),
            reward_threshold=getattr(spec, "reward_threshold", None),
        )

    def __repr__(self) -> str:
        return f"GymnasiumTask({self.id})"

    @property
    def num_masked(self) -> int:
        """Return how many actions have a mask; see `Dynamics.num_masked`."""
        return self.num_actions if self.is_masked else 0

    def sample_observation(self) -> Any:
        """Return an observation, made up of its space's smallest choice or of zeros."""
        space = self.observation_space
        return int(space.start) if isinstance(space, Discrete) else (0.0,) * self.observation_size

    def sample_mask(self) -> tuple[bool, ...]:
        """Return an action mask that allows all."""
        return (True,) * self.num_masked

    def masked(self) -> GymnasiumTask:
        """Return a copy of the task that is known to have action masks."""
        task = copy.copy(self)
        vars(task)["is_masked"] = True
        return task

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments with which the environment was made."""
        return dict(self.make.keywords) if self.make is not None else {}

    def with_params(self, **params: Any) -> GymnasiumTask:
        """Return the task made with further keyword arguments.

        Raises TypeError if the environment does not take them, or users gave it.
        """
        if not params:
            return self
        if self.make is None:
            raise TypeError(f"{self.id} was given: it cannot be made anew with {params}")
        return find_task(*self.make.args, **{**self.settings(), **params})


def _convert_observed(id: str, space: Any) -> Any:
    """Return an observation space with float32 in the place of other floats, and all else the same.

    Raises TypeError for a part of a kind that rollouts cannot have.
    """
    if not isinstance(space, Dict):
        return _convert_part(id, "", space)
    if not space.spaces:
        raise TypeError(f"{id}: observation_space={space} has no part: expected one at least")
    return Dict({name: _convert_part(id, str(name), part) for name, part in space.items()})


def _convert_part(id: str, name: str, space: Any) -> Any:
    """Return the space of a part of an observation; see `_convert_observed`.

    Its name is "" for a whole observation.
    """
    if isinstance(space, Discrete):
        return Discrete(int(space.n), start=int(space.start))
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1 and space.nvec.size:
        return MultiDiscrete(space.nvec, start=space.start)
    has_numbers = isinstance(space, Box | MultiBinary) and math.prod(space.shape) > 0
    if has_numbers and isinstance(space, MultiBinary):
        return MultiBinary(space.shape)
    if has_numbers and space.shape and space.dtype.kind in "iu":
        return Box(space.low, space.high, dtype=space.dtype.type)
    if has_numbers and space.shape and space.dtype.kind == "f":
        return _as_float32(space)
    place = f"observation_space[{name!r}]" if name else "observation_space"
    parts = "" if isinstance(space, Dict | Tuple) and name else ", or a Dict of these"
    raise TypeError(
        f"{id}: {place}={describe_space(space)}: expected a Box of real or whole numbers, "
        f"Discrete, MultiBinary, or MultiDiscrete of one axis{parts}; "
        "gymnasium.wrappers.FlattenObservation makes one axis of others"
    )


def _convert_actions(id: str, space: Any) -> Box | Discrete | MultiDiscrete:
    """Return an action space with float32 in the place of other floats, and all else the same.

    Raises TypeError for a kind that policies do not know.
    """
    if isinstance(space, Discrete) and space.start == 0:
        return Discrete(int(space.n))
    if isinstance(space, MultiDiscrete) and len(space.shape) == 1 and not space.start.any():
        return MultiDiscrete(space.nvec)
    is_vector = isinstance(space, Box) and len(space.shape) == 1 and space.shape[0] > 0
    if is_vector and space.dtype is not None and space.dtype.kind == "f":
        return _as_float32(space)
    raise TypeError(
        f"{id}: action_space={describe_space(space)}: expected a Discrete or MultiDiscrete from 0 "
        "on, or a Box of floats, of one axis; gymnasium.wrappers.TransformAction makes one of "
        "others"
    )


def _as_float32(space: Box) -> Box:
    """Return a space with the same bounds, of float32."""
    with np.errstate(over="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return Box(low, high, dtype=np.float32)


# ---------------------------------------------------------------- by id


def find_task(id: str, **options: Any) -> GymnasiumTask:
    """Return the task of an id in Gymnasium's registry; "module:id" imports the module first.

    Args:
        id: Gymnasium's.
        **options: keyword arguments of the environment.

    Raises:
        ValueError: there is no environment of this id.
        TypeError: it cannot be made with these options, or its spaces are none that rlcpu takes.
    """
    try:
        env = gymnasium.make_vec(id, num_envs=1, **options)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"environment={id!r}: {error}") from error
    name, spec = describe(env)
    with contextlib.closing(env):
        logger.info("%s is Gymnasium's own: it is stepped in Python", name)
        make = functools.partial(gymnasium.make_vec, id, **options)
        spaces = env.single_observation_space, env.single_action_space
        task = GymnasiumTask(name, *spaces, make=make, spec=spec)
        if not task.num_actions:
            return task
        try:
            _, infos = env.reset()
        except Exception as error:
            raise EnvironmentFailure(f"{name}: an environment raised {error!r} in reset") from error
        return task.masked() if has_masks(task, infos) else task


def has_masks(task: GymnasiumTask, infos: Any) -> bool:
    """Tell whether policies heed the action masks in infos of a reset; log a warning if not."""
    if "action_mask" not in infos:
        return False
    if not task.num_actions:
        logger.warning(
            'infos["action_mask"] of %s is not heeded: masks are those of a Discrete', task.id
        )
    return task.num_actions > 0


def describe(env: Any) -> tuple[str, Any]:
    """Return the id of a vector environment, or its class's name, and Gymnasium's spec or None."""
    inner = getattr(env.unwrapped, "envs", None)
    single = inner[0] if inner else env
    spec = env.spec or getattr(single, "spec", None)
    name = getattr(spec, "id", None) or type(single.unwrapped).__name__
    return name, spec
