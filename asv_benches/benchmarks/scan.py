"""Recurrences over an axis."""

from __future__ import annotations

import numpy as np

DTYPES = ["float64", "float32"]
SHAPES = [(4, 16), (100_000, 100), (1, 10**7)]
STEPS = [(128, 16_384), (2048, 1024)]
MODELS = [(1, 4), (64, 4), (64, 8)]
POOL = 8  # inputs in turn: the branch predictor learns a single one by heart


class Tridiagonal:
    """Systems that are diagonally dominant."""

    version = "1"
    params = (SHAPES, [-1, 0], DTYPES)
    param_names = ("shape", "axis", "dtype")

    def setup(self, shape: tuple[int, int], axis: int, dtype: str) -> None:
        """Draws the systems and compiles."""
        from rlcpu.scan import solve_tridiagonal  # here, so that a commit without it keeps others

        rng = np.random.default_rng(0)
        sizes = shape if axis == -1 else shape[::-1]
        lower, upper, rhs = (rng.random(sizes, np.dtype(dtype)) - 0.5 for _ in range(3))
        diagonal = rng.random(sizes, np.dtype(dtype)) + 1.5
        self.arrays = [array.astype(dtype) for array in (lower, diagonal, upper, rhs)]
        self.out = np.zeros(sizes, dtype)
        self.solve = solve_tridiagonal
        self.time_solve(shape, axis, dtype)

    def time_solve(self, shape: tuple[int, int], axis: int, dtype: str) -> None:
        """Pivoted."""
        self.solve(*self.arrays, axis=axis, out=self.out)


class Advantages:
    """Generalised advantage estimates, float32."""

    version = "1"
    params = (STEPS, [0, 1])
    param_names = ("shape", "axis")

    def setup(self, shape: tuple[int, int], axis: int) -> None:
        """Draws rollouts and compiles."""
        from rlcpu.scan import Advantages, gae

        rng = np.random.default_rng(0)
        sizes = shape if axis == 0 else shape[::-1]
        rewards, values = rng.standard_normal((2, *sizes), np.float32)
        terminated, never = rng.random(sizes) < 0.01, np.zeros(sizes, np.bool_)
        self.arrays = rewards, values, terminated, never, np.zeros(shape[1], np.float32)
        out = Advantages(*np.zeros((2, *sizes), np.float32))
        self.options = {"gamma": 0.99, "lambda_": 0.95, "axis": axis, "out": out}
        self.gae = gae
        self.time_gae(shape, axis)

    def time_gae(self, shape: tuple[int, int], axis: int) -> None:
        """Into the same arrays again."""
        self.gae(*self.arrays, **self.options)


class LogCumSumExp:
    """One long row, float64."""

    version = "1"
    params = ([1000, 100_000, 10**7],)
    param_names = ("size",)

    def setup(self, size: int) -> None:
        """Draws rows and compiles."""
        from rlcpu.scan import logcumsumexp

        rows = POOL if size < 10**7 else 1
        self.rows = np.random.default_rng(0).standard_normal((rows, size))
        self.out = np.zeros(size)
        self.calls = 0
        self.logcumsumexp = logcumsumexp
        self.time_logcumsumexp(size)

    def time_logcumsumexp(self, size: int) -> None:
        """Into the same array again."""
        self.calls += 1
        self.logcumsumexp(self.rows[self.calls % len(self.rows)], out=self.out)


class Kalman:
    """Log-likelihoods of 10,000 scalar observations, float64."""

    version = "1"
    params = (MODELS,)
    param_names = ("models",)

    def setup(self, models: tuple[int, int]) -> None:
        """Draws stable models and compiles."""
        from rlcpu.scan import kalman_loglik, kalman_loglik_vjp

        batch, m = models
        rng = np.random.default_rng(0)
        transition = 0.95 * np.linalg.qr(rng.standard_normal((batch, m, m)))[0]
        design = rng.standard_normal((batch, 1, m))
        noise = 0.1 * np.eye(m), design, np.eye(1)
        self.arrays = rng.standard_normal((batch, 10_000, 1)), transition, *noise
        self.loglik, self.vjp = kalman_loglik, kalman_loglik_vjp
        self.time_value(models)
        self.time_gradient(models)

    def time_value(self, models: tuple[int, int]) -> None:
        """The log-likelihoods alone."""
        self.loglik(*self.arrays)

    def time_gradient(self, models: tuple[int, int]) -> None:
        """And their gradients."""
        self.vjp(*self.arrays)
