"""Every kernel, compiled to the machine code of sm_90: spills, local memory, double arithmetic.

The machine code is what a launch loads, and is kept on disk as one keeps it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

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


def run(*command: str, **variables: str) -> Any:
    """What a program prints as JSON, where NVIDIA's compiler is."""
    if not wait_for_compiler():
        pytest.skip("needs NVIDIA's compiler: `make cuda` installs it in .venv-cuda")
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    result = subprocess.run(
        [str(PYTHON), *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("package", PACKAGES)
def test_machine_code(package: str) -> None:
    found = run(str(HERE / "ptx.py"), package)
    assert found
    for name, kernel in found.items():
        assert "error" not in kernel, f"{name}: {kernel['error']}"
        assert kernel["misplaced"] == "", name
        assert kernel["registers"] > 0, name
        assert kernel["spills"] == 0, name
        if "float32" in name:
            assert kernel["doubles"] == 0, name
            assert kernel["stack"] == 0, name


#: Takes the machine code of three kernels, and prints what it logged and which are alike.
KEPT = """
import hashlib, json, logging, sys
import numpy as np
sys.path.insert(0, "tests/cuda")
import ptx
from rlcpu.cuda.compile import Kernel, kernel
from rlcpu.cuda.device import cuda
from rlcpu.kernels.compiler.compile import specialise
lines = []
logger = logging.getLogger("rlcpu")
logger.setLevel("INFO")
logger.addHandler(logging.Handler())
logger.handlers[-1].emit = lambda record: lines.append(record.getMessage())
ptx.pretend_device()
number = float(sys.argv[1])
def times(x): return x * number
times = specialise(times, np.float64)
@kernel
def fast(x):
    x[cuda.grid(1)] += times(x[0])
exact = Kernel(fast.function, exact=True, max_registers=None)
narrow = Kernel(fast.function, exact=False, max_registers=16)
kinds = ptx.types_of(("float64[::1]",))
codes = [each.machine_code(kinds, ptx.ARCHITECTURE) for each in (fast, exact, narrow)]
digests = [hashlib.sha256(code).hexdigest() for code in codes]
print(json.dumps([sum(line.startswith("compiled CUDA kernels") for line in lines), digests]))
"""


def test_machine_code_is_kept(tmp_path: Path) -> None:
    def compiled(number: str) -> tuple[int, list[str]]:
        count, digests = run("-c", KEPT, number, NUMBA_CACHE_DIR=str(tmp_path))
        return count, digests

    count, digests = compiled("2")
    assert (count, len(set(digests))) == (3, 3)  # options tell kernels apart
    assert compiled("2") == (0, digests)
    assert compiled("3")[0] == 3  # and what they close over
    files = sorted(tmp_path.rglob("*"))
    assert len([file for file in files if file.suffix == ".cubin"]) == 6
    for file in files:
        if file.suffix == ".cubin":
            content = file.read_bytes()
            file.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    assert compiled("2")[0] == 3
    assert compiled("2")[0] == 0
    assert sorted(tmp_path.rglob("*")) == files


#: Prints how many multiplications and other instructions a square takes, written in three ways.
SQUARES = """
import json, math, re, sys
import numpy as np
sys.path.insert(0, "tests/cuda")
import ptx
from rlcpu.cuda.compile import Kernel, kernel
from rlcpu.cuda.device import cuda
from rlcpu.kernels.compiler.compile import specialise
ptx.pretend_device()
def count(function):
    square = specialise(function, np.float32)
    @kernel
    def run(x):
        x[cuda.grid(1)] = square(x[cuda.grid(1)])
    text = ptx.link(ptx.Job("", run, ("float32[::1]",))).ptx
    return len(re.findall(r"\\bmul[.]ftz[.]f32", text)), text.count(";")
ways = lambda x: x * x, lambda x: x ** 2, lambda x: math.pow(x, 2.0)
print(json.dumps(list(map(count, ways))))
"""


def test_a_square_is_a_product() -> None:
    product, *others = run("-c", SQUARES)
    assert product[0] == 1
    assert others == [product, product]


def test_a_kernel_that_cannot_be_linked() -> None:
    code = (
        "import json, sys; sys.path.insert(0, 'tests/cuda')\n"
        "import ptx; from rlcpu.cuda import trees\n"
        "try: trees.claim.link(b'no code', ptx.ARCHITECTURE)\n"
        "except RuntimeError as error: print(json.dumps(str(error)))"
    )
    assert run("-c", code).startswith("claim: ")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler of C")
def test_launches_on_a_driver_of_our_own(tmp_path: Path) -> None:
    run(str(HERE / "launches.py"), str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path))
