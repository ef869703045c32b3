"""The engine of environments on the device, and how policies act there.

No step waits for the device. Actions of the host are checked on the host; a kernel that finds a bad
action on the device leaves that environment as it is, and the next call raises: see
`rlcpu.cuda.faults`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded

from rlcpu.backends import cpu_only, device_of
from rlcpu.cuda.compile import Kernel
from rlcpu.cuda.device import Prepared, asarray, empty, empty_arrays, launch, to_host, zeros
from rlcpu.cuda.envs import DeviceStates, StepOutputs, observe_kernel, reset_kernel, step_kernel
from rlcpu.cuda.faults import Faults
from rlcpu.cuda.networks import network_of, pack_policy
from rlcpu.cuda.rollouts import (
    BLOCK,
    FLUSH,
    DeviceRecords,
    RolloutInputs,
    RolloutSettings,
    Sums,
    rollout_kernel,
)
from rlcpu.envs.contract.arguments import (
    check_actions,
    convert_actions,
    describe_actions,
    find_bad_actions,
)
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.policies import Policy, PolicyArrays, PolicyCode
from rlcpu.envs.contract.unfit import describe_fault, refuse_policy
from rlcpu.envs.engine.base import Engine, Runner, TimeStep
from rlcpu.envs.engine.episode import PENDING, SIZE, begin_of
from rlcpu.envs.engine.lane import pack
from rlcpu.envs.engine.structure import structure
from rlcpu.kernels.machine.random import GOLDEN, keys

u32 = np.uint32


class CudaEngine(Engine):
    """Environments on the device, a thread for each; see `Engine`.

    Of that, `rows` are the numbers of an observation, `limit` the steps of an episode, `same_step`
    and `disabled` modes of autoreset.

    Attributes:
        states: `DeviceStates`, which a step overwrites.
        faults: what steps found wrong, a bad action or an environment that had finished.
        words, bounds: see `rlcpu.cuda.rollouts.RolloutInputs`.
        counter: of random numbers, on the host; every step advances it for all streams alike.
        code: what of the environment decides machine code.
        numbers: its run-time parameters.

    Raises:
        TypeError: what the environments are made of is for the CPU alone.
        rlcpu.cuda.CudaMemoryError: the device has too little memory.
    """

    device = "cuda"

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.code = code = structure(self.dynamics)
        for refused, what in (
            (not code.state.is_plain, "states that are not tuples of floats"),
            (not code.observation.is_plain, "observations that are not tuples of floats"),
            (
                None in (code.reset_draws, code.step_draws),
                "functions of an `rng`, not of `uniforms`",
            ),
            (code.varied, f"parameters that vary ({', '.join(code.varied)})"),
            (code.action_mask, "action masks"),
        ):
            if refused:
                raise cpu_only(f"{self.dynamics.id}: {what}", TypeError)
        n, self._state_size = self.num_envs, code.state.rows(self.scalar_type)
        # Rows of the states and of the running episodes; steps so far of these.
        rows = zeros((self._state_size + SIZE) * n, self.dtype)
        self.states = DeviceStates(rows, zeros(n, np.uint32))
        self.words, self.counter = zeros(2 * n, np.uint32), 0  # two words of each random stream
        # They do not hold this engine: its memory is free as soon as nobody has it.
        self.faults = Faults(
            functools.partial(_bad_action, self.dynamics),
            functools.partial(_has_finished, self.dynamics),
        )
        self._may_wait = False  # whether an environment may have finished and not begun anew
        space: Any = self.dynamics.action_space
        # Actions that are whole numbers have one number there, which nothing reads.
        is_whole = self.dynamics.is_discrete
        bounds = [0.0] if is_whole else np.concatenate((space.low, space.high))
        self.bounds = asarray(bounds, np.float32)
        self.numbers = asarray(pack(self.dynamics.params, self.scalar_type))
        #: What each launch of a step takes.
        self._step_inputs = tuple(
            map(Prepared, (self.states, self.words, self.numbers, self.faults.words))
        )
        self._action_dtypes = {self.action_dtype}
        if is_whole:
            self._action_dtypes.add(np.dtype(np.int32))
        single, flag = np.dtype(np.float32), np.dtype(np.bool_)
        shown = self.rows * n, single
        #: Sizes and dtypes of observations, rewards and flags, and of final observations.
        self._outputs = [shown, (n, self.dtype), (n, flag), (n, flag)] + [shown] * self.same_step

    def to_host(self, array: Any) -> Any:
        """Return an array of the device, or of the host, on the host."""
        return to_host(array)

    def advance(self, steps: int) -> None:
        """Move the counter of random numbers on."""
        self.counter = (self.counter + steps) % 2**32

    # ------------------------------------------------------------ kernels

    def takes(self, actions: Any) -> bool:
        """Tell whether actions are an array as kernels take it: nothing has to be asked of CuPy."""
        return (
            type(actions) is type(self.words)
            and actions.shape == self.action_shape
            and actions.dtype in self._action_dtypes
            and actions.flags.c_contiguous
            and actions.device == self.words.device
        )

    def convert(self, actions: Any) -> Any:
        """Return actions as an array on the device that kernels take: the same one if it is.

        Raises:
            TypeError, ValueError: actions of another kind of dtype, or of another shape, or bad
                ones of the host.
        """
        if self.takes(actions):
            return actions
        if device_of(actions) == "cpu":
            actions = convert_actions(actions, self.dynamics, self.action_shape)
            if len(find_bad_actions(actions, self.dynamics)):
                # Those of environments that wait for their reset do not matter.
                actions = self.zero_waiting(actions)
            return asarray(actions)
        actions = asarray(actions)
        check_actions(actions, self.dynamics, self.action_shape)
        if actions.dtype not in self._action_dtypes:
            actions = actions.astype(self.action_dtype)
        return actions if actions.flags.c_contiguous else actions.copy()

    def step(self, actions: Any) -> TimeStep:
        """Take one step; see `Engine.step`. Returns before it has happened.

        Args:
            actions: (N,) or (N, action_size), on the device, or on the host.

        Raises:
            TypeError, ValueError: see `convert`; nothing has been stepped then.
            ValueError: an environment had a bad action in an earlier step.
            gymnasium.error.ResetNeeded: one had finished before an earlier step, with autoreset
                disabled.
        """
        taken = self.convert(actions)
        taken = taken if taken.ndim == 1 else taken.reshape(-1)
        observations, *others = empty_arrays(*self._outputs)
        finals = others.pop() if self.same_step else observations  # which are not written twice
        out = StepOutputs(observations, finals, *others)
        states, words, numbers, faults = self._step_inputs
        self.launch(
            self._step_kernel, states, words, taken, numbers, self.counter, self.limit, faults, out
        )
        self.counter = (self.counter + 1) % 2**32
        self._may_wait = not self.same_step
        shape = self.rows, self.num_envs
        return TimeStep(
            out.observations.reshape(shape), out.rewards, out.terminated, out.truncated,
            out.finals.reshape(shape) if self.same_step else None,
        )  # fmt: skip

    @functools.cached_property
    def _step_kernel(self) -> Kernel:
        """Return the kernel of a step."""
        return step_kernel(self.code, self.scalar_type, self.same_step, self.disabled)

    def launch(self, kernel: Kernel, *args: Any, **options: Any) -> None:
        """Launch a kernel with a thread for each environment.

        Raises:
            ValueError, gymnasium.error.ResetNeeded: a step before found a fault; nothing is
                launched then.
        """
        self.faults.check()
        launch(kernel, self.num_envs, *args, **options)

    def restart(self, mask: Any, params: Any) -> None:
        """Start new episodes; see `Engine.restart`."""
        numbers = asarray(pack(params, self.scalar_type))
        arguments = self.states, self.words, asarray(mask), numbers, self.counter
        self.launch(reset_kernel(self.code, self.scalar_type), *arguments)
        self.advance(1)

    def observe(self) -> Any:
        """Return the observations of the present states, (rows, N) float32."""
        observations = empty(self.rows * self.num_envs, np.float32)
        arguments = self.states.rows, self.numbers, observations
        self.launch(observe_kernel(self.code, self.scalar_type), *arguments)
        return observations.reshape(self.rows, self.num_envs)

    def final_observations(self, step: TimeStep, ended: Any) -> Any:
        """Return the observations that all environments reached, before any reset."""
        return self.view.show(step.finals)

    def make_runner(self, policy: Policy) -> Runner:
        """Return the runner of a policy; see `Engine.runner`."""
        return CudaRunner(self, policy)

    # ------------------------------------------------------------ states

    def get_state(self) -> Any:
        """Return a copy of the states, (N, state_size)."""
        self.faults.check()
        rows = self.states.rows[: self._state_size * self.num_envs].copy()
        return rows.reshape(self._state_size, self.num_envs).T

    def set_state(self, state: npt.NDArray[Any]) -> None:
        """Copy (N, state_size) in; finished episodes become running ones."""
        self.faults.check()
        count = self._state_size * self.num_envs
        self.states.rows[:count] = asarray(np.ascontiguousarray(state.T)).reshape(-1)
        self.resume()

    def resume(self) -> None:
        """Make finished episodes running ones, which go on in their last states."""
        waits = self._waits()
        episodes = self.states.rows.reshape(-1, self.num_envs)[self._state_size :]
        for row, number in zip(episodes, begin_of(self.scalar_type), strict=True):
            row[waits] = number
        self.states.elapsed[waits] = 0

    def _waits(self) -> Any:
        """Return (N,) bool, which episodes wait for their reset."""
        return self.states.elapsed == u32(PENDING)

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return (N,) steps of the running episodes, on the host; `PENDING` where finished."""
        return to_host(self.states.elapsed)

    def finished(self) -> Any:
        """Return (N,) bool, which episodes wait for their reset; empty if none can."""
        return self._waits() if self._may_wait else np.zeros(0, np.bool_)

    def start_streams(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start the random streams of the masked environments anew, from one seed each."""
        self.faults.check()
        if not mask.any():
            return
        fresh = keys(seeds)  # (2, N), low words first
        # `mix` adds counter * GOLDEN to the low word: a new stream begins as from a counter of 0.
        fresh[0] -= u32(self.counter * int(GOLDEN) % 2**32)
        if not mask.all():
            fresh = np.where(mask, fresh, to_host(self.words).reshape(2, -1))
        self.words[:] = asarray(fresh.reshape(-1))  # in place: launches know its memory


def _bad_action(dynamics: Dynamics, i: int) -> ValueError:
    """Return the error of environment i, whose action was bad."""
    wanted = describe_actions(dynamics)
    return ValueError(f"actions[{i}] of {dynamics.id}, on the device: expected {wanted}")


def _has_finished(dynamics: Dynamics, i: int) -> ResetNeeded:
    """Return the error of environment i, which had no reset before its step."""
    return ResetNeeded(
        f"environment {i} of {dynamics.id} has finished and autoreset is disabled: call "
        'reset(options={"reset_mask": terminated | truncated}) first'
    )


class CudaRunner(Runner):
    """Lets a policy act in a `CudaEngine`; see `Runner`. What is not finite passes.

    Raises:
        TypeError, ValueError: they do not fit.
        FloatingPointError: the policy has numbers that are not finite.
    """

    engine: CudaEngine

    def __init__(self, engine: CudaEngine, policy: Policy) -> None:
        if describe_fault(policy):
            refuse_policy(policy, "actions that are not finite")
        super().__init__(engine, policy)
        self._code, self._arrays = policy.code(engine.dynamics), policy.arrays(engine.dynamics)
        if self._arrays.state_size:
            raise NotImplementedError(f"{policy!r} has memory: it acts on the CPU alone")

    def collect(self, rollout: Any) -> bool:
        """Take the steps of a rollout, see `Runner.collect`; returns before that has happened."""
        self.engine.start_episodes()
        self._launch(self._code, self._arrays, rollout.num_steps, rollout.records)
        return False

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums; see `Runner.simulate`."""
        engine, code, arrays = self.engine, self._code, self._arrays
        engine.start_episodes()
        if code.value == "separate":  # sums need no values, nor their network
            code = code._replace(value="none")
            arrays = arrays._replace(
                value_weights=arrays.weights[:0], value_sizes=np.zeros(1, np.int64)
            )
        returns, counts, blocks = np.zeros(2), np.zeros(2, np.int64), -(-engine.num_envs // BLOCK)
        for begin in range(0, num_steps, FLUSH):
            sums = Sums(empty(2 * blocks, engine.dtype), empty(2 * blocks, np.uint32))
            self._launch(code, arrays, min(FLUSH, num_steps - begin), sums)
            returns += to_host(sums.returns).reshape(2, -1).sum(axis=1, dtype=np.float64)
            counts += to_host(sums.counts).reshape(2, -1).sum(axis=1, dtype=np.int64)
        engine.faults.check()  # of steps before, which the device may not have taken until now
        (total, squares), (episodes, steps) = returns.tolist(), counts.tolist()
        return [episodes, total, squares, 0, steps]  # 0 faults, see `engine.form.EPISODES`

    def _launch(
        self, code: PolicyCode, arrays: PolicyArrays, num_steps: int, out: DeviceRecords | Sums
    ) -> None:
        """Take K steps, and write what `out` says, which decides the driver."""
        engine, network = self.engine, network_of(arrays, code)
        records = not isinstance(out, Sums)
        driver = rollout_kernel(engine.code, engine.scalar_type, code, network, records)
        weights = asarray(pack_policy(arrays, network))
        inputs = RolloutInputs(engine.states, engine.words, engine.numbers, engine.bounds, weights)
        settings = RolloutSettings(engine.counter, engine.limit, arrays.greedy, num_steps)
        engine.launch(driver, inputs, settings, out, block=BLOCK)
        engine.advance(num_steps)
