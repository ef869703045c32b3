"""The engine of environments on the device, and how policies act there.

A step reads one copy of the batch and writes another. The host exchanges the two once it knows that
all actions were valid, so that a bad action leaves everything as it was, at no cost in traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.backends import cpu_only, device_of
from rlcpu.cuda.device import asarray, empty, launch, to_host, zeros
from rlcpu.cuda.envs import DeviceStates, StepOutputs, observe_kernel, reset_kernel, step_kernel
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
from rlcpu.envs.contract.arguments import check_actions
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
        states: `DeviceStates`, the present ones.
        next_states: others, which a step writes before the two are exchanged.
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
            (code.choices, "actions of MultiDiscrete"),
        ):
            if refused:
                raise cpu_only(f"{self.dynamics.id}: {what}", TypeError)
        n, self._state_size = self.num_envs, code.state.rows(self.scalar_type)
        self.states, self.next_states = (
            # Rows of the states and of the running episodes; steps so far of these.
            DeviceStates(zeros((self._state_size + SIZE) * n, self.dtype), zeros(n, np.uint32))
            for _ in range(2)
        )
        self.words, self.counter = zeros(2 * n, np.uint32), 0  # two words of each random stream
        self._fault = zeros(1, np.int32)  # see `StepOutputs`: not 0 after a step that was refused
        self._may_wait = False  # whether an environment may have finished and not begun anew
        space: Any = self.dynamics.action_space
        # Actions that are whole numbers have one number there, which nothing reads.
        bounds = np.concatenate((space.low, space.high)) if self.dynamics.action_size else [0.0]
        self.bounds = asarray(bounds, np.float32)
        self.numbers = asarray(pack(self.dynamics.params, self.scalar_type))

    def to_host(self, array: Any) -> Any:
        """Return an array of the device, or of the host, on the host."""
        return to_host(array)

    def advance(self, steps: int) -> None:
        """Move the counter of random numbers on."""
        self.counter = (self.counter + steps) % 2**32

    # ------------------------------------------------------------ kernels

    def convert(self, actions: Any) -> Any:
        """Return actions on the device as they are, and others as `Engine.convert` does."""
        if device_of(actions) == "cpu":
            return super().convert(actions)
        actions = asarray(actions)
        check_actions(actions, self.dynamics, self.action_shape)
        return actions

    def step(self, actions: Any) -> TimeStep:
        """Take one step; see `Engine.step`.

        Args:
            actions: integers of a `Discrete`, numbers of a `Box`, on the device, or on the host.
        """
        actions, n, shape = self.convert(actions), self.num_envs, (self.rows, self.num_envs)
        size, taken = self.rows * n, asarray(actions)
        if not (self.dynamics.is_discrete and taken.dtype == np.int32):
            taken = taken.astype(self.action_dtype, copy=False)
        out = StepOutputs(
            observations=empty(size, np.float32),
            rewards=empty(n, self.dtype),
            flags=empty(2 * n, np.bool_),
            finals=empty(size if self.same_step else 0, np.float32),
            fault=self._fault,
        )
        launch(
            step_kernel(self.code, self.scalar_type, self.same_step, self.disabled), n,
            self.states, self.words, taken.reshape(-1), self.numbers, self.counter, self.limit,
            self.next_states, out,
        )  # fmt: skip
        if to_host(self._fault)[0]:
            self._fault.fill(0)
            # `zero_waiting` raises, for a bad action or for an environment that has finished.
            return self.step(self.zero_waiting(to_host(actions)))
        self.states, self.next_states = self.next_states, self.states
        self.advance(1)
        self._may_wait = not self.same_step
        reached = out.finals.reshape(shape) if self.same_step else None
        terminated, truncated = out.flags[:n], out.flags[n:]
        return TimeStep(
            out.observations.reshape(shape), out.rewards, terminated, truncated, reached
        )

    def restart(self, mask: Any, params: Any) -> None:
        """Start new episodes; see `Engine.restart`."""
        numbers = asarray(pack(params, self.scalar_type))
        arguments = self.states, self.words, asarray(mask), numbers, self.counter
        launch(reset_kernel(self.code, self.scalar_type), self.num_envs, *arguments)
        self.advance(1)

    def observe(self) -> Any:
        """Return the observations of the present states, (rows, N) float32."""
        observations = empty(self.rows * self.num_envs, np.float32)
        arguments = self.states.rows, self.numbers, observations
        launch(observe_kernel(self.code, self.scalar_type), self.num_envs, *arguments)
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
        rows = self.states.rows[: self._state_size * self.num_envs].copy()
        return rows.reshape(self._state_size, self.num_envs).T

    def set_state(self, state: npt.NDArray[Any]) -> None:
        """Copy (N, state_size) in; finished episodes become running ones."""
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
        if not mask.any():
            return
        fresh = keys(seeds)  # (2, N), low words first
        # `mix` adds counter * GOLDEN to the low word: a new stream begins as from a counter of 0.
        fresh[0] -= u32(self.counter * int(GOLDEN) % 2**32)
        if not mask.all():
            fresh = np.where(mask, fresh, to_host(self.words).reshape(2, -1))
        self.words = asarray(fresh.reshape(-1))


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
        n, episodes, total, squares, steps = engine.num_envs, 0, 0.0, 0.0, 0
        for begin in range(0, num_steps, FLUSH):
            sums = Sums(empty(2 * n, engine.dtype), empty(2 * n, np.uint32))
            self._launch(code, arrays, min(FLUSH, num_steps - begin), sums)
            returns = to_host(sums.returns.reshape(2, n).sum(axis=1, dtype=np.float64)).tolist()
            counts = to_host(sums.counts.reshape(2, n).sum(axis=1, dtype=np.int64)).tolist()
            total, squares = total + returns[0], squares + returns[1]
            episodes, steps = episodes + counts[0], steps + counts[1]
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
        launch(driver, engine.num_envs, inputs, settings, out, block=BLOCK)
        engine.advance(num_steps)
