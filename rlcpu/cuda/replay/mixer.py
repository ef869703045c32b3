"""Batches on the device that come from several buffers, for `rlcpu.replay.Mixer`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.launch import launch
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.replay.batch import Batch
from rlcpu.cuda.replay.pairs import check_real_array
from rlcpu.cuda.replay.rows import as_words, words_of
from rlcpu.cuda.replay.upkeep import GOOD
from rlcpu.cuda.replay.value_kernels import outside_kernel
from rlcpu.replay.samplers import MOST
from rlcpu.replay.structure import Structure


class MixedBatch(NamedTuple):
    """A batch on the device from several buffers, one after the other.

    Attributes:
        data: see `Batch`, as the attributes up to `discounts`.
        indices: see `Batch`.
        weights: see `Batch`; 1 where a buffer has none.
        discounts: see `Batch`; 1 where a buffer has none.
        sources: (batch_size,) int64, position of the buffer that each came from.
        sizes: how many came from each buffer.
        owner: the mixer.
    """

    data: Any
    indices: DeviceArray
    weights: DeviceArray | None
    discounts: DeviceArray | None
    sources: DeviceArray
    sizes: list[int]
    owner: Any

    def __getitem__(self, key: Any) -> Any:
        """Part of the data: `batch["reward"]` is `batch.data["reward"]`."""
        return self.data[key]

    def __len__(self) -> int:
        return self.indices.size


@functools.cache
def join_kernel() -> Any:
    """(part, width, begin, out_width, out): rows of a matrix to columns of a wider one.

    `part` is (n, width), `out` (n, out_width), of which columns from `begin` on are overwritten.
    """

    @kernel
    def join(part, width, begin, out_width, out):
        k = cuda.grid(1)
        if k < part.size:
            row = k // width
            out[row * out_width + begin + (k - row * width)] = part[k]

    return join


def concatenate(parts: Sequence[DeviceArray], axis: int, words: Any) -> DeviceArray:
    """Contiguous arrays one after the other, as `numpy.concatenate` has them, in a new one.

    Args:
        parts: of one dtype, and of one shape but for the axis.
        axis: 0 or 1.
        words: dtype of unsigned integers that are copied, which the items are made of.
    """
    first = parts[0]
    length = sum(part.shape[axis] for part in parts)
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    out, begin = arrays.empty(shape, first.dtype), 0
    to, rows = as_words(out, words), first.shape[0] if axis else 1
    for part in parts:
        given = as_words(part, words)
        width = given.size // rows
        launch(join_kernel(), given.size, given, width, begin, to.size // rows, to)
        begin += width
    return out


def sample(owner: Any, structure: Structure, parts: Sequence[Batch | None]) -> MixedBatch:
    """What a mixer draws, of what each buffer drew; None where that is nothing."""
    drawn = [part for part in parts if part is not None]
    columns = [structure.collect(part.data) for part in drawn]
    axis = columns[0][0].ndim - len(structure.fields[0].shape) - 1
    leaves = [
        concatenate(column, axis, words_of(field).dtype)
        for field, column in zip(structure.fields, zip(*columns, strict=True), strict=True)
    ]
    sizes = [0 if part is None else len(part) for part in parts]
    sources = np.repeat(np.arange(len(sizes)), sizes)
    return MixedBatch(
        structure.unflatten(leaves),
        concatenate([part.indices for part in drawn], 0, np.uint32),
        _or_ones(drawn, [part.weights for part in drawn]),
        _or_ones(drawn, [part.discounts for part in drawn]),
        arrays.from_host(sources),
        sizes,
        owner,
    )


def _or_ones(parts: list[Batch], numbers: list[DeviceArray | None]) -> DeviceArray | None:
    """Numbers of all parts, (batch_size,) float32; ones where a part has none."""
    if all(part is None for part in numbers):
        return None
    filled = [
        arrays.from_host(np.ones(len(part), np.float32)) if given is None else given
        for part, given in zip(parts, numbers, strict=True)
    ]
    return concatenate(filled, 0, np.uint32)


def update_priorities(buffers: Sequence[Any], batch: MixedBatch, priorities: Any) -> None:
    """Give what was drawn from prioritised buffers new priorities; others are passed over.

    Raises:
        TypeError, ValueError: see `rlcpu.replay.Mixer.update_priorities`.
    """
    numbers = check_real_array("priorities", priorities, len(batch))
    chosen, ends = [], np.cumsum(batch.sizes).tolist()
    for buffer, end, size in zip(buffers, ends, batch.sizes, strict=True):
        if size and hasattr(buffer, "update_priorities"):
            # One number for all stays one.
            own = numbers if numbers.size == 1 else numbers.view((size,), end - size)
            chosen.append((buffer, batch.indices.view((size,), end - size), own))
    _refuse_bad([own for _, _, own in chosen])
    for buffer, indices, own in chosen:
        buffer.update_priorities(indices, own)


def _refuse_bad(parts: list[DeviceArray]) -> None:
    """Raise ValueError for a priority that a buffer would refuse, before any is changed."""
    bad = arrays.from_host(np.full(max(len(parts), 1), GOOD))
    for number, part in enumerate(parts):
        launch(outside_kernel(), part.size, part, 0.0, MOST, bad.view((1,), number))
    for part, position in zip(parts, bad.copy_to_host().tolist(), strict=False):
        if position != GOOD:
            found = float(part.memory[position : position + 1].copy_to_host()[0])
            raise ValueError(f"priorities: {found}, expected a priority in [0, {MOST:g}]")
