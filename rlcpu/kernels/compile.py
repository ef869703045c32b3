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

import contextlib
import functools
import linecache
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numba
import numpy as np
from numba import types as nbtypes
from numba.core import ir as numba_ir
from numba.core.dispatcher import Dispatcher

from rlcpu.kernels import announce, guard, maths
from rlcpu.kernels.cache import KernelCache
from rlcpu.kernels.fingerprint import (
    fingerprint,
    referenced_attributes,
    referenced_globals,
    references,
)

# Any: some releases of numba have types, for less than what is used here.
njit: Any = numba.njit
_Tuple: Any = nbtypes.BaseTuple
_overloaded: frozenset[Any] = maths.OVERLOADED

#: Reordering and fused multiply-add are allowed; NaN and infinity keep their meaning, because a
#: diverging simulation has to be seen.
FAST = {"contract", "arcp", "nsz", "reassoc", "afn"}
#: IEEE arithmetic in the order in which it is written.
EXACT = False

#: Options of `inline`, for functions that are compiled alike but called.
INLINE: dict[str, Any] = {
    "forceinline": True,
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
#: Decorator: a function that is inlined where a kernel calls it, compiled once for all kernels.
#: Plain Python calls it as `function.py_func`.
inline: Any = njit(fastmath=FAST, **INLINE)
#: The same, in IEEE arithmetic.
inline_exact: Any = njit(fastmath=EXACT, **INLINE)


def define(source: str, **namespace: Any) -> Callable[..., Any]:
    """The one function that `source` defines: code unrolled over a size known only at run time."""
    scope: dict[str, Any] = {}
    namespace["__name__"] = __name__  # numba finds the globals of cached code by their module
    exec(source, namespace, scope)
    return next(iter(scope.values()))


def source_of_tuple(items: Iterable[str]) -> str:
    """Source of a tuple of expressions, in parts of 16.

    A longer literal, of 31 items and more, becomes a list first, which numba does not compile.
    """
    expressions = list(items)
    parts = [expressions[i : i + 16] for i in range(0, len(expressions), 16)]
    return " + ".join(f"({', '.join(part)},)" for part in parts) or "()"


# ---------------------------------------------------------------- copies of functions


Convert = Callable[[Any], Any]
_lock = threading.RLock()
#: Frozen values by their fingerprint, and all frozen functions.
_frozen: dict[str, Any] = {}
_copies: set[types.FunctionType] = set()


def freeze(value: Any) -> Any:
    """A copy of a function, or of a tuple that holds functions, that later changes do not reach.

    A function reads its globals anew at every call, a kernel reads them once. The copy holds
    everything as it is now. Values of the same fingerprint give the same copy: what is kept for a
    frozen function is used again for equal code, and for nothing else.
    """
    with _lock:
        if isinstance(value, types.FunctionType) and value in _copies:
            return value
        key = fingerprint(value)
        if key not in _frozen:
            _frozen[key] = _copy(value, {})
        return _frozen[key]


def forget_frozen() -> None:
    """Make new copies from now on.

    The copy of code that was refused keeps the line numbers of the first source that held it.
    """
    with _lock:
        _frozen.clear()


def _copy(value: Any, copies: dict[Any, Any]) -> Any:
    """`value` with all that can change replaced by copies, which are kept in `copies`."""
    if isinstance(value, Dispatcher) and _package(value.py_func) not in ("rlcpu", "numba", "numpy"):
        value = value.py_func  # a user's own `numba.njit` is a plain function to us
    if isinstance(value, types.FunctionType) and not _has_overload(value):
        if value not in copies:
            twin = copies[value] = bare_copy(value)
            _copies.add(twin)
            fill_copy(twin, value, lambda item: _copy_read(item, value, copies))
        return copies[value]
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple | list):
        return copy_tuple(value, lambda item: _copy(item, copies))
    return value


def _copy_read(value: Any, function: types.FunctionType, copies: dict[Any, Any]) -> Any:
    """What `function` reads from outside, copied."""
    if isinstance(value, types.ModuleType):
        if value.__name__.partition(".")[0] in ("math", "numba", "numpy"):
            return value  # they do not change
        return copy_module(value, function, lambda item: _copy_read(item, function, copies))
    return _copy(value, copies)


def bare_copy(function: types.FunctionType, code: types.CodeType | None = None) -> Any:
    """A function of the same names and code, or another, that `fill_copy` gives what it reads."""
    scope = {"__name__": function.__module__}
    scope["__builtins__"] = function.__globals__.get("__builtins__", __builtins__)
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    code = code or function.__code__
    twin = types.FunctionType(code, scope, function.__name__, closure=cells)
    twin.__module__, twin.__qualname__ = function.__module__, function.__qualname__
    return twin


def fill_copy(twin: types.FunctionType, function: types.FunctionType, convert: Convert) -> None:
    """Give a `bare_copy` the globals, closure and defaults of a function, converted."""
    read = referenced_globals(function)
    twin.__globals__.update({name: convert(value) for name, value in read.items()})
    cells = zip(twin.__closure__ or (), function.__closure__ or (), strict=True)
    for cell, original in cells:
        cell.cell_contents = convert(original.cell_contents)
    twin.__defaults__ = convert(function.__defaults__)


def copy_tuple(value: tuple[Any, ...] | list[Any], convert: Convert) -> Any:
    """A tuple or NamedTuple with its items converted; a list, which kernels lack, as a tuple."""
    items = [convert(item) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def copy_module(
    module: types.ModuleType, function: types.FunctionType, convert: Convert, mark: str = ""
) -> types.ModuleType:
    """A module with only the members that a function uses, converted."""
    twin = types.ModuleType(f"{module.__name__}{mark}")
    for name, value in referenced_attributes(function, module).items():
        setattr(twin, name, convert(value))
    return twin


def _package(function: types.FunctionType) -> str:
    return (function.__module__ or "").partition(".")[0]


# ---------------------------------------------------------------- specialisation


_in_progress: set[Callable[..., Any]] = set()


def specialise(function: Callable[..., Any], dtype: Any, exact: bool = False) -> Any:
    """Compile-ready twin of a scalar function that computes in one dtype.

    Float constants, float globals (arrays and tuples of floats too) and float defaults become
    `dtype`, plain functions that it calls are specialised in turn, also where they and the
    constants are members of a module, and in float32 `math` means `rlcpu.kernels.maths`. In float64
    `math` is libm. Globals are constants of the twin: they are read once, here.

    Args:
        function: plain Python function of numbers and tuples.
        dtype: `np.float32` or `np.float64`, the type of every real number in it.
        exact: keep IEEE semantics and the written order of operations (no contraction).

    Returns:
        A lazily compiled function, inlined wherever a kernel calls it; the same one for equal code.

    Raises:
        TypeError: the function is no plain Python function, or calls itself.
    """
    if not isinstance(function, types.FunctionType):
        raise TypeError(
            f"function={function!r} has to be a plain Python function, as `def` makes it; "
            f"got {type(function).__name__}"
        )
    with _lock:
        return _specialise(freeze(function), np.dtype(dtype).type, bool(exact))


@functools.cache
def _specialise(function: types.FunctionType, dtype: type, exact: bool) -> Any:
    """Of a frozen function."""
    if function in _in_progress:
        raise TypeError(f"{function.__qualname__} calls itself: kernels cannot inline that")
    _in_progress.add(function)
    try:
        twin = bare_copy(function, _convert_code(function.__code__, dtype))
        fill_copy(twin, function, lambda value: _convert(value, function, dtype, exact))
        if _package(function) != "rlcpu":
            # Cached code imports its functions' modules. A user's may not be importable under that
            # name in another process, or is a script that would run again: the symbol has the name.
            twin.__qualname__ = f"{function.__module__}.{function.__qualname__}"
            twin.__module__ = twin.__globals__["__name__"] = __name__
    finally:
        _in_progress.discard(function)
    flags: Any = maths.FASTMATH if function.__module__ == maths.__name__ else FAST
    # With its wrapper: a specialised function that Python calls must not crash the process.
    options = {**INLINE, "no_cpython_wrapper": False}
    if _package(function) != "rlcpu":
        options["pipeline_class"] = guard.UserCompiler
    return njit(fastmath=EXACT if exact else flags, **options)(twin)


def _convert_code(code: types.CodeType, dtype: type) -> types.CodeType:
    def constant(value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return _convert_code(value, dtype)
        if isinstance(value, tuple):
            return tuple(constant(item) for item in value)
        return dtype(value) if type(value) is float else value

    return code.replace(co_consts=tuple(constant(value) for value in code.co_consts))


def _convert(value: Any, function: types.FunctionType, dtype: type, exact: bool) -> Any:
    """What a global or a closed-over value of a function becomes inside its twin."""

    def convert(item: Any) -> Any:
        return _convert(item, function, dtype, exact)

    if type(value) in (float, np.float32, np.float64):
        return dtype(value)
    if isinstance(value, np.ndarray):
        if value.size == 0:
            raise TypeError(f"{function.__qualname__} reads an empty array, of {value.shape}")
        return value.astype(dtype) if value.dtype.kind == "f" else value
    if isinstance(value, tuple):
        return copy_tuple(value, convert)
    if isinstance(value, types.ModuleType):
        # Our own mathematics means NumPy itself when it names it; numba knows other packages.
        package = value.__name__.partition(".")[0]
        known = package == "numba" or (package == "numpy" and value is not np)
        if known or function.__module__ == maths.__name__:
            return value
        return copy_module(value, function, convert, f"[{dtype.__name__}]")
    # NumPy's ufuncs have had a __module__ since 2.2 only.
    if callable(value) and getattr(value, "__module__", "numpy") in ("math", "numpy"):
        own: Any = maths.FLOAT32 if dtype is np.float32 else maths.FLOAT64
        replacement = own.get(getattr(value, "__name__", None))
        return specialise(replacement, dtype, exact) if replacement else value
    if isinstance(value, types.FunctionType) and not _has_overload(value):
        return specialise(value, dtype, exact)
    return value


def _has_overload(function: types.FunctionType) -> bool:
    """Whether numba has an implementation of its own for the function (`overload`, `inline`)."""
    return _package(function) in ("numpy", "numba") or function in _overloaded


# ---------------------------------------------------------------- kernels


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    parallel: bool = False,
    fastmath: set[str] | bool = FAST,
    scalars: tuple[Any, ...] = (),
    subject: str | None = None,
) -> Any:
    """Decorator: a compiled driver whose machine code is kept on disk under its fingerprint.

    Args:
        function: the driver, a loop over arrays that returns None or a scalar.
        parallel: compile `numba.prange` loops for all cores.
        fastmath: `FAST`, `EXACT` or another named set of flags.
        scalars: specialised functions that have to compute in the dtype they were made for.
        subject: what the kernel is compiled for, as users are told; None takes its package.

    Raises:
        TypeError: at the first call, if a function of `scalars` computes in float64 although it
            was specialised to float32; the message names the line.
    """
    if function is None:
        return functools.partial(
            kernel, parallel=parallel, fastmath=fastmath, scalars=scalars, subject=subject
        )
    dispatcher = njit(parallel=parallel, nogil=True, error_model="numpy", fastmath=fastmath)(
        function
    )
    dispatcher._cache = KernelCache(dispatcher, lambda: _refuse_double(dispatcher, scalars))
    subject = subject or ".".join(function.__module__.split(".")[:2])
    say = announce.said(subject, function.__name__)
    dispatcher._compiler.compile = say(_explained(dispatcher)(dispatcher._compiler.compile))
    return dispatcher


@contextlib.contextmanager
def _explained(kernel: Any) -> Iterator[None]:
    """Raise TypeError with one sentence in the place of numba's error in a user's function."""
    try:
        yield
    except numba.errors.NumbaError as error:
        forget_frozen()
        guard.explain(error, _callees((kernel,)))
        raise


def _refuse_double(kernel: Any, scalars: tuple[Any, ...]) -> None:
    """Run `check_precision` on a kernel just compiled; where it raises, forget the code.

    All that the kernel reaches is forgotten: a function between the kernel and a scalar holds the
    scalar's code too, and the next attempt would find nothing to check.
    """
    try:
        check_precision(scalars)
    except TypeError:
        forget_frozen()
        for dispatcher in _callees((kernel,)):
            dispatcher._reset_overloads()
        raise


def check_precision(scalars: tuple[Any, ...]) -> None:
    """Raise TypeError at the first line of a float32 function that computes in float64.

    The functions that it calls are checked before the function itself.
    """
    compiled = [(f, overload) for f in _callees(scalars) for overload in f.overloads.values()]
    # What got a float64 is a victim: the culprit is a function that got none.
    compiled.sort(key=lambda pair: any(map(_holds_double, pair[1].signature.args)))
    for scalar, overload in compiled:
        if scalar.py_func.__module__ == maths.__name__:
            continue  # it computes in what its caller gives it
        for line, name in _double_lines(overload):
            path = scalar.py_func.__code__.co_filename
            text = linecache.getline(path, line).strip()
            raise TypeError(
                f"{scalar.py_func.__name__}, line {line}: `{text}` computes {name}in "
                "float64 inside a float32 kernel, which halves its speed; write whole numbers "
                "that meet real ones as floats (2.0 * x, not 2 * x)"
            )


def _callees(functions: Iterable[Any], found: dict[Any, None] | None = None) -> list[Any]:
    """The compiled functions and those that they call, callees first."""
    found = {} if found is None else found
    for function in functions:
        if function not in found:
            inner = [v for v in references(function.py_func) if isinstance(v, Dispatcher)]
            _callees(inner, found)
            found[function] = None
    return list(found)


def _double_lines(overload: Any) -> Iterator[tuple[int, str]]:
    """Line of each float64 value that a compiled function assigns; its variable and a space."""
    annotation = overload.type_annotation
    for block in annotation.blocks.values():
        for statement in block.find_insts(numba_ir.Assign):
            kind = annotation.typemap.get(statement.target.name)
            if _holds_double(kind):
                variable, _, _ = statement.target.name.partition(".")
                yield statement.loc.line, "" if variable.startswith("$") else f"{variable} "


def _holds_double(kind: Any) -> bool:
    if isinstance(kind, _Tuple):
        return any(map(_holds_double, kind))
    return kind == nbtypes.float64
