"""Arguments of functions of tridiagonal systems: checked, broadcast, the systems' axis last."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.scan.checks import as_array, as_dtype, check_axis, check_memory, overlaps_itself
from rlcpu.scan.tridiagonal.plan import Array, Arrays

_NAMES = ("lower", "diagonal", "upper", "rhs")
_REAL = (np.dtype(np.float32), np.dtype(np.float64))


class Systems(NamedTuple):
    """Checked arguments.

    Attributes:
        arrays: (batch..., n) views of the arguments and of `result`.
        result: what the caller gets, of the shape that the arguments broadcast to.
        axis: of the systems in `result`, from the first.
    """

    arrays: Arrays
    result: Array
    axis: int


def check_systems(arguments: tuple[npt.ArrayLike, ...], axis: int, out: Array | None) -> Systems:
    """Check coefficients and right-hand sides.

    Args:
        arguments: lower, diagonal, upper and rhs.
        axis: of the systems, in the shape that they broadcast to.
        out: of that shape and their dtype, may be rhs; None for a new array.

    Raises:
        TypeError: an argument is of another dtype than float32 or float64, whole numbers excepted,
            or they are not of one.
        ValueError: shapes do not broadcast, the axis is out of range, or `out` is of another shape,
            read-only, or shares memory with an input that is not exactly the same as it.
    """
    inputs = _common_dtype([as_array(*pair) for pair in zip(_NAMES, arguments, strict=True)])
    shape = _common_shape(inputs)
    axis = check_axis(axis, shape, "rhs, broadcast with the coefficients,")
    dtype = inputs[0].dtype
    result = np.empty(shape, dtype) if out is None else _check_out(out, shape, inputs)
    wide = [a if a.shape == shape else np.broadcast_to(a, shape) for a in (*inputs, result)]
    if axis != len(shape) - 1:
        order = (*range(axis), *range(axis + 1, len(shape)), axis)
        wide = [array.transpose(order) for array in wide]
    return Systems(Arrays(*wide), result, axis)


def _common_dtype(arrays: list[Array]) -> list[Array]:
    """The arrays in the one dtype that is real among them; whole numbers are converted."""
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1 and dtypes <= set(_REAL):
        return arrays
    for name, array in zip(_NAMES, arrays, strict=False):
        if array.dtype.newbyteorder("=") not in _REAL and array.dtype.kind not in "iub":
            expected = "float32, float64 or whole numbers"
            raise TypeError(f"{name}: expected {expected}, got {array.dtype}")
    # A number of Python's fits any dtype.
    real = {a.dtype.newbyteorder("=") for a in arrays if a.dtype.kind == "f" and a.ndim > 0}
    if len(real) > 1:
        found = ", ".join(f"{n} {a.dtype}" for n, a in zip(_NAMES, arrays, strict=False))
        raise TypeError(f"expected arrays of one dtype, got {found}")
    dtype = real.pop() if real else np.dtype(np.float64)
    return [as_dtype(name, array, dtype) for name, array in zip(_NAMES, arrays, strict=True)]


def _common_shape(arrays: list[Array]) -> tuple[int, ...]:
    shape = arrays[-1].shape
    if all(array.shape == shape for array in arrays) and shape:
        return shape
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        found = ", ".join(f"{n} {a.shape}" for n, a in zip(_NAMES, arrays, strict=False))
        raise ValueError(f"expected shapes that broadcast, got {found}") from None
    if not shape:
        raise ValueError("rhs: expected at least one axis, got a number")
    return shape


def _check_out(out: Any, shape: tuple[int, ...], inputs: list[Array]) -> Array:
    check_memory("out", out, inputs[0].dtype)
    if out.shape != shape or not out.flags.writeable:
        found = out.shape if out.flags.writeable else "a read-only one"
        raise ValueError(f"out: expected a writable array of shape {shape}, got {found}")
    if overlaps_itself(out):
        raise ValueError("out: expected an array whose elements do not share memory")
    for name, array in zip(_NAMES, inputs, strict=False):
        same = name == "rhs" and is_same(out, array)
        if not same and np.may_share_memory(out, array) and _shares(out, array):
            raise ValueError(f"out: shares memory with {name}; it may be rhs itself, or apart")
    return out


def is_same(first: Array, second: Array) -> bool:
    """Whether two arrays are the same numbers in memory, in the same order."""
    places = [array.__array_interface__["data"][0] for array in (first, second)]
    layouts = [(array.shape, array.strides) for array in (first, second)]
    return bool(places[0] == places[1] and layouts[0] == layouts[1])


def _shares(first: Array, second: Array) -> bool:
    try:
        work: Any = 10**4  # typed as one of two constants
        return bool(np.shares_memory(first, second, max_work=work))
    except np.exceptions.TooHardError:
        return True


def check_lengths(lengths: npt.ArrayLike, arrays: Arrays) -> Array:
    """Lengths as int64 of the shape of the batch.

    Raises:
        TypeError: they are no whole numbers.
        ValueError: they do not broadcast to the batch, or one is below 0 or above n.
    """
    found = as_array("lengths", lengths)
    batch, n = arrays.out.shape[:-1], arrays.out.shape[-1]
    if found.dtype.kind not in "iu":
        raise TypeError(f"lengths: expected whole numbers, got {found.dtype}")
    try:
        found = np.broadcast_to(found, batch)
    except ValueError:
        raise ValueError(f"lengths: expected shape {batch}, got {found.shape}") from None
    wrong = (found < 0) | (found > n)
    if wrong.any():
        raise ValueError(f"lengths: expected 0 to {n}, got {found[wrong][0]}")
    return found.astype(np.int64)
