"""Gradients on the device, beside the CPU's, which are compared with differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlcpu.scan
from rlcpu.cuda import arrays
from rlcpu.cuda.scan import linear_scan_vjp, logcumsumexp_vjp, sums, tridiagonal_vjp
from rlcpu.scan import SingularSystemError, TridiagonalGradients

pytestmark = pytest.mark.device

RNG = np.random.default_rng(0)


def compare(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        eps = np.finfo(other.dtype).eps
        np.testing.assert_allclose(np.asarray(one), other, rtol=200 * eps, atol=200 * eps)


#: Shapes of x and of the coefficients, axis: each its own, one matrix, numbers, one for some.
TRIDIAGONAL = [
    ((3, 7), (3, 7), -1),
    ((7, 3), (7, 3), 0),
    ((2, 7, 3), (7, 1), 1),
    ((5, 4, 7), (7,), -1),
    ((70, 3), (), 0),
    ((4, 1), (4, 1), -1),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "own", "axis"), TRIDIAGONAL)
def test_tridiagonal(shape: Any, own: Any, axis: int, dtype: Any) -> None:
    lower, upper = RNG.uniform(-1, 1, (2, *own)).astype(dtype)
    diagonal = dtype(2.5) + np.abs(lower) + np.abs(upper)
    x, grad = RNG.normal(size=(2, *shape)).astype(dtype)
    given = [lower, diagonal, upper, x, grad]
    expected = rlcpu.scan.tridiagonal_vjp(*given, axis=axis)
    on_device = list(map(arrays.from_host, given))
    compare(tridiagonal_vjp(*on_device, axis=axis), expected)
    out = TridiagonalGradients(*(arrays.empty(a.shape, dtype) for a in (*given[:3], x)))
    assert tridiagonal_vjp(*on_device, axis=axis, out=out) is out
    compare(out, expected)


def test_gradients_of_no_systems() -> None:
    x = arrays.from_host(np.ones((0, 3)))
    found = tridiagonal_vjp(1.0, arrays.from_host(np.ones(3)), 1.0, x, x)
    assert not np.asarray(found.diagonal).any()
    assert found.rhs.shape == (0, 3)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("shape", "own", "axis", "initial"),
    [
        ((150,), (150,), -1, 0.5),
        ((3, 6), (), -1, np.ones(3)),
        ((6, 3), (6, 1), 0, None),
        ((2, 5, 3), (2, 5, 3), 1, np.ones((2, 3))),
        ((2, 1), (2, 1), 1, 2.0),
    ],
)
def test_linear(shape: Any, own: Any, axis: int, initial: Any, reverse: bool, dtype: Any) -> None:
    a = RNG.uniform(-0.9, 0.9, own).astype(dtype)
    y, grad = RNG.normal(size=(2, *shape)).astype(dtype)
    start = initial if np.ndim(initial) == 0 else initial.astype(dtype)
    options: Any = {"axis": axis, "initial": start, "reverse": reverse}
    found = linear_scan_vjp(*map(arrays.from_host, (a, y, grad)), **options)
    compare(found, rlcpu.scan.linear_scan_vjp(a, y, grad, **options))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "axis"), [((150,), -1), ((3, 6), 1), ((2, 5, 3), 1)])
def test_logcumsumexp(shape: Any, axis: int, reverse: bool, dtype: Any) -> None:
    x, grad = RNG.normal(size=(2, *shape)).astype(dtype)
    x.reshape(-1)[2] = -np.inf
    options: Any = {"axis": axis, "reverse": reverse}
    y = rlcpu.scan.logcumsumexp(x, **options)
    found = logcumsumexp_vjp(*map(arrays.from_host, (x, y, grad)), **options)
    compare([found], [rlcpu.scan.logcumsumexp_vjp(x, y, grad, **options)])


@pytest.mark.parametrize("own", [(), (4,), (3, 1), (5, 1, 1), (5, 3, 4), (1, 3, 1)])
def test_sums(own: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "FAN", 2)
    x = RNG.integers(0, 9, (5, 3, 4)).astype(np.float64)
    out = arrays.empty(own, np.float64)
    sums.summed_to(arrays.from_host(x), own, out)
    extra = x.sum(axis=tuple(range(x.ndim - len(own))))
    axes = tuple(i for i, n in enumerate(own) if n == 1)
    np.testing.assert_array_equal(np.asarray(out), extra.sum(axis=axes, keepdims=True))


def test_bad_input() -> None:
    x = arrays.from_host(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"grad has shape \(3,\)"):
        tridiagonal_vjp(1.0, 3.0, 1.0, x, arrays.from_host(np.ones(3)))
    with pytest.raises(ValueError, match="lower: expected a shape that broadcasts"):
        tridiagonal_vjp(arrays.from_host(np.ones(4)), 3.0, 1.0, x, x)
    with pytest.raises(TypeError, match="out: expected TridiagonalGradients, got tuple"):
        tridiagonal_vjp(1.0, 3.0, 1.0, x, x, out=(x,))  # type: ignore[arg-type]
    new = [arrays.zeros((), np.float64) for _ in range(3)]
    with pytest.raises(ValueError, match=r"out.rhs: overlaps"):
        tridiagonal_vjp(1.0, 3.0, 1.0, x, x, out=TridiagonalGradients(*new, x))
    with pytest.raises(SingularSystemError):
        tridiagonal_vjp(0.0, 0.0, 0.0, x, x)
    with pytest.raises(ValueError, match="a: expected a shape that broadcasts"):
        linear_scan_vjp(arrays.from_host(np.ones(4)), x, x)
    with pytest.raises(ValueError, match=r"y has shape \(3,\)"):
        logcumsumexp_vjp(x, arrays.from_host(np.ones(3)), x)
