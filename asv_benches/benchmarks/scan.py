"""Recurrences over an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._common import Quick, require, timed

DTYPES = ["float64", "float32"]
SHAPES = [(4, 16), (1000, 1000), (100_000, 100), (1, 10**7)]
REPORT = (100_000, 100)
STEPS = [(128, 16), (128, 16_384), (2048, 1024)]
THREADS = [1, 2]
POOL = 8  # inputs in turn: the branch predictor learns a single one by heart

Arrays = list[np.ndarray]


def systems(shape: tuple[int, int], dtype: str) -> Arrays:
    """Lower, main and upper diagonal, right-hand sides: diagonally dominant."""
    rng = np.random.default_rng(0)
    lower, upper, rhs = (
        rng.random(shape, np.dtype(dtype)) - np.dtype(dtype).type(0.5) for _ in "lur"
    )
    return [lower, np.full(shape, 2.0, dtype), upper, rhs]


class Tridiagonal(Quick):
    """`solve_tridiagonal`: systems and unknowns of each."""

    params = (SHAPES, [-1, 0], DTYPES, THREADS)
    param_names = ("shape", "axis", "dtype", "threads")

    def setup(self, shape: tuple[int, int], axis: int, dtype: str, threads: int) -> None:
        """Draws the systems."""
        self.solve = require("rlcpu.scan.solve_tridiagonal")
        self.arrays = systems(shape if axis == -1 else shape[::-1], dtype)
        self.out = np.zeros_like(self.arrays[0])

    @timed
    def track_solve(self, shape: tuple[int, int], axis: int, dtype: str, threads: int) -> None:
        """Pivoted."""
        self.solve(*self.arrays, axis=axis, out=self.out, num_threads=threads)


class TridiagonalVariants(Quick):
    """Other ways to solve 100,000 systems of 100 unknowns, float64."""

    def setup(self) -> None:
        """Draws the systems."""
        self.solve = require("rlcpu.scan.solve_tridiagonal")
        self.vjp = require("rlcpu.scan.tridiagonal_vjp")
        self.arrays = systems(REPORT, "float64")
        self.out = np.zeros_like(self.arrays[0])
        self.factors = require("rlcpu.scan.factor_tridiagonal")(*(a[0] for a in self.arrays[:3]))
        self.x = self.solve(*self.arrays)

    @timed
    def track_thomas(self) -> None:
        """Without pivoting."""
        self.solve(*self.arrays, method="thomas", out=self.out)

    @timed
    def track_periodic(self) -> None:
        """Corners added."""
        self.solve(*self.arrays, periodic=True, out=self.out)

    @timed
    def track_factored(self) -> None:
        """One matrix, factored before."""
        self.factors.solve(self.arrays[3], out=self.out)

    @timed
    def track_gradient(self) -> None:
        """Of a loss, through the solution."""
        self.vjp(*self.arrays[:3], self.x, self.arrays[3])


class Returns(Quick):
    """Returns and advantages, float32, time-major."""

    params = (
        ["discounted_returns", "gae", "lambda_returns", "nstep_returns", "vtrace", "retrace"],
        STEPS,
    )
    param_names = ("function", "shape")

    def setup(self, function: str, shape: tuple[int, int]) -> None:
        """Draws a rollout."""
        rng = np.random.default_rng(0)
        rewards, values, others, ratios = rng.standard_normal((4, *shape), np.float32)
        ends = rng.random(shape) < 0.01, np.zeros(shape, np.bool_), np.zeros(shape[1], np.float32)
        arrays: dict[str, tuple[Any, ...]] = {
            "discounted_returns": (rewards,),
            "vtrace": (rewards, values, np.exp(ratios)),
            "retrace": (rewards, values, others, np.exp(ratios)),
        }
        extra = {
            "gae": {"lambda_": 0.95},
            "lambda_returns": {"lambda_": 0.95},
            "nstep_returns": {"n": 5},
        }
        self.function = require(f"rlcpu.scan.{function}")
        self.arrays = *arrays.get(function, (rewards, values)), *ends
        self.options = {"gamma": 0.99, **extra.get(function, {})}

    @timed
    def track_returns(self, function: str, shape: tuple[int, int]) -> None:
        """New arrays for the results."""
        self.function(*self.arrays, **self.options)


class Advantages(Quick):
    """`gae` over either axis, float32, with 1 and 2 threads, into the same arrays again."""

    params = (STEPS, [0, 1], THREADS)
    param_names = ("shape", "axis", "threads")

    def setup(self, shape: tuple[int, int], axis: int, threads: int) -> None:
        """Draws rollouts."""
        rng = np.random.default_rng(0)
        sizes = shape if axis == 0 else shape[::-1]
        rewards, values = rng.standard_normal((2, *sizes), np.float32)
        terminated, never = rng.random(sizes) < 0.01, np.zeros(sizes, np.bool_)
        self.arrays = rewards, values, terminated, never, np.zeros(shape[1], np.float32)
        out = require("rlcpu.scan.Advantages")(*np.zeros((2, *sizes), np.float32))
        self.options = {"gamma": 0.99, "lambda_": 0.95, "axis": axis, "out": out}
        self.options["num_threads"] = threads
        self.gae = require("rlcpu.scan.gae")

    @timed
    def track_gae(self, shape: tuple[int, int], axis: int, threads: int) -> None:
        """One call."""
        self.gae(*self.arrays, **self.options)


class LinearScan(Quick):
    """`linear_scan` over the first axis."""

    params = (STEPS, DTYPES)
    param_names = ("shape", "dtype")

    def setup(self, shape: tuple[int, int], dtype: str) -> None:
        """Draws coefficients."""
        self.function = require("rlcpu.scan.linear_scan")
        self.arrays = np.random.default_rng(0).random((2, *shape), np.dtype(dtype))
        self.out = np.zeros(shape, dtype)

    @timed
    def track_linear_scan(self, shape: tuple[int, int], dtype: str) -> None:
        """Into the same array again."""
        self.function(*self.arrays, axis=0, out=self.out)


class LogCumSumExp(Quick):
    """`logcumsumexp` of one long row."""

    params = ([1000, 100_000, 10**7], DTYPES)
    param_names = ("size", "dtype")

    def setup(self, size: int, dtype: str) -> None:
        """Draws rows."""
        rows = POOL if size < 10**7 else 1
        self.rows = np.random.default_rng(0).standard_normal((rows, size), np.dtype(dtype))
        self.out = np.zeros(size, dtype)
        self.calls = 0
        self.function = require("rlcpu.scan.logcumsumexp")

    @timed
    def track_logcumsumexp(self, size: int, dtype: str) -> None:
        """Into the same array again."""
        self.calls += 1
        self.function(self.rows[self.calls % len(self.rows)], out=self.out)


class Kalman(Quick):
    """10,000 scalar observations under (models, size of the state), float64."""

    params = (
        ["kalman_loglik", "kalman_loglik_vjp", "kalman_filter", "kalman_smooth"],
        [(1, 2), (64, 4)],
    )
    param_names = ("function", "models")

    def setup(self, function: str, models: tuple[int, int]) -> None:
        """Draws stable models."""
        batch, m = models
        rng = np.random.default_rng(0)
        transition = 0.95 * np.linalg.qr(rng.standard_normal((batch, m, m)))[0]
        design = rng.standard_normal((batch, 1, m))
        noise = 0.1 * np.eye(m), design, np.eye(1)
        self.arrays = rng.standard_normal((batch, 10_000, 1)), transition, *noise
        self.function = require(f"rlcpu.scan.{function}")

    @timed
    def track_kalman(self, function: str, models: tuple[int, int]) -> None:
        """New arrays for the results."""
        self.function(*self.arrays)
