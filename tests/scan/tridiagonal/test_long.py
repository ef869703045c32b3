"""Few long systems, and periodic ones: cut into chunks, refined, with lengths of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.scan import SingularSystemError, Status, solve_tridiagonal
from rlcpu.scan.tridiagonal.equations import (
    EQUATION_NUMBERS,
    RING_COLUMNS,
    eliminate_pair,
    eliminate_pair_with_outer,
    insert_outer,
    scaled,
    solve_chunk_ends,
    start_chunk,
    substitute,
)
from rlcpu.scan.tridiagonal.plans import LONG, cut_systems, run
from tests.scan.tridiagonal import naive

DTYPES = ["float32", "float64"]


def epsilon(dtype: Any) -> float:
    return float(np.finfo(dtype).eps)


def ring(family: str, shape: tuple[int, ...], dtype: Any = np.float64, seed: int = 0) -> list[Any]:
    """Systems with something in the corners."""
    systems = naive.make(family, shape, np.dtype(dtype).type, seed)
    rng = np.random.default_rng(seed + 1)
    for array, k in ((systems[0], 0), (systems[2], -1)):
        array[..., k] = rng.normal(size=shape[:-1]) * 0.3 * abs(systems[1][..., k])
    return systems


def ring_error(systems: list[Any], x: Any) -> float:
    """Worst componentwise backward error of periodic systems."""
    a, b, c, d, y = (v.astype(np.longdouble) for v in (*systems, x))
    terms = [a * np.roll(y, 1, -1), b * y, c * np.roll(y, -1, -1), -d]
    size = sum(map(np.abs, terms))
    return float((np.abs(sum(terms)) / np.where(size == 0, 1, size)).max(initial=0.0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", naive.FAMILIES)
@pytest.mark.parametrize("shape", [(1, 256), (1, 1000), (1, 10_000), (3, 40_001)])
def test_few_long_systems(family: str, shape: tuple[int, int], dtype: str) -> None:
    if family == "zero diagonal":
        shape = (shape[0], min(shape[1], 400 if dtype == "float32" else 10_000))
    systems = naive.make(family, shape, np.dtype(dtype).type)
    x, info = solve_tridiagonal(*systems, check="residual", return_info=True)
    assert naive.backward_error(*systems, x).max() < 450 * epsilon(dtype)
    assert not info.status.any()
    assert info.backward_error.max() < 450 * epsilon(dtype)
    plain = solve_tridiagonal(*systems)
    assert naive.backward_error(*systems, plain).max() < 450 * epsilon(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["dominant", "random", "tiny pivots", "scaled rows"])
@pytest.mark.parametrize("shape", [(7, 1), (7, 2), (50, 3), (60, 41), (1, 5000), (9, 300)])
def test_periodic(family: str, shape: tuple[int, int], dtype: str) -> None:
    systems = ring(family, shape, dtype)
    x = solve_tridiagonal(*systems, periodic=True, check="residual")
    assert ring_error(systems, x) < 450 * epsilon(dtype)
    columns = [np.ascontiguousarray(array.T) for array in systems]
    y = solve_tridiagonal(*columns, periodic=True, axis=0, check="residual")
    np.testing.assert_array_equal(y.T, x)


def test_periodic_against_the_dense_matrix() -> None:
    for n in range(1, 12):
        systems = ring("dominant", (n,), seed=n)
        expected = naive.solve(naive.dense(*systems[:3], periodic=True), systems[3])
        x = solve_tridiagonal(*systems, periodic=True)
        np.testing.assert_allclose(x, expected.astype(float), rtol=1e-12)


@settings(max_examples=60)
@given(st.integers(2, 90), st.integers(3, 40), st.booleans(), st.integers(0, 100))
def test_chunks_of_any_length(n: int, length: int, periodic: bool, seed: int) -> None:
    """Plain Python, chunk by chunk, equals the whole."""
    systems = ring("dominant", (n,), seed=seed)
    if not periodic:
        systems[0][0] = systems[2][-1] = 0.0
    count = max(n // length, 1)
    size, rest = divmod(n, count)
    if rest == 1:
        size, rest = size - 1, rest + count
    starts = [size * j for j in range(count)] + ([n - rest] if rest else [])
    parts = list(zip(starts, [*starts[1:], n], strict=True))
    equations = [scaled(*map(float, numbers)) for numbers in zip(*systems, strict=True)]
    rests, ends = np.zeros((len(parts), 2 * EQUATION_NUMBERS)), np.zeros((len(parts), 4))
    for j, (begin, end) in enumerate(parts):
        one, two = start_chunk(equations[begin], equations[begin + 1])
        for equation in equations[begin + 2 : end]:
            _, one, two = eliminate_pair_with_outer(one, two, equation, 1.0)
        rests[j] = one.before, one.first, *one.pending, two.before, two.first, *two.pending
    solve_chunk_ends(rests, np.zeros((len(parts), 2, RING_COLUMNS)), ends)
    x = np.concatenate([_expand(equations, part, ends, j) for j, part in enumerate(parts)])
    matrix = naive.dense(*systems[:3], periodic=True)
    np.testing.assert_allclose(x, naive.solve(matrix, systems[3]).astype(float), rtol=1e-10)


def _expand(equations: list[Any], part: tuple[int, int], ends: Any, j: int) -> list[float]:
    begin, end = part
    (before, first, last, after), pivots = ends[j], []
    opened = start_chunk(equations[begin], equations[begin + 1])
    one, two = (insert_outer(rest, before, first) for rest in opened)
    for equation in equations[begin + 2 : end]:
        _, pivot, one, two = eliminate_pair(one, two, equation, 1.0)
        pivots.append(pivot)
    x = [last, after]
    for pivot in reversed(pivots):
        x.insert(0, substitute(pivot, x[0], x[1]))
    return [first, *x[:-1]]


@pytest.mark.parametrize("periodic", [False, True])
def test_lengths(periodic: bool) -> None:
    n = 300
    systems = ring("random", (3, n), seed=4)
    lengths = np.array([n, 1, 257])
    for array in systems:
        array[1, 1:] = array[2, 257:] = np.nan
    x, info = solve_tridiagonal(
        *systems, lengths=lengths, periodic=periodic, check="residual", return_info=True
    )
    assert not info.status.any()
    for i, length in enumerate(lengths):
        own = [array[i, :length] for array in systems]
        alone = solve_tridiagonal(*own, periodic=periodic, check="residual")
        np.testing.assert_allclose(x[i, :length], alone, rtol=1e-9)
        assert (x[i, length:] == 0).all()


@pytest.mark.parametrize("shape", [(2, 3000), (20, 30)])
@pytest.mark.parametrize("periodic", [False, True])
def test_nothing_singular_or_not_finite_passes(shape: tuple[int, int], periodic: bool) -> None:
    n = shape[1]
    for k in (0, 1, n // 2, n - 2, n - 1):
        for name, number in ((1, np.nan), (3, np.inf), (3, np.nan), (0, np.inf), (2, np.nan)):
            systems = ring("dominant", shape)
            systems[name][1, k] = number
            if not periodic and (name, k) in ((0, 0), (2, n - 1)):
                continue
            with pytest.raises(SingularSystemError, match=r"\(1,\) not finite"):
                solve_tridiagonal(*systems, periodic=periodic)
        systems = ring("dominant", shape)
        for array in systems[:3]:
            array[1, k] = 0.0
        _, info = solve_tridiagonal(*systems, periodic=periodic, return_info=True)
        assert info.status[1] == Status.SINGULAR
        assert info.status.sum() == Status.SINGULAR


@pytest.mark.parametrize("periodic", [False, True])
def test_a_result_in_place_of_the_right_hand_side(periodic: bool) -> None:
    systems = ring("random", (2, 700), seed=1)
    for check in (None, "residual"):
        expected = solve_tridiagonal(*systems, periodic=periodic, check=check)
        x = systems[3].copy()
        assert solve_tridiagonal(*systems[:3], x, periodic=periodic, check=check, out=x) is x
        np.testing.assert_array_equal(x, expected)


def test_threads_do_not_change_the_result() -> None:
    systems = naive.make("random", (3, 20_000))
    one = solve_tridiagonal(*systems, num_threads=1)
    np.testing.assert_array_equal(solve_tridiagonal(*systems), one)


@given(st.integers(1, 40), st.integers(1, 3000))
def test_cuts(systems: int, n: int) -> None:
    for size in (n, LONG * n):
        cut = cut_systems(systems, size, np.dtype(float))
        assert cut is not None or size < LONG
        if cut is not None:
            assert cut.chunks >= 2
            assert cut.chunks * cut.rows >= size > (cut.chunks - 1) * cut.rows


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("shape", [(3, 40_000), (11, 90)])
def test_lengths_in_one_pass(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], periodic: bool, axis: int
) -> None:
    """As many passes as with one length, however many of these there are."""
    calls = []
    monkeypatch.setattr("rlcpu.scan.tridiagonal.chunks.run", lambda *a: calls.append(1) or run(*a))
    systems = ring("dominant", shape, seed=4)
    lengths = np.random.default_rng(0).integers(0, shape[1] + 1, shape[0])
    lengths[:3] = shape[1] - 1, 1, shape[1] // 2
    views = [np.ascontiguousarray(np.moveaxis(array, -1, axis)) for array in systems]
    solve_tridiagonal(*views, axis=axis, periodic=periodic, lengths=shape[1])
    before = len(calls)
    x = solve_tridiagonal(*views, axis=axis, periodic=periodic, lengths=lengths)
    assert len(calls) == 2 * before
    x = np.moveaxis(x, axis, -1)
    for i, length in enumerate(lengths):
        assert (x[i, length:] == 0).all()
        if length:
            own = [array[i, :length] for array in systems]
            if not periodic:
                own[0][0] = own[2][-1] = 0.0
            assert ring_error(own, x[i, :length]) < 1e-13
