"""Few long tridiagonal systems on the device, in chunks, in several rounds of joining them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda import arrays
from rlcpu.cuda.scan import solve_tridiagonal, tridiagonal, tridiagonal_long
from rlcpu.scan import SingularSystemError, Status
from tests.scan.tridiagonal import naive

pytestmark = pytest.mark.device

#: One chunk, chunks of one group, of several groups.
LENGTHS = [17, 75, 300]


@pytest.fixture(autouse=True)
def _short_systems_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tridiagonal_long, "SHORTEST", 17)
    monkeypatch.setattr(tridiagonal_long, "_CHUNKS", 128)


def solve(arguments: list[np.ndarray], axis: int, **options: Any) -> Any:
    """Solutions (batch, n) of systems (batch, n), laid out along an axis."""
    turned = [arrays.from_host(np.moveaxis(a, -1, axis).copy()) for a in arguments]
    x, info = solve_tridiagonal(*turned, axis=axis, return_info=True, **options)
    return np.moveaxis(np.asarray(x), axis, -1), np.asarray(info.status)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_backward_errors(length: int, dtype: Any) -> None:
    for family in naive.FAMILIES:
        even = length + length % 2 if family == "zero diagonal" else length
        given = naive.make(family, (2, even), dtype)
        x, status = solve(given, -1)
        assert not status.any(), family
        assert naive.backward_error(*given, x).max() < 200 * np.finfo(dtype).eps, family


@pytest.mark.parametrize("unrefined", [False, True])
def test_chunks_alone_are_accurate(unrefined: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if unrefined:
        monkeypatch.setattr(tridiagonal, "refine", lambda *_: None)
    given = naive.make("dominant", (3, 300))
    for axis in (0, -1):
        for method in ("pivot", "thomas"):
            x, status = solve(given, axis, method=method)
            assert not status.any()
            assert naive.backward_error(*given, x).max() < 20 * np.finfo(float).eps


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("length", [17, 75, 300])
def test_periodic(length: int, axis: int) -> None:
    given = list(np.random.default_rng(0).normal(size=(4, 2, length)))
    x, status = solve(given, axis, periodic=True)
    assert not status.any()
    for number in range(2):
        lower, diagonal, upper, rhs = (a[number].astype(np.longdouble) for a in given)
        matrix = naive.dense(lower, diagonal, upper, periodic=True)
        size = abs(matrix) @ abs(x[number]) + abs(rhs)
        assert (abs(matrix @ x[number] - rhs) / size).max() < 200 * np.finfo(float).eps


@pytest.mark.parametrize("axis", [0, -1])
def test_lengths(axis: int) -> None:
    lengths = np.array([75, 0, 1, 40, 74, 33])
    given = naive.make("random", (6, 75))
    x, status = solve(given, axis, lengths=lengths)
    assert not status.any()
    for system, length in enumerate(lengths):
        assert not x[system, length:].any()
        if length:
            own = [array[system, :length] for array in given]
            assert naive.backward_error(*own, x[system, :length]) < 200 * np.finfo(float).eps


def test_in_place() -> None:
    given = list(map(arrays.from_host, naive.make("tiny pivots", (2, 75))))
    expected = np.asarray(solve_tridiagonal(*given))
    assert solve_tridiagonal(*given, out=given[3]) is given[3]
    np.testing.assert_array_equal(np.asarray(given[3]), expected)


@pytest.mark.parametrize("check", [None, "residual"])
def test_statuses(check: Any) -> None:
    given = naive.make("dominant", (5, 75))
    for array in given[:3]:
        array[1, 40] = 0.0
    given[3][2, 60] = np.inf
    given[1][3, 0] = np.nan
    x, status = solve(given, -1, check=check)
    solved, singular, not_finite = Status.SOLVED, Status.SINGULAR, Status.NOT_FINITE
    assert status.tolist() == [solved, singular, not_finite, not_finite, solved]
    assert np.isfinite(x[status == solved]).all()
    with pytest.raises(SingularSystemError, match="3 of 5 systems"):
        solve_tridiagonal(*map(arrays.from_host, given), check=check)
