"""Tall tridiagonal systems that lie next to each other: whole and cut, narrow rows, failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.scan import SingularSystemError, Status, solve_tridiagonal, tridiagonal_vjp
from rlcpu.scan.tridiagonal.plans import LONG
from tests.scan.tridiagonal import naive

N = LONG + 5  # so long that systems are cut


def columns(systems: list[Any]) -> list[Any]:
    """The same numbers in arrays (n, batch)."""
    return [np.ascontiguousarray(array.T) for array in systems]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["pivot", "thomas"])
@pytest.mark.parametrize(("batch", "n"), [(16, 2000), (21, 6001), (140, 2100), (1030, 2001)])
def test_the_layout_changes_nothing(batch: int, n: int, method: Any, dtype: str) -> None:
    systems = naive.make("random", (batch, n), np.dtype(dtype).type, seed=n)
    given = columns(systems)
    x, info = solve_tridiagonal(*given, axis=0, method=method, return_info=True)
    rows, expected = solve_tridiagonal(*systems, method=method, return_info=True)
    np.testing.assert_array_equal(x.T, rows)
    np.testing.assert_array_equal(info.status, expected.status)


@pytest.mark.parametrize("batch", [2, 10])
@pytest.mark.parametrize("family", naive.FAMILIES)
def test_backward_error(family: str, batch: int) -> None:
    """Below 1e-13 without a check, and as measured with one."""
    n = N - 5 if family != "zero diagonal" else 20_000  # whose unknowns overflow at 30,000
    systems = naive.make(family, (batch, n))
    x, info = solve_tridiagonal(*columns(systems), axis=0, check="residual", return_info=True)
    assert not info.status.any()
    error = naive.backward_error(*systems, x.T)
    np.testing.assert_allclose(info.backward_error, error, atol=2e-15)
    plain = solve_tridiagonal(*columns(systems), axis=0)
    assert naive.backward_error(*systems, plain.T).max() < 1e-13


def test_check_refines_without_pivoting() -> None:
    systems = naive.make("random", (3, N), seed=1)
    options: dict[str, Any] = {"axis": 0, "method": "thomas"}
    plain = solve_tridiagonal(*columns(systems), **options)
    assert naive.backward_error(*systems, plain.T).max() > 1e-13
    x = solve_tridiagonal(*columns(systems), **options, check="residual")
    assert naive.backward_error(*systems, x.T).max() < 1e-13


@pytest.mark.parametrize("offset", [0, 3])
def test_shared_numbers_and_results_that_are_written_past_the_caches(offset: int) -> None:
    """Coefficients of one system, of one row, of all; wherever lines of memory begin."""
    batch, n = 333, 2003
    _, diagonal, upper, rhs = naive.make("dominant", (batch, n), seed=2)
    given = [-0.25, diagonal.T + 3.0, np.nan_to_num(upper[:1].T), np.ascontiguousarray(rhs.T)]
    memory = np.full(batch * n + 64, 7.0)
    out = memory[offset : offset + batch * n].reshape(n, batch)
    solve_tridiagonal(*given, axis=0, out=out)
    rows = [np.ascontiguousarray(np.broadcast_to(a, (n, batch)).T) for a in given]
    np.testing.assert_array_equal(out.T, solve_tridiagonal(*rows))
    assert (memory[:offset] == 7.0).all()
    assert (memory[offset + batch * n :] == 7.0).all()


def test_axes_on_both_sides() -> None:
    """Several blocks of an outer axis, of one system or more; a stride that none of them has."""
    for shape in ((3, 5), (2, 40), (30, 1)):
        systems = naive.make("random", (*shape, 2500), seed=3)
        given = [np.ascontiguousarray(np.moveaxis(array, -1, 1)) for array in systems]
        x = np.moveaxis(solve_tridiagonal(*given, axis=1), 1, -1)
        np.testing.assert_array_equal(x, solve_tridiagonal(*systems))


def test_in_place_of_the_right_hand_side() -> None:
    for batch, n in ((10, N), (300, 2050)):
        systems = columns(naive.make("random", (batch, n), seed=4))
        expected = solve_tridiagonal(*systems, axis=0)
        assert solve_tridiagonal(*systems, axis=0, out=systems[3]) is systems[3]
        np.testing.assert_array_equal(systems[3], expected)


def test_lengths() -> None:
    lengths = np.array([N, 0, 1, N // 2, 3000])
    systems = naive.make("random", (len(lengths), N), seed=5)
    for i, length in enumerate(lengths):
        for array in systems:
            array[i, length:] = np.nan
    x = solve_tridiagonal(*columns(systems), axis=0, lengths=lengths).T
    for i, length in enumerate(lengths):
        assert (x[i, length:] == 0).all()
        if length == 0:
            continue
        own = [array[i, :length] for array in systems]
        assert naive.backward_error(*own, x[i, :length]).max() < 1e-13


def test_threads_do_not_change_the_result() -> None:
    systems = columns(naive.make("random", (50, 4000)))
    one = solve_tridiagonal(*systems, axis=0, num_threads=1)
    np.testing.assert_array_equal(solve_tridiagonal(*systems, axis=0), one)


@pytest.mark.parametrize("k", [0, 1, 500, 501, 999, 1000])
@pytest.mark.parametrize("system", [0, 20, 36])
def test_whole_systems_that_fail(system: int, k: int) -> None:
    for number, value, status in (
        (3, np.nan, Status.NOT_FINITE),
        (1, np.inf, Status.NOT_FINITE),
        (1, 0.0, Status.SINGULAR),
    ):
        systems = columns(naive.make("dominant", (37, 1001)))
        systems[number][k, system] = value
        if status == Status.SINGULAR:
            systems[0][k, system] = systems[2][k, system] = 0.0
        _, info = solve_tridiagonal(*systems, axis=0, return_info=True)
        assert info.status[system] == status
        assert np.count_nonzero(info.status) == 1


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("k", [0, 5, N // 2, N - 1])
def test_systems_that_fail(k: int, overwrite: bool) -> None:
    for number, value, status in (
        (1, np.nan, Status.NOT_FINITE),
        (3, np.inf, Status.NOT_FINITE),
        (1, 0.0, Status.SINGULAR),
    ):
        systems = columns(naive.make("dominant", (3, N)))
        systems[number][k, 1] = value
        if status == Status.SINGULAR:
            systems[0][k, 1] = systems[2][k, 1] = 0.0
        _, info = solve_tridiagonal(*systems, axis=0, return_info=True)
        np.testing.assert_array_equal(info.status, [0, status, 0])
        out = systems[3] if overwrite else None
        with pytest.raises(SingularSystemError, match=r"1 of 3 systems not solved: \(1,\)"):
            solve_tridiagonal(*systems, axis=0, out=out)


def test_gradients() -> None:
    systems = naive.make("dominant", (5, N), seed=6)
    arrays = [np.nan_to_num(a) for a in (*systems, np.ones_like(systems[3]))]
    rows = tridiagonal_vjp(*arrays)
    for found, expected in zip(tridiagonal_vjp(*columns(arrays), axis=0), rows, strict=True):
        np.testing.assert_allclose(found.T, expected, rtol=1e-10, atol=1e-12)
