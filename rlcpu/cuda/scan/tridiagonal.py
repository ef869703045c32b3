"""Many tridiagonal systems at once, on the device."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch_grid
from rlcpu.cuda.operands import constants, is_same, operand, overlap, real_dtype
from rlcpu.cuda.scan.layout import Layout
from rlcpu.cuda.scan.machine import machine
from rlcpu.cuda.scan.tridiagonal_columns import column_kernel
from rlcpu.cuda.scan.tridiagonal_rings import ring_kernel
from rlcpu.cuda.scan.tridiagonal_rows import WARP, row_kernel
from rlcpu.cuda.scan.tridiagonal_steps import make_steps
from rlcpu.scan.checks import check_axis
from rlcpu.scan.tridiagonal.drive import METHODS
from rlcpu.scan.tridiagonal.status import SingularSystemError, TridiagonalInfo

_NAMES = ("lower", "diagonal", "upper", "rhs")
#: Threads of a multiprocessor that are worth having, whatever their scratch takes.
_LEAST, _MOST = 64, 1024


class Mode(NamedTuple):
    """How to solve."""

    pivoting: bool
    periodic: bool


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


def solve_tridiagonal(
    lower: Any,
    diagonal: Any,
    upper: Any,
    rhs: Any,
    *,
    axis: int = -1,
    method: Literal["pivot", "thomas"] = "pivot",
    periodic: bool = False,
    lengths: Any = None,
    check: Literal["residual"] | None = None,
    return_info: bool = False,
    out: Any = None,
) -> Any:
    """`rlcpu.scan.solve_tridiagonal` of C-contiguous arrays on the device.

    Numbers and arrays on the host are copied there. Any axis will do for the unknowns; the last one
    goes through shared memory, unless systems are periodic. With `return_info` nothing is read
    back: the call returns before the result is there, and the statuses stay on the device.

    Raises:
        NotImplementedError: `check`, which the CPU has.
        SingularSystemError, TypeError, ValueError: see `rlcpu.scan.solve_tridiagonal`.
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r}: expected one of {', '.join(map(repr, METHODS))}")
    if check is not None:
        raise NotImplementedError(f"check={check!r}: not on the device, but on the CPU")
    systems = check_systems((lower, diagonal, upper, rhs), lengths, axis, out)
    layout = systems.layout
    status = arrays.empty(layout.ends, np.int8)
    if not systems.out.size:
        return _answer(systems, arrays.zeros(layout.ends, np.int8), out, return_info)
    failed = arrays.zeros(1, np.int32)
    _solve(systems, Mode(method == "pivot", bool(periodic)), status, failed)
    if not return_info and failed.copy_to_host()[0]:
        raise SingularSystemError(status.copy_to_host())
    return _answer(systems, status, out, return_info)


def _answer(systems: Systems, status: DeviceArray, out: Any, return_info: bool) -> Any:
    found = systems.out if out is None else out
    return (found, TridiagonalInfo(status, None)) if return_info else found


def _solve(systems: Systems, mode: Mode, status: DeviceArray, failed: DeviceArray) -> None:
    """Launch the kernel that suits how the systems lie."""
    layout, out = systems.layout, systems.out
    strides = [
        layout.strides(name, array)
        for name, array in zip((*_NAMES, "out"), (*systems.inputs, out), strict=True)
    ]
    own = int(systems.lengths is not None)
    sizes = layout.outer, layout.num_steps, layout.inner, own
    plan = constants((*sizes, *(s[i] for i in range(3) for s in strides)), np.dtype(np.int64))
    dtype: Any = out.dtype.type
    row = make_steps(dtype, mode.pivoting or mode.periodic).keeps * layout.num_steps
    threads = _threads(layout.outer * layout.inner, row * out.dtype.itemsize)
    pivots = arrays.empty(row * threads, out.dtype)
    make = row_kernel if layout.inner == 1 else column_kernel
    driver = (ring_kernel if mode.periodic else make)(dtype, mode.pivoting)
    lengths = plan if systems.lengths is None else systems.lengths
    arguments = (*systems.inputs, lengths, plan, pivots, out, status, failed)
    launch_grid(driver, threads // WARP, WARP, *arguments)


def _threads(systems: int, each: int) -> int:
    """Threads of the grid, whole warps: as many as three quarters of the second cache hold."""
    device = machine()
    fitting = max(3 * device.cache // 4 // each, _LEAST * device.multiprocessors)
    most = min(fitting, _MOST * device.multiprocessors, systems)
    return -(-most // WARP) * WARP


def check_systems(arguments: tuple[Any, ...], lengths: Any, axis: int, out: Any) -> Systems:
    """Coefficients and right-hand sides, lengths and the array for the result.

    Raises:
        TypeError, ValueError: see `rlcpu.scan.solve_tridiagonal`.
    """
    dtype = _common_dtype(arguments)
    inputs = [operand(name, value, dtype) for name, value in zip(_NAMES, arguments, strict=True)]
    try:
        shape = np.broadcast_shapes(*(array.shape for array in inputs))
    except ValueError:
        found = ", ".join(f"{n} {a.shape}" for n, a in zip(_NAMES, inputs, strict=True))
        raise ValueError(f"expected shapes that broadcast, got {found}") from None
    layout = Layout(shape, check_axis(axis, shape, "rhs, broadcast with the coefficients,"))
    target = _check_out(out, inputs, shape, dtype)
    return Systems(layout, inputs, _check_lengths(lengths, layout), target)


def _common_dtype(arguments: tuple[Any, ...]) -> Any:
    """The one dtype of all that are no plain numbers."""
    found = {}
    for name, value in zip(_NAMES, arguments, strict=True):
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
    for name, array in zip(_NAMES, inputs, strict=True):
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
