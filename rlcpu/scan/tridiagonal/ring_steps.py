"""Periodic tridiagonal systems in one pass: elimination that keeps what its outer unknowns had.

A ring is one chunk of `chunk_steps` whose neighbour on both sides is itself: x[-1] is its last
unknown, and x[n] its first. All others are eliminated, the two equations that are left give these
two, and pivots that keep their coefficients give all others from the bottom up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.vectors import fma, where
from rlcpu.scan.tridiagonal.chunk_steps import Rest, choose, combine, lead
from rlcpu.scan.tridiagonal.steps import Equation, inlined

#: One over the smallest pivot, of equations of the size 2 to 4, from which solutions are looked at:
#: of 768,000 equations with dominant diagonals it is 3.8, of 1,000 random ones 17.
DOUBTFUL = 4


class RingPivot(NamedTuple):
    """x[k] = rhs - upper * x[k+1] - second * x[k+2] - before * x[-1] - first * x[0]."""

    upper: Any
    second: Any
    rhs: Any
    before: Any
    first: Any


@inlined
def eliminate_ring(
    one: Rest, two: Rest, equation: Equation, eagerness: float
) -> tuple[RingPivot, Any, Rest, Rest]:
    """Free two of three equations of x[k]; the pivot, one over its coefficient, what is left."""
    choice, scale, last_scale = choose(one, two, equation, eagerness)
    nothing = equation.lower * 0.0
    upper, diagonal, last_diagonal = lead(choice, one.upper, two.upper, equation.diagonal)
    second, following, last_following = combine(choice, nothing, nothing, equation.upper)
    rhs, value, last_value = combine(choice, one.rhs, two.rhs, equation.rhs)
    before, left_before, last_before = combine(choice, one.before, two.before, nothing)
    first, left_first, last_first = combine(choice, one.first, two.first, nothing)
    pivot = RingPivot(upper * choice.inverse, second, rhs, before, first)
    left = Rest(left_before, left_first, diagonal, following, value, scale)
    last = Rest(last_before, last_first, last_diagonal, last_following, last_value, last_scale)
    return pivot, choice.inverse, left, last


@inlined
def close_ring(one: Rest, two: Rest) -> tuple[Any, Any]:
    """Last and first unknown from what is left, which holds both twice; always by pivoting."""
    p, q = one.before + one.diagonal, one.first + one.upper
    r, s = two.before + two.diagonal, two.first + two.upper
    swap = abs(r) * abs(q) > abs(p) * abs(s)
    last, rest, rhs = where(swap, r, p), where(swap, s, q), where(swap, two.rhs, one.rhs)
    inverse = 1.0 / last
    factor = -where(swap, p, r) * inverse
    coefficient = fma(factor, rest, where(swap, q, s))
    first = fma(factor, rhs, where(swap, one.rhs, two.rhs)) / coefficient
    return fma(-rest, first, rhs) * inverse, first


@inlined
def outer_part(pivot: RingPivot, last: Any, first: Any) -> Any:
    """x[k] without what it has of x[k+1] and x[k+2]: nothing else waits for these."""
    return fma(-pivot.before, last, fma(-pivot.first, first, pivot.rhs))
