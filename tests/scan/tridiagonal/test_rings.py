"""Many periodic systems, each in one pass: both layouts, any strides, refinement, failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.scan import SingularSystemError, Status, solve_tridiagonal
from rlcpu.scan.tridiagonal.equations import (
    RING_COLUMNS,
    eliminate_pair,
    eliminate_pair_with_outer,
    insert_outer,
    scaled,
    solve_chunk_ends,
    start_chunk,
    substitute,
)
from rlcpu.scan.tridiagonal.status import REFINED
from tests.scan.tridiagonal import naive
from tests.scan.tridiagonal.test_long import ring, ring_error

DTYPES = ["float32", "float64"]


def limit(dtype: Any) -> float:
    """Backward error of what is refined, and some more as it is computed otherwise here."""
    return 1.1 * REFINED * float(np.finfo(dtype).eps)


def layout(array: Any, axis: int) -> Any:
    return (array if axis == -1 else array.T).copy()


def _numbers(rest: Any) -> tuple[float, ...]:
    return rest.before, rest.first, *rest.pending


@given(st.integers(2, 30), st.integers(0, 1000), st.sampled_from(["random", "dominant"]))
def test_one_ring_in_plain_python(n: int, seed: int, family: str) -> None:
    systems = ring(family, (n,), seed=seed)
    equations = [scaled(*map(float, numbers)) for numbers in zip(*systems, strict=True)]
    rests = start_chunk(equations[0], equations[1])
    one, two = rests
    for equation in equations[2:]:
        _, one, two = eliminate_pair_with_outer(one, two, equation, 1.0)
    rest, ends = np.array([_numbers(one) + _numbers(two)]), np.zeros((1, 4))
    solve_chunk_ends(rest, np.zeros((1, 2, RING_COLUMNS)), ends)
    last, first = ends[0, :2]
    one, two = (insert_outer(rest, last, first) for rest in rests)
    pivots = []
    for equation in equations[2:]:
        _, pivot, one, two = eliminate_pair(one, two, equation, 1.0)
        pivots.append(pivot)
    x = [last, first]
    for pivot in reversed(pivots):
        x.insert(0, substitute(pivot, x[0], x[1]))
    assert ring_error(systems, np.array([first, *x[:-1]])) < 1e-12


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", naive.FAMILIES)
@pytest.mark.parametrize("shape", [(16, 2), (17, 3), (61, 33), (1003, 100)])
def test_accuracy(family: str, shape: tuple[int, int], dtype: str, axis: int) -> None:
    systems = ring(family, shape, dtype)
    views = [layout(array, axis) for array in systems]
    x, info = solve_tridiagonal(*views, axis=axis, periodic=True, return_info=True)
    assert not info.status.any()
    assert ring_error(systems, x if axis == -1 else x.T) < limit(dtype)
    y = solve_tridiagonal(*views, axis=axis, periodic=True, check="residual")
    np.testing.assert_array_equal(y, x)


@settings(max_examples=40)
@given(st.data())
def test_any_strides(data: Any) -> None:
    """Padded, turned, repeated, of two batch axes in any order."""
    n, batch = data.draw(st.integers(2, 40)), data.draw(st.tuples(*[st.integers(3, 9)] * 2))
    whole = ring("dominant", (*batch, n), seed=data.draw(st.integers(0, 9)))
    views = []
    for array in whole:
        order = data.draw(st.permutations(range(3)))
        step = data.draw(st.sampled_from([1, 1, 2, -1]))
        wide = np.zeros([size * abs(step) for size in np.array(array.shape)[list(order)]])
        view = wide[::step, ::step, ::step]
        view[...] = array.transpose(order)
        views.append(view.transpose(np.argsort(order)))
    if data.draw(st.booleans()):
        whole[0] = np.broadcast_to(np.float64(0.25), whole[0].shape)
        views[0] = 0.25
    out = np.empty_like(views[3]) if data.draw(st.booleans()) else views[3]
    x = solve_tridiagonal(*views, periodic=True, out=out)
    assert x is out
    for index in np.ndindex(batch):
        matrix = naive.dense(*(array[index] for array in whole[:3]), periodic=True)
        expected = naive.solve(matrix, whole[3][index]).astype(float)
        np.testing.assert_allclose(x[index], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("axis", [-1, 0])
def test_threads_do_not_change_the_result(axis: int) -> None:
    views = [layout(array, axis) for array in ring("random", (1000, 40))]
    one = solve_tridiagonal(*views, axis=axis, periodic=True, num_threads=1)
    np.testing.assert_array_equal(solve_tridiagonal(*views, axis=axis, periodic=True), one)


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("overwrite", [False, True])
def test_large_results(axis: int, overwrite: bool) -> None:
    """Written past the caches, from the first whole line on."""
    shape = (6007, 97)
    systems = ring("dominant", shape)
    views = [layout(array, axis) for array in systems]
    memory = np.zeros(systems[3].size + 3)
    out = views[3] if overwrite else memory[3:].reshape(views[3].shape)
    x = solve_tridiagonal(*views, axis=axis, periodic=True, out=out)
    assert x is out
    assert ring_error(systems, x if axis == -1 else x.T) < limit("float64")
    assert not memory[:3].any()


@pytest.mark.parametrize("axis", [-1, 0])
def test_what_fails_is_named_and_the_others_are_solved(axis: int) -> None:
    systems = ring("dominant", (2**14 // 20 + 13, 20))
    expected = solve_tridiagonal(*systems, periodic=True)
    for array in systems[:3]:
        array[[0, 100], 7] = 0.0
    systems[0][3, 0] = np.nan
    systems[3][-1, -1] = np.inf
    failing = {0: Status.SINGULAR, 100: Status.SINGULAR, 3: Status.NOT_FINITE}
    failing[len(expected) - 1] = Status.NOT_FINITE
    views = [layout(array, axis) for array in systems]
    x, info = solve_tridiagonal(*views, axis=axis, periodic=True, return_info=True)
    assert {int(i): info.status[i] for i in np.flatnonzero(info.status)} == failing
    well = info.status == 0
    x = x if axis == -1 else x.T
    np.testing.assert_allclose(x[well], expected[well], rtol=1e-13)
    assert not np.isfinite(x[~well]).all(-1).any()
    for out in (None, views[3]):
        with pytest.raises(SingularSystemError, match=r"4 of 832 .* \(0,\) singular"):
            solve_tridiagonal(*views, axis=axis, periodic=True, out=out)


def test_without_pivoting() -> None:
    systems = ring("dominant", (50, 30))
    x = solve_tridiagonal(*systems, periodic=True, method="thomas")
    assert ring_error(systems, x) < limit("float64")
