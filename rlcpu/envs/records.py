"""What `collect` records, and how the results of a block of lanes get there."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.lane import LANES, Structure, store_rows
from rlcpu.kernels.compile import define, inline
from rlcpu.kernels.rows import ANY, row_access


class Records(NamedTuple):
    """What `collect` writes, T steps of N environments; flat arrays in time-major order.

    Attributes:
        observations: (T * N * observation_size,) float32, before each step.
        actions: (T * N * max(action_size, 1),), int64 or float32, before clipping to the bounds.
        log_probs, values: (T * N,) float32.
        rewards: (T * N,).
        flags: (2 * T * N,) bool, terminated, then truncated.
        finals: (T * N * observation_size,) float32; written only where an episode ended.
        totals: (T * N,), return of the episode; written only where it ended.
        lengths: (T * N,) uint32, steps of the episode; written only where it ended.
        last: (N * observation_size,) float32, after the last step.
    """

    observations: Any
    actions: Any
    log_probs: Any
    values: Any
    rewards: Any
    flags: Any
    finals: Any
    totals: Any
    lengths: Any
    last: Any = None


@functools.cache
def make_put(env: Structure, dtype: type) -> Any:
    """Inlinable function that writes the results of one lane into rows.

    `faults` (LANES,) becomes NaN, and stays it, where a number of the lane is not finite.
    """
    width, size = env.action_size, env.observation_size
    put_seen = store_rows(size, "observations", np.float32)
    spot, (get_fault, put_fault) = make_spot(env, dtype), row_access("faults")
    put_final = store_rows(size, "finals", np.float32)
    put_actions: Any = store_rows(width, "actions", np.float32) if width else None
    _, put_action = row_access("actions")
    names = ("log_probs", "values", "rewards", "terminated", "totals", "lengths")
    put_log_prob, put_value, put_reward, put_flag, put_total, put_length = (
        row_access(name)[1] for name in names
    )
    real, discrete, nothing = dtype, width == 0, dtype(0)

    @inline
    def put(rows, faults, i, seen, chosen, end, final):
        put_seen(rows.observations, LANES, i, seen)
        if discrete:
            put_action(rows.actions, i, np.int32(chosen[0]))
        else:
            put_actions(rows.actions, LANES, i, chosen[0])
        put_log_prob(rows.log_probs, i, chosen[1])
        put_value(rows.values, i, chosen[2])
        put_reward(rows.rewards, i, end.reward)
        put_flag(rows.flags, i, end.terminated)
        put_flag(rows.flags, LANES + i, end.truncated)
        put_final(rows.finals, LANES, i, final)
        put_total(rows.totals, i, real(end.total))
        put_length(rows.lengths, i, end.elapsed)
        fault = get_fault(faults, i) + spot(seen, chosen) + end.reward * nothing
        put_fault(faults, i, fault)

    return put


@functools.cache
def make_spot(env: Structure, dtype: type) -> Any:
    """Inlinable function (numbers, chosen) -> 0, or NaN if one of the numbers is not finite.

    `numbers` is an observation; `chosen` is what a policy returns. Zero times a number is NaN only
    for NaN and infinity: one operation for each number, without a branch or a comparison.
    """
    terms = [f"numbers[{k}]" for k in range(env.observation_size)]
    terms += [f"chosen[0][{k}]" for k in range(env.action_size)] + ["chosen[1]", "chosen[2]"]
    source = f"def spot(numbers, chosen): return {' + '.join(f'real({t}) * zero' for t in terms)}"
    return inline(define(source, real=dtype, zero=dtype(0)))


@functools.cache
def make_save(env: Structure, dtype: type) -> Any:
    """Inlinable function that copies the rows of a block into the records of one step."""
    width, size = max(env.action_size, 1), env.observation_size
    peek, poke = row_access(ANY)[0], row_access("target")[1]
    nothing, real = dtype(0), dtype

    @inline
    def copy(source, first, target, begin, count):
        for i in range(count):
            poke(target, begin + i, peek(source, first + i))

    @inline
    def interleave(source, target, begin, count, width):
        for i in range(count):
            for k in range(width):
                poke(target, (begin + i) * width + k, peek(source, k * LANES + i))

    @inline
    def save(rows, faults, records, begin, count):
        half = records.flags.shape[0] // 2
        copy(rows.log_probs, 0, records.log_probs, begin, count)
        copy(rows.values, 0, records.values, begin, count)
        copy(rows.rewards, 0, records.rewards, begin, count)
        copy(rows.flags, 0, records.flags, begin, count)
        copy(rows.flags, LANES, records.flags, half + begin, count)
        interleave(rows.observations, records.observations, begin, count, size)
        interleave(rows.actions, records.actions, begin, count, width)
        for i in range(count):
            if rows.flags[i] or rows.flags[LANES + i]:
                records.totals[begin + i] = rows.totals[i]
                records.lengths[begin + i] = rows.lengths[i]
                for k in range(size):
                    final = rows.finals[k * LANES + i]
                    records.finals[(begin + i) * size + k] = final
                    faults[i] += real(final) * nothing

    return save
