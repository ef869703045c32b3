"""Environments of Gymnasium that are not ours, as users and agents get them.

They are stepped in Python; only the policy runs in a kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from rlcpu.envs.contract.arguments import check_mode
from rlcpu.envs.contract.fields import GOALS, fault_of_goals
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.engine import GymnasiumEngine
from rlcpu.envs.gymnasium.task import EnvironmentFailure, GymnasiumTask, describe
from rlcpu.kernels.checks import check_count

Array = npt.NDArray[Any]


class GymnasiumEnv(VectorEnv):
    """N environments of Gymnasium, for `rlcpu.collect`, `rlcpu.simulate` and agents.

    Agents make one of what they are given; make it yourself to name an autoreset mode. Episodes
    follow each other as in our own environments, whatever the mode: no reset is learnt from, and
    what a truncated episode led to is what its value is estimated of. Where the infos of a reset
    hold `action_mask`, a number for each action of a `Discrete` as Gymnasium's Taxi gives them, or
    for each choice of a `MultiDiscrete` (one array, or one for each of its numbers), those of every
    step have to, and policies choose among the allowed actions.

    Args:
        env: a `gymnasium.vector.VectorEnv`, or a `gymnasium.Env`. Observations: a `Box`,
            `Discrete`, `MultiBinary` or `MultiDiscrete`, or a `Dict` or `Tuple` of these or of
            further ones; actions likewise, but either choices or floats. Floats are kept as
            float32, also those of a float64 `Box`.
        autoreset_mode: of a vector environment whose metadata does not tell it.
        task: a description of the environment, if there is one already; its spaces are the
            environment's.

    Attributes:
        env: a vector environment; a single one was put into a `SyncVectorEnv`.
        dynamics: what is known of it, with `id`. Its `observation_space` and `action_space` are
            those of policies, rollouts and buffers: a `Dict` of the leaves of a tree, by names such
            as "arm/speed", and one choice from 0 on, a list of choices, or a list of floats.
        single_observation_space, single_action_space: the environment's own, which `reset`, `step`
            and an agent's `predict` are about.

    Raises:
        TypeError: it is neither, or has other spaces.
        ValueError: the autoreset mode is unknown.
    """

    dynamics: GymnasiumTask
    engine: GymnasiumEngine

    def __init__(
        self,
        env: Any,
        *,
        autoreset_mode: AutoresetMode | str | None = None,
        task: GymnasiumTask | None = None,
    ) -> None:
        # An environment of EnvPool is both, and is a vector environment.
        if isinstance(env, gymnasium.Env) and not isinstance(env, GymnasiumVectorEnv):
            single = env
            env = SyncVectorEnv([lambda: single], autoreset_mode=AutoresetMode.DISABLED)
        if not isinstance(env, GymnasiumVectorEnv):
            raise TypeError(f"env={env!r}: expected a gymnasium.vector.VectorEnv or gymnasium.Env")
        self.env, self.device = env, "cpu"
        mode = autoreset_mode or (env.metadata or {}).get("autoreset_mode")
        if mode is None:
            raise ValueError(
                f"{env!r} has no autoreset_mode in its metadata: give the agent "
                'rlcpu.envs.GymnasiumEnv(env, autoreset_mode="NextStep"), or whichever it has'
            )
        self.autoreset_mode = check_mode(mode)
        # Gymnasium's own vector environments, and ours, can reset some environments alone.
        takes_masks = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv | VectorEnv)
        name, spec = describe(env)
        self.dynamics = task or GymnasiumTask(
            name, env.single_observation_space, env.single_action_space, spec=spec
        )
        self.num_envs, self.num_threads = check_count("num_envs", env.num_envs), None
        self.max_episode_steps = self.dynamics.max_episode_steps
        self.dtype = np.dtype(np.float64)  # of rewards
        self.single_observation_space = self.dynamics.observed.original
        self.single_action_space = self.dynamics.acted.original
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata, self.render_mode = {**(env.metadata or {})}, env.render_mode
        self.metadata["autoreset_mode"] = self.autoreset_mode
        self.engine = GymnasiumEngine(env, self.dynamics, self.autoreset_mode, takes_masks)
        self.view = self.engine.view

    def __repr__(self) -> str:
        kind = type(self.env.unwrapped).__name__
        return f"GymnasiumEnv({self.dynamics.id}, {kind}, num_envs={self.num_envs})"

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied or pickled: make another one")

    def copies(self, num_envs: int, **options: Any) -> contextlib.AbstractContextManager[Any]:
        """Return a context manager of environments to evaluate in, at most so many.

        They are new ones, of options of Gymnasium's `make_vec`, or, if they cannot be made again,
        these: then new episodes begin afterwards.
        """
        if self.dynamics.make is None:
            return _borrowed(self)
        return contextlib.closing(make(self.dynamics, min(num_envs, self.num_envs), **options))

    # ------------------------------------------------------------ the environments' own interface

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start new episodes in all environments.

        Args:
            seed: an int, or one for each environment. The environments get the first alone, as not
                all take several; the policy's random numbers follow from all.
            options: for the environments.

        Returns:
            The observations and infos that the environments return.
        """
        observations, infos = self.engine.reset_all(seed, options)
        self.dynamics, self.view = self.engine.dynamics, self.engine.view
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments themselves; `collect` begins new episodes afterwards.

        Args:
            actions: as `action_space` has them; those of a `Box` are clipped to its bounds.

        Raises:
            ValueError: actions have another shape.
        """
        self.engine.ready = False
        return self.env.step(self.dynamics.own_actions(self.dynamics.acted.of_own(actions)))

    def compute_reward(self, achieved_goal: Array, desired_goal: Array) -> Any:
        """Return the rewards of goals, and whether episodes end; see `VectorEnv.compute_reward`.

        The environment's `compute_reward(achieved_goal, desired_goal, info)`, as Gymnasium-Robotics
        has it, is called once with all goals, in its own dtype and shape, and an empty `info`; its
        `compute_terminated`, if it has one, with one goal after the other.

        Raises:
            TypeError: there are no goals, no such method, or other processes have the environments.
            EnvironmentFailure: the environment raised an exception.
        """
        if fault := self._fault_of_goals():
            raise TypeError(f"{self.dynamics.id} has no goals: {fault}")
        vector_env: Any = self.env.unwrapped
        single = vector_env.envs[0]
        spaces = {leaf.name: leaf.space for leaf in self.dynamics.observed.leaves}
        achieved, desired = (
            goals.reshape(len(goals), *spaces[name].shape).astype(spaces[name].dtype)
            for name, goals in zip(GOALS, (achieved_goal, desired_goal), strict=True)
        )
        compute = single.get_wrapper_attr("compute_reward")
        try:
            rewards = np.asarray(compute(achieved, desired, {}))
            if not single.has_wrapper_attr("compute_terminated"):
                return rewards
            ends = single.get_wrapper_attr("compute_terminated")
            pairs = zip(achieved, desired, strict=True)
            return rewards, np.array([ends(*pair, {}) for pair in pairs], np.bool_)
        except Exception as error:
            raise EnvironmentFailure(
                f"{self.dynamics.id}: the reward of goals raised {error!r}"
            ) from error

    def _fault_of_goals(self) -> str:
        """Return why `compute_reward` cannot be called, "" if it can."""
        if fault := fault_of_goals(self.dynamics):
            return fault
        vector_env = self.env.unwrapped
        if not isinstance(vector_env, SyncVectorEnv):
            return f"{type(vector_env).__name__} has to be a SyncVectorEnv, in this process"
        single: Any = vector_env.envs[0]
        if not callable(getattr(single.unwrapped, "compute_reward", None)):
            return "expected a method compute_reward(achieved_goal, desired_goal, info)"
        return ""

    def observe(self) -> Any:
        """Return the present observations, as rollouts have them."""
        return self.view.decode(self.engine.observed.copy())

    def render(self) -> Any:
        """Render the environments."""
        return self.env.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close environments that were made from an id; users close those that they gave."""
        if "dynamics" in vars(self) and self.dynamics.make is not None:
            self.env.close(**kwargs)


@contextlib.contextmanager
def _borrowed(env: GymnasiumEnv) -> Any:
    """Yield the environments themselves; afterwards, restore the policy's random streams."""
    engine = env.engine
    keys, clock = engine.keys.copy(), engine.clock.copy()
    try:
        yield env
    finally:
        engine.ready = False
        engine.keys[:], engine.clock[:] = keys, clock


def make(task: GymnasiumTask, num_envs: int, **settings: Any) -> GymnasiumEnv:
    """Return environments of a task that was found by its id.

    Args:
        task: a result of `find_task`.
        num_envs: how many.
        **settings: those of `VectorEnv`; `max_episode_steps` and `render_mode` go to Gymnasium,
            others have no meaning here.

    Raises:
        TypeError: `autoreset_mode`, which Gymnasium sets; or the task was not found by an id.
    """
    if task.make is None:
        raise TypeError(f"{task!r} was given with its environments: it cannot be made again")
    if "autoreset_mode" in settings:
        raise TypeError(f"autoreset_mode: {task.id} has that which gymnasium.make_vec gives it")
    limit, mode = settings.get("max_episode_steps"), settings.get("render_mode")
    options = {} if limit in (None, task.max_episode_steps) else {"max_episode_steps": limit}
    if mode is not None:
        options["render_mode"] = mode
    return GymnasiumEnv(task.make(num_envs=num_envs, **options), task=task)
