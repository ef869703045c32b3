"""`factor_tridiagonal` against dense matrices in extended precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.scan import SingularMatrixError, factor_tridiagonal


def product(lower: Any, diagonal: Any, upper: Any, x: Any, size: bool = False) -> Any:
    """A x along the last axis, in extended precision, or |A| |x|."""
    parts = [np.asarray(a, np.longdouble) for a in (lower, diagonal, upper, x)]
    lower, diagonal, upper, x = (np.abs(a) if size else a for a in parts)
    result = diagonal * x
    result[..., 1:] += (lower * np.ones_like(x))[..., 1:] * x[..., :-1]
    result[..., :-1] += (upper * np.ones_like(x))[..., :-1] * x[..., 1:]
    return result


def error(system: Any, rhs: Any, x: Any) -> float:
    """Componentwise backward error (Oettli and Prager) along the last axis."""
    residual = np.abs(rhs - product(*system, x))
    scale = product(*system, x, size=True) + np.abs(rhs)
    return float(np.max(residual / np.where(scale == 0, 1, scale)))


def matrices(kind: str, shape: tuple[int, ...], seed: int = 0) -> list[Any]:
    """Coefficients along the last axis; the ones to ignore hold NaN."""
    rng = np.random.default_rng(seed)
    lower, diagonal, upper = rng.standard_normal((3, *shape))
    if kind == "tiny pivots":
        diagonal[..., ::7] *= 1e-10
    if kind == "zero diagonal":
        diagonal[...] = 0.0
    if kind == "scaled rows":
        diagonal = (abs(lower) + abs(upper)) * (1 + rng.random(shape))
        scale = 10.0 ** rng.uniform(-100, 100, shape)
        lower, diagonal, upper = lower * scale, diagonal * scale, upper * scale
    lower[..., 0], upper[..., -1] = np.nan, np.inf
    return [lower, diagonal, upper]


KINDS = ["random", "tiny pivots", "zero diagonal", "scaled rows"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 100, 10_000])
@pytest.mark.parametrize("one", [True, False])
def test_backward_error(kind: str, n: int, one: bool) -> None:
    n += kind == "zero diagonal" and n % 2  # an odd number of equations would be singular
    count = max(20, 100_000 // n)
    system = matrices(kind, (n,) if one else (count, n))
    x = np.random.default_rng(1).standard_normal((count, n))
    rhs = product(*(np.nan_to_num(a, posinf=0.0) for a in system), x)
    rhs = rhs.astype(np.float64)
    assert error(system, rhs, factor_tridiagonal(*system).solve(rhs)) < 1e-13


@pytest.mark.parametrize("one", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_float32(one: bool, axis: int) -> None:
    shape = (21,) if one else (4, 5, 21)
    system = [a.astype(np.float32) for a in matrices("random", shape)]
    rhs = np.random.default_rng(1).standard_normal((4, 5, 21)).astype(np.float32)
    moved = [a if one else np.moveaxis(a, -1, axis) for a in system]
    factors = factor_tridiagonal(*moved, axis=-1 if one else axis)
    x = factors.solve(np.moveaxis(rhs, -1, axis), axis=axis)
    assert x.dtype == np.float32
    assert error(system, rhs, np.moveaxis(x, axis, -1)) < 1e-5


@given(
    st.lists(st.integers(1, 4), max_size=3),
    st.integers(1, 35),
    st.data(),
)
def test_any_shape(batch: list[int], n: int, data: st.DataObject) -> None:
    """Axes anywhere, matrices that broadcast, strides of every sign and order."""
    own = [data.draw(st.sampled_from([1, size])) for size in batch]
    own = own[data.draw(st.integers(0, len(own))) :]
    system = matrices("random", (*own, n))
    system[1] += 5.0
    rhs = np.random.default_rng(2).standard_normal((*batch, n))
    rhs_axis = data.draw(st.integers(0, len(batch)))
    axis = data.draw(st.integers(0, len(own)))
    order = data.draw(st.permutations(range(len(batch) + 1)))
    step = data.draw(st.sampled_from([1, -1, 2]))
    given_rhs = _strided(np.moveaxis(rhs, -1, rhs_axis), order, step)
    factors = factor_tridiagonal(*(np.moveaxis(a, -1, axis) for a in system), axis=axis)
    kept = given_rhs.copy()
    x = factors.solve(given_rhs, axis=rhs_axis)
    np.testing.assert_array_equal(given_rhs, kept)
    out = _strided(np.zeros_like(x), order, data.draw(st.sampled_from([1, -1, 2])))
    assert factors.solve(given_rhs, axis=rhs_axis, out=out) is out
    np.testing.assert_array_equal(out, x)
    factors.solve(given_rhs, axis=rhs_axis, out=given_rhs)
    np.testing.assert_array_equal(given_rhs, x)
    assert error(system, rhs, np.moveaxis(x, rhs_axis, -1)) < 1e-13


def _strided(array: Any, order: Any, step: int) -> Any:
    """The same numbers, in another order in memory and with another step along the last axis."""
    memory = np.empty([array.shape[i] * abs(step) for i in order], array.dtype)
    view = memory[tuple(slice(None, None, step) for _ in order)].transpose(np.argsort(order))
    view[...] = array
    return view


@pytest.mark.parametrize("shape", [(3000, 40), (40, 3000), (7, 40, 300), (17_000, 1), (3, 17_000)])
@pytest.mark.parametrize("one", [True, False])
def test_threads_change_nothing(shape: tuple[int, ...], one: bool) -> None:
    axis = max(0, len(shape) - 2)
    moved = np.moveaxis(np.empty(shape), axis, -1).shape
    system = matrices("random", moved[-1:] if one else moved)
    rhs = np.random.default_rng(3).standard_normal(moved)
    placed = [a if one else np.moveaxis(a, -1, axis) for a in system]
    factors = factor_tridiagonal(*placed, axis=0 if one else axis)
    given_rhs = np.ascontiguousarray(np.moveaxis(rhs, -1, axis))
    x = factors.solve(given_rhs, axis=axis)
    np.testing.assert_array_equal(x, factors.solve(given_rhs, axis=axis, num_threads=1))
    assert error(system, rhs, np.moveaxis(x, axis, -1)) < 1e-12


def test_empty() -> None:
    system = matrices("random", (0, 4))
    assert factor_tridiagonal(*system).solve(np.zeros((0, 4))).shape == (0, 4)
    one = factor_tridiagonal(*matrices("random", (4,)))
    assert one.solve(np.zeros((0, 4))).shape == (0, 4)
    assert "shape=(4,), axis=-1, dtype=float64" in repr(one)


def test_repeated_right_hand_side() -> None:
    system = matrices("random", (3000,))
    factors = factor_tridiagonal(*system)
    one = np.broadcast_to(1.0, (5, 3000))
    np.testing.assert_array_equal(factors.solve(one), factors.solve(np.ones((5, 3000))))
    columns = factors.solve(np.broadcast_to(1.0, (3000, 5)), axis=0)
    assert error(system, one, columns.T) < 1e-12


def test_memory_that_no_pointer_to_numbers_reaches() -> None:
    """Fields of packed records: 9 bytes from number to number."""
    system = matrices("random", (20, 5))
    records = [np.zeros((20, 5), [("flag", "u1"), ("number", "f8")]) for _ in range(5)]
    rhs, out, *coefficients = (record["number"] for record in records)
    rhs[...] = np.random.default_rng(0).standard_normal((20, 5))
    for array, values in zip(coefficients, system, strict=True):
        array[...] = values
    factors = factor_tridiagonal(*coefficients)
    assert factors.solve(rhs, out=out) is out
    assert error(system, rhs, out) < 1e-13
    np.testing.assert_array_equal(factors.solve(rhs.copy()), out)


def test_integers() -> None:
    assert factor_tridiagonal([0, 1], [2, 2], [1, 0]).solve([3, 3]).tolist() == [1.0, 1.0]


# ---------------------------------------------------------------- bad input


def test_singular_matrices_are_named() -> None:
    lower, diagonal, upper = matrices("random", (3, 9, 5))
    diagonal[1, 2, 3] = np.nan
    upper[2, 8], diagonal[2, 8], lower[2, 8] = 0.0, 0.0, 0.0
    with pytest.raises(
        SingularMatrixError,
        match=r"2 of 27 matrices not factored: \(1, 2\) not"
        r" finite, \(2, 8\) singular$",
    ) as caught:
        factor_tridiagonal(lower, diagonal, upper)
    assert np.argwhere(caught.value.status).tolist() == [[1, 2], [2, 8]]
    with pytest.raises(np.linalg.LinAlgError, match="1 of 1 matrices"):
        factor_tridiagonal([0.0, 1.0], [1.0, 1.0], [1.0, 0.0])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_right_hand_sides_that_are_not_finite(axis: int, bad: float) -> None:
    rhs = np.ones((40, 40))
    rhs[3, 3] = bad
    factors = factor_tridiagonal(*matrices("random", (40,)))
    message = r"1 of 40 systems not solved: \(3,\) not finite$"
    with pytest.raises(SingularMatrixError, match=message):
        factors.solve(rhs, axis=axis)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"lower": np.ones(3, complex)}, TypeError, "lower: expected float64, got complex128"),
        ({"upper": np.ones(3, np.float32)}, TypeError, "upper: expected float64, got float32"),
        ({"lower": np.ones(4)}, ValueError, r"broadcast, got lower \(4,\), diagonal \(3,\)"),
        ({"axis": 1}, ValueError, "axis=1: lower, diagonal and upper has 1 axes"),
        ({"axis": 0.0}, TypeError, "axis=0.0: expected an int"),
        ({"num_threads": 0}, ValueError, "num_threads=0"),
    ],
)
def test_bad_matrices(change: dict[str, Any], kind: Any, message: str) -> None:
    names = ("lower", "diagonal", "upper")
    arguments = dict(zip(names, matrices("random", (3,)), strict=True)) | change
    with pytest.raises(kind, match=message):
        factor_tridiagonal(**arguments)


def test_no_unknowns() -> None:
    with pytest.raises(ValueError, match=r"no unknowns along axis 1 of shape \(2, 0\)"):
        factor_tridiagonal(*np.zeros((3, 2, 0)))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"rhs": np.ones((2, 3), np.float32)}, TypeError, "rhs: expected float64, got float32"),
        ({"rhs": np.ones((2, 4))}, ValueError, r"rhs: expected 3 numbers along axis 1, got shape"),
        ({"rhs": np.ones(3)}, ValueError, r"rhs: the matrices' shape \(2,\) does not broadcast"),
        ({"axis": 2}, ValueError, "axis=2: rhs has 2 axes"),
        ({"num_threads": True}, TypeError, "num_threads=True"),
        ({"out": np.ones((2, 4))}, ValueError, r"out: expected shape \(2, 3\)"),
        ({"out": np.ones((2, 3), int)}, TypeError, "out: expected an array of float64"),
        ({"out": np.broadcast_to(1.0, (2, 3))}, ValueError, "out: read-only"),
    ],
)
def test_bad_right_hand_sides(change: dict[str, Any], kind: Any, message: str) -> None:
    factors = factor_tridiagonal(*matrices("random", (2, 3)))
    with pytest.raises(kind, match=message):
        factors.solve(**({"rhs": np.ones((2, 3))} | change))


def test_overlapping_out() -> None:
    memory = np.ones(7)
    with pytest.raises(ValueError, match="out: overlaps"):
        factor_tridiagonal(*matrices("random", (2, 3))).solve(
            memory[:6].reshape(2, 3), out=memory[1:].reshape(2, 3)
        )
    np.testing.assert_array_equal(memory, 1.0)
