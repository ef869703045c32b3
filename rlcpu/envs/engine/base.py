"""The contract of an engine, which runs N environments: by our kernels, CUDA, MuJoCo or Gymnasium.

`VectorEnv` is Gymnasium's face of an engine; `collect`, `simulate` and agents let policies act in
it. Observations are rows of numbers here, row r of environment i at [r, i], with action masks as
bits in the last rows: `rlcpu.envs.engine.observations.ObservationView` shows them to users.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from rlcpu.envs.arguments import (
    convert_actions,
    describe_bad_actions,
    find_bad_actions,
)
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.carried import Carrying
from rlcpu.envs.engine.form import Form
from rlcpu.envs.engine.lane import PENDING
from rlcpu.envs.engine.masks import mask_rows, write_masks
from rlcpu.envs.engine.observations import ObservationView, each_part
from rlcpu.envs.policies import Policy, carrier_of, check_policy
from rlcpu.envs.render import Renderer
from rlcpu.kernels.random import new_seeds, stream_seeds

Array = npt.NDArray[Any]


class TimeStep(NamedTuple):
    """One step of N environments.

    Attributes:
        observations: (rows, N), of the states that the environments go on with.
        rewards: (N,), of the engine's dtype.
        terminated, truncated: (N,) bool, whether the episode ended with this step.
        finals: (rows, N), what the step led to, before a reset; in same-step mode alone.
    """

    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    finals: Any


class Engine(Carrying):
    """N environments and their memory: states, random streams, and clocks of episodes.

    Subclasses bring the methods that raise NotImplementedError here.

    Args:
        dynamics: the environment.
        num_envs: N.
        dtype: of states and rewards, float32 or float64.
        view: how observations are delivered.
        autoreset_mode: when a finished episode starts anew.
        max_episode_steps: steps after which an episode is truncated; None for no limit.
        num_threads: threads to use; None takes all of numba's.

    Attributes:
        device: where the environments run and their arrays are.
        rows: numbers that hold an observation and its action mask.
        limit: the limit of steps; `PENDING` without one.
        ready: whether all environments have been reset, or were given states.

    Raises:
        TypeError: the engine cannot run the environment.
    """

    device = "cpu"
    #: Whether a step may have infos, beside those of masks and of last observations.
    has_infos = False
    #: Class of what draws states.
    renderer: Any = Renderer

    def __init__(
        self,
        dynamics: Dynamics,
        num_envs: int,
        *,
        dtype: np.dtype[Any],
        view: ObservationView,
        autoreset_mode: AutoresetMode,
        max_episode_steps: int | None = None,
        num_threads: int | None = None,
    ) -> None:
        self.dynamics, self.num_envs, self.dtype, self.view = dynamics, num_envs, dtype, view
        self.autoreset_mode, self.num_threads = autoreset_mode, num_threads
        self.limit = PENDING if max_episode_steps is None else max_episode_steps
        self.same_step = autoreset_mode is AutoresetMode.SAME_STEP
        self.disabled = autoreset_mode is AutoresetMode.DISABLED
        width = (dynamics.action_size,) if dynamics.action_size else ()
        self.action_shape = (num_envs, *width)
        self.action_dtype = np.dtype(np.int64 if dynamics.is_discrete else np.float32)
        self.rows = view.rows
        self.ready = self._seeded = False
        self.last_runner: Runner | None = None

    @property
    def scalar_type(self) -> Any:
        """Return the NumPy type of states and rewards; kernels are chosen by it."""
        return self.dtype.type

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """Return the dtype in which users set states."""
        return self.dtype

    @property
    def form(self) -> Form:
        """Return the form of a rollout's arrays."""
        shape, kind = self.action_shape[1:], self.action_dtype.type
        return Form(self.num_envs, self.rows, self.view, shape, kind, self.dtype, self.device)

    # ------------------------------------------------------------ what an engine brings

    def start_streams(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start the random streams of the masked environments anew, from one seed each."""
        raise NotImplementedError

    def restart(self, mask: npt.NDArray[np.bool_], params: Any) -> None:
        """Start new episodes in the masked environments, whose states are drawn with `params`."""
        raise NotImplementedError

    def step(self, actions: Any) -> TimeStep:
        """Take one step in every environment.

        Args:
            actions: (N,) or (N, action_size), see `VectorEnv.step`.

        Raises:
            TypeError, ValueError: actions are bad; nothing has been stepped then.
            gymnasium.error.ResetNeeded: autoreset is disabled, and an episode has finished.
        """
        raise NotImplementedError

    def single_step(self) -> Any:
        """Return a step of one environment whose arrays are made once: they take longest.

        It has `actions`, `rows`, `reward`, `terminated` and `truncated`, arrays of a batch of one,
        `run(*arguments)`, which returns whether the action is bad, and `infos()`.
        """
        raise NotImplementedError

    def observe(self) -> Any:
        """Return the observations of the present states, (rows, N)."""
        raise NotImplementedError

    def make_runner(self, policy: Policy) -> Runner:
        """Return a new runner of a policy; see `runner`."""
        raise NotImplementedError

    def get_state(self) -> Any:
        """Return a copy of the states, (N, rows of a state)."""
        raise NotImplementedError

    def set_state(self, state: Array) -> None:
        """Copy (N, rows of a state) in; finished episodes become running ones."""
        raise NotImplementedError

    def resume(self) -> None:
        """Make finished episodes running ones, which go on in their last states."""
        raise NotImplementedError

    def state(self) -> dict[str, Array]:
        """Return all arrays that the next steps depend on, by name; they are the engine's own."""
        raise NotImplementedError

    def take(self, part: slice) -> dict[str, Array]:
        """Return a copy of states, streams and clocks of some environments, for `put`."""
        raise NotImplementedError

    def put(self, part: slice, taken: Mapping[str, Array]) -> None:
        """Overwrite states, streams and clocks of some environments by what `take` returned."""
        raise NotImplementedError

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return (N,) steps of the running episodes, on the host; `PENDING` where finished."""
        raise NotImplementedError

    def finish(self, mask: npt.NDArray[np.bool_]) -> None:
        """End the episodes of the masked environments: they wait for a reset."""
        raise NotImplementedError

    # ------------------------------------------------------------ what an engine may bring

    def finished(self) -> Any:
        """Return (N,) bool, which episodes wait for their reset."""
        return self.elapsed() == PENDING

    def get_returns(self) -> Array:
        """Return (N,) returns of the running episodes so far."""
        raise NotImplementedError

    def get_params(self) -> dict[str, Array]:
        """Return the parameters that vary from environment to environment, (N, ...) each."""
        return {}

    def infos(self) -> dict[str, Any]:
        """Return Gymnasium's infos of the last step, but for those of observations and masks."""
        return {}

    def final_observations(self, step: TimeStep, ended: npt.NDArray[np.bool_]) -> Any:
        """Return the last observations of ended episodes, an object array (N,), or None."""
        if not ended.any():
            return None
        final_obs, places = np.full(ended.size, None, dtype=object), np.flatnonzero(ended)
        shown = self.view.show(step.finals[:, places])
        for k, i in enumerate(places.tolist()):
            final_obs[i] = each_part(functools.partial(_copy_of, k), shown)
        return final_obs

    def to_host(self, array: Any) -> Any:
        """Return an array of the engine's device, or of the host, on the host."""
        return array

    # ------------------------------------------------------------ what all engines do alike

    def seed(self, seed: int | Sequence[int | None] | None, mask: npt.NDArray[np.bool_]) -> None:
        """Seed the masked environments; environments that never were get seeds of their own.

        Args:
            seed: an int seeds environment i with seed + i; a list gives one seed (or None) for
                each; None seeds no environment that was seeded before.
            mask: (N,) bool.

        Raises:
            TypeError, ValueError: the seed is bad.
        """
        if seed is None and self._seeded:
            return
        is_seeded = np.full(self.num_envs, seed is not None)
        numbers: Any = 0 if seed is None else seed
        if isinstance(seed, list | tuple):
            is_seeded = np.array([item is not None for item in seed])
            numbers = [0 if item is None else item for item in seed]
        seeds = stream_seeds(numbers, self.num_envs)
        if not self._seeded:
            self.start_streams(new_seeds(self.num_envs), np.ones(self.num_envs, np.bool_))
            self._seeded = True
        self.start_streams(seeds, is_seeded & mask)

    def reset(
        self,
        mask: npt.NDArray[np.bool_] | None = None,
        seed: int | Sequence[int | None] | None = None,
        params: Any = None,
    ) -> None:
        """Start new episodes.

        Args:
            mask: (N,) bool, the environments to reset; None for all.
            seed: see `seed`.
            params: of this reset; None takes those of the dynamics.

        Raises:
            TypeError, ValueError: the seed is bad; nothing has changed then.
            gymnasium.error.ResetNeeded: the first reset leaves environments out.
        """
        chosen = np.ones(self.num_envs, np.bool_) if mask is None else mask
        if not (self.ready or chosen.all()):
            raise ResetNeeded('options["reset_mask"]: the first reset has to be of all of them')
        self.seed(seed, chosen)
        self.restart(chosen, self.dynamics.params if params is None else params)
        self.ready = True

    def mark_ready(self) -> None:
        """Go on from the arrays of `state`, which somebody has overwritten."""
        self.ready = self._seeded = True

    def start_episodes(self) -> None:
        """Reset what has never been reset, and what has finished and waits for its reset.

        Raises:
            gymnasium.error.ResetNeeded: an environment has finished and autoreset is disabled.
        """
        if not self.ready:
            self.reset()
        finished = self.finished()
        if not finished.any():
            return
        if self.disabled:
            self.check_running()
        self.restart(finished, self.dynamics.params)

    def check_running(self) -> None:
        """Raise ResetNeeded if an environment has finished."""
        finished = np.flatnonzero(self.elapsed() == PENDING)
        if len(finished):
            raise ResetNeeded(
                f"{len(finished)} environments have finished (first: {finished[0]}) and autoreset "
                'is disabled: call reset(options={"reset_mask": terminated | truncated}) first'
            )

    def runner(self, policy: Policy) -> Runner:
        """Return the runner of a policy, the last one if it still holds.

        Raises:
            TypeError, ValueError: it is no policy, or does not fit the environments.
        """
        runner = self.last_runner
        if runner is None or not runner.is_current(policy):
            check_policy(policy)
            runner = self.last_runner = self.make_runner(policy)
        return runner

    # ------------------------------------------------------------ actions

    def convert(self, actions: Any) -> Any:
        """Return the actions as kernels take them: the array itself, if it can be taken.

        Raises:
            TypeError, ValueError: actions of another kind of dtype, or of another shape.
        """
        if (
            type(actions) is np.ndarray
            and actions.dtype == self.action_dtype
            and actions.shape == self.action_shape
            and actions.flags.c_contiguous
        ):
            return actions
        return convert_actions(actions, self.dynamics, self.action_shape)

    def without_waiting(self, actions: Array) -> Array:
        """Return a copy of the actions with 0 for environments whose next step is their reset.

        Raises:
            ValueError: another environment has a bad action.
            gymnasium.error.ResetNeeded: an environment has finished and autoreset is disabled.
        """
        if self.disabled:
            self.check_running()
        actions = np.array(actions)
        actions[self.elapsed() == PENDING] = 0
        bad = find_bad_actions(actions, self.dynamics)
        if len(bad):
            raise ValueError(describe_bad_actions(actions, bad, self.dynamics))
        return actions

    # ------------------------------------------------------------ action masks

    def masks(self, rows: Any, ended: Any = None) -> npt.NDArray[np.int8] | None:
        """Return the action masks in rows of observations, (N, num_actions) int8; None without any.

        Args:
            rows: (rows, N).
            ended: (N,) bool, environments in which nobody acts; None for those that wait for a
                reset.

        Raises:
            ValueError: the mask of another environment allows nothing.
        """
        if not self.view.num_masked:
            return None
        masks = np.empty((self.num_envs, self.view.num_masked), np.int8)
        if write_masks(rows, masks):
            self.check_masks(rows, self.finished() if ended is None else ended)
        return masks

    def check_masks(self, rows: Any, ended: npt.NDArray[np.bool_]) -> None:
        """Raise ValueError if a mask in rows (rows, N) allows nothing where one has to act."""
        words = rows[-mask_rows(self.view.num_masked) :].view(np.uint32)
        empty = (words == 0).all(axis=0) & ~ended
        if not empty.any():
            return
        i = int(np.argmax(empty))
        state = self.dynamics.state.states(self.get_state()[i : i + 1])[0]
        raise ValueError(
            f"{self.dynamics.id}: action_mask allows nothing in environment {i}, step "
            f"{self.elapsed()[i] % PENDING} of its episode, for state={state!r} ({empty.sum()} "
            "such environments): expected one action at least, or the end of the episode"
        )

    # ------------------------------------------------------------ parameters

    def params_of_each(self) -> list[Any]:
        """Return the parameters of each environment; nothing if they are the same for all."""
        params = self.get_params()
        rows = (values.tolist() if values.ndim == 1 else [*values] for values in params.values())
        each = zip(*rows, strict=True)
        return [self.dynamics.shown_params(dict(zip(params, v, strict=True))) for v in each]


def _copy_of(k: int, observations: Array) -> Any:
    return observations[k].copy()


class Runner:
    """An engine and a policy that fit each other: takes K steps, whose actions the policy chooses.

    An episode that ends is followed by a new one in the next step, whatever the autoreset mode.

    Attributes:
        engine, policy: these.
        state_size: numbers that the policy remembers of an environment.
    """

    state_size = 0

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self.engine, self.policy = engine, policy

    def states(self) -> Array | None:
        """Return the policy's states before the next step, (N, state_size), or None.

        Episodes that are missing are started.
        """
        if not self.state_size:
            return None
        self.engine.start_episodes()
        self.engine.carry(carrier_of(self.policy), self.state_size)
        return self.engine.remembered()

    def is_current(self, policy: Policy) -> bool:
        """Tell whether this is what lets a policy act now, and read its present numbers."""
        return False

    def collect(self, num_steps: int, records: Any) -> bool:
        """Take K steps and overwrite `records`; returns whether a number was not finite."""
        raise NotImplementedError

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums over the episodes that ended.

        These are their number, the sum of their returns, that of the squares, 0, and the sum of
        their lengths.

        Raises:
            FloatingPointError, ValueError: a number was not finite, or a mask allowed nothing.
        """
        raise NotImplementedError

    def check(self, records: Any, num_steps: int) -> None:
        """Raise FloatingPointError for the first number of a rollout that is not finite.

        Or ValueError, if an action mask that allows nothing came before it.
        """
        raise NotImplementedError
