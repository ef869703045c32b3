"""`tridiagonal_vjp` against dense matrices and against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.scan.tridiagonal.plans import LONG
from rlcpu.scan.tridiagonal.vjp import TridiagonalGradients, tridiagonal_vjp
from tests.scan.tridiagonal import naive as naive_systems


def dense(lower: Any, diagonal: Any, upper: Any) -> Any:
    """(batch..., n, n) matrices of coefficients along the last axis."""
    n = diagonal.shape[-1]
    matrix, k = np.zeros((*diagonal.shape, n)), np.arange(n)
    matrix[..., k, k] = diagonal
    matrix[..., k[1:], k[:-1]] = lower[..., 1:]
    matrix[..., k[:-1], k[1:]] = upper[..., :-1]
    return matrix


def naive(system: Any, x: Any, grad: Any) -> list[Any]:
    """The gradients, along the last axis, from dense matrices."""
    matrix = dense(*(np.broadcast_to(a, x.shape) for a in system))
    rhs = np.linalg.solve(np.swapaxes(matrix, -1, -2), grad[..., None])[..., 0]
    lower, upper = np.zeros_like(rhs), np.zeros_like(rhs)
    lower[..., 1:] = -rhs[..., 1:] * x[..., :-1]
    upper[..., :-1] = -rhs[..., :-1] * x[..., 1:]
    return [lower, -rhs * x, upper, rhs]


def summed(array: Any, shape: tuple[int, ...]) -> Any:
    extra = array.ndim - len(shape)
    array = array.sum(axis=tuple(range(extra)))
    return array.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


def problem(shape: tuple[int, ...], own: tuple[int, ...], seed: int = 0) -> Any:
    """Coefficients of a shape that broadcasts, dominant, with NaN where ignored; x and gradient."""
    rng = np.random.default_rng(seed)
    lower, upper = rng.standard_normal((2, *own))
    diagonal = 3.0 + np.abs(lower) + np.abs(upper)
    if own[-1] == shape[-1]:
        lower[..., 0], upper[..., -1] = np.nan, np.inf
    return [lower, diagonal, upper], *rng.standard_normal((2, *shape))


@given(st.lists(st.integers(1, 5), max_size=2), st.integers(1, 20), st.data())
def test_any_shape(batch: list[int], n: int, data: st.DataObject) -> None:
    shape = (*batch, n)
    own = tuple(data.draw(st.sampled_from([1, size])) for size in shape)
    own = own[data.draw(st.integers(0, len(batch))) :]
    system, x, grad = problem(shape, own)
    axis = data.draw(st.integers(-len(own), -1))
    moved = [np.moveaxis(a, -1, axis) for a in (*system, x, grad)]
    if data.draw(st.booleans()):
        moved = [np.ascontiguousarray(a) for a in moved]
    kept = [a.copy() for a in moved]
    found = [np.moveaxis(a, axis, -1) for a in tridiagonal_vjp(*moved, axis=axis)]
    for before, after in zip(kept, moved, strict=True):
        np.testing.assert_array_equal(before, after)
    out = TridiagonalGradients(*(np.full_like(a, 9.0, order="K") for a in (*moved[:3], moved[3])))
    assert tridiagonal_vjp(*moved, axis=axis, out=out) is out
    for result, again in zip(found, out, strict=True):
        np.testing.assert_array_equal(result, np.moveaxis(again, axis, -1))
    expected = naive(system, x, grad)
    for result, own_grad, like in zip(found, expected, [*system, x], strict=True):
        assert result.shape == like.shape
        np.testing.assert_allclose(result, summed(own_grad, like.shape), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("shape", [(300, 150), (3, 15_000), (20_000, 2)])
def test_large(dtype: Any, axis: int, shape: tuple[int, int]) -> None:
    """More than a part, whose borders fall anywhere; threads change nothing."""
    system, x, grad = problem((*shape[1:], shape[0]) if axis == 0 else shape, (shape[axis],))
    repeated = [np.broadcast_to(a, x.shape) for a in system]
    arrays = [np.ascontiguousarray(np.moveaxis(a, -1, axis), dtype) for a in (*repeated, x, grad)]
    found = tridiagonal_vjp(*arrays, axis=axis)
    alone = tridiagonal_vjp(*arrays, axis=axis, num_threads=1)
    for result, other in zip(found, alone, strict=True):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, other)
    lower, diagonal, upper, rhs = (np.moveaxis(a, axis, -1).astype(float) for a in found)
    x, grad = (np.moveaxis(a, axis, -1).astype(float) for a in arrays[3:])
    tolerance = 100 * np.finfo(dtype).eps
    transposed = np.roll(np.nan_to_num(system[2], posinf=0), 1), np.roll(system[0], -1)
    product = system[1] * rhs
    product[..., 1:] += transposed[0][1:] * rhs[..., :-1]
    product[..., :-1] += transposed[1][:-1] * rhs[..., 1:]
    np.testing.assert_allclose(product, grad, atol=20 * tolerance)
    np.testing.assert_allclose(diagonal, -rhs * x, tolerance)
    np.testing.assert_allclose(lower[..., 1:], -rhs[..., 1:] * x[..., :-1], tolerance)
    np.testing.assert_allclose(upper[..., :-1], -rhs[..., :-1] * x[..., 1:], tolerance)
    assert not lower[..., 0].any()
    assert not upper[..., -1].any()


def test_differences() -> None:
    system, rhs, weights = problem((3, 6), (3, 6))
    system[0][:, 0] = system[2][:, -1] = 0.0

    def loss(arrays: list[Any]) -> float:
        return float(
            (np.linalg.solve(dense(*arrays[:3]), arrays[3][..., None])[..., 0] * weights).sum()
        )

    arrays = [*system, rhs]
    x = np.linalg.solve(dense(*system), rhs[..., None])[..., 0]
    for i, gradient in enumerate(tridiagonal_vjp(*system, x, weights)):
        change = np.random.default_rng(i).standard_normal((3, 6))
        up, down = list(arrays), list(arrays)
        up[i], down[i] = arrays[i] + 1e-6 * change, arrays[i] - 1e-6 * change
        difference = (loss(up) - loss(down)) / 2e-6
        np.testing.assert_allclose((gradient * change).sum(), difference, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_gradients_of_0_stay_0(axis: int, poison: float) -> None:
    """Of solutions that are not finite, too: those of systems that failed, and do not count."""
    system, x, grad = problem((9, 6), (9, 6))
    arrays = [np.moveaxis(array, -1, axis) for array in (*system, x, grad)]
    *_, x, grad = arrays
    failed = (slice(None),) * (1 - axis) + (4,)
    grad[failed] = 0.0
    expected = tridiagonal_vjp(*arrays, axis=axis)
    x[failed] = poison
    for gradient, other in zip(tridiagonal_vjp(*arrays, axis=axis), expected, strict=True):
        assert not gradient[failed].any()
        np.testing.assert_array_equal(gradient, other)


def test_empty() -> None:
    found = tridiagonal_vjp(*np.ones((3, 0, 4)), *np.ones((2, 0, 4)))
    assert [g.shape for g in found] == [(0, 4)] * 4
    found = tridiagonal_vjp(*np.ones((3, 4)), *np.ones((2, 0, 4)))
    assert [g.shape for g in found] == [(4,)] * 3 + [(0, 4)]
    assert not found.lower.any()


def results(array: Any) -> TridiagonalGradients:
    """The same array as every gradient."""
    return TridiagonalGradients(array, array, array, array)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"x": np.ones((2, 3), complex)}, TypeError, "x: expected float64"),
        ({"grad": np.ones((2, 3), np.float32)}, TypeError, "grad: expected float64, got float32"),
        ({"grad": np.ones(3)}, ValueError, r"grad: expected shape \(2, 3\), got \(3,\)"),
        ({"upper": np.ones(4)}, ValueError, r"upper: expected a shape that broadcasts to \(2, 3\)"),
        ({"axis": 2}, ValueError, "axis=2: x has 2 axes"),
        ({"num_threads": 0}, ValueError, "num_threads=0"),
        ({"out": tuple(np.ones((4, 2, 3)))}, TypeError, "out: expected TridiagonalGradients"),
        ({"out": results(np.ones((2, 3)))}, ValueError, "out.diagonal: overlaps another array"),
        ({"out": results(np.ones(3))}, ValueError, r"out.lower: expected shape \(2, 3\)"),
        ({"diagonal": np.zeros((2, 3))}, np.linalg.LinAlgError, "2 of 2 systems"),
    ],
)
def test_bad_input(change: dict[str, Any], kind: Any, message: str) -> None:
    names = ("lower", "diagonal", "upper", "x", "grad")
    arguments = dict.fromkeys(names, np.ones((2, 3))) | {"diagonal": np.full((2, 3), 3.0)} | change
    with pytest.raises(kind, match=message):
        tridiagonal_vjp(**arguments)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(40, 1), (40, 2), (41, 9), (200, 100)])
def test_gradients_read_nothing_beside_the_arrays(shape: tuple[int, int], axis: int) -> None:
    """Systems between others that are not finite."""
    *matrix, _ = naive_systems.make("dominant", shape)
    x = np.random.default_rng(0).standard_normal(shape)
    arrays = naive_systems.moved([*matrix, x, np.ones(shape)], axis)
    expected = tridiagonal_vjp(*arrays, axis=axis)
    inside = []
    for array in arrays:
        wide = np.full([size + 2 for size in array.shape], np.nan)
        wide[1:-1, 1:-1] = array
        inside.append(wide[1:-1, 1:-1])
    for found, own in zip(tridiagonal_vjp(*inside, axis=axis), expected, strict=True):
        np.testing.assert_array_equal(found, own)


def test_gradients_of_long_columns() -> None:
    systems = naive_systems.make("dominant", (5, LONG + 5), seed=6)
    arrays = [np.nan_to_num(a) for a in (*systems, np.ones_like(systems[3]))]
    rows = tridiagonal_vjp(*arrays)
    columns = tridiagonal_vjp(*naive_systems.moved(arrays, 0), axis=0)
    for found, expected in zip(columns, rows, strict=True):
        np.testing.assert_allclose(found.T, expected, rtol=1e-10, atol=1e-12)
