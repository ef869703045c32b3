"""Recorders: what a rollout writes of each step of a block of environments.

`simulate` keeps sums over the episodes that ended, `collect` every step. A lane's "fault" is 0, or
NaN after a number of the lane that was not finite: zero times a number is NaN only for NaN and
infinity, one operation without a branch. `rlcpu.envs.engine.faults` looks for the number then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.form import EPISODES, FAULTS, LENGTHS, RETURNS, SQUARES
from rlcpu.envs.engine.frames import (
    MASK_ROW,
    NUM_ROWS,
    RETURNS_AT,
    make_open_records,
    open_sums,
)
from rlcpu.envs.engine.interface import Interface, make_number_at
from rlcpu.envs.engine.lane import ELAPSED, LANES
from rlcpu.kernels.compile import inline, inline_source
from rlcpu.kernels.memory import address, shifted, to_line
from rlcpu.kernels.rows import row_access
from rlcpu.kernels.scopes import ANY

u32 = np.uint32


class BlockStep(NamedTuple):
    """Arrays of a block for one step, in rows of LANES numbers; all but observations are pointers.

    Where states have arrays, observations lie one environment after the other.
    """

    #: (numbers * LANES,) float32, before the step, and overwritten by it.
    observations: Any
    #: The policy's actions, float32 or int32.
    chosen: Any
    #: The actions as the environment takes them, clipped, of its dtype or int32.
    actions: Any
    #: (LANES,) float32.
    log_probs: Any
    values: Any
    #: (LANES,) of the environment's dtype.
    rewards: Any
    #: (LANES,) uint8.
    terminated: Any
    truncated: Any
    #: (LANES,) uint32, steps of the episodes before the step.
    elapsed: Any
    #: (LANES,), see the module.
    faults: Any
    #: (LANES,) uint8, whether the episode ended with the step.
    ended: Any
    #: (2,) uint32, that of `EnvArrays` for the step.
    clock: Any


class BlockRecorder(NamedTuple):
    """Functions that a rollout's loop over steps inlines to record the results of a block.

    `now` is the `BlockStep`, `env` the block's `EnvArrays`, of whose lanes the first `count` are in
    use; `outputs` are those of the rollout, and `place` is where the block's first lane is in flat
    arrays of all steps.
    """

    #: (frame, block) -> the outputs of block number `block`.
    open_outputs: Callable[..., Any]
    #: (outputs, words, count, num_steps) -> memory of the recorder's own, before the first step.
    start: Callable[..., Any]
    #: (now, outputs, place, count) records what a step begins with.
    save_decisions: Callable[..., None]
    #: (now, outputs, memory, env, place, count, is_flush) records what the step led to. `is_flush`
    #: comes every `FLUSH` steps, and with the last one.
    save_results: Callable[..., None]
    #: (now, outputs, env, begin, count) -> a number above 0 if the block had a fault, else 0; after
    #: the last step. `begin` is the block's first environment.
    finish: Callable[..., Any]


# ---------------------------------------------------------------- faults


def make_add_faults(interface: Interface) -> Callable[..., None]:
    """Make (now, env), which adds NaN to the faults of lanes with numbers that are not finite.

    It looks at what a step begins with: observations, and the policy's decisions. An action mask
    that allows nothing is a fault, too. `now` is a `BlockStep`; `env.observed_spans` has pairs
    (first row, number of rows) of an observation's floats.
    """
    nothing, in_rows = np.float32(0), interface.in_rows
    float_rows = 0 if interface.is_whole else interface.action_size
    fault_of_observation, number_at = _make_fault_of_observation(interface), make_number_at(in_rows)

    @inline_source
    def add_faults(now, env):
        for i in range(LANES):
            now.faults[i] += now.log_probs[i] * nothing + now.values[i] * nothing
        for k in range(float_rows):
            for i in range(LANES):
                now.faults[i] += now.chosen[k * LANES + i] * nothing
        if in_rows:  # row by row, in vectors
            for span in range(0, env.observed_spans.size, 2):
                first = env.observed_spans[span]
                for row in range(first, first + env.observed_spans[span + 1]):
                    numbers = shifted(address(now.observations), row * LANES)
                    for i in range(LANES):
                        now.faults[i] += numbers[i] * nothing
        else:
            for i in range(LANES):
                now.faults[i] += fault_of_observation(now, env, i)
        add_faults_of_masks(now, env)

    @inline
    def add_faults_of_masks(now, env):
        first, last = env.sizes[MASK_ROW], env.sizes[NUM_ROWS]
        if last > first:
            words = now.observations.view(u32)
            for i in range(LANES):
                allowed = u32(0)
                for row in range(first, last):
                    allowed |= words[number_at(now.observations, row, i)]
                if allowed == u32(0):
                    now.faults[i] = np.nan

    return add_faults


def _make_fault_of_observation(interface: Interface) -> Callable[..., Any]:
    """Make an inlinable (now, env, i) -> 0, or NaN if lane i's observation is not finite."""
    number_at, nothing = make_number_at(interface.in_rows), np.float32(0)

    @inline
    def fault_of_observation(now, env, i):
        fault = nothing
        numbers = address(now.observations)
        for span in range(0, env.observed_spans.size, 2):
            first = number_at(now.observations, env.observed_spans[span], i)
            step = number_at(now.observations, 1, i) - number_at(now.observations, 0, i)
            for k in range(env.observed_spans[span + 1]):
                fault += numbers[first + k * step] * nothing
        return fault

    return fault_of_observation


# ---------------------------------------------------------------- sums

#: Sums that each lane has of its own, in rows of LANES numbers of the environment's dtype:
#: `EPISODES`, `RETURNS`, `SQUARES` and `FAULTS`. Every `FLUSH` steps they are added to those of
#: the block, which are float64.
LANE_SUMS = 4
FLUSH = 256


def make_sums(interface: Interface, dtype: type) -> BlockRecorder:
    """Make the recorder of `simulate`, whose output is the sums of a block, (NUM_SUMS,) float64."""
    zero, one, flush = dtype(0), dtype(1), make_flush(dtype)
    finish_sums = make_finish_sums(interface.in_rows, dtype)

    @inline
    def save_decisions(now, sums, place, count):
        pass

    @inline
    def save_results(now, sums, lane_sums, env, place, count, is_flush):
        returns = shifted(address(env.real), env.sizes[RETURNS_AT])
        for i in range(count):
            total = returns[i] if now.ended[i] != 0 else zero
            lane_sums[EPISODES * LANES + i] += one if now.ended[i] != 0 else zero
            lane_sums[RETURNS * LANES + i] += total
            lane_sums[SQUARES * LANES + i] += total * total
            lane_sums[FAULTS * LANES + i] = now.faults[i]
        if is_flush:
            flush(lane_sums, sums, count)

    @inline
    def finish(now, sums, env, begin, count):
        return finish_sums(sums, env, count)

    start = make_start_sums(dtype)
    return BlockRecorder(open_sums, start, save_decisions, save_results, finish)


def make_start_sums(dtype: type) -> Callable[..., Any]:
    """Make (sums, words, count, num_steps) -> zeros for lane sums; it begins the block's sums.

    Lengths are all steps that episodes will have had at the end, those of earlier rollouts too;
    `make_finish_sums` subtracts the steps of episodes that are still running.
    """
    real = dtype

    @inline_source
    def start(sums, words, count, num_steps):
        sums[:] = 0.0
        sums[LENGTHS] = count * num_steps + sum_elapsed(words, count)
        memory: Any = np.zeros((LANE_SUMS + 1) * LANES, real)  # a row more, to begin with a line
        first = to_line(address(memory), 0)  # a vector across two lines takes twice as long
        return memory[first : first + LANE_SUMS * LANES]

    return start


def make_flush(dtype: type) -> Callable[..., None]:
    """Make (lane_sums, sums, count), which adds lane sums to those of the block and zeroes them."""
    (get, set_), zero = row_access("rewards"), dtype(0)

    @inline_source
    def flush(lane_sums, sums, count):
        for k in range(LANE_SUMS):
            total = 0.0
            for i in range(LANES):
                total += get(lane_sums, k * LANES + i) if i < count else zero
                set_(lane_sums, k * LANES + i, zero)
            sums[k] += total

    return flush


def make_finish_sums(in_rows: bool, dtype: type) -> Callable[..., Any]:
    """Make (sums, env, count) -> 1 if the block had a fault, else 0, after the last step.

    States and returns of running episodes are looked at only now: they stay not finite. `in_rows`
    tells whether states are rows of LANES numbers, not one record after the other.
    """
    zero = dtype(0)

    @inline_source
    def finish(sums, env, count):
        sums[LENGTHS] -= sum_elapsed(env.words, count)
        sums[FAULTS] += sums[RETURNS] * 0.0  # NaN for a sum that is not finite
        returns_at = env.sizes[RETURNS_AT]  # behind the states: LANES times the size of one
        for i in range(count):
            fault = env.real[returns_at + i] * zero
            for span in range(0, env.state_spans.size, 2):
                first = env.state_spans[span]
                for k in range(first, first + env.state_spans[span + 1]):
                    place = k * LANES + i if in_rows else i * (returns_at // LANES) + k
                    fault += env.real[place] * zero
            sums[FAULTS] += np.float64(fault)
        return 1 if sums[FAULTS] != 0.0 else 0

    return finish


@inline
def sum_elapsed(words, count):
    """Return the sum of the steps of the running episodes in a block's first `count` lanes."""
    total: Any = 0
    for i in range(count):
        total += np.int64(words[ELAPSED * LANES + i])
    return total


# ---------------------------------------------------------------- records


def make_records(interface: Interface, dtype: type) -> BlockRecorder:
    """Make the recorder of `collect`, whose outputs are the `Records` of all environments.

    Finals, totals and lengths are written only of lanes whose episode ended.
    """
    width, nothing, in_rows = max(interface.action_size, 1), dtype(0), interface.in_rows
    # A reader and a writer, by which LLVM is promised that the records overlap nothing else.
    peek, poke = row_access(ANY)[0], row_access("target")[1]
    number_at = make_number_at(in_rows)
    add_faults = make_add_faults(interface)
    fault_of_observation = _make_fault_of_observation(interface)

    @inline
    def start(records, words, count, num_steps):
        return 0  # it needs no memory

    @inline
    def copy(source, target, begin, count):
        for i in range(count):
            poke(target, begin + i, peek(source, i))

    @inline
    def transpose(source, target, begin, count, size):
        """Copy `size` rows of LANES to `count` environments with `size` numbers each."""
        for i in range(count):
            for k in range(size):
                poke(target, (begin + i) * size + k, peek(source, k * LANES + i))

    @inline_source
    def copy_observations(now, target, begin, count):
        """Copy the observations of a block's first `count` lanes to those from `begin` on."""
        size = now.observations.size // LANES
        if in_rows:
            transpose(now.observations, target, begin, count, size)
        else:
            copy(now.observations, target, begin * size, count * size)

    @inline_source
    def save_decisions(now, records, place, count):
        copy_observations(now, records.observations, place, count)
        transpose(now.chosen, records.actions, place, count, width)
        copy(now.log_probs, records.log_probs, place, count)
        copy(now.values, records.values, place, count)

    @inline_source
    def save_results(now, records, memory, env, place, count, is_flush):
        returns = shifted(address(env.real), env.sizes[RETURNS_AT])
        # `flags` are `terminated` of all steps, then `truncated` of all.
        half, size = records.flags.shape[0] // 2, now.observations.size // LANES
        copy(now.rewards, records.rewards, place, count)
        copy(now.terminated, records.flags, place, count)
        copy(now.truncated, records.flags, half + place, count)
        for i in range(count):
            now.faults[i] += now.rewards[i] * nothing
            if now.ended[i] != 0:
                records.totals[place + i] = returns[i]
                records.lengths[place + i] = now.elapsed[i] + u32(1)
                for k in range(size):
                    number = peek(now.observations, number_at(now.observations, k, i))
                    poke(records.finals, (place + i) * size + k, number)
                now.faults[i] += fault_of_observation(now, env, i)

    @inline_source
    def finish(now, records, env, begin, count):
        copy_observations(now, records.last, begin, count)
        add_faults(now, env)
        num_faulty = 0
        for i in range(count):
            num_faulty += now.faults[i] != nothing
        return num_faulty

    open_records = make_open_records(interface.is_whole, dtype)
    return BlockRecorder(open_records, start, save_decisions, save_results, finish)
