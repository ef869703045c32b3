"""The function that MuJoCo's threads call: one simulation of a batch, one step or K steps.

MuJoCo calls it with addresses: `m` of a mjModel, `d` of a mjData, `address` of the job
(`rlcpu.envs.mujoco.job`), which it opens as `job`; and with the number i of the simulation. It
calls the task's own function, see `rlcpu.envs.mujoco.physics`, by the address `job.task`: so one
function without a policy serves all tasks, and one of a network all tasks with as many numbers in
an action.

**Terms.** Arrays of the job have a row for each simulation. `elapsed` are the steps of running
episodes, `pending` of one that waits for its reset, and `returns` their rewards so far;
`streams[i, STEPS]` counts the steps of simulation i: each has random numbers of its own. `finals`
are observations with which episodes ended, `last` those after the call. `mask`, `same_step` and
`records` are 1 or 0, `sums` the five sums of a rollout: `EPISODES` to `LENGTHS` are its columns.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import types

from rlcpu.envs.engine.form import EPISODES, FAULTS, LENGTHS, RETURNS, SQUARES
from rlcpu.envs.engine.frames import make_open_policy
from rlcpu.envs.engine.lane import PENDING
from rlcpu.envs.mujoco.job import (
    ARRAYS,
    ARRAYS_OF_STEPS,
    FIRST_POLICY,
    FORWARD,
    JOB_SIZE,
    RESTART,
    STEP,
    make_open,
)
from rlcpu.envs.mujoco.library import i64
from rlcpu.envs.mujoco.physics import STEPS, TASK_FORWARD, TASK_RESET, TASK_STEP
from rlcpu.envs.mujoco.policy import make_policy
from rlcpu.envs.policies import PolicyCode
from rlcpu.kernels.compile import EXACT, c_function, inline
from rlcpu.kernels.memory import array_at, call_at


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
    run = _make_run_once(dtype)  # costs nothing: only what `c_function` gets is compiled
    if policy is not None:
        run = _make_run_rollout(policy, dtype, action_size, observation_size)
    kinds = (types.intp, types.intp, types.int32, types.intp)
    return c_function(run, kinds, fastmath=EXACT, subject="MuJoCo")


#: Numbers of the dtypes of the job's arrays, which sums and comparisons keep.
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
def start_episode(m, d, i, address, job):
    """Draw a new state of simulation i, and begin to count its steps and return."""
    call_at(job.task, (m, d, i, address, np.int64(TASK_RESET)))
    job.elapsed[i] = nothing
    job.returns[i] = 0.0


@inline(exact=True)
def take_step(m, d, i, address, job, dtype):
    """Step simulation i with the action in `applied_actions`, and count its steps and return.

    Returns:
        The reward in a dtype, whether the episode is terminated, whether it is truncated, and its
        return so far.
    """
    call_at(job.task, (m, d, i, address, np.int64(TASK_STEP)))
    reward = dtype(job.step_rewards[i])
    total, elapsed = job.returns[i] + np.float64(reward), job.elapsed[i] + one
    truncated = job.step_ended[i, 1] != none or elapsed >= np.uint32(job.limit)
    job.returns[i], job.elapsed[i] = total, elapsed
    job.streams[i, STEPS] += np.uint64(1)
    return reward, job.step_ended[i, 0] != none, truncated, total


def _make_run_once(real: type) -> Any:
    """Make the function of `make_batch_function` without a policy, for environments of a dtype."""
    open_job = make_open(ARRAYS_OF_STEPS, real)

    def run(m, d, i, address):
        """Restart simulation i, step it, or only observe it, as `job.mode` says."""
        job = open_job(address)
        mode, observation = job.mode, job.observation[i]
        if mode == FORWARD:
            call_at(job.task, (m, d, i, address, np.int64(TASK_FORWARD)))
            return
        reward, terminated, truncated = real(0.0), False, False
        if mode == RESTART:
            restarts = job.mask[i] != none
        else:  # a step of an episode that has finished is its reset, but for same-step autoreset
            restarts = job.elapsed[i] == pending and job.same_step == 0
        if mode == STEP and not restarts:
            for k in range(job.applied_actions.shape[1]):
                job.applied_actions[i, k] = job.actions[0, i, k]
            reward, terminated, truncated, _ = take_step(m, d, i, address, job, real)
            ended = terminated or truncated
            if ended and job.same_step != 0:
                copy_rounded(job.finals[0, i], observation, real)
                restarts = True
            elif ended:
                job.elapsed[i] = pending
        if restarts:
            start_episode(m, d, i, address, job)
        copy_rounded(job.last[i], observation, real)
        if mode == STEP:
            job.rewards[0, i] = reward
            job.flags[0, 0, i] = np.uint8(terminated)
            job.flags[1, 0, i] = np.uint8(truncated)

    return run


def _make_run_rollout(
    policy: PolicyCode, real: type, action_size: int, observation_size: int
) -> Any:
    """Make the function of `make_batch_function` with a policy, for environments of a dtype."""
    open_job, open_policy = make_open(ARRAYS, real), make_open_policy(FIRST_POLICY)
    allocate, choose = make_policy(policy, action_size, observation_size)

    def run(m, d, i, address):
        """Take all steps of simulation i, and start a new episode where one ends.

        `choose` writes the action to `job.applied_actions`, and what was chosen to the rollout if
        `job.records`. It returns, as `copy_rounded` does, zero times each number: `fault` adds
        these up, and is NaN if a number is infinite or NaN.
        """
        job, policy = open_job(address), open_policy(array_at(address, (JOB_SIZE,), i64))
        records, observation, sums = job.records != 0, job.observation[i], job.sums[i]
        scratch, fault = allocate(policy.settings), 0.0
        for step in range(job.num_steps):
            if records:
                fault += copy_rounded(job.observations[step, i], observation, real)
            fault += choose(i, step, job, policy, scratch)
            reward, terminated, truncated, total = take_step(m, d, i, address, job, real)
            fault += reward * 0.0
            if records:
                job.rewards[step, i] = reward
                job.flags[0, step, i] = np.uint8(terminated)
                job.flags[1, step, i] = np.uint8(truncated)
            if terminated or truncated:
                elapsed = job.elapsed[i]
                sums[EPISODES] += 1.0
                sums[RETURNS] += total
                sums[SQUARES] += total * total
                sums[LENGTHS] += np.float64(elapsed)
                if records:
                    job.totals[step, i] = real(total)
                    job.lengths[step, i] = elapsed
                    fault += copy_rounded(job.finals[step, i], observation, real)
                start_episode(m, d, i, address, job)
        for k in range(observation.size):
            fault += observation[k] * 0.0
        if records:
            fault += copy_rounded(job.last[i], observation, real)
        sums[FAULTS] += fault

    return run
