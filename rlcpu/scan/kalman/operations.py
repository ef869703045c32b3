"""What one instruction of a program does: see `program`, which writes them.

Each function takes `(cells, at, code, k)`: the workspace, the table, where the instruction is in
the table, and the number of the time step in its chunk. `at[code + 1]` and so on are the operands.
The functions compute on registers, and on numbers in plain Python.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.vectors import fma
from rlcpu.scan.kalman.pivots import make_invert, make_mask, make_unmask
from rlcpu.scan.kalman.plan import Layout
from rlcpu.scan.kalman.tiles import make_tile
from rlcpu.scan.kalman.vectors import inlined, load, make_access, peek, store, total


class Operations(NamedTuple):
    """The operations of one layout; for their operands see the methods of `Program`."""

    add: Any
    add_row: Any
    subtract: Any
    recur: Any
    dots: Any
    sum_dots: Any
    combine: Any
    symmetrise: Any
    mask: Any
    unmask: Any
    invert: Any


@functools.cache
def make_operations(layout: Layout) -> Operations:
    """The operations of one layout; all are inlined."""
    return Operations(
        _make_product(layout, *_tile(layout), 1),
        _make_product(layout, *_row(layout), 1),
        _make_product(layout, *_tile(layout), -1),
        _make_recur(layout),
        _make_dots(layout),
        _make_sum_dots(layout),
        _make_combine(layout),
        _make_symmetrise(layout),
        make_mask(layout),
        make_unmask(layout),
        make_invert(layout),
    )


def _tile(layout: Layout) -> tuple[int, int]:
    """Rows x registers of a tile.

    8 x 8 products take 138 ns across (2 x 2: 252) and 36 within (1 x 1: 54).
    """
    return (2, 4) if layout.across else (4, 1)


def _row(layout: Layout) -> tuple[int, int]:
    """The same for products of one row."""
    return (1, 4) if layout.across else (1, 1)


def _make_product(layout: Layout, height: int, breadth: int, sign: int) -> Any:
    """Out = start + sign * left @ right."""
    tile, width = make_tile(height, breadth, layout.across, sign), layout.width

    @inlined
    def product(cells: Any, at: Any, code: int, k: int) -> None:
        out, out_row = peek(at, code + 1), peek(at, code + 2)
        start, start_row = peek(at, code + 3), peek(at, code + 4)
        left, down, along = peek(at, code + 5), peek(at, code + 6), peek(at, code + 7)
        right, right_row, depth = peek(at, code + 8), peek(at, code + 9), peek(at, code + 10)
        rows, registers = peek(at, code + 11), peek(at, code + 12)
        rows = k if rows < 0 else rows
        for i in range(0, rows, height):
            for j in range(0, registers, breadth):
                tile(
                    cells,
                    out + i * out_row + j * width,
                    out_row,
                    start + i * start_row + j * width,
                    start_row,
                    left + i * down,
                    down,
                    along,
                    right + j * width,
                    right_row,
                    depth,
                    rows - 1 - i,
                    registers - 1 - j,
                )

    return product


def _make_dots(layout: Layout) -> Any:
    """Out = start + sign * x @ y', of rows."""
    (get, put), element, dot = make_access(layout.across), layout.element, _make_dot(layout)

    @inlined
    def dots(cells: Any, at: Any, code: int, k: int) -> None:
        out, out_row = peek(at, code + 1), peek(at, code + 2)
        start, start_row = peek(at, code + 3) + k * peek(at, code + 13), peek(at, code + 4)
        x, x_row, y, y_row = (
            peek(at, code + 5),
            peek(at, code + 6),
            peek(at, code + 7),
            peek(at, code + 8),
        )
        rows, columns, size = peek(at, code + 9), peek(at, code + 10), peek(at, code + 11)
        for i in range(k if rows < 0 else rows):
            for j in range(columns):
                result = dot(cells, x + i * x_row, y + j * y_row, size)
                old = get(cells, start + i * start_row + j * element)
                result = old - result if peek(at, code + 12) < 0 else old + result
                put(cells, out + i * out_row + j * element, result)

    return dots


def _make_dot(layout: Layout) -> Any:
    """Scalar product of two rows, in every lane that has its own."""
    across, width = layout.across, layout.width

    @inlined
    def dot(cells: Any, p: int, q: int, size: int) -> Any:
        result = load(cells, p) * load(cells, q)
        for k in range(width, size, width):
            result = fma(load(cells, p + k), load(cells, q + k), result)
        return result if across else total(result)

    return dot


def _make_sum_dots(layout: Layout) -> Any:
    """Out = out + the sum of the scalar products of k pairs of rows."""
    (get, put), dot = make_access(layout.across), _make_dot(layout)

    @inlined
    def sum_dots(cells: Any, at: Any, code: int, k: int) -> None:
        out, size = peek(at, code + 1), peek(at, code + 6)
        x, x_row, y, y_row = (
            peek(at, code + 2),
            peek(at, code + 3),
            peek(at, code + 4),
            peek(at, code + 5),
        )
        result = get(cells, out)
        for i in range(k):
            result = result + dot(cells, x + i * x_row, y + i * y_row, size)
        put(cells, out, result)

    return sum_dots


def _make_recur(layout: Layout) -> Any:
    """Row i + 1 += row i @ right, for i = 0 to k - 1."""
    (_, breadth), width = _row(layout), layout.width
    tile = make_tile(1, breadth, layout.across, 1)

    @inlined
    def recur(cells: Any, at: Any, code: int, k: int) -> None:
        begin, row, along = peek(at, code + 1), peek(at, code + 2), peek(at, code + 3)
        right, right_row = peek(at, code + 4), peek(at, code + 5)
        depth, registers = peek(at, code + 6), peek(at, code + 7)
        for i in range(k):
            own = begin + i * row
            out = own + row
            for j in range(0, registers, breadth):
                to, source = out + j * width, right + j * width
                last = registers - 1 - j
                tile(cells, to, row, to, row, own, row, along, source, right_row, depth, 0, last)

    return recur


def _make_combine(layout: Layout) -> Any:
    """Out = x + halves / 2 * y."""
    width, kind, half = layout.width, np.dtype(layout.dtype).type, 0.5

    @inlined
    def combine(cells: Any, at: Any, code: int, k: int) -> None:
        out, out_row = peek(at, code + 1), peek(at, code + 2)
        x, x_row, y, y_row = (
            peek(at, code + 3),
            peek(at, code + 4),
            peek(at, code + 5),
            peek(at, code + 6),
        )
        rows, size = peek(at, code + 7), peek(at, code + 8)
        factor = kind(peek(at, code + 9)) * kind(half)
        for i in range(rows):
            for j in range(0, size, width):
                old, new = load(cells, x + i * x_row + j), load(cells, y + i * y_row + j)
                store(cells, out + i * out_row + j, fma(new, factor, old))

    return combine


def _make_symmetrise(layout: Layout) -> Any:
    """A matrix becomes its mean with its transposed."""
    (get, put), element = make_access(layout.across), layout.element

    @inlined
    def symmetrise(cells: Any, at: Any, code: int, k: int) -> None:
        begin, row, size = peek(at, code + 1), peek(at, code + 2), peek(at, code + 3)
        for i in range(1, size):
            for j in range(i):
                left, right = begin + i * row + j * element, begin + j * row + i * element
                mean = (get(cells, left) + get(cells, right)) * 0.5
                put(cells, left, mean)
                put(cells, right, mean)

    return symmetrise
