"""The rules of elimination, one system in plain Python, against dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlcpu.scan.tridiagonal.equations import (
    EQUATION_NUMBERS,
    RING_COLUMNS,
    Pending,
    apply_multiplier,
    eliminate,
    eliminate_pair,
    eliminate_pair_with_outer,
    factor_step,
    insert_outer,
    scaled,
    solve_chunk_ends,
    solve_middle,
    start_chunk,
    substitute,
    substitute_factored,
)
from tests.scan.tridiagonal import naive


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("family", naive.FAMILIES)
def test_elimination_from_both_ends(family: str, n: int) -> None:
    systems = naive.make(family, (n,), seed=n)
    systems[0][0] = systems[2][-1] = 0.0
    equations = [scaled(*map(float, numbers)) for numbers in zip(*systems, strict=True)]
    half = (n + 1) // 2
    falling = rising = Pending(1.0, 0.0, 0.0)
    down, up = [], []
    for equation in equations[:half]:
        pivot, falling = eliminate(falling, equation, 1.0)
        down.append(pivot)
    for equation in reversed(equations[half:]):
        turned = equation._replace(lower=equation.upper, upper=equation.lower)
        pivot, rising = eliminate(rising, turned, 1.0)
        up.append(pivot)
    top, bottom = solve_middle(falling, rising, 1.0)
    first, second = [top, bottom], [bottom, top]
    for pivot in down[:0:-1]:
        first.insert(0, substitute(pivot, first[0], first[1]))
    for pivot in up[:0:-1]:
        second.insert(0, substitute(pivot, second[0], second[1]))
    x = np.array([*first[: len(down)], *second[: len(up)][::-1]])
    assert naive.backward_error(*systems, x) < 1e-11


@settings(max_examples=60)
@given(st.integers(2, 90), st.integers(3, 40), st.booleans(), st.integers(0, 100))
def test_chunks_of_any_length(n: int, length: int, periodic: bool, seed: int) -> None:
    """Chunk by chunk equals the whole, a ring of one chunk too."""
    systems = naive.ring("dominant", (n,), seed=seed)
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
    solve_chunk_ends(rests, np.zeros((len(parts), 2 * RING_COLUMNS)), ends)
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


@example([1.0, 0.0])
@given(st.lists(st.floats(-8, 8, width=16), min_size=2, max_size=6))
def test_factors(numbers: list[float]) -> None:
    """Of the second difference with another diagonal."""
    n = len(numbers)
    rest, steps = Pending(1.0, 0.0, 0.0), []
    for k, number in enumerate(numbers):
        row = scaled(float(k > 0), 2.5 + abs(number), float(k < n - 1), 1.0)
        step, factors, rest = factor_step(rest, row)
        steps.append((step, factors))
    pending, pivots = 0.0, []
    for number, (step, _) in zip(numbers, steps, strict=True):
        pivot, pending = apply_multiplier(pending, number, step)
        pivots.append(pivot)
    x, second = [pending / rest.diagonal], 0.0
    for k in range(n - 1, 0, -1):
        x.insert(0, substitute_factored(pivots[k], x[0], second, steps[k][1]))
        second = x[1]
    system = (np.ones(n), 2.5 + np.abs(numbers), np.ones(n))
    assert naive.backward_error(*system, np.array(numbers), np.array(x)) < 1e-13
