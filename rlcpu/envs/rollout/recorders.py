"""Recorders: what a rollout writes of each step of a block of environments.

`simulate` keeps sums over the episodes that ended, `collect` every step. A lane's "fault" is 0, or
NaN after a number of the lane that was not finite: zero times a number is NaN only for NaN and
infinity, one operation without a branch. `rlcpu.envs.engine.faults` looks for the number then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.episode import SIZE, TOTAL
from rlcpu.envs.engine.form import EPISODES, FAULTS, LENGTHS, NUM_SUMS, RETURNS, SQUARES
from rlcpu.envs.engine.interface import Interface, make_number_at
from rlcpu.envs.engine.lane import ELAPSED, LANES, NUM_WORDS
from rlcpu.kernels.compiler.compile import inline, inline_source
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.memory import address, shifted, to_line
from rlcpu.kernels.machine.rows import row_access

u32 = np.uint32


class BlockMemory(NamedTuple):
    """A block of a `RolloutFrame`; all but numbers are pointers."""

    #: Its memory, see `rlcpu.envs.engine.lane`, and the episodes there: rows of LANES numbers.
    state: Any
    words: Any
    episodes: Any
    #: (NUM_SUMS,) float64, what `simulate` writes.
    sums: Any
    #: Number of its first environment, and how many of its lanes are in use.
    begin: Any
    count: Any


@inline
def open_block(frame, block):
    """Return block number `block` of a `RolloutFrame`."""
    state, begin = shifted(frame.state, block * frame.block_size), block * LANES
    return BlockMemory(
        state=state,
        words=shifted(frame.words, block * NUM_WORDS * LANES),
        episodes=shifted(state, frame.episodes_at),
        sums=shifted(frame.sums, block * NUM_SUMS),
        begin=begin,
        count=min(LANES, frame.num_envs - begin),
    )


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
    #: (2,) uint32, that of `RolloutFrame` for the step.
    clock: Any


# ---------------------------------------------------------------- faults


def make_add_faults(interface: Interface) -> Callable[..., None]:
    """Make (now, frame), which adds NaN to the faults of lanes with numbers that are not finite.

    It looks at what a step begins with: observations, and the policy's decisions. An action mask
    that allows nothing is a fault, too. `now` is a `BlockStep`.
    """
    nothing, in_rows = np.float32(0), interface.in_rows
    float_rows = 0 if interface.is_whole else interface.action_size
    fault_of_observation, number_at = _make_fault_of_observation(interface), make_number_at(in_rows)

    @inline_source
    def add_faults(now, frame):
        for i in range(LANES):
            now.faults[i] += now.log_probs[i] * nothing + now.values[i] * nothing
        for k in range(float_rows):
            for i in range(LANES):
                now.faults[i] += now.chosen[k * LANES + i] * nothing
        if in_rows:  # row by row, in vectors
            for span in range(frame.num_observed_spans):
                first = frame.observed_spans[span, 0]
                for row in range(first, first + frame.observed_spans[span, 1]):
                    numbers = shifted(address(now.observations), row * LANES)
                    for i in range(LANES):
                        now.faults[i] += numbers[i] * nothing
        else:
            for i in range(LANES):
                now.faults[i] += fault_of_observation(now, frame, i)
        first, last = frame.mask_row, frame.num_rows
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
    """Make an inlinable (now, frame, i) -> 0, or NaN if lane i's observation is not finite."""
    number_at, nothing = make_number_at(interface.in_rows), np.float32(0)

    @inline
    def fault_of_observation(now, frame, i):
        fault = nothing
        numbers = address(now.observations)
        for span in range(frame.num_observed_spans):
            first = number_at(now.observations, frame.observed_spans[span, 0], i)
            step = number_at(now.observations, 1, i) - number_at(now.observations, 0, i)
            for k in range(frame.observed_spans[span, 1]):
                fault += numbers[first + k * step] * nothing
        return fault

    return fault_of_observation


# ---------------------------------------------------------------- sums

#: Sums that each lane has of its own, in rows of LANES numbers of the environment's dtype:
#: `EPISODES`, `RETURNS`, `SQUARES` and `FAULTS`. Every `FLUSH` steps they are added to those of
#: the block, which are float64.
LANE_SUMS = 4
FLUSH = 256


def make_add_ends(dtype: type) -> Callable[..., None]:
    """Make (now, here, lane_sums), which adds the episodes that ended with a step."""
    zero, one = dtype(0), dtype(1)

    @inline
    def add_ends(now, here, lane_sums):
        for i in range(here.count):
            total = here.episodes[TOTAL * LANES + i] if now.ended[i] != 0 else zero
            lane_sums[EPISODES * LANES + i] += one if now.ended[i] != 0 else zero
            lane_sums[RETURNS * LANES + i] += total
            lane_sums[SQUARES * LANES + i] += total * total
            lane_sums[FAULTS * LANES + i] = now.faults[i]

    return add_ends


def make_start_sums(dtype: type) -> Callable[..., Any]:
    """Make (here, num_steps) -> zeros for lane sums; it begins the block's sums.

    Lengths are all steps that episodes will have had at the end, those of earlier rollouts too;
    `make_finish_sums` subtracts the steps of episodes that are still running.
    """
    real = dtype

    @inline_source
    def start(here, num_steps):
        for k in range(NUM_SUMS):
            here.sums[k] = 0.0
        here.sums[LENGTHS] = here.count * num_steps + sum_elapsed(here)
        memory: Any = np.zeros((LANE_SUMS + 1) * LANES, real)  # a row more, to begin with a line
        first = to_line(address(memory), 0)  # a vector across two lines takes twice as long
        return memory[first : first + LANE_SUMS * LANES]

    return start


def make_flush(dtype: type) -> Callable[..., None]:
    """Make (lane_sums, here), which adds lane sums to those of the block and zeroes them."""
    (get, set_), zero = row_access("rewards"), dtype(0)

    @inline_source
    def flush(lane_sums, here):
        for k in range(LANE_SUMS):
            total = 0.0
            for i in range(LANES):
                total += get(lane_sums, k * LANES + i) if i < here.count else zero
                set_(lane_sums, k * LANES + i, zero)
            here.sums[k] += total

    return flush


def make_finish_sums(in_rows: bool, dtype: type) -> Callable[..., Any]:
    """Make (frame, here) -> 1 if the block had a fault, else 0, after the last step.

    States and returns of running episodes are looked at only now: they stay not finite. `in_rows`
    tells whether states are rows of LANES numbers, not one record after the other.
    """
    zero = dtype(0)

    @inline_source
    def finish(frame, here):
        sums, state = here.sums, here.state
        sums[LENGTHS] -= sum_elapsed(here)
        sums[FAULTS] += sums[RETURNS] * 0.0  # NaN for a sum that is not finite
        size = frame.episodes_at // LANES  # of a state: episodes lie behind those of all lanes
        for i in range(here.count):
            fault = here.episodes[TOTAL * LANES + i] * zero
            for span in range(frame.num_state_spans):
                first = frame.state_spans[span, 0]
                for k in range(first, first + frame.state_spans[span, 1]):
                    fault += state[k * LANES + i if in_rows else i * size + k] * zero
            sums[FAULTS] += np.float64(fault)
        return 1 if sums[FAULTS] != 0.0 else 0

    return finish


@inline
def sum_elapsed(here):
    """Return the sum of the steps of the running episodes of a block."""
    total: Any = 0
    for i in range(here.count):
        total += np.int64(here.words[ELAPSED * LANES + i])
    return total


# ---------------------------------------------------------------- records


class RecordFunctions(NamedTuple):
    """Functions that record the steps of a block in `RecordArrays`.

    `place` is where the block's first lane is in flat arrays of all steps.
    """

    #: (now, records, here, place) records what a step begins with.
    record_decisions: Callable[..., None]
    #: (now, records, frame, here, place, size) records what the step led to; arrays of all steps
    #: have `size` numbers. What belongs to the end of an episode is written only where one ended.
    record_results: Callable[..., None]
    #: (now, target, begin, count) copies the observations of the block's first `count` lanes to
    #: those of environments from `begin` on.
    copy_observations: Callable[..., None]


def make_recorder(interface: Interface, dtype: type) -> RecordFunctions:
    """Make the functions of `collect`."""
    width, nothing, in_rows = max(interface.action_size, 1), dtype(0), interface.in_rows
    # A reader and a writer, by which LLVM is promised that the records overlap nothing else.
    peek, poke = row_access(ANY)[0], row_access("target")[1]
    number_at = make_number_at(in_rows)
    fault_of_observation = _make_fault_of_observation(interface)

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
        size = now.observations.size // LANES
        if in_rows:
            transpose(now.observations, target, begin, count, size)
        else:
            copy(now.observations, target, begin * size, count * size)

    @inline_source
    def record_decisions(now, records, here, place):
        count = here.count
        copy_observations(now, records.observations, place, count)
        transpose(now.chosen, records.actions, place, count, width)
        copy(now.log_probs, records.log_probs, place, count)
        copy(now.values, records.values, place, count)

    @inline_source
    def record_results(now, records, frame, here, place, size):
        count, num_rows = here.count, frame.num_rows
        copy(now.rewards, records.rewards, place, count)
        # `flags` are `terminated` of all steps, then `truncated` of all.
        copy(now.terminated, records.flags, place, count)
        copy(now.truncated, records.flags, size + place, count)
        for i in range(count):
            now.faults[i] += now.rewards[i] * nothing
            if now.ended[i] != 0:
                for field in range(SIZE):
                    records.totals[field * size + place + i] = here.episodes[field * LANES + i]
                records.lengths[place + i] = now.elapsed[i] + u32(1)
                for k in range(num_rows):
                    number = peek(now.observations, number_at(now.observations, k, i))
                    poke(records.finals, (place + i) * num_rows + k, number)
                now.faults[i] += fault_of_observation(now, frame, i)

    return RecordFunctions(record_decisions, record_results, copy_observations)
