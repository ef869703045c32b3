"""One environment under `gymnasium.make`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rlcpu.envs.arguments import convert_actions, describe_bad_actions, find_bad_actions
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.layout import fault_of, rows_of, values_of
from rlcpu.envs.render import Renderer
from rlcpu.envs.vector_env import Array, Parameters, VectorEnv


class ScalarEnv(Parameters, gymnasium.Env[Array, Any]):
    """A single environment with Gymnasium's interface: a `VectorEnv` of one.

    It draws the same numbers as environment `i` of a `VectorEnv` that is seeded with `seed - i`.
    Episodes are truncated by Gymnasium's TimeLimit wrapper. As in Gymnasium's own environments,
    parameters are attributes, such as `env.unwrapped.gravity` (they can only be read); a step after
    the end of an episode warns and goes on from the last state; and `env.unwrapped.state = ...`
    goes on from that state, without a warning if the episode had ended. `copy.deepcopy` and
    `pickle` keep everything, and the copy goes on independently.

    Args:
        dynamics: the environment.
        dtype: "float32" or "float64".
        render_mode: "human" for a window, "rgb_array" or None.

    Raises:
        TypeError, ValueError: for a bad argument, with its name and value.
    """

    make_renderer: Any = Renderer

    def __init__(
        self, dynamics: Dynamics, dtype: str = "float32", render_mode: str | None = None
    ) -> None:
        self.dynamics = dynamics
        self._batch = VectorEnv(
            dynamics,
            dtype=dtype,
            autoreset_mode=AutoresetMode.DISABLED,
            max_episode_steps=2**32 - 2,
        )
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        self._renderer = self.make_renderer(dynamics, render_mode, ("human", "rgb_array"))
        self.render_mode = render_mode
        self.metadata = self._renderer.metadata
        self._ended, self._warned = True, False  # there is no episode yet
        self._is_masked = self.dynamics.num_masked > 0
        self._prepare()
        self._show_parameters()

    def _prepare(self) -> None:
        """Return the memory of the kernel's arguments: to make it anew takes longer than a step."""
        batch: Any = self._batch
        self._kernel: Any = None
        self._num_actions = self.dynamics.num_actions
        space: Any = batch.action_space
        self._actions = np.zeros(space.shape, space.dtype)
        observations: Any = np.zeros((batch.rows, 1), np.float32)
        self._observation = observations[:, 0]
        self._rows = observations
        self._decode = None if batch._is_plain else batch.view.decode
        self._reward = np.zeros(1, batch.dtype)
        self._terminated, self._truncated = np.zeros((2, 1), np.bool_)
        self._arrays = (
            batch.memory.real, batch.memory.words, self._actions, batch.numbers, batch.memory.clock,
            observations, self._reward, self._terminated, self._truncated,
            np.zeros((0, 0), np.float32),
        )  # fmt: skip

    def _compile(self) -> None:
        """Find the kernel of a step, which is compiled unless it has been before."""
        steps = self._batch._drivers.step_kernels(self._batch.code, self._batch.scalar_type, False)
        self._arguments = steps.address, steps.limits, *self._arrays
        self._kernel = steps.drivers.serial

    def __getstate__(self) -> dict[str, Any]:
        made = (
            "_kernel",
            "_arguments",
            "_arrays",
            "_observation",
            "_rows",
            "_reward",
            "_terminated",
            "_truncated",
            "_decode",
        )
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start a new episode; see `VectorEnv.reset`."""
        super().reset(seed=seed)
        observations, infos = self._batch.reset(seed=seed, options=options)
        self._ended = self._warned = False
        if self.render_mode == "human":
            self.render()
        if self._is_masked:
            infos = {"action_mask": infos["action_mask"][0]}
        return observations[0].copy(), infos

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take one step; see `VectorEnv.step`.

        Warns:
            UserWarning: at the first step after the end of an episode.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
            TypeError, ValueError: an action of another dtype, shape or range, or NaN; no step has
                been taken then.
        """
        if self._ended:
            self._go_on()
        actions, kind = self._actions, type(action)
        if self._num_actions:
            plain = kind is np.int64 or (kind is int and 0 <= action < self._num_actions)
        else:
            plain = kind is np.ndarray and action.dtype == actions.dtype
            plain = plain and action.shape == actions.shape[1:]
        if plain:
            actions[0] = action  # a tenth of the time of what is right for any action
        else:
            actions[:] = convert_actions(np.asarray(action)[None], self.dynamics, actions.shape)
        if self._kernel is None:
            self._compile()
        if self._kernel(*self._arguments):
            bad = find_bad_actions(actions, self.dynamics)
            raise ValueError(describe_bad_actions(actions, bad, self.dynamics))
        terminated, truncated = self._terminated.item(), self._truncated.item()
        self._ended = terminated or truncated
        if self.render_mode:
            self._renderer.remember(actions)
            if self.render_mode == "human":
                self.render()
        observation = self._observation.copy()
        if self._decode is not None:
            observation = self._decode(observation[None])[0]
        infos = {}
        if self._is_masked:
            found = self._batch._mask_infos(self._rows, np.array([self._ended]))
            infos = {"action_mask": found["action_mask"][0]}
        return observation, self._reward.item(), terminated, truncated, infos

    def _go_on(self) -> None:
        """Go on after the end of an episode."""
        if not self._warned:
            _ = self.state  # raises before the first reset
            gymnasium.logger.warn(
                f"step() was called after the end of an episode of {self.dynamics.id}: call "
                "reset() first, the results of further steps are undefined"
            )
            self._warned = True
        memory = self._batch.memory
        memory.set_state(memory.get_state())  # unchecked: it may be infinite by now

    @property
    def state(self) -> Any:
        """(state_size,), a copy; assign an array to set it. Or the NamedTuple that the state is.

        An episode that has ended begins anew with the state that is set.

        Raises:
            gymnasium.error.ResetNeeded: read before the first reset.
            TypeError, ValueError: set to something of another shape, or not finite.
        """
        states, layout = self._batch.state, self.dynamics.state
        if layout.is_plain:
            return np.asarray(states[0])
        return values_of(layout, self._batch.memory.get_state().T)[0]

    @state.setter
    def state(self, state: Any) -> None:
        layout = self.dynamics.state
        if layout.is_plain:
            self._batch.state = np.asarray(state)[None]
        else:
            fault = fault_of(layout, state)
            if fault:
                raise TypeError(f"state has to be {fault.replace('returned', 'got')}")
            if not self._batch._ready:
                self._batch.reset()
            self._batch.memory.set_state(rows_of(layout, [state], self._batch.scalar_type).T)
        self._ended = self._warned = False

    @property
    def params(self) -> Any:
        """The present parameters, a NamedTuple, of which `randomize` draws some at each reset."""
        return next(iter(self._batch._params_of_each()), self.dynamics.params)

    def render(self) -> Any:
        """Draw the state: an RGB picture (height, width, 3), or None if it is drawn in a window."""
        varied = filter(None, [self._batch._params_of_each()])
        frames = self._renderer.render(self._batch.memory.get_state(), *varied)
        return frames[0] if frames is not None else None

    def close(self) -> None:
        """Close the renderer."""
        self._renderer.close()

    def __repr__(self) -> str:
        return self._describe(dtype=self._batch.dtype.name)

    def __str__(self) -> str:
        return f"<{self!r}>"  # as Gymnasium's wrappers expect it
