"""One environment under `gymnasium.make`: a batch of one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.vector_env import Array, VectorEnv


class ScalarEnv(gymnasium.Env[Array, Any]):
    """A single environment with Gymnasium's interface.

    Stepping one environment at a time is what this library exists to avoid; use it to check, to
    render and to play. Episodes are truncated by Gymnasium's TimeLimit wrapper.

    Args:
        dynamics: the environment.
        dtype: "float32" or "float64".
        render_mode: "rgb_array" or None.
    """

    def __init__(
        self, dynamics: Dynamics, dtype: str = "float32", render_mode: str | None = None
    ) -> None:
        self._batch = VectorEnv(
            dynamics,
            1,
            dtype=dtype,
            autoreset_mode=AutoresetMode.DISABLED,
            max_episode_steps=2**32 - 2,
            render_mode=render_mode,
        )
        self.observation_space = dynamics.observation_space
        self.action_space = dynamics.action_space
        self.render_mode = render_mode
        self.metadata = {k: v for k, v in self._batch.metadata.items() if k != "autoreset_mode"}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start a new episode; see `VectorEnv.reset`."""
        super().reset(seed=seed)
        observations, infos = self._batch.reset(seed=seed, options=options)
        return observations[0].copy(), infos

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take one step; see `VectorEnv.step`."""
        results = self._batch.step(np.asarray(action)[None])
        observations, rewards, terminated, truncated, infos = results
        flags = bool(terminated[0]), bool(truncated[0])
        return observations[0].copy(), float(rewards[0]), *flags, infos

    @property
    def state(self) -> Array:
        """(state_size,), a copy; assign an array to set it."""
        return np.asarray(self._batch.state[0])

    @state.setter
    def state(self, state: Any) -> None:
        self._batch.state = np.asarray(state)[None]

    def render(self) -> Any:
        """An RGB picture (height, width, 3), or None without a render mode."""
        frames = self._batch.render()
        return frames[0] if frames is not None else None

    def close(self) -> None:
        """Close the renderer."""
        self._batch.close()
