"""`solve_tridiagonal` against its equations in extended precision: all layouts and options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.scan import solve_tridiagonal
from rlcpu.scan.tridiagonal.plans import LONG, cut_systems, run
from tests.scan.tridiagonal import naive

DTYPES = ["float32", "float64"]
#: Shapes (batch..., n), and where the axis of the unknowns is.
LAYOUTS = [
    ((700, 1), -1),
    ((700, 2), 0),
    ((700, 3), -1),
    ((3, 9), -1),
    ((301, 100), -1),
    ((5, 33), 0),  # too narrow for columns
    ((1003, 50), 0),
    ((3, 70, 20), 1),
    ((140, 2100), 0),
    ((1, 10_000), -1),  # in chunks; so the next two
    ((3, LONG + 7233), -1),
    ((10, LONG + 5), 0),
]
OPTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, naive.FAMILIES),
    ({"check": "residual"}, naive.FAMILIES),
    ({"periodic": True}, naive.FAMILIES),
    ({"method": "thomas"}, ["dominant"]),
    ({"method": "thomas", "periodic": True}, ["dominant"]),
    ({"lengths": True}, ["random"]),
    ({"lengths": True, "periodic": True, "check": "residual"}, ["random"]),
]
#: Bounds on the backward error, in multiples of epsilon: of float32 as it is, and of all others.
PLAIN, REFINED = 2.0**16, 450.0


def bound(dtype: Any, family: str, options: dict[str, Any]) -> float:
    refines = "check" in options or "periodic" in options
    is_plain = dtype == "float32" and family != "dominant" and not refines
    return (PLAIN if is_plain else REFINED) * float(np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("options", "families"), OPTIONS)
@pytest.mark.parametrize(("shape", "axis"), LAYOUTS)
def test_layouts_and_options(
    shape: tuple[int, ...], axis: int, options: dict[str, Any], families: list[str], dtype: str
) -> None:
    """Accurate in every family, in place too, whatever the layout and the number of threads."""
    *batch, n = shape
    periodic, options = "periodic" in options, dict(options)
    rng = np.random.default_rng(0)
    for family in families:
        if family == "zero diagonal" and n > (400 if dtype == "float32" else 20_000):
            continue  # a condition number of 1e48 and more: numbers overflow on the way
        systems = (naive.ring if periodic else naive.make)(family, shape, np.dtype(dtype).type)
        lengths = np.full(batch, n)
        if "lengths" in options:
            lengths = options["lengths"] = rng.integers(0, n + 1, batch)
            lengths.flat[:3] = [n, 1, 0][: lengths.size]
            for array in systems:  # what is beyond is not read
                array[np.arange(n) >= lengths[..., None]] = np.nan
        given_arrays = naive.moved(systems, axis)
        x, info = solve_tridiagonal(*given_arrays, axis=axis, return_info=True, **options)
        assert not info.status.any()
        assert x.dtype == dtype
        found = np.moveaxis(x, axis, -1)
        error = np.zeros(batch)
        if "lengths" not in options:
            error = naive.backward_error(*systems, found, periodic=periodic)
        for index in np.ndindex(*batch) if "lengths" in options else ():
            own = slice(lengths[index])
            assert not found[index][lengths[index] :].any()
            if lengths[index]:
                parts = [array[index][own] for array in (*systems, found)]
                error[index] = naive.backward_error(*parts, periodic=periodic)
        assert error.max() < bound(dtype, family, options)
        if info.backward_error is not None:
            near = 8 * float(np.finfo(dtype).eps)
            np.testing.assert_allclose(info.backward_error, error, atol=near)
        rows = solve_tridiagonal(*systems, **options, num_threads=1)
        np.testing.assert_array_equal(found, rows)
        out = given_arrays[3]
        assert solve_tridiagonal(*given_arrays, axis=axis, out=out, **options) is out
        np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("n", [1, 3, 100, 10_000])
def test_one_matrix_for_many_right_hand_sides(n: int, axis: int) -> None:
    for family in naive.FAMILIES:
        n += family == "zero diagonal" and n % 2  # an odd number of equations would be singular
        *matrix, _ = naive.make(family, (n,), seed=n)
        rhs = np.random.default_rng(0).standard_normal((max(64, -(-(2**17) // n)), n))
        placed = matrix if axis else [array[:, None] for array in matrix]
        x = solve_tridiagonal(*placed, *naive.moved([rhs], axis), axis=axis)
        assert naive.backward_error(*matrix, rhs, np.moveaxis(x, axis, -1)).max() < 1e-13


@pytest.mark.parametrize("offset", [0, 1, 5])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("batch", [5120, 5123])
def test_results_that_are_written_past_the_caches(batch: int, periodic: bool, offset: int) -> None:
    """Wherever lines of memory begin, of the first row and of the others."""
    systems = naive.ring("dominant", (batch, 120), seed=2)
    expected = solve_tridiagonal(*(a[:9] for a in systems), periodic=periodic)
    for axis in (0, -1):
        views, memory = naive.moved(systems, axis), np.full(batch * 120 + 64, 7.0)
        out = memory[offset : offset + batch * 120].reshape(views[3].shape)
        x = solve_tridiagonal(*views, axis=axis, periodic=periodic, out=out)
        x = np.moveaxis(x, axis, -1)
        np.testing.assert_array_equal(x[:9], expected)
        assert naive.backward_error(*systems, x, periodic=periodic).max() < 1e-14
        assert (memory[:offset] == 7.0).all()
        assert (memory[offset + batch * 120 :] == 7.0).all()


@pytest.mark.parametrize("offset", [0, 3])
def test_coefficients_that_are_shared_where_results_are_large(offset: int) -> None:
    """Of one system, of one row, of all."""
    batch, n = 333, 2003
    _, diagonal, upper, rhs = naive.make("dominant", (batch, n), seed=2)
    given_arrays = [-0.25, diagonal.T + 3.0, np.nan_to_num(upper[:1].T), rhs.T.copy()]
    out = np.full(batch * n + 64, 7.0)[offset : offset + batch * n].reshape(n, batch)
    solve_tridiagonal(*given_arrays, axis=0, out=out)
    rows = [np.ascontiguousarray(np.broadcast_to(a, (n, batch)).T) for a in given_arrays]
    np.testing.assert_array_equal(out.T, solve_tridiagonal(*rows))


@settings(max_examples=150)
@given(st.data())
def test_shapes_strides_and_axes(data: Any) -> None:
    """Any axis, broadcasting, any strides, rings, with and without out."""
    dtype, periodic = data.draw(st.sampled_from(DTYPES)), data.draw(st.booleans())
    batch = data.draw(st.lists(st.integers(0, 9), max_size=3).map(tuple))
    n, axis = data.draw(st.integers(1, 40)), data.draw(st.integers(0, len(batch)))
    systems = naive.ring("dominant", (*batch, n), np.dtype(dtype).type, seed=3)
    arrays = []
    for array in systems:
        keep = [slice(data.draw(st.sampled_from([1, None, None, None]))) for _ in batch]
        moved = np.moveaxis(array[tuple(keep)], -1, axis - len(batch) - 1)
        arrays.append(naive.strided(data, moved))
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    out = data.draw(st.sampled_from([None, naive.strided(data, np.zeros(shape, dtype))]))
    axis = data.draw(st.sampled_from([axis, axis - len(shape)]))
    before = [array.copy() for array in arrays]
    x = solve_tridiagonal(*arrays, axis=axis, periodic=periodic, out=out)
    assert x.shape == shape
    assert out is None or x is out
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    wide = [np.moveaxis(np.broadcast_to(array, shape), axis, -1) for array in (*arrays, x)]
    error = naive.backward_error(*wide, periodic=periodic).max(initial=0.0)
    assert error < 150 * float(np.finfo(dtype).eps)


@pytest.mark.parametrize("axis", [-1, 0])
def test_batches_do_not_change_the_result(axis: int) -> None:
    systems = naive.moved(naive.make("random", (1000, 40)), axis)
    whole = solve_tridiagonal(*systems, axis=axis)
    part = [array.take(range(5, 16), 1 + axis) for array in systems]
    np.testing.assert_array_equal(
        solve_tridiagonal(*part, axis=axis), whole.take(range(5, 16), 1 + axis)
    )


@given(st.integers(1, 40), st.integers(1, 3000))
def test_cuts(systems: int, n: int) -> None:
    for size in (n, LONG * n):
        cut = cut_systems(systems, size, np.dtype(float))
        assert cut is not None or size < LONG
        if cut is not None:
            assert cut.chunks >= 2
            assert cut.chunks * cut.rows >= size > (cut.chunks - 1) * cut.rows


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("shape", [(3, 40_000), (11, 90)])
def test_lengths_take_no_further_pass(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], periodic: bool
) -> None:
    """As many passes as with one length, however many of these there are."""
    calls = []
    monkeypatch.setattr("rlcpu.scan.tridiagonal.chunks.run", lambda *a: calls.append(1) or run(*a))
    systems = naive.ring("dominant", shape, seed=4)
    solve_tridiagonal(*systems, periodic=periodic, lengths=shape[1])
    before = len(calls)
    lengths = np.random.default_rng(0).integers(0, shape[1] + 1, shape[0])
    solve_tridiagonal(*systems, periodic=periodic, lengths=lengths)
    assert len(calls) == 2 * before
