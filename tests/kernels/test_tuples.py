"""`replace`: plain Python and kernels put one item, at a place known at run time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.envs import replace
from rlcpu.kernels.compile import kernel


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
