"""Arguments of functions on the device: arrays, numbers, and arrays for results."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.cuda import arrays, provider
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.provider import SIMULATED


def constants(numbers: tuple[float, ...], dtype: Any) -> DeviceArray:
    """A few numbers on the device; the same ones are copied there once."""
    return _constants(numbers, dtype, provider.current_device())


@functools.lru_cache(maxsize=256)
def _constants(numbers: tuple[float, ...], dtype: Any, device: int) -> DeviceArray:
    return arrays.from_host(np.array(numbers), dtype)


def real_dtype(name: str, value: Any) -> Any:
    """The dtype of an array of ours, of another library or of the host, if it is a real one.

    Raises:
        TypeError: it is another, or there is none.
    """
    interface = None
    if not isinstance(value, DeviceArray):
        interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        dtype = np.dtype(interface["typestr"])
    else:
        dtype = np.dtype(value.dtype if arrays.is_device_array(value) else np.asarray(value).dtype)
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"{name}: expected float32 or float64, got {dtype}")
    return dtype


def operand(name: str, value: Any, dtype: Any, shape: tuple[int, ...] | None = None) -> DeviceArray:
    """An argument as an array on the device: one that is there, a host array, or a number.

    Raises:
        TypeError, ValueError: see `rlcpu.cuda.arrays.take`.
    """
    if shape is None and not arrays.is_device_array(value) and np.ndim(value) == 0:
        kind = np.asarray(value).dtype.kind
        if kind not in "iuf":
            raise TypeError(f"{name}={value!r}: expected a number")
        return constants((value,), np.dtype(dtype)).view(())
    return arrays.take(name, value, dtype, shape)


def result(name: str, out: Any, shape: tuple[int, ...], dtype: Any, taken: Any) -> DeviceArray:
    """An array for a result: a new one, or `out` if it can be overwritten.

    Args:
        name: of the argument.
        out: the argument, or None.
        shape: of the result.
        dtype: of the result.
        taken: arrays that it may not overlap.

    Raises:
        TypeError, ValueError: see `rlcpu.cuda.arrays.take`; or it overlaps another array.
    """
    if out is None:
        return arrays.empty(shape, dtype)
    found = arrays.take(name, out, dtype, shape, write=True)
    if any(overlap(found, array) for array in taken):
        raise ValueError(f"{name}: overlaps another array")
    return found


def address(array: DeviceArray) -> int:
    """Where an array begins."""
    if SIMULATED:
        return int(array.memory._ary.__array_interface__["data"][0])
    return int(array.memory.pointer)


def overlap(first: DeviceArray, second: DeviceArray) -> bool:
    """Whether two contiguous arrays share memory."""
    one, other = address(first), address(second)
    return one < other + second.nbytes and other < one + first.nbytes


def is_same(first: DeviceArray, second: DeviceArray) -> bool:
    """Whether two contiguous arrays are the same numbers."""
    return address(first) == address(second) and first.shape == second.shape
