"""Workers share phases: each item runs once, whoever comes, and nobody waits for ever."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from rlcpu.kernels.compiler.compile import kernel
from rlcpu.nn.learning.workers import (
    LINE_WORDS,
    Gate,
    WorkersMemory,
    claim,
    close_gate,
    dismiss,
    finish,
    join_call,
    leave_call,
    next_call,
    open_gate,
    stop,
    wait,
)

ITEMS = 5


@kernel
def work(worker, phases, claims, done, runs, stop_in):
    """Counts in `runs` (phases, items) who ran what; returns the phases that this worker saw."""
    board = WorkersMemory(claims, done)
    for phase in range(1, phases + 1):
        for shift in range(ITEMS):
            item = (worker + shift) % ITEMS
            if claim(board, item, phase):
                runs[phase - 1, item] += 1
                if phase == stop_in and item == 0:
                    stop(board)
                finish(board)
        if not wait(board, phase * ITEMS, 1 << 30):
            return phase
    return phases


@kernel
def wait_for_nobody(claims, done, patience):
    return wait(WorkersMemory(claims, done), 1, patience)


def make_board() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(ITEMS * LINE_WORDS, np.int64), np.zeros(LINE_WORDS, np.int64)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_every_item_runs_once(workers: int) -> None:
    phases = 500
    runs = np.zeros((phases, ITEMS), np.int64)
    work(0, 0, *make_board(), runs, 0)
    claims, done = make_board()
    args = phases, claims, done, runs, 0
    threads = [threading.Thread(target=work, args=(w, *args)) for w in range(1, workers)]
    for thread in threads:
        thread.start()
    work(0, *args)
    for thread in threads:
        thread.join()
    assert (runs == 1).all()
    assert done[0] == phases * ITEMS


def test_stop_ends_the_phase_for_all() -> None:
    runs = np.zeros((9, ITEMS), np.int64)
    claims, done = make_board()
    assert work(0, 9, claims, done, runs, 4) == 4
    assert work(1, 9, claims, done, runs, 4) <= 4, "one who comes late begins nothing new"
    assert (runs.sum(axis=1) == [ITEMS] * 4 + [0] * 5).all()


def test_patience_ends() -> None:
    claims, done = make_board()
    assert not wait_for_nobody(claims, done, 1000)
    assert done[2] == 1


@kernel
def dawdle(inside, looks):
    """Waits for more helpers than there are."""
    wait(WorkersMemory(inside, inside), 1 << 62, looks)


@kernel
def attend(worker, helpers, num_calls, patience, claims, done, calls, inside, runs):
    """Leads, or helps with, calls of one phase; `runs` (calls, items) counts who ran what.

    The leader begins when a helper has come, which dawdles, and would find the memory of the next
    call if nobody waited for it.
    """
    board, gate, number = WorkersMemory(claims, done), Gate(calls, inside), 0
    while True:
        if worker == 0:
            number += 1 if number == 0 else 2  # odd while the gate is open
            if number > 2 * num_calls:
                break
            done[0] = 0
            for k in range(claims.size):
                claims[k] = 0
            open_gate(gate)
            while helpers and not (wait(WorkersMemory(claims, inside), 1, 9) or wait(board, 1, 9)):
                pass
        else:
            number = next_call(gate, number, patience)
            if number < 0:
                return
            if worker > 1:
                dawdle(inside, number * 37 % 9000)
        if worker == 0 or join_call(gate, number):
            if worker > 0:
                dawdle(inside, number * 71 % 3000)
            for shift in range(ITEMS):
                item = (worker + shift) % ITEMS
                if claim(board, item, 1):
                    runs[number // 2, item] += 1
                    finish(board)
            wait(board, ITEMS, 1 << 30)
        if worker == 0:
            close_gate(gate)
        else:
            leave_call(gate)
    dismiss(gate)


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_helpers_come_to_calls_and_are_gone_when_the_memory_is_reset(helpers: int) -> None:
    num_calls = 100
    runs = np.zeros((num_calls, ITEMS), np.int64)
    gate = [np.zeros(LINE_WORDS, np.int64) for _ in range(2)]
    attend(1, 0, num_calls, 1000, *make_board(), *gate, runs)  # nobody leads: it does not wait
    assert (runs == 0).all()
    args = helpers, num_calls, 1 << 30, *make_board(), *gate, runs
    threads = [threading.Thread(target=attend, args=(w, *args)) for w in range(1, helpers + 1)]
    for thread in threads:
        thread.start()
    attend(0, *args)
    for thread in threads:
        thread.join()
    assert (runs == 1).all()
    assert gate[1][0] == 0
    assert gate[0][0] < 0
