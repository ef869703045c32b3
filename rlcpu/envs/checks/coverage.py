"""Coverage of an environment's plain functions: lines, and parts of lines, that never ran.

A part of a line is the source of one bytecode instruction, such as one side of a ternary. Python's
tracer reports each line that runs, and, for lines that have parts left, each instruction.
"""

from __future__ import annotations

import contextlib
import dis
import itertools
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.engine.vectorised import called_functions

#: Packages whose functions are not the author's.
_OURS = ("rlcpu.envs.engine", "rlcpu.envs.layout", "rlcpu.envs.transforms")
#: Parts of names of instructions that compute nothing, such as `JUMP_FORWARD`.
_NO_OPERATIONS = ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "NOP", "CACHE", "PRECALL", "JUMP")


class Coverage:
    """Records which parts of an environment's functions run."""

    def __init__(self, dynamics: Dynamics) -> None:
        #: By code object: source positions of its instructions, by their offsets.
        self._parts: dict[types.CodeType, dict[int, Any]] = {}
        #: By code object: positions that did not run yet, by line.
        self._left: dict[types.CodeType, dict[int, set[Any]]] = {}
        #: By code object: the lines that ran.
        self._ran: dict[types.CodeType, set[int]] = {}
        for name in dynamics.functions:
            for function in called_functions(getattr(dynamics, name)):
                if not function.__module__.startswith(_OURS):
                    self._add(function.__code__)

    def _add(self, code: types.CodeType) -> None:
        """Add the instructions of a function, unless its source cannot be read."""
        if not linecache.getline(code.co_filename, code.co_firstlineno):
            return
        self._parts[code], self._left[code], self._ran[code] = {}, {}, set()
        for instruction in dis.get_instructions(code):
            part = instruction.positions
            computes = not any(word in instruction.opname for word in _NO_OPERATIONS)
            if computes and part and part.lineno and part.col_offset is not None:
                self._parts[code][instruction.offset] = part
                self._left[code].setdefault(part.lineno, set()).add(part)

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Record what runs in a `with` block; nothing under a debugger, which has the tracer."""
        if sys.gettrace() is not None:
            self._left.clear()  # so that `describe` yields nothing
        if not self._left:
            yield
            return
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)

    def _trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        """Record a line or an instruction, at offset `f_lasti`: a function for `sys.settrace`."""
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            return None
        if event == "line":
            self._ran[code].add(frame.f_lineno)
            frame.f_trace_opcodes = bool(left.get(frame.f_lineno))
        elif event == "opcode" and (part := self._parts[code].get(frame.f_lasti)) is not None:
            left[part.lineno].discard(part)
        return self._trace

    def describe(self) -> Iterator[str]:
        """Yield each place that never ran, as "file:line: `source`".

        Lines that never ran and follow each other are one place. A line that ran in part has a
        place for each part that did not, such as a side of a ternary. Where no part at all was
        recorded, Python does not report that line's instructions, and nothing is yielded.
        """
        for code, left in self._left.items():
            path, ran = code.co_filename, self._ran[code]
            if not ran:
                yield f"{_quote(path, code.co_firstlineno)}, all of it"
                continue
            missed = {line for line in left if line not in ran and left[line]}
            for is_missed, group in itertools.groupby(sorted(left), missed.__contains__):
                lines = list(group)
                if is_missed:
                    more = f", to line {lines[-1]}" if len(lines) > 1 else ""
                    yield f"{_quote(path, lines[0])}{more}"
                    continue
                for line in lines:
                    all_parts = {p for p in self._parts[code].values() if p.lineno == line}
                    if left[line] != all_parts:
                        for text in _outermost_sources(path, left[line]):
                            yield f"`{text}` in {_quote(path, line)}"


def _quote(path: str, line: int) -> str:
    """Return a line as "file:line: `source`"."""
    return f"{path}:{line}: `{linecache.getline(path, line).strip()}`"


def _outermost_sources(path: str, parts: set[Any]) -> Iterator[str]:
    """Yield the source of each part of a line that lies in no other of the parts."""
    spans = {
        ((p.lineno, p.col_offset), (p.end_lineno, p.end_col_offset))
        for p in parts
        if p.end_lineno is not None and p.end_col_offset is not None
    }
    for span in sorted(spans):
        begin, end = span
        if any(outer[0] <= begin and end <= outer[1] for outer in spans - {span}):
            continue
        (first_line, first_column), (last_line, last_column) = span
        text = linecache.getline(path, first_line).encode()  # columns count bytes
        text = text[first_column : last_column if last_line == first_line else None]
        yield text.decode().strip() + ("" if last_line == first_line else " ...")
