"""Scans along rows and across them: linear recurrences, logcumsumexp."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from rlcpu.cuda import arrays
from rlcpu.cuda.scan import linear, linear_scan, logcumsumexp, row_scan
from tests.scan.recurrences import naive

pytestmark = pytest.mark.device

#: Rows of several parts, of one part of several tiles, of less than a tile; lanes; one number.
SHAPES = [((300,), -1), ((3, 150), -1), ((5,), 0), ((2, 5, 3), 1), ((1, 1), -1)]


def log_of_sums(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """In extended precision."""
    order = slice(None, None, -1) if reverse else slice(None)
    lines = np.moveaxis(x.astype(np.longdouble), axis, -1)[..., order]
    return np.moveaxis(np.logaddexp.accumulate(lines, -1)[..., order], -1, axis)


def test_shapes_reach_every_path() -> None:
    assert row_scan.TILE < 150 < row_scan.THREADS * row_scan.TILE
    assert linear.MANY > 3


@pytest.mark.parametrize(("dtype", "reverse"), [(np.float32, False), (np.float64, True)])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_logcumsumexp(shape: tuple[int, ...], axis: int, reverse: bool, dtype: Any) -> None:
    x = (30.0 * np.random.default_rng(0).normal(size=shape)).astype(dtype)
    found = np.asarray(logcumsumexp(arrays.from_host(x), axis=axis, reverse=reverse))
    expected = log_of_sums(x, axis, reverse)
    error = np.abs(found - expected) / np.maximum(np.abs(expected), 1.0)
    assert found.dtype == dtype
    assert error.max() < 2 * np.finfo(dtype).eps


@pytest.mark.parametrize("rows", [1, linear.MANY])
def test_logcumsumexp_of_what_is_not_finite(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if rows > 1:  # a thread for each row
        module = importlib.import_module("rlcpu.cuda.scan.logcumsumexp")
        monkeypatch.setattr(module, "MANY", 1)
    inf, nan = np.inf, np.nan
    for x in ([-inf, -inf, 1.0], [0.0, inf, 1.0, nan, 2.0], [nan, 1.0], [inf, -inf]):
        with np.errstate(invalid="ignore"):
            expected = np.logaddexp.accumulate(x)
        assert np.array_equal(logcumsumexp(arrays.from_host(x)), expected, equal_nan=True)


@pytest.mark.parametrize(("dtype", "reverse"), [(np.float32, False), (np.float64, True)])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_linear_scan(shape: tuple[int, ...], axis: int, reverse: bool, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, shape).astype(dtype), rng.normal(size=shape).astype(dtype)
    options: Any = {"axis": axis, "reverse": reverse, "initial": 0.5}
    found = np.asarray(linear_scan(*map(arrays.from_host, (a, b)), **options))
    expected = naive.linear_scan(a, b, axis, 0.5, reverse)
    assert found.dtype == dtype
    assert np.abs(found - expected).max() < 20 * np.finfo(dtype).eps


def in_turn(a: np.ndarray, b: np.ndarray, initial: float) -> np.ndarray:
    """y of rows, one number after the other, in their dtype."""
    y, carried = np.empty_like(b), np.full(len(b), initial, b.dtype)
    for k in range(b.shape[1]):
        y[:, k] = carried = a[:, k] * carried + b[:, k]
    return y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [100, 300])
def test_products_that_overflow(length: int, dtype: Any) -> None:
    """In a tile, in a part, in the first of them: numbers are taken one after the other there."""
    large = dtype(1e30 if dtype is np.float32 else 1e200)
    a, b = np.full((5, length), 0.5, dtype), np.zeros((5, length), dtype)
    a[0, : length // 2], b[0, length // 2] = large, 1.0  # of zeros
    a[1, 60:70] = large  # of what has become 0 or next to it
    b[1, 0] = 1.0
    a[2, ::2], a[2, 1::2] = large, 1 / large  # up and down
    b[2, 0] = 1.0
    a[3, -3:], b[3] = large, 1.0  # of the result itself, too
    b[4, length // 3] = np.inf
    a[4, length // 2] = 0.0  # NaN from here on
    with np.errstate(all="ignore"):
        expected = in_turn(a, b, 0.0)
    found = np.asarray(linear_scan(*map(arrays.from_host, (a, b))))
    alone = [np.asarray(linear_scan(*map(arrays.from_host, (a[i], b[i])))) for i in (0, 2)]
    assert np.isfinite(expected[[0, 2]]).all()
    tiny = float(np.finfo(dtype).tiny)
    for one, other in ((found, expected), (alone, expected[[0, 2]])):
        np.testing.assert_allclose(one, other, rtol=100 * np.finfo(dtype).eps, atol=tiny)


@pytest.mark.parametrize("a", [0.5, np.full(4, 0.5), np.full((3, 1), 0.5)])
def test_repeated_factors(a: Any) -> None:
    b = np.arange(12.0).reshape(3, 4)
    found = np.asarray(linear_scan(a, arrays.from_host(b)))
    assert np.allclose(found, naive.linear_scan(a, b, -1, 0.0, False).astype(float))


def test_in_place() -> None:
    b = arrays.from_host(np.ones((2, 40)))
    assert linear_scan(1.0, b, out=b) is b
    assert np.array_equal(b, np.tile(np.arange(1.0, 41.0), (2, 1)))
    x = arrays.from_host(np.zeros(40))
    assert logcumsumexp(x, out=x) is x
    assert np.allclose(np.exp(np.asarray(x)), np.arange(1.0, 41.0))


def test_bad_input() -> None:
    b = arrays.from_host(np.ones((2, 4)))
    with pytest.raises(ValueError, match="does not broadcast"):
        linear_scan(arrays.from_host(np.ones(3)), b)
    with pytest.raises(TypeError, match="a has dtype float32"):
        linear_scan(arrays.from_host(np.ones(4, np.float32)), b)
    with pytest.raises(ValueError, match="out: overlaps"):
        linear_scan(b, arrays.from_host(np.ones((2, 4))), out=b)
    with pytest.raises(TypeError, match="x: expected float32 or float64, got int64"):
        logcumsumexp(arrays.from_host(np.ones(3, np.int64)))
    with pytest.raises(ValueError, match="axis=1"):
        logcumsumexp(arrays.from_host(np.ones(3)), axis=1)
