"""Systems that fail: what the error says of few, many and long ones, and what is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlcpu.scan import SingularSystemError, Status, solve_tridiagonal
from rlcpu.scan.tridiagonal.plans import LONG
from tests.scan.tridiagonal import naive


def _nan(systems: list[Any]) -> None:
    systems[1][1, 3] = np.nan


def _infinite(systems: list[Any]) -> None:
    systems[3][1, -1] = -np.inf


def _singular(systems: list[Any]) -> None:
    for array in systems[:3]:
        array[1, 4] = 0.0


FAILURES = [(_nan, "not finite"), (_infinite, "not finite"), (_singular, "singular")]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"axis": 1},
    {"method": "thomas"},
    {"check": "residual"},
    {"lengths": [12, 9, 12]},
    {"periodic": True},
]


def systems_of(shape: tuple[int, int], seed: int = 0) -> list[Any]:
    a, b, c, d = naive.make("dominant", shape, seed=seed)
    a[:, 0] = c[:, -1] = 0.0
    return [a, b, c, d]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("spoil", "message"), FAILURES)
@pytest.mark.parametrize("overwrite", [False, True])
def test_few_systems(
    spoil: Callable[..., None], message: str, options: dict[str, Any], overwrite: bool
) -> None:
    systems = systems_of((3, 12))
    spoil(systems)
    if "lengths" in options:
        systems[3][1, 8] = systems[3][1, -1]  # the last of nine
    out = systems[3] if overwrite else np.full((3, 12), 7.0)
    with pytest.raises(SingularSystemError, match=rf"1 of 3 systems not solved: \(1,\) {message}"):
        solve_tridiagonal(*systems, **options, out=out)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_few_systems_of_any_layout(axis: int) -> None:
    rng = np.random.default_rng(0)
    a, c, d = rng.normal(size=(3, 4, 3, 1))
    out = np.full((3, 4, 5), 7.0).transpose(1, 0, 2)
    expected = solve_tridiagonal(a, 9.0, c, d + np.zeros(5), axis=axis)
    d = d + np.zeros(5)
    assert solve_tridiagonal(a, 9.0, c, d, axis=axis, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-14)
    d[2, 1, 3] = np.nan
    with pytest.raises(SingularSystemError, match="1 of"):
        solve_tridiagonal(a, 9.0, c, d, axis=axis, out=out)


def test_inaccurate_solutions_fail() -> None:
    systems = naive.make("random", (3, 12), seed=8)
    systems[1][1, 0] = 1e-100  # without pivoting nothing of the second equation is left
    with pytest.raises(SingularSystemError, match=r"\(1,\) inaccurate"):
        solve_tridiagonal(*systems, method="thomas", check="residual")


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(("spoil", "message"), FAILURES)
@pytest.mark.parametrize("overwrite", [False, True])
def test_long_systems(
    spoil: Callable[..., None], message: str, periodic: bool, overwrite: bool
) -> None:
    shape = (3, LONG)
    systems = systems_of(shape)
    spoil(systems)
    out = systems[3] if overwrite else np.full(shape, 7.0)
    with pytest.raises(SingularSystemError, match=rf"1 of 3 systems not solved: \(1,\) {message}"):
        solve_tridiagonal(*systems, periodic=periodic, out=out)


@pytest.mark.parametrize("overwrite", [False, True])
def test_with_a_status_the_others_are_written_of_many(overwrite: bool) -> None:
    systems = systems_of((1000, 16))
    expected = solve_tridiagonal(*systems)
    _singular(systems)
    out = systems[3] if overwrite else np.full_like(expected, 7.0)
    _, info = solve_tridiagonal(*systems, out=out, return_info=True)
    np.testing.assert_array_equal(np.flatnonzero(info.status), [1])
    well = np.arange(len(out)) != 1
    np.testing.assert_array_equal(out[well], expected[well])
    assert not np.isfinite(out[1]).all()


def test_with_a_status_the_others_are_written() -> None:
    systems = systems_of((3, 12))
    expected = solve_tridiagonal(*systems)
    _nan(systems)
    out = np.full((3, 12), 7.0)
    x, info = solve_tridiagonal(*systems, return_info=True, out=out)
    assert x is out
    np.testing.assert_array_equal(info.status, [0, Status.NOT_FINITE, 0])
    np.testing.assert_array_equal(out[[0, 2]], expected[[0, 2]])
