"""Arrays of any strides as (outer, n, inner), in rows or in columns: views where possible."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.memory import VECTOR_BYTES
from rlcpu.scan.layout import AxesOrder, layout_of

Array = npt.NDArray[Any]


class LaneInput(NamedTuple):
    """An input of a lane function.

    Attributes:
        array: (outer, n, inner).
        other: 0 or 1, in the place of numbers that are not there.
        reach: -1 if equation k is about unknown k - 1, so that the first one means nothing and is
            never read; 1 if it is about k + 1, and the last one is never read; else 0.
        shift: equation k is number k + shift of the array; -1 and 1 want a reach of the same sign.
    """

    array: Array
    other: int = 0
    reach: int = 0
    shift: int = 0


def layout_of_systems(out: Array, in_rows: bool) -> AxesOrder:
    """Return how systems (batch..., n) are computed that are written to `out`.

    Columns where systems are side by side there, and fill a register; else, or if they have to be
    `in_rows`, rows.
    """
    layout: AxesOrder = layout_of(out, out.ndim - 1)
    if in_rows or 1 < layout.inner < VECTOR_BYTES // out.itemsize:
        layout = layout_of(np.empty(out.shape, out.dtype), out.ndim - 1)  # never written
    return layout


def arranged(layout: AxesOrder, array: Array) -> Array:
    """Return an array (batch..., n) as (outer, n, inner) of the layout, copied if it has to be.

    What is repeated over systems, stride 0, stays so: of columns, a register of numbers in the
    place of one.
    """
    whole = layout.flat(array)
    run = 1 if layout.inner == 1 else 2
    is_run = whole.strides[run] == whole.itemsize or whole.shape[run] == 1
    if is_run and array.flags.aligned and not any(s % whole.itemsize for s in whole.strides):
        return whole
    once = whole[tuple(slice(None if s else 1) for s in whole.strides)]
    if once.shape[1] < whole.shape[1] and run == 1:
        once = np.broadcast_to(once, (once.shape[0], *whole.shape[1:]))
    if run == 2 and once.shape[2] == 1:
        once = np.repeat(once, VECTOR_BYTES // once.itemsize, 2)
    once = np.ascontiguousarray(once)
    sizes = zip(once.strides, once.shape, whole.shape, strict=True)
    strides = [stride if size == full else 0 for stride, size, full in sizes]
    return np.lib.stride_tricks.as_strided(once, whole.shape, strides, writeable=False)


def target_of(layout: AxesOrder, out: Array) -> tuple[Array, Array]:
    """Return what results are written to, `out` or a new array, and that as (outer, n, inner)."""
    target = out
    if layout.target(out) is None or not out.flags.aligned:
        target = layout.empty(out.dtype)
    sizes = layout.outer, layout.num_steps, layout.inner
    return target, target.transpose(layout.order).reshape(sizes)  # a view of it


def by_system(layout: AxesOrder, numbers: Array) -> Array:
    """Return numbers of systems, in the order of the layout, as (batch...)."""
    axes = [i for i in layout.order if i != len(layout.order) - 1]
    sizes = [size for i, size in enumerate(layout.shape) if i != layout.axis]
    return numbers.reshape(sizes).transpose(np.argsort(axes))
