"""Stages are compiled functions with their arguments, for Python and for kernels."""

from __future__ import annotations

import copy
import gc
from typing import Any

import numpy as np

from rlcpu.kernels.compiler.compile import kernel
from rlcpu.kernels.machine.stages import LastMade, Stage, run_stages, words_of
from rlcpu.kernels.machine.structs import Array, Real, Struct, Whole


class Scaled(Struct):
    size = Whole()
    factor = Real()
    numbers = Array(np.float64, "size")


def scale(scaled):
    for k in range(scaled.size):
        scaled.numbers[k] *= scaled.factor


def add_one(scaled):
    for k in range(scaled.size):
        scaled.numbers[k] += 1.0


@kernel
def run(words, times):
    for _ in range(times):
        run_stages(words)


def make_stage(body: Any, numbers: Any, factor: float = 1.0) -> Stage:
    return Stage(body, Scaled(size=numbers.size, factor=factor, numbers=numbers))


def test_python_and_kernels_call_the_same() -> None:
    first, second = np.arange(3.0), np.arange(4.0)
    stages = [
        make_stage(scale, first, 2.0),
        make_stage(add_one, first),
        make_stage(add_one, second),
    ]
    run(words_of(stages), 2)
    assert first.tolist() == [3.0, 7.0, 11.0]
    assert second.tolist() == [2.0, 3.0, 4.0, 5.0]
    stages[0]()
    assert first.tolist() == [6.0, 14.0, 22.0]
    assert stages[1].words[0] == stages[2].words[0] != stages[0].words[0]


def test_a_stage_keeps_its_memory_alive() -> None:
    stage: Any = make_stage(add_one, np.full(1000, 2.0))
    gc.collect()
    np.empty(1000).fill(-1.0)
    stage()
    assert stage.argument.numbers.tolist() == [3.0] * 1000


def test_what_was_made_last_serves_again() -> None:
    last, made = LastMade(), []

    def make(number: int) -> int:
        made.append(number)
        return number

    assert [last.of("a", key, make, key) for key in (1, 1, 2, 1)] == [1, 1, 2, 1]
    assert last.of("b", 1, make, 5) == 5
    assert made == [1, 2, 1, 5]
    assert (last.get("a"), last.get("b"), last.get("c")) == (1, 5, None)
    assert copy.deepcopy(last).get("a") is None
    last.clear()
    assert last.get("a") is None


def test_no_stages_do_nothing() -> None:
    assert words_of([]).tolist() == [0]
    run(words_of([]), 3)
