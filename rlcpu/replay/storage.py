"""Memory of buffers: columns of one block, which is anonymous memory or a file.

The block has a column for each field: rows of bytes, `length` for each environment, one environment
after the other. Kernels copy rows between it and batches, and prefetch those that come next, so
that several cache misses are waited for at once.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.kernels.checks import check_seed
from rlcpu.kernels.compiler.compile import EXACT, inline, kernel
from rlcpu.kernels.machine.memory import LINE, copy_bytes, copy_word, fence, prefetch, stream_bytes
from rlcpu.kernels.machine.random import splitmix64, stream_seeds
from rlcpu.kernels.machine.threads import for_cores, launch
from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.checks import check_path
from rlcpu.replay.items import ReturnSettings, Ring, look_ahead, spans
from rlcpu.replay.structure import TransitionStructure

Array = npt.NDArray[Any]

_ALIGN = 64  # bytes: rows of a cache line's size are not spread over two
_WORTHWHILE = 4096  # bytes of a field from which the kernel's call pays
_AHEAD = 4096  # bytes that are prefetched before they are copied, but at most _LEAST rows
_GRAIN = 2**17  # bytes, 10 us, from which a second core is worth waking
_LEAST, _MOST = 32, 128  # sequences that a thread takes at a time, at least and at most
_STAGE = 8192  # bytes of rows that are put together before they are streamed to memory
_BEYOND_CACHES = 2**25  # bytes of a storage that no cache holds
_U8, _U32, _U64 = np.uint8(0), np.uint32(0), np.uint64(0)

# ---------------------------------------------------------------- memory


def allocate(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Return zeros that begin at a cache line, and take memory from their first write on.

    NumPy asks for huge pages where there are many: random rows of 800 bytes take half the time.
    """
    memory = np.zeros(num_bytes + _ALIGN, np.uint8)
    first = -memory.ctypes.data % _ALIGN
    return memory[first : first + num_bytes]


def placed(array: Array) -> Array:
    """Return a copy of an array of one axis that begins where `allocate` lets memory begin."""
    memory = allocate(array.nbytes).view(array.dtype)
    memory[:] = array
    return memory


def make_stream(seed: int | None) -> npt.NDArray[np.uint64]:
    """Return (2,) uint64, key and counter of a stream of random numbers that can be saved."""
    whole = secrets.randbits(64) if seed is None else check_seed(seed)
    return np.array([splitmix64(stream_seeds(whole, 1))[0], 0], np.uint64)


def lay_out(row_bytes: Iterable[int], num_rows: int) -> tuple[list[int], int]:
    """Return the first byte of each field in a block of so many rows, and the block's end."""
    begins, end = [], 0
    for size in row_bytes:
        begins.append(end)
        end += -(-size * num_rows // _ALIGN) * _ALIGN
    if end > np.iinfo(np.intp).max:
        raise MemoryError(f"no room for {end:,} bytes")
    return begins, end


def _map_new_file(path: str | os.PathLike[str], num_bytes: int) -> Array:
    """Return zeros in a new file of so many bytes, whose room on the disk is reserved at once.

    If it were not, a later write to a full disk would end the process.
    """
    path = check_path("memmap", path)
    with open(path, "xb") as file:
        try:
            file.truncate(num_bytes)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            return np.memmap(path, np.uint8, "r+").view(np.ndarray)
        except BaseException:
            os.unlink(path)
            raise


# ---------------------------------------------------------------- kernels

# Rows are bytes here.

#: Columns of the table of fields that `gather` takes.
SOURCE, ROW_BYTES, TARGET = range(3)


@inline(exact=True)
def copy_row(out, to, storage, begin, count):
    """Copy `count` bytes from position `begin` of the storage to position `to` of `out`."""
    # Rewards and flags are single numbers: a call of the C library takes 1.6 times as long.
    if count == 4:
        copy_word(out, to, storage, begin, _U32)
    elif count == 8:
        copy_word(out, to, storage, begin, _U64)
    elif count == 1:
        copy_word(out, to, storage, begin, _U8)
    else:
        copy_bytes(out, to, storage, begin, count)


@inline(exact=True)
def gather_field(storage, out, field, rows, first, last, steps, length):
    """Copy one field of the sequences [first, last) of a batch from storage to `out`.

    `field` is a row of the table of `gather`, which has the other arguments. `row` and `next_row`
    run round the ring of an environment: the row that is copied, and one of the sequence `ahead` of
    it, which is prefetched meanwhile.
    """
    source, row_bytes, target = field[SOURCE], field[ROW_BYTES], field[TARGET]
    size = rows.size
    # Prefetching the first line of each row loads its page's address: a quarter less time for 256
    # transitions of 5 fields.
    for b in range(first, last):
        prefetch(storage, source + rows[b] * row_bytes)
    # Whole sequences are prefetched, a row at a time: to leave all but the first row to the
    # processor takes twice as long (11 rows of 400 bytes).
    ahead = min(max(_AHEAD // (row_bytes * steps), 1), _LEAST)
    for b in range(first, last):
        row, next_row = rows[b], rows[min(b + ahead, size - 1)]
        end, next_end = (row // length + 1) * length, (next_row // length + 1) * length
        for t in range(steps):
            next_begin = source + next_row * row_bytes
            for line in range(0, row_bytes, LINE):
                prefetch(storage, next_begin + line)
            prefetch(storage, next_begin + row_bytes - 1)
            to = target + (t * size + b) * row_bytes
            copy_row(out, to, storage, source + row * row_bytes, row_bytes)
            row = row + 1 if row + 1 < end else end - length
            next_row = next_row + 1 if next_row + 1 < next_end else next_end - length


def gather(storage, out, fields, rows, steps, length, each):
    """Copy sequences of rows to a batch: out[f][t, b] = storage[f][rows[b] + t].

    Args:
        storage: uint8, bytes of all fields.
        out: uint8, bytes of the batch, overwritten.
        fields: (num_fields, 3) int64, where a field begins in the storage, the bytes of its rows,
            and where it begins in `out`.
        rows: (batch_size,) int64, first row of each sequence.
        steps: rows of a sequence; they go round within the `length` rows of an environment.
        length: see `steps`.
        each: sequences that a thread takes at a time.
    """
    size = rows.size
    for block in prange((size + each - 1) // each):
        first, last = block * each, min((block + 1) * each, size)
        for f in range(fields.shape[0]):
            gather_field(storage, out, fields[f], rows, first, last, steps, length)


GATHER = for_cores(gather, _GRAIN, fastmath=EXACT)


@inline(exact=True)
def _copy_strided(target, to, batch, row, stride, count, row_bytes):
    """Copy `count` rows of a batch, from `row` on and `stride` apart, to rows side by side."""
    for t in range(count):
        copy_row(target, to + t * row_bytes, batch, (row + t * stride) * row_bytes, row_bytes)


@kernel(fastmath=EXACT)
def scatter(batch, storage, begin, row_bytes, shape, length):
    """Copy the rows of one field of a batch to the same slots of every environment.

    Both are uint8. The batch has `shape` (num_steps, num_envs) rows, the storage `length` rows for
    each environment; `begin` is the position of the first slot of environment 0.
    """
    num_steps, num_envs = shape
    # Into a storage that no cache holds, rows that follow each other are streamed once they are
    # put together: 0.6 of the time for 100 x 16 rows of 400 bytes. Where the caches hold it, the
    # samples that come after would be slower by more, and rows of 28 KB are slower themselves.
    together = _STAGE // row_bytes  # rows
    is_streamed = storage.size >= _BEYOND_CACHES and num_steps > 1 and together > 1
    stage = np.empty(together * row_bytes if is_streamed else 0, np.uint8)
    for env in range(num_envs):
        to = begin + env * length * row_bytes
        if is_streamed:
            for t in range(0, num_steps, together):
                count = min(together, num_steps - t)
                _copy_strided(stage, 0, batch, t * num_envs + env, num_envs, count, row_bytes)
                stream_bytes(storage, to + t * row_bytes, stage, 0, count * row_bytes)
        else:
            _copy_strided(storage, to, batch, env, num_envs, num_steps, row_bytes)
    fence()  # after rows that were streamed past the caches


# ---------------------------------------------------------------- storage


class Storage:
    """Rows of transitions of `num_envs` environments, `length` rows each.

    Args:
        structure: of one transition.
        num_envs: number of environments.
        length: rows of each.
        memmap: a file to be made, for more than fits into memory; it must not exist.
        twins: positions of fields that are not stored, such as the next observation, and for each
            that of the field whose rows it has, one row later.
    """

    def __init__(
        self,
        structure: TransitionStructure,
        num_envs: int,
        length: int,
        memmap: str | os.PathLike[str] | None = None,
        twins: Mapping[int, int] | None = None,
    ) -> None:
        self.structure, self.num_envs, self.length = structure, num_envs, length
        self.check = structure.check
        twins, fields = twins or {}, structure.fields
        #: Positions of the fields that are stored.
        self.stored = [number for number in range(len(fields)) if number not in twins]
        #: Bytes of a row of each field.
        self.row_bytes = [field.row_bytes for field in fields]
        stored_bytes = [self.row_bytes[number] for number in self.stored]
        # One row more where there are twins, which read one beyond the last.
        stored_begins, size = lay_out(stored_bytes, num_envs * length + bool(twins))
        #: uint8, all rows.
        self.block: Array = allocate(size) if memmap is None else _map_new_file(memmap, size)
        begins = dict(zip(self.stored, stored_begins, strict=True))
        begins |= {number: begins[twin] + self.row_bytes[number] for number, twin in twins.items()}
        #: First byte of each field in the block.
        self.begins = [begins[number] for number in range(len(fields))]
        #: One array per field, (num_envs, length, *field.shape), in the block.
        self.fields: list[Any] = [
            np.ndarray((num_envs, length, *field.shape), field.dtype, self.block, begin)
            for field, begin in zip(fields, self.begins, strict=True)
        ]
        self.in_file = memmap is not None

    @property
    def num_bytes(self) -> int:
        """Return the bytes of everything that is kept."""
        return self.block.size

    def copy_rows(self, filled: int) -> list[Array]:
        """Return copies of the first so many slots of each environment, for `take_rows`."""
        return [self.fields[number][:, :filled].copy() for number in self.stored]

    def take_rows(self, rows: list[Array]) -> None:
        """Write the rows of another storage's `copy_rows` to this new one."""
        for number, array in zip(self.stored, rows, strict=True):
            self.fields[number][:, : array.shape[1]] = array

    def write(self, arrays: Sequence[Array], slot: int) -> None:
        """Copy steps to the slots from `slot` on, round the ring.

        `arrays` are one per field, (num_steps, num_envs, *field.shape), of at most `length` steps.
        """
        to_end = self.length - slot
        if to_end < len(arrays[0]):
            # Not `self.write`: that of a subclass has done its part already, and calls this one.
            Storage.write(self, [array[to_end:] for array in arrays], 0)
            arrays = [array[:to_end] for array in arrays]
        for number in self.stored:
            array = arrays[number]
            if self.num_envs > 1 and array.nbytes >= _WORTHWHILE and array.flags.c_contiguous:
                row_bytes = self.row_bytes[number]
                begin = self.begins[number] + slot * row_bytes
                data, shape = array.reshape(-1).view(np.uint8), array.shape[:2]
                scatter(data, self.block, begin, row_bytes, shape, self.length)
            elif len(array) == 1:
                self.fields[number][:, slot] = array[0]
            else:
                self.fields[number][:, slot : slot + len(array)] = array.swapaxes(0, 1)

    def make_batch(self, batch_size: int, steps: int | None) -> Rows:
        """Return room for a batch: (batch_size, ...) arrays, or (steps, batch_size, ...)."""
        lead = (batch_size,) if steps is None else (steps, batch_size)
        begins, size = lay_out(self.row_bytes, batch_size * (steps or 1))
        block = np.empty(size + _ALIGN, np.uint8)
        block = block[-block.ctypes.data % _ALIGN :][:size]
        table = np.array([self.begins, self.row_bytes, begins], np.int64).T.copy()
        leaves: list[Any] = []
        for field, begin in zip(self.structure.fields, begins, strict=True):
            leaves.append(np.ndarray((*lead, *field.shape), field.dtype, block, begin))
        return Rows(block, table, leaves)

    def gather(
        self,
        rows: Array,
        batch: Rows,
        steps: int,
        num_threads: int | None,
        fields: list[int] | None = None,
    ) -> None:
        """Copy rows, and the `steps - 1` after each of them, to a batch.

        Args:
            rows: (batch_size,) int64 in [0, num_envs * length): env * length + slot; not checked.
            batch: overwritten.
            steps: rows of each sequence.
            num_threads: most threads to use.
            fields: positions of those that are copied; None for all.
        """
        table = batch.table if fields is None else batch.table[fields]
        # As many sequences for each thread, within limits: 8 % faster than always `_LEAST`.
        each = max(min(rows.size // numba.config.NUMBA_NUM_THREADS, _MOST), _LEAST)
        arguments = (self.block, batch.block, table, rows, steps, self.length, each)
        launch(GATHER, batch.block.size, num_threads, *arguments)

    def look_ahead(
        self, fields: list[int], rows: Array, settings: ReturnSettings
    ) -> tuple[Array, Array, Array]:
        """Return n-step returns, next discounts and last rows of transitions, (n,) each.

        They begin at `rows` (n,); `fields` are the positions of reward, terminated and truncated.
        """
        returns, discounts = np.empty(rows.size), np.empty(rows.size, np.float32)
        out = returns, discounts, np.empty(rows.size, np.int64)
        look_ahead(*(self.fields[n].reshape(-1) for n in fields), rows, settings, *out)
        return out

    # ------------------------------------------------------------ files

    def sections(self, added: int, ring: Ring) -> list[Section]:
        """Return the bytes of rows; the first `added` steps are in an earlier checkpoint."""

        def ranges_since(step: int) -> Array:
            """Return ranges of bytes, of all fields, of the steps from `step` on."""
            rows = spans(step, ring.added, self.length, self.num_envs)
            columns = [(self.begins[n], self.row_bytes[n]) for n in self.stored]
            return np.concatenate([begin + rows * row_bytes for begin, row_bytes in columns])

        return [Section("rows", self.block, ranges_since(added), ranges_since(0))]

    def restore(self, source: Reader, ring: Ring) -> None:
        """Read the rows of a checkpoint."""
        source.read_into("rows", self.block)


class Rows(NamedTuple):
    """Memory of a batch; on a GPU there are `leaves` alone."""

    block: Any  # uint8, bytes of all fields
    table: Any  # of the fields, for `gather`
    leaves: list[Any]  # one array per field, over the block
