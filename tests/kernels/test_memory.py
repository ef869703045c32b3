"""Loads and stores of vectors, copies of bytes and transposed tiles, against NumPy."""

from __future__ import annotations

import functools
import platform
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.kernels.compiler.compile import EXACT, kernel
from rlcpu.kernels.machine import memory, vectors
from rlcpu.kernels.machine.vectors import VECTOR_BYTES
from rlcpu.replay.storage import allocate
from tests.machine_code import assembly

DTYPES = [np.float32, np.float64]
REGISTERS = 2


def lanes(dtype: Any) -> int:
    return VECTOR_BYTES // np.dtype(dtype).itemsize


def aligned(count: int, dtype: Any) -> np.ndarray:
    """Zeros that begin at a cache line."""
    return allocate(count * np.dtype(dtype).itemsize).view(dtype)


@kernel(fastmath=EXACT)
def move(source, count, out):
    p, q = memory.address(source), memory.address(out)
    n = vectors.width(p, REGISTERS)
    start = memory.shifted(p, 3)
    memory.store(memory.load(start, 1, REGISTERS), q, 0)
    memory.store(memory.load(p, 5, REGISTERS, count, source[0]), q, n)
    memory.store(memory.load(p, 0, REGISTERS), q, 2 * n, count)
    memory.prefetch(p, 10**9)
    memory.stream(memory.load(p, 2, 1), q, 3 * n)
    memory.fence()
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
def tile_whole(source, starts, tile, out):
    p, s = memory.address(source), memory.address(starts)
    t, q = memory.address(tile), memory.address(out)
    memory.load_tile(p, s, 3, t, REGISTERS)
    memory.store_tile(t, q, s, 2, REGISTERS)


@kernel(fastmath=EXACT)
def tile_part(source, starts, stops, tile, out, count):
    p, s, e = memory.address(source), memory.address(starts), memory.address(stops)
    t, q = memory.address(tile), memory.address(out)
    memory.load_tile(p, s, -1, t, REGISTERS, (1, e), source[0])
    memory.store_tile(t, q, s, 2, REGISTERS, count)


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


@kernel(fastmath=EXACT)
def choose(flags, numbers, count, out):
    p = memory.load(numbers, 0, REGISTERS)
    n = vectors.width(numbers, REGISTERS)
    memory.store(vectors.where(memory.load_mask(flags, 1, p), p, 0.0), out, 0)
    memory.store(vectors.where(memory.load_mask(flags, 1, p, count), p, 0.0), out, n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_flags(dtype: Any, count: int) -> None:
    """A flag is any byte but 0; arrays are taken where pointers are."""
    n = REGISTERS * lanes(dtype)
    rng = np.random.default_rng(4)
    flags = rng.choice(np.array([0, 1, 255], np.uint8), n + 1)
    numbers, out = rng.normal(size=n).astype(dtype), np.zeros((2, n), dtype)
    choose(flags, numbers, count, out.ravel())
    chosen = np.where(flags[1:] != 0, numbers, 0)
    np.testing.assert_array_equal(out, [chosen, np.where(np.arange(n) < count, chosen, 0)])


@functools.cache
def kernel_of(name: str) -> Any:
    move = getattr(memory, name)

    @kernel(fastmath=EXACT)
    def run(target, to, source, begin, count):
        move(target, to, source, begin, count)
        memory.fence()

    return run


@pytest.mark.parametrize("name", ["copy_bytes", "stream_bytes"])
@given(data=st.data())
def test_the_bytes_arrive_and_no_others(name: str, data: Any) -> None:
    size = data.draw(st.integers(0, 300))
    to, begin = data.draw(st.integers(0, 70)), data.draw(st.integers(0, 70))
    rng = np.random.default_rng(size)
    source = rng.integers(0, 256, 400, np.uint8)
    target = aligned(400, np.uint8)
    target[:] = rng.integers(0, 256, 400, np.uint8)
    expected = target.copy()
    expected[to : to + size] = source[begin : begin + size]
    kernel_of(name)(target, to, source, begin, size)
    np.testing.assert_array_equal(target, expected)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86's instructions")
def test_streams_go_past_the_caches() -> None:
    numbers = np.zeros(64, np.uint8)
    assert "movnt" in assembly(kernel_of("stream_bytes"), numbers, 0, numbers, 0, 64)


@pytest.mark.parametrize("word", [np.uint8(0), np.uint16(0), np.uint32(0), np.uint64(0)])
@pytest.mark.parametrize("to", [0, 3])
def test_words_are_moved_whole_from_any_address(word: Any, to: int) -> None:
    @kernel(fastmath=EXACT)
    def run(target, to, source, begin):
        memory.copy_word(target, to, source, begin, word)

    source, target = np.arange(1, 33, dtype=np.uint8), np.zeros(32, np.uint8)
    run(target, to, source, 5)
    expected = np.zeros(32, np.uint8)
    expected[to : to + word.nbytes] = source[5 : 5 + word.nbytes]
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("index", [-(2**40), 0, 2**40])
def test_any_address_can_be_asked_for(index: int) -> None:
    @kernel(fastmath=EXACT)
    def run(array, index):
        memory.prefetch(array, index)
        memory.prefetch_far(array, index)

    run(np.zeros(8), index)


def test_addresses_of_arrays() -> None:
    numbers = np.arange(24.0).reshape(2, 3, 4)
    frozen = numbers.copy()
    frozen.flags.writeable = False
    records = np.zeros(3, [("flag", "u1"), ("number", "f8")])["number"]
    for array in (
        *(numbers, numbers[1:, ::-1], numbers.T, frozen, records, numbers[:0], np.float32(3)[...]),
        *(np.zeros((0, 3)), np.ones(2, bool), np.broadcast_to(1.0, 5)),
        np.ma.masked_array(numbers),
    ):
        assert memory.array_address(array) == array.__array_interface__["data"][0]
