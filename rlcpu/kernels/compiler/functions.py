"""Plain functions as values: what they read, copies that read something else, a hash of it all.

A function reads its globals anew at every call, a kernel reads them once. So a kernel is made of
frozen copies, in which everything is as it was then, and kept under the hash of all of it.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import is_jitted

from rlcpu.forks import waited_for
from rlcpu.kernels.compiler import hooks, maths

_PLAIN = (int, float, complex, str, bytes, range, slice, np.generic, np.dtype, numba.types.Type)
#: Flag of a code object whose first constant is its docstring. Up to Python 3.13 there is no flag:
#: every function has its docstring, or None, there.
_HAS_DOCSTRING = 0x4000000 if sys.version_info >= (3, 14) else 0
#: End of the names of modules that `rebuild` made.
COPY = "[copy]"
#: Attribute of functions that `compile.inline` and `outline` leave plain: how they are compiled.
REGISTERED = "_rlcpu_compiled_as"


class OfNumbers(NamedTuple):
    """A function of numbers alone, among those that are specialised to be given arrays.

    It is inlined where it is called, as `specialise` does without arrays.
    """

    function: Callable[..., Any]

    def __call__(self, *numbers: Any) -> Any:
        """Return what the function does, without compiling it."""
        return self.function(*numbers)


def package_of(value: types.FunctionType | types.ModuleType) -> str:
    """Return the top-level package of a function or a module."""
    is_module = isinstance(value, types.ModuleType)
    return ((value.__name__ if is_module else value.__module__) or "").partition(".")[0]


def is_users(module: str | None) -> bool:
    """Tell whether a module is a user's: not the standard library, NumPy, numba or our kernels."""
    package = (module or "").partition(".")[0]
    known = package in sys.stdlib_module_names and package != "__main__"
    return not known and package not in ("numpy", "numba") and "rlcpu.kernels" not in str(module)


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

    Globals and members of modules first, then closed-over values, then defaults. Modules that
    nobody changes stand for their members: which they have depends on what else was imported.
    """
    pending = list(referenced_globals(function).values())
    visited = set()
    for value in pending:  # members of modules are appended on the way
        yield value
        is_module = isinstance(value, types.ModuleType) and value not in visited
        if is_module and not _is_fixed(value):
            visited.add(value)
            pending += referenced_attributes(function, value).values()
    yield from (cell.cell_contents for cell in function.__closure__ or ())
    yield from function.__defaults__ or ()
    for name, value in sorted((function.__kwdefaults__ or {}).items()):
        yield from (name, value)


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


def with_callees(functions: Iterable[Any]) -> list[Any]:
    """Return compiled functions and all that they reach, callees first."""
    visited: set[Any] = set()
    return [f for function in functions for f in (*callees(function.py_func, visited), function)]


@functools.cache
def _global_names(code: types.CodeType) -> list[str]:
    """Return the names of globals and builtins that code reads."""
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
    if name in code.co_cellvars:  # a function in it reads the argument
        return True
    for instruction in dis.get_instructions(code):
        variables = instruction.argval  # LOAD_FAST_LOAD_FAST, of Python 3.13, reads a tuple of two
        variables = variables if isinstance(variables, tuple) else (variables,)
        if "LOAD_FAST" in instruction.opname and name in variables:
            return True
    return False


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

    modules: dict[types.ModuleType, types.ModuleType] = {}  # their copies

    def read(name: str, value: Any) -> Any:
        """Return what the copy reads in the place of a value."""
        if not isinstance(value, types.ModuleType) or stays(value):
            return convert(name, value)
        if value not in modules:  # a module may be its own member, or that of another
            twin = modules[value] = types.ModuleType(value.__name__.removesuffix(COPY) + COPY)
            for member, item in referenced_attributes(function, value).items():
                setattr(twin, member, read(f"{name}.{member}", item))
        return modules[value]

    # The copy is made with nothing to read, and filled: it may read itself.
    scope = {"__name__": function.__module__}
    scope["__builtins__"] = function.__globals__.get("__builtins__", __builtins__)
    code, old_cells = code or function.__code__, function.__closure__ or ()
    cells = tuple(types.CellType() for _ in old_cells)
    copy = copies[function] = types.FunctionType(code, scope, function.__name__, closure=cells)
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    for name, value in referenced_globals(function).items():
        scope[name] = read(name, value)
    for name, cell, old in zip(code.co_freevars, cells, old_cells, strict=True):
        cell.cell_contents = read(name, old.cell_contents)
    defaults = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    copy.__defaults__ = tuple(map(read, names, defaults)) or None
    keyword_defaults = (function.__kwdefaults__ or {}).items()
    copy.__kwdefaults__ = {name: read(name, value) for name, value in keyword_defaults} or None
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
    cache, see `rlcpu.kernels.compiler.cache`.
    """
    digest = hashlib.sha256()
    _add(digest, value, {})
    return digest.hexdigest()


def _write(digest: Any, *parts: Any) -> None:
    """Add values to the digest whose repr says all about them."""
    digest.update(repr(parts).encode())


def _add(digest: Any, value: Any, numbers: dict[Any, int]) -> None:
    """Add one value, by its kind, to the digest.

    `numbers` counts the functions that are in the digest already: one that comes again, such as one
    that calls itself, is its number.
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
        fields, defaults = getattr(value, "_fields", ()), getattr(value, "_field_defaults", ())
        declaration = getattr(value, "declaration", "")  # of a `Struct`
        _write(digest, value.__qualname__, fields, defaults, declaration)
    elif value is None or isinstance(value, _PLAIN):
        _write(digest, type(value).__name__, repr(value))
    elif isinstance(value, frozenset):
        _write(digest, "frozenset", _sorted(value))
    elif isinstance(value, types.ModuleType):
        # `from numba import types` finds `numba.types` if anybody has imported that, or the other.
        _write(digest, "module", value.__name__.replace("numba.core.", "numba.", 1))
    else:  # built-in functions, which numba knows by name: a repr may hold an address
        _write(digest, type(value).__name__, getattr(value, "__name__", ""))


def _add_function(digest: Any, function: types.FunctionType, numbers: dict[Any, int]) -> None:
    """Add to the digest what decides a function's machine code, with all that it reads."""
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
    """Tell whether the first constant of a code object is its docstring, which does not count."""
    flagged = code.co_flags & _HAS_DOCSTRING == _HAS_DOCSTRING
    return flagged and bool(code.co_consts) and isinstance(code.co_consts[0], str)


@functools.cache
def _source_digest(path: str | None) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""


# ---------------------------------------------------------------- frozen functions

_lock = waited_for(threading.RLock())
#: Frozen values by their fingerprint.
_frozen: dict[str, Any] = {}
#: All copies that were made, of functions that are frozen and of those that they call. Nobody
#: changes what these read.
_copies: set[types.FunctionType] = set()
#: Copies that are known to be frozen, or to have the code of a frozen function, and that function.
_frozen_of: dict[types.FunctionType, types.FunctionType] = {}


def freeze(value: Any) -> Any:
    """Return a copy of a function, or of a tuple that holds functions; later changes miss it.

    Values of the same fingerprint give the same copy: what is kept for a frozen function is used
    again for equal code, and for nothing else. That holds of functions that a frozen one calls too,
    once they are frozen themselves: a helper of several functions is compiled once. What a frozen
    value holds that is no function stays as it was then.
    """
    with _lock:
        is_copy = isinstance(value, types.FunctionType) and value in _copies
        if is_copy and value in _frozen_of:
            return _frozen_of[value]
        key = fingerprint(value)
        if key not in _frozen:
            copies: dict[Any, Any] = {}  # of the function and of all that it calls
            _frozen[key] = value if is_copy else _copy(value, copies)
            _copies.update(copies.values())
        for function in (value, _frozen[key]):
            if isinstance(function, types.FunctionType) and function in _copies:
                _frozen_of[function] = _frozen[key]
        return _frozen[key]


def forget_frozen() -> None:
    """Make new copies from now on.

    The copy of code that was refused keeps the line numbers of the first source that held it.
    """
    with _lock:
        _frozen.clear()


def _copy(value: Any, copies: dict[Any, Any]) -> Any:
    """Return a value in which all that can change is copied.

    `copies` has copies by their functions, so that each is copied once, and gets the new ones.
    """

    def copy_item(name: str, item: Any) -> Any:
        """Return the copy of what a function reads under a name."""
        return _copy(item, copies)

    if is_jitted(value) and package_of(value.py_func) not in ("rlcpu", "numba", "numpy"):
        value = value.py_func  # a user's own `numba.njit` is a plain function to us
    if isinstance(value, types.FunctionType) and not has_overload(value):
        return rebuild(value, copy_item, _is_fixed, copies)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple | list):
        return convert_items(value, lambda item: _copy(item, copies))
    return value


def _is_fixed(module: types.ModuleType) -> bool:
    """Tell whether nobody changes the members of a module."""
    return package_of(module) in ("llvmlite", "math", "numba", "numpy")


def has_overload(function: types.FunctionType) -> bool:
    """Tell whether numba implements the function itself (`overload`, `inline`)."""
    return package_of(function) in ("numpy", "numba") or function in maths.OVERLOADED
