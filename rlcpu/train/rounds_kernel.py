"""The kernel of rounds that Python does not look at; see `rlcpu.train.rounds`.

A round collects, stores, draws, learns and gives priorities, by the functions that Python's rounds
call, in the same memory: they are called by address or inlined. Of several threads one, the
*leader*, makes the rounds, and all share each update. The kernel works on views of

    repeat  `rlcpu.envs.repeat.Repeat`, the memory of a rollout
    loop    `rlcpu.replay.loop.Loop`, the memory of the buffer and of a drawn batch
    share   `rlcpu.nn.frame.Share`, the arguments of the learner's update
    plan    `RoundsPlan`, everything else

`update` is the address of the learner's update, a function. So are `repeat.run`, which makes a
rollout, `loop.add`, which stores it, `loop.draw`, which draws a batch, and `loop.update`, which
sets its priorities, or is 0 without these. `repeat.broken` and `loop.fault`, (1,), are not 0 after
numbers that are not finite. In `share.frame`, a `rlcpu.nn.frame.Frame`, `settings` are those of the
update, such as its learning rates, and `space.report` has a row for each loss: its sums, and
behind these at `STEPS` the number of gradient steps, at `FAULT` whether a number was not finite.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.observations import WORDS
from rlcpu.kernels.boards import append_cells
from rlcpu.kernels.calls import view
from rlcpu.kernels.compile import EXACT, inline_source, kernel
from rlcpu.kernels.memory import address, array_at, call_at
from rlcpu.nn.frame import FAULT, STEPS, Share
from rlcpu.nn.workers import (
    IMPATIENT,
    close_gate,
    dismiss,
    join_call,
    leave_call,
    next_call,
    open_gate,
)

f32 = np.float32
#: (address) -> the view of the `Share` there.
share_at = Share.of(real=f32).at
#: Nanoseconds after which Python goes on.
LONGEST = 50_000_000
#: Longest row that NumPy adds up in eight sums alone; it adds halves of longer ones.
SUMMED = 128
#: Why the kernel stopped: all rounds are whole, the last one has numbers that are not finite, or
#: boards that were drawn last, and are not learnt from, have many ones.
WHOLE, BAD_ROLLOUT, BAD_LOSS, BAD_PRIORITY, HAS_MANY_ONES = range(5)
#: Numbers of `RoundsPlan.results`: rounds that are whole; why the kernel stopped; workers that lost
#: patience (see `rlcpu.nn.workers.wait`), after which the leader is alone; and calls of the learner
#: that were made in the round that stopped.
NUM_WHOLE, REASON, NUM_IMPATIENT, NUM_CALLS = range(4)
#: Numbers of `RoundsPlan.times`.
COLLECTING, UPDATING = range(2)
#: Numbers of the learner's `counters`.
MINIBATCHES, EPOCHS = range(2)

#: How a column of the learner is made of a drawn field.
CONVERSION_RECORD = np.dtype(
    [
        ("kind", np.int64),  # one of the kinds below
        ("source", np.int64),  # address of the drawn field
        ("column", np.int64),  # address of the column; of boards, of `Ones.columns`
        ("size", np.int64),  # numbers of both; unused for boards
        ("least", np.int64),  # the least choice
        ("starts", np.int64),  # of boards, the address of `Ones.starts`
    ]
)
#: Kinds: of int64, of bool, of rewards that are scaled, of rewards that are normalised and scaled,
#: of choices to `Ones.columns`, and of boards to `Ones`.
FROM_INTEGERS, FROM_FLAGS, SCALED, NORMALISED, FROM_CHOICES, FROM_BOARDS = range(6)


class Running(NamedTuple):
    """A `rlcpu.train.normalise.Normalizer`, and the rows that each round adds to it."""

    rows: Any  # (n, size), overwritten in each round; of no elements where nothing is normalised
    count: Any  # arrays of the normalizer
    mean: Any
    squares: Any


class Boards(NamedTuple):
    """Sizes of a drawn batch of boards; all 0 where observations are no boards."""

    samples: int
    planes: int
    cells: int  # of a plane
    too_many: int  # ones of the batch from which on networks take all cells


class Clock(NamedTuple):
    """A clock of the machine."""

    function: int  # address of C's `clock_gettime`, 0 where there is none
    number: int  # of the clock


class RoundsPlan(NamedTuple):
    """Numbers that rounds need besides rollouts, the buffer and the learner."""

    params: Any  # float32, of the policy's head, such as its epsilon
    round_params: Any  # (max_rounds, params.size) float32, the policy's params in each round
    round_rates: Any  # (max_rounds, num_updates), learning rates in each round
    conversions: Any  # (any,) of `CONVERSION_RECORD`
    boards: Boards
    reward_scale: Any  # float32
    calls: Any  # of the learner in a round
    gate: Any  # `rlcpu.nn.workers.Gate` of the updates, which helpers pass
    results: Any  # (4,) int64, see above
    times: Any  # (2,) int64, nanoseconds of collecting and of updating
    observations: Running  # what the policy sees
    shift: Any  # (size,) float32, mean and scale by which networks see observations normalised
    scale: Any
    rewards: Running  # discounted returns after each step
    returns: Any  # (num_envs,) float64, discounted, of the running episodes
    gamma: Any  # discount factor of these
    max_reward: Any  # limit of the absolute value of a normalised reward
    scratch: Any  # (n,) float64
    clock: Clock


@inline_source
def _nanoseconds(clock, time):
    """Return what a `Clock` shows; `time`, (2,) int64, gets its seconds and nanoseconds."""
    call_at(clock.function, (np.int32(clock.number), address(time)))
    return time[0] * 1_000_000_000 + time[1]


# ---------------------------------------------------------------- updates


@inline_source
def _help_leader(update, share, gate):
    """Take part in the leader's calls of the update, until there are no more.

    Calls have odd numbers, and `next_call` waits for the one after a number; a negative one ends
    it, also after so many checks as `patience` says, for the leader may have lost its core.
    """
    patience, none_yet = share.frame.settings.patience, 0
    number = next_call(gate, none_yet, patience)
    while number >= 0:
        if join_call(gate, number):
            call_at(update, (share,))
        leave_call(gate)
        number = next_call(gate, number, patience)


@inline_source
def _clear(space):
    """Set the workers' memory, `claims` and `done`, and the report of an update to 0."""
    for k in range(space.claims.size):
        space.claims[k] = 0
    for k in range(space.done.size):
        space.done[k] = 0
    for number in range(space.report.shape[0]):
        for k in range(space.report.shape[1]):
            space.report[number, k] = 0.0


@inline_source
def _learn(update, share, plan):
    """Call the learner's update, with helpers if there are any; count what it did.

    Returns how many of its losses were not finite.
    """
    space, counters, results = share.frame.space, share.frame.settings.counters, plan.results
    _clear(space)
    is_shared = share.workers > 1 and results[NUM_IMPATIENT] == 0
    if is_shared:
        open_gate(plan.gate)
    call_at(update, (share,))
    if is_shared:
        close_gate(plan.gate)
        results[NUM_IMPATIENT] += space.done[IMPATIENT]
        if results[NUM_IMPATIENT] > 0:
            dismiss(plan.gate)
    num_sums, faults = space.sums.shape[1], 0  # the report's other columns are behind its sums
    counters[MINIBATCHES] += np.int64(space.report[0, num_sums + STEPS])
    counters[EPOCHS] += 1
    for number in range(space.report.shape[0]):
        faults += space.report[number, num_sums + FAULT] != 0.0
    return faults


# ---------------------------------------------------------------- normalisation


@inline_source
def _sum_as_numpy(numbers, is_row):
    """Return the sum of numbers, which are overwritten, in NumPy's order: the same bits.

    NumPy adds up a row, and an array of one column (`is_row`), in eight sums, up to `SUMMED`
    numbers; each of several columns in one.
    """
    n, first, total = numbers.size, 0, 0.0
    if is_row and n >= 8:
        first = n - n % 8
        for i in range(8, first):
            numbers[i % 8] += numbers[i]
        low = (numbers[0] + numbers[1]) + (numbers[2] + numbers[3])
        total = low + ((numbers[4] + numbers[5]) + (numbers[6] + numbers[7]))
    for i in range(first, n):
        total += numbers[i]
    return total


@inline_source
def _add_rows(running, scratch):
    """Add the rows of a round to a `Running`, as `Normalizer.add` does; `scratch` has a column."""
    rows, before = running.rows, running.count[0]
    n, size = rows.shape
    for k in range(size):
        for i in range(n):
            scratch[i] = rows[i, k]
        mean = _sum_as_numpy(scratch, size == 1) / n
        for i in range(n):
            scratch[i] = (rows[i, k] - mean) * (rows[i, k] - mean)
        squares, delta = _sum_as_numpy(scratch, size == 1), mean - running.mean[k]
        running.mean[k] += delta * (n / (before + n))
        running.squares[k] += squares + delta * delta * (before * n / (before + n))
    running.count[0] = before + n


@inline_source
def _scale_of(running, k):
    """Return one over the standard deviation of column k, as `Normalizer.scale` does."""
    return 1.0 / np.sqrt(running.squares[k] / max(running.count[0], 1) + 1e-8)


@inline_source
def _write_returns(plan, flags, rewards):
    """Write the discounted return after each step, as `RewardNormalizer.add` does.

    Args:
        plan: whose `rewards.rows` and `returns` are overwritten.
        flags: (2 * n,) of the round's n transitions, those of all environments for each time step:
            n times terminated, then n times truncated.
        rewards: (n,), in the same order.
    """
    num_envs, n = plan.returns.size, plan.rewards.rows.shape[0]
    for k in range(n):
        value = plan.gamma * plan.returns[k % num_envs] + rewards[k]
        plan.rewards.rows[k, 0] = value
        is_done = flags[k] or flags[n + k]
        plan.returns[k % num_envs] = value * (0.0 if is_done else 1.0)


@inline_source
def _add_rewards(plan, repeat):
    """Add the rewards of a round, float32 or float64, to the statistics that normalise rewards.

    `repeat.rewards` is their address, and a number says of which dtype `array_at` finds them.
    """
    size = plan.rewards.rows.shape[0]
    if size == 0:
        return
    if repeat.real_bytes == 8:
        _write_returns(plan, repeat.flags, array_at(repeat.rewards, (size,), 0.0))
    else:
        _write_returns(plan, repeat.flags, array_at(repeat.rewards, (size,), f32(0)))
    _add_rows(plan.rewards, plan.scratch)


@inline_source
def _add_observations(plan):
    """Add the observations of a round to their statistics, by which networks normalise then."""
    if plan.observations.rows.shape[0] == 0:
        return
    _add_rows(plan.observations, plan.scratch)
    for k in range(plan.shift.size):
        plan.shift[k] = plan.observations.mean[k]
        plan.scale[k] = _scale_of(plan.observations, k)


# ---------------------------------------------------------------- the learner's columns


@inline_source
def _find_ones(boards, words_at, starts_at, places_at):
    """Write the ones of a batch of boards in the form of `Ones`.

    Args:
        boards: `Boards`.
        words_at: address of the boards' words.
        starts_at: address of `Ones.starts`, overwritten.
        places_at: address of `Ones.columns`, overwritten, with room for `too_many` ones and those
            of one more board.

    Returns:
        False if there are too many ones.
    """
    samples, planes = boards.samples, boards.planes
    words = array_at(words_at, (samples * planes * WORDS,), np.uint32(0))
    starts = array_at(starts_at, (samples + 1,), np.int64(0))
    places = array_at(places_at, (boards.too_many + planes * boards.cells,), np.int32(0))
    count, stride = 0, 1
    for i in range(samples):
        starts[i] = count
        begin = i * planes * WORDS
        count = append_cells(words, begin, stride, planes, boards.cells, places, count)
        if count >= boards.too_many:
            return False
    starts[samples] = count
    return True


@inline_source
def _make_columns(plan):
    """Write the learner's columns from the fields of a drawn batch.

    Returns False where boards have too many ones.
    """
    for k in range(plan.conversions.size):
        made = plan.conversions[k]
        kind, size = made.kind, made.size
        column = array_at(made.column, (size,), f32(0))  # of choices and boards it is int32
        if kind == FROM_INTEGERS:
            integers = array_at(made.source, (size,), np.int64(0))
            for i in range(size):
                column[i] = integers[i]
        elif kind == FROM_FLAGS:
            flags = array_at(made.source, (size,), np.uint8(0))
            for i in range(size):
                column[i] = flags[i]
        elif kind == SCALED:
            rewards = array_at(made.source, (size,), f32(0))
            for i in range(size):
                column[i] = rewards[i] * plan.reward_scale
        elif kind == NORMALISED:
            rewards, scale = array_at(made.source, (size,), f32(0)), _scale_of(plan.rewards, 0)
            for i in range(size):
                reward = min(max(rewards[i] * scale, -plan.max_reward), plan.max_reward)
                column[i] = f32(reward) * plan.reward_scale
        elif kind == FROM_CHOICES:
            choices = array_at(made.source, (size,), np.int32(0))
            places = array_at(made.column, (size,), np.int32(0))
            for i in range(size):
                places[i] = choices[i] - made.least
        elif not _find_ones(plan.boards, made.source, made.starts, made.column):
            return False
    return True


# ---------------------------------------------------------------- rounds


@inline_source
def _make_round(number, update, repeat, loop, plan, share, time):
    """Make one round: collect, store, then draw, learn and give priorities for each call.

    Returns `WHOLE`, or why the round is not. `number` is that of the round in this call of the
    kernel, from 0 on, and `time`, (2,) int64, scratch of the clock; see the module for the others.
    """
    start = _nanoseconds(plan.clock, time)
    for k in range(plan.params.size):
        plan.params[k] = plan.round_params[number, k]
    for k in range(plan.round_rates.shape[1]):
        share.frame.settings.learning_rates[k] = plan.round_rates[number, k]
    call_at(repeat.run, (repeat,))
    if repeat.broken[0] > 0:
        return BAD_ROLLOUT
    _add_rewards(plan, repeat)
    call_at(loop.add, (loop,))
    now = _nanoseconds(plan.clock, time)
    plan.times[COLLECTING] += now - start
    for call in range(plan.calls):
        plan.results[NUM_CALLS] = call
        call_at(loop.draw, (loop,))
        if not _make_columns(plan):
            return HAS_MANY_ONES
        if _learn(update, share, plan) > 0:
            return BAD_LOSS
        if loop.update != 0:
            call_at(loop.update, (loop,))
            if loop.fault[0] != 0:
                return BAD_PRIORITY
    _add_observations(plan)
    plan.times[UPDATING] += _nanoseconds(plan.clock, time) - now
    return WHOLE


@kernel(fastmath=EXACT)
def run_rounds(max_rounds, share, update, repeat, loop, plan):
    """Make rounds until `LONGEST` is over, and write their results; or help the one who does.

    At most `max_rounds` are made. Worker 0 of the `Share` at an address leads; see the module for
    the others.
    """
    share_view, plan_view = share_at(share), view(plan)
    if share_view.worker > 0:
        _help_leader(update, share_view, plan_view.gate)
        return
    repeat_view, loop_view, times = view(repeat), view(loop), plan_view.times
    time, number, reason = np.zeros(2, np.int64), 0, WHOLE
    while number < max_rounds and reason == WHOLE and times[COLLECTING] + times[UPDATING] < LONGEST:
        reason = _make_round(number, update, repeat_view, loop_view, plan_view, share_view, time)
        number += reason == WHOLE
    plan_view.results[NUM_WHOLE], plan_view.results[REASON] = number, reason
    dismiss(plan_view.gate)
