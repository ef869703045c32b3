"""Matrices factored on the device, and systems solved with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlcpu.scan
from rlcpu.cuda import arrays
from rlcpu.cuda.scan import factor_tridiagonal
from rlcpu.scan import SingularMatrixError, Status
from tests.scan.tridiagonal import naive

pytestmark = pytest.mark.device

#: Systems of one warp and of the next, unknowns of one tile and of the next.
BATCH, LENGTH = 35, 35


def turned(array: np.ndarray, axis: int) -> Any:
    return arrays.from_host(np.moveaxis(array, -1, axis).copy())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("family", naive.FAMILIES)
def test_a_matrix_for_each_system(family: str, axis: int, dtype: Any) -> None:
    length = 34 if family == "zero diagonal" else LENGTH
    given = naive.make(family, (BATCH, length), dtype)
    factors = factor_tridiagonal(*(turned(a, axis) for a in given[:3]), axis=axis)
    x = np.moveaxis(np.asarray(factors.solve(turned(given[3], axis))), axis, -1)
    assert x.dtype == dtype
    assert naive.backward_error(*given, x).max() < 500 * np.finfo(dtype).eps


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_matrices_of_a_batch_axis(length: int, axis: int) -> None:
    """Matrices (3, n) of right-hand sides (2, 3, n), whose axis may be another."""
    given = naive.make("random", (3, length))
    rhs = np.random.default_rng(1).normal(size=(2, 3, length))
    factors = factor_tridiagonal(*map(arrays.from_host, given[:3]))
    found = np.asarray(factors.solve(turned(rhs, axis), axis=axis))
    assert naive.backward_error(*given[:3], rhs, np.moveaxis(found, axis, -1)).max() < 1e-13


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_matrices_of_several_systems_in_turn(axis: int) -> None:
    given = naive.make("random", (2, 1, 3, 1, 6))
    rhs = np.random.default_rng(1).normal(size=(4, 2, 1, 3, 5, 6))
    factors = factor_tridiagonal(*map(arrays.from_host, given[:3]))
    found = np.moveaxis(np.asarray(factors.solve(turned(rhs, axis), axis=axis)), axis, -1)
    assert naive.backward_error(*given[:3], rhs, found).max() < 1e-13


@pytest.mark.parametrize("axis", [0, -1])
def test_one_matrix_in_place(axis: int) -> None:
    given = naive.make("random", (LENGTH,))
    rhs = np.random.default_rng(1).normal(size=(4, LENGTH))
    factors = factor_tridiagonal(*map(arrays.from_host, given[:3]))
    out = turned(rhs, axis)
    assert factors.solve(out, axis=axis, out=out) is out
    expected = rlcpu.scan.factor_tridiagonal(*given[:3]).solve(rhs)
    np.testing.assert_allclose(np.moveaxis(np.asarray(out), axis, -1), expected, rtol=1e-9)


def test_numbers_for_coefficients() -> None:
    factors = factor_tridiagonal(-1.0, arrays.from_host(np.full(3, 2.0)), -1.0)
    assert np.allclose(np.asarray(factors.solve(np.ones((2, 3)))), [[1.5, 2.0, 1.5]] * 2)
    assert repr(factors) == "TridiagonalFactors(shape=(3,), axis=-1, dtype=float64)"


def test_statuses() -> None:
    given = naive.make("dominant", (4, 6))
    for array in given[:3]:
        array[1, 3] = 0.0
    given[1][2, 4] = np.inf
    with pytest.raises(SingularMatrixError, match="2 of 4 matrices not factored") as caught:
        factor_tridiagonal(*map(arrays.from_host, given[:3]))
    expected = [Status.SOLVED, Status.SINGULAR, Status.NOT_FINITE, Status.SOLVED]
    assert caught.value.status.tolist() == expected
    factors = factor_tridiagonal(1.0, arrays.from_host(np.full(6, 3.0)), 1.0)
    rhs = np.ones((3, 6))
    rhs[1, 2] = np.nan
    for axis in (0, 1):
        with pytest.raises(SingularMatrixError, match="1 of 3 systems not solved") as caught:
            factors.solve(turned(rhs, axis), axis=axis)
        assert caught.value.status.tolist() == [0, Status.NOT_FINITE, 0]


def test_bad_input() -> None:
    ones = arrays.from_host(np.ones((3, 6)))
    with pytest.raises(ValueError, match=r"do not broadcast: lower \(3, 6\), diagonal \(5,\)"):
        factor_tridiagonal(ones, arrays.from_host(np.ones(5)), 1.0)
    with pytest.raises(TypeError, match="diagonal float32"):
        factor_tridiagonal(ones, arrays.from_host(np.ones(6, np.float32)), 1.0)
    with pytest.raises(ValueError, match="no unknowns along axis 1"):
        factor_tridiagonal(1.0, arrays.from_host(np.ones((3, 0))), 1.0)
    factors = factor_tridiagonal(1.0, arrays.from_host(np.full((3, 6), 3.0)), 1.0)
    with pytest.raises(ValueError, match="expected 6 numbers along axis 0"):
        factors.solve(ones, axis=0)
    with pytest.raises(ValueError, match=r"matrices' shape \(3,\) does not broadcast to \(2,\)"):
        factors.solve(arrays.from_host(np.ones((2, 6))))
    with pytest.raises(TypeError, match="rhs has dtype float32"):
        factors.solve(arrays.from_host(np.ones((3, 6), np.float32)))
    with pytest.raises(TypeError, match="out"):
        factors.solve(ones, out=np.ones((3, 6)))
    wide = arrays.from_host(np.ones((4, 6)))
    with pytest.raises(ValueError, match="out: overlaps rhs"):
        factors.solve(wide.view((3, 6)), out=wide.view((3, 6), 6))
    factors = factor_tridiagonal(1.0, arrays.from_host(np.full((2, 1, 2, 6), 3.0)), 1.0)
    with pytest.raises(ValueError, match="between two of theirs"):
        factors.solve(arrays.from_host(np.ones((2, 3, 2, 6))))
