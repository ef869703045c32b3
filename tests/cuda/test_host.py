"""What the host does with the real provider: `host_checks.py`, on a driver without a card."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = Path(os.environ.get("RLCPU_CUDA_VENV", ROOT / ".venv-cuda"), "bin", "python")
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.mark.skipif(not PYTHON.exists(), reason="needs the provider: `make cuda`")
@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_on_a_driver_without_a_card(tmp_path: Path) -> None:
    driver = tmp_path / "libcuda.so.1"
    source = str(HERE / "fake_driver.c")
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", driver, source, "-ldl"], check=True)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "FAKE_LOG": str(tmp_path / "log"),
    }
    command = [str(PYTHON), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, str(HERE / "host_checks.py")],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
