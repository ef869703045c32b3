"""The function that MuJoCo's threads call: one simulation of a batch, one step or K steps.

MuJoCo calls it with addresses: `m` of a mjModel, `d` of a mjData, `address` of the job
(`rlcpu.envs.mujoco.job`), and the number i of the simulation. It calls the task's own function, see
`rlcpu.envs.mujoco.physics`, by the address in the job: so one function without a policy serves all
tasks, and one of a network all tasks with as many numbers in an action. `arrays` are the job's
arrays by name.
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
from rlcpu.envs.mujoco.physics import STEPS, TASK_FORWARD, TASK_RESET, TASK_STEP
from rlcpu.envs.mujoco.policy import make_choose
from rlcpu.envs.policies import PolicyCode
from rlcpu.kernels.compile import EXACT, c_function, inline
from rlcpu.kernels.memory import array_at, call_at

#: Arrays that only rollouts use.
_OF_ROLLOUTS = ("bounds", "sums", "observations", "log_probs", "values", "totals", "lengths")


@functools.cache
def make_batch_function(
    policy: PolicyCode | None, dtype: type, action_size: int = 0, observation_size: int = 0
) -> int:
    """Return the address of the function for `mjb_apply`: (m, d, i, address).

    Args:
        policy: None for the function of the modes `RESTART`, `STEP` and `FORWARD`; else that of
            `ROLLOUT`.
        dtype: of the environments.
        action_size: numbers of an action; 0 if the function works for any.
        observation_size: numbers of an observation; 0 if the function works for any.
    """
    if policy is None:
        return c_function(_make_single(dtype), _ARGUMENTS, fastmath=EXACT, subject="MuJoCo")
    run = _make_rollout(policy, dtype, action_size, observation_size)
    return c_function(run, _ARGUMENTS, fastmath=EXACT, subject="MuJoCo")


_ARGUMENTS = (types.intp, types.intp, types.int32, types.intp)
pending, one, nothing, none = np.uint32(PENDING), np.uint32(1), np.uint32(0), np.uint8(0)


@inline(exact=True)
def copy_rounded(target, source, dtype):
    """Copy numbers, rounded to a dtype; return NaN if one is not finite, else 0."""
    fault = 0.0
    for k in range(source.size):
        number = dtype(source[k])
        target[k] = number
        fault += number * 0.0
    return fault


@inline(exact=True)
def start_episode(m, d, i, address, job, arrays):
    """Draw a new state of simulation i, and begin to count its steps and return."""
    call_at(job[TASK], (m, d, i, address, np.int64(TASK_RESET)))
    arrays.elapsed[i] = nothing
    arrays.returns[i] = 0.0


@inline(exact=True)
def take_step(m, d, i, address, job, arrays, dtype):
    """Step simulation i with the action in `applied_actions`, and count its steps and return.

    Returns:
        The reward in a dtype, whether the episode is terminated, whether it is truncated, and its
        return so far.
    """
    call_at(job[TASK], (m, d, i, address, np.int64(TASK_STEP)))
    reward = dtype(arrays.step_rewards[i])
    total, elapsed = arrays.returns[i] + np.float64(reward), arrays.elapsed[i] + one
    truncated = arrays.step_ended[i, 1] != none or elapsed >= np.uint32(job[LIMIT])
    arrays.returns[i], arrays.elapsed[i] = total, elapsed
    arrays.streams[i, STEPS] += np.uint64(1)
    return reward, arrays.step_ended[i, 0] != none, truncated, total


def _make_single(dtype: type) -> Any:
    """Make the function of `make_batch_function` without a policy."""
    names = [name for name in NAMES if name not in _OF_ROLLOUTS]
    open_arrays, real = make_open(names, dtype), dtype

    def run(m, d, i, address):
        """Restart simulation i, step it, or only observe it, as `job[MODE]` says."""
        job = array_at(address, (JOB_SIZE,), i64)
        arrays = open_arrays(job)
        mode, observation = job[MODE], arrays.observation[i]
        ended = terminated = truncated = False
        reward = real(0.0)
        is_reset = arrays.elapsed[i] == pending and job[SAME_STEP] == 0
        if mode == FORWARD:
            call_at(job[TASK], (m, d, i, address, np.int64(TASK_FORWARD)))
            return
        if mode == STEP and not is_reset:
            for k in range(arrays.applied_actions.shape[1]):
                arrays.applied_actions[i, k] = arrays.actions[0, i, k]
            reward, terminated, truncated, _ = take_step(m, d, i, address, job, arrays, real)
            ended = terminated or truncated
            if ended and job[SAME_STEP] != 0:
                copy_rounded(arrays.finals[0, i], observation, real)
            elif ended:
                arrays.elapsed[i] = pending
        if mode == RESTART:
            is_reset = arrays.mask[i] != none
        if is_reset or (ended and job[SAME_STEP] != 0):
            start_episode(m, d, i, address, job, arrays)
        copy_rounded(arrays.last[i], observation, real)
        if mode == STEP:
            arrays.rewards[0, i] = reward
            arrays.flags[0, 0, i] = np.uint8(terminated)
            arrays.flags[1, 0, i] = np.uint8(truncated)

    return run


def _make_rollout(policy: PolicyCode, dtype: type, action_size: int, observation_size: int) -> Any:
    """Make the function of `make_batch_function` with a policy."""
    open_arrays, open_policy = make_open(NAMES, dtype), make_open_policy(FIRST_POLICY)
    allocate, choose = make_choose(policy, action_size, observation_size)
    real = dtype

    def run(m, d, i, address):
        """Take all steps of simulation i, and start a new episode where one ends.

        `choose` writes the action to `arrays.applied_actions`, and what was chosen to the rollout
        if `record`. It returns, as `copy_rounded` does, zero times each number: `fault` adds these
        up, and is NaN if a number is infinite or NaN.
        """
        job = array_at(address, (JOB_SIZE,), i64)
        arrays, policy = open_arrays(job), open_policy(job)
        record, observation, sums = job[RECORD] != 0, arrays.observation[i], arrays.sums[i]
        scratch, fault = allocate(policy), 0.0
        for step in range(job[NUM_STEPS]):
            if record:
                fault += copy_rounded(arrays.observations[step, i], observation, real)
            fault += choose(i, step, record, arrays, policy, scratch)
            reward, terminated, truncated, total = take_step(m, d, i, address, job, arrays, real)
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
                    fault += copy_rounded(arrays.finals[step, i], observation, real)
                start_episode(m, d, i, address, job, arrays)
        for k in range(observation.size):
            fault += observation[k] * 0.0
        if record:
            fault += copy_rounded(arrays.last[i], observation, real)
        sums[FAULTS] += fault

    return run
