"""Every kernel, compiled to the machine code of sm_90: registers, spills, double arithmetic."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = Path(os.environ.get("RLCPU_CUDA_VENV", ROOT / ".venv-cuda"), "bin", "python")
TABLES = {
    path.parent.name: json.loads(path.read_text("utf-8")) for path in HERE.glob("*/registers.json")
}
KERNELS = [(package, name) for package in sorted(TABLES) for name in TABLES[package]]
#: Registers that another release of the compiler may take beyond the table.
SLACK = 4

needs_compiler = pytest.mark.skipif(
    not PYTHON.exists(), reason="needs NVIDIA's compiler: `make cuda` installs it in .venv-cuda"
)


@functools.cache
def compiled(package: str) -> Any:
    """What `ptx.py` finds, once a package."""
    command = [str(PYTHON), str(HERE / "ptx.py"), package]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@needs_compiler
@pytest.mark.parametrize("package", sorted(TABLES))
def test_table_names_every_kernel(package: str) -> None:
    assert sorted(compiled(package)) == sorted(TABLES[package])


@needs_compiler
@pytest.mark.parametrize(("package", "name"), KERNELS, ids=["-".join(pair) for pair in KERNELS])
def test_machine_code(package: str, name: str) -> None:
    found, recorded = compiled(package)[name], TABLES[package][name]
    assert "error" not in found, found["error"]
    assert found["spills"] == 0
    assert found["registers"] <= recorded["registers"] + SLACK
    assert found["stack"] <= recorded["stack"]
    if "float32" in name:
        assert found["doubles"] == 0
        assert found["stack"] == 0
