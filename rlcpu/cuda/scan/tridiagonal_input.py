"""Arguments of functions of tridiagonal systems on the device, checked and broadcast."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.operands import is_same, operand, overlap, real_dtype
from rlcpu.cuda.scan.layout import Layout
from rlcpu.scan.arguments import check_axis

NAMES = ("lower", "diagonal", "upper", "rhs")


class Systems(NamedTuple):
    """Checked arguments.

    Attributes:
        layout: of the result.
        inputs: lower, diagonal, upper and rhs, which broadcast to it.
        lengths: (systems,) int64, or None.
        out: overwritten with the result.
    """

    layout: Layout
    inputs: list[DeviceArray]
    lengths: DeviceArray | None
    out: DeviceArray


def check_systems(arguments: tuple[Any, ...], lengths: Any, axis: int, out: Any) -> Systems:
    """Coefficients and right-hand sides, lengths and the array for the result.

    Raises:
        TypeError, ValueError: see `rlcpu.scan.solve_tridiagonal`.
    """
    dtype = common_dtype(NAMES, arguments)
    inputs = [operand(name, value, dtype) for name, value in zip(NAMES, arguments, strict=True)]
    try:
        shape = np.broadcast_shapes(*(array.shape for array in inputs))
    except ValueError:
        found = ", ".join(f"{n} {a.shape}" for n, a in zip(NAMES, inputs, strict=True))
        raise ValueError(f"expected shapes that broadcast, got {found}") from None
    layout = Layout(shape, check_axis(axis, shape, "rhs, broadcast with the coefficients,"))
    target = _check_out(out, inputs, shape, dtype)
    return Systems(layout, inputs, _check_lengths(lengths, layout), target)


def common_dtype(names: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
    """The one dtype of all that are no plain numbers."""
    found = {}
    for name, value in zip(names, arguments, strict=True):
        if arrays.is_device_array(value) or np.ndim(value):
            found[name] = real_dtype(name, value)
    if len(set(found.values())) != 1:
        listed = ", ".join(f"{name} {dtype}" for name, dtype in found.items())
        raise TypeError(f"expected arrays of one dtype, got {listed or 'numbers'}")
    return next(iter(found.values()))


def _check_out(
    out: Any, inputs: list[DeviceArray], shape: tuple[int, ...], dtype: Any
) -> DeviceArray:
    if out is None:
        return arrays.empty(shape, dtype)
    target = arrays.take("out", out, dtype, shape, write=True)
    for name, array in zip(NAMES, inputs, strict=True):
        if overlap(target, array) and not (name == "rhs" and is_same(target, array)):
            raise ValueError(f"out: shares memory with {name}; it may be rhs itself, or apart")
    return target


def _check_lengths(lengths: Any, layout: Layout) -> DeviceArray | None:
    """Lengths as int64 of the shape of the batch, none of them out of range."""
    if lengths is None:
        return None
    found = np.asarray(lengths)
    if found.dtype.kind not in "iu":
        raise TypeError(f"lengths: expected whole numbers, got {found.dtype}")
    try:
        found = np.broadcast_to(found, layout.ends)
    except ValueError:
        raise ValueError(f"lengths: expected shape {layout.ends}, got {found.shape}") from None
    wrong = (found < 0) | (found > layout.num_steps)
    if wrong.any():
        raise ValueError(f"lengths: expected 0 to {layout.num_steps}, got {found[wrong][0]}")
    return arrays.from_host(found, np.int64)
