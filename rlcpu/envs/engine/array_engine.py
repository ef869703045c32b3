"""The engine of states with arrays: one environment after the other, each state a record.

The memory of a block is as in `rlcpu.envs.engine.lane`, but for the state: in the place of its rows
it has `LANES` records, each of which has one environment's numbers side by side
(`rlcpu.envs.layout.arrays`). Nothing runs along the lanes of a register here. A step changes its
record and takes branches as they come; loops over an array become vectors. The numbers of an
observation are side by side as well.

One function is compiled for an environment, as `rlcpu.envs.engine.steps` does for others, and the
same drivers and rollouts call it by address.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.engine.array_lane import compile_functions
from rlcpu.envs.engine.base import TimeStep
from rlcpu.envs.engine.drivers import EnvFacts
from rlcpu.envs.engine.episode import PENDING
from rlcpu.envs.engine.frames import RESTART, STEP, step_call_of
from rlcpu.envs.engine.lane import (
    ELAPSED,
    LANES,
    NUM_WORDS,
    block_rows,
    make_draw_bits,
    make_unpack_params,
)
from rlcpu.envs.engine.lanes import LaneEngine
from rlcpu.envs.engine.steps import Steps, is_whole, make_get_action, make_steps
from rlcpu.envs.engine.structure import Structure, env_kernel
from rlcpu.kernels.compiler.compile import inline_source
from rlcpu.kernels.compiler.hooks import address_of
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.memory import shifted
from rlcpu.kernels.machine.rows import row_access

Array = npt.NDArray[Any]
#: Environments that one core takes at a time; few, since some steps take longer than others.
SHARE = 16
u32 = np.uint32


@functools.cache
def step_kernels(env: Structure, dtype: type) -> Steps:
    """Return the kernels of N environments whose states have arrays."""
    function = _compile_records(env, dtype)
    facts = EnvFacts(
        function=address_of(function), share=SHARE, fills_blocks=0, env_step=env.shown_rows
    )
    return make_steps(env, dtype, function, facts, grain=4 * SHARE)


def _compile_records(env: Structure, dtype: type) -> Any:
    """Compile for C the function of a view of a `StepCall`, for states with arrays.

    `clock` of a call is (counter of random numbers, limit of an episode's steps); `shown_rows` is
    how many numbers an observation has with its action mask.
    """
    _, params_of_lane, step, restart, observe = compile_functions(env, dtype)
    unpack, draw_bits, size = make_unpack_params(env), make_draw_bits(), env.shown_rows
    width, get_action = max(env.action_size, 1), make_get_action(env, ANY)
    get_word, _ = row_access("words")
    _, set_reward = row_access("rewards")
    _, set_terminated = row_access("terminated")
    _, set_truncated = row_access("truncated")
    block_size, nothing = block_rows(env, dtype) * LANES, dtype(0)

    @inline_source
    def step_or_restart(job, rows, words, i, k, bits, params):
        """Step environment k, lane i of a block, or reset it if it waits for that.

        Its block's actions are `width` rows of LANES, from environment k - i on.
        """
        reward, terminated, truncated = nothing, False, False
        if get_word(words, ELAPSED * LANES + i) == u32(PENDING):
            restart(rows, words, i, bits, params)
        else:
            action = get_action(shifted(job.actions, (k - i) * width), i)
            end = step(rows, words, i, action, bits, params, job.clock[1])
            reward, terminated, truncated = end.reward, end.terminated, end.truncated
        set_reward(job.rewards, k, reward)
        set_terminated(job.terminated, k, terminated)
        set_truncated(job.truncated, k, truncated)

    @env_kernel(env, dtype)
    def run(job):
        params, counter, mode = unpack(job.numbers), job.clock[0], job.mode
        for k in range(job.begin, job.begin + job.count):
            i, block = k % LANES, k // LANES
            rows = shifted(job.state, block * block_size)
            words = shifted(job.words, block * NUM_WORDS * LANES)
            if mode == RESTART:
                if job.mask[k] == 0:
                    continue
                restart(rows, words, i, draw_bits(words, i, counter), params)
            if mode == STEP:
                step_or_restart(job, rows, words, i, k, draw_bits(words, i, counter), params)
            observe(rows, i, params_of_lane(params, rows, i), job.observations, k * size)

    run.compile((step_call_of(dtype, is_whole(env)).view,))
    return run


# ---------------------------------------------------------------- the engine


class ArrayEngine(LaneEngine):
    """Environments whose states have arrays: a `LaneEngine` with records instead of state rows.

    Raises:
        MemoryError: this machine has too little memory for the states.
    """

    step_kernels = staticmethod(step_kernels)

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
        self._shape = self._padded_shape = self.num_envs, self.rows
        self._finals = self._finals.reshape(self._finals.shape[::-1])  # (N, rows) as well

    @staticmethod
    def make_step(
        observations: Any, rewards: Any, terminated: Any, truncated: Any, finals: Any
    ) -> TimeStep:
        """Return a `TimeStep` of arrays that kernels have written, observations as (N, rows)."""
        return TimeStep(observations.T, rewards, terminated, truncated, finals.T)

    def observe(self) -> Any:
        """Return the observations of the present states, (rows, N) float32."""
        return self._observe(np.empty(self._shape, np.float32)).T

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
