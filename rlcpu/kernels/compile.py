"""From plain Python scalar functions to cached machine code.

Two things are built here:

* `specialise` turns a scalar function (plain Python, `math.sin`, float literals) into a function of
  one working dtype that every kernel can inline;
* `kernel` turns a driver loop into a compiled function whose machine code is kept on disk.

Numba's own cache cannot key a kernel by the functions that it closes over: a callee edited in
another file silently runs stale code, and closing over a compiled function misses in every process.
Kernels made here are keyed by a `fingerprint` of everything that they reach instead.
"""

from __future__ import annotations

import functools
import linecache
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import njit
from numba import types as nbtypes
from numba.core import ir as numba_ir
from numba.core.dispatcher import Dispatcher

from rlcpu.kernels import maths
from rlcpu.kernels.fingerprint import KernelCache, referenced_globals

#: Reordering and fused multiply-add are allowed; NaN and infinity keep their meaning, because a
#: diverging simulation has to be seen.
FAST = {"contract", "arcp", "nsz", "reassoc", "afn"}
#: IEEE arithmetic in the order in which it is written.
EXACT = False

_INLINE = {
    "forceinline": True,
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
#: Decorator: a function that is inlined where a kernel calls it, compiled once for all kernels.
#: Plain Python calls it as `function.py_func`.
inline = njit(fastmath=FAST, **_INLINE)


def define(source: str, **namespace: Any) -> Callable[..., Any]:
    """The one function that `source` defines: for code unrolled over a size known only at run time."""
    scope: dict[str, Any] = {}
    exec(source, namespace, scope)
    return next(iter(scope.values()))


# ---------------------------------------------------------------- specialisation


@functools.cache
def specialise(function: Callable[..., Any], dtype: type, exact: bool = False) -> Dispatcher:
    """Compile-ready twin of a scalar function that computes in one dtype.

    Float constants and float globals become `dtype`, plain functions that it calls are specialised
    in turn, and in float32 `math` means `rlcpu.kernels.maths`. In float64 `math` is libm.

    Args:
        function: plain Python function of numbers and tuples.
        dtype: `np.float32` or `np.float64`, the type of every real number in it.
        exact: keep IEEE semantics and the written order of operations (no contraction).

    Returns:
        A lazily compiled function, inlined wherever a kernel calls it.
    """
    rebuilt = _rebuild(function, dtype, exact)
    flags: Any = maths.FASTMATH if function.__module__ == maths.__name__ else FAST
    return njit(fastmath=EXACT if exact else flags, **_INLINE)(rebuilt)


def _rebuild(function: Callable[..., Any], dtype: type, exact: bool) -> types.FunctionType:
    """The function with its constants, globals and closure converted to `dtype`."""
    if not isinstance(function, types.FunctionType):
        raise TypeError(
            f"function={function!r} has to be a plain Python function, as `def` makes it; "
            f"got {type(function).__name__}"
        )
    convert = functools.partial(_convert, dtype=dtype, exact=exact)
    scope = referenced_globals(function)
    for name, value in scope.items():
        # Our own mathematics means NumPy itself when it names it.
        own_module = function.__module__ == maths.__name__ and isinstance(value, types.ModuleType)
        scope[name] = value if own_module else convert(value)
    scope["__builtins__"] = function.__globals__.get("__builtins__", __builtins__)
    cells = tuple(types.CellType(convert(c.cell_contents)) for c in function.__closure__ or ())
    code = _convert_code(function.__code__, dtype)
    rebuilt = types.FunctionType(code, scope, function.__name__, function.__defaults__, cells)
    rebuilt.__module__, rebuilt.__qualname__ = function.__module__, function.__qualname__
    rebuilt.__defaults__ = convert(function.__defaults__)
    rebuilt.__kwdefaults__ = function.__kwdefaults__
    return rebuilt


def _convert_code(code: types.CodeType, dtype: type) -> types.CodeType:
    def constant(value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return _convert_code(value, dtype)
        if isinstance(value, tuple):
            return tuple(constant(item) for item in value)
        return dtype(value) if type(value) is float else value

    return code.replace(co_consts=tuple(constant(value) for value in code.co_consts))


def _convert(value: Any, dtype: type, exact: bool) -> Any:
    """What a global or a closed-over value becomes inside a function of `dtype`."""
    if type(value) in (float, np.float32, np.float64):
        return dtype(value)
    if isinstance(value, tuple):
        items = [_convert(item, dtype, exact) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if value is math or value is np:
        return _namespace(value, dtype, exact)
    if isinstance(value, types.BuiltinFunctionType | np.ufunc):
        return _replacement(value.__name__, value, dtype, exact)
    if isinstance(value, types.FunctionType) and not _has_overload(value):
        return specialise(value, dtype, exact)
    return value


def _has_overload(function: types.FunctionType) -> bool:
    """Whether numba has an implementation of its own for the function (`overload`, `inline`)."""
    return getattr(function, "__module__", "").startswith(("numpy", "numba")) or (
        function in maths.OVERLOADED
    )


@functools.cache
def _namespace(module: types.ModuleType, dtype: type, exact: bool) -> types.ModuleType:
    """`math` or `numpy` as kernels of a dtype see it."""
    twin = types.ModuleType(f"{module.__name__}[{dtype.__name__}]")
    for name, value in vars(module).items():
        constant = dtype(value) if type(value) is float else value
        setattr(twin, name, _replacement(name, constant, dtype, exact))
    return twin


def _replacement(name: str, value: Any, dtype: type, exact: bool) -> Any:
    """Our own function of a dtype in place of one of `math` or `numpy`, or the value itself."""
    own = (maths.FLOAT32 if dtype is np.float32 else maths.FLOAT64).get(name)
    return value if own is None else specialise(own, dtype, exact)


# ---------------------------------------------------------------- kernels


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    parallel: bool = False,
    fastmath: set[str] | bool = FAST,
    scalars: tuple[Dispatcher, ...] = (),
) -> Any:
    """Decorator: a compiled driver whose machine code is kept on disk under its fingerprint.

    Args:
        function: the driver, a loop over arrays that returns None or a scalar.
        parallel: compile `numba.prange` loops for all cores.
        fastmath: `FAST`, `EXACT` or another named set of flags.
        scalars: specialised functions that have to compute in the dtype they were made for.

    Raises:
        TypeError: at the first call, if a function of `scalars` computes in float64 although it
            was specialised to float32; the message names the line.
    """
    if function is None:
        return functools.partial(kernel, parallel=parallel, fastmath=fastmath, scalars=scalars)
    dispatcher = njit(parallel=parallel, nogil=True, error_model="numpy", fastmath=fastmath)(
        function
    )
    dispatcher._cache = KernelCache(dispatcher, lambda: check_precision(scalars))
    return dispatcher


def check_precision(scalars: tuple[Dispatcher, ...]) -> None:
    """Raise TypeError at the first line of a float32 function that computes in float64."""
    for scalar in scalars:
        for overload in scalar.overloads.values():
            for line, name in _double_lines(overload):
                path = scalar.py_func.__code__.co_filename
                text = linecache.getline(path, line).strip()
                raise TypeError(
                    f"{scalar.py_func.__qualname__}, line {line}: `{text}` computes {name} in "
                    "float64 inside a float32 kernel, which halves its speed; write whole numbers "
                    "that meet real ones as floats (2.0 * x, not 2 * x)"
                )


def _double_lines(overload: Any) -> Iterator[tuple[int, str]]:
    """Line and variable of each float64 value that a compiled function assigns."""
    annotation = overload.type_annotation
    for block in annotation.blocks.values():
        for statement in block.find_insts(numba_ir.Assign):
            kind = annotation.typemap.get(statement.target.name)
            if _holds_double(kind):
                yield statement.loc.line, statement.target.name.split(".")[0]


def _holds_double(kind: Any) -> bool:
    if isinstance(kind, nbtypes.BaseTuple):
        return any(map(_holds_double, kind.types))
    return kind == nbtypes.float64
