"""Checks of what users hand to buffers, before anything is written.

All raise TypeError for another kind of thing, and ValueError for what is out of range.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count as check_count
from rlcpu.kernels.compiler.compile import EXACT, kernel

Array = npt.NDArray[Any]

_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)
_NO_INDICES = np.empty(0, np.int64)


def check_number(name: str, value: Any, low: float, high: float) -> float:
    """Return a real number in [low, high], where NaN is not."""
    kind = getattr(getattr(value, "dtype", None), "kind", "f")  # "f" without a dtype
    is_single = not isinstance(value, bool | np.ma.MaskedArray) and not getattr(value, "ndim", 0)
    try:
        if not (is_single and kind in "fiu" and hasattr(value, "__float__")):
            raise TypeError("no real number")
        number = float(value)
    except OverflowError:
        number = np.inf
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}={value!r}: expected a number") from error
    if not low <= number <= high:
        raise ValueError(f"{name}={number}: expected a number in [{low:g}, {high:g}]")
    return number


def check_flag(name: str, value: Any) -> bool:
    """Return True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={value!r}: expected a bool")
    return bool(value)


def check_path(name: str, value: Any) -> Path:
    """Return a path that a file can have; a number would be that of an open file."""
    try:
        path = Path(value)
    except TypeError as error:
        raise TypeError(f"{name}={value!r}: expected a path") from error
    if "\0" in str(path):
        raise ValueError(f"{name}={value!r}: expected a path, without a null character")
    return path


# ---------------------------------------------------------------- indices, and a number for each


# Both stay where they are, on the host or the device of `backend` (`rlcpu.replay.backend`). On the
# host they are copied, so that nobody changes them between their check and their use: neither
# another thread nor a kernel whose memory they are. On the device a kernel reads each of them once.


def take_indices(backend: Any, indices: Any) -> Array:
    """Convert indices to an (n,) int64 array, where they are; no limit is checked."""
    if type(indices) is np.ndarray and indices.dtype is _INT64 and indices.ndim == 1:
        return indices.copy()  # the usual case, in half the time
    array = backend.to_array(indices, "indices")
    empty_list = array.size == 0 and array.dtype == _FLOAT64  # NumPy's dtype of []
    if array.dtype.kind not in "iu" and not empty_list:
        raise TypeError(f"indices: expected whole numbers, got {array.dtype}")
    if array.ndim > 1:
        raise ValueError(f"indices: expected shape (n,), got {array.shape}")
    on_host = type(array) is np.ndarray
    # Numbers of the device become negative, which its tree refuses.
    if on_host and array.dtype == np.uint64 and (beyond := array > np.iinfo(np.int64).max).any():
        raise IndexError(f"indices: {array[beyond].ravel()[0]} is out of range")
    array = array.astype(_INT64, copy=on_host)
    return array if array.ndim else array.reshape(1)


def take_numbers(backend: Any, name: str, numbers: Any, count: int) -> Array:
    """Convert real numbers, or one to repeat, to a (count,) float64 array, where they are.

    An array of float32 on the device stays as it is: kernels take it, too.
    """
    if type(numbers) is np.ndarray and numbers.dtype is _FLOAT64 and numbers.shape == (count,):
        return numbers.copy()
    if type(numbers) is not float:
        array = backend.to_array(numbers, name)
        if array.dtype.kind not in "fiu":
            raise TypeError(f"{name}: expected real numbers, got {array.dtype}")
        if array.shape not in ((), (count,)):
            raise ValueError(f"{name}: expected shape ({count},), got {array.shape}")
        if type(array) is not np.ndarray:
            dtype = array.dtype if array.dtype == np.float32 else _FLOAT64
            if array.ndim:
                return array.astype(dtype, copy=False)
            out = backend.empty(count, dtype)
            out[:] = array
            return out
        if array.ndim:
            return array.astype(_FLOAT64)
        numbers = float(array)
    return np.full(count, numbers)


class PairLimits(NamedTuple):
    """Ranges of indices, [0, capacity), and of the numbers that go with them, [low, high]."""

    capacity: int
    low: float
    high: float


class LeafRule(NamedTuple):
    """Says which numbers a tree takes, and which leaves it makes of them.

    Each environment has `per_env` leaves, side by side. Some of the numbers are passed over: those
    of leaves k of an environment with (k - begin) % per_env >= num_present.
    """

    capacity: int  # indices are in [0, capacity),
    low: float  # and numbers in [low, high]
    high: float
    per_env: int
    written: int  # leaves of an environment that were written, the first ones
    begin: int
    num_present: int
    is_power: bool = False  # whether leaves are (number + epsilon) ** alpha; or the numbers
    epsilon: float = 0.0
    alpha: float = 1.0


@kernel(fastmath=EXACT)
def first_offender(indices, numbers, capacity, low, high):
    """Return the position of the first index or number that is out of its range; -1 for none.

    `indices` and `numbers` are (n,); without indices numbers alone are looked at.
    """
    num_wrong, has_indices = 0, indices.size == numbers.size
    # All are looked at, without a branch, so that LLVM makes vectors of them.
    for k in range(numbers.size):
        index = indices[k] if has_indices else 0
        index_fits = (index >= 0) & (index < capacity)
        number_fits = (numbers[k] >= low) & (numbers[k] <= high)
        num_wrong += not (index_fits & number_fits)
    if num_wrong:
        for k in range(numbers.size):
            index = indices[k] if has_indices else 0
            if not (0 <= index < capacity and low <= numbers[k] <= high):
                return k
    return -1


def check_pairs(
    backend: Any, name: str, indices: Any, numbers: Any, limits: PairLimits
) -> tuple[Array, Array]:
    """Return (n,) indices, and a number for each, or one for all, as arrays, where they are.

    IndexError if an index is out of its range. What is on a CUDA device is not looked at here,
    which would wait for it: the tree's own kernel checks it.
    """
    array = take_indices(backend, indices)
    values = take_numbers(backend, name, numbers, array.size)
    indices_here, values_here = type(array) is np.ndarray, type(values) is np.ndarray
    if not (indices_here or values_here):
        return array, values
    looked_at = values if values_here else np.full(array.size, limits.low)
    place = first_offender(array if indices_here else _NO_INDICES, looked_at, *limits)
    if place >= 0:
        if not indices_here:
            raise _out_of_range(name, float(values[place]), f"at {place}", limits)
        index = int(array[place])
        if not 0 <= index < limits.capacity:
            expected = f"expected 0 to {limits.capacity - 1}"
            raise IndexError(f"indices: {index} is out of range, {expected}")
        raise _out_of_range(name, float(values[place]), f"for index {index}", limits)
    return array, values


def check_range(backend: Any, name: str, numbers: Any, count: int, limits: PairLimits) -> Array:
    """Return numbers (count,), or one for all, on a device; `limits` count for the numbers.

    Those on a CUDA device are waited for: what is stored with them would not be undone.
    """
    values = take_numbers(backend, name, numbers, count)
    if type(values) is np.ndarray:
        place = first_offender(_NO_INDICES, values, *limits)
    else:
        is_bad = ~((values >= limits.low) & (values <= limits.high))
        place = int(is_bad.argmax()) if is_bad.any() else -1
    if place >= 0:
        raise _out_of_range(name, float(values[place]), f"at {place}", limits)
    return backend.asarray(values, _FLOAT64)


def _out_of_range(name: str, value: float, place: str, limits: PairLimits) -> ValueError:
    expected = f"a finite number in [{limits.low:.3g}, {limits.high:.3g}]"
    return ValueError(f"{name}: {value} {place}, expected {expected}")
