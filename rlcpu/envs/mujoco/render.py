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

from rlcpu.envs.contract.registry import families
from rlcpu.envs.contract.render import Renderer
from rlcpu.envs.mujoco.library import INTEGRATION
from rlcpu.envs.mujoco.varied import write_field

SIZE = 480


class MuJoCoRenderer(Renderer):
    """Draws states of one task; see `rlcpu.envs.contract.render.Renderer`.

    The camera is the model's first one that follows a body, as Gymnasium's `camera_name` "track"
    does; else the one that Gymnasium configures for the task, or MuJoCo's default. If states have
    params of their own, the model gets their numbers before each picture.
    """

    def _find_modes(self, modes: Sequence[str]) -> tuple[list[str], int]:
        """Return all modes, and pictures a second."""
        return list(modes), round(1.0 / self._dynamics.dt)

    def remember(self, actions: npt.NDArray[Any]) -> None:
        """Do nothing: no action is drawn."""

    def _draw(self, states: npt.NDArray[Any], params: Sequence[Any]) -> tuple[Any, ...]:
        """Return a picture (height, width, 3) of each of the states (n, state_size).

        `params` are those of each state, [] if all have the task's.
        """
        model, data, viewer = self._open()
        frames = []
        for i, state in enumerate(states):
            for field in self._dynamics.varied_fields.fields if params else ():
                write_field(model, field.name, getattr(params[i], field.name))
            mujoco.mj_setState(model, data, state, INTEGRATION)
            mujoco.mj_forward(model, data)
            frames.append(viewer.render(self._mode))
        return tuple(frames)

    def _open(self) -> Any:
        """Return model, data and Gymnasium's renderer, which are made for the first picture."""
        if self._env is None:
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

            if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
                os.environ.setdefault("MUJOCO_GL", "egl")  # which draws without a screen
            model = copy.copy(self._dynamics.model)
            screen = model.vis.global_
            screen.offwidth = max(screen.offwidth, SIZE)
            screen.offheight = max(screen.offheight, SIZE)
            data, camera = mujoco.MjData(model), _following_camera(model)
            camera_config = None if camera is not None else _camera_of(self._dynamics.id)
            renderer = MujocoRenderer(model, data, camera_config, SIZE, SIZE, camera_id=camera)
            self._env = model, data, renderer
        return self._env

    def close(self) -> None:
        """Release the renderer."""
        if self._env is not None:
            self._env[2].close()
            self._env = None


def _following_camera(model: mujoco.MjModel) -> int | None:
    """Return the number of the model's first camera that follows a body; None if there is none."""
    follow = (mujoco.mjtCamLight.mjCAMLIGHT_TRACK, mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM)
    cameras = np.flatnonzero(np.isin(model.cam_mode, [int(mode) for mode in follow]))
    return int(cameras[0]) if cameras.size else None


def _camera_of(id: str) -> Any:
    """Return the configuration of the camera that Gymnasium gives a task; None of a user's task."""
    if id not in families or families[id].package != "mujoco":
        return None
    entry: Any = gymnasium.spec(id).entry_point
    env_class: Any = gymnasium.envs.registration.load_env_creator(entry)
    return inspect.signature(env_class.__init__).parameters["default_camera_config"].default
