"""Twins of an environment's plain functions, whose tables tell of negative indices.

So do the arrays of a state.

Python takes a negative index from the end of a table: what a typing error or a position left of the
first field reads there is a number like any other.
"""

from __future__ import annotations

import dis
import linecache
import numbers
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.arrays import Numbers
from rlcpu.kernels import random
from rlcpu.kernels.functions import rebuild
from rlcpu.kernels.random import Rng

#: Takes a sentence about a negative index.
Tell = Callable[[str], None]


def watch(dynamics: Dynamics, tell: Tell) -> dict[str, Callable[..., Any]]:
    """Return the scalar functions with tables that tell of negative indices.

    Arrays and tuples that they, and the functions that they call, read as globals, of modules or
    of closures, and as defaults, are replaced. An index that is too large raises IndexError, as it
    always does.
    """
    made: dict[types.FunctionType, Any] = {}

    def replace(name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            table = value.view(_Array)
            table.name, table.tell = name, tell
            return table
        if type(value) is tuple:
            items = _Tuple(replace(f"{name}[{k}]", item) for k, item in enumerate(value))
            items.name, items.tell = name, tell
            return items
        if isinstance(value, types.FunctionType) and is_users(value.__module__):
            return rebuild(value, replace, stays, made)
        return value

    def stays(module: types.ModuleType) -> bool:
        return not is_users(module.__name__)

    names = dynamics.functions
    return {name: rebuild(getattr(dynamics, name), replace, stays, made) for name in names}


def is_users(module: str | None) -> bool:
    """Tell whether a module is none of the standard library, of NumPy, numba or our kernels."""
    package = (module or "").partition(".")[0]
    known = package in sys.stdlib_module_names and package != "__main__"
    return not known and package not in ("numpy", "numba") and "rlcpu.kernels" not in str(module)


class _Array(np.ndarray[Any, Any]):
    """An array that tells of negative indices."""

    name = ""
    tell: Any = None

    def __array_finalize__(self, source: Any) -> None:
        self.name, self.tell = getattr(source, "name", ""), getattr(source, "tell", None)

    def __getitem__(self, index: Any) -> Any:
        _look(self, index if isinstance(index, tuple) else (index,), sys._getframe(1))
        return super().__getitem__(index)


class _StateArray(Numbers):
    """An array of a state that tells of negative indices."""

    name = ""
    tell: Any = None

    def __array_finalize__(self, source: Any) -> None:
        self.name, self.tell = getattr(source, "name", ""), getattr(source, "tell", None)

    def __getitem__(self, index: Any) -> Any:
        _look(self, index if isinstance(index, tuple) else (index,), sys._getframe(1))
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        _look(self, index if isinstance(index, tuple) else (index,), sys._getframe(1), "writes")
        super().__setitem__(index, value)


def watch_state(state: Any, tell: Tell) -> None:
    """Let the arrays of a state tell of negative indices."""
    for name, array in list(vars(state).items()):
        if isinstance(array, Numbers):
            watched = vars(state)[name] = array.view(_StateArray)
            watched.name, watched.tell = f"state.{name}", tell


class _Tuple(tuple[Any, ...]):
    """A tuple that tells of negative indices."""

    name = ""
    tell: Any = None

    def __getitem__(self, index: Any) -> Any:
        _look(self, (index,), sys._getframe(1))
        return super().__getitem__(index)


def _look(table: Any, index: tuple[Any, ...], frame: types.FrameType, verb: str = "reads") -> None:
    """Tell of an index that is negative and was not written so."""
    if table.tell is None or not any(isinstance(i, numbers.Integral) and i < 0 for i in index):
        return
    before = [i for i in dis.get_instructions(frame.f_code) if i.offset < frame.f_lasti]
    if before and isinstance(before[-1].argval, int | tuple) and "CONST" in before[-1].opname:
        return  # TABLE[-1]
    path, line = frame.f_code.co_filename, frame.f_lineno
    shown = ", ".join(map(str, index))
    table.tell(
        f"{path}:{line}: `{linecache.getline(path, line).strip()}` {verb} {table.name}[{shown}], "
        "which counts from the end of the table"
    )


class WatchedRng(Rng):
    """Random numbers that tell of one that a function asks for twice, by its index."""

    tell: Any = None  # (level, message)

    def word(self, k: int | None) -> int:
        """Return the 32 bits of number k; see `Rng`."""
        if k is not None and self.tell is not None:
            asked = self.__dict__.setdefault("asked", {})
            place, use = _use_of(sys._getframe(1))
            first, first_use = asked.setdefault(k, (place, None))
            if first_use is None:
                asked[k] = place, use
            else:
                self.tell(
                    # A number is drawn in the same way in branches of which one counts.
                    "note" if use == first_use else "warning",
                    f"{place} takes number {k} again, after {first}: where both count, they "
                    "depend on each other, and one needs another number, or none",
                )
        return super().word(k)


def _use_of(frame: Any) -> tuple[str, str]:
    """Return the place that called a method of `Rng`, and the method with its arguments."""
    use = ""
    while frame.f_code.co_filename in (__file__, random.__file__):
        given = {name: value for name, value in frame.f_locals.items() if name != "self"}
        use, frame = f"{frame.f_code.co_name} {given}", frame.f_back
    path, line = frame.f_code.co_filename, frame.f_lineno
    return f"{path}:{line}: `{linecache.getline(path, line).strip()}`", use
