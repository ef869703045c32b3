"""Kernels compiled for narrower vectors than the machine's compute the same."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.kernels.machine.vectors import VECTOR_BYTES
from tests.kernels.processes import LAPTOP, run_python

#: A product of matrices, samples of a sum tree, tridiagonal systems and rings, a step of an
#: environment.
PROGRAM = """
import numpy as np
import rlcpu
from rlcpu.kernels.compiler.compile import kernel
from rlcpu.kernels.machine.matmul import Matrix, product
from rlcpu.kernels.machine.memory import address
from rlcpu.kernels.machine.vectors import VECTOR_BYTES
from rlcpu.replay import SumTree
from rlcpu.scan import factor_tridiagonal, solve_tridiagonal

@kernel
def multiply(left, right, start, out, shape):
    rows, depth, columns = shape
    product(
        Matrix(address(left), 0, depth, 1), Matrix(address(right), 0, columns, 1),
        Matrix(address(start), 0, columns, 1), Matrix(address(out), 0, columns, 1),
        (rows, depth, columns), np.float32(-np.inf),
    )

rng = np.random.default_rng(0)
left, right, start = (rng.normal(size=s).astype("f4") for s in ((21, 13), (13, 48), (21, 48)))
out = np.empty_like(start)
multiply(left.ravel(), right.ravel(), start.ravel(), out.ravel(), (21, 13, 48))
tree = SumTree(1000, seed=0)
tree.update(np.arange(1000), rng.random(1000))
samples = tree.sample(64)
a, b, c, d = rng.normal(size=(4, 37, 20))
x = solve_tridiagonal(a, b, c, d)
a, b, c, d = rng.normal(size=(4, 37, 5))  # rows that begin anywhere in a cache line
factored = factor_tridiagonal(a, b, c).solve(d)
a, c, d = rng.normal(size=(3, 97, 6007))  # so large that they are written past the caches
rings = solve_tridiagonal(a, np.full_like(a, 9.0), c, d, periodic=True, axis=0)
env = rlcpu.make_vec("CartPole-v1", 37)
env.reset(seed=0)
state = env.step(np.arange(37) % 2)[0]
results = {"product": out, "samples": samples, "x": x, "factored": factored, "rings": rings}
results["state"] = state
"""
SAVE = "import json, sys\nnp.savez(sys.argv[1], width=VECTOR_BYTES, **results)\nprint('{}')"


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    script = tmp_path_factory.mktemp("native") / "script.py"
    script.write_text(PROGRAM)
    return runpy.run_path(str(script))["results"]


#: Vectors that every x86 has, and those of most laptops: AVX2 alone.
@pytest.mark.parametrize(
    ("processor", "width"), [({"NUMBA_CPU_NAME": "generic"}, 16), (LAPTOP, 32)]
)
def test_narrower_vectors_compute_the_same(
    processor: dict[str, str], width: int, native: Any, tmp_path: Path
) -> None:
    if width >= VECTOR_BYTES:
        pytest.skip(f"the machine's vectors have {VECTOR_BYTES} bytes")
    file = tmp_path / "results.npz"
    run_python("-c", PROGRAM + SAVE, file, **processor)
    with np.load(file) as narrow:
        assert narrow["width"] == width
        for name, array in native.items():
            tolerance = 1e-10 if array.dtype == np.float64 else 1e-5
            np.testing.assert_allclose(narrow[name], array, rtol=tolerance, atol=tolerance)
