"""Matrices in a workspace, and their products, for one model or for a register full of models.

Element (i, j) of a block is at `position + i * row + j * element`. With `across` an element is one
register that holds the number of as many models; without, it is one number, and registers hold
eight (float32: sixteen) numbers of a row, padded with zeros. Rows are whole registers either way.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rlcpu.kernels.compile import FAST, INLINE, inline
from rlcpu.scan.kalman import vectors
from rlcpu.scan.kalman.plan import HEAD, Layout
from rlcpu.scan.kalman.tiles import make_tile
from rlcpu.scan.kalman.vectors import fma, halved, make_peek, stay_outside

#: Rows x registers of a tile: 8 x 8 products in 138 ns across (2 x 2: 252), 36 within (1 x 1: 54).
_TILE_ACROSS, _TILE_WITHIN = (2, 4), (4, 1)
_ROW_ACROSS, _ROW_WITHIN = (1, 4), (1, 1)

#: A number of the table; position of a block; distance between its rows.
peek, place, stride = make_peek(0, 1), make_peek(HEAD, 2), make_peek(HEAD + 1, 2)

#: As `inline`, but called: a step takes up to 15 products.
outline: Any = njit(fastmath=FAST, **{**INLINE, "forceinline": False})


class Algebra(NamedTuple):
    """How kernels read and combine blocks, in one layout.

    All functions begin with `(cells, at, ...)`, pointers to the workspace's numbers and table.

    Attributes:
        width: numbers of a register.
        element: numbers of one matrix element.
        get: `(block, i, j)`, the element as a register.
        put: `(block, i, j, register)`.
        dot: `(x, i, y, j)`, the scalar product of two rows.
        add_product: `(out, start, left, right, rows, depth)`: out = start + left @ right. The
            block `~left` is the transposed of `left`.
        subtract_product: out = start - left @ right.
        add_rows: `add_product` for outs of a few rows, inlined and row by row.
        add: `(out, x, rows)`: out += x.
        symmetrise: `(block, size)`: its mean with its transposed.
        scale: `(block, rows, factor)`: times a number.
        copy: `(to, begin, size)`: whole registers, by position.
    """

    width: int
    element: int
    get: Any
    put: Any
    dot: Any
    add_product: Any
    subtract_product: Any
    add_rows: Any
    add: Any
    symmetrise: Any
    scale: Any
    copy: Any


@functools.cache
def make_algebra(layout: Layout) -> Algebra:
    """The algebra of one layout; its functions are inlined by kernels."""
    width = vectors.lanes(layout.dtype)
    element = width if layout.across else 1
    get, put = _make_access(layout.across, element)
    tile, row = (_TILE_ACROSS, _ROW_ACROSS) if layout.across else (_TILE_WITHIN, _ROW_WITHIN)
    products = [
        _make_product(layout.across, width, *kind)
        for kind in ((tile, 1, outline), (tile, -1, outline), (row, 1, inline))
    ]
    rest: tuple[Any, ...] = (
        _make_add(width),
        _make_symmetrise(get, put),
        _make_scale(layout.dtype),
        _make_copy(width),
    )
    return Algebra(width, element, get, put, _make_dot(layout.across, width), *products, *rest)


def _make_access(across: bool, element: int) -> tuple[Any, Any]:
    read, write = (vectors.load, vectors.store) if across else (vectors.spread, vectors.store_first)

    @inline
    def get(cells, at, block, i, j):  # type: ignore[no-untyped-def]
        return read(cells, place(at, block) + i * stride(at, block) + j * element)

    @inline
    def put(cells, at, block, i, j, value):  # type: ignore[no-untyped-def]
        write(cells, place(at, block) + i * stride(at, block) + j * element, value)

    return get, put


def _make_dot(across: bool, width: int) -> Any:
    total = vectors.total

    @inline
    def dot_across(cells, at, x, i, y, j):  # type: ignore[no-untyped-def]
        p, q = place(at, x) + i * stride(at, x), place(at, y) + j * stride(at, y)
        result = vectors.load(cells, p) * vectors.load(cells, q)
        for k in range(width, stride(at, x), width):
            result = fma(vectors.load(cells, p + k), vectors.load(cells, q + k), result)
        return result

    @inline
    def dot_within(cells, at, x, i, y, j):  # type: ignore[no-untyped-def]
        return total(dot_across(cells, at, x, i, y, j))

    return dot_across if across else dot_within


def _make_product(
    across: bool, width: int, shape: tuple[int, int], sign: int, decorate: Any
) -> Any:
    (height, breadth), element = shape, width if across else 1
    tile, called = make_tile(height, breadth, across, sign), decorate is outline

    @decorate
    def product(cells, at, out, start, left, right, rows, depth):  # type: ignore[no-untyped-def]
        if called:
            stay_outside()
        down, along = (element, stride(at, ~left)) if left < 0 else (stride(at, left), element)
        from_left = place(at, ~left if left < 0 else left)
        out_row, start_row = stride(at, out), stride(at, start)
        registers = out_row // width
        for i in range(0, rows, height):
            for j in range(0, registers, breadth):
                tile(
                    cells,
                    (place(at, out) + i * out_row + j * width, out_row),
                    (place(at, start) + i * start_row + j * width, start_row),
                    (from_left + i * down, down, along),
                    (place(at, right) + j * width, stride(at, right)),
                    depth,
                    rows - 1 - i,
                    registers - 1 - j,
                )

    return product


def _make_add(width: int) -> Any:
    @inline
    def add(cells, at, out, x, rows):  # type: ignore[no-untyped-def]
        to, source = place(at, out), place(at, x)
        for k in range(0, rows * stride(at, out), width):
            vectors.store(
                cells, to + k, vectors.load(cells, to + k) + vectors.load(cells, source + k)
            )

    return add


def _make_symmetrise(get: Any, put: Any) -> Any:
    @outline
    def symmetrise(cells, at, block, size):  # type: ignore[no-untyped-def]
        stay_outside()
        for i in range(size):
            for j in range(i):
                mean = halved(get(cells, at, block, i, j) + get(cells, at, block, j, i))
                put(cells, at, block, i, j, mean)
                put(cells, at, block, j, i, mean)

    return symmetrise


def _make_copy(width: int) -> Any:
    @outline
    def copy(cells, to, begin, size):  # type: ignore[no-untyped-def]
        stay_outside()
        for k in range(0, size, width):
            vectors.store(cells, to + k, vectors.load(cells, begin + k))

    return copy


def _make_scale(dtype: str) -> Any:
    kind = np.dtype(dtype).type

    @outline
    def scale(cells, at, block, rows, factor):  # type: ignore[no-untyped-def]
        stay_outside()
        for k in range(place(at, block), place(at, block) + rows * stride(at, block)):
            vectors.write(cells, k, kind(factor) * vectors.read(cells, k))

    return scale
