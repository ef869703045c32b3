"""Policies in files that run without this library: C, ONNX, and arrays with a list of statements.

`program.py` makes of a network a list of statements, each the name of an operation and the values
and arrays that it reads; the other files write such an `ExportedPolicy`, one each. An operation
that a file has no entry for cannot be exported to it. A policy with a state would pass it beside
its observation, and return the next one beside its outputs.
"""

from __future__ import annotations

from collections.abc import Callable

from rlcpu.nn.export.arrays import as_json, as_npz
from rlcpu.nn.export.c import as_c
from rlcpu.nn.export.onnx import as_onnx
from rlcpu.nn.export.program import ExportedPolicy as ExportedPolicy

#: What writes a program, by the ending of a file's name: (program, the rest of the name) -> bytes.
FORMATS: dict[str, Callable[[ExportedPolicy, str], bytes]] = {
    ".c": as_c,
    ".json": as_json,
    ".npz": as_npz,
    ".onnx": as_onnx,
}
