"""Rollouts in compiled code: a function that makes one rollout after the other in the same arrays.

A loop without Python, of `rlcpu.train.rounds`, calls it by address with a `Repeat`, the description
of arrays and sizes. It does what `collect` and `Rollout.transitions` do, bit for bit: the former by
the same function of blocks. A transition is sample k of T * N, in time-major order.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.frames import RecordArrays, RolloutFrame, record_arrays_of
from rlcpu.envs.engine.lane import LANES
from rlcpu.envs.engine.lanes import LaneEngine
from rlcpu.envs.engine.masks import BITS
from rlcpu.envs.results import Rollout
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.calls import function_of, kind_of
from rlcpu.kernels.compile import EXACT, inline_source
from rlcpu.kernels.memory import array_at, call_at
from rlcpu.nn.acting import Job

u32 = np.uint32


class Repeat(NamedTuple):
    """The argument of `run_repeat`: arrays and sizes of rollouts of T steps of N environments."""

    #: Address of `run_repeat`, compiled for this kind of `Repeat`.
    run: Any
    #: Address of the function that runs all steps of a block of environments, see
    #: `rlcpu.envs.engine.rollout.Rollouts`, and those of its first two arguments.
    function: Any
    frame: Any
    records: Any
    #: `faults` of the frame.
    faults: Any
    #: T and N.
    num_steps: Any
    num_envs: Any
    #: As in `rlcpu.envs.engine.frames.RolloutFrame`.
    clock: Any
    #: As in `rlcpu.envs.engine.form.Records`.
    observations: Any
    finals: Any
    last: Any
    flags: Any
    #: Bytes of a reward, 4 or 8, and addresses of `rewards` and `totals` of `Records`: arrays of
    #: two dtypes would make two kinds of `Repeat`, and everything would be compiled twice.
    real_bytes: Any
    rewards: Any
    totals: Any
    #: Floats of an observation, with its mask.
    rows: Any
    #: (T * N * rows,) float32, the observations to which the steps led.
    following: Any
    #: (T * N,) float32, rewards that `Records` has as float64; (0,) if they are float32.
    singles: Any
    #: (T * N, actions) bool, action masks of `following`.
    masks: Any
    #: (any,) float64, returns of episodes that ended, and (1,) int64, how many there are.
    returns: Any
    ended: Any
    #: (1,) int64, in how many environments a number was not finite.
    broken: Any


def fits(env: VectorEnv, rollout: Rollout) -> bool:
    """Tell whether `open_repeat` can continue the rollouts of environments, of which one was made.

    The environments have to be ours, observe no `Dict` and floats of float32 alone; the policy may
    have no memory, and one thread has to make rollouts of this size.
    """
    runner: Any = env.engine.last_runner  # a `LaneRunner`, if the engine is ours
    if type(env.engine) is not LaneEngine or rollout.records.observations.dtype != np.float32:
        return False
    if runner.state_size:  # what a policy remembers is carried by Python
        return False
    if env.view.kind == "group":  # of which a buffer has a field for each part
        return False
    work = rollout.num_steps * runner.shared_envs  # 0 where environments are one core's anyway
    is_shared_by_threads = work >= runner.collecting.drivers.grain
    return env.engine.num_threads == 1 or not is_shared_by_threads


class BlockArguments(NamedTuple):
    """The first two arguments of the function of a block, in memory that nobody else changes."""

    frame: RolloutFrame
    records: RecordArrays


def arguments_with(env: VectorEnv, rollout: Rollout, job: Job) -> BlockArguments:
    """Return the arguments of the last rollout of environments, with another policy network.

    It is `job`, see `rlcpu.nn.acting.Acting.job_with`.
    """
    runner: Any = env.engine.last_runner
    policy = runner.frame.policy.replace(network=job)
    frame = runner.frame.replace(policy=policy, faults=np.zeros_like(runner.frame.faults))
    kinds = record_arrays_of(runner.engine.scalar_type, env.dynamics.is_discrete)
    records = kinds(**dict(zip(kinds.fields, rollout.outputs, strict=True)))
    return BlockArguments(frame, records)


def open_repeat(
    env: VectorEnv, rollout: Rollout, arguments: BlockArguments, max_rollouts: int
) -> Repeat:
    """Return the argument of `run_repeat` for rollouts like the last one, each in its memory.

    It has no references: the caller keeps environments, policy, rollout and arguments alive, see
    `arguments_with`; `max_rollouts` are made before `returns` is emptied.
    """
    runner: Any = env.engine.last_runner
    engine, records, size = runner.engine, rollout.records, rollout.rewards.size
    is_double = records.rewards.dtype == np.float64
    repeat = Repeat(
        run=0,
        function=runner.collecting.address,
        frame=arguments.frame.address,
        records=arguments.records.address,
        faults=arguments.frame.faults,
        num_steps=rollout.num_steps,
        num_envs=env.num_envs,
        clock=engine.clock,
        observations=records.observations,
        finals=records.finals,
        last=records.last,
        flags=records.flags,
        real_bytes=records.rewards.itemsize,
        rewards=records.rewards.ctypes.data,
        totals=records.totals.ctypes.data,
        rows=engine.rows,
        following=np.empty(size * engine.rows, np.float32),
        singles=np.empty(size if is_double else 0, np.float32),
        masks=np.empty((size, env.view.num_masked), np.bool_),
        returns=np.empty(max_rollouts * size),
        ended=np.zeros(1, np.int64),
        broken=np.zeros(1, np.int64),
    )
    return repeat._replace(run=_address(kind_of(repeat)))


@functools.cache
def _address(kind: Any) -> int:
    """Return the address of `run_repeat`, compiled for numba's type of a `Repeat`."""
    return function_of(run_repeat, kind, fastmath=EXACT)


class Source(NamedTuple):
    """Place in memory of a field of transitions."""

    address: int  # of the first row
    row_bytes: int


def sources_of(repeat: Repeat, rollout: Rollout) -> dict[str, Source]:
    """Return where each field of the T * N transitions is, by its name."""
    records, size = rollout.records, rollout.rewards.size
    terminated, truncated = records.flags.reshape(2, size)
    arrays = {
        "observation": records.observations,
        "next_observation": repeat.following,
        "next_action_mask": repeat.masks,
        "action": records.actions,
        "reward": repeat.singles if repeat.singles.size else records.rewards,
        "terminated": terminated,
        "truncated": truncated,
    }
    return {name: Source(x.ctypes.data, x.nbytes // size) for name, x in arrays.items()}


# ---------------------------------------------------------------- in compiled code


def run_repeat(repeat):
    """Make a rollout, and arrays of its transitions, unless a number was not finite.

    The argument is a view of a `Repeat`, whose arrays are overwritten.
    """
    blocks, size = (repeat.num_envs + LANES - 1) // LANES, repeat.flags.size // 2
    for block in range(blocks):
        call_at(repeat.function, (repeat.frame, repeat.records, repeat.num_steps, block))
    repeat.clock[0] += u32(repeat.num_steps)
    for block in range(blocks):
        repeat.broken[0] += repeat.faults[block]
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
    # The last floats of an observation are the bits of its mask, `BITS` in each.
    first = repeat.rows - (num_masked + BITS - 1) // BITS
    for k in range(size):
        for action in range(num_masked):
            word = np.float32(repeat.following[k * repeat.rows + first + action // BITS]).view(u32)
            repeat.masks[k, action] = ((word >> u32(action % BITS)) & u32(1)) != 0


@inline_source
def _append_returns(repeat, size, totals):
    """Append the returns of the episodes that ended, of `totals` (size,), to `returns`."""
    for k in range(size):
        if repeat.flags[k] or repeat.flags[size + k]:
            repeat.returns[repeat.ended[0]] = totals[k]
            repeat.ended[0] += 1
