"""The engine of environments of Gymnasium that are not ours.

They are stepped where they are, in Python. What differs between Gymnasium's autoreset modes ends
here: a step tells what was reached, where an episode ended, and which environments took no step
because they were reset in it.
"""

from __future__ import annotations

import collections
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlcpu.envs.engine.base import Engine, Runner, TimeStep
from rlcpu.envs.engine.masks import masks_of_infos, pack_masks
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.gymnasium.task import EnvironmentFailure, GymnasiumTask, has_masks
from rlcpu.envs.policies import Policy
from rlcpu.kernels.random import splitmix64, stream_seeds

Array = npt.NDArray[Any]
#: Seeds that every environment takes, those that give them to C too.
MOST_SEEDS = 2**31


class GymnasiumEngine(Engine):
    """N environments of Gymnasium; see `Engine`.

    Args:
        env: a `gymnasium.vector.VectorEnv`.
        dynamics: what is known of it.
        autoreset_mode: its own.
        takes_masks: whether it resets some environments alone.

    Attributes:
        observed: (N, rows) float32, the present observations, and their action masks.
        keys: (N,) uint64, of the policy's random streams; clock: (1,) uint64, steps so far.
        totals, lengths: (N,) float64 and uint32, of the running episodes.
        waiting: (N,) bool, whether the next step is a reset.
        ahead: for each environment its steps that the last rollout had no room for.
        ready: whether all this is so: not before a reset, and not after an exception in a step.
        number: of the next step of a rollout, for messages.
    """

    dynamics: GymnasiumTask

    def __init__(
        self, env: Any, dynamics: GymnasiumTask, autoreset_mode: AutoresetMode, takes_masks: bool
    ) -> None:
        self.env, n = env, int(env.num_envs)
        super().__init__(
            dynamics,
            n,
            dtype=np.dtype(np.float64),
            view=ObservationView.of(dynamics, "uint8", np.dtype(np.float32)),
            autoreset_mode=autoreset_mode,
            max_episode_steps=dynamics.max_episode_steps,
        )
        # A reset of some environments takes the place of a lost step.
        self._resets = self.disabled or (
            takes_masks and self.autoreset_mode is AutoresetMode.NEXT_STEP
        )
        self.keys, self.clock = np.zeros(n, np.uint64), np.zeros(1, np.uint64)
        self.totals, self.lengths = np.zeros(n), np.zeros(n, np.uint32)
        self.waiting, self.number = np.zeros(n, np.bool_), 0
        self.ahead: list[collections.deque[Any]] = []
        self._lay_out()

    def _lay_out(self) -> None:
        """Find out how observations, and masks behind them, are kept, and make room for them."""
        self.view = ObservationView.of(self.dynamics, "uint8", np.dtype(np.float32))
        self.rows = self.view.rows
        self.observed = np.zeros((self.num_envs, self.rows), np.float32)

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return (N,) steps of the running episodes; 0 where the next step is a reset."""
        return self.lengths.copy()

    def state(self) -> dict[str, Array]:
        """Return the arrays for a checkpoint; the environments' own state is theirs alone."""
        return {"keys": self.keys, "clock": self.clock} | self.carried_arrays()

    def remembered(self) -> npt.NDArray[np.float32]:
        """Return what was remembered before the next step that a rollout has; see `Carrying`."""
        states = super().remembered()
        for i, steps_ahead in enumerate(self.ahead):
            if steps_ahead:
                states[i] = steps_ahead[0]["states"]
        return states

    def finish(self, mask: Array) -> None:
        """Have all environments begin anew."""
        self.ready = False

    def observe(self) -> Array:
        """Return the present observations, (rows, N)."""
        return self.observed.T.copy()

    def start_episodes(self) -> None:
        """Reset all, unless they are in the midst of episodes."""
        if not self.ready:
            self.reset_all()

    def make_runner(self, policy: Policy) -> Runner:
        """Return what lets a policy act; see `Engine.runner`."""
        from rlcpu.envs.gymnasium.loop import GymnasiumRunner  # not with `import rlcpu`

        self.start_episodes()  # which tells whether there are action masks
        return GymnasiumRunner(self, policy)

    def reset_all(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes in all environments, and return what they return.

        Args:
            seed: see `rlcpu.envs.GymnasiumEnv.reset`.
            options: for the environments.

        Raises:
            EnvironmentFailure: an environment raised an exception.
            FloatingPointError, ValueError: see `step`.
        """
        number, self.ready = None, False
        if seed is not None or not self._seeded:
            first_seed: Any = secrets.randbits(63) if seed is None else seed
            seeds = stream_seeds(first_seed, self.num_envs)
            number = None if seed is None else int(seeds[0] % np.uint64(MOST_SEEDS))
            self.keys[:], self.clock[:] = splitmix64(seeds), 0
            self._seeded = True
        try:
            observations, infos = self.env.reset(seed=number, options=options)
        except Exception as error:
            raise self._explain(error, "in reset") from error
        if not self.dynamics.is_masked and has_masks(self.dynamics, infos):
            self.dynamics = self.dynamics.masked()
            self._lay_out()
        self.observed[:] = self._rows(observations, infos, "after its reset")
        self.totals[:] = self.lengths[:] = self.waiting[:] = 0
        self.ahead = [collections.deque() for _ in self.observed]
        self.ready = True
        return observations, infos

    def step(self, actions: Array) -> TimeStep:
        """Take a step, and keep the observations that the next actions are chosen by.

        Where an environment is `waiting`, its step is a reset, of which the result tells nothing.

        Args:
            actions: (N,) or (N, action_size), int64, or float32 of a `Box`, which are clipped to
                its bounds.

        Raises:
            EnvironmentFailure: an environment raised an exception.
            FloatingPointError: an observation or a reward is not finite.
            ValueError: something has another shape, or is missing.
        """
        number, self.number = self.number, self.number + 1
        where = f"in step {number}"
        try:
            observations, rewards, terminated, truncated, infos = self.env.step(
                self.bounded(actions)
            )
        except Exception as error:
            raise self._explain(error, where) from error
        taken = ~self.waiting
        rewards = self._take("rewards", rewards, np.float64)
        self._refuse_bad("reward", np.where(taken, rewards, 0.0), where, actions)
        terminated = self._take("terminated", terminated, np.bool_)
        truncated = self._take("truncated", truncated, np.bool_)
        ended = taken & (terminated | truncated)
        is_same = self.same_step
        over = terminated & (not is_same)  # nobody acts there, and no value counts
        reached = rows = self._rows(observations, infos, where, actions, over)
        if is_same and ended.any():
            reached = rows.copy()
            reached[ended] = self._finals(observations, infos, ended, terminated, where, actions)
        elif self._resets and ended.any():
            rows = rows.copy()
            try:
                observations, infos = self.env.reset(options={"reset_mask": ended.copy()})
            except Exception as error:
                raise self._explain(error, f"in the reset after step {number}") from error
            where = f"in the reset after step {number}"
            rows[ended] = self._rows(observations, infos, where, over=~ended)[ended]
        elif self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self.waiting[:] = ended
        self.observed[:] = rows
        return TimeStep(rows.T, rewards, terminated, truncated, reached.T)

    def _finals(
        self,
        observations: Any,
        infos: Any,
        ended: Array,
        terminated: Array,
        where: str,
        actions: Array,
    ) -> Array:
        """Return the last observations of the episodes that ended, of same-step infos."""
        places = np.flatnonzero(ended)
        try:
            finals = [infos["final_obs"][i] for i in places]
        except (KeyError, TypeError, IndexError):
            finals = [None]
        if any(final is None for final in finals):
            raise ValueError(
                f'{self.dynamics.id}: infos["final_obs"] lacks environment {places[0]}, whose '
                f"episode ended {where}: expected what same-step autoreset of Gymnasium gives"
            )
        every = _with_finals(observations, finals, places)
        last = infos.get("final_info", {})
        return self._rows(every, last, where, actions, terminated | ~ended)[places]

    def bounded(self, actions: Array) -> Array:
        """Return actions of the environments' own dtype, within their bounds."""
        space: Any = self.env.single_action_space
        if not isinstance(space, Box):
            return actions.astype(space.dtype)
        clipped: Array = np.clip(actions.astype(space.dtype), space.low, space.high)
        return clipped

    def _take(self, name: str, values: Any, dtype: Any) -> Array:
        array = np.asarray(values, dtype)
        if array.shape != (self.num_envs,):
            raise ValueError(
                f"{self.dynamics.id}: step returned {name} of shape {array.shape}: "
                f"expected ({self.num_envs},)"
            )
        return array

    def _rows(
        self,
        observations: Any,
        infos: Any,
        where: str,
        actions: Array | None = None,
        over: Array | None = None,
    ) -> Array:
        """Return observations as rollouts keep them, and their masks, (num_envs, rows) float32.

        Where it is `over`, (num_envs,) bool, a mask may be missing, or allow nothing.
        """
        rows = self._observed(observations, where, actions)
        if not self.view.num_masked:
            return rows
        over = np.zeros(self.num_envs, np.bool_) if over is None else over
        try:
            masks = masks_of_infos(infos, self.view.num_masked, over)
        except ValueError as error:
            raise ValueError(f"{self.dynamics.id}: {error} {where}") from None
        return np.concatenate((rows, pack_masks(masks)), axis=1)

    def _observed(self, observations: Any, where: str, actions: Array | None) -> Array:
        """Return observations alone, (num_envs, observation rows) float32."""
        view = self.view
        if view.kind != "group":
            return self._pack("observation", view, observations, where, actions)
        if not isinstance(observations, Mapping) or observations.keys() != set(self._part_names):
            received = observations
            if isinstance(received, Mapping):
                received = f"the parts {', '.join(map(str, received))}"
            raise ValueError(
                f"{self.dynamics.id}: observations {where} are {received}: expected the parts "
                f"{', '.join(self._part_names)}"
            )
        rows = np.zeros((self.num_envs, view.size[0]), np.float32)
        for name, begin, part in view.parts:
            label, own = f"observation[{name!r}]", observations[name]
            place = slice(begin // 4, begin // 4 + part.rows)
            rows[:, place] = self._pack(label, part, own, where, actions)
        return rows

    @property
    def _part_names(self) -> list[str]:
        return [part.name for part in self.view.parts]

    def _pack(
        self, name: str, view: ObservationView, observations: Any, where: str, actions: Array | None
    ) -> Array:
        """Return one part as rows (num_envs, its rows) float32, after checks."""
        array, shape = np.asarray(observations), (self.num_envs, *view.shape)
        if array.shape != shape:
            are = "observations" if name == "observation" else name
            have = "have" if name == "observation" else "has"
            raise ValueError(
                f"{self.dynamics.id}: {are} {where} {have} shape {array.shape}: expected {shape}"
            )
        if view.kind in ("choice", "choices"):
            low = np.array(view.start)
            high = low + np.array(view.size) - 1
            if view.kind == "choice":
                low, high = low[0], high[0]
            bad = (array < low) | (array > high)
            if bad.any():
                i, *k = np.argwhere(bad)[0].tolist()
                bounds = np.broadcast_to(low, array.shape)[(i, *k)]
                top = np.broadcast_to(high, array.shape)[(i, *k)]
                raise ValueError(
                    f"{self.dynamics.id}: environment {i} has {name}{k or ''}={array[(i, *k)]} "
                    f"{where}: expected {bounds} to {top}"
                )
        elif view.kind == "numbers":
            if array.dtype.kind not in "iub":
                raise ValueError(
                    f"{self.dynamics.id}: {name} {where} is of {array.dtype}: expected {view.form}"
                )
            held = array.astype(view.form)
            if (held != array).any():
                i = int(np.argwhere(held != array)[0][0])
                raise ValueError(
                    f"{self.dynamics.id}: environment {i} has {name} of {array.dtype} {where} "
                    f"outside of {view.form}"
                )
        else:
            with np.errstate(over="ignore"):
                array = array.astype(np.float32)
            self._refuse_bad(name, array, where, actions)
        packed: Array = view.pack(array)
        return packed

    def _refuse_bad(self, name: str, numbers: Array, where: str, actions: Array | None) -> None:
        """Raise FloatingPointError for the first number that is not finite."""
        if np.isfinite(numbers).all():
            return
        broken = ~np.isfinite(numbers.reshape(self.num_envs, -1)).all(axis=1)
        i = int(np.argmax(broken))
        place = np.argwhere(~np.isfinite(numbers[i])).tolist()[0] if numbers.ndim > 1 else []
        after = "" if actions is None else f" after the action {actions[i]}"
        raise FloatingPointError(
            f"{self.dynamics.id}: environment {i} has {name}{place or ''}="
            f"{numbers[(i, *place)]} {where}{after} ({broken.sum()} of {self.num_envs} "
            "environments have such numbers): expected finite numbers"
        )

    def _explain(self, error: Exception, where: str) -> EnvironmentFailure:
        """Return the exception to raise in the place of one of the environments'."""
        which = _find_culprit(error)
        who = "an environment" if which is None else f"environment {which}"
        return EnvironmentFailure(f"{self.dynamics.id}: {who} raised {error!r} {where}")


def _with_finals(observations: Any, finals: list[Any], places: Array) -> Any:
    """Return observations of all environments, those of some of them replaced by final ones."""
    if isinstance(observations, Mapping) and isinstance(finals[0], Mapping):
        names = finals[0].keys() & observations.keys()
        return {n: _with_finals(observations[n], [x[n] for x in finals], places) for n in names}
    now = np.asarray(observations)
    shape = (len(now), *np.shape(finals[0]))
    every = now.copy() if now.shape == shape else np.zeros(shape, np.asarray(finals[0]).dtype)
    every[places] = finals
    return every


def _find_culprit(error: Exception) -> int | None:
    """Find the environment that raised, where Gymnasium's loop is in the traceback."""
    trace = error.__traceback__
    while trace is not None:
        names = trace.tb_frame.f_locals
        for kind, name in ((SyncVectorEnv, "i"), (AsyncVectorEnv, "index")):
            if isinstance(names.get("self"), kind) and name in names:
                return int(names[name])
        trace = trace.tb_next
    return None
