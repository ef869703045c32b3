"""One simulation of a batch, K steps at a time: the function that MuJoCo's threads call.

It calls the task's own function, see `rlcpu.envs.mujoco.physics`, at an address: one `run` without
a policy serves all tasks, and a network's all of as many actions.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import types

from rlcpu.envs.engine.lane import PENDING
from rlcpu.envs.engine.rollout import EPISODES, FAULTS, LENGTHS, RETURNS, SQUARES, make_open_policy
from rlcpu.envs.mujoco.job import (
    FIRST_POLICY,
    FORWARD,
    JOB_SIZE,
    LIMIT,
    MODE,
    NAMES,
    NUM_STEPS,
    RECORD,
    RESTART,
    SAME_STEP,
    STEP,
    TASK,
    make_open,
)
from rlcpu.envs.mujoco.library import i64
from rlcpu.envs.mujoco.physics import ADVANCE, BEGIN, LOOK, STEPS
from rlcpu.envs.mujoco.policy import make_choose
from rlcpu.envs.policies import PolicyCode
from rlcpu.kernels.compile import EXACT, c_function, inline
from rlcpu.kernels.memory import array_at, call_at

#: What is written of an episode's end by a rollout alone.
_OF_ROLLOUTS = ("bounds", "sums", "observations", "log_probs", "values", "totals", "lengths")


@functools.cache
def make_run(
    policy: PolicyCode | None, dtype: type, action_size: int = 0, observation_size: int = 0
) -> int:
    """Return the address of a function (mjModel, mjData, simulation, job) for `mjb_apply`.

    Without a policy it restarts, takes single steps and looks at states, with one it takes the
    steps of a rollout.
    """
    if policy is None:
        return c_function(_make_single(dtype), _KINDS, fastmath=EXACT, subject="MuJoCo")
    run = _make_rollout(policy, dtype, action_size, observation_size)
    return c_function(run, _KINDS, fastmath=EXACT, subject="MuJoCo")


_KINDS = (types.intp, types.intp, types.int32, types.intp)
pending, one, nothing, none = np.uint32(PENDING), np.uint32(1), np.uint32(0), np.uint8(0)


@inline(exact=True)
def copy(target, source, like):
    """Copy numbers, rounded to another dtype; NaN where one is not finite, else 0."""
    fault = 0.0
    for k in range(source.size):
        number = like(source[k])
        target[k] = number
        fault += number * 0.0
    return fault


@inline(exact=True)
def begin(m, d, i, address, job, arrays):
    """Start an episode."""
    call_at(job[TASK], (m, d, i, address, np.int64(BEGIN)))
    arrays.elapsed[i] = nothing
    arrays.returns[i] = 0.0


@inline(exact=True)
def advance(m, d, i, address, job, arrays, like):
    """Take a step.

    Returns:
        The reward, whether the episode is terminated, whether it is truncated, and its return.
    """
    call_at(job[TASK], (m, d, i, address, np.int64(ADVANCE)))
    reward = like(arrays.gained[i])
    total, elapsed = arrays.returns[i] + np.float64(reward), arrays.elapsed[i] + one
    truncated = arrays.ended[i, 1] != none or elapsed >= np.uint32(job[LIMIT])
    arrays.returns[i], arrays.elapsed[i] = total, elapsed
    arrays.streams[i, STEPS] += np.uint64(1)
    return reward, arrays.ended[i, 0] != none, truncated, total


def _make_single(dtype: type) -> Any:
    """Make the run of one step; see `make_run`."""
    names = [name for name in NAMES if name not in _OF_ROLLOUTS]
    open_arrays, real = make_open(names, dtype), dtype

    def run(m, d, i, address):
        """Restart simulation i, step it or look at it, as `job[MODE]` says."""
        job = array_at(address, (JOB_SIZE,), i64)
        arrays = open_arrays(job)
        mode, observation = job[MODE], arrays.observation[i]
        ended = terminated = truncated = False
        reward = real(0.0)
        starts = arrays.elapsed[i] == pending and job[SAME_STEP] == 0
        if mode == FORWARD:
            call_at(job[TASK], (m, d, i, address, np.int64(LOOK)))
            return
        if mode == STEP and not starts:
            for k in range(arrays.applied.shape[1]):
                arrays.applied[i, k] = arrays.actions[0, i, k]
            reward, terminated, truncated, _ = advance(m, d, i, address, job, arrays, real)
            ended = terminated or truncated
            if ended and job[SAME_STEP] != 0:
                copy(arrays.finals[0, i], observation, real)
            elif ended:
                arrays.elapsed[i] = pending
        if mode == RESTART:
            starts = arrays.mask[i] != none
        if starts or (ended and job[SAME_STEP] != 0):
            begin(m, d, i, address, job, arrays)
        copy(arrays.last[i], observation, real)
        if mode == STEP:
            arrays.rewards[0, i] = reward
            arrays.flags[0, 0, i] = np.uint8(terminated)
            arrays.flags[1, 0, i] = np.uint8(truncated)

    return run


def _make_rollout(policy: PolicyCode, dtype: type, action_size: int, observation_size: int) -> Any:
    """Make the run of a rollout; see `make_run`."""
    open_arrays, open_policy = make_open(NAMES, dtype), make_open_policy(FIRST_POLICY)
    scratch, choose = make_choose(policy, action_size, observation_size)
    real = dtype

    def run(m, d, i, address):
        """Take the steps of simulation i, which restarts where an episode ends."""
        job = array_at(address, (JOB_SIZE,), i64)
        arrays, constants = open_arrays(job), open_policy(job)
        record, observation, sums = job[RECORD] != 0, arrays.observation[i], arrays.sums[i]
        cells, fault = scratch(constants), 0.0
        for step in range(job[NUM_STEPS]):
            if record:
                fault += copy(arrays.observations[step, i], observation, real)
            fault += choose(i, step, record, arrays, constants, cells)
            reward, terminated, truncated, total = advance(m, d, i, address, job, arrays, real)
            fault += reward * 0.0
            if record:
                arrays.rewards[step, i] = reward
                arrays.flags[0, step, i] = np.uint8(terminated)
                arrays.flags[1, step, i] = np.uint8(truncated)
            if terminated or truncated:
                elapsed = arrays.elapsed[i]
                sums[EPISODES] += 1.0
                sums[RETURNS] += total
                sums[SQUARES] += total * total
                sums[LENGTHS] += np.float64(elapsed)
                if record:
                    arrays.totals[step, i] = real(total)
                    arrays.lengths[step, i] = elapsed
                    fault += copy(arrays.finals[step, i], observation, real)
                begin(m, d, i, address, job, arrays)
        for k in range(observation.size):
            fault += observation[k] * 0.0
        if record:
            fault += copy(arrays.last[i], observation, real)
        sums[FAULTS] += fault

    return run
