"""Tuples with other items: plain Python and kernels make the same of them."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import TypingError

from rlcpu.envs import replace
from rlcpu.kernels.compiler.compile import kernel, specialise


@kernel
def put(numbers, i, value, results):
    items = (numbers[0], numbers[1], numbers[2], numbers[3])
    found = replace(items, i, value)
    for k in range(4):
        results[k] = found[k]


@given(st.lists(st.integers(-9, 9), min_size=4, max_size=4), st.integers(-4, 3))
def test_kernels_and_python_put_the_same(items: list[int], i: int) -> None:
    results = np.zeros(4, np.int64)
    put(np.array(items), i, 77, results)
    expected = list(items)
    expected[i] = 77
    assert results.tolist() == expected == list(replace(tuple(items), i, 77))


@pytest.mark.parametrize(("i", "place"), [(4, 3), (100, 3), (-5, 0)])
def test_a_place_outside_is_refused_in_python_and_is_an_end_in_kernels(i: int, place: int) -> None:
    results = np.zeros(4, np.int64)
    put(np.arange(4), i, 77, results)
    assert results.tolist() == [77 if k == place else k for k in range(4)]
    with pytest.raises(IndexError, match=f"i={i} is outside of a tuple of 4 items"):
        replace((0, 1, 2, 3), i, 77)


def test_lists_are_refused() -> None:
    with pytest.raises(TypeError, match="expected a tuple, got list"):
        replace([1, 2], 0, 3)  # type: ignore[arg-type]


class Pair(NamedTuple):
    x: float
    n: int


class Point(NamedTuple):
    x: float
    y: float


def renewed(pair: Any, point: Any, i: int) -> Any:
    point = replace(point, i, 7.0)
    return pair._replace(x=pair.x + 1.0), pair._replace(n=4, x=point.y), point


def counted(x: float, flags: tuple[bool, ...]) -> Any:
    four = (x, 1.0) * 2
    return four, any(flags), all(flags), any((x, 0)), all((x, 1)), len((0,) * 3)


@pytest.mark.parametrize("i", [0, 1])
def test_fields_of_named_tuples_are_replaced(i: int) -> None:
    given_ = Pair(0.5, 3), Point(1.0, 2.0), i
    assert kernel(renewed)(*given_) == renewed(*given_)


@pytest.mark.parametrize("x", [0.0, 2.0])
@pytest.mark.parametrize("flags", [(True, False), (True, True), (False, False)])
def test_tuples_are_counted_and_repeated(x: float, flags: tuple[bool, ...]) -> None:
    assert kernel(counted)(x, flags) == counted(x, flags)


def test_fields_that_are_not_there_are_named() -> None:
    with pytest.raises(TypingError, match="it replaces z, which Pair has not"):
        kernel(lambda pair: pair._replace(z=1.0))(Pair(0.5, 3))
    with pytest.raises(TypingError, match="a value without the name of its field"):
        kernel(lambda pair: pair._replace(1.0))(Pair(0.5, 3))


def unnamed(point: Any, turns: int) -> Any:
    """Items that change places: as a `Point` their loop would not compile, nor the sum."""
    items = tuple(point)
    for _ in range(turns):
        items = (items[1], items[0])
    return (*items, 1.0, 2.0), tuple(point) + items


@kernel
def unname(numbers, turns, results):
    turned, joined = unnamed_twin(Point(numbers[0], numbers[1]), turns)
    for k in range(4):
        results[0, k], results[1, k] = turned[k], joined[k]


unnamed_twin = specialise(unnamed, np.float32)


@pytest.mark.parametrize("turns", [0, 1])
def test_a_tuple_of_a_named_one_has_no_names(turns: int) -> None:
    results = np.zeros((2, 4), np.float32)
    unname(np.array([3.0, 4.0], np.float32), turns, results)
    assert results.tolist() == [list(items) for items in unnamed(Point(3.0, 4.0), turns)]
