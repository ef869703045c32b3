"""Scans along rows and across them, and their gradients: linear recurrences, logcumsumexp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda import recurrences
from rlcpu.cuda.device import SIMULATED, asarray, to_host
from rlcpu.scan import linear_scan, linear_scan_vjp, logcumsumexp, logcumsumexp_vjp
from tests.cuda.compare import close, equal
from tests.scan.recurrences import naive

pytestmark = pytest.mark.device

#: One row of several tiles, rows of a tile and some, less than a tile; lanes; one number.
SHAPES = [((18,), -1), ((3, 6), -1), ((3,), 0), ((2, 5, 3), 1), ((1, 1), -1)]


def log_of_sums(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """In extended precision."""
    order = slice(None, None, -1) if reverse else slice(None)
    lines = np.moveaxis(x.astype(np.longdouble), axis, -1)[..., order]
    return np.moveaxis(np.logaddexp.accumulate(lines, -1)[..., order], -1, axis)


def test_shapes_reach_every_path() -> None:
    assert recurrences.MANY > 3
    assert 3 < recurrences.THREADS < 6 or not SIMULATED  # on a card `tests/cuda/test_gpu.py` does


@pytest.mark.parametrize(("dtype", "reverse"), [(np.float32, False), (np.float64, True)])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_logcumsumexp(shape: tuple[int, ...], axis: int, reverse: bool, dtype: Any) -> None:
    x = (30.0 * np.random.default_rng(0).normal(size=shape)).astype(dtype)
    found = to_host(logcumsumexp(asarray(x), axis=axis, reverse=reverse))
    expected = log_of_sums(x, axis, reverse)
    error = np.abs(found - expected) / np.maximum(np.abs(expected), 1.0)
    assert found.dtype == dtype
    assert error.max() < 2 * np.finfo(dtype).eps


@pytest.mark.parametrize("rows", [1, recurrences.MANY])
def test_logcumsumexp_of_what_is_not_finite(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if rows > 1:  # a thread for each row
        monkeypatch.setattr(recurrences, "MANY", 1)
    inf, nan = np.inf, np.nan
    for x in ([-inf, -inf, 1.0], [0.0, inf, 1.0, nan, 2.0], [nan, 1.0], [inf, -inf]):
        with np.errstate(invalid="ignore"):
            expected = np.logaddexp.accumulate(x)
        assert equal(logcumsumexp(asarray(x)), expected, equal_nan=True)


@pytest.mark.parametrize(("dtype", "reverse"), [(np.float32, False), (np.float64, True)])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_linear_scan(shape: tuple[int, ...], axis: int, reverse: bool, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, shape).astype(dtype), rng.normal(size=shape).astype(dtype)
    options: Any = {"axis": axis, "reverse": reverse, "initial": 0.5}
    found = to_host(linear_scan(*map(asarray, (a, b)), **options))
    expected = naive.linear_scan(a, b, axis, 0.5, reverse)
    assert found.dtype == dtype
    assert np.abs(found - expected).max() < 20 * np.finfo(dtype).eps


def in_turn(a: np.ndarray, b: np.ndarray, initial: float) -> np.ndarray:
    """y of rows, one number after the other, in their dtype."""
    y, carried = np.empty_like(b), np.full(len(b), initial, b.dtype)
    for k in range(b.shape[1]):
        y[:, k] = carried = a[:, k] * carried + b[:, k]
    return y


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_that_overflow(dtype: Any) -> None:
    """In a tile, in the first of them: numbers are taken one after the other there."""
    length = 30
    large = dtype(1e30 if dtype is np.float32 else 1e200)
    a, b = np.full((5, length), 0.5, dtype), np.zeros((5, length), dtype)
    a[0, : length // 2], b[0, length // 2] = large, 1.0  # of zeros
    a[1, 15:25] = large  # of what has become 0 or next to it
    b[1, 0] = 1.0
    a[2, ::2], a[2, 1::2] = large, 1 / large  # up and down
    b[2, 0] = 1.0
    a[3, -3:], b[3] = large, 1.0  # of the result itself, too
    b[4, length // 3] = np.inf
    a[4, length // 2] = 0.0  # NaN from here on
    with np.errstate(all="ignore"):
        expected = in_turn(a, b, 0.0)
    found = to_host(linear_scan(*map(asarray, (a, b))))
    alone = [to_host(linear_scan(*map(asarray, (a[i], b[i])))) for i in (0, 2)]
    assert np.isfinite(expected[[0, 2]]).all()
    tiny = float(np.finfo(dtype).tiny)
    for one, other in ((found, expected), (alone, expected[[0, 2]])):
        np.testing.assert_allclose(one, other, rtol=100 * np.finfo(dtype).eps, atol=tiny)


@pytest.mark.parametrize("a", [0.5, np.full(4, 0.5), np.full((3, 1), 0.5)])
def test_repeated_factors(a: Any) -> None:
    b = np.arange(12.0).reshape(3, 4)
    found = to_host(linear_scan(a, asarray(b)))
    assert close(found, naive.linear_scan(a, b, -1, 0.0, False).astype(float))


def test_in_place() -> None:
    b = asarray(np.ones((2, 10)))
    assert linear_scan(1.0, b, out=b) is b
    assert equal(b, np.tile(np.arange(1.0, 11.0), (2, 1)))
    x = asarray(np.zeros(10))
    assert logcumsumexp(x, out=x) is x
    assert close(np.exp(to_host(x)), np.arange(1.0, 11.0))


# ---------------------------------------------------------------- gradients


def compare(found: Any, expected: Any) -> None:
    """The CPU's gradients, which are compared with differences elsewhere."""
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        eps = np.finfo(other.dtype).eps
        np.testing.assert_allclose(to_host(one), other, rtol=200 * eps, atol=200 * eps)


@pytest.mark.parametrize(
    ("shape", "own", "axis", "initial", "dtype", "reverse"),
    [
        ((9,), (9,), -1, 0.5, np.float32, False),
        ((3, 6), (), -1, np.ones(3), np.float64, True),
        ((6, 3), (6, 1), 0, None, np.float32, True),
        ((2, 5, 3), (2, 5, 3), 1, np.ones((2, 3)), np.float64, False),
        ((2, 1), (2, 1), 1, 2.0, np.float32, False),
    ],
)
def test_linear_gradients(
    shape: Any, own: Any, axis: int, initial: Any, reverse: bool, dtype: Any
) -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(-0.9, 0.9, own).astype(dtype)
    y, grad = rng.normal(size=(2, *shape)).astype(dtype)
    start = initial if np.ndim(initial) == 0 else initial.astype(dtype)
    options: Any = {"axis": axis, "initial": start, "reverse": reverse}
    found = linear_scan_vjp(*map(asarray, (a, y, grad)), **options)
    compare(found, linear_scan_vjp(a, y, grad, **options))


@pytest.mark.parametrize(("shape", "axis"), [((9,), -1), ((3, 9), -1), ((9, 3), 0)])
def test_gradients_of_0_stay_0(shape: Any, axis: int) -> None:
    """Whatever they are multiplied by: all but the first two y are not finite, and do not count."""
    a, y, grad, x = np.full((4, *shape), 0.5)
    for array, poison in ((a, np.inf), (y, np.nan), (grad, 0.0), (x, np.inf)):
        np.moveaxis(array, axis, 0)[2:] = poison
    found = linear_scan_vjp(*map(asarray, (a, y, grad)), axis=axis)
    compare(found, linear_scan_vjp(a, y, grad, axis=axis))
    assert np.isfinite(to_host(found.b)).all()
    sums = logcumsumexp(x, axis=axis)
    found = logcumsumexp_vjp(*map(asarray, (x, sums, grad)), axis=axis)
    compare([found], [logcumsumexp_vjp(x, sums, grad, axis=axis)])
    assert np.isfinite(to_host(found)).all()


@pytest.mark.parametrize(("dtype", "reverse"), [(np.float32, False), (np.float64, True)])
@pytest.mark.parametrize(("shape", "axis"), [((9,), -1), ((3, 6), 0)])
def test_logcumsumexp_gradients(shape: Any, axis: int, reverse: bool, dtype: Any) -> None:
    x, grad = np.random.default_rng(0).normal(size=(2, *shape)).astype(dtype)
    x.reshape(-1)[2] = -np.inf
    options: Any = {"axis": axis, "reverse": reverse}
    y = logcumsumexp(x, **options)
    found = logcumsumexp_vjp(*map(asarray, (x, y, grad)), **options)
    compare([found], [logcumsumexp_vjp(x, y, grad, **options)])


# ---------------------------------------------------------------- layouts and bad input


def test_strides() -> None:
    """Arrays of any strides, and an output with gaps, which is all that is written."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, 6, 8))
    expected = linear_scan(a[::-2], b[::2], axis=0)
    turned = asarray(np.ascontiguousarray(b.T)).T[::2]
    out = asarray(np.zeros((3, 16)))
    parts = out[:, ::2]
    assert linear_scan(asarray(a)[::-2], turned, axis=0, out=parts) is parts
    np.testing.assert_allclose(to_host(parts), expected, rtol=1e-14)
    assert not to_host(out)[:, 1::2].any()
    blocks = asarray(np.zeros((2, 3, 5)))[:, :2]
    x = rng.normal(size=(2, 2, 5))
    assert logcumsumexp(asarray(x), axis=2, out=blocks) is blocks
    np.testing.assert_allclose(to_host(blocks), logcumsumexp(x), rtol=1e-13)


def test_too_many_steps() -> None:
    with pytest.raises(ValueError, match=r"shape \(2147483648,\): expected fewer than 2\*\*31"):
        recurrences.layout_of(np.broadcast_to(np.zeros(()), 2**31), 0)


def test_bad_input() -> None:
    b = asarray(np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"expected shapes that broadcast, got a \(3,\)"):
        linear_scan(asarray(np.ones(3)), b)
    with pytest.raises(TypeError, match="a: expected float64, got float32"):
        linear_scan(asarray(np.ones(4, np.float32)), b)
    with pytest.raises(ValueError, match="out: overlaps"):
        linear_scan(b, asarray(np.ones((2, 4))), out=b)
    with pytest.raises(ValueError, match="axis=1"):
        logcumsumexp(asarray(np.ones(3)), axis=1)
    with pytest.raises(TypeError, match="out: expected an array on the CUDA device, got ndarray"):
        linear_scan(0.5, b, out=np.ones((2, 4)))
    with pytest.raises(ValueError, match="a: expected a shape that broadcasts"):
        linear_scan_vjp(asarray(np.ones(3)), b, b)
    with pytest.raises(ValueError, match=r"y: expected shape \(2, 4\), got \(3,\)"):
        logcumsumexp_vjp(b, asarray(np.ones(3)), b)
