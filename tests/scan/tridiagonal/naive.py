"""Tridiagonal systems the slow, obvious way, in extended precision, and families of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

FAMILIES = ["dominant", "random", "tiny pivots", "zero diagonal", "scaled rows"]


def dense(lower: Any, diagonal: Any, upper: Any, periodic: bool = False) -> np.ndarray:
    """The matrix of one system."""
    n = len(diagonal)
    matrix = np.zeros((n, n), np.longdouble)
    for k in range(n):
        matrix[k, k] += diagonal[k]
        if k > 0 or periodic:
            matrix[k, k - 1] += lower[k]
        if k < n - 1 or periodic:
            matrix[k, (k + 1) % n] += upper[k]
    return matrix


def solve(matrix: np.ndarray, rhs: Any) -> np.ndarray:
    """Gaussian elimination of whole rows with scaled partial pivoting, in extended precision."""
    a = np.column_stack([matrix, np.asarray(rhs, np.longdouble)])
    a /= np.abs(a[:, :-1]).max(1)[:, None]
    n = len(a)
    for k in range(n):
        pivot = k + np.argmax(np.abs(a[k:, k]))
        a[[k, pivot]] = a[[pivot, k]]
        for row in range(k + 1, n):
            a[row] -= a[row, k] / a[k, k] * a[k]
    x = np.zeros(n, np.longdouble)
    for k in range(n - 1, -1, -1):
        x[k] = (a[k, -1] - a[k, k + 1 : n] @ x[k + 1 :]) / a[k, k]
    return x


def backward_error(
    lower: Any,
    diagonal: Any,
    upper: Any,
    rhs: Any,
    x: Any,
    normwise: bool = False,
    periodic: bool = False,
) -> np.ndarray:
    """Backward error of every system (batch..., n), by components or not, in extended precision."""
    a, b, c, d, y = (
        np.broadcast_to(v, x.shape).astype(np.longdouble) for v in (lower, diagonal, upper, rhs, x)
    )
    if not periodic:  # ignored, whatever they are
        a[..., 0] = c[..., -1] = 0
    terms = np.stack([a * np.roll(y, 1, -1), b * y, c * np.roll(y, -1, -1), -d])
    size = np.abs(terms).sum(0)
    if normwise:
        size = size.max(-1, keepdims=True)
    return (np.abs(terms.sum(0)) / np.where(size == 0, 1, size)).max(-1).astype(np.float64)


def make(family: str, shape: tuple[int, ...], dtype: Any = np.float64, seed: int = 0) -> list[Any]:
    """Lower, diagonal, upper and rhs (..., n) of a family, of a known solution's size."""
    rng = np.random.default_rng(seed)
    a, b, c, x = rng.normal(size=(4, *shape))
    n = shape[-1]
    if family in ("dominant", "scaled rows"):
        b = (abs(a) + abs(c)) * (1 + rng.random(shape))
    if family == "tiny pivots":
        b[..., ::7] *= 1e-10
    if family == "zero diagonal" and n % 2 == 0:  # with an odd number of unknowns it is singular
        b[:] = 0
    d = b * x
    d[..., 1:] += a[..., 1:] * x[..., :-1]
    d[..., :-1] += c[..., :-1] * x[..., 1:]
    if family == "scaled rows":
        reach = 100 if dtype == np.float64 else 12
        scale = 10.0 ** rng.uniform(-reach, reach, shape)
        a, b, c, d = (v * scale for v in (a, b, c, d))
    a[..., 0] = c[..., -1] = np.nan  # ignored, whatever they are
    return [v.astype(dtype) for v in (a, b, c, d)]


def ring(family: str, shape: tuple[int, ...], dtype: Any = np.float64, seed: int = 0) -> list[Any]:
    """Systems of a family with something in the corners."""
    systems = make(family, shape, np.dtype(dtype).type, seed)
    rng = np.random.default_rng(seed + 1)
    for array, k in ((systems[0], 0), (systems[2], -1)):
        array[..., k] = rng.normal(size=shape[:-1]) * 0.3 * abs(systems[1][..., k])
    return systems


def moved(arrays: list[Any], axis: int) -> list[Any]:
    """The same numbers in new arrays with the unknowns along another axis than the last."""
    return [np.moveaxis(array, -1, axis).copy(order="C") for array in arrays]


def strided(data: Any, array: Any) -> Any:
    """The same numbers with other strides: padded, negative, or in another order of axes."""
    order = data.draw(st.permutations(range(array.ndim)))
    steps = [data.draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in order]
    turned = array.transpose(order)
    wide = np.zeros([s * abs(p) for s, p in zip(turned.shape, steps, strict=True)], array.dtype)
    view = wide[(*(slice(None, None, p) for p in steps), ...)]
    view[...] = turned
    return view.transpose(np.argsort(order))
