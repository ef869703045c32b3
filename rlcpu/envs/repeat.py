"""Rollouts for kernels that make one after the other in the same arrays, without Python between.

They do what `collect` and `Rollout.transitions` do, bit for bit: the former by the same function.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.lane import LANES
from rlcpu.envs.engine.lanes import LaneEngine
from rlcpu.envs.engine.masks import BITS
from rlcpu.envs.engine.rollout import FIRST_FAULT
from rlcpu.envs.policies import NETWORK, KernelPolicy
from rlcpu.envs.results import Rollout
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.calls import function_of, kind_of
from rlcpu.kernels.compile import EXACT, merge
from rlcpu.kernels.memory import array_at, call_at

Array = npt.NDArray[Any]
u32 = np.uint32


class Repeat(NamedTuple):
    """Parts that repeat a rollout of T steps of N environments.

    Attributes:
        run: address of `run_repeat`.
        function: address of the function of a block, see `rlcpu.envs.engine.rollout.Rollouts`.
        frame: its frame.
        num_steps, num_envs: T and N.
        clock: of `EnvArrays`.
        observations, finals, last, flags: of `Records`.
        real_bytes: of a reward, 4 or 8.
        rewards, totals: addresses of those of `Records`.
        rows: numbers of an observation, its mask among them.
        following: (T * N * rows,) float32, what the steps led to.
        singles: (T * N,) float32, rewards that are kept as float64.
        masks: (T * N, actions) bool, which are allowed where the steps led to.
        returns: (any,) float64, of episodes that ended, one after the other.
        ended: (1,) int64, how many.
        broken: (1,) int64, in how many environments a number was not finite.
    """

    run: Any
    function: Any
    frame: Any
    num_steps: Any
    num_envs: Any
    clock: Any
    observations: Any
    finals: Any
    last: Any
    flags: Any
    real_bytes: Any
    rewards: Any
    totals: Any
    rows: Any
    following: Any
    singles: Any
    masks: Any
    returns: Any
    ended: Any
    broken: Any


def fits(env: VectorEnv, rollout: Rollout) -> bool:
    """Tell whether `open_repeat` takes what `collect` has just made.

    The environments are ours, the policy has no memory, and one thread makes rollouts of this size.
    """
    runner: Any = env.engine.last_runner
    if type(env.engine) is not LaneEngine or rollout.records.observations.dtype != np.float32:
        return False
    if runner.state_size:  # what a policy remembers is carried by Python
        return False
    if env.view.kind == "group":  # of which a buffer has a field for each part
        return False
    work, grain = len(rollout.rewards) * runner.shared_envs, runner.collecting.drivers.grain
    return env.engine.num_threads == 1 or work < grain


def open_repeat(env: VectorEnv, rollout: Rollout, job: Array, most: int) -> Repeat:
    """Return the memory of rollouts like the one that `collect` has just made.

    Args:
        env: that it was made in; see `fits`.
        rollout: is overwritten each time.
        job: of the policy's network, see `rlcpu.nn.acting.Acting.job_at`.
        most: rollouts at most.

    The caller keeps environments, policy and rollout alive.
    """
    runner: Any = env.engine.last_runner
    engine, records, num_masked = runner.engine, rollout.records, env.view.num_masked
    (num_steps, num_envs), count = rollout.rewards.shape, rollout.rewards.size
    policy = KernelPolicy._make(runner.policy_arrays)
    end = FIRST_FAULT + len(engine.words)
    frame = np.zeros(end + policy.settings.size + job.size, np.int64)
    settings, own_job = np.split(frame[end:], [policy.settings.size])
    settings[:], own_job[:] = policy.settings, job
    settings[NETWORK] = own_job.ctypes.data
    policy = policy._replace(settings=settings)
    for k, array in enumerate((*runner.env_arrays, *policy, *records)):
        frame[2 * k : 2 * k + 2] = array.ctypes.data, array.size
    is_double = records.rewards.dtype == np.float64
    repeat = Repeat(
        run=0,
        function=runner.collecting.address,
        frame=frame,
        num_steps=num_steps,
        num_envs=num_envs,
        clock=engine.clock,
        observations=records.observations,
        finals=records.finals,
        last=records.last,
        flags=records.flags,
        real_bytes=records.rewards.itemsize,
        rewards=records.rewards.ctypes.data,
        totals=records.totals.ctypes.data,
        rows=engine.rows,
        following=np.empty(count * engine.rows, np.float32),
        singles=np.empty(count if is_double else 0, np.float32),
        masks=np.empty((count, num_masked), np.bool_),
        returns=np.empty(most * count),
        ended=np.zeros(1, np.int64),
        broken=np.zeros(1, np.int64),
    )
    return repeat._replace(run=_address(kind_of(repeat)))


@functools.cache
def _address(kind: Any) -> int:
    return function_of(run_repeat, kind, fastmath=EXACT)


def sources_of(repeat: Repeat, rollout: Rollout) -> dict[str, tuple[int, int]]:
    """Return for each field the address of its first row, and bytes from a row to the next."""
    records, stride, size = rollout.records, 4 * repeat.rows, rollout.rewards.size
    rewards = repeat.singles if repeat.singles.size else records.rewards
    actions, masks = records.actions, repeat.masks
    terminated, truncated = records.flags[:size], records.flags[size:]
    arrays = {
        "observation": (records.observations, stride),
        "next_observation": (repeat.following, stride),
        "next_action_mask": (masks, masks.shape[1]),
        "action": (actions, actions.nbytes // size),
        "reward": (rewards, 4),
        "terminated": (terminated, 1),
        "truncated": (truncated, 1),
    }
    return {name: (array.ctypes.data, width) for name, (array, width) in arrays.items()}


# ---------------------------------------------------------------- the function of a view


def run_repeat(repeat):
    """Make a rollout, and columns of its transitions, unless a number was not finite."""
    blocks, size = (repeat.num_envs + LANES - 1) // LANES, repeat.flags.size // 2
    for block in range(blocks):
        arguments = repeat.frame.ctypes.data, repeat.num_steps, repeat.num_envs, block
        call_at(repeat.function, arguments)
    repeat.clock[0] += u32(repeat.num_steps)
    for block in range(blocks):
        repeat.broken[0] += repeat.frame[FIRST_FAULT + block]
    if repeat.broken[0] > 0:
        return
    _follow(repeat, size)
    _unpack_masks(repeat, size)
    if repeat.real_bytes == 8:
        totals = array_at(repeat.totals, (size,), 0.0)
        rewards = array_at(repeat.rewards, (size,), 0.0)
        for k in range(size):
            repeat.singles[k] = rewards[k]
        _keep_returns(repeat, size, totals)
    else:
        _keep_returns(repeat, size, array_at(repeat.totals, (size,), np.float32(0)))


@merge
def _follow(repeat, size):
    """Write the next observations and ends of steps."""
    rows, following, observations = repeat.rows, repeat.following, repeat.observations
    for k in range(size):
        place, after = k * rows, (k + repeat.num_envs) * rows
        if repeat.flags[k] or repeat.flags[size + k]:
            for i in range(rows):
                following[place + i] = repeat.finals[place + i]
        elif after < size * rows:
            for i in range(rows):
                following[place + i] = observations[after + i]
        else:
            for i in range(rows):
                following[place + i] = repeat.last[after - size * rows + i]


@merge
def _unpack_masks(repeat, size):
    """Write which actions are allowed where steps led to."""
    num_masked = repeat.masks.shape[1]
    first = repeat.rows - (num_masked + BITS - 1) // BITS
    for k in range(size):
        for action in range(num_masked):
            row = repeat.following[k * repeat.rows + first + action // BITS]
            bit = u32(1) << u32(action % BITS)
            repeat.masks[k, action] = (np.float32(row).view(u32) & bit) != 0


@merge
def _keep_returns(repeat, size, totals):
    """Keep the returns of the episodes that ended."""
    for k in range(size):
        if repeat.flags[k] or repeat.flags[size + k]:
            repeat.returns[repeat.ended[0]] = totals[k]
            repeat.ended[0] += 1
