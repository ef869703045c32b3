"""Workers share phases: each item runs once, whoever comes, and nobody waits for ever."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from rlcpu.kernels.compile import kernel
from rlcpu.nn.workers import LINE, WorkersMemory, claim, finish, stop, wait

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
    return np.zeros(ITEMS * LINE, np.int64), np.zeros(LINE, np.int64)


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
