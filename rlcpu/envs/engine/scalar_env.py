"""One environment under `gymnasium.make`."""

from __future__ import annotations

import operator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rlcpu.envs.contract.arguments import convert_actions, describe_bad_actions, find_bad_actions
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.engine.episode import PENDING
from rlcpu.envs.engine.observations import each_part
from rlcpu.envs.engine.vector_env import Array, Parameters, VectorEnv


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

    def __init__(
        self, dynamics: Dynamics, dtype: str = "float32", render_mode: str | None = None
    ) -> None:
        self.dynamics = dynamics
        self._batch = VectorEnv(
            dynamics,
            dtype=dtype,
            autoreset_mode=AutoresetMode.DISABLED,
            max_episode_steps=PENDING - 1,  # the largest: no limit but that of the wrapper
        )
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        renderer = self._batch.engine.renderer
        self._renderer = renderer(dynamics, render_mode, ("human", "rgb_array"))
        self.render_mode = render_mode
        self.metadata = self._renderer.metadata
        self._ended, self._warned = True, False  # there is no episode yet
        view = self._batch.view
        # Whether the engine's numbers of the environment are an observation as they are.
        self._is_plain = view.kind == "floats" and len(view.size) == 1 and not view.num_masked
        self._has_infos = self.dynamics.num_masked > 0 or self._batch.engine.has_infos
        self._num_actions = self.dynamics.num_actions
        self._single: Any = None  # made, with its kernel, by the first step
        self._set_parameter_attributes()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_single": None}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start a new episode; see `VectorEnv.reset`."""
        super().reset(seed=seed)
        observations, infos = self._batch.reset(seed=seed, options=options)
        self._ended = self._warned = False
        if self.render_mode == "human":
            self.render()
        if "action_mask" in infos:
            infos = {"action_mask": infos["action_mask"][0]}
        return each_part(lambda part: part[0].copy(), observations), infos

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
            self._resume_after_end()
        step = self._single
        if step is None:
            step = self._single = self._batch.engine.single_step()
        actions = step.actions  # (1,) or (1, action_size), which the step reads
        if self._is_converted(action, actions):
            actions[0] = action  # a tenth of the time of a conversion that takes any action
        else:
            actions[:] = convert_actions(np.asarray(action)[None], self.dynamics, actions.shape)
        is_bad = step.run(*step.arguments)
        if is_bad:  # no step was taken
            bad = find_bad_actions(actions, self.dynamics)
            raise ValueError(describe_bad_actions(actions, bad, self.dynamics))
        terminated, truncated = step.terminated.item(), step.truncated.item()
        self._ended = terminated or truncated
        if self.render_mode:
            self._renderer.remember(actions)
            if self.render_mode == "human":
                self.render()
        infos = step.infos() if self._has_infos else {}
        # Copies: the next step overwrites the memory, which floats and groups would show.
        if self._is_plain:
            observation = step.rows[:, 0].copy()
        else:
            observations = self._batch.view.show(step.rows.copy())
            observation = each_part(operator.itemgetter(0), observations)
        return observation, step.reward.item(), terminated, truncated, infos

    def _is_converted(self, action: Any, actions: Array) -> bool:
        """Tell whether an action can be written into the array of actions as it is."""
        kind = type(action)
        if self._num_actions:
            return kind is np.int64 or (kind is int and 0 <= action < self._num_actions)
        is_alike = kind is np.ndarray and action.dtype == actions.dtype
        return is_alike and action.shape == actions.shape[1:]

    def _resume_after_end(self) -> None:
        """Warn once, and let the next step go on from the last state of an ended episode."""
        if not self._warned:
            _ = self.state  # raises before the first reset
            gymnasium.logger.warn(
                f"step() was called after the end of an episode of {self.dynamics.id}: call "
                "reset() first, the results of further steps are undefined"
            )
            self._warned = True
        self._batch.engine.resume()

    @property
    def state(self) -> Any:
        """Return a copy of the state, (state_size,), or a NamedTuple of it; assign to set it.

        An episode that has ended begins anew with the state that is set.

        Raises:
            gymnasium.error.ResetNeeded: read before the first reset.
            TypeError, ValueError: set to something of another shape, or not finite.
        """
        states, layout = self._batch.state, self.dynamics.state
        if layout.is_plain:
            return np.asarray(states[0])
        return layout.to_states(self._batch.engine.get_state())[0]

    @state.setter
    def state(self, state: Any) -> None:
        layout = self.dynamics.state
        if layout.is_plain:
            self._batch.state = np.asarray(state)[None]
        else:
            fault = layout.fault_of(state)
            if fault:
                raise TypeError(f"state has to be {fault.replace('returned', 'got')}")
            engine = self._batch.engine
            if not engine.ready:
                self._batch.reset()
            engine.set_state(layout.to_rows([state], engine.scalar_type))
        self._ended = self._warned = False

    @property
    def params(self) -> Any:
        """Return the present parameters, a NamedTuple; `randomize` draws some at each reset."""
        return next(iter(self._batch.engine.params_of_each()), self.dynamics.params)

    def render(self) -> Any:
        """Draw the state: an RGB picture (height, width, 3), or None if it is drawn in a window."""
        engine = self._batch.engine
        frames = self._renderer.render(engine.get_state(), engine.params_of_each())
        return frames[0] if frames is not None else None

    def close(self) -> None:
        """Close the renderer."""
        self._renderer.close()

    def __repr__(self) -> str:
        return self._describe(dtype=self._batch.dtype.name)

    def __str__(self) -> str:
        return f"<{self!r}>"  # as Gymnasium's wrappers expect it
