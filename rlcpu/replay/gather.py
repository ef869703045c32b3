"""Rows of a storage into a batch: all fields, one call, cache misses side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.bytes import copy, copy_word
from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.octets import LINE, prefetch
from rlcpu.kernels.threads import Kernels

_AHEAD = 8  # rows asked for before they are copied
_GRAIN = 2**17  # bytes, 10 us, from which a second core is worth waking
_BLOCK = 32  # sequences that a thread takes at a time
_U8, _U16, _U32, _U64 = np.uint8(0), np.uint16(0), np.uint32(0), np.uint64(0)


@inline_exact
def _copy_row(out, to, storage, begin, count):  # type: ignore[no-untyped-def]
    # Rewards and flags are single numbers: a call of the C library would take ten times as long.
    if count == 4:
        copy_word(out, to, storage, begin, _U32)
    elif count == 8:
        copy_word(out, to, storage, begin, _U64)
    elif count == 1:
        copy_word(out, to, storage, begin, _U8)
    elif count == 2:
        copy_word(out, to, storage, begin, _U16)
    else:
        copy(out, to, storage, begin, count)


@inline_exact
def _ask_for(storage, begin, count):  # type: ignore[no-untyped-def]
    for line in range(0, count, LINE):
        prefetch(storage, begin + line)
    prefetch(storage, begin + count - 1)


@inline_exact
def _gather_field(storage, out, field, rows, first, last, steps, length):  # type: ignore[no-untyped-def]
    source, row_bytes, target = field[0], field[1], field[2]
    size = rows.size
    # A sequence is one piece of memory: its first rows are asked for, the rest is read ahead.
    ahead = row_bytes * min(steps, 2)
    for b in range(first, last):
        wanted = source + rows[min(b + _AHEAD, size - 1)] * row_bytes
        _ask_for(storage, wanted, min(ahead, source + field[3] * row_bytes - wanted))
        begin = rows[b] // length * length
        slot = rows[b] - begin
        for t in range(steps):
            row = begin + slot
            to = target + (t * size + b) * row_bytes
            _copy_row(out, to, storage, source + row * row_bytes, row_bytes)
            slot = slot + 1 if slot + 1 < length else 0


def _make_gather(parallel: bool) -> Any:
    @kernel(parallel=parallel, fastmath=EXACT)
    def gather(storage, out, fields, rows, steps, length):  # type: ignore[no-untyped-def]
        size = rows.size
        for block in prange((size + _BLOCK - 1) // _BLOCK):
            first, last = block * _BLOCK, min((block + 1) * _BLOCK, size)
            for f in range(fields.shape[0]):
                _gather_field(storage, out, fields[f], rows, first, last, steps, length)

    return gather


#: (storage, out, fields, rows, steps, length): out[f][t, b] = storage[f][rows[b] + t].
#: `storage` and `out` are uint8; `fields` is (num_fields, 4) int64, where each field begins in the
#: storage, the bytes of its rows, where it begins in `out`, and its number of rows; `rows` is
#: (batch_size,) int64. Row numbers go round within the `length` rows of an environment.
GATHER = Kernels(_make_gather(False), _make_gather(True), _GRAIN)
