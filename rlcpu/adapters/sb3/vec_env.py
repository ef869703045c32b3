"""A `rlcpu.VectorEnv` as stable-baselines3's `VecEnv`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from stable_baselines3.common import vec_env
from stable_baselines3.common.monitor import Monitor

from rlcpu.envs import Dynamics, VectorEnv, make_vec
from rlcpu.replay.checks import check_flag

Array = npt.NDArray[Any]
#: Methods of a `VectorEnv` that change nothing, so that some environments can be asked alone.
_READING = ("observe", "render")


class VecEnv(vec_env.VecEnv):
    """A `rlcpu.VectorEnv` as stable-baselines3's `VecEnv`.

    An episode's end and the reset are one step, as in `DummyVecEnv`: `dones` is true, the
    observation is the next episode's first one, and the info has the `terminal_observation`.
    `TimeLimit.truncated` is in every info: whether the episode was truncated and did not terminate.

    All copies are one object. `get_attr` gives the environment's attribute for each of them, or
    what each has of `state` and of parameters that vary; `set_attr` and methods that change
    something take no part of the indices.

    Args:
        env: an id, such as "CartPole-v1", a `Dynamics`, or a `VectorEnv` in same-step mode.
        num_envs: number of copies, if `env` is no `VectorEnv`.
        monitor: put the return, length and time of an episode into the info of its last step, as
            the wrappers `Monitor` and `VecMonitor` do, which then are not needed.
        **options: of `rlcpu.make_vec`, if `env` is no `VectorEnv`.

    Attributes:
        env: the `VectorEnv`.

    Raises:
        TypeError, ValueError: a bad argument; an environment in another autoreset mode, or on
            another device than the CPU.

    Example:
        >>> env = VecEnv("CartPole-v1", num_envs=2)
        >>> env.reset().shape
        (2, 4)
    """

    def __init__(
        self,
        env: str | Dynamics | VectorEnv,
        num_envs: int = 1,
        *,
        monitor: bool = True,
        **options: Any,
    ) -> None:
        if isinstance(env, VectorEnv):
            if options or num_envs not in (1, env.num_envs):
                arguments = {"num_envs": num_envs, **options}
                raise TypeError(f"{arguments}: expected nothing else beside env={env!r}")
            self.env = env
        else:
            options.setdefault("autoreset_mode", AutoresetMode.SAME_STEP)
            self.env = make_vec(env, num_envs, **options)
        if self.env.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f'env={self.env!r}: expected autoreset_mode="SameStep", in which an episode\'s '
                "end and the reset are one step"
            )
        if self.env.device != "cpu":
            raise ValueError(f"env={self.env!r}: expected one on the CPU")
        self.monitor = check_flag("monitor", monitor)
        self._actions: Any = None
        self._start = time.time()
        self._returns = np.zeros(self.env.num_envs)
        self._lengths = np.zeros(self.env.num_envs, np.int64)
        space, choices = self.env.single_observation_space, self.env.single_action_space
        super().__init__(self.env.num_envs, space, choices)
        modes = vars(self)["metadata"]
        self.metadata = {**self.env.metadata, **modes}

    def reset(self) -> Array:
        """Start new episodes with the seeds and options that were set; return observations."""
        if any(options != self._options[0] for options in self._options):
            raise ValueError(f"options={self._options}: expected the same ones of all environments")
        seeds = self._seeds if any(seed is not None for seed in self._seeds) else None
        observations, _ = self.env.reset(seed=seeds, options=self._options[0] or None)
        self._reset_seeds()
        self._reset_options()
        self._returns[:], self._lengths[:] = 0.0, 0
        return observations

    def step_async(self, actions: npt.ArrayLike) -> None:
        """Take actions (num_envs,) or (num_envs, action_size) for `step_wait`."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Array, Array, Array, list[dict[str, Any]]]:
        """Return observations, rewards (num_envs,) float32, dones (num_envs,) bool, and infos."""
        observations, rewards, terminated, truncated, env_infos = self.env.step(self._actions)
        dones = terminated | truncated
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in dones]
        if self.monitor:
            self._returns += rewards
            self._lengths += 1
        for i in np.flatnonzero(dones).tolist():
            infos[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
            infos[i]["terminal_observation"] = env_infos["final_obs"][i]
            if self.monitor:
                infos[i]["episode"] = self._episode(i)
        return observations, rewards.astype(np.float32, copy=False), dones, infos

    def _episode(self, i: int) -> dict[str, Any]:
        """Return `Monitor`'s record of an episode that ended; the next one begins."""
        seconds = round(time.time() - self._start, 6)
        episode = {"r": float(self._returns[i]), "l": int(self._lengths[i]), "t": seconds}
        self._returns[i] = self._lengths[i] = 0
        return episode

    def close(self) -> None:
        """Close the renderer."""
        self.env.close()

    def get_images(self) -> Sequence[Array | None]:
        """Return one RGB picture of each environment; None without a render mode."""
        if self.render_mode is None:
            return [None] * self.num_envs
        return self.env.render() or ()

    # ------------------------------------------------------------ attributes and methods

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the `VectorEnv` once for each of the chosen environments.

        `state`, and parameters that vary from environment to environment, have a value of their
        own in each; other attributes are the same for all.
        """
        value, dynamics = getattr(self.env, attr_name), self.env.dynamics
        chosen = list(self._get_indices(indices))
        if attr_name == "state" and not isinstance(value, np.ndarray):
            value = dynamics.state.to_states(self.env.engine.get_state())
        if attr_name in ("state", *dynamics.varied, *dynamics.randomized):
            return [value[i] for i in chosen]
        return [value] * len(chosen)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of all environments."""
        self._refuse_some(f"set_attr({attr_name!r})", indices)
        setattr(self.env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the `VectorEnv`, once, and give each environment its part of the result.

        A result that has one item for each environment is divided; others are repeated.
        """
        if method_name not in _READING:
            self._refuse_some(f"env_method({method_name!r})", indices)
        result = getattr(self.env, method_name)(*method_args, **method_kwargs)
        chosen = list(self._get_indices(indices))
        if isinstance(result, np.ndarray | list | tuple) and len(result) == self.num_envs:
            return [result[i] for i in chosen]
        return [result] * len(chosen)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Tell whether it does what the wrapper does: `Monitor` is the only one."""
        is_wrapped = self.monitor and issubclass(Monitor, wrapper_class)
        return [is_wrapped] * len(list(self._get_indices(indices)))

    def _refuse_some(self, what: str, indices: Any) -> None:
        """Raise ValueError if the indices leave environments out."""
        if sorted(self._get_indices(indices)) != list(range(self.num_envs)):
            raise ValueError(
                f"{what}: indices={indices!r} leave environments out, which are one object: "
                "expected None"
            )
