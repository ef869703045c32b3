"""The function that MuJoCo's threads call: one simulation of a batch, one step or K steps.

MuJoCo calls it with addresses: `m` of a mjModel, `d` of a mjData, and `job`
(`rlcpu.envs.mujoco.job`); and with the number i of the simulation. It calls the task's own
function, see `rlcpu.envs.mujoco.physics`, by the address `memory.task`: so one function without a
policy serves all tasks, and one of a network all tasks with as many numbers in an action.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import types

from rlcpu.envs.contract.policies import PolicyCode
from rlcpu.envs.engine.episode import PENDING, SIZE, Episode, begin_of, make_step_episode
from rlcpu.envs.engine.form import EPISODES, FAULTS, LENGTHS, NUM_SUMS, RETURNS, SQUARES
from rlcpu.envs.mujoco.job import FORWARD, RESTART, STEP, RolloutJob, StepJob
from rlcpu.envs.mujoco.physics import STEPS, TASK_FORWARD, TASK_RESET, TASK_STEP
from rlcpu.envs.mujoco.policy import make_policy
from rlcpu.kernels.compiler.compile import EXACT, c_function, inline, tuple_of
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.memory import call_at, shifted
from rlcpu.kernels.machine.rows import store_rows

#: Numbers of the dtypes of the job's arrays, which comparisons keep.
pending, nothing, none = np.uint32(PENDING), np.uint32(0), np.uint8(0)
#: Numbers of episodes are float64, whatever the dtype of the environments.
begin, step_episode = begin_of(np.float64), make_step_episode(np.float64, same_step=True)
load_episode, store_episode = tuple_of(Episode, SIZE), store_rows(SIZE, ANY)


@functools.cache
def make_batch_function(
    policy: PolicyCode | None, dtype: type, action_size: int = 0, observation_size: int = 0
) -> int:
    """Return the address of the function for `mjb_apply`: (m, d, i, job).

    Args:
        policy: None for the function of a `StepJob`; else that of a `RolloutJob`.
        dtype: of the environments.
        action_size: numbers of an action; 0 if the function works for any.
        observation_size: numbers of an observation; 0 if the function works for any.
    """
    run, job = _make_run_once(dtype), StepJob.of(real=dtype).view
    if policy is not None:
        run = _make_run_rollout(policy, dtype, action_size, observation_size)
        job = RolloutJob.of(real=dtype).view
    kinds = (types.intp, types.intp, types.int32, job)
    return c_function(run, kinds, fastmath=EXACT, subject="MuJoCo")


@inline(exact=True)
def copy_rounded(target, source, dtype):
    """Copy an array to a pointer, rounded to a dtype; return 0, or NaN if one is not finite."""
    fault = 0.0
    for k in range(source.size):
        number = dtype(source[k])
        target[k] = number
        fault += number * 0.0
    return fault


@inline(exact=True)
def start_episode(m, d, i, memory):
    """Draw a new state of simulation i, and begin to count its steps and what else is counted."""
    call_at(memory.task, (m, d, i, memory, np.int64(TASK_RESET)))
    memory.elapsed[i] = nothing
    store_episode(memory.episodes[i], 1, 0, begin)


@inline(exact=True)
def take_step(m, d, i, memory, dtype, same_step):
    """Step simulation i with the action in `applied_actions`; return its `EpisodeStep`.

    An episode that has ended begins anew, with `same_step`, or waits for its reset.
    """
    call_at(memory.task, (m, d, i, memory, np.int64(TASK_STEP)))
    episode, elapsed = load_episode(memory.episodes[i]), memory.elapsed[i]
    ends, cuts = memory.step_ended[i, 0] != none, memory.step_ended[i, 1] != none
    reward = np.float64(dtype(memory.step_rewards[i]))  # what is counted is what is returned
    end = step_episode(episode, elapsed, reward, ends, cuts, np.uint32(memory.limit))
    waits = end.begins and not same_step
    memory.elapsed[i] = pending if waits else end.next_elapsed
    store_episode(memory.episodes[i], 1, 0, end.episode if waits else end.next_episode)
    memory.streams[i, STEPS] += np.uint64(1)
    return end


def _make_run_once(real: type) -> Any:
    """Make the function of `make_batch_function` without a policy, for environments of a dtype."""

    def run(m, d, i, job):
        """Restart simulation i, step it, or only observe it, as `job.mode` says."""
        memory, mode = job.memory, job.mode
        if mode == FORWARD:
            call_at(memory.task, (m, d, i, memory, np.int64(TASK_FORWARD)))
            return
        observation, action = memory.observation[i], memory.applied_actions[i]
        place, reward, terminated, truncated = i * observation.size, real(0.0), False, False
        if mode == RESTART:
            restarts = job.mask[i] != none
        else:  # the step of an episode that has finished is its reset, but for same-step autoreset
            restarts = memory.elapsed[i] == pending and not job.same_step
        if mode == STEP and not restarts:
            for k in range(action.size):
                action[k] = job.actions[i * action.size + k]
            end = take_step(m, d, i, memory, real, job.same_step)
            reward, terminated, truncated = real(end.reward), end.terminated, end.truncated
            restarts = end.begins and job.same_step
            if restarts:
                copy_rounded(shifted(job.finals, place), observation, real)
        if restarts:
            start_episode(m, d, i, memory)
        copy_rounded(shifted(job.last, place), observation, real)
        if mode == STEP:
            job.rewards[i] = reward
            job.flags[i], job.flags[memory.num_envs + i] = np.uint8(terminated), np.uint8(truncated)

    return run


def _make_run_rollout(
    policy: PolicyCode, real: type, action_size: int, observation_size: int
) -> Any:
    """Make the function of `make_batch_function` with a policy, for environments of a dtype."""
    allocate, choose = make_policy(policy, action_size, observation_size)

    def run(m, d, i, job):
        """Take all steps of simulation i, and start a new episode where one ends.

        `choose` writes the action to `memory.applied_actions`, and what was chosen to the rollout
        if `job.records`. It returns, as `copy_rounded` does, zero times each number: `fault` adds
        these up, and is NaN if a number is infinite or NaN.
        """
        memory, policy, records = job.memory, job.policy, job.records
        observation, num_envs, num_steps = memory.observation[i], memory.num_envs, job.num_steps
        size, scratch, fault = observation.size, allocate(policy), 0.0
        sums = shifted(job.sums, i * NUM_SUMS)
        for step in range(num_steps):
            at = step * num_envs + i
            if records:
                fault += copy_rounded(shifted(job.observations, at * size), observation, real)
            fault += choose(i, at, job, policy, scratch)
            end = take_step(m, d, i, memory, real, True)
            reward, total = real(end.reward), end.episode.total
            fault += reward * 0.0
            if records:
                job.rewards[at] = reward
                job.flags[at] = np.uint8(end.terminated)
                job.flags[num_steps * num_envs + at] = np.uint8(end.truncated)
            if end.begins:
                sums[EPISODES] += 1.0
                sums[RETURNS] += total
                sums[SQUARES] += total * total
                sums[LENGTHS] += np.float64(end.elapsed)
                if records:
                    store_episode(job.totals, num_steps * num_envs, at, end.episode)
                    job.lengths[at] = end.elapsed
                    fault += copy_rounded(shifted(job.finals, at * size), observation, real)
                start_episode(m, d, i, memory)
        for k in range(size):
            fault += observation[k] * 0.0
        if records:
            fault += copy_rounded(shifted(job.last, i * size), observation, real)
        sums[FAULTS] += fault

    return run
