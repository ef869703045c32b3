"""The device tests in the CUDA simulator: a process for each folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARKED = re.compile(r"pytest\.mark\.device\b")


def folders() -> dict[str, list[Path]]:
    """The files with device tests, by their folder."""
    found: dict[str, list[Path]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        if path != Path(__file__) and MARKED.search(path.read_text("utf-8")):
            found.setdefault(path.parent.name, []).append(path)
    return found


FOLDERS = folders()


@pytest.mark.parametrize("folder", FOLDERS)
def test_in_simulator(folder: str) -> None:
    # The simulator's integers warn where they wrap around, as random numbers do all the time.
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
            *("-m", "device", "-W", "ignore::RuntimeWarning", *map(str, FOLDERS[folder])),
        ],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"\d+ passed", result.stdout)
