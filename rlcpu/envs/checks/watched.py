"""Twins of an environment's plain functions whose tables, and states whose arrays, watch indices.

Python takes a negative index from the end of a table: what a typing error or a position left of the
first field reads there is a number like any other. The twins report such indices, and random
numbers that are asked for twice.
"""

from __future__ import annotations

import dis
import functools
import linecache
import numbers
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.layout.arrays import Numbers
from rlcpu.kernels.compiler.functions import is_users, rebuild
from rlcpu.kernels.machine import random
from rlcpu.kernels.machine.random import Rng

#: Function that gets the message about a negative index, and its kind: the line and the table.
Report = Callable[[str, Any], None]


def watch(dynamics: Dynamics, report: Report) -> dict[str, Callable[..., Any]]:
    """Return twins of the scalar functions by name, whose tables report negative indices.

    Arrays and tuples that the functions, and the functions that they call, read as globals, of
    modules or of closures, and as defaults, are replaced: `rebuild` copies a function with other
    such values. An index that is too large raises IndexError, as it always does.
    """
    twins: dict[types.FunctionType, Any] = {}
    replace = functools.partial(_watched_value, report, twins)
    names = dynamics.functions
    return {name: rebuild(getattr(dynamics, name), replace, _is_kept, twins) for name in names}


def _watched_value(report: Report, twins: Any, name: str, value: Any) -> Any:
    """Return what stands in the place of a value that a function reads under a name.

    `twins` has those of functions that were made before, by function.
    """
    if isinstance(value, np.ndarray):
        table = value.view(_Array)
        table.name, table.report = name, report
        return table
    if type(value) is tuple:
        pairs = ((f"{name}[{k}]", item) for k, item in enumerate(value))
        items = _Tuple(_watched_value(report, twins, *pair) for pair in pairs)
        items.name, items.report = name, report
        return items
    if isinstance(value, types.FunctionType) and is_users(value.__module__):
        replace = functools.partial(_watched_value, report, twins)
        return rebuild(value, replace, _is_kept, twins)
    return value


def _is_kept(module: types.ModuleType) -> bool:
    """Tell whether the attributes of a module are left as they are."""
    return not is_users(module.__name__)


class _Watched:
    """Base of arrays and tuples that report negative indices."""

    name = ""
    report: Any = None

    def __array_finalize__(self, source: Any) -> None:
        self.name, self.report = getattr(source, "name", ""), getattr(source, "report", None)

    def __getitem__(self, index: Any) -> Any:
        _check_index(self, index, sys._getframe(1), "reads")
        return super().__getitem__(index)  # type: ignore[misc]


class _Array(_Watched, np.ndarray[Any, Any]):
    """A table."""


class _Tuple(_Watched, tuple[Any, ...]):
    """A table."""


class _StateArray(_Watched, Numbers):
    """An array of a plain state."""

    def __setitem__(self, index: Any, value: Any) -> None:
        _check_index(self, index, sys._getframe(1), "writes")
        super().__setitem__(index, value)


def watch_state(state: Any, report: Report) -> None:
    """Let the arrays of a plain state report negative indices."""
    for name, array in list(vars(state).items()):
        if isinstance(array, Numbers):
            watched = vars(state)[name] = array.view(_StateArray)
            watched.name, watched.report = f"state.{name}", report


def _check_index(table: Any, index: Any, frame: types.FrameType, verb: str) -> None:
    """Report an index that is negative and no constant as in `table[-1]`.

    The function of `frame` "reads" or "writes" (`verb`) an item of `table`.
    """
    items = index if isinstance(index, tuple) else (index,)  # one for each axis
    if table.report is None or not any(isinstance(i, numbers.Integral) and i < 0 for i in items):
        return
    before = [i for i in dis.get_instructions(frame.f_code) if i.offset < frame.f_lasti]
    if before and isinstance(before[-1].argval, int | tuple) and "CONST" in before[-1].opname:
        return  # the instruction before loads a constant: the index
    path, line = frame.f_code.co_filename, frame.f_lineno
    shown = ", ".join(map(str, items))
    table.report(
        f"{path}:{line}: `{linecache.getline(path, line).strip()}` {verb} {table.name}[{shown}], "
        "which counts from the end of the table",
        (path, line, table.name.partition("[")[0]),
    )


class WatchedRng(Rng):
    """Random numbers that report one that a function asks for twice, by its index."""

    report: Callable[[str, str, Any], None]  # of level, message and kind: both lines
    asked: dict[int, tuple[str, str]]  # by number: the line that asked first, and the method

    @classmethod
    def of(cls, rng: Rng, report: Callable[[str, str, Any], None]) -> WatchedRng:
        """Return the numbers of an `Rng`, of which none has been asked for."""
        twin = cls(*rng[:-1])  # without the count of numbers that were asked for in turn
        twin.report, twin.asked = report, {}
        return twin

    def again(self) -> WatchedRng:
        """Return the same numbers, of which none has been asked for."""
        return self.of(self, self.report)

    def word(self, k: int | None) -> int:
        """Return the 32 bits of number k, or, which cannot repeat, of the next one for None."""
        if k is not None:
            place, use = _use_of(sys._getframe(1))  # the line, and the method with arguments
            if k in self.asked:
                first_place, first_use = self.asked[k]
                self.report(
                    # Drawn in the same way twice, they may be in branches of which one counts.
                    "note" if use == first_use else "warning",
                    f"{place} takes number {k} again, after {first_place}: where both count, they "
                    "depend on each other, and one needs another number, or none",
                    (place, first_place),
                )
            self.asked.setdefault(k, (place, use))
        return super().word(k)


def _use_of(frame: Any) -> tuple[str, str]:
    """Return the line that called a method of `Rng`, and the method with its arguments; texts."""
    use = ""
    while frame.f_code.co_filename in (__file__, random.__file__):
        arguments = {name: value for name, value in frame.f_locals.items() if name != "self"}
        use, frame = f"{frame.f_code.co_name} {arguments}", frame.f_back
    path, line = frame.f_code.co_filename, frame.f_lineno
    return f"{path}:{line}: `{linecache.getline(path, line).strip()}`", use
