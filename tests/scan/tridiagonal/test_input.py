"""What `solve_tridiagonal` does with singular systems, NaN and infinity, and bad arguments."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rlcpu.scan import (
    SingularSystemError,
    Status,
    factor_tridiagonal,
    solve_tridiagonal,
    tridiagonal_vjp,
)
from tests.scan.tridiagonal import naive

N = 12


def good(batch: int = 20, seed: int = 0) -> list[Any]:
    return naive.make("dominant", (batch, N), seed=seed)


def transposed(arrays: list[Any], axis: int) -> list[Any]:
    return [np.moveaxis(array, -1, axis).copy(order="C") for array in arrays]


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("overwrite", [False, True])
def test_status_of_every_kind(axis: int, overwrite: bool) -> None:
    a, b, c, d = good()
    a[3], b[3], c[3] = 0.0, 1.0, 0.0
    b[3, 5] = 0.0
    b[7, 2] = np.nan
    d[9, 11] = np.inf
    d[10, 0] = -np.inf
    c[12, 4] = np.inf
    arrays = transposed([a, b, c, d], axis)
    out = arrays[3] if overwrite else None
    x, info = solve_tridiagonal(*arrays, axis=axis, return_info=True, out=out)
    expected = np.zeros(20, np.int8)
    expected[3] = Status.SINGULAR
    expected[[7, 9, 10, 12]] = Status.NOT_FINITE
    np.testing.assert_array_equal(info.status, expected)
    assert info.backward_error is None
    x = np.moveaxis(x, axis, -1)
    well = expected == 0
    assert naive.backward_error(a[well], b[well], c[well], d[well], x[well]).max() < 1e-14
    assert not np.isfinite(x[~well]).all(-1).any()


@pytest.mark.parametrize("where", range(N))
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_nothing_that_is_not_finite_passes(where: int, number: float) -> None:
    for name in range(4):
        arrays = good(3)
        arrays[name][1, where] = number
        if (name, where) in ((0, 0), (2, N - 1)):
            solve_tridiagonal(*arrays)
        else:
            with pytest.raises(SingularSystemError, match=r"1 of 3 systems.*\(1,\) not finite"):
                solve_tridiagonal(*arrays)


@pytest.mark.parametrize("where", range(N))
@pytest.mark.parametrize("method", ["pivot", "thomas"])
def test_no_singular_system_passes(where: int, method: Any) -> None:
    a, b, c, d = good(3)
    b[1, where] = 0.0
    a[1, where] = c[1, where] = 0.0
    with pytest.raises(SingularSystemError, match=r"\(1,\) singular"):
        solve_tridiagonal(a, b, c, d, method=method)
    a[1], c[1], b[1] = 0.0, 0.0, 1.0
    b[1, where], d[1] = 0.0, 0.0
    with pytest.raises(SingularSystemError, match=r"\(1,\) singular"):
        solve_tridiagonal(a, b, c, d, method=method)


def test_the_message_names_some_and_counts_all() -> None:
    a, b, c, d = good()
    b[::2] = a[::2] = c[::2] = 0.0
    with pytest.raises(SingularSystemError) as caught:
        solve_tridiagonal(a, b, c, d)
    assert "10 of 20 systems" in str(caught.value)
    assert "(0,) singular, (2,) singular" in str(caught.value)
    with pytest.raises(np.linalg.LinAlgError, match="1 of 1 systems not solved: singular"):
        solve_tridiagonal(a[0], b[0], c[0], d[0])


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_copies_of_errors(copied: Any) -> None:
    """Of a pool of processes they come back whole."""
    a, b, c, d = good()
    b[1] = a[1] = c[1] = 0.0
    for call in (
        lambda: solve_tridiagonal(a, b, c, d),
        lambda: factor_tridiagonal(a, b, c),
        lambda: factor_tridiagonal(0.0, np.ones(3), 0.0).solve(np.full(3, np.nan)),
    ):
        with pytest.raises(SingularSystemError) as caught:
            call()
        error = caught.value
        error.place = "worker 3"
        error.add_note("in step 7")
        twin = copied(error)
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.place == "worker 3"
        assert twin.__notes__ == ["in step 7"]
        np.testing.assert_array_equal(twin.status, error.status)


def test_inaccurate_solutions_fail_a_check() -> None:
    a, b, c, d = naive.make("random", (30, N), seed=8)
    b[4, 0] = 1e-100  # without pivoting nothing of the second equation is left
    _, info = solve_tridiagonal(a, b, c, d, method="thomas", check="residual", return_info=True)
    assert info.status[4] == Status.INACCURATE
    with pytest.raises(SingularSystemError, match=r"\(4,\) inaccurate"):
        solve_tridiagonal(a, b, c, d, method="thomas", check="residual")
    assert not solve_tridiagonal(a, b, c, d, check="residual", return_info=True)[1].status.any()


def test_whole_numbers_and_plain_numbers() -> None:
    x = solve_tridiagonal(-1, 2, -1, [1, 0, 1])
    assert x.dtype == np.float64
    np.testing.assert_allclose(x, 1.0)
    assert solve_tridiagonal(-1, 2.0, -1, np.ones(3, np.float32)).dtype == np.float32


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (0, 0)])
def test_empty(shape: tuple[int, ...]) -> None:
    empty = np.zeros(shape)
    assert solve_tridiagonal(empty, empty, empty, empty).shape == shape
    _, info = solve_tridiagonal(empty, empty, empty, empty, return_info=True, check="residual")
    assert info.status.shape == info.backward_error.shape == shape[:-1]


ONES = np.ones((4, 5))
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"lower": np.ones((3, 5))}, ValueError, "lower (3, 5)"),
    ({"lower": np.ones((4, 5), np.complex128)}, TypeError, "lower: expected"),
    ({"rhs": np.ones((4, 5), np.float16)}, TypeError, "rhs: expected"),
    ({"rhs": np.ones((4, 5), np.longdouble)}, TypeError, "rhs: expected"),
    ({"rhs": np.array([["a"] * 5] * 4)}, TypeError, "rhs: expected"),
    ({"diagonal": np.ones((4, 5), np.float32)}, TypeError, "diagonal: expected float64"),
    ({"axis": 2}, ValueError, "axis=2"),
    ({"axis": -3}, ValueError, "axis=-3"),
    ({"axis": 1.0}, TypeError, "axis=1.0"),
    ({"method": "lu"}, ValueError, "method='lu'"),
    ({"check": "everything"}, ValueError, "check='everything'"),
    ({"num_threads": 0}, ValueError, "num_threads=0"),
    ({"out": np.ones((4, 4))}, ValueError, "out: expected"),
    ({"out": np.ones((4, 5), np.float32)}, TypeError, "out: expected"),
    ({"out": [[1.0] * 5] * 4}, TypeError, "out: expected"),
    ({"out": np.broadcast_to(1.0, (4, 5))}, ValueError, "out: read-only"),
    ({"lengths": [1, 2, 3, 6]}, ValueError, "lengths: expected 0 to 5, got 6"),
    ({"lengths": [1, 2, 3, -1]}, ValueError, "lengths: expected 0 to 5, got -1"),
    ({"lengths": [1, 2, 3]}, ValueError, "lengths: expected shape (4,)"),
    ({"lengths": [1.0, 2.0, 3.0, 4.0]}, TypeError, "lengths: expected whole numbers"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    out = np.full((4, 5), 7.0)
    arguments = {"lower": ONES, "diagonal": 4 * ONES, "upper": ONES, "rhs": ONES, "out": out}
    with pytest.raises(error, match=re.escape(message)):
        solve_tridiagonal(**{**arguments, **change})
    assert (out == 7.0).all()


def test_out_may_not_overlap_an_input() -> None:
    memory = np.ones(60)
    a, shifted = memory[:20].reshape(4, 5), memory[3:23].reshape(4, 5)
    with pytest.raises(ValueError, match="out: overlaps another array"):
        solve_tridiagonal(a, 4 * ONES, ONES, ONES, out=a)
    with pytest.raises(ValueError, match="out: overlaps another array"):
        solve_tridiagonal(ONES, 4 * ONES, ONES, a, out=shifted)
    assert (memory == 1.0).all()


# ---------------------------------------------------------------- the axis of the unknowns


def calls(lower: Any, diagonal: Any, upper: Any, rhs: Any, axis: int) -> Iterator[Any]:
    """Every function that takes a matrix."""
    yield lambda: solve_tridiagonal(lower, diagonal, upper, rhs, axis=axis)
    yield lambda: solve_tridiagonal(lower, diagonal, upper, rhs, axis=axis, periodic=True)
    if axis < 0:  # it is not told of axes before those of the matrices
        yield lambda: factor_tridiagonal(lower, diagonal, upper, axis=axis)
    yield lambda: tridiagonal_vjp(lower, diagonal, upper, rhs, rhs, axis=axis)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 6, 4), (3, 3, 3)])
def test_one_matrix_for_columns(shape: tuple[int, ...]) -> None:
    """Its numbers would be aligned with the systems, in silence where there are as many."""
    n = shape[-2]
    matrix = naive.make("dominant", (n,), seed=1)[:3]
    rhs = np.random.default_rng(2).normal(size=shape)
    columns = [array[:, None] for array in matrix]
    expected = solve_tridiagonal(*matrix, np.moveaxis(rhs, -2, -1))
    for axis in (-2, len(shape) - 2):
        for k, name in enumerate(("lower", "diagonal", "upper")):
            mixed = [*columns[:k], matrix[k], *columns[k + 1 :]]
            message = re.escape(
                f"{name}: shape ({n},) lacks the axis of the unknowns, axis={axis}; write "
                f"{name}[:, None] for numbers of equations that all systems share"
            )
            for call in calls(*mixed, rhs, axis):
                with pytest.raises(ValueError, match=f"^{message}"):
                    call()
        found = solve_tridiagonal(*columns, rhs, axis=axis)
        np.testing.assert_allclose(np.moveaxis(found, -2, -1), expected, rtol=1e-13)
    factors = factor_tridiagonal(*matrix)
    np.testing.assert_allclose(factors.solve(rhs, axis=-2), found, rtol=1e-12)


def test_one_right_hand_side_for_columns() -> None:
    matrices, rhs = transposed(good(4)[:3], 0), np.ones(N)
    with pytest.raises(ValueError, match=r"^rhs: shape \(12,\) lacks .* write rhs\[:, None\] for"):
        solve_tridiagonal(*matrices, rhs, axis=0)
    found = solve_tridiagonal(*matrices, rhs[:, None], axis=0)
    expected = solve_tridiagonal(*(array.T for array in matrices), rhs)
    np.testing.assert_allclose(found.T, expected, rtol=1e-13)


def test_one_number_of_each_system() -> None:
    """Along an axis of the unknowns of length 1 it is repeated; so are lone numbers."""
    numbers = 3.0 + np.arange(4.0)
    with pytest.raises(ValueError, match=r"diagonal\[None\] for one number of each system$"):
        solve_tridiagonal(1.0, numbers, 1.0, np.ones((4, 4)), axis=0)
    found = solve_tridiagonal([1.0], numbers[None], 1.0, np.ones((4, 4)), axis=0)
    for x, number in zip(found.T, numbers, strict=True):
        np.testing.assert_allclose(x, solve_tridiagonal(1.0, number, 1.0, np.ones(4)), rtol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("name", ["lower", "upper"])
def test_shorter_off_diagonals_are_named(name: str, axis: int) -> None:
    """As libraries take them that store no number for what is not there."""
    arrays = dict(
        zip(("lower", "diagonal", "upper", "rhs"), transposed(good(4), axis), strict=True)
    )
    arrays[name] = np.delete(arrays[name], 0, axis)
    message = (
        f"{name}: expected {N} numbers along axis={axis}, got {N - 1}; off-diagonals are padded to "
        f"the length of the diagonal: lower[0] and upper[{N - 1}] are ignored"
    )
    for call in calls(**arrays, axis=axis):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        solve_tridiagonal(**{**arrays, "diagonal": 3.0}, axis=axis)


def test_numbers_alone_are_no_system() -> None:
    with pytest.raises(ValueError, match="rhs: expected at least one axis"):
        solve_tridiagonal(1.0, 2.0, 1.0, 1.0)
