"""Where transitions are kept on the device: one array of words per field."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.launch import launch
from rlcpu.cuda.provider import cuda
from rlcpu.kernels.random import u64, uniform53
from rlcpu.replay.ring import Ring
from rlcpu.replay.structure import Field, Structure
from rlcpu.replay.structure_checks import label


@functools.cache
def write_rows_kernel() -> Any:
    """(batch, num_steps, num_envs, words, slot, length, storage): the newest rows to their slots.

    `batch` is (num_steps, num_envs, words), `storage` (num_envs, length, words), both of words;
    step t goes to `(slot + t) % length` if none of the steps after it does.
    """

    @kernel
    def write(batch, num_steps, num_envs, words, slot, length, storage):  # type: ignore[no-untyped-def]
        k = cuda.grid(1)
        if k < batch.size:
            row, word = k // words, k % words
            step, env = row // num_envs, row % num_envs
            if step + length >= num_steps:
                place = env * length + (slot + step) % length
                storage[place * words + word] = batch[k]

    return write


@functools.cache
def gather_kernel() -> Any:
    """(storage, rows, words, out): out[b] = storage[rows[b]], of so many words a row."""

    @kernel
    def gather(storage, rows, words, out):  # type: ignore[no-untyped-def]
        k = cuda.grid(1)
        if k < out.size:
            out[k] = storage[rows[k // words] * words + k % words]

    return gather


@functools.cache
def draw_items_kernel() -> Any:
    """(key, counter, num_envs, filled, length, out): uniform items, as the CPU draws them."""

    @kernel(dtype=np.float64, exact=True)
    def draw(key, counter, num_envs, filled, length, out):  # type: ignore[no-untyped-def]
        k = cuda.grid(1)
        if k < out.size:
            total = num_envs * filled
            u = uniform53(key, u64(counter + u64(k)))
            item = min(np.int64(u * total), total - 1)
            env = item // filled
            out[k] = env * length + (item - env * filled)

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
        if field.row_bytes % size == 0 and field.dtype.itemsize % size == 0:
            return Words(dtype, field.row_bytes // size)
    raise AssertionError("bytes divide everything")


class Storage:
    """Rows of transitions of `num_envs` environments, `length` rows each.

    Raises:
        CudaMemoryError: there is not enough memory.
        TypeError: a field is of numbers that the device does not know.
    """

    def __init__(self, structure: Structure, num_envs: int, length: int) -> None:
        self.structure, self.num_envs, self.length = structure, num_envs, length
        for field in structure.fields:
            if field.dtype.kind not in "biuf" or field.dtype.itemsize > 8:
                raise TypeError(
                    f"{label(field.name, 'example')} has dtype {field.dtype}: expected bool, "
                    "integers or real numbers of at most 64 bits on the device"
                )
        self.words = [words_of(field) for field in structure.fields]
        rows = num_envs * length
        self.fields = [arrays.empty(rows * words.each, words.dtype) for words in self.words]

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows."""
        return sum(field.nbytes for field in self.fields)

    def check(self, batch: Any, num_envs: int | None) -> tuple[list[DeviceArray], int]:
        """The fields of a batch as words on the device, and its number of steps.

        Raises:
            TypeError, ValueError: see `rlcpu.replay.ReplayBuffer.add`; arrays on the device have to
                be C-contiguous and of the field's dtype.
        """
        plain = num_envs is None
        given = self.structure.collect(batch)
        likes = [_like(leaf) if arrays.is_device_array(leaf) else leaf for leaf in given]
        host, lead = self.structure.check(self.structure.unflatten(likes), 1 if plain else 2)
        if not plain and (not lead or lead[-1] != num_envs):
            raise ValueError(
                f"batch has leading axes {lead}: expected ({num_envs},) for one step, or "
                f"(num_steps, {num_envs})"
            )
        steps = lead[0] if len(lead) == (1 if plain else 2) else 1
        found = [
            arrays.take(label(field.name), leaf, field.dtype)
            if arrays.is_device_array(leaf)
            else arrays.from_host(array)
            for field, leaf, array in zip(self.structure.fields, given, host, strict=True)
        ]
        return [self._as_words(array, i) for i, array in enumerate(found)], steps

    def _as_words(self, array: DeviceArray, number: int) -> DeviceArray:
        memory = array.memory.view(self.words[number].dtype)
        return DeviceArray(memory, (array.nbytes // memory.dtype.itemsize,), owner=array)

    def write(self, batch: list[DeviceArray], num_steps: int, slot: int) -> None:
        """Store what `check` returned, from a slot on, going round."""
        sizes = num_steps, self.num_envs
        for array, field, words in zip(batch, self.fields, self.words, strict=True):
            arguments = array, *sizes, words.each, slot, self.length, field
            launch(write_rows_kernel(), array.size, *arguments)

    def gather(self, rows: DeviceArray) -> list[DeviceArray]:
        """New arrays of rows, one for each field; `rows` is (n,) int64, not checked."""
        found = []
        for spec, field, words in zip(self.structure.fields, self.fields, self.words, strict=True):
            out = arrays.empty(rows.size * words.each, words.dtype)
            launch(gather_kernel(), out.size, field, rows, words.each, out)
            shape = rows.size, *spec.shape
            found.append(DeviceArray(out.memory.view(spec.dtype), shape, owner=out))
        return found

    def draw(self, stream: Any, ring: Ring, out: DeviceArray) -> None:
        """Fill `out`, (n,) int64, with uniform items, by a stream, which is moved on."""
        arguments = self.num_envs, ring.filled, ring.length, out
        launch(draw_items_kernel(), out.size, stream[0], stream[1], *arguments)
        stream[1] += np.uint64(out.size)


def _like(leaf: Any) -> Any:
    """An array of the host that checks can look at in place of one on the device."""
    interface = getattr(leaf, "__cuda_array_interface__", None)
    dtype = np.dtype(interface["typestr"] if interface else leaf.dtype)
    return np.broadcast_to(np.zeros((), dtype), tuple(leaf.shape))
