"""Rollouts in compiled code: a function that makes one rollout after the other in the same arrays.

It is a stage of the rounds of `rlcpu.train.rounds`, with a `Repeat` as its argument. It does what
`collect` and `Rollout.transitions` do, bit for bit: the former by the same function of blocks. A
transition is sample k of T * N, in time-major order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.frames import KernelPolicy, RecordArrays, RolloutFrame
from rlcpu.envs.engine.lane import LANES
from rlcpu.envs.engine.lanes import LaneEngine
from rlcpu.envs.engine.masks import BITS
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.rollout.results import Rollout
from rlcpu.kernels.compiler.compile import inline_source
from rlcpu.kernels.machine.memory import call_at
from rlcpu.kernels.machine.stages import Stage
from rlcpu.kernels.machine.structs import Array, Reference, Struct, Whole
from rlcpu.nn.network.acting import Job

u32 = np.uint32


class Repeat(Struct):
    """The argument of `run_repeat`: arrays and sizes of rollouts of T steps of N environments."""

    #: Address of the function that runs all steps of a block of environments, see
    #: `rlcpu.envs.rollout.compiled.Rollouts`, and its first three arguments.
    function = Whole()
    frame = Reference(RolloutFrame)
    policy = Reference(KernelPolicy)
    records = Reference(RecordArrays)
    num_steps = Whole()  #: T
    num_envs = Whole()  #: N
    size = Whole()  #: T * N
    rows = Whole()  #: floats of an observation, with its mask
    clock = Array(np.uint32, 2)  #: as in `rlcpu.envs.engine.frames.RolloutFrame`
    #: As in `rlcpu.envs.engine.form.Records`.
    observations = Array(np.float32, "size", "rows")
    finals = Array(np.float32, "size", "rows")
    last = Array(np.float32, "num_envs", "rows")
    flags = Array(np.bool_, 2, "size")
    rewards = Array("real", "size")
    totals = Array("real", "size")
    following = Array(np.float32, "size", "rows")  #: the observations to which the steps led
    singles = Array(np.float32, "size")  #: rewards as float32: `rewards` themselves if they are
    num_masked = Whole()
    masks = Array(np.bool_, "size", "num_masked")  #: action masks of `following`
    room = Whole()
    returns = Array(np.float64, "room")  #: of episodes that ended
    ended = Array(np.int64, 1)  #: how many there are
    broken = Array(np.int64, 1)  #: in how many environments a number was not finite


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


def open_repeat(env: VectorEnv, rollout: Rollout, job: Job, max_rollouts: int) -> Stage:
    """Return what makes rollouts like the last one, each in its memory, with a `Repeat`.

    The caller keeps environments, policy and rollout alive; `job` is the policy's network, which
    nobody else changes, see `rlcpu.nn.network.acting.Acting.job_with`; `max_rollouts` are made
    before `returns` is emptied.
    """
    runner: Any = env.engine.last_runner
    engine, records, size = runner.engine, rollout.records, rollout.rewards.size
    row, real = (size, engine.rows), records.rewards.dtype
    single = records.rewards if real == np.float32 else np.empty(size, np.float32)
    kind = Repeat.of(real=real.type, action=records.actions.dtype.type)
    record_arrays = kind.fields["records"].struct  # type: ignore[attr-defined]
    repeat = kind(
        function=runner.collecting.address,
        # In memory that nobody else changes.
        frame=engine.frame.replace(faults=np.zeros_like(engine.frame.faults)),
        policy=runner.packed_policy.replace(network=job),
        records=record_arrays(**dict(zip(RecordArrays.fields, rollout.outputs, strict=True))),
        num_steps=rollout.num_steps,
        num_envs=env.num_envs,
        size=size,
        rows=engine.rows,
        clock=engine.clock,
        observations=records.observations.reshape(row),
        finals=records.finals.reshape(row),
        last=records.last.reshape(env.num_envs, engine.rows),
        flags=records.flags.reshape(2, size),
        rewards=records.rewards,
        totals=records.totals,
        following=np.empty(row, np.float32),
        singles=single,
        num_masked=env.view.num_masked,
        masks=np.empty((size, env.view.num_masked), np.bool_),
        room=max_rollouts * size,
        returns=np.empty(max_rollouts * size),
        ended=np.zeros(1, np.int64),
        broken=np.zeros(1, np.int64),
    )
    return Stage(run_repeat, repeat)


class Source(NamedTuple):
    """Place in memory of a field of transitions."""

    address: int  # of the first row
    row_bytes: int


def sources_of(repeat: Any, rollout: Rollout) -> dict[str, Source]:
    """Return where each field of the T * N transitions is, by its name."""
    terminated, truncated = repeat.flags
    arrays = {
        "observation": repeat.observations,
        "next_observation": repeat.following,
        "next_action_mask": repeat.masks,
        "action": rollout.records.actions,
        "reward": repeat.singles,
        "terminated": terminated,
        "truncated": truncated,
    }
    return {name: Source(x.ctypes.data, x.nbytes // repeat.size) for name, x in arrays.items()}


# ---------------------------------------------------------------- in compiled code


def run_repeat(repeat):
    """Make a rollout, and arrays of its transitions, unless a number was not finite.

    The arrays of the `Repeat` are overwritten.
    """
    blocks = (repeat.num_envs + LANES - 1) // LANES
    frame = repeat.frame
    for block in range(blocks):
        memory = frame.address, repeat.policy.address, repeat.records.address
        call_at(repeat.function, (*memory, repeat.num_steps, block))
    repeat.clock[0] += u32(repeat.num_steps)
    for block in range(blocks):
        repeat.broken[0] += frame.faults[block]
    if repeat.broken[0] > 0:
        return
    _write_following(repeat)
    _unpack_masks(repeat)
    for k in range(repeat.size):
        repeat.singles[k] = repeat.rewards[k]
        if repeat.flags[0, k] or repeat.flags[1, k]:
            repeat.returns[repeat.ended[0]] = repeat.totals[k]
            repeat.ended[0] += 1


@inline_source
def _write_following(repeat):
    """Write the observation to which each step led.

    It is the final one where the episode ended, else that before the next step, or the last one.
    """
    following, num_envs, size = repeat.following, repeat.num_envs, repeat.size
    for k in range(size):
        if repeat.flags[0, k] or repeat.flags[1, k]:
            for i in range(repeat.rows):
                following[k, i] = repeat.finals[k, i]
        elif k + num_envs < size:
            for i in range(repeat.rows):
                following[k, i] = repeat.observations[k + num_envs, i]
        else:
            for i in range(repeat.rows):
                following[k, i] = repeat.last[k + num_envs - size, i]


@inline_source
def _unpack_masks(repeat):
    """Write the action mask of each observation in `following`."""
    # The last floats of an observation are the bits of its mask, `BITS` in each.
    first = repeat.rows - (repeat.num_masked + BITS - 1) // BITS
    for k in range(repeat.size):
        for action in range(repeat.num_masked):
            word = np.float32(repeat.following[k, first + action // BITS]).view(u32)
            repeat.masks[k, action] = ((word >> u32(action % BITS)) & u32(1)) != 0
