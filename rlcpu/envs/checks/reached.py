"""Lines and parts of lines of an environment's plain functions that a run never came to.

A tracer of Python's is told of lines, and of the instructions of lines that have some left. A part
is what an instruction computes, such as one side of a ternary.
"""

from __future__ import annotations

import contextlib
import dis
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any

from rlcpu.envs.checks.vectorised import reached_functions
from rlcpu.envs.dynamics import Dynamics

#: Packages of ours that users' functions call, and do not write.
_OURS = ("rlcpu.envs.engine", "rlcpu.envs.transforms")
#: Instructions that compute nothing.
_SILENT = ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "NOP", "CACHE", "PRECALL", "JUMP")


class Reached:
    """Parts of the functions of an environment that did not run so far."""

    def __init__(self, dynamics: Dynamics) -> None:
        self._parts: dict[types.CodeType, dict[int, Any]] = {}  # by the instruction
        self._left: dict[types.CodeType, dict[int, set[Any]]] = {}  # by the line
        self._ran: dict[types.CodeType, set[int]] = {}
        for name in dynamics.functions:
            for function in reached_functions(getattr(dynamics, name)):
                if not function.__module__.startswith(_OURS):
                    self._add(function.__code__)

    def _add(self, code: types.CodeType) -> None:
        """Add the instructions of a function whose source there is."""
        if not linecache.getline(code.co_filename, code.co_firstlineno):
            return
        parts = self._parts[code] = {
            each.offset: each.positions
            for each in dis.get_instructions(code)
            if each.positions and each.positions.lineno and each.positions.col_offset is not None
            if not any(word in each.opname for word in _SILENT)
        }
        lines = self._left[code] = {}
        for part in parts.values():
            lines.setdefault(part.lineno, set()).add(part)
        self._ran[code] = set()

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Take note of what runs in a block; of nothing under a debugger."""
        if sys.gettrace() is not None:
            self._left.clear()
        if not self._left:
            yield
            return
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)

    def _trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
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
        """Yield the places that never ran, with their source.

        Lines that never ran and follow each other are one place. A line that ran in part has a
        place for each part that did not, such as a side of a ternary; where no part at all has
        been seen, Python does not tell of that line's parts, and nothing is said.
        """
        for code, left in self._left.items():
            path, ran = code.co_filename, self._ran[code]
            if not ran:
                yield f"{_quote(path, code.co_firstlineno)}, all of it"
                continue
            span: list[int] = []
            for line in [*sorted(left), 0]:  # 0 is behind the last line, and ends the last span
                if line and line not in ran and left[line]:
                    span.append(line)
                    continue
                if span:
                    more = f", to line {span[-1]}" if len(span) > 1 else ""
                    yield f"{_quote(path, span[0])}{more}"
                    span = []
                all_parts = {part for part in self._parts[code].values() if part.lineno == line}
                if line in ran and left[line] != all_parts:
                    for text in _texts(path, left[line]):
                        yield f"`{text}` in {_quote(path, line)}"


def _quote(path: str, line: int) -> str:
    return f"{path}:{line}: `{linecache.getline(path, line).strip()}`"


def _texts(path: str, parts: set[Any]) -> Iterator[str]:
    """Yield the source of the outermost of parts of a line."""
    spans = {
        (p.lineno, p.col_offset, p.end_lineno, p.end_col_offset)
        for p in parts
        if p.end_lineno is not None and p.end_col_offset is not None
    }
    for first, begin, last, end in sorted(spans):
        if any(
            (a, b) <= (first, begin) and (last, end) <= (c, d) and (a, b, c, d) != each
            for a, b, c, d in spans
            for each in [(first, begin, last, end)]
        ):
            continue
        text = linecache.getline(path, first).encode()
        text = text[begin : end if last == first else None]
        yield text.decode().strip() + ("" if last == first else " ...")
