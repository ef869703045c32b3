"""Many right-hand sides of one matrix, which `solve_tridiagonal` reads again for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.scan import solve_tridiagonal
from rlcpu.scan.tridiagonal.status import SingularSystemError, Status
from tests.scan.tridiagonal import naive

NUMBERS = 2**17  # of the right-hand sides


def make(family: str, n: int, axis: int) -> list[Any]:
    """A matrix (n,), and normal right-hand sides that are enough, as they lie with that axis."""
    *matrix, _ = naive.make(family, (n,), seed=n)
    rhs = np.random.default_rng(0).standard_normal((max(64, -(-NUMBERS // n)), n))
    return [*(m if axis else m[:, None] for m in matrix), np.ascontiguousarray(_moved(rhs, axis))]


def _moved(rhs: Any, axis: int) -> Any:
    return rhs if axis else rhs.T


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("family", naive.FAMILIES)
@pytest.mark.parametrize("n", [1, 2, 3, 100, 10_000])
def test_backward_error(family: str, n: int, axis: int) -> None:
    n += family == "zero diagonal" and n % 2  # an odd number of equations would be singular
    systems = make(family, n, axis)
    x = solve_tridiagonal(*systems, axis=axis)
    again = solve_tridiagonal(*systems, axis=axis, num_threads=1)
    np.testing.assert_array_equal(x, again)
    assert naive.backward_error(*_rows(systems, axis), _moved(x, axis)).max() < 1e-13


def _rows(systems: list[Any], axis: int) -> list[Any]:
    *matrix, rhs = systems
    return [*(m.reshape(-1) for m in matrix), _moved(rhs, axis)]


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_right_hand_side_fails_alone(axis: int, bad: float) -> None:
    systems = make("random", 40, axis)
    expected = _moved(solve_tridiagonal(*systems, axis=axis), axis)
    _moved(systems[3], axis)[3, 7] = bad
    kept = [a.copy() for a in systems]
    x, info = solve_tridiagonal(*systems, axis=axis, return_info=True)
    np.testing.assert_array_equal(np.flatnonzero(info.status), [3])
    assert info.status[3] == Status.NOT_FINITE
    others = np.arange(info.status.size) != 3
    assert np.isfinite(_moved(x, axis)[others]).all()
    np.testing.assert_allclose(_moved(x, axis)[others], expected[others], rtol=1e-9)
    for array, copy in zip(systems, kept, strict=True):
        np.testing.assert_array_equal(array, copy)
    with pytest.raises(
        SingularSystemError, match=r"1 of \d+ systems not solved: \(3,\) not finite"
    ):
        solve_tridiagonal(*systems, axis=axis)


@pytest.mark.parametrize("axis", [0, -1])
def test_a_singular_matrix_fails_every_system(axis: int) -> None:
    lower, diagonal, upper, rhs = make("random", 9, axis)
    lower.flat[4] = diagonal.flat[4] = upper.flat[4] = 0.0
    _, info = solve_tridiagonal(lower, diagonal, upper, rhs, axis=axis, return_info=True)
    assert (info.status == Status.SINGULAR).all()
