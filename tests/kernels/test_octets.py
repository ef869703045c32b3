"""Vectors of eight float64 against NumPy."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.kernels import octets
from rlcpu.kernels.compile import EXACT, kernel

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
eight = st.lists(numbers, min_size=8, max_size=8).map(np.array)


def placed(values):
    array = octets.aligned(24)
    array[8:16] = values
    return array


@functools.cache
def reduction(name):
    reduce = getattr(octets, name)

    @kernel(fastmath=EXACT)
    def run(array):
        return reduce(octets.load(array, 8))

    return run


@functools.cache
def mapping(name):
    change = getattr(octets, name)

    @kernel(fastmath=EXACT)
    def run(array, arguments):
        octets.store(change(octets.load(array, 8), *arguments), array, 16)

    return run


@pytest.mark.parametrize(("name", "oracle"), [("lowest", np.min), ("highest", np.max)])
@given(values=eight)
def test_extremes(name, oracle, values):
    assert reduction(name)(placed(values)) == oracle(values)


@given(values=eight)
def test_the_sum_is_that_of_halves(values):
    expected = values
    while expected.size > 1:
        expected = expected[: expected.size // 2] + expected[expected.size // 2 :]
    assert reduction("total")(placed(values)) == expected[0]


@given(values=eight, other=numbers)
def test_positive_or(values, other):
    array = placed(values)
    mapping("positive_or")(array, (other,))
    np.testing.assert_array_equal(array[16:], np.where(values > 0, values, other))


@given(values=eight, count=st.integers(0, 9), other=numbers)
def test_first_or(values, count, other):
    array = placed(values)
    mapping("first_or")(array, (float(count), other))
    np.testing.assert_array_equal(array[16:], np.where(np.arange(8) < count, values, other))


@given(values=eight, shift=numbers, filled=st.integers(0, 600), span=st.sampled_from([1, 8, 64]))
def test_raised(values, shift, filled, span):
    array = placed(values)
    mapping("raised")(array, (shift, float(filled), float(span)))
    counts = np.clip(filled - np.arange(8) * span, 0, span)
    np.testing.assert_array_equal(array[16:], np.maximum(values + counts * shift, 0.0))


@kernel(fastmath=EXACT)
def run_search(array, x):
    return octets.search(octets.load(array, 8), x)


@given(
    weights=st.lists(st.integers(0, 5), min_size=8, max_size=8).map(np.array),
    x=st.integers(0, 50),
)
def test_search_finds_the_share_of_a_number(weights, x):
    child, rest = run_search(placed(weights), float(x))
    sums = np.cumsum(weights)
    if x < sums[-1]:
        assert child == np.flatnonzero(sums > x)[0]
        assert rest == x - (sums[child] - weights[child])
    else:
        assert child == 7


@pytest.mark.parametrize("index", [-(2**40), 0, 2**40])
def test_any_address_can_be_asked_for(index):
    @kernel(fastmath=EXACT)
    def run(array, index):
        octets.prefetch(array, index)

    run(placed(np.zeros(8)), index)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_aligned(dtype):
    array = octets.aligned(33, dtype)
    assert array.dtype == dtype
    assert array.shape == (33,)
    assert not array.any()
    assert array.ctypes.data % octets.LINE == 0
