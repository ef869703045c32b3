"""Residuals and backward errors of whole and of cut systems, against plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.scan import Status
from rlcpu.scan.tridiagonal.chunks import Arrays, Mode, backward_errors
from rlcpu.scan.tridiagonal.plans import LONG
from rlcpu.scan.tridiagonal.status import info_of


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
