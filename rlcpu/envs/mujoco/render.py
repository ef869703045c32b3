"""Pictures of MuJoCo's simulations, by MuJoCo's renderer as Gymnasium sets it up."""

from __future__ import annotations

import copy
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Any

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt

from rlcpu.envs.mujoco.library import INTEGRATION
from rlcpu.envs.mujoco.varied import write
from rlcpu.envs.render import Renderer
from rlcpu.envs.tasks.mujoco import IDS

SIZE = 480


class MuJoCoRenderer(Renderer):
    """Draws states of one task; see `rlcpu.envs.render.Renderer`.

    A model is seen by its first camera that goes along with a body, as Gymnasium's `camera_name`
    "track" is; else from Gymnasium's place for the task, or where MuJoCo looks by itself. With
    params of each state, its model has the numbers that they hold.
    """

    def _find_modes(self, modes: Sequence[str]) -> tuple[list[str], int]:
        """Return all modes, and pictures a second."""
        return list(modes), round(1.0 / self._dynamics.dt)

    def remember(self, actions: npt.NDArray[Any]) -> None:
        """Do nothing: no action is drawn."""

    def _draw(self, states: npt.NDArray[Any], params: Sequence[Any]) -> tuple[Any, ...]:
        """Return one (height, width, 3) picture per state, (n, state_size)."""
        model, data, viewer = self._open()
        frames = []
        for i, state in enumerate(states):
            for place in self._dynamics.varied_fields.fields if params else ():
                write(model, place.name, getattr(params[i], place.name))
            mujoco.mj_setState(model, data, state, INTEGRATION)
            mujoco.mj_forward(model, data)
            frames.append(viewer.render(self._mode))
        return tuple(frames)

    def _open(self) -> Any:
        """Return model, data and renderer, made at the first picture."""
        if self._env is None:
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

            if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
                os.environ.setdefault("MUJOCO_GL", "egl")  # which draws without a screen
            model = copy.copy(self._dynamics.model)
            screen = model.vis.global_
            screen.offwidth, screen.offheight = (
                max(screen.offwidth, SIZE),
                max(screen.offheight, SIZE),
            )
            data, camera = mujoco.MjData(model), _following_camera(model)
            seen_from = None if camera is not None else _camera_of(self._dynamics.id)
            drawn = MujocoRenderer(model, data, seen_from, SIZE, SIZE, camera_id=camera)
            self._env = model, data, drawn
        return self._env

    def close(self) -> None:
        """Release the renderer."""
        if self._env is not None:
            self._env[2].close()
            self._env = None


def _following_camera(model: mujoco.MjModel) -> int | None:
    """Return the model's first camera that goes along with a body."""
    follow = (mujoco.mjtCamLight.mjCAMLIGHT_TRACK, mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM)
    cameras = np.flatnonzero(np.isin(model.cam_mode, [int(mode) for mode in follow]))
    return int(cameras[0]) if cameras.size else None


def _camera_of(id: str) -> Any:
    """Return the camera that Gymnasium gives the task of an id, if it has one."""
    if id not in IDS:
        return None
    entry: Any = gymnasium.spec(id).entry_point
    kind: Any = gymnasium.envs.registration.load_env_creator(entry)
    return inspect.signature(kind.__init__).parameters["default_camera_config"].default
