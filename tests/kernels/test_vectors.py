"""Vectors against NumPy: operators, functions, loads and stores, transposed tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.kernels import memory, tiles, vectors
from rlcpu.kernels.bytes import fence
from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.simd import VECTOR_BYTES

DTYPES = [np.float32, np.float64]
REGISTERS = 2
SPECIAL = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-30, 3e30, 1e-40]


def lanes(dtype: Any) -> int:
    return VECTOR_BYTES // np.dtype(dtype).itemsize


def aligned(count: int, dtype: Any) -> np.ndarray:
    memory = np.zeros(count + 64, dtype)
    first = -memory.ctypes.data % 64 // memory.itemsize
    return memory[first : first + count]


@kernel(fastmath=EXACT)
def compute(x, y, out):  # type: ignore[no-untyped-def]
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


@kernel(fastmath=EXACT)
def move(source, count, out):  # type: ignore[no-untyped-def]
    p, q = memory.address(source), memory.address(out)
    n = vectors.width(p, REGISTERS)
    start = memory.shifted(p, 3)
    memory.store(memory.load(start, 1, REGISTERS), q, 0)
    memory.store(memory.load_first(p, 5, count, source[0], REGISTERS), q, n)
    memory.store_first(memory.load(p, 0, REGISTERS), q, 2 * n, count)
    memory.prefetch(p, 10**9)
    memory.stream(memory.load(p, 2, 1), q, 3 * n)
    fence()
    return memory.to_line(q, 0) + 1000 * memory.to_line(q, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_loads_and_stores(dtype: Any, count: int) -> None:
    n, one = REGISTERS * lanes(dtype), lanes(dtype)
    source = np.random.default_rng(1).normal(size=n + 10).astype(dtype)
    out = aligned(4 * n, dtype)
    out[:] = 5
    line = lanes(dtype)
    assert move(source, count, out) == 1000 * (line - 1)
    np.testing.assert_array_equal(out[:n], source[4 : 4 + n])
    part = np.where(np.arange(n) < count, source[5 : 5 + n], source[0])
    np.testing.assert_array_equal(out[n : 2 * n], part)
    np.testing.assert_array_equal(out[2 * n : 2 * n + count], source[:count])
    assert (out[2 * n + count : 3 * n] == 5).all()
    np.testing.assert_array_equal(out[3 * n : 3 * n + one], source[2 : 2 + one])
    assert (out[3 * n + one :] == 5).all()


@kernel(fastmath=EXACT)
def tile_whole(source, starts, tile, out):  # type: ignore[no-untyped-def]
    p, s = memory.address(source), memory.address(starts)
    t, q = memory.address(tile), memory.address(out)
    tiles.load_tile(p, s, 3, t, REGISTERS)
    tiles.store_tile(t, q, s, 2, REGISTERS)


@kernel(fastmath=EXACT)
def tile_part(source, starts, stops, tile, out, count):  # type: ignore[no-untyped-def]
    p, s, e = memory.address(source), memory.address(starts), memory.address(stops)
    t, q = memory.address(tile), memory.address(out)
    tiles.load_tile_part(p, s, (-1, 1, e), source[0], t, REGISTERS)
    tiles.store_tile_first(t, q, s, 2, count, REGISTERS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles(dtype: Any) -> None:
    one = lanes(dtype)
    rows = REGISTERS * one
    rng = np.random.default_rng(2)
    source = rng.normal(size=(rows, one + 7)).astype(dtype)
    starts = np.arange(rows) * (one + 7)
    tile, out = aligned(rows * one, dtype), np.full_like(source, 9)
    tile_whole(source.ravel(), starts, tile, out.ravel())
    np.testing.assert_array_equal(tile.reshape(one, rows).T, source[:, 3 : 3 + one])
    np.testing.assert_array_equal(out[:, 2 : 2 + one], source[:, 3 : 3 + one])
    assert (out[:, :2] == 9).all()
    assert (out[:, 2 + one :] == 9).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_tiles(dtype: Any) -> None:
    one = lanes(dtype)
    rows = REGISTERS * one
    rng = np.random.default_rng(3)
    source = rng.normal(size=(rows, one + 7)).astype(dtype)
    starts, stops = np.arange(rows) * (one + 7), rng.integers(0, one + 2, rows)
    tile, out = aligned(rows * one, dtype), np.full_like(source, 9)
    tile_part(source.ravel(), starts, stops, tile, out.ravel(), one - 1)
    k = np.arange(-1, one - 1)
    inside = (k >= 1) & (k < stops[:, None])
    expected = np.where(inside, source[:, k], source[0, 0])
    np.testing.assert_array_equal(tile.reshape(one, rows).T, expected)
    np.testing.assert_array_equal(out[:, 2 : 1 + one], expected[:, :-1])
    assert (out[:, 1 + one :] == 9).all()
