"""Pictures of environments: their own, or those of Gymnasium's original environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

from rlcpu.envs.contract.dynamics import Dynamics


class Renderer:
    """Draws states of one kind of environment.

    Args:
        dynamics: the environment, with a `picture` or an `original` that lends its renderer.
        render_mode: one of `modes`, or None.
        modes: "rgb_array", or "human" for a window too, which Gymnasium opens.

    Raises:
        ValueError: for another mode, or any where there is neither.
    """

    def __init__(
        self, dynamics: Dynamics, render_mode: str | None, modes: Sequence[str] = ("rgb_array",)
    ) -> None:
        self._dynamics: Any = dynamics
        self._env: Any = None  # Gymnasium's environment that draws, made at the first picture
        self._actions: npt.NDArray[Any] | None = None
        possible, fps = self._find_modes(modes)
        self.metadata: dict[str, Any] = {"render_modes": possible, "render_fps": fps}
        is_known = isinstance(render_mode, str) and render_mode in possible
        if render_mode is not None and not is_known:
            raise ValueError(
                f"render_mode={render_mode!r}: {dynamics.id} can be rendered as {possible or None}"
            )
        self._mode = render_mode

    def _find_modes(self, modes: Sequence[str]) -> tuple[list[str], int]:
        """Return the modes that the environment has, and pictures a second."""
        dynamics = self._dynamics
        possible = list(modes) if dynamics.original else []
        return ["rgb_array"] if dynamics.picture else possible, _fps(dynamics)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_env": None}  # a window or surface belongs to one process

    def remember(self, actions: npt.NDArray[Any]) -> None:
        """Keep the last actions, (n,) or (n, action_size): Pendulum draws its torque."""
        self._actions = actions.reshape(len(actions), -1).copy()

    def render(
        self, states: npt.NDArray[Any], params: Sequence[Any] = ()
    ) -> tuple[npt.NDArray[np.uint8], ...] | None:
        """Draw a picture (height, width, 3) of each state; None without a render mode.

        In mode "human" they are drawn in a window, and there is None for each.

        Args:
            states: (n, rows of a state).
            params: of each state, or () if all have the environment's.
        """
        if self._mode is None:
            gymnasium.logger.warn(
                f"{self._dynamics.id} was made without a render mode: "
                'give render_mode="rgb_array" to see it'
            )
            return None
        return self._draw(states, params)

    def _draw(self, states: npt.NDArray[Any], params: Sequence[Any]) -> tuple[Any, ...]:
        """Return the pictures of `render`: by the environment's own function, or by Gymnasium's."""
        dynamics = self._dynamics
        if dynamics.picture is not None:
            values = dynamics.state.to_states(states)
            pairs = zip(values, params or [dynamics.params] * len(values), strict=True)
            return tuple(dynamics.picture(value, each) for value, each in pairs)
        env = self._renderer()
        frames: list[Any] = []
        # The last numbers of a state may be those of transforms, which Gymnasium's does not have.
        size = dynamics.origin.state.rows(states.dtype.type)
        for i, state in enumerate(states[:, :size]):
            if params:
                _set_params(env, params[i])
            env.state = state.astype(np.float64)
            env.last_u = self._torque(i)  # Pendulum draws it
            frames.append(env.render())
        return tuple(frames)

    def _torque(self, i: int) -> float | None:
        """Return the last action of environment i, clipped as it acted, or None."""
        space = self._dynamics.action_space
        if self._actions is None or not isinstance(space, Box):
            return None
        return float(np.clip(self._actions[i], space.low, space.high)[0])

    def _renderer(self) -> Any:
        """Return Gymnasium's environment that draws, which is made at first use."""
        if self._env is None:
            assert self._dynamics.original is not None
            env = gymnasium.make(self._dynamics.original, render_mode=self._mode).unwrapped
            _set_params(env, self._dynamics.params)
            self._env = env
        return self._env

    def close(self) -> None:
        """Release the renderer."""
        if self._env is not None:
            self._env.close()
            self._env = None


def _set_params(env: Any, params: Any) -> None:
    """Set those attributes of Gymnasium's environment that are parameters here."""
    for name, value in params._asdict().items():
        for attribute in (name, name.upper()):  # Acrobot writes LINK_LENGTH_1
            if hasattr(env, attribute):
                setattr(env, attribute, value)


def _fps(dynamics: Dynamics) -> int:
    """Return the frames a second: Gymnasium's of the original, or 30; 10 of a `picture` of ours."""
    if dynamics.original is None:
        return 10 if dynamics.picture else 30
    entry = gymnasium.spec(dynamics.original).entry_point
    env_class = (
        gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    )
    return int(getattr(env_class, "metadata", {}).get("render_fps", 30))
