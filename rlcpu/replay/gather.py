"""Rows between batches and a storage, as bytes: cache misses side by side."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.memory import LINE, copy_bytes, copy_word, fence, prefetch, stream_bytes
from rlcpu.kernels.threads import Kernels

_AHEAD = 4096  # bytes asked for before they are copied, but at most _LEAST rows
_GRAIN = 2**17  # bytes, 10 us, from which a second core is worth waking
_LEAST, _MOST = 32, 128  # sequences that a thread takes at a time
_STAGE = 8192  # bytes of rows that are put together before they are stored
_FAR = 2**25  # bytes of a storage that the last cache does not hold
_U8, _U16, _U32, _U64 = np.uint8(0), np.uint16(0), np.uint32(0), np.uint64(0)


@inline_exact
def _copy_row(out, to, storage, begin, count):
    # Rewards and flags are single numbers: a call of the C library takes 1.6 times as long.
    if count == 4:
        copy_word(out, to, storage, begin, _U32)
    elif count == 8:
        copy_word(out, to, storage, begin, _U64)
    elif count == 1:
        copy_word(out, to, storage, begin, _U8)
    elif count == 2:
        copy_word(out, to, storage, begin, _U16)
    else:
        copy_bytes(out, to, storage, begin, count)


@inline_exact
def _ask_for(storage, begin, count):
    for line in range(0, count, LINE):
        prefetch(storage, begin + line)
    prefetch(storage, begin + count - 1)


@inline_exact
def _gather_field(storage, out, field, rows, first, last, steps, length):
    source, row_bytes, target = field[0], field[1], field[2]
    size = rows.size
    # The first line of each row before anything else, for the sake of its page: a quarter of the
    # time of 256 transitions of 5 fields.
    for b in range(first, last):
        prefetch(storage, source + rows[b] * row_bytes)
    # Whole sequences are asked for, a row at a time: to leave what follows the first row to the
    # processor takes twice as long (11 rows of 400 bytes).
    ahead = min(max(_AHEAD // (row_bytes * steps), 1), _LEAST)
    for b in range(first, last):
        row, soon = rows[b], rows[min(b + ahead, size - 1)]
        end, soon_end = (row // length + 1) * length, (soon // length + 1) * length
        for t in range(steps):
            _ask_for(storage, source + soon * row_bytes, row_bytes)
            to = target + (t * size + b) * row_bytes
            _copy_row(out, to, storage, source + row * row_bytes, row_bytes)
            row = row + 1 if row + 1 < end else end - length
            soon = soon + 1 if soon + 1 < soon_end else soon_end - length


def at_a_time(size: int) -> int:
    """Of `size` sequences, how many a thread takes at a time: 8 % faster than always 32."""
    return int(max(min(size // numba.config.NUMBA_NUM_THREADS, _MOST), _LEAST))


def _make_gather(parallel: bool) -> Any:
    @kernel(parallel=parallel, fastmath=EXACT)
    def gather(storage, out, fields, rows, steps, length, each):
        size = rows.size
        for block in prange((size + each - 1) // each):
            first, last = block * each, min((block + 1) * each, size)
            for f in range(fields.shape[0]):
                _gather_field(storage, out, fields[f], rows, first, last, steps, length)

    return gather


#: (storage, out, fields, rows, steps, length, each): out[f][t, b] = storage[f][rows[b] + t].
#: `storage` and `out` are uint8; `fields` is (num_fields, 3) int64, where each field begins in the
#: storage, the bytes of its rows, and where it begins in `out`; `rows` is (batch_size,) int64. Row
#: numbers go round within the `length` rows of an environment. `each` is `at_a_time(rows.size)`.
GATHER = Kernels(_make_gather(False), _make_gather(True), _GRAIN)


@inline_exact
def _lay(target, to, batch, row, stride, count, row_bytes):
    for t in range(count):
        _copy_row(target, to + t * row_bytes, batch, (row + t * stride) * row_bytes, row_bytes)


@kernel(fastmath=EXACT)
def scatter(batch, storage, begin, row_bytes, shape, length):
    """Rows of a field, (num_steps, num_envs) of them, to the same slots of every environment.

    `batch` and `storage` are uint8; the first slot of environment 0 is at `storage[begin]`, and
    `shape` is (num_steps, num_envs).
    """
    num_steps, num_envs = shape
    # Into a storage that no cache holds, rows that follow each other are streamed once they are
    # put together: 0.6 of the time for 100 x 16 rows of 400 bytes. Where the caches hold it, the
    # samples that come after would be slower by more, and rows of 28 KB are slower themselves.
    together = _STAGE // row_bytes
    far = storage.size >= _FAR and num_steps > 1 and together > 1
    stage = np.empty(together * row_bytes if far else 0, np.uint8)
    for env in range(num_envs):
        to = begin + env * length * row_bytes
        if far:
            for t in range(0, num_steps, together):
                count = min(together, num_steps - t)
                _lay(stage, 0, batch, t * num_envs + env, num_envs, count, row_bytes)
                stream_bytes(storage, to + t * row_bytes, stage, 0, count * row_bytes)
        else:
            _lay(storage, to, batch, env, num_envs, num_steps, row_bytes)
    fence()
