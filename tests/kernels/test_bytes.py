"""Copies of bytes, through the caches and past them."""

from __future__ import annotations

import functools
import platform

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.kernels import bytes as copies
from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.octets import aligned
from tests.machine_code import assembly


@functools.cache
def kernel_of(name):
    move = getattr(copies, name)

    @kernel(fastmath=EXACT)
    def run(target, to, source, begin, count):
        move(target, to, source, begin, count)
        copies.fence()

    return run


@pytest.mark.parametrize("name", ["copy", "stream"])
@given(data=st.data())
def test_the_bytes_arrive_and_no_others(name, data):
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
def test_streams_go_past_the_caches():
    numbers = np.zeros(64, np.uint8)
    assert "movnt" in assembly(kernel_of("stream"), numbers, 0, numbers, 0, 64)


@pytest.mark.parametrize("word", [np.uint8(0), np.uint16(0), np.uint32(0), np.uint64(0)])
@pytest.mark.parametrize("to", [0, 3])
def test_words_are_moved_whole_from_any_address(word, to):
    @kernel(fastmath=EXACT)
    def run(target, to, source, begin):
        copies.copy_word(target, to, source, begin, word)

    source, target = np.arange(1, 33, dtype=np.uint8), np.zeros(32, np.uint8)
    run(target, to, source, 5)
    expected = np.zeros(32, np.uint8)
    expected[to : to + word.nbytes] = source[5 : 5 + word.nbytes]
    np.testing.assert_array_equal(target, expected)
