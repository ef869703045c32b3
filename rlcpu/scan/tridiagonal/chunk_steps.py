"""Parts of a long tridiagonal system, each on its own: what they leave to be solved together.

A chunk of equations 0 to m-1 holds x[-1] to x[m]. All unknowns but the outer four, x[-1], x[0],
x[m-1] and x[m], are in no other chunk. They are eliminated from the top down with two equations
pending, since x[k] is in three equations that are not yet used up: any of them may be the pivot, so
that no chunk is singular unless the system is. Two equations of the outer four unknowns are left.

Pivots are chosen in proportion to the size of the equation that a pending one is the rest of: in
proportion to its size now, as in `steps`, the coefficients of the outer unknowns grow
until nothing else is left. The order of elimination is that of Wang 1981, A
parallel method for tridiagonal equations; a pending pair is what it takes to pivot in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.vectors import fma, where
from rlcpu.scan.tridiagonal.steps import Equation, Pivot, inlined


class Rest(NamedTuple):
    """before * x[-1] + first * x[0] + diagonal * x[k] + upper * x[k+1] = rhs.

    scale is the largest coefficient of the equation that it is the rest of.
    """

    before: Any
    first: Any
    diagonal: Any
    upper: Any
    rhs: Any
    scale: Any


class Left(NamedTuple):
    """The same where x[-1] and x[0] are known: diagonal * x[k] + upper * x[k+1] = rhs."""

    diagonal: Any
    upper: Any
    rhs: Any
    scale: Any


class Choice(NamedTuple):
    """Which of three equations of x[k] is the pivot, and what the others have of x[k].

    Attributes:
        second: whether the second pending equation has the larger coefficient of the two.
        new: whether the new equation has the largest of all.
        inverse: one over the pivot's coefficient.
        larger: coefficient of the new equation, or of the pending one that it replaces as pivot.
        smaller: coefficient of the other pending equation.
    """

    second: Any
    new: Any
    inverse: Any
    larger: Any
    smaller: Any


@inlined
def choose(one: Any, two: Any, equation: Equation, eagerness: float) -> tuple[Choice, Any, Any]:
    """The pivot among two pending equations and a new one, and the scales of those left.

    The next step waits for the inverse of this one's pivot. All three candidates are inverted while
    they are compared, which takes as long.
    """
    lower, eager = equation.lower, abs(equation.lower) * eagerness
    inverse_one, inverse_two, inverse = 1.0 / one.diagonal, 1.0 / two.diagonal, 1.0 / lower
    size_one, size_two = abs(one.diagonal), abs(two.diagonal)
    second = size_two * (eagerness * one.scale) > size_one * two.scale
    scale = where(second, two.scale, one.scale)
    size = where(second, size_two * equation.scale, size_one * equation.scale)
    new = where(second, eager * two.scale, eager * one.scale) > size
    big = where(second, two.diagonal, one.diagonal)
    small = where(second, one.diagonal, two.diagonal)
    inverse = where(new, inverse, where(second, inverse_two, inverse_one))
    choice = Choice(second, new, inverse, where(new, big, lower), small)
    return choice, where(new, scale, equation.scale), where(second, one.scale, two.scale)


@inlined
def sort(choice: Choice, one: Any, two: Any, new: Any) -> tuple[Any, Any, Any]:
    """One column of the three equations: of the pivot, of the larger, of the smaller."""
    big, small = where(choice.second, two, one), where(choice.second, one, two)
    return where(choice.new, new, big), where(choice.new, big, new), small


@inlined
def lead(choice: Choice, one: Any, two: Any, new: Any) -> tuple[Any, Any, Any]:
    """The column of x[k+1]: of the pivot, and what is left, as soon as the inverse is there."""
    pivot, other, small = sort(choice, one, two, new)
    larger, smaller = -choice.larger * pivot, -choice.smaller * pivot
    return pivot, fma(larger, choice.inverse, other), fma(smaller, choice.inverse, small)


@inlined
def combine(choice: Choice, one: Any, two: Any, new: Any) -> tuple[Any, Any, Any]:
    """Any other column, after the elimination: of the pivot, of what is left."""
    pivot, other, small = sort(choice, one, two, new)
    pivot = pivot * choice.inverse
    return pivot, fma(-choice.larger, pivot, other), fma(-choice.smaller, pivot, small)


@inlined
def eliminate_pair(
    one: Left, two: Left, equation: Equation, eagerness: float
) -> tuple[Pivot, Left, Left]:
    """Free two of three equations of x[k]."""
    choice, scale, last_scale = choose(one, two, equation, eagerness)
    nothing = equation.lower * 0.0
    upper, diagonal, last_diagonal = lead(choice, one.upper, two.upper, equation.diagonal)
    second, following, last_following = combine(choice, nothing, nothing, equation.upper)
    rhs, value, last_value = combine(choice, one.rhs, two.rhs, equation.rhs)
    last = Left(last_diagonal, last_following, last_value, last_scale)
    return Pivot(upper * choice.inverse, second, rhs), Left(diagonal, following, value, scale), last


@inlined
def reduce_pair(
    one: Rest, two: Rest, equation: Equation, eagerness: float
) -> tuple[Any, Rest, Rest]:
    """The same with x[-1] and x[0]; of the pivot, one over its coefficient."""
    choice, scale, last_scale = choose(one, two, equation, eagerness)
    nothing = equation.lower * 0.0
    _, diagonal, last_diagonal = lead(choice, one.upper, two.upper, equation.diagonal)
    _, following, last_following = combine(choice, nothing, nothing, equation.upper)
    _, value, last_value = combine(choice, one.rhs, two.rhs, equation.rhs)
    _, before, last_before = combine(choice, one.before, two.before, nothing)
    _, first, last_first = combine(choice, one.first, two.first, nothing)
    left = Rest(before, first, diagonal, following, value, scale)
    last = Rest(last_before, last_first, last_diagonal, last_following, last_value, last_scale)
    return choice.inverse, left, last


@inlined
def open_chunk(top: Equation, following: Equation) -> tuple[Rest, Rest]:
    """The first two equations of a chunk as rests of x[1] and x[2], the natural pivot first."""
    nothing = top.lower * 0.0
    lower, diagonal, upper, rhs, scale = following
    one = Rest(nothing, lower, diagonal, upper, rhs, scale)
    return one, Rest(top.lower, top.diagonal, top.upper, nothing, top.rhs, top.scale)


@inlined
def enter_chunk(rest: Rest, before: Any, first: Any) -> Left:
    """The rest, x[-1] and x[0] being known."""
    rhs = fma(-rest.before, before, fma(-rest.first, first, rest.rhs))
    return Left(rest.diagonal, rest.upper, rhs, rest.scale)
