"""Facts of an environment of Gymnasium that is not ours: its spaces, and how it is made."""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
from typing import Any

import gymnasium
from gymnasium.spaces import Discrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.gymnasium.spaces import ActionForm, ObservationForm
from rlcpu.envs.layout.groups import describe_space

logger = logging.getLogger("rlcpu")


class EnvironmentFailure(RuntimeError):
    """Raised for an exception of an environment that is not ours, which is its cause."""


class GymnasiumTask(Dynamics):
    """Facts of an environment of Gymnasium: a `Dynamics` without scalar functions.

    Args:
        id: Gymnasium's id, or the name of a class.
        observation_space: a `Box`, `Discrete`, `MultiBinary` or `MultiDiscrete`, or a `Dict` or
            `Tuple` of such.
        action_space: the same, but choices alone or floats alone.
        make: makes `num_envs` environments; None if users gave them.
        spec: Gymnasium's, with the limit of steps and the reward threshold.
        is_masked: whether infos have `action_mask`; `GymnasiumEnv` finds it out in a reset.

    Attributes:
        observation_space, action_space: those of policies, see `rlcpu.envs.gymnasium.spaces`.
        observed, acted: how observations become those of policies, and actions the environment's.

    Raises:
        TypeError: other spaces.
    """

    runs_in_kernels = False
    observed: ObservationForm
    acted: ActionForm
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
        observed, acted = ObservationForm.of(id, observation_space), ActionForm.of(id, action_space)
        vars(self).update(
            id=id,
            observation_space=observed.space,
            action_space=acted.space,
            observed=observed,
            acted=acted,
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
        """Return of how many choices a mask tells; see `Dynamics.num_masked`."""
        return self.num_choices if self.is_masked else 0

    def policy_observations(self, observations: Any) -> Any:
        """Return observations of the environment as policies take them."""
        return self.observed.convert(observations)

    def own_actions(self, actions: Any) -> Any:
        """Return actions of policies in the form of the environment's action space."""
        return self.acted.to_own(actions)

    def describe_actions(self) -> str:
        """Return the text of the environment's action space, for messages."""
        original, space = self.acted.original, str(self.action_space)
        is_same = type(original) is type(self.action_space) and not self.acted.describe()
        return space if is_same else f"{describe_space(original)}, which is {space} here"

    def describe_numbers(self) -> str:
        """Return what numbers of policies are in the environment, where they are others."""
        return " ".join(filter(None, (self.observed.describe(), self.acted.describe())))

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
        if not task.num_choices:
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
    if not task.num_choices:
        expected = "masks are those of a Discrete or MultiDiscrete"
        logger.warning('infos["action_mask"] of %s is not heeded: %s', task.id, expected)
    return task.num_choices > 0


def describe(env: Any) -> tuple[str, Any]:
    """Return the id of a vector environment, or its class's name, and Gymnasium's spec or None."""
    inner = getattr(env.unwrapped, "envs", None)
    single = inner[0] if inner else env
    spec = env.spec or getattr(single, "spec", None)
    name = getattr(spec, "id", None) or type(single.unwrapped).__name__
    return name, spec
