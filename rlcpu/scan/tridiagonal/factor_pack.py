"""Factors of many matrices in the order in which a solve reads them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.scan.layout import Layout
from rlcpu.scan.tridiagonal.factor_kernels import COUNT

Array = npt.NDArray[Any]


class Pack(NamedTuple):
    """Factors for the systems of a layout.

    Attributes:
        numbers: (groups * blocks * n * 5 * lanes,), or (n * 5,) of one matrix for all.
        groups: number of outer indices that have matrices of their own.
        matrices: of a group.
    """

    numbers: Array
    groups: int
    matrices: int


def pack(packed: Array, batch: tuple[int, ...], layout: Layout, rows: bool) -> Pack:
    """Factors in blocks of the systems that a kernel solves at a time.

    Args:
        packed: (blocks * n * 5 * lanes,) as they were computed, in the order of `batch`.
        batch: the matrices' axes, which broadcast to those of the systems.
        layout: of the right-hand sides.
        rows: whether systems are counted over all outer indices, or inside of each.
    """
    place = layout.order[layout.axis]
    shape = np.array(layout.shape)[np.argsort(layout.order)]
    numbers = np.arange(math.prod(batch)).reshape(batch)
    systems = np.broadcast_to(numbers, np.delete(shape, place))
    systems = systems.transpose([i - (i > place) for i in layout.order if i != place])
    # Outer indices that repeat the same matrices are one group.
    for _ in range(systems.ndim if rows else layout.axis):
        if systems.strides[0] and systems.shape[0] != 1:
            break
        systems = systems[0]
    count = systems.size if rows else layout.inner
    return _gather(packed, systems.reshape(-1, count), layout.num_steps)


def _gather(packed: Array, systems: Array, size: int) -> Pack:
    """Blocks of the numbered matrices (groups, count); the last one fills up the last block."""
    lanes = VECTOR_BYTES // packed.itemsize
    groups, count = systems.shape
    blocks = -(-count // lanes)
    found = systems[:, np.minimum(np.arange(blocks * lanes), count - 1)]
    found = found.reshape(groups * blocks, lanes)
    source = packed.reshape(-1, size, COUNT, lanes)
    numbers = np.empty((groups * blocks, size, COUNT, lanes), packed.dtype)
    for lane in range(lanes):
        numbers[..., lane] = source[found[:, lane] // lanes, :, :, found[:, lane] % lanes]
    return Pack(numbers.reshape(-1), groups, count)
