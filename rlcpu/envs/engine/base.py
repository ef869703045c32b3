"""The contract of an engine, which runs N environments: by our kernels, CUDA, MuJoCo or Gymnasium.

`VectorEnv` is Gymnasium's face of an engine; `collect`, `simulate` and agents let policies act in
it by a `Runner`. Observations are here an array (rows, N) of floats, a column for each environment,
with the bits of its action mask in the last rows: `rlcpu.envs.engine.observations.ObservationView`
decodes them for users.

An environment "waits for its reset" after its episode has ended and before the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from rlcpu.envs.contract.arguments import (
    convert_actions,
    describe_bad_actions,
    find_bad_actions,
)
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.policies import Policy, check_policy, mark_of
from rlcpu.envs.contract.render import Renderer
from rlcpu.envs.engine.carried import Carrying
from rlcpu.envs.engine.episode import PENDING
from rlcpu.envs.engine.form import Form
from rlcpu.envs.engine.masks import mask_rows, write_masks
from rlcpu.envs.engine.observations import ObservationView, each_part
from rlcpu.kernels.machine.random import new_seeds, stream_seeds

Array = npt.NDArray[Any]


class TimeStep(NamedTuple):
    """One step of N environments."""

    #: (rows, N), of the states with which the environments go on.
    observations: Any
    #: (N,), of the engine's dtype.
    rewards: Any
    #: (N,) bool, whether the episode ended with this step.
    terminated: Any
    truncated: Any
    #: (rows, N), observations of the states to which the step led, before a reset; only in
    #: same-step mode.
    finals: Any


class Engine(Carrying):
    """N environments and their memory: states, random streams, and the steps of their episodes.

    Subclasses bring the methods that raise NotImplementedError here.

    Args:
        dynamics: the environment.
        num_envs: N.
        dtype: of states and rewards, float32 or float64.
        view: how rows are decoded to observations.
        autoreset_mode: when a finished episode starts anew.
        max_episode_steps: steps after which an episode is truncated; None for no limit.
        num_threads: threads to use; None takes all of numba's.

    Attributes:
        device: where the environments run and their arrays are.
        rows: floats that hold an observation and its action mask.
        limit: `max_episode_steps`; `PENDING`, the largest uint32, for no limit.
        same_step, disabled: whether this is the autoreset mode.
        action_shape, action_dtype: of the actions of all environments.
        ready: whether all environments have been reset, or were given states.
        last_runner: the runner of the policy that acted last.

    Raises:
        TypeError: the engine cannot run the environment.
    """

    device = "cpu"
    #: Whether `infos` may return any.
    has_infos = False
    #: Class of the objects that draw pictures of states.
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
        """Return the facts that decide the shapes of a rollout's arrays."""
        return Form(
            num_envs=self.num_envs,
            rows=self.rows,
            view=self.view,
            action_shape=self.action_shape[1:],
            action_dtype=self.action_dtype.type,
            dtype=self.dtype,
            device=self.device,
        )

    # ------------------------------------------------------------ methods that subclasses bring

    def start_streams(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start random streams anew.

        Args:
            seeds: (N,) uint64, of each environment's stream.
            mask: (N,) bool, the environments whose streams start; others go on.
        """
        raise NotImplementedError

    def restart(self, mask: npt.NDArray[np.bool_], params: Any) -> None:
        """Start new episodes in some environments.

        Args:
            mask: (N,) bool, which of them.
            params: parameters with which `reset` draws the states.
        """
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
        """Return a step for an engine of one environment, which uses the same arrays every time.

        To make arrays takes longer than a step. It has `actions`, `rows`, `reward`, `terminated`
        and `truncated`, arrays for one environment; `run`, which steps if it is called with
        `arguments`, and returns whether the action is bad; and `infos()`.
        """
        raise NotImplementedError

    def observe(self) -> Any:
        """Return the observations of the present states, (rows, N)."""
        raise NotImplementedError

    def make_runner(self, policy: Policy) -> Runner:
        """Return a new runner of a policy; see `runner`."""
        raise NotImplementedError

    def get_state(self) -> Any:
        """Return a copy of the states, (N, floats of a state)."""
        raise NotImplementedError

    def set_state(self, state: Array) -> None:
        """Overwrite the states, (N, floats of a state); finished episodes become running ones."""
        raise NotImplementedError

    def resume(self) -> None:
        """Make finished episodes running ones, which go on from their last states."""
        raise NotImplementedError

    def state(self) -> dict[str, Array]:
        """Return by name the arrays on which the next steps depend: the engine's own, no copies."""
        raise NotImplementedError

    def take(self, part: slice) -> dict[str, Array]:
        """Return a copy of the states, random streams and episodes of some environments, for `put`.

        Args:
            part: a slice of the environments.
        """
        raise NotImplementedError

    def put(self, part: slice, taken: Mapping[str, Array]) -> None:
        """Overwrite states, random streams and episodes of some environments.

        Args:
            part: a slice of the environments.
            taken: what `take` returned of as many environments, here or in another engine.
        """
        raise NotImplementedError

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return the steps of running episodes, (N,) on the host; `PENDING` of finished ones."""
        raise NotImplementedError

    def finish(self, mask: npt.NDArray[np.bool_]) -> None:
        """End the episodes of the environments of `mask`, (N,) bool: they wait for their reset."""
        raise NotImplementedError

    # ------------------------------------------------------------ methods that subclasses may bring

    def finished(self) -> Any:
        """Return which environments wait for their reset, (N,) bool."""
        return self.elapsed() == PENDING

    def get_returns(self) -> Array:
        """Return the returns so far of the running episodes, (N,)."""
        raise NotImplementedError

    def get_params(self) -> dict[str, Array]:
        """Return the parameters that differ between environments by name, (N, ...) each."""
        return {}

    def infos(self) -> dict[str, Any]:
        """Return Gymnasium's infos of the last step, but for final observations and masks."""
        return {}

    def final_observations(self, step: TimeStep, ended: npt.NDArray[np.bool_]) -> Any:
        """Return the last observations of the episodes that ended with a step.

        Args:
            step: the step, with `finals`.
            ended: (N,) bool, where an episode ended.

        Returns:
            An object array (N,), as Gymnasium's infos have it, with None where no episode ended; or
            None if none ended at all.
        """
        if not ended.any():
            return None
        final_obs, envs = np.full(ended.size, None, dtype=object), np.flatnonzero(ended)
        observations = self.view.show(step.finals[:, envs])
        for k, i in enumerate(envs.tolist()):
            final_obs[i] = each_part(lambda array, k=k: array[k].copy(), observations)
        return final_obs

    def to_host(self, array: Any) -> Any:
        """Return an array, of the engine's device or of the host, as one on the host."""
        return array

    # ------------------------------------------------------------ seeds and resets

    def seed(self, seed: int | Sequence[int | None] | None, mask: npt.NDArray[np.bool_]) -> None:
        """Seed the environments of a mask.

        At the first call all environments get random seeds first: those that are left out draw
        random numbers, too.

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
            # `stream_seeds` takes numbers alone: streams of these zeros are not started.
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
        """Count as reset and seeded, after somebody has overwritten the arrays of `state`."""
        self.ready = self._seeded = True

    def start_episodes(self) -> None:
        """Reset the environments that have never been reset or wait for their reset.

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
        """Raise ResetNeeded if an environment waits for its reset."""
        finished = np.flatnonzero(self.elapsed() == PENDING)
        if len(finished):
            raise ResetNeeded(
                f"{len(finished)} environments have finished (first: {finished[0]}) and autoreset "
                'is disabled: call reset(options={"reset_mask": terminated | truncated}) first'
            )

    def runner(self, policy: Policy) -> Runner:
        """Return the runner of a policy: the last one if it runs this policy, else a new one.

        Raises:
            TypeError, ValueError: it is no policy, or does not fit the environments.
        """
        runner = self.last_runner
        if runner is None or not runner.is_current(policy):
            check_policy(policy)
            runner = self.last_runner = self.make_runner(policy)
        return runner

    # ------------------------------------------------------------ actions

    def takes(self, actions: Any) -> bool:
        """Tell whether actions are an array as kernels take it."""
        return (
            type(actions) is np.ndarray
            and actions.dtype == self.action_dtype
            and actions.shape == self.action_shape
            and actions.flags.c_contiguous
        )

    def convert(self, actions: Any) -> Any:
        """Return the actions as an array that kernels take: the same one if it is.

        Raises:
            TypeError, ValueError: actions of another kind of dtype, or of another shape.
        """
        if self.takes(actions):
            return actions
        return convert_actions(actions, self.dynamics, self.action_shape)

    def zero_waiting(self, actions: Array) -> Array:
        """Return a copy of the actions with 0 for environments that wait for their reset.

        A step only resets these, so that their actions, even bad ones, do not matter.

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
            rows: (rows, N), observations with the bits of their masks.
            ended: (N,) bool, environments in which nobody acts; None for those that wait for their
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
        """Raise ValueError if an action mask allows nothing where the episode goes on.

        Args:
            rows: (rows, N), observations with the bits of their masks.
            ended: (N,) bool, environments in which nobody acts.
        """
        words = rows[-mask_rows(self.view.num_masked) :].view(np.uint32)
        allows_nothing = (words == 0).all(axis=0) & ~ended
        if not allows_nothing.any():
            return
        i = int(np.argmax(allows_nothing))
        state = self.dynamics.state.to_states(self.get_state()[i : i + 1])[0]
        step = self.elapsed()[i] % PENDING  # 0 of one that waits for its reset
        raise ValueError(
            f"{self.dynamics.id}: action_mask allows nothing in environment {i}, step {step} of "
            f"its episode, for state={state!r} ({allows_nothing.sum()} such environments): "
            "expected one action at least, or the end of the episode"
        )

    # ------------------------------------------------------------ parameters

    def params_of_each(self) -> list[Any]:
        """Return a list of the params of each environment; [] if they are the same for all."""
        params = self.get_params()
        # Lists of N: Python's numbers, or an array of each environment.
        columns = (each.tolist() if each.ndim == 1 else [*each] for each in params.values())
        rows = zip(*columns, strict=True)
        return [self.dynamics.shown_params(dict(zip(params, row, strict=True))) for row in rows]


#: Makes the runner of a `LaneEngine` and a policy. `rlcpu.envs.rollout.collect` enters what does,
#: which knows how policies act, and lies above engines.
make_lane_runner: Callable[[Any, Policy], Runner] = NotImplemented


class Runner:
    """An engine and a policy that fit each other: takes K steps whose actions the policy chooses.

    An episode that ends is followed by a new one, whatever the autoreset mode of the engine.

    Attributes:
        engine, policy: the two.
        state_size: numbers of the policy's recurrent state of one environment; 0 without memory.
        version: of the policy when the runner was made; None of one that is made anew each time.
        networks: those of the policy, each an `rlcpu.nn.network.acting.Acting`.
    """

    state_size = 0
    version: Any = None
    networks: Sequence[Any] = ()

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self.engine, self.policy = engine, policy

    def states(self) -> Array | None:
        """Return the policy's recurrent states before the next step, (N, state_size), or None.

        Environments that wait for their reset are reset.
        """
        if not self.state_size:
            return None
        self.engine.start_episodes()
        self.engine.carry(mark_of(self.policy), self.state_size)
        return self.engine.remembered()

    def is_current(self, policy: Policy) -> bool:
        """Tell whether this runs the policy as it is now; if so, read its present numbers."""
        if policy is not self.policy or self.version is None:
            return False
        if policy.version != self.version:  # type: ignore[attr-defined]
            return False
        for network in self.networks:
            network.refresh()
        return True

    def collect(self, rollout: Any) -> bool:
        """Take the steps of a `Rollout`, and overwrite its `records`.

        Returns:
            Whether a number was not finite, which `check` then names.
        """
        raise NotImplementedError

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums over the episodes that ended.

        Returns:
            (NUM_SUMS,), see `rlcpu.envs.engine.form.EPISODES`.

        Raises:
            FloatingPointError, ValueError: a number was not finite, or a mask allowed nothing.
        """
        raise NotImplementedError

    def check(self, records: Any, num_steps: int) -> None:
        """Raise the error of the first fault in a rollout of `collect`.

        Raises:
            FloatingPointError: a number is not finite.
            ValueError: an action mask allows nothing.
        """
        raise NotImplementedError
