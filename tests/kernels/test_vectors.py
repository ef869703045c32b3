"""Vectors against NumPy: operators, functions, reductions and search."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.kernels.compiler.compile import EXACT, kernel
from rlcpu.kernels.machine import memory, vectors
from rlcpu.kernels.machine.memory import ONE_LINE
from rlcpu.kernels.machine.vectors import VECTOR_BYTES

DTYPES = [np.float32, np.float64]
REGISTERS = 2
SPECIAL = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-30, 3e30, 1e-40]


def lanes(dtype: Any) -> int:
    return VECTOR_BYTES // np.dtype(dtype).itemsize


@kernel(fastmath=EXACT)
def compute(x, y, out):
    a, b, target = memory.address(x), memory.address(y), memory.address(out)
    n = vectors.width(a, REGISTERS)
    p, q = memory.load(a, 0, REGISTERS), memory.load(b, 0, REGISTERS)
    memory.store(p + q, target, 0)
    memory.store(p - q, target, n)
    memory.store(p * 2 - q / p, target, 2 * n)
    memory.store(-abs(p), target, 3 * n)
    memory.store(vectors.maximum(p, q), target, 4 * n)
    memory.store(vectors.where(p > q, p, 7.0), target, 5 * n)
    memory.store(vectors.where(p == q, 1.0, q), target, 6 * n)
    memory.store(vectors.where(p <= 0.5, vectors.fma(p, q, 1.0), p), target, 7 * n)
    memory.store(vectors.inverse_power(abs(p)), target, 8 * n)
    memory.store(vectors.fill(x[0], REGISTERS), target, 9 * n)
    memory.store(vectors.smallest_normal(p), target, 10 * n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_and_functions(dtype: Any) -> None:
    n = REGISTERS * lanes(dtype)
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        for _ in range(20):
            x = np.where(rng.random(n) < 0.5, rng.choice(SPECIAL, n), rng.normal(size=n))
            x = x.astype(dtype)
            y = np.where(rng.random(n) < 0.3, x, rng.choice(SPECIAL, n)).astype(dtype)
            out = np.zeros((11, n), dtype)
            compute(x, y, out.ravel())
            two, half = dtype(2), dtype(0.5)
            expected = [
                *(x + y, x - y, x * two - y / x, -abs(x), np.where(x > y, x, y)),
                *(np.where(x > y, x, dtype(7)), np.where(x == y, dtype(1), y)),
            ]
            np.testing.assert_array_equal(out[:7], expected)
            exact = x.astype(np.longdouble) * y + 1
            where = np.where(x <= half, exact.astype(dtype), x)
            np.testing.assert_allclose(out[7], where, rtol=2 * np.finfo(dtype).eps)
            powers = [vectors.inverse_power(dtype(v)) for v in abs(x)]
            np.testing.assert_array_equal(out[8], powers)
            np.testing.assert_array_equal(out[9], np.full(n, x[0]))
            np.testing.assert_array_equal(out[10], [vectors.smallest_normal(v) for v in x])


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_functions_say_the_same(dtype: Any) -> None:
    """Powers of two that bring numbers into [2, 4), from the smallest to the largest."""
    info = np.finfo(dtype)
    for x in (info.tiny, info.max, dtype(1), dtype(1.5), dtype(2), info.max / 3):
        power = vectors.inverse_power(dtype(x))
        assert 2 <= dtype(x) * dtype(power) < 4
        assert np.frexp(power)[0] == 0.5
    assert vectors.inverse_power(dtype(np.inf)) == vectors.inverse_power(dtype(np.nan)) == 0
    assert vectors.where(True, 1, 2) == 1
    assert vectors.maximum(1.0, 2.0) == vectors.maximum(float("nan"), 2.0) == 2.0
    assert vectors.fma(2.0, 3.0, 4.0) == 10.0


# ---------------------------------------------------------------- between the numbers of a vector

eight = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=8, max_size=8).map(np.array)


@functools.cache
def reduction(name: str) -> Any:
    reduce = getattr(vectors, name)

    @kernel(fastmath=EXACT)
    def run(array):
        return reduce(memory.load(array, 0, ONE_LINE))

    return run


@pytest.mark.parametrize(("name", "oracle"), [("lowest", np.min), ("highest", np.max)])
@given(values=eight)
def test_extremes(name: str, oracle: Any, values: np.ndarray) -> None:
    assert reduction(name)(values) == oracle(values)


@given(values=eight)
def test_the_sum_is_that_of_halves(values: np.ndarray) -> None:
    expected = values
    while expected.size > 1:
        expected = expected[: expected.size // 2] + expected[expected.size // 2 :]
    assert reduction("total")(values) == expected[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_lane_numbers(dtype: Any) -> None:
    @kernel(fastmath=EXACT)
    def number(out):
        memory.store(vectors.lane_numbers(memory.load(out, 0, REGISTERS)), out, 0)

    out = np.zeros(REGISTERS * lanes(dtype), dtype)
    number(out)
    np.testing.assert_array_equal(out, np.arange(out.size))


@kernel(fastmath=EXACT)
def run_search(array, x):
    return vectors.search(memory.load(array, 0, ONE_LINE), x)


@given(
    weights=st.lists(st.integers(0, 5), min_size=8, max_size=8).map(np.array),
    x=st.integers(0, 50),
)
def test_search_finds_the_share_of_a_number(weights: np.ndarray, x: int) -> None:
    lane, rest = run_search(weights.astype(float), float(x))
    sums = np.cumsum(weights)
    if x < sums[-1]:
        assert lane == np.flatnonzero(sums > x)[0]
        assert rest == x - (sums[lane] - weights[lane])
    else:
        assert lane == 7
