"""One tridiagonal matrix factored, and systems solved with the factors, one equation at a time.

The elimination of `steps` in two parts: what it does to the matrix is kept, and is done
later to any right-hand side. Five numbers an equation are left, and no division.

The functions compute on numbers or on vectors of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.vectors import fma, inverse_power, maximum, where
from rlcpu.scan.tridiagonal.steps import inlined, is_better


class Row(NamedTuple):
    """lower * x[k-1] + diagonal * x[k] + upper * x[k+1], without a right-hand side."""

    lower: Any
    diagonal: Any
    upper: Any


class Rest(NamedTuple):
    """diagonal * x[k] + upper * x[k+1]: what is left of the rows above."""

    diagonal: Any
    upper: Any


class Multiplier(NamedTuple):
    """What frees an equation or the pending one of x[k].

    Attributes:
        scale: power of two that the equation is multiplied by; negative if it is the pivot.
        factor: of the pivot, which is added to the other one.
    """

    scale: Any
    factor: Any


class Factors(NamedTuple):
    """x[k] = inverse * rhs - upper * x[k+1] - second * x[k+2]."""

    inverse: Any
    upper: Any
    second: Any


@inlined
def factor_row(rest: Rest, row: Row) -> tuple[Multiplier, Factors, Rest]:
    """Free one of two rows of x[k]; the other one is the pivot.

    See `steps` for the choice. A pivot of zero makes all that follows NaN.
    """
    size = maximum(maximum(abs(row.lower), abs(row.upper)), abs(row.diagonal))
    scale = inverse_power(size)
    lower, diagonal, upper = row.lower * scale, row.diagonal * scale, row.upper * scale
    swap = is_better(rest, Row(lower, diagonal, upper), 1.0)
    inverse = 1.0 / where(swap, lower, rest.diagonal)
    factor = -where(swap, rest.diagonal, lower) * inverse
    next_to = where(swap, diagonal, rest.upper)
    second = where(swap, upper, 0.0)
    below = Rest(
        fma(factor, next_to, where(swap, rest.upper, diagonal)),
        fma(factor, second, where(swap, 0.0, upper)),
    )
    multiplier = Multiplier(where(swap, -scale, scale), factor)
    return multiplier, Factors(inverse, next_to * inverse, second * inverse), below


@inlined
def advance(pending: Any, rhs: Any, multiplier: Multiplier) -> tuple[Any, Any]:
    """Right-hand sides of the pivot and of what is pending, from the pending one and the next."""
    equation = rhs * abs(multiplier.scale)
    swap = multiplier.scale < 0.0
    pivot = where(swap, equation, pending)
    return pivot, fma(multiplier.factor, pivot, where(swap, pending, equation))


@inlined
def back(rhs: Any, following: Any, second: Any, factors: Factors) -> Any:
    """x[k] from the pivot's right-hand side, x[k+1] and x[k+2]."""
    known = fma(-factors.second, second, rhs * factors.inverse)
    return fma(-factors.upper, following, known)
