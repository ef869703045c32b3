"""Rollouts in compiled code: a function that makes one rollout after the other in the same arrays.

A loop without Python, of `rlcpu.train.rounds`, calls it by address with a `Repeat`, the description
of arrays and sizes. It does what `collect` and `Rollout.transitions` do, bit for bit: the former by
the same function of blocks. A transition is sample k of T * N, in time-major order.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.frames import FIRST_FAULT
from rlcpu.envs.engine.lane import LANES
from rlcpu.envs.engine.lanes import LaneEngine
from rlcpu.envs.engine.masks import BITS
from rlcpu.envs.policies import NETWORK, KernelPolicy
from rlcpu.envs.results import Rollout
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.calls import function_of, kind_of
from rlcpu.kernels.compile import EXACT, inline_source
from rlcpu.kernels.memory import array_at, call_at

Array = npt.NDArray[Any]
u32 = np.uint32


class Repeat(NamedTuple):
    """The argument of `run_repeat`: arrays and sizes of rollouts of T steps of N environments.

    Attributes:
        run: address of `run_repeat`.
        function: address of the function of a block, see `rlcpu.envs.engine.rollout.Rollouts`.
        frame: the argument of that function, (any,) int64; behind it are the policy's settings and
            its network's job.
        num_steps, num_envs: T and N.
        clock: of `EnvArrays`.
        observations, finals, last, flags: of `Records`.
        real_bytes: bytes of a reward, 4 or 8.
        rewards, totals: addresses of those of `Records`.
        rows: numbers of an observation, with its mask.
        following: (T * N * rows,) float32, the observations to which the steps led.
        singles: (T * N,) float32, rewards that `Records` has as float64; (0,) if they are float32.
        masks: (T * N, actions) bool, action masks of `following`.
        returns: (any,) float64, of episodes that ended, one after the other.
        ended: (1,) int64, how many returns there are.
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
    """Tell whether `open_repeat` can continue the rollouts of environments, of which one was made.

    The environments have to be ours, observe no `Dict` and floats of float32 alone; the policy may
    have no memory, and one thread has to make rollouts of this size.
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
    """Return the argument of `run_repeat` for rollouts like the last one, each in its memory.

    It has no references: the caller keeps environments, policy and rollout alive. `job` is the
    policy network's, see `rlcpu.nn.acting.Acting.job_at`, and is copied; `most` rollouts are made
    before `returns` is emptied.
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
    """Return the address of `run_repeat`, compiled for numba's type of a `Repeat`."""
    return function_of(run_repeat, kind, fastmath=EXACT)


def sources_of(repeat: Repeat, rollout: Rollout) -> dict[str, tuple[int, int]]:
    """Return, by field of transitions, the address of its first row and the bytes of a row."""
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


# ---------------------------------------------------------------- in compiled code


def run_repeat(repeat):
    """Make a rollout, and arrays of its transitions, unless a number was not finite.

    Argument is a view of a `Repeat`, whose arrays are overwritten.
    """
    blocks, size = (repeat.num_envs + LANES - 1) // LANES, repeat.flags.size // 2
    for block in range(blocks):
        arguments = repeat.frame.ctypes.data, repeat.num_steps, repeat.num_envs, block
        call_at(repeat.function, arguments)
    repeat.clock[0] += u32(repeat.num_steps)
    for block in range(blocks):
        repeat.broken[0] += repeat.frame[FIRST_FAULT + block]
    if repeat.broken[0] > 0:
        return
    _write_following(repeat, size)
    _unpack_masks(repeat, size)
    if repeat.real_bytes == 8:
        totals = array_at(repeat.totals, (size,), 0.0)
        rewards = array_at(repeat.rewards, (size,), 0.0)
        for k in range(size):
            repeat.singles[k] = rewards[k]
        _append_returns(repeat, size, totals)
    else:
        _append_returns(repeat, size, array_at(repeat.totals, (size,), np.float32(0)))


@inline_source
def _write_following(repeat, size):
    """Write the observation to which each of `size` steps led.

    It is the final one where the episode ended, else that before the next step, or the last one.
    """
    rows, following, observations = repeat.rows, repeat.following, repeat.observations
    for k in range(size):
        begin, next_begin = k * rows, (k + repeat.num_envs) * rows
        if repeat.flags[k] or repeat.flags[size + k]:
            for i in range(rows):
                following[begin + i] = repeat.finals[begin + i]
        elif next_begin < size * rows:
            for i in range(rows):
                following[begin + i] = observations[next_begin + i]
        else:
            for i in range(rows):
                following[begin + i] = repeat.last[next_begin - size * rows + i]


@inline_source
def _unpack_masks(repeat, size):
    """Write the action mask of each of the `size` observations in `following`."""
    num_masked = repeat.masks.shape[1]
    # The last rows of an observation have the bits, `BITS` in each.
    first = repeat.rows - (num_masked + BITS - 1) // BITS
    for k in range(size):
        for action in range(num_masked):
            row = repeat.following[k * repeat.rows + first + action // BITS]
            bit = u32(1) << u32(action % BITS)
            repeat.masks[k, action] = (np.float32(row).view(u32) & bit) != 0


@inline_source
def _append_returns(repeat, size, totals):
    """Append the returns of the episodes that ended, of `totals` (size,), to `returns`."""
    for k in range(size):
        if repeat.flags[k] or repeat.flags[size + k]:
            repeat.returns[repeat.ended[0]] = totals[k]
            repeat.ended[0] += 1
