"""From scalar functions to device functions and kernels.

A kernel here closes over the same functions as a kernel of the CPU: rules, `specialise`d functions,
tables of constants. numba-cuda compiles the CPU's compiled functions for the device by itself, but
neither plain functions, nor what the simulator needs: plain Python all the way down. So a kernel is
rebuilt with each function that it calls, and what that calls in turn, as a device function.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba.extending import is_jitted

from rlcpu.cuda import maths
from rlcpu.cuda.device import SIMULATED, cuda
from rlcpu.kernels.compiler import announce, cache
from rlcpu.kernels.compiler.functions import COPY, fingerprint, package_of, rebuild
from rlcpu.kernels.compiler.linking import context_class

#: Functions of these packages are known to the compiler by their names.
_FOREIGN = ("numba", "numpy", "math", "builtins")
#: Switches of NVIDIA's linker, which makes the machine code: IEEE arithmetic as it is written, and
#: what `kernel` promises otherwise.
_EXACT, _FAST = ("-fma=0",), ("-ftz=1", "-prec-div=0", "-prec-sqrt=0")


class _SimulatedModule:
    """`cuda` inside simulated kernels.

    The simulator puts its module into a function's globals while a thread runs it, and takes it
    away although other threads of the block are still there; this one looks it up at every use.
    """

    def __getattr__(self, name: str) -> Any:
        from numba.cuda.simulator import kernel

        return getattr(kernel._get_kernel_context(), name)


_module: Any = _SimulatedModule() if SIMULATED else cuda


class Kernel:
    """A driver for the device; `rlcpu.cuda.device.launch` runs it.

    Attributes:
        function: the driver, plain Python.
        exact, max_registers: see `kernel`.
        dispatcher: the simulator's kernel; None elsewhere.
        loaded: what `launch` has loaded of it, by the device and the kinds of the arguments.
    """

    def __init__(
        self, function: types.FunctionType, exact: bool, max_registers: int | None
    ) -> None:
        self.function, self.exact, self.max_registers = function, exact, max_registers
        self.dispatcher: Any = cuda.jit(_rebuild(function)) if SIMULATED else None
        self.loaded: dict[tuple[Any, ...], Any] = {}

    def machine_code(self, kinds: tuple[Any, ...], capability: tuple[int, int]) -> bytes:
        """Return the machine code for a device, which is compiled now or was kept on disk.

        Args:
            kinds: numba's types of the arguments.
            capability: compute capability of the device, such as (9, 0).

        Raises:
            RuntimeError: it cannot be linked; the message has NVIDIA's reasons.
        """

        def make() -> bytes:
            with announce.announced("CUDA kernels", self.function.__name__):
                return self.link(self.compile(kinds, capability), capability)[0]

        with announce.time_counted():
            return cache.read_or_make(self._path(kinds, capability), make)

    def _path(self, kinds: tuple[Any, ...], capability: tuple[int, int]) -> Path | None:
        """Return the file of the machine code; its name is a hash of all that decides the code."""
        folder = cache.cache_folder()
        if folder is None:
            return None
        source = fingerprint((self.function, *map(_described, kinds)))
        key = source, self.link_options(capability), _compiler_version()
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        return folder / f"{self.function.__name__}-{digest[:32]}.cubin"

    def compile(self, kinds: tuple[Any, ...], capability: tuple[int, int]) -> bytes:
        """Return NVIDIA's intermediate code, which `link` takes; needs no device."""
        form = {"device": False, "abi": "numba", "output": "ltoir", "debug": False, "opt": True}
        function, fast = _rebuild(self.function), not self.exact
        code, _ = cuda.compile(function, kinds, cc=capability, fastmath=fast, **form)
        return bytes(code)

    def link_options(self, capability: tuple[int, int]) -> list[str]:
        """Return the linker's options, which decide the arithmetic, too."""
        arithmetic = _EXACT if self.exact else _FAST
        limit = [f"-maxrregcount={self.max_registers}"] if self.max_registers else []
        return ["-lto", "-arch=sm_{}{}".format(*capability), *arithmetic, *limit]

    def link(self, code: bytes, capability: tuple[int, int], *options: str) -> tuple[bytes, str]:
        """Return what NVIDIA's linker makes of the intermediate code, and its log.

        Args:
            code: returned by `compile`.
            capability: compute capability of the device.
            *options: further ones of the linker; with "-ptx" it makes PTX in the place of machine
                code, and with "-verbose" its log says what the kernel needs.

        Raises:
            RuntimeError: it cannot be linked.
        """
        from cuda.bindings import nvjitlink

        options = *self.link_options(capability), *options
        linker = nvjitlink.create(len(options), list(options))
        kind = "linked_ptx" if "-ptx" in options else "linked_cubin"

        def read(what: str) -> bytes:
            content = bytearray(getattr(nvjitlink, f"get_{what}_size")(linker))
            getattr(nvjitlink, f"get_{what}")(linker, content)
            return bytes(content)

        try:
            nvjitlink.add_data(linker, nvjitlink.InputType.LTOIR, code, len(code), "kernel")
            nvjitlink.complete(linker)
            return read(kind), read("info_log").decode(errors="replace")
        except nvjitlink.nvJitLinkError as error:
            log = read("error_log").decode(errors="replace").strip("\0 \n")
            raise RuntimeError(f"{self.function.__name__}: {error} {log}") from error
        finally:
            nvjitlink.destroy(linker)


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    exact: bool = False,
    max_registers: int | None = None,
) -> Any:
    """Return a decorator that makes a `Kernel` of a driver, whose closure is rebuilt.

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
    return Kernel(function, exact, max_registers)  # type: ignore[arg-type]


def _described(kind: Any) -> Any:
    """Return all of numba's type of an argument: the text of a NamedTuple lacks its fields."""
    items = tuple(map(_described, getattr(kind, "types", ())))
    return (getattr(kind, "instance_class", tuple), *items) if items else str(kind)


@functools.cache
def _compiler_version() -> str:
    """Return a hash of what decides machine code beside functions, types and options.

    NVIDIA's libraries do not tell all of their versions: their sizes stand for them.
    """
    from cuda.pathfinder import load_nvidia_dynamic_lib

    from rlcpu import __version__

    paths = [load_nvidia_dynamic_lib(name).abs_path for name in ("nvvm", "nvJitLink")]
    sizes = [os.path.getsize(path) for path in paths if path]
    versions = *map(importlib.metadata.version, ("numba-cuda", "llvmlite", "numpy")), *sizes
    return cache.compiler_version((__version__, *versions), *cache.TEACHERS, b"numba.cuda")


@functools.cache
def _device(function: types.FunctionType, rules: Any) -> Any:
    """Return a device function that computes what a scalar function of the CPU does.

    Kernels inline it; in the simulator it is plain Python. For `rules` see `_with_rules`.
    """
    if SIMULATED:
        return _rebuild(function)
    overloaded = maths.overloaded(function)
    if overloaded is not None:  # its overload is compiled in its place
        return overloaded
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
        if isinstance(value, np.ufunc | types.BuiltinFunctionType):
            value = maths.replaced.get(value, value)
        plain = isinstance(value, types.FunctionType) and package_of(value) not in _FOREIGN
        if plain or is_jitted(value):
            return _device(getattr(value, "py_func", value), getattr(value, "rules", None))
        if hasattr(value, "compile_device"):
            raise TypeError(
                f"{name} is a device function: expected the plain function, to be hashed"
            )
        return _module if value is cuda else value

    def stays(module: types.ModuleType) -> bool:
        """Tell whether the compiler knows a module itself."""
        is_copy = module.__name__.endswith(COPY)
        return module is cuda or (package_of(module) in _FOREIGN and not is_copy)

    return rebuild(function, convert, stays)
