"""Checks of arguments: what is wrong is named before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_REAL = (np.dtype(np.float32), np.dtype(np.float64))


def as_array(name: str, value: npt.ArrayLike) -> Array:
    """The argument as an array.

    Raises:
        TypeError: it is masked, or nothing that NumPy makes an array of.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: masked arrays are not taken; fill it in first (`filled`)")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: expected an array of numbers; NumPy says: {error}") from None


def check_real(name: str, array: npt.ArrayLike, dtype: Any = None) -> Array:
    """The argument as an array of float32 or float64; whole numbers become float64.

    Args:
        name: of the argument.
        array: the argument.
        dtype: of the arrays that it goes together with; a single number becomes that.

    Raises:
        TypeError: it is of another dtype.
        ValueError: a single number is too large for the dtype.
    """
    found = as_array(name, array)
    if found.dtype == dtype:
        return found
    if dtype is not None and found.ndim == 0 and found.dtype.kind in "iuf":
        return as_dtype(name, found, dtype)
    real = found.astype(np.float64) if found.dtype.kind in "iu" else found
    if real.dtype not in (_REAL if dtype is None else (dtype,)):
        expected = "float32 or float64" if dtype is None else str(np.dtype(dtype))
        got = type(array).__name__ if found.dtype == object else found.dtype
        raise TypeError(f"{name}: expected {expected}, got {got}")
    return real


def as_dtype(name: str, array: Array, dtype: Any) -> Array:
    """The numbers in another dtype.

    Raises:
        ValueError: a number is too large for it.
    """
    with np.errstate(over="ignore"):
        found = array.astype(dtype, copy=False)
    if array.ndim == 0 and np.isinf(found) and not np.isinf(array):
        raise ValueError(f"{name}={array}: too large for {np.dtype(dtype)}")
    return found


def check_shape(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """The array itself, if it has the shape.

    Raises:
        ValueError: it has another.
    """
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    return array


def check_flags(name: str, array: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    """The argument as an array of bool.

    Raises:
        TypeError: it is of another dtype.
        ValueError: it has another shape.
    """
    found = as_array(name, array)
    if found.dtype != np.bool_:
        raise TypeError(f"{name}: expected bool, got {found.dtype}")
    return check_shape(name, found, shape)


def check_axis(axis: int, shape: tuple[int, ...], name: str) -> int:
    """The axis, counted from the first, of the array of that name and shape.

    Raises:
        TypeError: it is no whole number.
        ValueError: the array has no such axis.
    """
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool):
        raise TypeError(f"axis={axis!r}: expected an int")
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis={axis}: {name} has {len(shape)} axes, shape {shape}")
    return int(axis) % len(shape)


def check_factor(name: str, value: npt.ArrayLike, shape: tuple[int, ...], dtype: Any) -> Array:
    """A number in [0, 1], or an array of one number for every step, which may be any.

    Raises:
        TypeError: it is of another dtype.
        ValueError: a single number is out of range, or an array does not broadcast to the shape.
    """
    found = check_real(name, value, dtype)
    if found.ndim == 0 and not 0.0 <= found <= 1.0:
        raise ValueError(f"{name}={found}: expected a number in [0, 1]")
    return check_broadcast(name, found, shape)


def check_broadcast(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """The array itself, if it can be repeated to fill the shape.

    Raises:
        ValueError: it cannot.
    """
    if array.ndim == 0:
        return array
    pairs = zip(reversed(array.shape), reversed(shape), strict=False)
    if array.ndim > len(shape) or any(size not in (1, length) for size, length in pairs):
        raise ValueError(f"{name}: expected a shape that broadcasts to {shape}, got {array.shape}")
    return array


def check_out(name: str, out: Any, like: Array, inputs: Iterable[Array]) -> Array:
    """An array that can be overwritten with the result, if it is one.

    Args:
        name: of the argument.
        out: the argument.
        like: an array of the result's shape and dtype.
        inputs: arrays that it may not overlap.

    Raises:
        TypeError: it is no array, a masked one or a matrix, or of another dtype.
        ValueError: it has another shape, is read-only, or overlaps an input or itself.
    """
    check_memory(name, out, like.dtype)
    check_shape(name, out, like.shape)
    if not out.flags.writeable:
        raise ValueError(f"{name}: read-only, expected an array that can be written")
    if overlaps_itself(out):
        raise ValueError(f"{name}: expected an array whose elements do not share memory")
    if any(np.may_share_memory(out, array) for array in inputs):
        raise ValueError(f"{name}: overlaps another array")
    return out


def check_memory(name: str, out: Any, dtype: Any) -> None:
    """Raise TypeError for what is no plain array of a dtype, in which kernels could write."""
    odd = type(out) is not np.ndarray and (
        not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray | np.matrix)
    )
    if odd or out.dtype != dtype:
        found = type(out).__name__ if odd else out.dtype
        raise TypeError(f"{name}: expected an array of {dtype}, got {found}")


def overlaps_itself(array: Array) -> bool:
    """Whether elements may share memory: a stride is shorter than what the finer axes reach."""
    if array.flags.forc or array.size <= 1:
        return False
    reach = array.itemsize
    for stride, length in sorted(
        (abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)
    ):
        if length > 1:
            if stride < reach:
                return True
            reach += stride * (length - 1)
    return False
