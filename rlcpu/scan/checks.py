"""Checks of arguments: what is wrong is named before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_REAL = (np.dtype(np.float32), np.dtype(np.float64))


def check_real(name: str, array: npt.ArrayLike, dtype: Any = None) -> Array:
    """The argument as an array of float32 or float64; whole numbers become float64.

    Args:
        name: of the argument.
        array: the argument.
        dtype: of the arrays that it goes together with; a single number becomes that.

    Raises:
        TypeError: it is of another dtype.
    """
    found = np.asarray(array)
    if found.dtype == dtype:
        return found
    if dtype is not None and found.ndim == 0 and found.dtype.kind in "iuf":
        return found.astype(dtype)
    real = found.astype(np.float64) if found.dtype.kind in "iu" else found
    if real.dtype not in (_REAL if dtype is None else (dtype,)):
        expected = "float32 or float64" if dtype is None else str(np.dtype(dtype))
        raise TypeError(f"{name}: expected {expected}, got {found.dtype}")
    return real


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
    found = np.asarray(array)
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
        TypeError: it is no array, or of another dtype.
        ValueError: it has another shape, is read-only or overlaps an input.
    """
    if not isinstance(out, np.ndarray) or out.dtype != like.dtype:
        found = getattr(out, "dtype", type(out))
        raise TypeError(f"{name}: expected an array of {like.dtype}, got {found}")
    check_shape(name, out, like.shape)
    if not out.flags.writeable:
        raise ValueError(f"{name}: read-only, expected an array that can be written")
    if any(np.may_share_memory(out, array) for array in inputs):
        raise ValueError(f"{name}: overlaps another array")
    return out
