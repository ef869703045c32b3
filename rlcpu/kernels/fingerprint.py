"""What a kernel's machine code depends on, as one hash."""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
import itertools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import extending
from numba.core.dispatcher import Dispatcher

from rlcpu.kernels import maths

_Intrinsic: Any = extending._Intrinsic  # type: ignore[attr-defined, unused-ignore]
_overloaded: frozenset[Any] = maths.OVERLOADED
_PLAIN = (int, float, complex, str, bytes, range, slice, np.generic, np.dtype, numba.types.Type)
#: Flag of a code object whose first constant is its docstring. Up to Python 3.13 there is no flag:
#: every function has its docstring, or None, there.
_HAS_DOCSTRING = 0x4000000 if sys.version_info >= (3, 14) else 0


def fingerprint(value: Any) -> str:
    """SHA-256 of everything that decides the machine code of a function or of a tuple of them.

    It covers bytecode, constants, closed-over values and referenced globals, recursively through
    functions, and the source file of everything that generates code of its own (intrinsics and
    overloads). Docstrings, line numbers, file names and the hash seed of the process do not count.
    """
    digest = hashlib.sha256()
    _add(digest, value, {})
    return digest.hexdigest()


# ---------------------------------------------------------------- what a function reads


def referenced_globals(function: types.FunctionType) -> dict[str, Any]:
    """The globals that a function reads, by name; builtins are left out."""
    scope = function.__globals__
    return {name: scope[name] for name in _global_names(function.__code__) if name in scope}


def referenced_attributes(function: types.FunctionType, module: types.ModuleType) -> dict[str, Any]:
    """The members of a module whose names a function uses."""
    names = {name for code in codes(function.__code__) for name in code.co_names}
    return {name: vars(module)[name] for name in sorted(names & vars(module).keys())}


def references(function: types.FunctionType) -> Iterator[Any]:
    """Everything that a function reads from outside, one level deep but through modules."""
    pending = list(referenced_globals(function).values())
    seen = set()
    for value in pending:  # grows on the way
        yield value
        if isinstance(value, types.ModuleType) and value not in seen:
            seen.add(value)
            pending += referenced_attributes(function, value).values()
    yield from (cell.cell_contents for cell in function.__closure__ or ())
    yield from function.__defaults__ or ()
    yield from itertools.chain(*sorted((function.__kwdefaults__ or {}).items()))


@functools.cache
def _global_names(code: types.CodeType) -> list[str]:
    names = {
        instruction.argval
        for nested in codes(code)
        for instruction in dis.get_instructions(nested)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return sorted(names)


def codes(code: types.CodeType) -> list[types.CodeType]:
    """The code object and those nested in it."""
    nested = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return [code, *(inner for outer in nested for inner in codes(outer))]


# ---------------------------------------------------------------- the hash


def _write(digest: Any, *parts: Any) -> None:
    digest.update(repr(parts).encode())


def _add(digest: Any, value: Any, seen: dict[Any, int]) -> None:
    """Add one value, whatever it is, to the digest; functions in `seen` are there already."""
    if isinstance(value, Dispatcher):
        options = {k: _sorted(v) for k, v in value.targetoptions.items()}
        _write(digest, "compiled", sorted(options.items()))
        value = value.py_func
    if isinstance(value, types.FunctionType):
        _add_function(digest, value, seen)
    elif isinstance(value, _Intrinsic):
        _write(digest, "intrinsic", _source_digest(inspect.getsourcefile(value._defn)))
        _add_function(digest, value._defn, seen)
    elif isinstance(value, np.ndarray):
        _write(digest, "array", value.dtype.str, value.shape, value.tobytes())
    elif isinstance(value, tuple | list):
        _write(digest, type(value).__qualname__, getattr(value, "_fields", ()), len(value))
        for item in value:
            _add(digest, item, seen)
    elif isinstance(value, type) and issubclass(value, enum.Enum):
        _write(digest, value.__qualname__, *value.__members__)
        for member in value.__members__.values():
            _add(digest, member.value, seen)
    elif isinstance(value, enum.Enum):
        _write(digest, value.name)
        _add(digest, type(value), seen)
    elif isinstance(value, type):
        fields, defaults = (getattr(value, n, ()) for n in ("_fields", "_field_defaults"))
        _write(digest, value.__qualname__, fields, defaults)
    elif value is None or isinstance(value, _PLAIN):
        _write(digest, type(value).__name__, repr(value))
    elif isinstance(value, frozenset):
        _write(digest, "frozenset", _sorted(value))
    else:  # modules and built-in functions, which numba knows by name: a repr may hold an address
        _write(digest, type(value).__name__, getattr(value, "__name__", ""))


def _add_function(digest: Any, function: types.FunctionType, seen: dict[Any, int]) -> None:
    _write(digest, "function", function.__name__, seen.get(function))
    package = (function.__module__ or "").partition(".")[0]
    if function in seen or package in ("numpy", "numba"):
        return
    seen[function] = len(seen)
    if function in _overloaded:
        _write(digest, _source_digest(maths.__file__))
    for code in codes(function.__code__):
        _write(digest, code.co_argcount, code.co_kwonlyargcount, code.co_code, code.co_names)
        constants = code.co_consts[_has_docstring(code) :]
        _add(digest, [c for c in constants if not isinstance(c, types.CodeType)], seen)
    for value in references(function):
        _add(digest, value, seen)


def _sorted(value: Any) -> Any:
    """A set as a list in an order that does not depend on the process."""
    return sorted(map(repr, value)) if isinstance(value, set | frozenset) else value


def _has_docstring(code: types.CodeType) -> bool:
    flagged = code.co_flags & _HAS_DOCSTRING == _HAS_DOCSTRING
    return flagged and bool(code.co_consts) and isinstance(code.co_consts[0], str)


@functools.cache
def _source_digest(path: str | None) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
