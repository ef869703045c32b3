"""The device tests of every package, in the CUDA simulator: a process of its own each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARKED = re.compile(r"pytest\.mark\.device\b")
FILES = [
    path
    for path in sorted(HERE.rglob("test_*.py"))
    if path != Path(__file__) and MARKED.search(path.read_text("utf-8"))
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(HERE).as_posix())
def test_in_simulator(path: Path) -> None:
    # The simulator's integers warn where they wrap around, as random numbers do all the time.
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
            *("-m", "device", "-W", "ignore::RuntimeWarning", str(path)),
        ],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"\d+ passed", result.stdout)
