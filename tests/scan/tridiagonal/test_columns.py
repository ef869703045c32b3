"""Tridiagonal systems that lie next to each other: accuracy, checks, blocks, what is not read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.scan import Status, solve_tridiagonal, tridiagonal_vjp
from tests.scan.tridiagonal import naive


def make(family: str, shape: tuple[int, int], seed: int = 0) -> list[Any]:
    """Coefficients of a family, and normal right-hand sides, (batch, n)."""
    *matrix, _ = naive.make(family, shape, seed=seed)
    return [*matrix, np.random.default_rng(seed).standard_normal(shape)]


def columns(arrays: list[Any]) -> list[Any]:
    """The same numbers in arrays (n, batch)."""
    return [np.ascontiguousarray(array.T) for array in arrays]


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("family", naive.FAMILIES)
@pytest.mark.parametrize(("batch", "n"), [(700, 1), (700, 2), (700, 3), (2003, 100), (9, 10_000)])
def test_backward_error(family: str, batch: int, n: int, axis: int) -> None:
    """Below 1e-13 in every family, without a check."""
    n += family == "zero diagonal" and n % 2  # with an odd number of unknowns it is singular
    systems = make(family, (batch, n))
    given = systems if axis else columns(systems)
    x = solve_tridiagonal(*given, axis=axis)
    x = x if axis else x.T
    assert naive.backward_error(*systems, x).max() < 1e-13


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["pivot", "thomas"])
def test_check(method: Any, dtype: str) -> None:
    """Errors as they are, and those of inaccurate solutions refined, in place too."""
    systems = [a.astype(dtype) for a in make("random", (1001, 50), seed=3)]
    given = columns(systems)
    x, info = solve_tridiagonal(
        *given, axis=0, method=method, check="residual", return_info=True, out=given[3]
    )
    assert x is given[3]
    measured = naive.backward_error(*systems, x.T)
    epsilon = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(info.backward_error, measured, atol=8 * epsilon)
    plain = solve_tridiagonal(*columns(systems), axis=0, method=method).T
    before = naive.backward_error(*systems, plain)
    assert measured.max() < 200 * epsilon or method == "thomas"
    assert (measured <= np.maximum(before, 200 * epsilon)).all()
    assert (before > 200 * epsilon).any() or method == "pivot"
    assert method == "thomas" or not info.status.any()


@pytest.mark.parametrize("shape", [(3, 20, 70), (40, 7, 5), (2, 9, 1300), (2, 1300, 9)])
def test_blocks(shape: tuple[int, int, int]) -> None:
    """Axes on both sides of the unknowns; blocks and their rests change nothing."""
    systems = naive.make("random", (shape[0], shape[2], shape[1]), seed=1)
    given = [np.ascontiguousarray(np.moveaxis(a, -1, 1)) for a in systems]
    x = solve_tridiagonal(*given, axis=1)
    rows = solve_tridiagonal(*systems)
    np.testing.assert_array_equal(np.moveaxis(x, 1, -1), rows)


@pytest.mark.parametrize("offset", [0, 1, 5])
@pytest.mark.parametrize("batch", [5120, 5123])
def test_results_that_are_written_past_the_caches(batch: int, offset: int) -> None:
    """Wherever lines of memory begin, of the first row and of the others."""
    systems = columns(naive.make("dominant", (batch, 120), seed=2))
    memory = np.full(batch * 120 + 64, 7.0)
    out = memory[offset : offset + batch * 120].reshape(120, batch)
    x = solve_tridiagonal(*systems, axis=0, out=out)
    rows = solve_tridiagonal(*(a.T.copy() for a in systems))
    np.testing.assert_array_equal(x.T, rows)
    assert (memory[:offset] == 7.0).all()
    assert (memory[offset + batch * 120 :] == 7.0).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_overflow_at_either_end(axis: int) -> None:
    """Substitution overflows on the way from the middle to the first or to the last unknown."""
    lower, diagonal, upper = np.zeros((40, 6)), np.ones((40, 6)), np.zeros((40, 6))
    rhs = np.ones((40, 6))
    rhs[3, 2] = rhs[7, 3] = upper[3, 0] = lower[7, 5] = 1e200
    upper[3, 1] = lower[7, 4] = 1e30
    systems = [lower, diagonal, upper, rhs]
    given = columns(systems) if axis == 0 else systems
    x, info = solve_tridiagonal(*given, axis=axis, return_info=True)
    np.testing.assert_array_equal(np.flatnonzero(info.status), [3, 7])
    assert (info.status[[3, 7]] == Status.SINGULAR).all()
    finite = np.isfinite(np.moveaxis(x, axis, -1)).all(-1)
    np.testing.assert_array_equal(np.flatnonzero(~finite), [3, 7])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(40, 1), (40, 2), (41, 9), (200, 100)])
def test_gradients_read_nothing_beside_the_arrays(shape: tuple[int, int], axis: int) -> None:
    """Systems between others that are not finite."""
    lower, diagonal, upper, x = make("dominant", shape)
    grad = np.ones(shape)
    arrays = [lower, diagonal, upper, x, grad]
    arrays = columns(arrays) if axis == 0 else arrays
    expected = tridiagonal_vjp(*arrays, axis=axis)
    inside = []
    for array in arrays:
        wide = np.full([size + 2 for size in array.shape], np.nan)
        wide[1:-1, 1:-1] = array
        inside.append(wide[1:-1, 1:-1])
    for found, own in zip(tridiagonal_vjp(*inside, axis=axis), expected, strict=True):
        np.testing.assert_array_equal(found, own)
