"""Rollouts: K steps of N environments and their policy in compiled code.

Each block of environments (`rlcpu.envs.engine.lane`) runs all its steps before the next block
starts, so that its state and the network's activations stay in cache. `simulate` records sums over
the episodes that ended, `collect` records every step (`rlcpu.envs.rollout.recorders`).

The function that runs all steps of one block is compiled for C, and a driver, a loop over blocks,
serial or parallel, calls it by its address, with a frame (`rlcpu.envs.engine.frames`). It knows the
policy, and of the environment no more than an `Interface`: it calls the function of
`rlcpu.envs.engine.steps` for the environment's part. So whoever writes an environment waits for
that function alone. Where a scalar policy acts in `simulate`, such calls and the memory between
them would take longer than the steps: there `rlcpu.envs.rollout.simulations` makes one function of
both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from rlcpu.envs.acting.choices import make_to_env_action, make_to_env_number
from rlcpu.envs.acting.decide import check_policy_branches, make_decide
from rlcpu.envs.contract.policies import PolicyCode
from rlcpu.envs.engine.episode import PENDING
from rlcpu.envs.engine.form import NUM_SUMS
from rlcpu.envs.engine.frames import (
    OBSERVE,
    RESTART,
    STEP,
    KernelPolicy,
    RolloutFrame,
    record_arrays_of,
    step_call_of,
)
from rlcpu.envs.engine.interface import Interface, interface_of
from rlcpu.envs.engine.lane import ELAPSED, LANES, NUM_WORDS, make_draw_bits
from rlcpu.envs.engine.steps import is_whole
from rlcpu.envs.engine.structure import Structure, env_kernel
from rlcpu.envs.rollout.recorders import (
    FLUSH,
    BlockStep,
    make_add_ends,
    make_add_faults,
    make_finish_sums,
    make_flush,
    make_recorder,
    make_start_sums,
    open_block,
)
from rlcpu.envs.rollout.simulations import make_simulate
from rlcpu.kernels.compiler.compile import (
    EXACT,
    FAST,
    inline,
    inline_source,
    kernel,
    prefer_wide_vectors,
)
from rlcpu.kernels.compiler.hooks import address_of
from rlcpu.kernels.machine.memory import LINE, address, array_at, call_at, pointer_to, shifted
from rlcpu.kernels.machine.rows import row_access, store_rows
from rlcpu.kernels.machine.threads import Kernels, for_cores

u8, u32 = np.uint8, np.uint32
#: Returned by a driver if numbers are not finite; see `rlcpu.envs.engine.faults`.
FAULT = -1


class Rollouts(NamedTuple):
    """Kernels that run the rollouts of one environment and policy."""

    #: (address of `function`, of a `RolloutFrame`, of a `KernelPolicy`, num_steps,
    #: `Rollout.outputs` or ()), the loops over blocks. They return how many environments wait for
    #: their reset, in which case they do nothing; 0 after the steps, or `FAULT`.
    drivers: Kernels
    #: (frame, policy, records, num_steps, block) runs all steps of a block; compiled for C.
    function: Any
    #: Of the function.
    address: int


@functools.cache
def simulate_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `simulate`, which record sums over the episodes and nothing else.

    They are `sums` of the frame, see `rlcpu.envs.engine.form.EPISODES`.
    """
    if policy.act is None:  # a network acts
        return _compile_acting(interface_of(env, policy), dtype, policy, is_sums=True)
    # Steps of states with arrays take longer: fewer of them are worth a second core.
    # The longer a step takes, the fewer make up for the start of threads.
    run, grain = make_simulate(env, dtype, policy), 1024 if env.state.is_record else 16384
    check = functools.partial(check_policy_branches, interface_of(env, policy), policy)
    decorator = env_kernel(env, dtype, names=("simulate",), check=check)
    return _compile_rollouts(decorator, run, True, dtype, is_whole(env), grain)


def collect_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `collect`, which record every step in `RecordArrays`."""
    return _compile_acting(interface_of(env, policy), dtype, policy, is_sums=False)


@functools.cache
def _compile_acting(
    interface: Interface, dtype: type, policy: PolicyCode, is_sums: bool
) -> Rollouts:
    """Return the kernels in which a policy acts, for all environments with an interface."""
    run = _make_block(interface, dtype, policy, is_sums)
    flags, check = (
        EXACT if dtype is np.float64 else FAST,
        functools.partial(check_policy_branches, interface, policy),
    )
    decorator = kernel(by_address=True, fastmath=flags, check=check)
    grain = 8192 if policy.act and interface.in_rows else 1024  # networks take long, as arrays do
    return _compile_rollouts(decorator, run, is_sums, dtype, interface.is_whole, grain)


def _compile_rollouts(
    decorator: Any, run: Callable[..., None], is_sums: bool, dtype: type, is_whole: bool, grain: int
) -> Rollouts:
    """Compile `run`, which is (frame, policy, records, num_steps, block), by a decorator for C.

    `is_sums` tells that it is that of `simulate`, `is_whole` tells of actions; from `grain` steps
    of all environments on several cores share them.
    """
    run.__name__ = run.__qualname__ = "simulate" if is_sums else "collect"
    function, records = decorator(run), record_arrays_of(dtype, is_whole)
    structs = RolloutFrame.of(real=dtype), KernelPolicy, records
    function.compile((*[each.view for each in structs], types.int64, types.int64))
    drivers = _make_drivers(dtype, is_sums, is_whole)._replace(grain=grain)
    return Rollouts(drivers, function, address_of(function))


# ---------------------------------------------------------------- drivers


@functools.cache
def _make_drivers(dtype: type, is_sums: bool, is_whole: bool) -> Kernels:
    """Make the loops over blocks, serial and parallel; see `Rollouts`.

    They pack the memory of a rollout, which may be new in each call: Python would take 20 us.
    """
    frame_at, record_arrays = RolloutFrame.of(real=dtype).at, record_arrays_of(dtype, is_whole)

    def run_blocks(function, frame, policy, num_steps, records):
        here = frame_at(frame)
        num_blocks, faults, waiting = here.num_blocks, 0, 0
        for block in range(num_blocks):
            elapsed = shifted(here.words, (block * NUM_WORDS + ELAPSED) * LANES)
            for i in range(min(LANES, here.num_envs - block * LANES)):
                waiting += elapsed[i] == u32(PENDING)
        if waiting > 0:
            return waiting
        place = 0 if is_sums else record_arrays(*records).address
        for block in prange(num_blocks):
            call_at(function, (frame, policy, place, num_steps, np.int64(block)))
        if is_sums:
            add_up(here.sums, num_blocks)
        here.clock[0] += u32(num_steps)
        for block in range(num_blocks):
            faults += here.faults[block]
        return FAULT if faults > 0 else waiting

    return for_cores(run_blocks, grain=0, fastmath=EXACT)  # `_compile_rollouts` sets the grain


@inline(exact=True)
def add_up(sums, num_blocks):
    """Add the sums of all blocks, in their order, into the row behind them.

    Written into the driver, the sums are lost where its loop is parallel (numba 0.68).
    """
    for k in range(NUM_SUMS):
        total = 0.0
        for block in range(num_blocks):
            total += sums[block * NUM_SUMS + k]
        sums[num_blocks * NUM_SUMS + k] = total


# ---------------------------------------------------------------- blocks


def _make_block(
    interface: Interface, dtype: type, policy: PolicyCode, is_sums: bool
) -> Callable[..., None]:
    """Make the function (frame, policy, records, num_steps, block): all steps of one block.

    With `is_sums` it keeps sums alone, and reads no records.
    """
    unpack_policy, make_keys, allocate, prepare, choose = make_decide(interface, policy)
    record_decisions, record_results, copy_observations = make_recorder(interface, dtype)
    start_sums, add_ends, flush = make_start_sums(dtype), make_add_ends(dtype), make_flush(dtype)
    finish_sums, nothing = make_finish_sums(interface.in_rows, dtype), dtype(0)
    open_step, bytes_of_step = _make_open_step(interface, dtype)
    put_decision, draw_bits = _make_put_decision(interface, dtype), make_draw_bits()
    add_faults, call_env = make_add_faults(interface), _make_call_env(interface, dtype)
    get_word, set_elapsed = row_access("words")[0], row_access("lengths")[1]
    # Loops of a constant length become vectors: lanes that are not in use act, too. In float64, the
    # exact mode, there are no vectors to win.
    uses_all_lanes = (interface.in_rows or policy.act is None) and dtype is not np.float64

    def run(frame, policy, records, num_steps, block):
        """Let the policy act in all lanes of the block, step by step, and record the results."""
        prefer_wide_vectors()
        here, counter = open_block(frame, block), frame.clock[0]
        words, begin, count = here.words, here.begin, here.count
        elapsed = shifted(words, ELAPSED * LANES)
        constants = unpack_policy(policy.weights, policy.log_std)
        greedy, scratch = policy.greedy, allocate(policy)
        # Of the random numbers of a step the environment takes the first ones.
        keys, num_rows = make_keys(frame.first_draw), frame.num_rows
        observation_bytes = 4 * num_rows * LANES  # of float32
        memory_of_step = np.zeros(bytes_of_step + observation_bytes, u8)
        now = open_step(memory_of_step, num_rows)
        now.clock[0], now.clock[1] = counter, frame.clock[1]  # and the limit of an episode's steps
        call_env(frame, here, now, OBSERVE)
        if is_sums:
            lane_sums = start_sums(here, num_steps)
        for step in range(num_steps):
            now.clock[0], place = u32(counter + u32(step)), step * frame.num_envs + begin
            # Runs the networks, to scratch memory; says where their outputs are there.
            places = prepare(now.observations, elapsed, policy, begin, count, scratch)
            for i in range(LANES if uses_all_lanes else count):
                bits = draw_bits(words, i, now.clock[0])
                decision = choose(
                    now.observations, i, constants, greedy, bits, keys, scratch, places
                )
                put_decision(now, i, decision, frame.bounds)
            add_faults(now, frame)
            if not is_sums:
                record_decisions(now, records, here, place)
            for i in range(LANES):  # before the step, which overwrites them where an episode ends
                set_elapsed(now.elapsed, i, get_word(words, ELAPSED * LANES + i))
            call_env(frame, here, now, STEP)
            num_ended = 0
            for i in range(count):
                now.ended[i] = now.terminated[i] | now.truncated[i]
                num_ended += now.ended[i]
            if is_sums:
                add_ends(now, here, lane_sums)
                if step % FLUSH == FLUSH - 1 or step == num_steps - 1:
                    flush(lane_sums, here)
            else:
                record_results(now, records, frame, here, place, num_steps * frame.num_envs)
            if num_ended > 0:
                call_env(frame, here, now, RESTART)
        if is_sums:
            frame.faults[block] = finish_sums(frame, here)
        else:
            copy_observations(now, records.last, begin, count)
            add_faults(now, frame)
            num_faulty = 0
            for i in range(count):
                num_faulty += now.faults[i] != nothing
            frame.faults[block] = num_faulty
        memory_of_step[0] = 0  # an access, which keeps the array alive until here

    return run


def _make_open_step(interface: Interface, dtype: type) -> tuple[Callable[..., Any], int]:
    """Make an inlinable function (memory, num_rows) -> a `BlockStep` in memory of zeros.

    `memory` are bytes, and belong to the caller: of arrays of its own numba would count references
    wherever the tuple is passed on. It begins with rows of LANES times eight bytes, and ends with
    `num_rows` rows of observations.

    Returns:
        The function, and the bytes of memory that it needs besides observations.
    """
    width, row, real = max(interface.action_size, 1), 8 * LANES, dtype
    whole, single, byte, word = np.int32(0), np.float32(0), u8(0), u32(0)
    like_chosen: Any = whole if interface.is_whole else single
    like_action: Any = whole if interface.is_whole else real(0)
    num_rows_before = 9 + 2 * width  # of all fields in front of the observations, as below

    @inline
    def open_step(memory, num_rows):
        first = (memory.ctypes.data + LINE - 1) // LINE * LINE
        return BlockStep(
            log_probs=pointer_to(first, single),
            values=pointer_to(first + row, single),
            rewards=pointer_to(first + 2 * row, real(0)),
            terminated=pointer_to(first + 3 * row, byte),
            truncated=pointer_to(first + 4 * row, byte),
            elapsed=pointer_to(first + 5 * row, word),
            faults=pointer_to(first + 6 * row, real(0)),
            ended=pointer_to(first + 7 * row, byte),
            clock=pointer_to(first + 8 * row, word),
            chosen=pointer_to(first + 9 * row, like_chosen),
            actions=pointer_to(first + (9 + width) * row, like_action),
            observations=array_at(first + num_rows_before * row, (num_rows * LANES,), single),
        )

    return open_step, num_rows_before * row + LINE


def _make_call_env(interface: Interface, dtype: type) -> Callable[..., None]:
    """Make (frame, here, now, mode), which calls the environment's function for a block's lanes."""
    step_call = step_call_of(dtype, interface.is_whole)

    @inline_source
    def call_env(frame, here, now, mode):
        call = step_call(
            mode=mode,
            begin=0,
            count=here.count,
            stride=LANES,
            state=here.state,
            words=here.words,
            numbers=frame.numbers,
            clock=now.clock,
            mask=now.ended,
            actions=now.actions,
            observations=address(now.observations),
            rewards=now.rewards,
            terminated=now.terminated,
            truncated=now.truncated,
        )
        call_at(frame.function, (call,))

    return call_env


def _make_put_decision(interface: Interface, dtype: type) -> Callable[..., None]:
    """Make (now, i, decision, bounds), which writes lane i's (action, log_prob, value) to rows."""
    size = interface.action_size
    to_env_action = make_to_env_action(size, interface.is_whole, dtype)
    # Names of memory that does not overlap, as LLVM is told: so the loop over lanes has vectors.
    names = ("actions", "log_probs", "values", "source")
    put_action, put_log_prob, put_value, put_chosen = (row_access(name)[1] for name in names)
    put_actions, put_all_chosen = store_rows(size, "actions"), store_rows(size, "finals")
    loops, to_env_number = interface.loops, make_to_env_number(size, interface.is_whole, dtype)

    @inline
    def put_decision(now, i, decision, bounds):
        action, log_prob, value = decision
        if size == 0:
            put_action(now.actions, i, np.int32(action))
            put_chosen(now.chosen, i, np.int32(action))
        elif loops:
            for k in range(size):
                put_action(now.actions, k * LANES + i, to_env_number(action[k], bounds, k))
                put_chosen(now.chosen, k * LANES + i, action[k])
        else:
            put_actions(now.actions, LANES, i, to_env_action(action, bounds))
            put_all_chosen(now.chosen, LANES, i, action)
        put_log_prob(now.log_probs, i, log_prob)
        put_value(now.values, i, value)

    return put_decision
