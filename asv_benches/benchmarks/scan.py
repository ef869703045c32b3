"""Recurrences over an axis; results into the same arrays again where a function takes `out`."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np

from ._common import benchmark, require

DTYPES = ["float64", "float32"]
SHAPES = [(4, 16), (1000, 1000), (100_000, 100), (1, 10**7)]
STEPS = [(128, 16), (128, 16_384), (2048, 1024)]
POOL = 8  # inputs in turn: the branch predictor learns a single one by heart
FUNCTIONS = ["discounted_returns", "gae", "lambda_returns", "nstep_returns", "vtrace", "retrace"]
KALMAN = ["kalman_loglik", "kalman_loglik_vjp", "kalman_filter", "kalman_smooth"]


def systems(shape: tuple[int, int], dtype: str) -> list[np.ndarray]:
    """Lower, main and upper diagonal, right-hand sides: diagonally dominant."""
    rng, kind = np.random.default_rng(0), np.dtype(dtype)
    lower, upper, rhs = (rng.random(shape, kind) - kind.type(0.5) for _ in range(3))
    return [lower, np.full(shape, 2.0, dtype), upper, rhs]


@benchmark("solve", shape=SHAPES, axis=[-1, 0], dtype=DTYPES, threads=[1, 2])
def Tridiagonal(shape, axis, dtype, threads):
    """`solve_tridiagonal`: systems and unknowns of each."""
    arrays = systems(shape if axis == -1 else shape[::-1], dtype)
    options = {"axis": axis, "num_threads": threads, "out": np.zeros_like(arrays[0])}
    return partial(require("rlcpu.scan.solve_tridiagonal"), *arrays, **options)


@benchmark("thomas", "periodic", "factored", "gradient")
def TridiagonalVariants():
    """100,000 systems of 100 unknowns, float64.

    Without pivoting; corners added; one matrix, factored before; of a loss, through the solution.
    """
    solve, vjp = map(require, ("rlcpu.scan.solve_tridiagonal", "rlcpu.scan.tridiagonal_vjp"))
    arrays = systems((100_000, 100), "float64")
    out = np.zeros_like(arrays[0])
    factors = require("rlcpu.scan.factor_tridiagonal")(*(a[0] for a in arrays[:3]))
    return (
        partial(solve, *arrays, method="thomas", out=out),
        partial(solve, *arrays, periodic=True, out=out),
        partial(factors.solve, arrays[3], out=out),
        partial(vjp, *arrays[:3], solve(*arrays), arrays[3]),
    )


@benchmark("returns", function=FUNCTIONS, shape=STEPS)
def Returns(function, shape):
    """Returns and advantages, float32, time-major, new arrays for the results."""
    rng = np.random.default_rng(0)
    rewards, values, others, ratios = rng.standard_normal((4, *shape), np.float32)
    ends = rng.random(shape) < 0.01, np.zeros(shape, np.bool_), np.zeros(shape[1], np.float32)
    arrays = {
        "discounted_returns": (rewards,),
        "vtrace": (rewards, values, np.exp(ratios)),
        "retrace": (rewards, values, others, np.exp(ratios)),
    }.get(function, (rewards, values))
    by_lambda = {"lambda_": 0.95}
    extra = {"gae": by_lambda, "lambda_returns": by_lambda, "nstep_returns": {"n": 5}}
    options = {"gamma": 0.99, **extra.get(function, {})}
    return partial(require(f"rlcpu.scan.{function}"), *arrays, *ends, **options)


@benchmark("linear_scan", shape=STEPS, dtype=DTYPES)
def LinearScan(shape, dtype):
    """`linear_scan` over the first axis."""
    arrays = np.random.default_rng(0).random((2, *shape), np.dtype(dtype))
    return partial(require("rlcpu.scan.linear_scan"), *arrays, axis=0, out=np.zeros(shape, dtype))


@benchmark("logcumsumexp", size=[1000, 100_000, 10**7], dtype=DTYPES)
def LogCumSumExp(size, dtype):
    """`logcumsumexp` of one long row."""
    count, out = POOL if size < 10**7 else 1, np.zeros(size, dtype)
    rows = np.random.default_rng(0).standard_normal((count, size), np.dtype(dtype))
    function, turns = require("rlcpu.scan.logcumsumexp"), itertools.cycle(rows)
    return lambda: function(next(turns), out=out)


@benchmark("kalman", function=KALMAN, models=[(1, 2), (64, 4)])
def Kalman(function, models):
    """10,000 scalar observations under (models, size of the state), float64, new arrays."""
    (batch, m), rng = models, np.random.default_rng(0)
    transition = 0.95 * np.linalg.qr(rng.standard_normal((batch, m, m)))[0]
    noise = 0.1 * np.eye(m), rng.standard_normal((batch, 1, m)), np.eye(1)
    observations = rng.standard_normal((batch, 10_000, 1))
    return partial(require(f"rlcpu.scan.{function}"), observations, transition, *noise)
