"""Operations on the covariance of an innovation: its inverse, and what missing observations change.

As in `operations`, of which these are a part.
"""

from __future__ import annotations

from typing import Any

from rlcpu.kernels.vectors import fma, where
from rlcpu.scan.kalman.plan import Layout
from rlcpu.scan.kalman.vectors import (
    exponent,
    inlined,
    load,
    make_access,
    mantissa,
    peek,
    reciprocal,
    store,
    unseen,
)


def make_mask(layout: Layout) -> Any:
    """Takes missing observations out: unit variance, uncorrelated, no innovation, no projection."""
    (get, put), width, element = make_access(layout.across), layout.width, layout.element

    @inlined
    def mask(cells: Any, at: Any, code: int, k: int) -> None:
        innovation, hidden, p = peek(at, code + 1), peek(at, code + 2), peek(at, code + 3)
        projected, row = peek(at, code + 4), peek(at, code + 5)
        precision, small_row = peek(at, code + 6), peek(at, code + 7)
        for q in range(p):
            y = get(cells, innovation + q * element)
            gone = unseen(y)
            seen = 1.0 - gone
            put(cells, hidden + q * element, gone)
            put(cells, innovation + q * element, where(y == y, y, 0.0))
            for cell in range(projected + q * row, projected + (q + 1) * row, width):
                store(cells, cell, load(cells, cell) * seen)
            for s in range(p):
                across, down = precision + q * small_row + s * element, precision + s * small_row
                down += q * element
                put(cells, across, get(cells, across) * seen)
                put(cells, down, get(cells, down) * seen)
            one = precision + q * (small_row + element)
            put(cells, one, get(cells, one) + gone)

    return mask


def make_unmask(layout: Layout) -> Any:
    """Takes the unit variances out again, and counts them."""
    (get, put), element = make_access(layout.across), layout.element

    @inlined
    def unmask(cells: Any, at: Any, code: int, k: int) -> None:
        hidden, p, missing = peek(at, code + 1), peek(at, code + 2), peek(at, code + 3)
        precision, row = peek(at, code + 4), peek(at, code + 5)
        for q in range(p):
            gone, one = get(cells, hidden + q * element), precision + q * (row + element)
            put(cells, one, get(cells, one) - gone)
            put(cells, missing, get(cells, missing) + gone)

    return unmask


def make_invert(layout: Layout) -> Any:
    """M from S in place by Gauss and Jordan, NaN where S is not positive definite; its pivots."""
    (get, put), element = make_access(layout.across), layout.element

    @inlined
    def grow(cells: Any, product: int, power: int, pivot: Any) -> None:
        grown = get(cells, product) * pivot
        put(cells, product, mantissa(grown))
        put(cells, power, get(cells, power) + exponent(grown))

    @inlined
    def eliminate(cells: Any, above: int, own: int, k: int, p: int, inverse: Any) -> None:
        factor = -get(cells, own + k * element)
        for j in range(p):
            if j != k:
                old = get(cells, own + j * element)
                put(cells, own + j * element, fma(factor, get(cells, above + j * element), old))
        put(cells, own + k * element, factor * inverse)

    @inlined
    def invert(cells: Any, at: Any, code: int, k: int) -> None:
        begin, row, p = peek(at, code + 1), peek(at, code + 2), peek(at, code + 3)
        for q in range(p):
            own = begin + q * row
            pivot = get(cells, own + q * element)
            grow(cells, peek(at, code + 4), peek(at, code + 5), pivot)
            inverse = reciprocal(pivot)
            for j in range(p):
                if j != q:
                    put(cells, own + j * element, get(cells, own + j * element) * inverse)
            for i in range(p):
                if i != q:
                    eliminate(cells, own, begin + i * row, q, p, inverse)
            put(cells, own + q * element, inverse)

    return invert
