"""What is special about solutions: small systems, numbers that vanish, residuals, no pivoting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.scan import SingularSystemError, Status, solve_tridiagonal
from rlcpu.scan.tridiagonal.chunks import Arrays, Mode, backward_errors
from rlcpu.scan.tridiagonal.plans import LONG
from rlcpu.scan.tridiagonal.status import info_of
from tests.scan.tridiagonal import naive

#: Bound on the backward error with check="residual", in multiples of epsilon.
CHECKED = 200.0


def epsilon(dtype: Any) -> float:
    return float(np.finfo(dtype).eps)


def ulp_error(systems: list[Any], x: Any) -> float:
    """Worst backward error in multiples of epsilon."""
    return float(naive.backward_error(*systems, x).max(initial=0.0)) / epsilon(x.dtype)


@pytest.mark.parametrize("family", naive.FAMILIES)
def test_solutions_of_small_systems(family: str) -> None:
    systems = naive.make(family, (20, 8), seed=1)
    x = solve_tridiagonal(*systems, check="residual")
    for i, (a, b, c, d) in enumerate(zip(*systems, strict=True)):
        matrix = naive.dense(a, b, c)
        expected = naive.solve(matrix, d)
        scaled_rows = (matrix / np.abs(matrix).max(1)[:, None]).astype(np.float64)
        bound = np.linalg.cond(scaled_rows) * np.abs(expected).max() * 100 * epsilon("float64")
        assert np.abs(x[i] - expected).max() <= bound


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("count", [1, 20])
def test_every_second_diagonal_tiny(count: int, first: int) -> None:
    """The bounds that the docstring states."""
    b, one = np.ones((count, 1000)), np.ones((count, 1000))
    b[:, first::2] = 1e-14
    for seed in range(4):
        systems = [one, b, one, np.random.default_rng(seed).normal(size=b.shape)]
        x = solve_tridiagonal(*systems)
        assert ulp_error(systems, x) < 1e3
        largest = naive.backward_error(*systems, x, normwise=True).max()
        assert largest < 50 * epsilon("float64")
        assert ulp_error(systems, solve_tridiagonal(*systems, check="residual")) < CHECKED


@pytest.mark.parametrize(("dtype", "n"), [("float32", 200), ("float64", 1200), ("float32", 40_000)])
@pytest.mark.parametrize("options", [{}, {"method": "thomas"}, {"periodic": True}])
@pytest.mark.parametrize("axis", [0, 1])
def test_unknowns_that_underflow_are_no_errors(
    axis: int, options: dict[str, Any], dtype: str, n: int
) -> None:
    """Of -1, 4, -1 and a right-hand side of one number, unknowns fall by 0.27 to either side."""
    middle, tiny = n // 2, np.finfo(dtype).smallest_normal
    d = np.zeros((3, n), dtype)
    d[:, middle] = 1, -7, 3 * tiny
    views = [np.full_like(d, value) for value in (-1, 4, -1)] + [d]
    views = [np.ascontiguousarray(np.moveaxis(array, -1, axis)) for array in views]
    x = np.moveaxis(solve_tridiagonal(*views, axis=axis, check="residual", **options), axis, -1)
    root = np.sqrt(np.longdouble(3))
    powers = (2 - root) ** abs(np.arange(n) - np.longdouble(middle)) / (2 * root)
    exact, least = powers * d[:, middle, None], np.finfo(dtype).smallest_subnormal
    assert (abs(x - exact) <= n * epsilon(dtype) * abs(exact) + 4 * np.longdouble(least)).all()


@pytest.mark.parametrize("size", [1, 1e-30])
@pytest.mark.parametrize("axis", [0, 1])
def test_wrong_solutions_are_refused_though_unknowns_underflow(axis: int, size: float) -> None:
    systems = naive.make("random", (3, 12), np.float32, seed=8)
    systems[1][1, 0] = 1e-30  # without pivoting nothing of the second equation is left
    systems[2][:, -1] = 1
    systems[3] *= np.float32(size)
    tail = [np.full((3, 188), value, np.float32) for value in (-1, 4, -1, 0)]
    views = [np.concatenate(pair, -1) for pair in zip(systems, tail, strict=True)]
    views = [np.ascontiguousarray(np.moveaxis(array, -1, axis)) for array in views]
    with pytest.raises(SingularSystemError, match=r"1 of 3 systems not solved: \(1,\) inaccurate"):
        solve_tridiagonal(*views, axis=axis, method="thomas", check="residual")


def test_periodic_against_the_dense_matrix() -> None:
    for n in range(1, 12):
        systems = naive.ring("dominant", (n,), seed=n)
        expected = naive.solve(naive.dense(*systems[:3], periodic=True), systems[3])
        x = solve_tridiagonal(*systems, periodic=True)
        np.testing.assert_allclose(x, expected.astype(float), rtol=1e-12)


@pytest.mark.parametrize("shape", [(1001, 50), (3, LONG + 5)])
def test_check_refines_without_pivoting(shape: tuple[int, int]) -> None:
    systems = naive.make("random", shape, seed=1)
    views = naive.moved(systems, 0)
    options: dict[str, Any] = {"axis": 0, "method": "thomas"}
    plain = solve_tridiagonal(*views, **options)
    assert naive.backward_error(*systems, plain.T).max() > 1e-13
    x = solve_tridiagonal(*views, **options, check="residual")
    assert naive.backward_error(*systems, x.T).max() < 1e-13


def test_thomas_is_exact_where_it_is() -> None:
    """Second differences of whole numbers: every pivot is a power of two."""
    n = 64
    lower, diagonal, upper = np.full(n, -1.0), np.full(n, 2.0), np.zeros(n)
    x = np.arange(n, dtype=float)
    rhs = diagonal * x + lower * np.append(0.0, x[:-1])
    solved = solve_tridiagonal(lower, diagonal, upper, rhs, method="thomas")
    np.testing.assert_array_equal(solved, x)


def test_thomas_does_not_pivot() -> None:
    systems = naive.make("zero diagonal", (9, 10))
    _, info = solve_tridiagonal(*systems, method="thomas", return_info=True)
    assert info.status.all()


# ---------------------------------------------------------------- residuals


def residual(arrays: Arrays, periodic: bool) -> tuple[Any, Any]:
    """What the equations of (outer, n, inner) lack, and the backward errors."""
    residuals = np.empty_like(arrays.out)
    errors = backward_errors(arrays, None, Mode(periodic=periodic), residuals)
    without = backward_errors(arrays, None, Mode(periodic=periodic))
    np.testing.assert_array_equal(without, errors)
    return residuals, errors


def expected(arrays: list[Any], periodic: bool) -> tuple[Any, Any]:
    a, b, c, d, x = (array.astype(np.longdouble) for array in arrays)
    terms = [a * np.roll(x, 1, 1), b * x, c * np.roll(x, -1, 1)]
    if not periodic:
        terms[0][:, 0] = terms[2][:, -1] = 0
    lacking, size = d - sum(terms), sum(map(np.abs, terms)) + np.abs(d)
    return lacking, (np.abs(lacking) / np.where(size == 0, 1, size)).max(1)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([1, 8, 16, 21]),
    st.sampled_from([1, 2, 3, 700, LONG - 1, LONG, LONG + 777]),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
)
def test_residuals(outer: int, inner: int, n: int, periodic: bool, dtype: Any) -> None:
    rng = np.random.default_rng(outer + n)
    arrays = [rng.normal(size=(outer, n, inner)).astype(dtype) for _ in range(5)]
    if not periodic:
        arrays[0][:, 0] = arrays[2][:, -1] = np.nan
    lacking, errors = residual(Arrays(*arrays), periodic)
    assert lacking.dtype == errors.dtype == dtype
    with np.errstate(invalid="ignore"):
        right, worst = expected(arrays, periodic)
    tolerance = 20 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(lacking, right.astype(dtype), atol=tolerance * 20)
    np.testing.assert_allclose(errors, worst.astype(dtype), rtol=tolerance * 100, atol=tolerance)


@pytest.mark.parametrize("periodic", [False, True])
def test_repeated_arrays_and_zero_equations(periodic: bool) -> None:
    zero = np.zeros((3, 300, 1))
    shared = np.broadcast_to(np.zeros((300, 1)), (3, 300, 1))
    lacking, errors = residual(Arrays(shared, shared, shared, zero, zero + 1), periodic)
    assert not lacking.any()
    assert not errors.any()
    lacking, errors = residual(Arrays(shared, shared, shared, zero + 2, zero + 1), periodic)
    assert (lacking == 2).all()
    assert np.isnan(errors).all()  # there is no solution


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unknowns_below_the_normal_numbers(dtype: Any) -> None:
    """Their last digits are no errors; half of one near the normal numbers is."""
    lowest = -60 if dtype == np.float32 else -400
    x = np.longdouble(10) ** np.linspace(0, lowest, 3000)[None]
    a, b, c = (np.full((1, 3000), value, dtype) for value in (-1, 4, -1))
    rhs = 4 * x - np.pad(x, ((0, 0), (1, 0)))[:, :-1] - np.pad(x, ((0, 0), (0, 1)))[:, 1:]
    rhs, near = rhs.astype(dtype), int(np.argmax(x[0] < 8 * np.finfo(dtype).smallest_normal))
    right = x.astype(dtype)
    wrong = right.copy()
    wrong[0, near] /= 2
    for solution, worst in ((right, 8 * np.finfo(dtype).eps), (wrong, 1)):
        arrays = (array[..., None] for array in (a, b, c, rhs, solution))
        error = residual(Arrays(*arrays), periodic=False)[1]
        assert worst / 20 <= error[0, 0] <= worst


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("k", [0, 3, 8])
def test_errors_that_overflow_are_not_forgotten(k: int, axis: int) -> None:
    """Whichever equation cannot be looked at: its terms exceed the largest number."""
    x = np.ones((9, 9))
    x[4, k] = 1.5e308
    arrays = [np.zeros_like(x), np.ones_like(x), np.zeros_like(x), x, x]
    # Nine systems in rows, or nine in columns.
    views = [a[..., None] if axis == 1 else a.T.copy()[None] for a in arrays]
    errors = residual(Arrays(*views), periodic=False)[1].reshape(-1)
    np.testing.assert_array_equal(errors, np.where(np.arange(9) == 4, np.nan, 0.0))
    info = info_of(np.zeros(9, np.int8), errors)
    np.testing.assert_array_equal(info.status, np.where(np.arange(9) == 4, Status.INACCURATE, 0))
