"""From scalar functions to device functions and kernels.

A kernel here closes over the same functions as a kernel of the CPU: rules, `specialise`d functions,
tables of constants. numba-cuda compiles the CPU's compiled functions for the device by itself, but
neither plain functions, nor what the simulator needs: plain Python all the way down. So a kernel is
rebuilt with each function that it calls, and what that calls in turn, as a device function.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numba.extending import is_jitted

from rlcpu.cuda import maths
from rlcpu.cuda.device import SIMULATED, cuda
from rlcpu.kernels.compiler.functions import COPY, package_of, rebuild
from rlcpu.kernels.compiler.linking import context_class

#: Functions of these packages are known to the compiler by their names.
_FOREIGN = ("numba", "numpy", "math", "builtins")


class _SimulatedModule:
    """`cuda` inside simulated kernels.

    The simulator puts its module into a function's globals while a thread runs it, and takes it
    away although other threads of the block are still there; this one looks it up at every use.
    """

    def __getattr__(self, name: str) -> Any:
        from numba.cuda.simulator import kernel

        return getattr(kernel._get_kernel_context(), name)


_module: Any = _SimulatedModule() if SIMULATED else cuda


class Kernel(NamedTuple):
    """A driver for the device; `rlcpu.cuda.device.launch` runs it."""

    dispatcher: Any  # the compiler's kernel, of which tests read the machine code
    exact: bool  # whether its arithmetic is exact, see `arithmetic`


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    exact: bool = False,
    max_registers: int | None = None,
) -> Any:
    """Return a decorator that makes a `Kernel` of a driver, whose closure `device` rebuilds.

    It is compiled at its first launch with arguments of new types.

    Args:
        function: the driver: `cuda.grid(1)`, one environment or system per thread, outputs last,
            returns None.
        exact: IEEE arithmetic in the order in which it is written, without contraction. Otherwise
            multiplications are fused with additions, divisions and roots are within 2 ulp, and
            subnormals are 0; NaN and infinity keep their meaning.
        max_registers: limit per thread, where occupancy is worth more than registers.
    """
    if function is None:
        return functools.partial(kernel, exact=exact, max_registers=max_registers)
    rebuilt = _rebuild(function)  # type: ignore[arg-type]
    if SIMULATED:
        return Kernel(cuda.jit(rebuilt), exact)
    options = {} if max_registers is None else {"max_registers": max_registers}
    # Link-time optimisation would leave the machine code to the linker, without NVVM's switches.
    dispatcher = cuda.jit(lto=False, fastmath=not exact, **options)(rebuilt)
    compile_signature: Any = dispatcher.compile

    def compile_with_arithmetic(signature: Any) -> Any:
        with arithmetic(exact):
            return compile_signature(signature)

    dispatcher.compile = compile_with_arithmetic  # the dispatcher calls it at a launch of new types
    return Kernel(dispatcher, exact)


def device(function: Any) -> Any:
    """Return a device function that computes what a scalar function of the CPU does.

    Args:
        function: plain Python function, or a function compiled by `rlcpu.kernels.compiler.compile`
            (`specialise`, `inline`).

    Returns:
        A function that kernels made by `kernel` inline; in the simulator, plain Python.
    """
    return _device(getattr(function, "py_func", function), getattr(function, "rules", None))


@functools.cache
def _device(function: types.FunctionType, rules: Any) -> Any:
    """Make the device function of plain Python; for `rules` see `_with_rules`."""
    if SIMULATED:
        return _rebuild(function)
    if function in maths.OVERLOADED:  # its overload is compiled in its place
        return function
    dispatcher = cuda.jit(device=True, forceinline=True)(_rebuild(function))
    dispatcher.compile_device = _with_rules(dispatcher.compile_device, rules)
    return dispatcher


def _with_rules(compile: Callable[..., Any], rules: Any) -> Callable[..., Any]:
    """Return `compile`, the compiler of a device function, by its own rules of types.

    `rules` are `linking.TypeRules`, or None for numba-cuda's. That has one typing context, and
    compiles a function while it compiles another one that calls it: the context is given the rules
    for as long as this function takes.
    """
    from numba.cuda.descriptor import cuda_target

    def compile_device(*args: Any, **options: Any) -> Any:
        """Compile the device function, by its own rules while that takes."""
        context = cuda_target.typing_context
        before = context.__class__
        plain = context.plain_class = getattr(context, "plain_class", before)
        context.__class__ = plain if rules is None else context_class(plain, rules)
        try:
            return compile(*args, **options)
        finally:
            context.__class__ = before

    return compile_device


def _rebuild(function: types.FunctionType) -> Any:
    """Return the function with all that it calls replaced by device functions."""

    def convert(name: str, value: Any) -> Any:
        """Return what stands for a global or closed-over value of the function."""
        plain = isinstance(value, types.FunctionType) and package_of(value) not in _FOREIGN
        if plain or is_jitted(value):
            return device(value)
        if isinstance(value, np.ufunc):
            return maths.ufuncs.get(value, value)
        return _module if value is cuda else value

    def stays(module: types.ModuleType) -> bool:
        """Tell whether the compiler knows a module itself."""
        is_copy = module.__name__.endswith(COPY)
        return module is cuda or (package_of(module) in _FOREIGN and not is_copy)

    return rebuild(function, convert, stays)


_lock = threading.RLock()


@contextlib.contextmanager
def arithmetic(exact: bool) -> Iterator[None]:
    """Compile exact arithmetic inside the block, if asked to.

    `cuda.jit(fastmath=True)` is what is wanted of a fast kernel: it sets NVVM's switches, and does
    not assume that no NaN exists. Nothing public keeps NVVM from contracting multiplications with
    additions, which it does by default: its switch is set here.
    """
    if not exact or SIMULATED:
        yield
        return
    from numba.cuda import codegen

    nvvm = codegen.nvvm
    with _lock:
        plain, compiling = nvvm.compile_ir, threading.get_ident()

        def compile_ir(ir: Any, **options: Any) -> Any:
            # Other threads may compile kernels of their own meanwhile.
            switches = {"fma": False} if threading.get_ident() == compiling else {}
            return plain(ir, **(options | switches))

        nvvm.compile_ir = compile_ir
        try:
            yield
        finally:
            nvvm.compile_ir = plain
