"""The engine of environments of Gymnasium that are not ours.

They are stepped in Python by their own `gymnasium.vector.VectorEnv`. The differences between
Gymnasium's autoreset modes end here: `GymnasiumEngine.step` returns the observation to which each
step led, and `waiting` says which environments are reset in their next step, and so take none.
"""

from __future__ import annotations

import collections
import copy
import functools
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlcpu.envs.contract.policies import Policy
from rlcpu.envs.engine.base import Engine, Runner, TimeStep
from rlcpu.envs.engine.episode import SIZE, begin_of
from rlcpu.envs.engine.masks import mask_rows, masks_of_infos, pack_masks
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.gymnasium.task import EnvironmentFailure, GymnasiumTask, has_masks
from rlcpu.kernels.machine.random import splitmix64, stream_seeds

logger = logging.getLogger("rlcpu")

Array = npt.NDArray[Any]
#: Episodes whose last observation has to be the first of the next one for a warning.
SUSPICIOUS_ENDS = 10
#: Seeds below this are taken by every environment, also by those that give them to C code.
MOST_SEEDS = 2**31


class Moment(NamedTuple):
    """Moment at which environments returned something, for messages."""

    where: str  # such as "in step 7"
    actions: Array | None = None  # (N,) or (N, action_size) of that step, the policy's


class GymnasiumEngine(Engine):
    """N environments of Gymnasium; see `Engine`.

    Args:
        env: a `gymnasium.vector.VectorEnv`.
        dynamics: its spaces and names.
        autoreset_mode: of `env`.
        takes_masks: whether `env.reset` takes Gymnasium's option `reset_mask`.

    Attributes:
        observed: (N, rows) float32, the present observations with the bits of their action masks.
        keys: (N,) uint64, of the policy's random streams; clock: (1,) uint64, steps so far.
        totals, lengths: (N,) float64 and uint32, returns and steps of the running episodes.
        waiting: (N,) bool, whether the next step of an environment is its reset.
        ahead: for each environment a queue of steps that it took, but for which the last rollout
            had no room; they are the first of the next rollout.
        ready: whether the arrays are those of the environments: not before a reset, and not after
            an exception in a step.
        number: of the next step of a rollout, for messages.
        suspicious_ends: episodes so far whose last observation was the first of the next one; None
            after one of which it was not, and after the warning.
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
            view=ObservationView.of(dynamics, planes="uint8", dtype=np.dtype(np.float32)),
            autoreset_mode=autoreset_mode,
            max_episode_steps=dynamics.max_episode_steps,
        )
        # Environments that can be reset one by one are so when their episode ends: no step is lost.
        self._resets_at_once = self.disabled or (
            takes_masks and self.autoreset_mode is AutoresetMode.NEXT_STEP
        )
        self.keys, self.clock = np.zeros(n, np.uint64), np.zeros(1, np.uint64)
        self.episodes, self.lengths = np.zeros((n, SIZE)), np.zeros(n, np.uint32)
        self.waiting, self.number = np.zeros(n, np.bool_), 0
        self.ahead: list[collections.deque[Any]] = []
        self.suspicious_ends: int | None = 0 if self.same_step else None
        if self.same_step and isinstance(env.unwrapped, SyncVectorEnv):
            _copy_final_observations(env.unwrapped)
        self._set_view()

    def _set_view(self) -> None:
        """Set `view` and `rows`, which depend on whether there are action masks, and `observed`."""
        self.view = ObservationView.of(self.dynamics, planes="uint8", dtype=np.dtype(np.float32))
        self.rows = self.view.rows
        self.observed = np.zeros((self.num_envs, self.rows), np.float32)

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return the steps of the running episodes, (N,); 0 where the next step is a reset."""
        return self.lengths.copy()

    def state(self) -> dict[str, Array]:
        """Return the arrays for a checkpoint; the states of the environments are not among them."""
        return {"keys": self.keys, "clock": self.clock} | self.carried_arrays()

    def remembered(self) -> npt.NDArray[np.float32]:
        """Return the policy's recurrent states before the first step of the next rollout."""
        states = super().remembered()
        for i, steps_ahead in enumerate(self.ahead):
            if steps_ahead:
                states[i] = steps_ahead[0]["states"]
        return states

    def finish(self, mask: Array) -> None:
        """Let all environments begin anew before the next step: single ones cannot be ended."""
        self.ready = False

    def observe(self) -> Array:
        """Return the present observations, (rows, N)."""
        return self.observed.T.copy()

    def start_episodes(self) -> None:
        """Reset all environments, unless they are `ready`."""
        if not self.ready:
            self.reset_all()

    def make_runner(self, policy: Policy) -> Runner:
        """Return what lets a policy act; see `Engine.runner`."""
        from rlcpu.envs.gymnasium.loop import GymnasiumRunner  # not with `import rlcpu`

        self.start_episodes()  # which tells whether there are action masks
        return GymnasiumRunner(self, policy)

    def reset_all(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes in all environments; return what their `reset` returns.

        Args:
            seed: see `rlcpu.envs.GymnasiumEnv.reset`.
            options: for the environments.

        Raises:
            EnvironmentFailure: an environment raised an exception.
            FloatingPointError, ValueError: see `step`.
        """
        env_seed, self.ready = None, False
        if seed is not None or not self._seeded:
            numbers: Any = secrets.randbits(63) if seed is None else seed
            seeds = stream_seeds(numbers, self.num_envs)
            self.keys[:], self.clock[:] = splitmix64(seeds), 0
            self._seeded = True
            if seed is not None:  # environments get one seed: not all take a list
                env_seed = int(seeds[0] % np.uint64(MOST_SEEDS))
        observations, infos = self._call(self.env.reset, "in reset", seed=env_seed, options=options)
        if not self.dynamics.is_masked and has_masks(self.dynamics, infos):
            self.dynamics = self.dynamics.masked()
            self._set_view()
        self.observed[:] = self._rows(observations, infos, Moment("after its reset"))
        self.episodes[:] = begin_of(np.float64)
        self.lengths[:] = self.waiting[:] = 0
        self.ahead = [collections.deque() for _ in self.observed]
        self.ready = True
        return observations, infos

    def step(self, actions: Array) -> TimeStep:
        """Step all environments, and overwrite `observed`, by which the next actions are chosen.

        Where an environment is `waiting`, its step is a reset, and its results mean nothing.

        Args:
            actions: (N,) or (N, action_size), int64, or floats of a `Box`, which are clipped to
                its bounds; those of policies.

        Raises:
            EnvironmentFailure: an environment raised an exception.
            FloatingPointError: an observation or a reward is not finite.
            ValueError: a result has another shape, or is missing.
        """
        number, self.number = self.number, self.number + 1
        moment = Moment(f"in step {number}", actions)
        results = self._call(self.env.step, moment.where, self.dynamics.own_actions(actions))
        observations, rewards, terminated, truncated, infos = results
        taken = ~self.waiting
        rewards = self._convert_results("rewards", rewards, np.float64)
        self._refuse_not_finite("reward", np.where(taken, rewards, 0.0), moment)
        terminated = self._convert_results("terminated", terminated, np.bool_)
        truncated = self._convert_results("truncated", truncated, np.bool_)
        ended = taken & (terminated | truncated)
        # In same-step mode these are observations of the next episode, in which somebody acts.
        over = terminated & (not self.same_step)
        finals = rows = self._rows(observations, infos, moment, over)
        if self.same_step and ended.any():
            finals = rows.copy()
            finals[ended] = self._finals(observations, infos, moment, ended, terminated)
            self._warn_of_overwritten(finals[ended], rows[ended], self.observed[ended])
        elif self._resets_at_once and ended.any():
            where, rows = f"in the reset after step {number}", rows.copy()
            options = {"reset_mask": ended.copy()}
            observations, infos = self._call(self.env.reset, where, options=options)
            rows[ended] = self._rows(observations, infos, Moment(where), over=~ended)[ended]
        elif self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self.waiting[:] = ended
        self.observed[:] = rows
        return TimeStep(rows.T, rewards, terminated, truncated, finals.T)

    def _finals(
        self, observations: Any, infos: Any, moment: Moment, ended: Array, terminated: Array
    ) -> Array:
        """Return the last observations of the episodes that ended, (count, rows) float32.

        In same-step mode the infos have them, and `observations` are those after the reset. `ended`
        and `terminated` are (N,) bool.
        """
        envs = np.flatnonzero(ended)
        try:
            finals = [infos["final_obs"][i] for i in envs]
        except (KeyError, TypeError, IndexError):
            finals = [None]
        if any(final is None for final in finals):
            raise ValueError(
                f'{self.dynamics.id}: infos["final_obs"] lacks environment {envs[0]}, whose '
                f"episode ended {moment.where}: expected what same-step autoreset of Gymnasium "
                "gives"
            )
        # Observations of all environments, as `_rows` takes them.
        all_finals = _with_finals(observations, finals, envs)
        final_infos = infos.get("final_info", {})
        return self._rows(all_finals, final_infos, moment, over=terminated | ~ended)[envs]

    def _warn_of_overwritten(self, finals: Array, firsts: Array, before: Array) -> None:
        """Log a warning if the last observations of episodes seem to be overwritten by the reset.

        They are if an environment returns one array that it writes in place, in another process or
        in vector environments that are not Gymnasium's. Of each of some episodes that ended, by
        rows (count, rows): `finals` are the last observations, `firsts` the first ones of the next
        episode, and `before` those before the last step.
        """
        if self.suspicious_ends is None:
            return
        numbers = slice(self.rows - mask_rows(self.view.num_masked))
        finals, firsts, before = (x[:, numbers].view(np.uint32) for x in (finals, firsts, before))
        told_apart = (before != firsts).any(axis=1)  # not if all observations are the same
        if (finals[told_apart] != firsts[told_apart]).any():
            self.suspicious_ends = None
            return
        self.suspicious_ends += int(told_apart.sum())
        if self.suspicious_ends >= SUSPICIOUS_ENDS:
            logger.warning(
                "%s: the last observation of each of the first %d episodes is the first of the "
                "next episode: an environment that returns one array, which it writes in place, "
                "has to return copies of it where episodes end and begin in the same step",
                self.dynamics.id,
                self.suspicious_ends,
            )
            self.suspicious_ends = None

    def _convert_results(self, name: str, values: Any, dtype: Any) -> Array:
        """Return a copy of results of a step, (N,) of a dtype; raise ValueError for another shape.

        A vector environment may write into its own array in the reset that follows the step.
        """
        array = np.array(values, dtype)
        if array.shape != (self.num_envs,):
            raise ValueError(
                f"{self.dynamics.id}: step returned {name} of shape {array.shape}: "
                f"expected ({self.num_envs},)"
            )
        return array

    def _rows(
        self, observations: Any, infos: Any, moment: Moment, over: Array | None = None
    ) -> Array:
        """Return observations, with the bits of action masks, as (N, rows) float32.

        Args:
            observations: as the environments return them.
            infos: as the environments return them.
            moment: when they did.
            over: (N,) bool, episodes that are over: their masks may be missing, or allow nothing.

        Raises:
            ValueError, FloatingPointError: an observation or a mask is bad.
        """
        rows = self._observation_rows(observations, moment)
        if not self.view.num_masked:
            return rows
        over = np.zeros(self.num_envs, np.bool_) if over is None else over
        try:
            choices = self.dynamics.choices
            masks = masks_of_infos(infos, self.view.num_masked, choices, over)
        except ValueError as error:
            raise ValueError(f"{self.dynamics.id}: {error} {moment.where}") from None
        return np.concatenate((rows, pack_masks(masks, choices)), axis=1)

    def _observation_rows(self, observations: Any, moment: Moment) -> Array:
        """Return observations, without action masks, as (N, rows) float32; see `_rows`."""
        view = self.view
        try:
            observations = self.dynamics.policy_observations(observations)
        except ValueError as error:
            raise ValueError(f"{self.dynamics.id}: observations {moment.where} {error}") from None
        if view.kind != "group":
            return self._pack("observation", view, observations, moment)
        if not isinstance(observations, Mapping):
            raise ValueError(
                f"{self.dynamics.id}: observations {moment.where} are of type "
                f"{type(observations).__name__}: expected the parts "
                f"{', '.join(part.name for part in view.parts)}"
            )
        (num_rows,) = view.size
        rows = np.zeros((self.num_envs, num_rows), np.float32)
        for name, begin_byte, part in view.parts:
            begin = begin_byte // rows.itemsize
            packed = self._pack(f"observation[{name!r}]", part, observations[name], moment)
            rows[:, begin : begin + part.rows] = packed
        return rows

    def _pack(self, name: str, view: ObservationView, observations: Any, moment: Moment) -> Array:
        """Return observations of no group, or a part of one, as (N, rows of it) float32.

        `name` and `view` are the part's. Raises ValueError or FloatingPointError for bad ones.
        """
        where = moment.where
        array, shape = np.asarray(observations), (self.num_envs, *view.shape)
        if array.shape != shape:
            are = "observations" if name == "observation" else name
            have = "have" if name == "observation" else "has"
            raise ValueError(
                f"{self.dynamics.id}: {are} {where} {have} shape {array.shape}: expected {shape}"
            )
        if view.kind in ("choice", "choices"):
            self._check_choices(name, view, array, where)
        elif view.kind == "numbers":
            if array.dtype.kind not in "iub":
                raise ValueError(
                    f"{self.dynamics.id}: {name} {where} is of {array.dtype}: expected {view.form}"
                )
            converted = array.astype(view.form)
            if (converted != array).any():
                i = int(np.argwhere(converted != array)[0][0])
                raise ValueError(
                    f"{self.dynamics.id}: environment {i} has {name} of {array.dtype} {where} "
                    f"outside of {view.form}"
                )
        else:
            with np.errstate(over="ignore"):
                array = array.astype(np.float32)
            self._refuse_not_finite(name, array, moment)
        packed: Array = view.pack(array)
        return packed

    def _check_choices(self, name: str, view: ObservationView, choices: Array, where: str) -> None:
        """Raise ValueError if a choice, of (N,) or (N, count), is none of its space."""
        low = np.broadcast_to(view.start, choices.shape)
        high = low + np.broadcast_to(view.size, choices.shape) - 1
        is_outside = (choices < low) | (choices > high)
        if is_outside.any():
            i, *k = place = tuple(np.argwhere(is_outside)[0].tolist())
            raise ValueError(
                f"{self.dynamics.id}: environment {i} has {name}{k or ''}={choices[place]} "
                f"{where}: expected {low[place]} to {high[place]}"
            )

    def _refuse_not_finite(self, name: str, numbers: Array, moment: Moment) -> None:
        """Raise FloatingPointError for the first number, of (N, ...), that is not finite."""
        if np.isfinite(numbers).all():
            return
        is_broken = ~np.isfinite(numbers.reshape(self.num_envs, -1)).all(axis=1)
        i = int(np.argmax(is_broken))
        index = np.argwhere(~np.isfinite(numbers[i])).tolist()[0] if numbers.ndim > 1 else []
        after = ""
        if moment.actions is not None:
            after = f" after the action {self.dynamics.own_actions(moment.actions[i])}"
        raise FloatingPointError(
            f"{self.dynamics.id}: environment {i} has {name}{index or ''}="
            f"{numbers[(i, *index)]} {moment.where}{after} ({is_broken.sum()} of {self.num_envs} "
            "environments have such numbers): expected finite numbers"
        )

    def _call(self, method: Callable[..., Any], where: str, *args: Any, **options: Any) -> Any:
        """Call a method of the environments; raise EnvironmentFailure for its exceptions."""
        try:
            return method(*args, **options)
        except Exception as error:
            i = _find_raising_env(error)
            subject = "an environment" if i is None else f"environment {i}"
            raise EnvironmentFailure(
                f"{self.dynamics.id}: {subject} raised {error!r} {where}"
            ) from error


def _copy_final_observations(env: SyncVectorEnv) -> None:
    """Let a vector environment copy the last observation of an episode before its reset.

    Gymnasium keeps the array that `step` returned, into which `reset` writes where an environment
    has one array for all its observations.
    """
    if "_add_info" not in vars(env):
        vars(env)["_add_info"] = functools.partial(_add_copied_info, env._add_info)


def _add_copied_info(add_info: Any, infos: Any, info: dict[str, Any], i: int) -> Any:
    """Return what `add_info` of Gymnasium's does, with a copy of the last observation."""
    if "final_obs" in info:
        info = {**info, "final_obs": copy.deepcopy(info["final_obs"])}
    return add_info(infos, info, i)


def _with_finals(observations: Any, finals: list[Any], envs: Array) -> Any:
    """Return a copy of observations, (N, ...) or a tree of them, with final ones of some envs.

    If observations and final ones are of different shapes, all others are zeros.
    """
    if isinstance(observations, Mapping) and isinstance(finals[0], Mapping):
        names = finals[0].keys() & observations.keys()
        return {n: _with_finals(observations[n], [x[n] for x in finals], envs) for n in names}
    if isinstance(observations, tuple) and isinstance(finals[0], tuple):
        parts = zip(observations, zip(*finals, strict=True), strict=False)
        return tuple(_with_finals(part, list(x), envs) for part, x in parts)
    array = np.asarray(observations)
    shape = (len(array), *np.shape(finals[0]))
    is_alike = array.shape == shape
    result = array.copy() if is_alike else np.zeros(shape, np.asarray(finals[0]).dtype)
    result[envs] = finals
    return result


def _find_raising_env(error: Exception) -> int | None:
    """Return the index of the environment that raised an exception; None if it is unknown.

    Gymnasium's loops over environments have it in a local variable, which the traceback shows.
    """
    trace = error.__traceback__
    while trace is not None:
        variables = trace.tb_frame.f_locals
        for vector_env, index in ((SyncVectorEnv, "i"), (AsyncVectorEnv, "index")):
            if isinstance(variables.get("self"), vector_env) and index in variables:
                return int(variables[index])
        trace = trace.tb_next
    return None
