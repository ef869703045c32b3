"""The engine of states with arrays: one environment after the other, each state a record.

The memory of a block is as in `rlcpu.envs.engine.lane`, but for the state: in the place of its rows
it has `LANES` records, each of which has one environment's numbers side by side
(`rlcpu.envs.engine.arrays`). Nothing runs along the lanes of a register here. A step changes its
record and takes branches as they come; loops over an array become vectors. The numbers of an
observation are side by side as well.

Three functions are compiled for an environment, and drivers call them by address for some
environments at a time: `_compile_job`'s observes, resets and steps; those of
`rlcpu.envs.engine.record_rollouts` are `simulate` and `collect`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.base import TimeStep
from rlcpu.envs.engine.lane import (
    ELAPSED,
    KEY_LOW,
    LANES,
    NUM_WORDS,
    PENDING,
    Structure,
    env_kernel,
    make_draw_bits,
    make_unpack_params,
    pack,
)
from rlcpu.envs.engine.lanes import LaneEngine
from rlcpu.envs.engine.record import compile_functions
from rlcpu.envs.engine.record_rollouts import collect_kernels, simulate_kernels
from rlcpu.envs.engine.steps import (
    OBSERVE,
    RESTART,
    STEP,
    StepCall,
    Steps,
    call_type,
    is_whole,
    make_steps,
)
from rlcpu.kernels.calls import View, make_call
from rlcpu.kernels.compile import EXACT, define, inline, inline_source, kernel
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.memory import address, shifted
from rlcpu.kernels.random import GOLDEN
from rlcpu.kernels.rows import row_access
from rlcpu.kernels.threads import Kernels, launch

Array = npt.NDArray[Any]
#: Environments that one core takes at a time; few, since some steps take longer than others.
SHARE = 16
u32 = np.uint32


@functools.cache
def step_kernels(env: Structure, dtype: type, same_step: bool) -> Steps:
    """Return the kernels of a step, as `rlcpu.envs.engine.steps.step_kernels` does."""
    return make_steps(env, dtype, _compile_job(env, dtype), SHARE, SHARE * 4)


@functools.cache
def _compile_job(env: Structure, dtype: type) -> Any:
    """Compile for C the function that observes, resets or steps some environments.

    Its argument is a view of a `StepCall`, whose `mode` says which of these it does.
    """
    _, params_of_lane, step, restart, observe = compile_functions(env, dtype)
    unpack, draw_bits, size = make_unpack_params(env), make_draw_bits(), env.shown_rows
    get_action = _make_get_action(env, dtype)
    get_word, set_word = row_access("words")
    _, set_reward = row_access("rewards")
    _, set_terminated = row_access("terminated")
    _, set_truncated = row_access("truncated")
    stride, nothing = (env.state.rows(dtype) + 1 + len(env.varied)) * LANES, dtype(0)

    # Below, environment k of all is lane i of the block whose memory is `rows` and `words`.

    @inline_source
    def restart_if_masked(job, rows, words, i, k, bits, params):
        """Reset where the mask is set; elsewhere keep the stream as it is.

        The counter advances after the reset: one step back of the key makes up for it.
        """
        if job.mask[k] != 0:
            restart(rows, words, i, bits, params)
        else:
            key = get_word(words, KEY_LOW * LANES + i)
            set_word(words, KEY_LOW * LANES + i, u32(key - GOLDEN))

    @inline_source
    def step_or_restart(job, rows, words, i, k, bits, params):
        """Step, or reset an environment that waits for it; write all outputs but observations."""
        reward, terminated, truncated = nothing, False, False
        if get_word(words, ELAPSED * LANES + i) == u32(PENDING):
            restart(rows, words, i, bits, params)
        else:
            action = get_action(job.actions, k)
            result = step(rows, words, i, action, bits, params, job.clock[1])
            reward, terminated, truncated = result.reward, result.terminated, result.truncated
            if (terminated or truncated) and job.same_step != 0:
                observe(rows, i, params_of_lane(params, rows, i), job.finals, k * size)
                restart(rows, words, i, bits, params)
            elif terminated or truncated:
                set_word(words, ELAPSED * LANES + i, u32(PENDING))
        set_reward(job.rewards, k, reward)
        set_terminated(job.terminated, k, terminated)
        set_truncated(job.truncated, k, truncated)

    @env_kernel(env, dtype, by_address=True)
    def run(job):
        params, counter, mode = unpack(job.numbers), job.clock[0], job.mode
        for k in range(job.begin, job.begin + job.count):
            i, block = k % LANES, k // LANES
            rows = shifted(job.state, block * stride)
            words = shifted(job.words, block * NUM_WORDS * LANES)
            bits = draw_bits(words, i, counter)
            if mode == RESTART:
                restart_if_masked(job, rows, words, i, k, bits, params)
                continue
            if mode == STEP:
                step_or_restart(job, rows, words, i, k, bits, params)
            observe(rows, i, params_of_lane(params, rows, i), job.observations, k * size)

    run.compile((View(call_type(dtype, is_whole(env))),))
    return run


def _make_get_action(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (actions, k) -> the action of environment k, as `step` takes it.

    `actions` are those of all environments, as users give them.
    """
    size = env.action_size
    if size == 0:
        return inline(lambda actions, k: np.int32(actions[k]))
    number = np.int32 if env.choices else dtype
    items = "".join(f"number(actions[k * {size} + {n}]), " for n in range(size))
    return inline(define(f"def get_action(actions, k): return ({items})", number=number))


@functools.cache
def _make_observe_driver(dtype: type, is_whole: bool) -> Kernels:
    """Make the driver of the modes `OBSERVE` and `RESTART`, over all environments.

    Its arguments are the address of `_compile_job`'s function, the mode, the arrays of the engine,
    a mask (n,) uint8 of environments to reset, and outputs, of which only observations are written;
    the others are empty.
    """
    call = make_call(call_type(dtype, is_whole))

    def run(
        function, mode, state, words, numbers, clock, mask, actions, observations, rewards, flags
    ):
        n = mask.shape[0]
        for c in prange((n + SHARE - 1) // SHARE):
            call(
                function,
                StepCall(
                    mode, 0, c * SHARE, min(SHARE, n - c * SHARE), n, address(state),
                    address(words), address(numbers), address(clock), address(mask),
                    address(actions), address(observations), address(rewards),
                    address(flags), address(flags), address(observations),
                ),
            )  # fmt: skip
        if mode == RESTART:
            clock[0] += u32(1)
        return 0

    return Kernels(
        kernel(run, fastmath=EXACT), kernel(run, fastmath=EXACT, parallel=True), SHARE * 4
    )


# ---------------------------------------------------------------- the engine


class ArrayEngine(LaneEngine):
    """Environments whose states have arrays: a `LaneEngine` with records instead of state rows.

    Raises:
        MemoryError: this machine has too little memory for the states.
    """

    step_kernels = staticmethod(step_kernels)
    collect_kernels = staticmethod(collect_kernels)
    simulate_kernels = staticmethod(simulate_kernels)

    def __init__(self, dynamics: Dynamics, num_envs: int, *, dtype: Any, **settings: Any) -> None:
        layout: Any = dynamics.state
        size = layout.record(dtype.type).itemsize
        if num_envs * size > (most := physical_memory()):
            raise MemoryError(
                f"{dynamics.id}: {num_envs} states of {size} bytes take "
                f"{num_envs * size / 2**30:.1f} GiB, and this machine has {most / 2**30:.1f}: "
                f"{layout}"
            )
        super().__init__(dynamics, num_envs, dtype=dtype, **settings)
        self._shape = self.num_envs, self.rows
        self._finals = self._finals.reshape(self._finals.shape[::-1])

    @staticmethod
    def make_step(
        observations: Any, rewards: Any, terminated: Any, truncated: Any, finals: Any
    ) -> TimeStep:
        """Return a `TimeStep` of arrays that kernels have written, observations as (N, rows)."""
        return TimeStep(observations.T, rewards, terminated, truncated, finals.T)

    def restart(self, mask: npt.NDArray[np.bool_], params: Any) -> None:
        """Start new episodes; see `Engine.restart`."""
        self._run(RESTART, mask, pack(params, self.scalar_type), np.empty(0, np.float32))

    def observe(self) -> Any:
        """Return the observations of the present states, (rows, N) float32."""
        observations = np.empty(self._shape, np.float32)
        everywhere = np.ones(self.num_envs, np.bool_)
        self._run(OBSERVE, everywhere, self.numbers, observations.reshape(-1))
        return observations.T

    def _run(self, mode: int, mask: Array, numbers: Array, observations: Array) -> None:
        """Observe all environments, or reset those of the mask.

        Args:
            mode: `OBSERVE` or `RESTART`.
            mask: (N,) bool.
            numbers: run-time numbers of the parameters.
            observations: (N * rows,) float32, overwritten; (0,) for a reset.
        """
        whole = is_whole(self.code)
        function = address_of(_compile_job(self.code, self.scalar_type))
        actions: Any = np.empty(0, np.int64 if whole else np.float32)
        launch(
            _make_observe_driver(self.scalar_type, whole), self.num_envs, self.num_threads,
            function, mode,
            self.real, self.words, numbers, self.clock, mask.view(np.uint8), actions,
            observations, np.empty(0, self.dtype), np.empty(0, np.bool_),
        )  # fmt: skip

    def get_state(self) -> Array:
        """Return a copy of the states, (N, floats of a record)."""
        records = self.state_rows().transpose(1, 2, 0).reshape(-1, self.state_size)
        return records[: self.num_envs].copy()

    def state_rows(self) -> Array:
        """Return a view of the states, (floats of a record, blocks, LANES)."""
        size = self.state_size
        return self.real[:, : size * LANES].reshape(-1, LANES, size).transpose(2, 0, 1)


def physical_memory() -> int:
    """Return the bytes of memory of this machine; 2**62 if the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**62
