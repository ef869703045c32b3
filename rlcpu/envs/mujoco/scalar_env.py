"""One simulation with Gymnasium's interface."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlcpu.envs.arguments import (
    Array,
    convert_actions,
    describe_bad_actions,
    find_bad_actions,
)
from rlcpu.envs.mujoco import batch as driver
from rlcpu.envs.mujoco import job as jobs
from rlcpu.envs.mujoco.render import Renderer
from rlcpu.envs.scalar_env import ScalarEnv


class ScalarTask(ScalarEnv):
    """A single simulation of a MuJoCo task; see `rlcpu.envs.scalar_env.ScalarEnv`.

    `state` is MuJoCo's (`mjSTATE_INTEGRATION`), float64.
    """

    make_renderer = Renderer
    _arguments: Any

    def _prepare(self) -> None:
        """Make a step's arrays and the job that names them once: they take longest."""
        batch: Any = self._batch
        space: Any = batch.action_space
        self._actions = np.zeros(space.shape, np.float32)
        seen = np.zeros((1, batch.rows), batch.dtype)
        self._observation = seen[0]
        self._reward, flags = np.zeros(1, batch.dtype), np.zeros((2, 1), np.bool_)
        self._terminated, self._truncated = flags
        arrays = {"actions": self._actions, "rewards": self._reward, "flags": flags, "last": seen}
        self._arguments = batch._kernels[0], driver._job(batch, jobs.STEP, **arrays)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take one step; see `ScalarEnv.step`."""
        if self._ended:
            self._go_on()
        actions, memory = self._actions, self._batch.memory
        if (
            type(action) is np.ndarray
            and action.dtype == actions.dtype
            and action.shape == actions.shape[1:]
        ):
            actions[0] = action
        else:
            actions[:] = convert_actions(np.asarray(action)[None], self.dynamics, actions.shape)
        if not math.isfinite(actions.sum()) and len(
            bad := find_bad_actions(actions, self.dynamics)
        ):
            raise ValueError(describe_bad_actions(actions, bad, self.dynamics))
        unstable = memory.unstable.item()
        driver._call(self._batch, *self._arguments)
        terminated, truncated = self._terminated.item(), self._truncated.item()
        self._ended = terminated or truncated
        if self.render_mode == "human":
            self.render()
        infos = {"unstable": True} if memory.unstable.item() != unstable else {}
        return self._observation.copy(), self._reward.item(), terminated, truncated, infos
