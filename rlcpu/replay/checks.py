"""Checks of what users hand to buffers, before anything is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count as check_count

Array = npt.NDArray[Any]

_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)


def check_number(name: str, value: Any, low: float, high: float) -> float:
    """A real number in [low, high].

    Raises:
        TypeError: it is no real number.
        ValueError: it is outside, or NaN.
    """
    if isinstance(value, bool | np.bool_ | str) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}={value!r}: expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = np.inf
    if not low <= number <= high:
        raise ValueError(f"{name}={number}: expected a number in [{low:g}, {high:g}]")
    return number


def check_indices(indices: Any) -> Array:
    """Indices as a new (n,) int64 array; not yet compared with any limit.

    They are copied, so that nobody changes them between their check and their use: neither another
    thread nor a kernel whose memory they are.

    Raises:
        TypeError: they are no whole numbers, or masked.
        ValueError: they have more than one axis.
    """
    if type(indices) is np.ndarray and indices.dtype is _INT64 and indices.ndim == 1:
        return indices.copy()  # the usual case, in half the time
    array = _read("indices", indices)
    empty_list = array.size == 0 and array.dtype == _FLOAT64
    if array.dtype.kind not in "iu" and not empty_list:
        raise TypeError(f"indices: expected whole numbers, got {array.dtype}")
    if array.ndim > 1:
        raise ValueError(f"indices: expected shape (n,), got {array.shape}")
    if array.dtype != _INT64:
        beyond = array > np.iinfo(np.int64).max if array.dtype.kind == "u" else np.False_
        if np.any(beyond):
            raise IndexError(f"indices: {array[beyond].ravel()[0]} is out of range")
    return array.astype(_INT64).reshape(-1)


def check_numbers(name: str, numbers: Any, count: int) -> Array:
    """Real numbers as a new (count,) float64 array, see `check_indices`; one number is repeated.

    Raises:
        TypeError: they are no real numbers, or masked.
        ValueError: they are as many as they should not be.
    """
    if type(numbers) is float:
        return np.full(count, numbers)
    if type(numbers) is np.ndarray and numbers.dtype is _FLOAT64 and numbers.shape == (count,):
        return numbers.copy()
    array = _read(name, numbers)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name}: expected real numbers, got {array.dtype}")
    if array.ndim == 0:
        return np.full(count, array, np.float64)
    if array.shape != (count,):
        raise ValueError(f"{name}: expected shape ({count},), got {array.shape}")
    return array.astype(_FLOAT64)


def _read(name: str, value: Any) -> Array:
    """An array of what NumPy can read as one; TypeError where a mask would be passed over."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask, as that of .filled()")
    return np.asarray(value)


def refuse(name: str, index: int, number: float, capacity: int, expected: str) -> Exception:
    """The exception for a pair that `first_offender` found."""
    if not 0 <= index < capacity:
        return IndexError(f"indices: {index} is out of range, expected 0 to {capacity - 1}")
    return ValueError(f"{name}: {number} for index {index}, expected {expected}")
