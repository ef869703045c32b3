"""The CPU's scalar functions of recurrences and systems, as device functions.

They compute on numbers or on vectors of them, by functions of `rlcpu.kernels.vectors` that are LLVM
instructions for vectors: a GPU's thread has one number, for which they are written here.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.cuda.compile import device
from rlcpu.cuda.provider import SIMULATED, cuda
from rlcpu.kernels import vectors
from rlcpu.kernels.compile import specialise
from rlcpu.kernels.functions import package_of, rebuild

Functions = dict[Callable[..., Any], Callable[..., Any]]

_libdevice: Any = None if SIMULATED else cuda.libdevice
_EXPONENT32, _LARGEST32 = np.int32(0xFF << 23), np.int32(0xFE << 23)
_EXPONENT64, _LARGEST64 = np.int64(0x7FF << 52), np.int64(0x7FE << 52)


def _fma32(x: Any, y: Any, z: Any) -> Any:
    return _libdevice.fmaf_rn(x, y, z)


def _fma64(x: Any, y: Any, z: Any) -> Any:
    return _libdevice.fma_rn(x, y, z)


def _inverse_power32(x: Any) -> Any:
    """An exponent's bits, all flipped, are those of the inverse; least of all, those of 0."""
    flipped = np.int32(~_libdevice.float_as_int(x)) & _EXPONENT32
    return _libdevice.int_as_float(min(np.int32(flipped), _LARGEST32))


def _inverse_power64(x: Any) -> Any:
    flipped = ~_libdevice.double_as_longlong(x) & _EXPONENT64
    return _libdevice.longlong_as_double(min(flipped, _LARGEST64))


def _smallest_normal32(x: Any) -> Any:
    return _libdevice.int_as_float(np.int32(1 << 23))


def _smallest_normal64(x: Any) -> Any:
    return _libdevice.longlong_as_double(np.int64(1 << 52))


def _otherwise(condition: Any, x: Any, y: Any) -> Any:
    """`where` a condition never holds."""
    return y


#: Elimination without pivoting: no equation is ever swapped, and the compiler knows.
IN_ORDER: Functions = {vectors.where: _otherwise}

_OPERATIONS: dict[Any, Functions] = {
    np.float32: {
        vectors.fma: _fma32,
        vectors.inverse_power: _inverse_power32,
        vectors.smallest_normal: _smallest_normal32,
    },
    np.float64: {
        vectors.fma: _fma64,
        vectors.inverse_power: _inverse_power64,
        vectors.smallest_normal: _smallest_normal64,
    },
}


def device_step(function: Callable[..., Any], dtype: Any, replaced: Functions | None = None) -> Any:
    """Device function that computes what a scalar function does, in IEEE arithmetic of one dtype.

    Args:
        function: plain Python, of numbers and tuples of them.
        dtype: np.float32 or np.float64.
        replaced: functions that it calls, directly or not -> those that it is to call instead.
    """
    operations = {} if SIMULATED else _OPERATIONS[dtype]
    twin = _twin(function, {**operations, **(replaced or {})})
    return device(specialise(twin, dtype, exact=True), dtype)


def _twin(function: Any, replaced: Functions) -> Any:
    """The function with what it calls, in turn, replaced."""
    made: dict[types.FunctionType, Any] = {}

    def convert(_: str, value: Any) -> Any:
        if callable(value) and value in replaced:
            return replaced[value]
        ours = isinstance(value, types.FunctionType) and package_of(value) == "rlcpu"
        return rebuild(value, convert, lambda _: True, made) if ours else value

    return rebuild(function, convert, lambda _: True, made)
