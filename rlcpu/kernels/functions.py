"""Plain functions as values: what they read from outside, copies that read something else, a hash.

A function reads its globals anew at every call, a kernel reads them once. So a kernel is made of
copies, in which everything is as it was then, and kept under the hash of all of it.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.extending import is_jitted

from rlcpu.kernels import hooks

_PLAIN = (int, float, complex, str, bytes, range, slice, np.generic, np.dtype, numba.types.Type)
#: Flag of a code object whose first constant is its docstring. Up to Python 3.13 there is no flag:
#: every function has its docstring, or None, there.
_HAS_DOCSTRING = 0x4000000 if sys.version_info >= (3, 14) else 0
#: End of the names of modules that `rebuild` made.
COPY = "[copy]"
#: Attribute of functions that `compile.inline` and `outline` leave plain: how they are compiled.
REGISTERED = "_rlcpu_compiled_as"


def package_of(value: types.FunctionType | types.ModuleType) -> str:
    """Return the top-level package of a function or a module."""
    is_module = isinstance(value, types.ModuleType)
    return ((value.__name__ if is_module else value.__module__) or "").partition(".")[0]


# ---------------------------------------------------------------- what a function reads


def referenced_globals(function: types.FunctionType) -> dict[str, Any]:
    """Return the globals that a function reads, by name; builtins are left out."""
    scope = function.__globals__
    return {name: scope[name] for name in _global_names(function.__code__) if name in scope}


def referenced_attributes(function: types.FunctionType, module: types.ModuleType) -> dict[str, Any]:
    """Return the members of a module whose names a function uses."""
    names = {name for code in codes(function.__code__) for name in code.co_names}
    return {name: vars(module)[name] for name in sorted(names & vars(module).keys())}


def references(function: types.FunctionType) -> Iterator[Any]:
    """Yield everything that a function reads from outside, one level deep but through modules.

    Globals and members of modules first, then closed-over values, then defaults.
    """
    pending = list(referenced_globals(function).values())
    visited = set()
    for value in pending:  # members of modules are appended on the way
        yield value
        if isinstance(value, types.ModuleType) and value not in visited:
            visited.add(value)
            pending += referenced_attributes(function, value).values()
    yield from (cell.cell_contents for cell in function.__closure__ or ())
    yield from function.__defaults__ or ()
    yield from itertools.chain(*sorted((function.__kwdefaults__ or {}).items()))


def callees(function: types.FunctionType, visited: set[Any] | None = None) -> Iterator[Any]:
    """Yield the compiled functions that a function calls, itself or through others, callees first.

    `visited` has functions that are left out, and gets those that are not.
    """
    visited = set() if visited is None else visited
    for value in references(function):
        inner = value.py_func if is_jitted(value) else value
        if not isinstance(inner, types.FunctionType) or inner in visited:
            continue
        if package_of(inner) not in ("numpy", "numba"):
            visited.add(inner)
            yield from callees(inner, visited)
            if is_jitted(value):
                yield value


@functools.cache
def _global_names(code: types.CodeType) -> list[str]:
    names = {
        instruction.argval
        for nested in codes(code)
        for instruction in dis.get_instructions(nested)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return sorted(names)


def reads_argument(function: Any, place: int) -> bool:
    """Tell whether a plain function reads its argument number `place`."""
    code = function.__code__
    name = code.co_varnames[place]
    return name in code.co_cellvars or any(
        "LOAD_FAST" in i.opname
        and name in (i.argval if isinstance(i.argval, tuple) else (i.argval,))
        for i in dis.get_instructions(code)
    )


def codes(code: types.CodeType) -> list[types.CodeType]:
    """Return the code object and those nested in it."""
    nested = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return [code, *(inner for outer in nested for inner in codes(outer))]


# ---------------------------------------------------------------- copies that read something else


def rebuild(
    function: types.FunctionType,
    convert: Callable[[str, Any], Any],
    stays: Callable[[types.ModuleType], bool],
    copies: dict[types.FunctionType, Any] | None = None,
    code: types.CodeType | None = None,
) -> Any:
    """Return a copy of a function that reads `convert(name, value)` wherever that reads a value.

    Values are globals, closed-over ones, defaults, and the members that it uses of modules, which
    are named as in "module.member".

    Args:
        function: plain Python function.
        convert: (name, value) -> what the copy reads.
        stays: (module) -> whether it is converted as a value; any other becomes a module of the
            converted members.
        copies: copies by their functions, to which this one is added before anything is converted:
            so that functions may call each other, and each is copied once.
        code: code of the copy, if it is not the function's.
    """
    copies = {} if copies is None else copies
    if function in copies:
        return copies[function]

    def read(name: str, value: Any) -> Any:
        """Return what the copy reads for a value."""
        if not isinstance(value, types.ModuleType) or stays(value):
            return convert(name, value)
        twin = types.ModuleType(value.__name__.removesuffix(COPY) + COPY)
        for member, item in referenced_attributes(function, value).items():
            setattr(twin, member, read(f"{name}.{member}", item))
        return twin

    scope = {"__name__": function.__module__}
    scope["__builtins__"] = function.__globals__.get("__builtins__", __builtins__)
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    code = code or function.__code__
    copy = copies[function] = types.FunctionType(code, scope, function.__name__, closure=cells)
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    scope.update({name: read(name, v) for name, v in referenced_globals(function).items()})
    for name, cell, old in zip(code.co_freevars, cells, function.__closure__ or (), strict=True):
        cell.cell_contents = read(name, old.cell_contents)
    defaults = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    copy.__defaults__ = tuple(map(read, names, defaults)) or None
    named = (function.__kwdefaults__ or {}).items()
    copy.__kwdefaults__ = {name: read(name, value) for name, value in named} or None
    return copy


def convert_items(value: tuple[Any, ...] | list[Any], convert: Callable[[Any], Any]) -> Any:
    """Return a tuple or NamedTuple with converted items; a list, which kernels lack, as a tuple."""
    items = [convert(item) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


# ---------------------------------------------------------------- the hash


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of all that decides the machine code of a function, or of a tuple.

    It covers bytecode, constants, closed-over values and referenced globals, recursively through
    functions, and the source files of intrinsics. Docstrings, line numbers, file names and the hash
    seed of the process do not count. What this package teaches numba in other ways counts in the
    cache, see `rlcpu.kernels.cache`.
    """
    digest = hashlib.sha256()
    _add(digest, value, {})
    return digest.hexdigest()


def _write(digest: Any, *parts: Any) -> None:
    """Add values to the digest whose repr says all about them."""
    digest.update(repr(parts).encode())


def _add(digest: Any, value: Any, numbers: dict[Any, int]) -> None:
    """Add one value, whatever it is, to the digest.

    `numbers` has the number of each function that is in the digest already.
    """
    if is_jitted(value):
        options = {k: _sorted(v) for k, v in value.targetoptions.items()}
        _write(digest, "compiled", sorted(options.items()))
        value = value.py_func
    generator = hooks.definition(value)
    if generator is not None:
        _write(digest, "intrinsic", _source_digest(inspect.getsourcefile(generator)))
        value = generator
    if isinstance(value, types.FunctionType):
        _add_function(digest, value, numbers)
    elif isinstance(value, np.ndarray):
        _write(digest, "array", value.dtype.str, value.shape, value.tobytes())
    elif isinstance(value, tuple | list):
        _write(digest, type(value).__qualname__, getattr(value, "_fields", ()), len(value))
        for item in value:
            _add(digest, item, numbers)
    elif isinstance(value, type) and issubclass(value, enum.Enum):
        _write(digest, value.__qualname__, *value.__members__)
        for member in value.__members__.values():
            _add(digest, member.value, numbers)
    elif isinstance(value, enum.Enum):
        _write(digest, value.name)
        _add(digest, type(value), numbers)
    elif isinstance(value, type):
        fields, defaults = (getattr(value, n, ()) for n in ("_fields", "_field_defaults"))
        _write(digest, value.__qualname__, fields, defaults)
    elif value is None or isinstance(value, _PLAIN):
        _write(digest, type(value).__name__, repr(value))
    elif isinstance(value, frozenset):
        _write(digest, "frozenset", _sorted(value))
    else:  # modules and built-in functions, which numba knows by name: a repr may hold an address
        _write(digest, type(value).__name__, getattr(value, "__name__", ""))


def _add_function(digest: Any, function: types.FunctionType, numbers: dict[Any, int]) -> None:
    """Add to the digest what decides a function's machine code, with all that it reads.

    `numbers` has the number of each function so far: of one that comes again it is all that counts.
    """
    compiled_as = vars(function).get(REGISTERED)
    _write(digest, "function", function.__name__, numbers.get(function), compiled_as)
    if function in numbers or package_of(function) in ("numpy", "numba"):
        return
    numbers[function] = len(numbers)
    for code in codes(function.__code__):
        _write(digest, code.co_argcount, code.co_kwonlyargcount, code.co_code, code.co_names)
        constants = code.co_consts[_has_docstring(code) :]
        _add(digest, [c for c in constants if not isinstance(c, types.CodeType)], numbers)
    for value in references(function):
        _add(digest, value, numbers)


def _sorted(value: Any) -> Any:
    """Return a set as a list in an order that does not depend on the process."""
    return sorted(map(repr, value)) if isinstance(value, set | frozenset) else value


def _has_docstring(code: types.CodeType) -> bool:
    flagged = code.co_flags & _HAS_DOCSTRING == _HAS_DOCSTRING
    return flagged and bool(code.co_consts) and isinstance(code.co_consts[0], str)


@functools.cache
def _source_digest(path: str | None) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
