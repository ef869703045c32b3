"""Environments of Gymnasium that are not ours, as agents and `collect` take them.

They are stepped where they are, in Python; only the policy runs in a kernel. What differs between
Gymnasium's autoreset modes ends here: a step tells what was reached, where an episode ended, and
which environments took no step because they were reset in it.
"""

from __future__ import annotations

import collections
import contextlib
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from rlcpu.envs.arguments import check_mode
from rlcpu.envs.engine.masks import mask_rows, masks_of_infos, pack_masks
from rlcpu.envs.engine.observations import View
from rlcpu.envs.gymnasium.task import EnvironmentFailure, GymnasiumTask, describe, has_masks
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.random import splitmix64, stream_seeds

Array = npt.NDArray[Any]
#: Seeds that every environment takes, those that give them to C too.
MOST_SEEDS = 2**31


class Memory:
    """What is kept of N environments between two steps.

    Attributes:
        rows: (N, rows) float32, the present observations, and their action masks.
        keys: (N,) uint64, of the policy's random streams; clock: (1,) uint64, steps so far.
        totals, lengths: (N,) float64 and uint32, of the running episodes.
        waiting: (N,) bool, whether the next step is a reset.
        ahead: for each environment its steps that the last rollout had no room for.
        ready: whether all this is so: not before a reset, and not after an exception in a step.
    """

    def __init__(self, num_envs: int, size: int) -> None:
        self.rows = np.zeros((num_envs, size), np.float32)
        self.keys, self.clock = np.zeros(num_envs, np.uint64), np.zeros(1, np.uint64)
        self.totals, self.lengths = np.zeros(num_envs), np.zeros(num_envs, np.uint32)
        self.waiting = np.zeros(num_envs, np.bool_)
        self.ahead: list[collections.deque[Any]] = []
        self.ready = False
        self.start()

    def start(self) -> None:
        """Begin an episode in all environments."""
        self.totals[:] = self.lengths[:] = self.waiting[:] = 0
        self.ahead = [collections.deque() for _ in self.rows]

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return (N,) steps of the running episodes; 0 where the next step is a reset."""
        return self.lengths.copy()

    def state(self) -> dict[str, Array]:
        """Return the arrays for a checkpoint; the environments' own state is theirs alone."""
        return {"keys": self.keys, "clock": self.clock}

    def finish(self, mask: Array) -> None:
        """Have all environments begin anew."""
        self.ready = False


class Step(NamedTuple):
    """One step of N environments.

    Attributes:
        taken: (N,) bool, False where the step was a reset: the rest tells nothing there.
        rewards: (N,) float64.
        terminated, truncated: (N,) bool.
        reached: (N, rows) float32, what the step led to, before a reset.
    """

    taken: Array
    rewards: Array
    terminated: Array
    truncated: Array
    reached: Array


class GymnasiumEnv(VectorEnv):
    """N environments of Gymnasium, for `rlcpu.collect`, `rlcpu.simulate` and agents.

    Agents make one of what they are given; make it yourself to name an autoreset mode. Episodes
    follow each other as in our own environments, whatever the mode: no reset is learnt from, and
    what a truncated episode led to is what its value is estimated of. Where the infos of a reset
    hold `action_mask`, a number for each action of a `Discrete` as Gymnasium's Taxi gives them,
    those of every step have to, and policies choose among the allowed actions.

    Args:
        env: a `gymnasium.vector.VectorEnv`, or a `gymnasium.Env`. Observations: a `Box` of one
            axis, or `Discrete`; actions: `Discrete`, or a `Box` or `MultiDiscrete` of one axis.
        autoreset_mode: of a vector environment whose metadata does not tell it.

    Attributes:
        env: a vector environment; a single one was put into a `SyncVectorEnv`.
        dynamics: what is known of it, with `id`.

    Raises:
        TypeError: it is neither, or has other spaces.
        ValueError: the autoreset mode is unknown.
    """

    dynamics: GymnasiumTask

    def __init__(
        self,
        env: Any,
        *,
        autoreset_mode: AutoresetMode | str | None = None,
        task: GymnasiumTask | None = None,
    ) -> None:
        # EnvPool's are both.
        if isinstance(env, gymnasium.Env) and not isinstance(env, GymnasiumVectorEnv):
            single = env
            env = SyncVectorEnv([lambda: single], autoreset_mode=AutoresetMode.DISABLED)
        if not isinstance(env, GymnasiumVectorEnv):
            raise TypeError(f"env={env!r}: expected a gymnasium.vector.VectorEnv or gymnasium.Env")
        self.env, self.device, self.prepared = env, "cpu", None
        mode = autoreset_mode or (env.metadata or {}).get("autoreset_mode")
        if mode is None:
            raise ValueError(
                f"{env!r} has no autoreset_mode in its metadata: give the agent "
                'rlcpu.envs.GymnasiumEnv(env, autoreset_mode="NextStep"), or whichever it has'
            )
        self.autoreset_mode = check_mode(mode)
        # Gymnasium's own, and ours, take a reset of some environments in the place of a lost step.
        takes_masks = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv | VectorEnv)
        self._resets = self.autoreset_mode is AutoresetMode.DISABLED or (
            takes_masks and self.autoreset_mode is AutoresetMode.NEXT_STEP
        )
        name, spec = describe(env)
        self.dynamics = task or GymnasiumTask(
            name, env.single_observation_space, env.single_action_space, spec=spec
        )
        self.num_envs, self.num_threads = check_count("num_envs", env.num_envs), None
        self.max_episode_steps = self.dynamics.max_episode_steps
        self.dtype = np.dtype(np.float64)
        self.single_observation_space = self.dynamics.observation_space
        self.single_action_space = self.dynamics.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata, self.render_mode = {**(env.metadata or {})}, env.render_mode
        self.metadata["autoreset_mode"] = self.autoreset_mode
        self._seeded = False
        self._lay_out()

    def _lay_out(self) -> None:
        """Find out how observations, and masks behind them, are kept, and make room for them."""
        self.view = View.of(self.dynamics, "uint8", np.dtype(np.float32))
        self.rows = 1 if self.view.kind == "choice" else self.view.size[0]
        self.rows += mask_rows(self.view.num_masked)
        self.memory = Memory(self.num_envs, self.rows)

    def __repr__(self) -> str:
        kind = type(self.env.unwrapped).__name__
        return f"GymnasiumEnv({self.dynamics.id}, {kind}, num_envs={self.num_envs})"

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied or pickled: make another one")

    def copies(self, num_envs: int, **options: Any) -> contextlib.AbstractContextManager[Any]:
        """Environments to evaluate in: new ones, or these, which begin new episodes afterwards.

        Args:
            num_envs: at most so many.
            **options: of Gymnasium's `make_vec`.
        """
        if self.dynamics.make is None:
            return _borrowed(self)
        return contextlib.closing(make(self.dynamics, min(num_envs, self.num_envs), **options))

    # ------------------------------------------------------------ what agents and `collect` ask for

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start new episodes in all environments.

        Args:
            seed: an int, or one for each environment, of which the environments get the first, as
                not all take several; the policy's random numbers follow from all.
            options: for the environments.

        Returns:
            What they return.
        """
        memory, number = self.memory, None
        memory.ready = False
        if seed is not None or not self._seeded:
            first_seed: Any = secrets.randbits(63) if seed is None else seed
            seeds = stream_seeds(first_seed, self.num_envs)
            number = None if seed is None else int(seeds[0] % np.uint64(MOST_SEEDS))
            memory.keys[:], memory.clock[:] = splitmix64(seeds), 0
            self._seeded = True
        try:
            observations, infos = self.env.reset(seed=number, options=options)
        except Exception as error:
            raise self._explain(error, "in reset") from error
        if not self.dynamics.is_masked and has_masks(self.dynamics, infos):
            self.dynamics = self.dynamics.masked()
            keys, clock = memory.keys, memory.clock
            self._lay_out()
            memory = self.memory
            memory.keys, memory.clock = keys, clock
        memory.rows[:] = self._rows(observations, infos, "after its reset")
        memory.start()
        memory.ready = True
        return observations, infos

    def start_episodes(self) -> None:
        """Reset all, unless they are in the midst of episodes."""
        if not self.memory.ready:
            self.reset()

    def step(self, actions: Array) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments themselves; `collect` begins new episodes afterwards."""
        self.memory.ready = False
        observations, rewards, terminated, truncated, infos = self.env.step(self._convert(actions))
        return observations, rewards, terminated, truncated, infos

    def advance(self, actions: Array, number: int) -> Step:
        """Take a step, and keep the observations that the next actions are chosen by.

        Args:
            actions: (num_envs,) or (num_envs, action_size), int64, or float32 of a `Box`, which are
                clipped to its bounds.
            number: of the step, for messages.

        Raises:
            EnvironmentFailure: an environment raised an exception.
            FloatingPointError: an observation or a reward is not finite.
            ValueError: something has another shape, or is missing.
        """
        memory = self.memory
        where = f"in step {number}"
        try:
            observations, rewards, terminated, truncated, infos = self.env.step(
                self._convert(actions)
            )
        except Exception as error:
            raise self._explain(error, where) from error
        taken = ~memory.waiting
        rewards = self._take("rewards", rewards, np.float64)
        self._refuse_bad("reward", np.where(taken, rewards, 0.0), where, actions)
        terminated = self._take("terminated", terminated, np.bool_)
        truncated = self._take("truncated", truncated, np.bool_)
        ended = taken & (terminated | truncated)
        is_same = self.autoreset_mode is AutoresetMode.SAME_STEP
        over = terminated & (not is_same)  # nobody acts there, and no value counts
        reached = rows = self._rows(observations, infos, where, actions, over)
        if is_same and ended.any():
            reached = rows.copy()
            reached[ended] = self._finals(infos, ended, terminated, where, actions)
        elif self._resets and ended.any():
            rows = rows.copy()
            try:
                observations, infos = self.env.reset(options={"reset_mask": ended.copy()})
            except Exception as error:
                raise self._explain(error, f"in the reset after step {number}") from error
            where = f"in the reset after step {number}"
            rows[ended] = self._rows(observations, infos, where, over=~ended)[ended]
        elif self.autoreset_mode is AutoresetMode.NEXT_STEP:
            memory.waiting[:] = ended
        memory.rows[:] = rows
        return Step(taken, rewards, terminated, truncated, reached)

    def _finals(
        self, infos: Any, ended: Array, terminated: Array, where: str, actions: Array
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
        every = np.zeros((self.num_envs, *np.shape(finals[0])), np.asarray(finals[0]).dtype)
        every[places] = finals
        last = infos.get("final_info", {})
        return self._rows(every, last, where, actions, terminated | ~ended)[places]

    def _convert(self, actions: Array) -> Array:
        """Actions of the environments' own dtype, within their bounds."""
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
        """Observations as rollouts keep them, and their masks, (num_envs, rows) float32.

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
        """Observations alone, (num_envs, observation rows) float32."""
        array = np.asarray(observations)
        shape = (self.num_envs, *self.view.shape)
        if array.shape != shape:
            raise ValueError(
                f"{self.dynamics.id}: observations {where} have shape {array.shape}: "
                f"expected {shape}"
            )
        if self.view.kind == "choice":
            bad = (array < 0) | (array >= self.view.size[0])
            if bad.any():
                i = int(np.argmax(bad))
                raise ValueError(
                    f"{self.dynamics.id}: environment {i} has observation={array[i]} {where}: "
                    f"expected 0 to {self.view.size[0] - 1}"
                )
            return array.astype(np.int32)[:, None].view(np.float32)
        with np.errstate(over="ignore"):
            rows = array.astype(np.float32)
        self._refuse_bad("observation", rows, where, actions)
        return rows

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

    # ------------------------------------------------------------ the rest of Gymnasium's contract

    def observe(self) -> Array:
        """Return the present observations."""
        observations: Array = self.view.decode(self.memory.rows.copy())
        return observations

    def render(self) -> Any:
        """Render the environments."""
        return self.env.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close environments that were made here; who gave others closes them."""
        if "dynamics" in vars(self) and self.dynamics.make is not None:
            self.env.close(**kwargs)


@contextlib.contextmanager
def _borrowed(env: GymnasiumEnv) -> Any:
    """Yield the environments themselves, whose streams go on afterwards as if nothing had been."""
    memory = env.memory
    copies = {name: array.copy() for name, array in memory.state().items()}
    try:
        yield env
    finally:
        memory.ready = False
        for name, array in memory.state().items():
            array[:] = copies[name]


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


def make(task: GymnasiumTask, num_envs: int, **settings: Any) -> GymnasiumEnv:
    """So many environments of a task that was found by its id.

    Args:
        task: what `find_task` returned.
        num_envs: how many.
        **settings: those of `VectorEnv`; of them `max_episode_steps` and `render_mode` are
            Gymnasium's too, and `dtype`, `planes` and `num_threads` are of no concern here.

    Raises:
        TypeError: another setting, or the task was not found by an id.
    """
    if task.make is None:
        raise TypeError(f"{task!r} was given with its environments: it cannot be made again")
    if "autoreset_mode" in settings:
        raise TypeError(f"autoreset_mode: {task.id} has that which gymnasium.make_vec gives it")
    limit, mode = settings.get("max_episode_steps"), settings.get("render_mode")
    options = {} if limit in (None, task.max_episode_steps) else {"max_episode_steps": limit}
    if mode is not None:
        options["render_mode"] = mode
    return GymnasiumEnv(task.make(num_envs=num_envs, **options), task=task)
