"""Tridiagonal systems on the device: backward errors, statuses, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda import arrays
from rlcpu.cuda.scan import solve_tridiagonal, tridiagonal_check
from rlcpu.scan import SingularSystemError, Status
from tests.scan.tridiagonal import naive

pytestmark = pytest.mark.device

#: Systems of one warp and of the next, unknowns of one tile and of the next.
BATCH, LENGTH = 35, 18


def solve(arguments: list[np.ndarray], axis: int, **options: Any) -> Any:
    """Solutions (batch, n) of systems (batch, n), laid out along an axis."""
    turned = [np.moveaxis(a, -1, axis).copy() for a in arguments]
    x, info = solve_tridiagonal(
        *map(arrays.from_host, turned), axis=axis, return_info=True, **options
    )
    return np.moveaxis(np.asarray(x), axis, -1), np.asarray(info.status)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("family", naive.FAMILIES)
def test_backward_errors(family: str, axis: int, dtype: Any) -> None:
    given = naive.make(family, (BATCH, LENGTH), dtype)
    x, status = solve(given, axis)
    assert not status.any()
    assert naive.backward_error(*given, x).max() < 200 * np.finfo(dtype).eps
    if family in ("dominant", "scaled rows"):
        again, status = solve(given, axis, method="thomas")
        assert not status.any()
        assert naive.backward_error(*given, again).max() < 10 * np.finfo(dtype).eps


@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_few_unknowns_and_batch_axes(length: int, axis: int) -> None:
    given = naive.make("random", (2, 3, length))
    x, status = solve(given, axis)
    assert x.shape == (2, 3, length)
    assert not status.any()
    assert naive.backward_error(*given, x).max() < 1e-13


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, -1])
def test_periodic(axis: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    lengths = np.arange(1, 8).repeat(5)
    given = [a.astype(dtype) for a in rng.normal(size=(4, len(lengths), 7))]
    dominant = abs(given[0]) + abs(given[2]) + dtype(1.0)
    for method, system in (("pivot", given), ("thomas", [given[0], dominant, *given[2:]])):
        x, status = solve(system, axis, periodic=True, lengths=lengths, method=method)
        assert not status.any()
        for number, n in enumerate(lengths):
            lower, diagonal, upper, rhs = (a[number, :n].astype(np.longdouble) for a in system)
            matrix = naive.dense(lower, diagonal, upper, periodic=True)
            size = abs(matrix) @ abs(x[number, :n]) + abs(rhs)
            rest = abs(matrix @ x[number, :n] - rhs) / size
            assert rest.max() < 300 * np.finfo(dtype).eps
            assert not x[number, n:].any()


def test_periodic_system_of_zero_sum_is_singular() -> None:
    rhs = arrays.from_host(np.arange(4.0).reshape(2, 2))
    _, info = solve_tridiagonal(-1.0, 2.0, -1.0, rhs, periodic=True, return_info=True)
    assert np.asarray(info.status).tolist() == [Status.SINGULAR] * 2


@pytest.mark.parametrize("axis", [0, -1])
def test_lengths(axis: int) -> None:
    lengths = np.arange(BATCH) % (LENGTH + 1)
    given = naive.make("random", (BATCH, LENGTH))
    x, status = solve(given, axis, lengths=lengths)
    assert not status.any()
    for system, length in enumerate(lengths):
        own = [array[system, :length] for array in given]
        assert not x[system, length:].any()
        if length:
            expected = naive.solve(naive.dense(*own[:3]), own[3])
            assert np.allclose(x[system, :length], expected.astype(float), rtol=1e-9)


@pytest.mark.parametrize("axis", [0, -1])
def test_statuses(axis: int) -> None:
    given = naive.make("dominant", (5, 6))
    given[1][1] = 0.0  # with its neighbours in the odd places this is singular
    given[0][1] = given[2][1] = 0.0
    given[3][2, 3] = np.inf
    given[1][3, 0] = np.nan
    x, status = solve(given, axis)
    solved, singular, not_finite = Status.SOLVED, Status.SINGULAR, Status.NOT_FINITE
    assert status.tolist() == [solved, singular, not_finite, not_finite, solved]
    assert np.isfinite(x[status == solved]).all()
    turned = [arrays.from_host(np.moveaxis(a, -1, axis).copy()) for a in given]
    with pytest.raises(SingularSystemError, match="3 of 5 systems") as caught:
        solve_tridiagonal(*turned, axis=axis)
    assert caught.value.status.tolist() == status.tolist()


def test_numbers_and_one_matrix_for_all() -> None:
    rhs = np.ones((3, 4))
    expected = [[2.0, 3.0, 3.0, 2.0]] * 3
    assert np.allclose(np.asarray(solve_tridiagonal(-1, 2.0, -1, arrays.from_host(rhs))), expected)
    diagonal = np.full(4, 2.0)
    found = solve_tridiagonal(-1.0, diagonal, -np.ones(4), arrays.from_host(rhs))
    assert np.allclose(np.asarray(found), expected)
    columns = arrays.from_host(rhs.T.copy())
    found = solve_tridiagonal(-1.0, diagonal[:, None], -1.0, columns, axis=0)
    assert np.allclose(np.asarray(found).T, expected)


@pytest.mark.parametrize("axis", [0, -1])
def test_in_place(axis: int) -> None:
    given = [
        arrays.from_host(np.moveaxis(a, -1, axis).copy()) for a in naive.make("random", (3, 6))
    ]
    expected = np.asarray(solve_tridiagonal(*given, axis=axis))
    assert solve_tridiagonal(*given, axis=axis, out=given[3]) is given[3]
    assert np.array_equal(np.asarray(given[3]), expected)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "lu"}, ValueError, "method='lu'"),
        ({"axis": 2}, ValueError, "axis=2"),
        ({"lengths": [7] * 3}, ValueError, "expected 0 to 6, got 7"),
        ({"lengths": [0.5] * 3}, TypeError, "lengths"),
        ({"check": "norm"}, ValueError, "check='norm'"),
        ({"diagonal": np.ones((3, 6), np.float32)}, TypeError, "diagonal float32"),
        ({"diagonal": np.ones((3, 5))}, ValueError, r"diagonal \(3, 5\)"),
        ({"out": np.ones((3, 6))}, TypeError, "out"),
    ],
)
def test_bad_input(change: dict[str, Any], error: type[Exception], message: str) -> None:
    names = "lower", "diagonal", "upper", "rhs"
    given = {name: arrays.from_host(np.ones((3, 6))) for name in names}
    with pytest.raises(error, match=message):
        solve_tridiagonal(**{**given, **change})


def test_output_that_overlaps_a_coefficient() -> None:
    given = [arrays.from_host(np.ones((3, 6))) for _ in range(4)]
    with pytest.raises(ValueError, match="out: shares memory with diagonal"):
        solve_tridiagonal(*given, out=given[1])


# ---------------------------------------------------------------- check="residual"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, -1])
def test_backward_errors_are_those_of_the_solutions(axis: int, dtype: Any) -> None:
    given = naive.make("tiny pivots", (5, LENGTH), dtype)
    turned = [arrays.from_host(np.moveaxis(a, -1, axis).copy()) for a in given]
    x, info = solve_tridiagonal(*turned, axis=axis, check="residual", return_info=True)
    found = np.asarray(info.backward_error)
    expected = naive.backward_error(*given, np.moveaxis(np.asarray(x), axis, -1))
    assert not np.asarray(info.status).any()
    assert found.dtype == dtype
    assert found.shape == (5,)
    assert np.abs(found - expected).max() < 4 * np.finfo(dtype).eps


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("in_place", [False, True])
def test_inaccurate_solutions_are_refined(axis: int, in_place: bool) -> None:
    given = naive.make("random", (4, 12))
    given[1][2, 5] = 1e-9  # a pivot of elimination in order
    given[0][2, 5] = given[2][2, 4] = given[0][2, 4] = 0.0
    given[0][2, 5], given[1][2, 4] = 1.0, 1.0
    given[1][2, 0] = 1e-8
    lengths = [12, 7, 12, 0]
    turned = [arrays.from_host(np.moveaxis(a, -1, axis).copy()) for a in given]
    options: Any = {"axis": axis, "method": "thomas", "lengths": lengths, "return_info": True}
    plain = np.moveaxis(np.asarray(solve_tridiagonal(*turned, **options)[0]), axis, -1)
    assert naive.backward_error(*(a[2] for a in given), plain[2]) > 1e-10
    out = turned[3] if in_place else None
    x, info = solve_tridiagonal(*turned, **options, check="residual", out=out)
    x = np.moveaxis(np.asarray(x), axis, -1)
    assert not np.asarray(info.status).any()
    assert naive.backward_error(*(a[2] for a in given), x[2]) < 2**7 * np.finfo(float).eps
    assert np.asarray(info.backward_error).max() < 2**7 * np.finfo(float).eps
    assert not x[3].any()
    assert not x[1, 7:].any()


@pytest.mark.parametrize("limit", [2**13, 0.0])
def test_statuses_of_checked_systems(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tridiagonal_check, "INACCURATE", limit)
    given = naive.make("dominant", (4, 6))
    for array in given[:3]:
        array[1, 3] = 0.0
    given[3][2, 3] = np.inf
    turned = [arrays.from_host(a) for a in given]
    _, info = solve_tridiagonal(*turned, check="residual", return_info=True)
    status, errors = np.asarray(info.status), np.asarray(info.backward_error)
    good = Status.SOLVED if limit else Status.INACCURATE
    assert status.tolist() == [good, Status.SINGULAR, Status.NOT_FINITE, good]
    assert np.isnan(errors).tolist() == [False, True, True, False]
    with pytest.raises(SingularSystemError, match=f"{2 if limit else 4} of 4 systems"):
        solve_tridiagonal(*turned, check="residual")


def test_periodic_systems_are_checked() -> None:
    given = list(np.random.default_rng(0).normal(size=(4, 3, 7)))
    x, info = solve_tridiagonal(
        *map(arrays.from_host, given), periodic=True, check="residual", return_info=True
    )
    for number, error in enumerate(np.asarray(info.backward_error)):
        lower, diagonal, upper, rhs = (a[number].astype(np.longdouble) for a in given)
        matrix, own = naive.dense(lower, diagonal, upper, periodic=True), np.asarray(x)[number]
        size = abs(matrix) @ abs(own) + abs(rhs)
        expected = (abs(matrix @ own - rhs) / size).max()
        assert abs(error - expected) < 4 * np.finfo(float).eps


def test_no_systems_have_no_errors() -> None:
    rhs = arrays.from_host(np.ones((0, 4)))
    x, info = solve_tridiagonal(1.0, 2.0, 1.0, rhs, check="residual", return_info=True)
    assert (x.shape, info.status.shape, info.backward_error.shape) == ((0, 4), (0,), (0,))
