"""Runs Python programs in processes of their own and reads what they report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TIMEOUT = 300

#: Variables by which numba compiles as for most laptops, which have AVX2 alone.
LAPTOP = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+f16c,+fma"}


def run_python(*arguments: Any, root: Path = ROOT, **environment: Any) -> Any:
    """Run `python arguments...` on the package in `root`; what its last line of JSON says.

    What libraries write as the process ends may follow it: numba does where TBB's threads were busy
    as it forked. `environment` is added to the variables of this process; None removes one.
    Warnings are errors, as in this process.

    Raises:
        AssertionError: the program failed, or took too long; the message holds what it wrote, and
            for one that waits, where its threads and those of its children are.
    """
    # No .pyc files: they tell a source by its size and its time in seconds, and tests edit faster.
    variables = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    variables |= environment
    variables = {name: str(value) for name, value in variables.items() if value is not None}
    command = [sys.executable, "-X", "faulthandler", "-W", "error", *map(str, arguments)]
    pipe, in_group = subprocess.PIPE, hasattr(os, "killpg")
    process = subprocess.Popen(
        command, env=variables, stdout=pipe, stderr=pipe, text=True, start_new_session=in_group
    )
    try:
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        # SIGABRT makes faulthandler write the stacks of each process of the group.
        os.killpg(process.pid, signal.SIGABRT) if in_group else process.kill()
        stdout, stderr = process.communicate()
    said = f"exit status {process.returncode}\n{stdout}\n{stderr}"
    assert process.returncode == 0, said
    for line in reversed(stdout.splitlines()):
        with contextlib.suppress(ValueError):
            return json.loads(line)
    raise AssertionError(said)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def output_of(
    program: str, *argv: str, cache: object, terminal: bool, columns: int = 80, **variables: str
) -> str:
    """What a process writes to standard output and error, a terminal or pipe."""
    import pytest

    fcntl = pytest.importorskip("fcntl", reason="Windows has no such terminals")
    termios = pytest.importorskip("termios")
    reader, writer = os.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    places = {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(cache)}
    # A width in the environment would count more than the terminal's.
    inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    variables = {**inherited, **places, **variables}
    command = [sys.executable, "-W", "error", "-c", program, *argv]
    process = subprocess.Popen(command, env=variables, stdout=writer, stderr=writer)
    os.close(writer)
    parts = []
    while True:
        try:
            parts.append(os.read(reader, 65536))
        except OSError:  # how a pseudo-terminal ends
            parts.append(b"")
        if not parts[-1]:
            break
    os.close(reader)
    output = b"".join(parts).decode().replace("\x1b[0m", "")  # numba's last word to a terminal
    assert process.wait() == 0, output
    return output
