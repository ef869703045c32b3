"""Policies as arrays and a list of statements: NumPy's npz, and JSON for all other languages.

Both hold the same: `ExportedPolicy.described`, the parameters by their names, and "mean", "scale",
"probe" and "expected". docs/howto/deploy.md has a reader of each.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from rlcpu.nn.export.program import Array, ExportedPolicy, shortest


def _all_arrays(program: ExportedPolicy) -> dict[str, Array]:
    """Return by name the arrays of a file."""
    names = "mean", "scale", "probe", "expected"
    return {**program.arrays, **{name: getattr(program, name) for name in names}}


def as_npz(program: ExportedPolicy, name: str) -> bytes:
    """Return a file for `numpy.load`: the arrays, and "program", the rest as a text of JSON."""
    file = io.BytesIO()
    arrays: dict[str, Any] = _all_arrays(program)
    np.savez(file, program=np.array(json.dumps(program.described())), **arrays)
    return file.getvalue()


def as_json(program: ExportedPolicy, name: str) -> bytes:
    """Return a text of JSON, arrays among the rest as lists of numbers in row-major order."""
    arrays = {name: shortest(array) for name, array in _all_arrays(program).items()}
    return (json.dumps({**program.described(), "arrays": arrays}) + "\n").encode()
