"""One simulation with Gymnasium's interface."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.envs.mujoco.render import Renderer
from rlcpu.envs.scalar_env import ScalarEnv
from rlcpu.envs.vector_env import Array


class ScalarTask(ScalarEnv):
    """A single simulation of a MuJoCo task; see `rlcpu.envs.scalar_env.ScalarEnv`.

    `state` is MuJoCo's (`mjSTATE_INTEGRATION`), float64.
    """

    make_renderer = Renderer

    def _prepare(self) -> None:
        """Nothing is kept for a step."""

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take one step; see `ScalarEnv.step`."""
        if self._ended:
            self._go_on()
        observations, rewards, terminated, truncated, infos = self._batch.step(
            np.asarray(action)[None]
        )
        self._ended = bool(terminated[0] or truncated[0])
        if self.render_mode == "human":
            self.render()
        infos = {"unstable": True} if infos else {}
        return observations[0], rewards[0].item(), bool(terminated[0]), bool(truncated[0]), infos
