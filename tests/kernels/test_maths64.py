"""Errors, ends and machine code of the float64 mathematics that vectorises."""

from __future__ import annotations

import math
import platform
import re

import numpy as np
import pytest

from rlcpu.kernels.compiler.compile import EXACT, kernel
from rlcpu.kernels.compiler.maths import exp64, log64
from rlcpu.kernels.machine.vectors import VECTOR_BYTES
from tests.machine_code import assembly


@kernel(fastmath=EXACT)
def exp_all(x, out):
    for i in range(x.size):
        out[i] = exp64(x[i])


@kernel(fastmath=EXACT)
def log_all(x, out):
    for i in range(x.size):
        out[i] = log64(x[i])


def ulps(run, x, exact):
    out = np.empty_like(x)
    run(x, out)
    reference = exact(x.astype(np.longdouble))
    return float(np.max(np.abs(out - reference) / np.spacing(np.abs(reference.astype(float)))))


@pytest.mark.parametrize(
    ("low", "high"), [(-708, -700), (-50, 0), (-1e-3, 1e-3), (-1, 1), (0, 50), (700, 709)]
)
def test_exp(low, high):
    x = np.random.default_rng(0).uniform(low, high, 100_000)
    assert ulps(exp_all, x, np.exp) <= 1.0


@pytest.mark.parametrize("digits", [1e-6, 0.01, 1.0, 300.0])
def test_log(digits):
    x = 10.0 ** np.random.default_rng(0).uniform(-digits, digits, 100_000)
    assert ulps(log_all, x[x != 1.0], np.log) <= 1.0


def test_ends():
    x = np.array([0.0, -708.0, -708.1, -1e300, -math.inf])
    out = np.empty_like(x)
    exp_all(x, out)
    np.testing.assert_array_equal(out[[0, 2, 3, 4]], [1.0, 0.0, 0.0, 0.0])
    assert out[1] == pytest.approx(math.exp(-708.0), rel=1e-15)
    x = np.array([1.0, np.finfo(float).tiny, np.finfo(float).max])
    out = np.empty_like(x)
    log_all(x, out)
    assert out[0] == 0.0
    np.testing.assert_allclose(out[1:], np.log(x[1:]), rtol=1e-15)


@pytest.mark.parametrize("x", [0.3, 1.0, 2.5, 700.0])
def test_plain_python_computes_the_same(x):
    with np.errstate(over="ignore"):  # of whole numbers, which wrap round
        assert float(exp64(-x)) == pytest.approx(math.exp(-x), rel=1e-15)
        assert float(log64(x)) == pytest.approx(math.log(x), rel=1e-15, abs=1e-16)


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or VECTOR_BYTES == 16,
    reason="reads x86 code with AVX",
)
@pytest.mark.parametrize("run", [exp_all, log_all])
def test_loops_are_vector_code(run):
    code = assembly(run, np.ones(64), np.empty(64))
    assert len(re.findall(r"%[yz]mm\d", code)) >= 8
    assert not re.search(r"\b(?:exp|log)\b", code)
