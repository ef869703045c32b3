"""Drivers: K steps of N environments and their policy in one kernel.

Each block of environments runs all its steps before the next block starts, so that its state and
the network's activations stay in cache.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.envs.decide import make_decide
from rlcpu.envs.lane import (
    ELAPSED,
    LANES,
    PENDING,
    Structure,
    compile_lane,
    env_kernel,
    make_draw_words,
    make_turn,
    store_rows,
)
from rlcpu.envs.policy import PolicyArrays, PolicyCode
from rlcpu.envs.records import Records, make_put, make_save, make_spot
from rlcpu.kernels.compile import define, inline, inline_exact
from rlcpu.kernels.rows import row_access
from rlcpu.kernels.threads import Kernels

u32 = np.uint32
#: Steps after which float32 sums of a lane are added to float64 ones.
FLUSH = 256
#: What a driver returns where numbers are not finite; see `rlcpu.envs.faults`.
FAULT = -1


class EnvArrays(NamedTuple):
    """The memory of the environments and their run-time numbers.

    Kernels are called with plain tuples of the same fields: NumPy's arrays in a NamedTuple cost a
    call 0.6 us more.

    Attributes:
        real, words: see `rlcpu.envs.memory.Memory`.
        numbers: (num_numbers,) params.
        bounds: (2 * action_size,) float32, lowest and highest numbers of an action.
        clock: (2,) uint32, counter of the first step's random numbers, limit of an episode's steps.
    """

    real: Any
    words: Any
    numbers: Any
    bounds: Any
    clock: Any


@functools.cache
def simulate_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Kernels:
    """Kernels (env, policy, num_steps, num_envs, sums, lengths); see `_make_simulate`."""
    return Kernels(
        _make_simulate(env, dtype, policy, parallel=False),
        _make_simulate(env, dtype, policy, parallel=True),
        16384 if policy.act else 1024,
    )


@functools.cache
def collect_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Kernels:
    """Kernels (env, policy, num_steps, num_envs, records, last); see `_make_collect`."""
    return Kernels(
        _make_collect(env, dtype, policy, parallel=False),
        _make_collect(env, dtype, policy, parallel=True),
        8192 if policy.act else 1024,
    )


def _make_simulate(env: Structure, dtype: type, policy: PolicyCode, parallel: bool) -> Any:
    """Driver that records nothing but sums, one row per block and, last, one of all blocks.

    `sums` is (blocks + 1, 4) float64: finished episodes, their returns, the squares of these, and
    0, or NaN if a number was not finite; `lengths` (blocks + 1,) int64: their steps. As the other
    driver, it takes `EnvArrays` and `PolicyArrays` as plain tuples, and returns how many
    environments have finished and wait for a reset, in which case it does nothing, or `FAULT`.
    """
    run_block = _make_simulate_block(env, dtype, policy)

    @env_kernel(env, dtype, parallel)
    def simulate(env, policy, num_steps, num_envs, sums, lengths):
        real, words, numbers, bounds, clock = env
        weights, sizes, value_weights, value_sizes, log_std, mean, scale, settings = policy
        waiting = count_waiting(words, num_envs)
        if waiting > 0:
            return waiting
        for block in prange(real.shape[0]):
            run_block(
                EnvArrays(real[block], words[block], numbers, bounds, clock),
                PolicyArrays(
                    weights, sizes, value_weights, value_sizes, log_std, mean, scale, settings
                ),
                num_steps, min(LANES, num_envs - block * LANES), sums[block],
                lengths[block : block + 1],
            )  # fmt: skip
        add_up(sums, lengths)
        clock[0] += u32(num_steps)
        return waiting if sums[-1, 3] == 0.0 else FAULT

    return simulate


@functools.cache
def _make_simulate_block(env: Structure, dtype: type, policy: PolicyCode) -> Any:
    """All steps of one block."""
    lane, decide = compile_lane(env, dtype), make_decide(env, dtype, policy)
    turn, draw_words, clip = make_turn(env, dtype, True), make_draw_words(), make_clip(env, dtype)
    unpack, load, observe = lane.unpack, lane.load, lane.observe
    unpack_policy, scratch, prepare, choose = decide
    get_sum, set_sum = row_access("rewards")
    real, one, nothing, exact = dtype, dtype(1), dtype(0), dtype is np.float64
    state_rows = env.state_size + 1
    spot, is_network = make_spot(env, dtype), policy.act is None

    @inline
    def run_block(env, policy, num_steps, count, sums, lengths):
        state, words = env.real, env.words
        counter, limit = env.clock[0], env.clock[1]
        params, constants = unpack(env.numbers), unpack_policy(policy.weights, policy.log_std)
        greedy = policy.settings[1] != 0
        space = scratch(policy.sizes, policy.value_sizes)
        rows: Any = np.zeros(4 * LANES, real)
        sums[:] = 0.0
        before = sum_elapsed(words, count)
        for step in range(num_steps):
            now = u32(counter + u32(step))
            layout = prepare(state, params, policy, count, space)
            for i in range(count if exact else LANES):
                bits = draw_words(words, i, now)
                seen = observe(load(state, LANES, i), params)
                chosen = choose(seen, constants, greedy, bits, space, layout, i)
                end = turn(state, words, i, clip(chosen[0], env.bounds), bits, params, limit)
                ended = end.terminated | end.truncated
                total = end.total if ended else nothing
                set_sum(rows, i, get_sum(rows, i) + (one if ended else nothing))
                set_sum(rows, LANES + i, get_sum(rows, LANES + i) + total)
                squares = get_sum(rows, 2 * LANES + i) + total * total
                set_sum(rows, 2 * LANES + i, squares)
                if is_network:  # its NaN would choose action 0 of a `Discrete`
                    fault = get_sum(rows, 3 * LANES + i) + spot(seen, chosen)
                    set_sum(rows, 3 * LANES + i, fault)
            if step % FLUSH == FLUSH - 1 or step == num_steps - 1:
                for k in range(4):
                    total = 0.0
                    for i in range(LANES):
                        total += get_sum(rows, k * LANES + i) if i < count else nothing
                        set_sum(rows, k * LANES + i, nothing)
                    sums[k] += total
        lengths[0] = count * num_steps + before - sum_elapsed(words, count)
        sums[3] += sums[1] * 0.0
        for row in range(state_rows):
            for i in range(count):
                sums[3] += state[row * LANES + i] * nothing

    return run_block


@inline
def count_waiting(words, num_envs):
    """How many of the first `num_envs` environments have finished and are not reset yet."""
    waiting = 0
    for block in range(words.shape[0]):
        for i in range(min(LANES, num_envs - block * LANES)):
            waiting += words[block, ELAPSED * LANES + i] == u32(PENDING)
    return waiting


@inline
def sum_elapsed(words, count):
    """Steps of the running episodes of a block's first `count` environments."""
    total: Any = 0
    for i in range(count):
        total += np.int64(words[ELAPSED * LANES + i])
    return total


@inline_exact
def add_up(sums, lengths):
    """Add all rows but the last into the last one, in their order."""
    last = lengths.size - 1
    sums[last, :] = 0.0
    lengths[last] = 0
    for block in range(last):
        lengths[last] += lengths[block]
        for k in range(sums.shape[1]):
            sums[last, k] += sums[block, k]


def _make_collect(env: Structure, dtype: type, policy: PolicyCode, parallel: bool) -> Any:
    """Driver that records every step, see `Records`, and what is observed after the last one.

    `last` is (num_envs * observation_size,) float32; see `_make_simulate` for the rest.
    """
    run_block = _make_collect_block(env, dtype, policy)

    @env_kernel(env, dtype, parallel)
    def collect(env, policy, num_steps, num_envs, records, last):
        real, words, numbers, bounds, clock = env
        weights, sizes, value_weights, value_sizes, log_std, mean, scale, settings = policy
        observations, actions, log_probs, values, rewards, flags, finals, totals, lengths = records
        waiting = count_waiting(words, num_envs)
        if waiting > 0:
            return waiting
        broken = 0
        for block in prange(real.shape[0]):
            broken += run_block(
                EnvArrays(real[block], words[block], numbers, bounds, clock),
                PolicyArrays(
                    weights, sizes, value_weights, value_sizes, log_std, mean, scale, settings
                ),
                num_steps, num_envs, block * LANES,
                Records(
                    observations, actions, log_probs, values, rewards, flags, finals, totals,
                    lengths,
                ),
                last,
            )  # fmt: skip
        clock[0] += u32(num_steps)
        return waiting if broken == 0 else FAULT

    return collect


@functools.cache
def _make_collect_block(env: Structure, dtype: type, policy: PolicyCode) -> Any:
    """All steps of one block, each lane's results into rows that `save` copies out."""
    lane, decide = compile_lane(env, dtype), make_decide(env, dtype, policy)
    turn, draw_words, clip = make_turn(env, dtype, True), make_draw_words(), make_clip(env, dtype)
    unpack, load, observe = lane.unpack, lane.load, lane.observe
    unpack_policy, scratch, prepare, choose = decide
    save, put = make_save(env, dtype), make_put(env, dtype)
    put_last = store_rows(env.observation_size, "observations", np.float32)
    real, exact, size = dtype, dtype is np.float64, env.observation_size
    nothing = dtype(0)
    actions, action_type = max(env.action_size, 1), np.float32 if env.action_size else np.int32

    @inline
    def run_block(env, policy, num_steps, num_envs, begin, records, last):
        state, words = env.real, env.words
        counter, limit = env.clock[0], env.clock[1]
        count = min(LANES, num_envs - begin)
        params, constants = unpack(env.numbers), unpack_policy(policy.weights, policy.log_std)
        greedy = policy.settings[1] != 0
        space = scratch(policy.sizes, policy.value_sizes)
        rows = Records(
            np.empty(size * LANES, np.float32), np.empty(actions * LANES, action_type),
            np.empty(LANES, np.float32), np.empty(LANES, np.float32), np.empty(LANES, real),
            np.empty(2 * LANES, np.bool_), np.empty(size * LANES, np.float32),
            np.empty(LANES, real), np.empty(LANES, np.uint32),
        )  # fmt: skip
        faults: Any = np.zeros(LANES, real)
        for step in range(num_steps):
            now = u32(counter + u32(step))
            layout = prepare(state, params, policy, count, space)
            for i in range(count if exact else LANES):
                bits = draw_words(words, i, now)
                seen = observe(load(state, LANES, i), params)
                chosen = choose(seen, constants, greedy, bits, space, layout, i)
                end = turn(state, words, i, clip(chosen[0], env.bounds), bits, params, limit)
                put(rows, faults, i, seen, chosen, end, observe(end.reached, params))
            save(rows, faults, records, step * num_envs + begin, count)
        broken = 0
        for i in range(count):
            seen = observe(load(state, LANES, i), params)
            put_last(last, 1, (begin + i) * size, seen)
            for k in range(size):
                faults[i] += last[(begin + i) * size + k] * nothing
            broken += faults[i] != nothing
        return broken

    return run_block


@functools.cache
def make_clip(env: Structure, dtype: type) -> Any:
    """Inlinable function (action, bounds) -> the action that the environment gets."""
    if env.action_size == 0:
        return inline(lambda action, bounds: np.int32(action))
    size = env.action_size
    items = "".join(
        f"real(min(max(single(action[{k}]), bounds[{k}]), bounds[{size + k}])), "
        for k in range(size)
    )
    source = f"def clip(action, bounds): return ({items})"
    return inline(define(source, real=dtype, single=np.float32))
