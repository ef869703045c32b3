"""Where transitions are kept on the device: one array of words per field."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch
from rlcpu.cuda.operands import address
from rlcpu.cuda.replay.rows import (
    as_words,
    draw_items_kernel,
    gather_kernel,
    gather_steps_kernel,
    words_of,
    write_rows_kernel,
)
from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.fields import label
from rlcpu.replay.ring import Ring, spans
from rlcpu.replay.storage import allocate, plan, ranges, views
from rlcpu.replay.structure import Structure


class Span(NamedTuple):
    """Items of every environment that may be drawn.

    Attributes:
        first: place of the first one.
        size: how many.
        length: places of each environment; after the last comes the first.
    """

    first: int
    size: int
    length: int


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
            self._take(number, leaf) if arrays.is_device_array(leaf) else arrays.from_host(array)
            for number, (leaf, array) in enumerate(zip(given, host, strict=True))
        ]
        return [as_words(a, w.dtype) for a, w in zip(found, self.words, strict=True)], steps

    def _take(self, number: int, leaf: Any) -> DeviceArray:
        """An array on the device that begins where a word may."""
        field = self.structure.fields[number]
        array = arrays.take(label(field.name), leaf, field.dtype)
        if not array.size or address(array) % np.dtype(self.words[number].dtype).itemsize == 0:
            return array
        aligned = arrays.empty(array.shape, array.dtype)
        aligned.memory.copy_to_device(array.memory)
        return aligned

    def write(self, batch: list[DeviceArray], num_steps: int, slot: int) -> None:
        """Store what `check` returned, from a slot on, going round."""
        sizes = num_steps, self.num_envs
        for array, field, words in zip(batch, self.fields, self.words, strict=True):
            arguments = array, *sizes, words.each, slot, self.length, field
            launch(write_rows_kernel(), array.size, *arguments)

    def column(self, number: int) -> DeviceArray:
        """A field of one number a row, (num_envs * length,), of its dtype; bool as uint8."""
        dtype, field = self.structure.fields[number].dtype, self.fields[number]
        memory = field.memory.view(np.uint8 if dtype == np.bool_ else dtype)
        return DeviceArray(memory, (self.num_envs * self.length,), owner=field)

    def gather(
        self, rows: DeviceArray, steps: int | None = None, period: int = 1
    ) -> list[DeviceArray]:
        """New arrays of rows, one for each field.

        Args:
            rows: (n,) int64, not checked.
            steps: None for (n, *shape) arrays; or how many steps of each, (steps, n, *shape).
            period: with steps, sequence i begins at row i * period.
        """
        numbers = range(len(self.fields))
        return [self.gather_field(number, rows, steps, period) for number in numbers]

    def gather_field(
        self, number: int, rows: DeviceArray, steps: int | None = None, period: int = 1
    ) -> DeviceArray:
        """The same of one field."""
        spec, field, words = self.structure.fields[number], self.fields[number], self.words[number]
        lead = (rows.size,) if steps is None else (steps, rows.size)
        out = arrays.empty(math.prod(lead) * words.each, words.dtype)
        if steps is None:
            launch(gather_kernel(), out.size, field, rows, words.each, out)
        else:
            sizes = period, self.length, words.each
            launch(gather_steps_kernel(), out.size, field, rows, *sizes, out)
        return DeviceArray(out.memory.view(spec.dtype), (*lead, *spec.shape), owner=out)

    def draw(self, stream: Any, span: Span, out: DeviceArray) -> None:
        """Fill `out`, (n,) int64, with uniform items, by a stream, which is moved on."""
        arguments = stream[0], stream[1], self.num_envs, *span, out
        launch(draw_items_kernel(), out.size, *arguments)
        stream[1] += np.uint64(out.size)

    # ------------------------------------------------------------ files

    def sections(self, added: int, total: int) -> list[Section]:
        """See `rlcpu.replay.storage.Storage.sections`; all rows are copied to the host."""
        layout = plan(self.structure.fields, self.num_envs * self.length)
        block = allocate(layout.num_bytes)
        lead = self.num_envs, self.length
        hosts = views(self.structure, block, layout.begins, lead)
        for number, spec in enumerate(self.structure.fields):
            words = self.fields[number].copy_to_host()
            hosts[number][...] = words.view(spec.dtype).reshape(hosts[number].shape)
            hosts[number][:, total:] = 0  # memory of no row: anything may be there
        pairs = zip(layout.begins, self.structure.fields, strict=True)
        columns = [(begin, field.row_bytes) for begin, field in pairs]
        rows = [spans(first, total, self.length, self.num_envs) for first in (added, 0)]
        return [Section("rows", block, *(ranges(columns, each) for each in rows))]

    def describe(self) -> dict[str, Any]:
        """See `rlcpu.replay.storage.Storage.describe`."""
        return {}

    def restore(self, source: Reader, description: dict[str, Any], ring: Ring) -> None:
        """See `rlcpu.replay.storage.Storage.restore`."""
        layout = plan(self.structure.fields, self.num_envs * self.length)
        block = allocate(layout.num_bytes)
        source.read_into("rows", block)
        for field, begin in zip(self.fields, layout.begins, strict=True):
            words = block[begin : begin + field.nbytes].view(field.dtype)
            field.memory.copy_to_device(words)


def _like(leaf: Any) -> Any:
    """An array of the host that checks can look at in place of one on the device."""
    interface = getattr(leaf, "__cuda_array_interface__", None)
    dtype = np.dtype(interface["typestr"] if interface else leaf.dtype)
    return np.broadcast_to(np.zeros((), dtype), tuple(leaf.shape))
