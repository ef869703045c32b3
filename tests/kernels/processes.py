"""Runs Python programs in processes of their own and reads what they report."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TIMEOUT = 300


def run_python(*arguments: Any, root: Path = ROOT, **environment: Any) -> Any:
    """Run `python arguments...` on the package in `root`; what its last line of JSON says.

    What libraries write as the process ends may follow it: numba does where TBB's threads were busy
    as it forked. `environment` is added to the variables of this process; None removes one.
    Warnings are errors, as in this process.

    Raises:
        AssertionError: the program failed; the message holds what it wrote.
    """
    # No .pyc files: they tell a source by its size and its time in seconds, and tests edit faster.
    variables = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    variables |= environment
    variables = {name: str(value) for name, value in variables.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    said = f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    for line in reversed(done.stdout.splitlines()):
        with contextlib.suppress(ValueError):
            return json.loads(line)
    raise AssertionError(said)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
