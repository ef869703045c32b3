"""Rows of words on the device: drivers that draw, write and gather them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.kernels.random import u64, uniform53
from rlcpu.replay.fields import Field


@functools.cache
def write_rows_kernel() -> Any:
    """(batch, num_steps, num_envs, words, slot, length, storage): the newest rows to their slots.

    `batch` is (num_steps, num_envs, words), `storage` (num_envs, length, words), both of words;
    step t goes to `(slot + t) % length` if none of the steps after it does.
    """

    @kernel
    def write(batch, num_steps, num_envs, words, slot, length, storage):
        k = cuda.grid(1)
        if k < batch.size:
            row = k // words
            step = row // num_envs
            if step + length >= num_steps:
                place = (row - step * num_envs) * length + (slot + step) % length
                storage[place * words + (k - row * words)] = batch[k]

    return write


@functools.cache
def gather_kernel() -> Any:
    """(storage, rows, words, out): out[b] = storage[rows[b]], of so many words a row."""

    @kernel
    def gather(storage, rows, words, out):
        k = cuda.grid(1)
        if k < out.size:
            b = k // words
            out[k] = storage[rows[b] * words + (k - b * words)]

    return gather


@functools.cache
def gather_steps_kernel() -> Any:
    """(storage, rows, period, length, words, out): rows, and those that follow in time.

    `out` is (num_steps, n, words): step t of rows[b] is row `rows[b] * period + t` of its
    environment's `length` ones, of which the first comes after the last.
    """

    @kernel
    def gather(storage, rows, period, length, words, out):
        k = cuda.grid(1)
        if k < out.size:
            place = k // words
            step = place // rows.size
            row = rows[place - step * rows.size] * period
            end = row // length * length + length
            row += step
            out[k] = storage[(row if row < end else row - length) * words + (k - place * words)]

    return gather


@functools.cache
def draw_items_kernel() -> Any:
    """(key, counter, num_envs, first, count, length, out): uniform items, as the CPU draws them.

    Items `env * length + (first + k) % length` with k below `count`.
    """

    @kernel(dtype=np.float64, exact=True)
    def draw(key, counter, num_envs, first, count, length, out):
        j = cuda.grid(1)
        if j < out.size:
            total = num_envs * count
            u = uniform53(key, u64(counter + u64(j)))
            k = min(np.int64(u * total), total - 1)
            env = k // count
            slot = first + (k - env * count)
            out[j] = env * length + (slot - length if slot >= length else slot)

    return draw


class Words(NamedTuple):
    """How a field's rows are moved.

    Attributes:
        dtype: of a word: the widest that rows are made of.
        each: words of a row.
    """

    dtype: Any
    each: int


def words_of(field: Field) -> Words:
    """Words of a field's rows; four bytes a thread make a line of a warp, eight two."""
    for dtype in (np.uint32, np.uint16, np.uint8):
        size = np.dtype(dtype).itemsize
        if field.row_bytes % size == 0:
            return Words(dtype, field.row_bytes // size)
    raise AssertionError("bytes divide everything")


def as_words(array: DeviceArray, dtype: Any) -> DeviceArray:
    """The bytes of a contiguous array as flat words."""
    memory = array.memory.view(dtype)
    return DeviceArray(memory, (array.nbytes // memory.dtype.itemsize,), owner=array)
