"""Every kernel, compiled to the machine code of sm_90: spills, local memory, double arithmetic."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = Path(os.environ.get("RLCPU_CUDA_VENV", ROOT / ".venv-cuda"), "bin", "python")
PACKAGES = sorted(path.parent.name for path in HERE.glob("*/kernels.py"))


@functools.cache
def wait_for_compiler() -> bool:
    """Whether it is installed: CI installs it beside the first tests, and says how long at most."""
    stop = time.monotonic() + float(os.environ.get("RLCPU_CUDA_SECONDS", "0"))
    while not (PYTHON.parents[1] / ".installed").exists() and time.monotonic() < stop:
        time.sleep(1.0)
    return PYTHON.exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_machine_code(package: str) -> None:
    if not wait_for_compiler():
        pytest.skip("needs NVIDIA's compiler: `make cuda` installs it in .venv-cuda")
    command = [str(PYTHON), str(HERE / "ptx.py"), package]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found
    for name, kernel in found.items():
        assert "error" not in kernel, f"{name}: {kernel['error']}"
        assert kernel["spills"] == 0, name
        if "float32" in name:
            assert kernel["doubles"] == 0, name
            assert kernel["stack"] == 0, name
