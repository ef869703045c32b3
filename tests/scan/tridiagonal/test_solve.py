"""Tridiagonal systems against extended precision: families, shapes, strides, layouts, lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.scan import SingularSystemError, solve_tridiagonal
from rlcpu.scan.tridiagonal.equations import Pending, eliminate, scaled, solve_middle, substitute
from tests.scan.tridiagonal import naive

DTYPES = ["float32", "float64"]
#: Bounds on the backward error, in multiples of epsilon: plain, and with check="residual".
PLAIN, CHECKED = 2.0**16, 200.0


def epsilon(dtype: Any) -> float:
    return float(np.finfo(dtype).eps)


def ulp_error(systems: list[Any], x: Any) -> float:
    """Worst backward error in multiples of epsilon."""
    return float(naive.backward_error(*systems, x).max(initial=0.0)) / epsilon(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", naive.FAMILIES)
@pytest.mark.parametrize("shape", [(700, 1), (700, 2), (700, 3), (300, 100), (3, 10_000)])
def test_backward_error(family: str, shape: tuple[int, int], dtype: str) -> None:
    if family == "zero diagonal" and shape[-1] * epsilon(dtype) > 1e-4:
        pytest.skip("a condition number of 1e48: float32 overflows on the way")
    systems = naive.make(family, shape, np.dtype(dtype).type)
    x = solve_tridiagonal(*systems)
    assert x.dtype == dtype
    assert ulp_error(systems, x) < (PLAIN if family != "dominant" else 50)
    x, info = solve_tridiagonal(*systems, check="residual", return_info=True)
    assert ulp_error(systems, x) < CHECKED
    assert not info.status.any()
    measured = naive.backward_error(*systems, x)
    np.testing.assert_allclose(info.backward_error, measured, atol=8 * epsilon(dtype))


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


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("family", naive.FAMILIES)
def test_scalar_functions_are_the_mathematics(family: str, n: int) -> None:
    """Plain Python, one system, from both ends to the middle."""
    systems = naive.make(family, (n,), seed=n)
    systems[0][0] = systems[2][-1] = 0.0
    equations = [scaled(*map(float, numbers)) for numbers in zip(*systems, strict=True)]
    half = (n + 1) // 2
    falling = rising = Pending(1.0, 0.0, 0.0)
    down, up = [], []
    for equation in equations[:half]:
        pivot, falling = eliminate(falling, equation, 1.0)
        down.append(pivot)
    for equation in reversed(equations[half:]):
        turned = equation._replace(lower=equation.upper, upper=equation.lower)
        pivot, rising = eliminate(rising, turned, 1.0)
        up.append(pivot)
    top, bottom = solve_middle(falling, rising, 1.0)
    first, second = [top, bottom], [bottom, top]
    for pivot in down[:0:-1]:
        first.insert(0, substitute(pivot, first[0], first[1]))
    for pivot in up[:0:-1]:
        second.insert(0, substitute(pivot, second[0], second[1]))
    x = np.array([*first[: len(down)], *second[: len(up)][::-1]])
    assert ulp_error(systems, x) < PLAIN


shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@settings(max_examples=150)
@given(st.data())
def test_shapes_strides_and_axes(data: Any) -> None:
    """Any axis, broadcasting, any strides, with and without out: equals one system at a time."""
    dtype = data.draw(st.sampled_from(DTYPES))
    batch, n = data.draw(shapes), data.draw(st.integers(1, 40))
    axis = data.draw(st.integers(0, len(batch)))
    systems = naive.make("dominant", (*batch, n), np.dtype(dtype).type, seed=3)
    arrays = [
        _strided(data, np.moveaxis(_thinned(data, s, batch), -1, axis - len(batch) - 1))
        for s in systems
    ]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    out = None
    if data.draw(st.booleans()):
        out = _strided(data, np.zeros(shape, dtype))
    negative = data.draw(st.booleans())
    before = [a.copy() for a in arrays]
    x = solve_tridiagonal(*arrays, axis=axis - len(shape) if negative else axis, out=out)
    assert x.shape == shape
    assert out is None or x is out
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    wide = [np.moveaxis(np.broadcast_to(a, shape), axis, -1) for a in arrays]
    assert ulp_error(wide, np.moveaxis(x, axis, -1)) < 50


def _thinned(data: Any, array: Any, batch: tuple[int, ...]) -> Any:
    """Some batch axes reduced to length one."""
    keep = tuple(
        slice(0, 1) if size > 0 and data.draw(st.integers(0, 3)) == 0 else slice(None)
        for size in batch
    )
    return array[keep]


def _strided(data: Any, array: Any) -> Any:
    """The same numbers with other strides: padded, negative, or in another order of axes."""
    order = data.draw(st.permutations(range(array.ndim)))
    steps = [data.draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in order]
    moved = array.transpose(order)
    wide = np.zeros([s * abs(p) for s, p in zip(moved.shape, steps, strict=True)], array.dtype)
    view = wide[tuple(slice(None, None, p) for p in steps)]
    view[...] = moved
    return view.transpose(np.argsort(order))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-1, 0])
def test_lengths(axis: int, dtype: str) -> None:
    n, batch = 37, 50
    systems = naive.make("random", (batch, n), np.dtype(dtype).type, seed=5)
    lengths = np.random.default_rng(0).integers(0, n + 1, batch)
    lengths[:4] = 0, 1, 2, n
    expected = np.zeros((batch, n), dtype)
    for i, length in enumerate(lengths):
        for array in systems:
            array[i, length:] = np.nan
        part = [array[i, :length] for array in systems]
        if length:
            expected[i, :length] = solve_tridiagonal(*part, check="residual")
    views = [np.ascontiguousarray(np.moveaxis(array, -1, axis)) for array in systems]
    x = solve_tridiagonal(*views, axis=axis, lengths=lengths, check="residual")
    x = np.moveaxis(x, axis, -1)
    for i, length in enumerate(lengths):
        assert (x[i, length:] == 0).all()
        if length:
            own = [array[i, :length] for array in systems]
            assert ulp_error(own, x[i, :length]) < CHECKED


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


def test_result_may_overwrite_the_right_hand_side() -> None:
    for axis in (0, 1):
        a, b, c, d = map(np.nan_to_num, naive.make("random", (60, 60), seed=2))
        expected = solve_tridiagonal(a, b, c, d, axis=axis)
        assert solve_tridiagonal(a, b, c, d, axis=axis, out=d) is d
        np.testing.assert_array_equal(d, expected)


@pytest.mark.parametrize("axis", [-1, 0])
def test_threads_and_batches_do_not_change_the_result(axis: int) -> None:
    systems = [np.moveaxis(s, -1, axis) for s in naive.make("random", (1000, 40))]
    systems = [np.ascontiguousarray(s) for s in systems]
    whole = solve_tridiagonal(*systems, axis=axis)
    np.testing.assert_array_equal(solve_tridiagonal(*systems, axis=axis, num_threads=1), whole)
    part = [s.take(range(5, 16), 1 + axis) for s in systems]
    np.testing.assert_array_equal(
        solve_tridiagonal(*part, axis=axis), whole.take(range(5, 16), 1 + axis)
    )


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
