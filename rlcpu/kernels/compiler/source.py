"""What a user's scalar function must not hold, found in its bytecode before anything is compiled.

Unlike a trial run, this sees all branches of the function and of the plain functions that it calls.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
from numba.extending import is_jitted

from rlcpu.kernels.compiler.functions import codes
from rlcpu.kernels.compiler.user_compiler import place

_WRITE = "writes into an object: return what is new, as replace(items, i, value) does of a tuple"
#: Instructions, by the beginnings of their names, and what is wrong with them.
_REFUSED = {
    "RAISE_VARARGS": "raises, and other environments would miss a step: return a result instead",
    "SETUP_FINALLY PUSH_EXC_INFO": "handles exceptions, of which a kernel has none",
    "SETUP_WITH BEFORE_WITH LOAD_SPECIAL": "enters a context, of which a kernel has none",
    "BUILD_SET": "makes a set, and kernels allocate nothing: use numbers and tuples",
    "BUILD_MAP BUILD_CONST_KEY_MAP": "makes a dict, and kernels allocate nothing: use tuples",
    "IMPORT_NAME": "imports a module: do it at the top of the file",
    "STORE_GLOBAL DELETE_GLOBAL": "changes a global: keep in the state what changes",
    "STORE_SUBSCR STORE_SLICE STORE_ATTR DELETE_SUBSCR": _WRITE,
}
_REASONS = {name: reason for names, reason in _REFUSED.items() for name in names.split()}
_WRITES = {"STORE_SUBSCR": "items", "STORE_SLICE": "items", "STORE_ATTR": "fields"}
_LIST = "makes a list, and kernels allocate nothing: use numbers and tuples"
_ARRAY = "makes an array, and kernels allocate nothing: use numbers and tuples"
_GENERATOR = (
    "is a generator: begin with a tuple of constants, as (0.0,) * 7, and put its items in a loop "
    "over range(), items = replace(items, i, value)"
)
_RANDOM = "depends on something else than state and seed"
_OUTPUT = "reads or writes files or the screen, which a kernel cannot"
_CALLS: dict[Any, str] = {input: _OUTPUT, open: _OUTPUT}
_CALLS |= dict.fromkeys((list, sorted), _LIST)
_CALLS |= {dict: _REASONS["BUILD_MAP"], set: _REASONS["BUILD_SET"]}
_ARRAYS = "array asarray zeros ones empty full arange linspace eye concatenate stack where"
_CALLS[np.take] = "raises outside of the array: write array[index]"
_CALLS |= {getattr(np, name): _ARRAY for name in _ARRAYS.split()}
#: Modules whose functions and objects give something else at every call.
_CHANGING = ("random", "numpy.random", "secrets", "time", "datetime", "uuid", "os")
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_UNDEFINED = object()


def check_source(
    function: types.FunctionType,
    visited: set[Any] | None = None,
    *,
    writes: tuple[str, ...] = (),
    random: str = "",
) -> None:
    """Raise for code that no kernel can run, in a function and in plain functions it calls.

    Args:
        function: plain Python function.
        visited: functions that are not looked at again.
        writes: what it may write to: "items" of arrays that it is given, and "fields" of a state.
        random: says how it gets random numbers, for messages; "" if it gets none.

    Raises:
        TypeError: it raises, allocates, prints, draws random numbers of its own, uses a name that
            is defined nowhere, and the like; with file, line and text of all such lines.
    """
    visited = set() if visited is None else visited
    reasons = dict.fromkeys(refused_lines(function, visited, writes, random))
    if reasons:
        raise TypeError("; ".join(reasons))


def refused_lines(
    function: types.FunctionType,
    visited: set[Any],
    writes: tuple[str, ...] = (),
    random: str = "",
) -> Iterator[str]:
    """Yield a sentence on each line of a function, and of those it calls, that is refused.

    The arguments are those of `check_source`.
    """
    package = (function.__module__ or "").partition(".")[0]
    if function in visited or package in ("rlcpu", "numba", "numpy"):
        return
    visited.add(function)
    for code in codes(function.__code__):
        for line, reason in _faults(function, code, writes, random):
            yield f"{place(code.co_filename, line, function.__name__)} {reason}"
        for _, _, value in _reads(function, code):
            plain = value.py_func if is_jitted(value) else value
            # Ray puts a function of its own in the place of `print`, which is refused by its name.
            if isinstance(plain, types.FunctionType) and plain is not builtins.print:
                yield from refused_lines(plain, visited, writes, random)


def _faults(
    function: types.FunctionType, code: types.CodeType, writes: tuple[str, ...], random: str
) -> Iterator[tuple[int, str]]:
    """Yield line and reason of everything in a code object that no kernel can do."""
    if code.co_flags & _GENERATORS:
        yield code.co_firstlineno, _GENERATOR
    lines_of_lists: list[int] = []
    for line, instruction in _instructions(code):
        name = instruction.opname
        if name in _REASONS and _WRITES.get(name) not in writes:
            yield line, _REASONS[name]
        if name == "BUILD_LIST":
            lines_of_lists.append(line)
        # `(*state, 0.0)` builds a list that becomes a tuple, by CALL_INTRINSIC_1 since Python 3.12.
        if lines_of_lists and "LIST_TO_TUPLE" in name + instruction.argrepr:
            lines_of_lists.pop()
    for line in lines_of_lists:
        yield line, _LIST
    reads, changes = [*_reads(function, code), (0, "", None)], False
    for (line, name, value), (_, next_name, _) in itertools.pairwise(reads):
        changes = changes or _is_changing(value)
        if next_name.startswith(f"{name}."):
            continue  # a module, of which a member is read: that one is told
        if value is builtins.print:
            yield line, f"uses {name}, which {_OUTPUT}"
        elif value is _UNDEFINED:
            yield line, f"uses {name}, which is defined nowhere"
        elif changes:
            yield line, f"uses {name}, which {_RANDOM}{random and f': {random}'}"
        elif callable(value) and isinstance(value, Hashable) and value in _CALLS:
            yield line, f"uses {name}, which {_CALLS[value]}"
        changes = False


def _reads(function: types.FunctionType, code: types.CodeType) -> Iterator[tuple[int, str, Any]]:
    """Yield line, name and value of all that a code object reads from outside, through modules.

    `np.random.rand` is three instructions, one after the other, and three reads: of np, of
    np.random, and of np.random.rand.
    """
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    name, value = "", None
    for line, instruction in _instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            name = instruction.argval
            value = function.__globals__.get(name, getattr(builtins, name, _UNDEFINED))
        elif instruction.opname == "LOAD_DEREF" and instruction.argval in cells:
            name, value = instruction.argval, _content(cells[instruction.argval])
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(
            value, types.ModuleType | type
        ):
            name = f"{name}.{instruction.argval}"
            value = getattr(value, instruction.argval, _UNDEFINED)
        else:
            value = None  # what was read is not a part of what comes next
            continue
        yield line, name, value


def _content(cell: types.CellType) -> Any:
    """Return a closed-over value."""
    try:
        return cell.cell_contents
    except ValueError:
        return _UNDEFINED


def _instructions(code: types.CodeType) -> Iterator[tuple[int, dis.Instruction]]:
    """Yield the instructions with their lines."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        # Before Python 3.13 only the first instruction of a line has its number.
        line = getattr(instruction, "line_number", instruction.starts_line) or line
        yield line, instruction


def _is_changing(value: Any) -> bool:
    """Tell whether a value is one of `_CHANGING`, or comes from there."""
    owner = getattr(value, "__self__", None)  # of random.random, a generator's method
    modules = [getattr(value, "__module__", None), type(value).__module__, type(owner).__module__]
    modules += [value.__name__] if isinstance(value, types.ModuleType) else []
    return any(f"{name}.".startswith(f"{changing}.") for name in modules for changing in _CHANGING)


# ---------------------------------------------------------------- a trial that ends

#: Instructions of Python that a trial call may run.
MAX_INSTRUCTIONS = 10_000_000
#: Modules whose instructions do not count: what an item of an array takes in plain Python.
_UNCOUNTED = ("rlcpu.envs.engine", "rlcpu.envs.layout", "numpy")


class EndlessError(Exception):
    """A trial call took too many instructions; the message says where it was."""


def call_bounded(function: Callable[..., Any], *inputs: Any) -> Any:
    """Return the result of a plain function that runs at most `MAX_INSTRUCTIONS`.

    Raises:
        EndlessError: it would run more. Under a debugger it would not be found.
    """
    remaining = MAX_INSTRUCTIONS

    def trace(frame: types.FrameType, event: str, argument: Any) -> Any:
        """Count instructions, and raise `EndlessError` when too many have run."""
        nonlocal remaining
        if frame.f_globals.get("__name__", "").startswith(_UNCOUNTED):
            return None
        frame.f_trace_opcodes = True  # `while True: pass` is one line, which never ends
        remaining -= 1
        if remaining < 0:
            code = frame.f_code
            raise EndlessError(place(code.co_filename, frame.f_lineno, code.co_name))
        return trace

    if sys.gettrace() is not None:
        return function(*inputs)
    sys.settrace(trace)
    try:
        return function(*inputs)
    finally:
        sys.settrace(None)
