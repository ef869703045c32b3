"""Systems that fail: which ones and why, in every layout, and that the others are solved."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from rlcpu.scan import SingularSystemError, Status, factor_tridiagonal, solve_tridiagonal
from rlcpu.scan.tridiagonal.plans import LONG
from tests.scan.tridiagonal import naive

#: Shapes (batch, n), and where the axis of the unknowns is.
LAYOUTS = [
    ((3, 12), -1),
    ((20, 12), 0),
    ((832, 20), -1),
    ((832, 20), 0),
    ((37, 1001), 0),
    ((2, 3000), -1),  # in chunks; so the next two
    ((3, LONG), -1),
    ((3, LONG + 5), 0),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"method": "thomas"},
    {"check": "residual"},
    {"periodic": True},
    {"lengths": True},
]
#: Number of the array that is spoiled, and with what; None to make its equation singular.
FAILURES = [(0, np.inf), (1, np.nan), (2, np.nan), (3, np.nan), (3, -np.inf), (1, None)]


def spoil(systems: list[Any], system: int, k: int, name: int, number: float | None) -> Status:
    """Spoil equation k of a system, and return its status."""
    if number is None:
        for array in systems[:3]:
            array[system, k] = 0.0
        return Status.SINGULAR
    systems[name][system, k] = number
    return Status.NOT_FINITE


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("shape", "axis"), LAYOUTS)
def test_what_fails_is_named_and_the_others_are_solved(
    shape: tuple[int, int], axis: int, options: dict[str, Any]
) -> None:
    count, n = shape
    options = dict(options)
    if "lengths" in options:
        options["lengths"] = np.append(n - 2, np.full(count - 1, n))
    good = naive.ring("dominant", shape)
    expected = solve_tridiagonal(*good, **options)
    for k in {0, 1, n // 2, n - 2, n - 1} if n < LONG else {0, n // 2, n - 1}:
        for name, number in FAILURES:
            if "periodic" not in options and (name, k) in ((0, 0), (2, n - 1)):
                continue  # is ignored
            systems = [array.copy() for array in good]
            status = np.zeros(count, np.int8)
            status[1] = spoil(systems, 1, k, name, number)
            views = naive.moved(systems, axis)
            x, info = solve_tridiagonal(*views, axis=axis, return_info=True, **options)
            np.testing.assert_array_equal(info.status, status)
            x = np.moveaxis(x, axis, -1)
            np.testing.assert_allclose(x[status == 0], expected[status == 0], rtol=1e-9)
            assert not np.isfinite(x[status != 0]).all(-1).any()
            word = Status(status.max()).name.lower().replace("_", " ")
            message = rf"^1 of {count} systems not solved: \(1,\) {word}"
            for out in (None, views[3]):
                with pytest.raises(SingularSystemError, match=message):
                    solve_tridiagonal(*views, axis=axis, out=out, **options)


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("periodic", [False, True])
def test_status_of_every_kind(axis: int, overwrite: bool, periodic: bool) -> None:
    systems = naive.ring("dominant", (832, 12))
    expected = solve_tridiagonal(*systems, periodic=periodic)
    status = np.zeros(832, np.int8)
    for system, (name, number) in zip((3, 7, 9, 10, 12, 831), FAILURES, strict=True):
        status[system] = spoil(systems, system, 5, name, number)
    views = naive.moved(systems, axis)
    out = views[3] if overwrite else None
    x, info = solve_tridiagonal(*views, axis=axis, periodic=periodic, return_info=True, out=out)
    assert out is None or x is out
    np.testing.assert_array_equal(info.status, status)
    assert info.backward_error is None
    x = np.moveaxis(x, axis, -1)
    np.testing.assert_allclose(x[status == 0], expected[status == 0], rtol=1e-13)
    assert not np.isfinite(x[status != 0]).all(-1).any()


@pytest.mark.parametrize("method", ["pivot", "thomas"])
def test_no_singular_system_passes(method: Any) -> None:
    """Nor one of zeros on the right."""
    for k in range(12):
        a, b, c, d = naive.make("dominant", (3, 12))
        a[1], c[1], b[1] = 0.0, 0.0, 1.0
        b[1, k], d[1] = 0.0, 0.0
        with pytest.raises(SingularSystemError, match=r"\(1,\) singular"):
            solve_tridiagonal(a, b, c, d, method=method)


@pytest.mark.parametrize("axis", [0, 1])
def test_overflow_at_either_end(axis: int) -> None:
    """Substitution overflows on the way from the middle to the first or to the last unknown."""
    lower, diagonal, upper = np.zeros((40, 6)), np.ones((40, 6)), np.zeros((40, 6))
    rhs = np.ones((40, 6))
    rhs[3, 2] = rhs[7, 3] = upper[3, 0] = lower[7, 5] = 1e200
    upper[3, 1] = lower[7, 4] = 1e30
    views = naive.moved([lower, diagonal, upper, rhs], axis)
    x, info = solve_tridiagonal(*views, axis=axis, return_info=True)
    np.testing.assert_array_equal(np.flatnonzero(info.status), [3, 7])
    assert (info.status[[3, 7]] == Status.SINGULAR).all()
    finite = np.isfinite(np.moveaxis(x, axis, -1)).all(-1)
    np.testing.assert_array_equal(np.flatnonzero(~finite), [3, 7])


@pytest.mark.parametrize("axis", [0, -1])
def test_one_matrix_for_many_right_hand_sides(axis: int) -> None:
    """A bad right-hand side fails alone, a singular matrix fails all; nothing is overwritten."""
    *matrix, _ = naive.make("random", (40,), seed=40)
    matrix = matrix if axis else [array[:, None] for array in matrix]
    (rhs,) = naive.moved([np.random.default_rng(0).standard_normal((3277, 40))], axis)
    expected = np.moveaxis(solve_tridiagonal(*matrix, rhs, axis=axis), axis, -1)
    np.moveaxis(rhs, axis, -1)[3, 7] = np.inf
    before = [array.copy() for array in (*matrix, rhs)]
    x, info = solve_tridiagonal(*matrix, rhs, axis=axis, return_info=True)
    np.testing.assert_array_equal(np.flatnonzero(info.status), [3])
    assert info.status[3] == Status.NOT_FINITE
    others = np.arange(info.status.size) != 3
    np.testing.assert_allclose(np.moveaxis(x, axis, -1)[others], expected[others], rtol=1e-9)
    for array, same in zip((*matrix, rhs), before, strict=True):
        np.testing.assert_array_equal(array, same)
    for array in matrix:
        array.flat[4] = 0.0
    rhs[...] = 1.0
    _, info = solve_tridiagonal(*matrix, rhs, axis=axis, return_info=True)
    assert (info.status == Status.SINGULAR).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_few_systems_of_any_layout(axis: int) -> None:
    rng = np.random.default_rng(0)
    a, c, d = rng.normal(size=(3, 4, 3, 1))
    out = np.full((3, 4, 5), 7.0).transpose(1, 0, 2)
    d = d + np.zeros(5)
    expected = solve_tridiagonal(a, 9.0, c, d, axis=axis)
    assert solve_tridiagonal(a, 9.0, c, d, axis=axis, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-14)
    d[2, 1, 3] = np.nan
    with pytest.raises(SingularSystemError, match="1 of"):
        solve_tridiagonal(a, 9.0, c, d, axis=axis, out=out)


def test_inaccurate_solutions_fail_a_check() -> None:
    a, b, c, d = naive.make("random", (30, 12), seed=8)
    b[4, 0] = 1e-100  # without pivoting nothing of the second equation is left
    _, info = solve_tridiagonal(a, b, c, d, method="thomas", check="residual", return_info=True)
    assert info.status[4] == Status.INACCURATE
    with pytest.raises(SingularSystemError, match=r"\(4,\) inaccurate"):
        solve_tridiagonal(a, b, c, d, method="thomas", check="residual")
    assert not solve_tridiagonal(a, b, c, d, check="residual", return_info=True)[1].status.any()


def test_the_message_names_some_and_counts_all() -> None:
    a, b, c, d = naive.make("dominant", (20, 12))
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
    a, b, c, d = naive.make("dominant", (20, 12))
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
