"""Functions called by address with a NamedTuple, against plain Python on the tuple."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core.errors import TypingError

from rlcpu.kernels.compiler.compile import kernel, tuple_of
from rlcpu.kernels.machine.calls import (
    function_of,
    kind_of,
    make_call,
    make_view,
    place_of_view,
    view,
)
from tests.kernels.processes import ROOT


class Inner(NamedTuple):
    values: Any
    flags: Any
    pair: Any


class Outer(NamedTuple):
    inner: Inner
    factor: Any
    count: int
    is_on: bool


def body(work: Any) -> None:
    """Change what the flags mark."""
    values, flags = work.inner.values, work.inner.flags
    for i in range(work.count):
        for k in range(values.shape[1]):
            if flags[i] and work.is_on:
                values[i, k] = values[i, k] * work.factor + work.inner.pair[0]


def make_work(dtype: Any, is_on: bool = True, count: int = 3) -> Outer:
    values = np.arange(12, dtype=dtype).reshape(4, 3)
    return Outer(
        Inner(values, np.array([True, False, True, True]), (2, 0.5)), dtype(3), count, is_on
    )


@functools.cache
def make_run(dtype: Any) -> Any:
    call = make_call(kind_of(make_work(dtype)))

    @kernel
    def run(where, work, times):
        for _ in range(times):
            call(where, work)

    return run


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_on", [False, True])
def test_a_function_sees_every_field(dtype: Any, is_on: bool) -> None:
    work, expected = make_work(dtype, is_on), make_work(dtype, is_on)
    make_run(dtype)(function_of(body, kind_of(work)), work, 2)
    body(expected)
    body(expected)
    np.testing.assert_array_equal(work.inner.values, expected.inner.values)


def test_arrays_are_as_they_were_after_calls() -> None:
    work = make_work(np.float64)
    before = [sys.getrefcount(each) for each in (work.inner.values, work.inner.flags)]
    make_run(np.float64)(function_of(body, kind_of(work)), work, 1000)
    assert [sys.getrefcount(each) for each in (work.inner.values, work.inner.flags)] == before


def test_what_a_function_was_not_compiled_for_is_refused() -> None:
    work = make_work(np.float64)
    with pytest.raises(TypingError, match="a function is called with"):
        make_run(np.float32)(function_of(body, kind_of(work)), work, 1)


AGAIN = """
import logging
logging.basicConfig(level="INFO", format="%(message)s")
import numpy as np
from rlcpu.kernels.machine.calls import function_of, kind_of
from tests.kernels.test_calls import body, make_run, make_work
unused = [np.zeros(100_000) for _ in range({numbers})]
work = make_work(np.float32)
make_run(np.float32)(function_of(body, kind_of(work)), work, 1)
print(work.inner.values.sum())
"""


def test_kept_code_holds_no_address() -> None:
    """The second process loads both kernels, and finds functions and arrays in other places."""
    results = []
    for numbers in (0, 50):
        program = [sys.executable, "-c", AGAIN.format(numbers=numbers)]
        results.append(
            subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
        )
    assert results[0].stdout == results[1].stdout != ""
    assert "compiling" not in results[1].stderr


class Weights(NamedTuple):
    clip: float
    bonus: float


def test_a_tuple_of_numbers() -> None:
    for kind, count in ((tuple, 0), (tuple, 2), (Weights, 2)):
        read = tuple_of(kind, count)

        @kernel
        def run(numbers, read=read):
            return read(numbers)

        numbers = np.arange(1.0, 3.0)
        found = run(numbers)
        assert found == tuple(numbers[:count])
        assert type(found) is kind


def test_a_view_is_found_again_by_its_address():
    work = make_work(np.float64)
    view_at = make_view(kind_of(work))

    @kernel
    def run(work):
        return view_at(place_of_view(view(work))).inner.values[3, 2] * work.factor

    assert run(work) == 33.0
