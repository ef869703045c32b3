"""The kernel of rounds that Python does not look at; see `rlcpu.train.rounds`.

A round consists of stages (`rlcpu.kernels.machine.stages`), which collect, store, draw, and so on,
and of the learner's updates. Of several threads one, the *leader*, makes the rounds, and all share
each update. `update` is the address of the learner's update, a function of the view of a
`rlcpu.nn.learning.frame.Share`. In `share.frame`, a `rlcpu.nn.learning.frame.Frame`, `settings` are
those of the update, such as its learning rates, and `space.report` has a row for each loss: its
sums, and behind these at `STEPS` the number of gradient steps, at `FAULT` whether a number was not
finite.
"""

from __future__ import annotations

import numpy as np

from rlcpu.kernels.compiler.compile import EXACT, inline_source, kernel
from rlcpu.kernels.machine.memory import address, array_at, call_at
from rlcpu.kernels.machine.stages import run_stages
from rlcpu.kernels.machine.structs import Array, Struct, Whole
from rlcpu.nn.learning.frame import FAULT, STEPS, Share
from rlcpu.nn.learning.workers import (
    IMPATIENT,
    LINE_WORDS,
    Gate,
    close_gate,
    dismiss,
    join_call,
    leave_call,
    next_call,
    open_gate,
)

#: Nanoseconds after which Python goes on.
LONGEST = 50_000_000
#: Why the kernel stopped: all rounds are whole, the last one has numbers that are not finite, or
#: boards that were drawn last, and are not learnt from, have many ones.
WHOLE, BAD_ROLLOUT, BAD_LOSS, BAD_PRIORITY, HAS_MANY_ONES = range(5)
#: Numbers of `Rounds.results`: rounds that are whole; why the kernel stopped; workers that lost
#: patience (see `rlcpu.nn.learning.workers.wait`), after which the leader is alone; and calls of
#: the learner that were made in the round that stopped.
NUM_WHOLE, REASON, NUM_IMPATIENT, NUM_CALLS = range(4)
#: Numbers of `Rounds.times`.
COLLECTING, UPDATING = range(2)
#: Numbers of the learner's `counters`.
MINIBATCHES, EPOCHS = range(2)


class Rounds(Struct):
    """Argument of `run_rounds`: the stages of a round, in their order, and what it is told."""

    collect = Array(np.int64)  #: makes a rollout
    broken = Array(np.int64, 1)  #: not 0 after numbers of it that are not finite
    store = Array(np.int64)  #: store the rollout
    calls = Whole()  #: of the learner in a round; each begins with a new batch
    draw = Array(np.int64)  #: draw the batch, and make the learner's columns
    num_starts = Whole()
    #: Addresses of the number of ones of each column that has ones, and how many are too many:
    #: networks take all numbers then.
    starts = Array(np.int64, "num_starts")
    most_ones = Whole()
    judge = Array(np.int64)  #: give the batch its priorities
    fault = Array(np.int64, 1)  #: not 0 after priorities that are not finite
    observe = Array(np.int64)  #: end the round
    max_rounds = Whole()
    num_params = Whole()
    params = Array(np.float32, "num_params")  #: of the policy's head, such as its epsilon
    round_params = Array(np.float32, "max_rounds", "num_params")  #: these in each round
    num_rates = Whole()
    round_rates = Array(np.float32, "max_rounds", "num_rates")  #: learning rates in each round
    results = Array(np.int64, 4)  #: see above
    times = Array(np.int64, 2)  #: nanoseconds of collecting and of updating
    gate_calls = Array(np.int64, LINE_WORDS)  #: of the `Gate` of updates, which helpers pass
    gate_inside = Array(np.int64, LINE_WORDS)
    clock = Whole()  #: address of C's `clock_gettime`, and the number of the clock
    clock_number = Whole()
    time = Array(np.int64, 2)  #: scratch of the clock


#: (address) -> the view of the `Rounds` or `Share` there, in kernels.
_view_rounds, _view_share = Rounds.at, Share.of(real=np.float32).at


@inline_source
def _nanoseconds(rounds):
    """Return what the clock shows."""
    time = rounds.time  # gets seconds and nanoseconds
    call_at(rounds.clock, (np.int32(rounds.clock_number), address(time)))
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
def _learn(update, share, gate, results):
    """Call the learner's update, with helpers if there are any; count what it did.

    Returns how many of its losses were not finite.
    """
    space, counters = share.frame.space, share.frame.settings.counters
    _clear(space)
    is_shared = share.workers > 1 and results[NUM_IMPATIENT] == 0
    if is_shared:
        open_gate(gate)
    call_at(update, (share,))
    if is_shared:
        close_gate(gate)
        results[NUM_IMPATIENT] += space.done[IMPATIENT]
        if results[NUM_IMPATIENT] > 0:
            dismiss(gate)
    num_sums, faults = space.sums.shape[1], 0  # the report's other columns are behind its sums
    counters[MINIBATCHES] += np.int64(space.report[0, num_sums + STEPS])
    counters[EPOCHS] += 1
    for number in range(space.report.shape[0]):
        faults += space.report[number, num_sums + FAULT] != 0.0
    return faults


# ---------------------------------------------------------------- rounds


@inline_source
def _has_many_ones(rounds):
    """Tell whether a column has so many ones that networks take all of its numbers."""
    has_many = False
    for k in range(rounds.num_starts):
        has_many |= array_at(rounds.starts[k], (1,), np.int64(0))[0] > rounds.most_ones
    return has_many


@inline_source
def _make_round(number, update, share, gate, rounds):
    """Make one round: collect, store, then draw, learn and give priorities for each call.

    Returns `WHOLE`, or why the round is not. `number` is that of the round in this call of the
    kernel, from 0 on; see the module for the others.
    """
    start = _nanoseconds(rounds)
    for k in range(rounds.num_params):
        rounds.params[k] = rounds.round_params[number, k]
    for k in range(rounds.num_rates):
        share.frame.settings.learning_rates[k] = rounds.round_rates[number, k]
    run_stages(rounds.collect)
    if rounds.broken[0] > 0:
        return BAD_ROLLOUT
    run_stages(rounds.store)
    now = _nanoseconds(rounds)
    rounds.times[COLLECTING] += now - start
    for call in range(rounds.calls):
        rounds.results[NUM_CALLS] = call
        run_stages(rounds.draw)
        if _has_many_ones(rounds):
            return HAS_MANY_ONES
        if _learn(update, share, gate, rounds.results) > 0:
            return BAD_LOSS
        run_stages(rounds.judge)
        if rounds.fault[0] != 0:
            return BAD_PRIORITY
    run_stages(rounds.observe)
    rounds.times[UPDATING] += _nanoseconds(rounds) - now
    return WHOLE


@kernel(fastmath=EXACT)
def run_rounds(rounds_at, update, share_at):
    """Make rounds until `LONGEST` is over, and write their results; or help the one who does.

    `rounds_at` is the address of a `Rounds`, `share_at` that of a `Share`. Worker 0 leads; see the
    module.
    """
    rounds, share = _view_rounds(rounds_at), _view_share(share_at)
    gate, times = Gate(rounds.gate_calls, rounds.gate_inside), rounds.times
    if share.worker > 0:
        _help_leader(update, share, gate)
        return
    number, reason = 0, WHOLE
    while (
        number < rounds.max_rounds
        and reason == WHOLE
        and times[COLLECTING] + times[UPDATING] < LONGEST
    ):
        reason = _make_round(number, update, share, gate, rounds)
        number += reason == WHOLE
    rounds.results[NUM_WHOLE], rounds.results[REASON] = number, reason
    dismiss(gate)
