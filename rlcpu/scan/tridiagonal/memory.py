"""Copies of arrays whose memory no kernel takes as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.scan.tridiagonal.plan import Array, batch_order


def contiguous(array: Array, axis: int) -> Array:
    """The array, or a copy of it, with numbers next to each other along an axis.

    What is repeated along the other axes stays so.
    """
    size = array.itemsize
    even = array.flags.aligned and not any(stride % size for stride in array.strides)
    if even and (array.strides[axis] == size or array.shape[axis] == 1):
        return array
    axis %= array.ndim
    once: Any = tuple(
        slice(0, 1) if stride == 0 and i != axis else slice(None)
        for i, stride in enumerate(array.strides)
    )
    copy = np.moveaxis(np.ascontiguousarray(np.moveaxis(array[once], axis, -1)), -1, axis)
    return np.broadcast_to(copy, array.shape) if copy.shape != array.shape else copy


def side_by_side(out: Array) -> int | None:
    """The batch axis along which systems lie next to each other, None if unknowns do."""
    order = [i for i in batch_order(out.shape, out.strides) if out.shape[i] > 1]
    if not order or out.strides[order[-1]] != out.itemsize:
        return None
    return order[-1] if out.shape[-1] == 1 or out.strides[-1] != out.itemsize else None
