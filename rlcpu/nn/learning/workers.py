"""The workers of an update: phases that they share, and the threads that they run on.

A gradient step of a small network takes 50 us; a parallel loop costs 5-10 us to start and to join,
and a step needs two. So the workers stay in one region: in each phase they claim the items, run
them, and wait for each other. Items are claimed, not assigned, so that one worker alone finishes
everything: no worker ever waits for one that has not come. What an item computes must not depend on
who runs it; then the results do not depend on the number of workers.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from numba.core import types
from numba.extending import intrinsic

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.memory import pointer_at

#: int64 numbers of a cache line: each claim has a line of its own.
LINE_WORDS = 8
#: Counters in `WorkersMemory.done`: of items that were finished since the region started, of items
#: that told all workers to stop, and of workers that lost patience.
FINISHED, STOPPED, IMPATIENT = range(3)
#: Added to the number of a gate's calls after the last one.
ENDED = -(2**60)


class WorkersMemory(NamedTuple):
    """Shared memory of the workers; all zero when the region starts."""

    #: (LINE_WORDS * most items of a phase,) int64, the last phase in which each was claimed.
    claims: Any
    done: Any  #: (LINE_WORDS,) int64, the counters above


def _make_exchange(operation: str) -> Any:
    """Make `exchange(array, index, value)`, which changes `array[index]` atomically, for kernels.

    Args:
        operation: "add" to add the value, "max" to set the larger of both. It returns the old
            number.
    """

    @intrinsic
    def exchange(typing, array, index, value):
        def generate(context, builder, signature, args):
            place = pointer_at(context, builder, array, args[0], args[1])
            return builder.atomic_rmw(operation, place, args[2], "seq_cst")

        return types.int64(array, types.intp, types.int64), generate

    return exchange


_exchange_add, _exchange_max = _make_exchange("add"), _make_exchange("max")


@intrinsic
def _load(typing, array, index):
    """Load `array[index]` atomically: what was written before it was set is visible after."""

    def generate(context, builder, signature, args):
        place = pointer_at(context, builder, array, *args)
        return builder.load_atomic(place, ordering="acquire", align=8)

    return types.int64(array, types.intp), generate


@inline
def item_of(share, items, shift):
    """Return the item that a worker tries to claim after `shift` others.

    Workers begin at different items. `share` has `worker` and `workers`, see
    `rlcpu.nn.learning.frame.Share`.
    """
    return (share.worker * items // share.workers + shift) % items


@inline
def claim(board: WorkersMemory, item: int, phase: int) -> bool:
    """Claim an item of a phase, which count from 1; return False if another worker has it."""
    return _exchange_max(board.claims, item * LINE_WORDS, phase) < phase


@inline
def finish(board: WorkersMemory) -> None:
    """Count an item as done."""
    _exchange_add(board.done, FINISHED, 1)


@inline
def stop(board: WorkersMemory) -> None:
    """Let all workers leave after this phase."""
    _exchange_add(board.done, STOPPED, 1)


@inline
def wait(board: WorkersMemory, items: int, patience: int) -> bool:
    """Wait until `items` are done since the start; return False if the caller is to leave.

    A worker leaves after `stop`, and when it has checked `patience` times: then the worker that it
    waits for has lost its core to another process, and will do the rest alone.
    """
    checks = 0
    while _load(board.done, FINISHED) < items:
        checks += 1
        if checks > patience:
            _exchange_add(board.done, IMPATIENT, 1)
            return False
    return _load(board.done, STOPPED) == 0


# ---------------------------------------------------------------- calls with other work between
#
# One worker, the leader, calls the region again and again, and resets its memory in front of each
# call. Helpers pass a gate: who comes while it is open counts among those inside, and the leader
# waits for these, and no others, before it goes on.


class Gate(NamedTuple):
    """Gate of a region that a leader calls again and again; all zero when it starts.

    Both counters are item 0 of an array of one cache line.
    """

    #: (LINE_WORDS,) int64, how often the gate was opened or closed: odd while it is open, negative
    #: after the last call.
    calls: Any
    inside: Any  #: (LINE_WORDS,) int64, helpers between the gate's two sides


@inline
def open_gate(gate):
    """Let helpers into a call."""
    _exchange_add(gate.calls, 0, 1)


@inline
def close_gate(gate):
    """Let no more helpers in, and wait until all have left: the region's memory may be reset."""
    _exchange_add(gate.calls, 0, 1)
    while _exchange_add(gate.inside, 0, 0) > 0:
        pass


@inline
def dismiss(gate):
    """Send all helpers away: no more calls are shared."""
    _exchange_add(gate.calls, 0, ENDED)


@inline
def next_call(gate, last, patience):
    """Wait for a call after number `last`, and return its number.

    It is negative after the last one, and after `patience` checks: the leader has lost its core.
    """
    number = last
    for _ in range(patience):
        number = _load(gate.calls, 0)
        if number < 0 or (number != last and number % 2 == 1):
            return number
    return ENDED


@inline
def join_call(gate, number):
    """Count a helper as inside; return whether the gate of call `number` is still open.

    The helper counts as inside before it checks the gate, and the leader checks who is inside after
    it has closed the gate: one of them sees the other.
    """
    _exchange_add(gate.inside, 0, 1)
    return _exchange_add(gate.calls, 0, 0) == number


@inline
def leave_call(gate):
    """Count a helper as inside no longer, also where `join_call` found the gate closed."""
    _exchange_add(gate.inside, 0, -1)


# ---------------------------------------------------------------- threads


class Helpers:
    """Threads that help the calling one.

    A signal's exception may come at any instruction of Python code. Queues and threads of this
    kind have none: those of `concurrent.futures` were left locked by an interrupt.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Any] | None = None
        self._process = 0

    def __reduce__(self) -> tuple[type[Helpers], tuple[()]]:
        return Helpers, ()  # threads stay with their process

    def run(self, workers: int, call: Callable[[int], None]) -> None:
        """Run `call(number)` for numbers below `workers`; 0 on this thread.

        Any of them has to be able to do all the work: a number that no thread has taken when this
        one has finished is dropped.
        """
        if workers == 1:
            call(0)
            return
        numbers: SimpleQueue[int] = SimpleQueue()
        ended: SimpleQueue[None] = SimpleQueue()

        def work() -> None:
            with contextlib.suppress(Empty):  # the calling thread has finished without this one
                number = numbers.get_nowait()
                try:
                    call(number)
                finally:
                    ended.put(None)

        for number in range(1, workers):
            numbers.put(number)
            self._queue(workers - 1).put(work)
        call(0)
        num_taken = workers - 1
        with contextlib.suppress(Empty):
            while True:
                numbers.get_nowait()
                num_taken -= 1
        for _ in range(num_taken):
            ended.get()

    def _queue(self, count: int) -> SimpleQueue[Any]:
        """Return the queue of this process's threads; the first call starts `count` of them.

        A parent's threads do not survive a fork.
        """
        if self._jobs is None or self._process != os.getpid():
            jobs: SimpleQueue[Any] = SimpleQueue()
            for _ in range(count):
                _thread.start_new_thread(_serve, (jobs,))
            weakref.finalize(self, _dismiss, jobs, count)
            self._jobs, self._process = jobs, os.getpid()
        return self._jobs


def _serve(jobs: SimpleQueue[Any]) -> None:
    """Run the jobs of a queue until one is None."""
    while job := jobs.get():
        job()


def _dismiss(jobs: SimpleQueue[Any], count: int) -> None:
    """Let `count` threads end."""
    for _ in range(count):
        jobs.put(None)
