"""From the CPU's scalar functions to device functions and kernels.

A kernel here closes over the same functions as a kernel of the CPU: `specialise`d ones, inlined
ones, tables of constants. `device` rebuilds each of them, and what it calls in turn, as a device
function of the provider; in the simulator everything becomes plain Python again.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import is_jitted

from rlcpu.cuda import maths, provider
from rlcpu.kernels import maths as cpu_maths
from rlcpu.kernels.functions import COPY, package_of, rebuild

#: Functions of these packages are known to the provider by their names.
_FOREIGN = ("numba", "numpy", "math", "builtins")


def device(function: Any, dtype: Any = np.float32) -> Any:
    """Device function that computes what a scalar function of the CPU does.

    Args:
        function: plain Python function, or a function compiled by `rlcpu.kernels.compile`
            (`specialise`, `inline`, `inline_exact`).
        dtype: np.float32 or np.float64, its working dtype: decides how the few operations of
            `rlcpu.kernels.maths` that depend on it are computed.

    Returns:
        A function that kernels made by `kernel` inline; in the simulator, plain Python.
    """
    return _device(getattr(function, "py_func", function), np.dtype(dtype).type)


@functools.cache
def _device(function: types.FunctionType, dtype: type) -> Any:
    if function.__module__ == cpu_maths.__name__ and not provider.SIMULATED:
        own = maths.FLOAT32 if dtype is np.float32 else maths.FLOAT64
        function = own.get(function.__name__, function)  # type: ignore[assignment]
    return provider.jit_device(_rebuild(function, dtype))


def _rebuild(function: types.FunctionType, dtype: type) -> Any:
    """The function with all that it calls replaced by device functions."""

    def convert(_: str, value: Any) -> Any:
        plain = isinstance(value, types.FunctionType) and package_of(value) not in _FOREIGN
        if plain or is_jitted(value):
            return device(value, dtype)
        return provider.kernel_module if value is provider.cuda else value

    def stays(module: types.ModuleType) -> bool:
        is_copy = module.__name__.endswith(COPY)
        return module is provider.cuda or (package_of(module) in _FOREIGN and not is_copy)

    return rebuild(function, convert, stays)


class Kernel(NamedTuple):
    """A driver for the device; `rlcpu.cuda.launch.launch` runs it.

    Attributes:
        dispatcher: the provider's kernel, of which tests read the machine code.
        exact: whether its arithmetic is exact, see `rlcpu.cuda.provider.arithmetic`.
    """

    dispatcher: Any
    exact: bool


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    dtype: Any = np.float32,
    exact: bool = False,
    max_registers: int | None = None,
) -> Any:
    """Decorator: a driver as a `Kernel`; the functions that it closes over are rebuilt by `device`.

    Args:
        function: the driver: `cuda.grid(1)`, one environment or system per thread, outputs last,
            returns None.
        dtype: working dtype of the functions that it calls.
        exact: IEEE arithmetic in the order in which it is written, without contraction.
        max_registers: limit per thread, where occupancy is worth more than registers.
    """
    if function is None:
        return functools.partial(kernel, dtype=dtype, exact=exact, max_registers=max_registers)
    options = {} if max_registers is None else {"max_registers": max_registers}
    rebuilt = _rebuild(function, np.dtype(dtype).type)  # type: ignore[arg-type]
    return Kernel(provider.jit_kernel(rebuilt, exact, **options), exact)
