"""Products and inverses of the small matrices of a filter, which lie in one flat array of cells.

A cell is a number, of one model, or a `Vector` that holds the number of as many models as a
register has lanes; in plain Python it is a number. Kernels have a pointer to cells in the place of
the array. Nothing is checked.

A matrix is known by where its description is in a table of whole numbers: the position of its first
cell, its rows, its columns, and the cells from one row to the next, 0 where one row stands for all.
Of one model, whose products take a register of columns at a time, rows are filled up with zeros.
`~x` is the transposed of `x`, as a left factor.
"""

from __future__ import annotations

import math
from typing import Any

from numba.extending import overload, register_jitable

from rlcpu.kernels.compile import FAST, INLINE, compact
from rlcpu.kernels.memory import call_at, load, store
from rlcpu.kernels.vectors import VECTOR_BYTES, Vector, where

AT, ROWS, COLUMNS, DOWN = range(4)
#: Where the table has the address of the kernel of products, see `call_multiply`.
MULTIPLY = 0

#: Decorator: plain Python, and a part of every kernel that calls it.
inlined: Any = register_jitable(fastmath=FAST, **INLINE)
#: The same, but called: inlined, a filter takes three times as long to compile.
called: Any = register_jitable(fastmath=FAST, **{**INLINE, "forceinline": False})
_INLINE: dict[str, Any] = {"jit_options": {"fastmath": FAST, **INLINE}}


# ---------------------------------------------------------------- two kinds of cell


def read_columns(c: Any, i: int) -> Any:
    """The cells of a row that are computed at once, from position i on: numbers, or one vector."""
    return c[i]


def write_columns(c: Any, i: int, x: Any) -> None:
    """Write what `read_columns` reads."""
    c[i] = x


def columns_at_once(c: Any) -> int:
    """How many cells these are."""
    return 1


def lanes_of(c: Any) -> int:
    """How many models a cell is for."""
    return 1


def reciprocal(x: Any) -> Any:
    """1 / x where x is positive and finite, NaN elsewhere: pivots that are not definite."""
    return 1.0 / x if 0.0 < x < math.inf else math.nan


@overload(read_columns, **_INLINE)
def _read_columns(c, i):
    if isinstance(c.dtype, Vector):
        return lambda c, i: c[i]
    return lambda c, i: load(c, i, 1)


@overload(write_columns, **_INLINE)
def _write_columns(c, i, x):
    def write_vector(c, i, x):
        c[i] = x

    return write_vector if isinstance(c.dtype, Vector) else lambda c, i, x: store(x, c, i)


@overload(columns_at_once, **_INLINE)
def _columns_at_once(c):
    count = 1 if isinstance(c.dtype, Vector) else VECTOR_BYTES * 8 // c.dtype.bitwidth
    return lambda c: count


@overload(lanes_of, **_INLINE)
def _lanes_of(c):
    count = c.dtype.count if isinstance(c.dtype, Vector) else 1
    return lambda c: count


@overload(reciprocal, **_INLINE)
def _reciprocal(x):
    if isinstance(x, Vector):
        return lambda x: where(x > 0.0, where(x < math.inf, 1.0 / x, math.nan), math.nan)
    return lambda x: 1.0 / x if 0.0 < x < math.inf else math.nan


# ---------------------------------------------------------------- products


def call_multiply(
    c: Any, t: Any, out: int, start: int, left: int, right: int, symmetric: int
) -> None:
    """`multiply`, which kernels call by its address.

    So it is compiled once, not as a part of each function that adds: 4 s instead of 6.
    """
    multiply(c, t, out, start, left, right, symmetric)


@overload(call_multiply, **_INLINE)
def _call_multiply(c, t, out, start, left, right, symmetric):
    return lambda c, t, out, start, left, right, symmetric: call_at(
        t[MULTIPLY], (c, t, out, start, left, right, symmetric)
    )


@inlined
def add(c, t, out, start, left, right):
    """Out = start + left @ right; `out` may be `start`."""
    call_multiply(c, t, out, start, left, right, 0)


@inlined
def add_symmetric(c, t, out, start, left, right):
    """The same, of which it is known that it is symmetric: half of it is computed."""
    call_multiply(c, t, out, start, left, right, 1)


def multiply(c: Any, t: Any, out: int, start: int, left: int, right: int, symmetric: int) -> None:
    """`add` and `add_symmetric`: four rows at a time.

    8 x 8 of one model take 30 ns (row by row 39), of eight models 175 (250).
    """
    compact()
    own = left if left >= 0 else ~left
    x, rows, depth, down = t[own + AT], t[own + ROWS], t[own + COLUMNS], t[own + DOWN]
    along = 1
    if left < 0:
        rows, depth, down, along = depth, rows, along, down
    o, s, ahead = t[out + AT], t[start + AT], t[start + DOWN]
    y, width = t[right + AT], t[right + DOWN]
    for i in range(0, rows - 3, 4):
        for j in range(0, min(width, i + 4) if symmetric else width, columns_at_once(c)):
            _multiply_tile(c, o + j, width, s + j, ahead, x, down, along, y + j, depth)
        o, s, x = o + 4 * width, s + 4 * ahead, x + 4 * down
    for _ in range(rows & 3):
        _multiply_row(c, o, s, x, along, y, width, depth, 0)
        o, s, x = o + width, s + ahead, x + down
    if symmetric:
        for i in range(1, t[out + ROWS]):
            for j in range(i):
                c[t[out + AT] + j * width + i] = c[t[out + AT] + i * width + j]


@inlined
def _multiply_tile(c, out, width, start, ahead, x, down, along, y, depth):
    """Four rows of as many columns as are computed at once."""
    compact()
    first = read_columns(c, start)
    second = read_columns(c, start + ahead)
    third = read_columns(c, start + 2 * ahead)
    fourth = read_columns(c, start + 3 * ahead)
    for _ in range(depth):
        z = read_columns(c, y)
        first = c[x] * z + first
        second = c[x + down] * z + second
        third = c[x + 2 * down] * z + third
        fourth = c[x + 3 * down] * z + fourth
        x, y = x + along, y + width
    write_columns(c, out, first)
    write_columns(c, out + width, second)
    write_columns(c, out + 2 * width, third)
    write_columns(c, out + 3 * width, fourth)


@inlined
def _multiply_row(c, out, start, left, along, right, width, depth, begin):
    """One row, from column `begin` on."""
    for j in range(begin, width, columns_at_once(c)):
        total, x, y = read_columns(c, start + j), left, right + j
        for _ in range(depth):
            total = c[x] * read_columns(c, y) + total
            x, y = x + along, y + width
        write_columns(c, out + j, total)


@inlined
def _multiply_long_row(c, out, start, left, right, width, depth):
    """One row, of four times as many columns at once as long as there are so many."""
    step, begin = columns_at_once(c), 0
    while begin + 4 * step <= width:
        x, y, s, o = left, right + begin, start + begin, out + begin
        first, second = read_columns(c, s), read_columns(c, s + step)
        third, fourth = read_columns(c, s + 2 * step), read_columns(c, s + 3 * step)
        for _ in range(depth):
            z = c[x]
            first = z * read_columns(c, y) + first
            second = z * read_columns(c, y + step) + second
            third = z * read_columns(c, y + 2 * step) + third
            fourth = z * read_columns(c, y + 3 * step) + fourth
            x, y = x + 1, y + width
        write_columns(c, o, first)
        write_columns(c, o + step, second)
        write_columns(c, o + 2 * step, third)
        write_columns(c, o + 3 * step, fourth)
        begin += 4 * step
    _multiply_row(c, out, start, left, 1, right, width, depth, begin)


@called
def add_row(c, t, out, start, left, right):
    """`add` for `left` of one row, with less to begin with: 6 ns instead of 12."""
    compact()
    x, y, width, depth = t[left + AT], t[right + AT], t[right + DOWN], t[left + COLUMNS]
    _multiply_long_row(c, t[out + AT], t[start + AT], x, y, width, depth)


@called
def recur(c, t, rows, right):
    """Row k + 1 = row k + 1 + row k @ right, one row after the other."""
    compact()
    at, width, depth = t[rows + AT], t[right + DOWN], t[rows + COLUMNS]
    for _ in range(t[rows + ROWS]):
        _multiply_long_row(c, at + width, at + width, at, t[right + AT], width, depth)
        at += width


# ---------------------------------------------------------------- element by element


@called
def combine(c, t, out, x, times, y):
    """Out = x + times * y; `x` may be transposed."""
    compact()
    own = x if x >= 0 else ~x
    begin, down, along = t[own + AT], t[own + DOWN], 1
    if x < 0:
        down, along = along, down
    for i in range(t[out + ROWS]):
        o, a, b = t[out + AT] + i * t[out + DOWN], begin + i * down, t[y + AT] + i * t[y + DOWN]
        for j in range(t[out + COLUMNS]):
            c[o + j] = c[b + j] * times + c[a + j * along]


@called
def add_to_diagonal(c, t, out, number):
    """Out = out + number * I."""
    compact()
    for i in range(t[out + ROWS]):
        at = t[out + AT] + i * (t[out + DOWN] + 1)
        c[at] = c[at] + number


@called
def copy_cells(c, out, begin, count):
    """Cells that follow one another."""
    compact()
    for i in range(count):
        c[out + i] = c[begin + i]


# ---------------------------------------------------------------- inverse


@called
def invert(c, t, x, pivots):
    """X = -x^-1, NaN if x is not positive definite, by sweeps; the pivots go to a row."""
    compact()
    begin, size, down = t[x + AT], t[x + ROWS], t[x + DOWN]
    for k in range(size):
        own = begin + k * down
        pivot = c[own + k]
        inverse = reciprocal(pivot)
        c[t[pivots + AT] + k] = pivot
        c[own + k] = -inverse
        for row in range(begin, begin + size * down, down):
            if row != own:
                factor = c[row + k] * inverse
                for j in range(size):
                    if j != k:
                        c[row + j] = c[row + j] - factor * c[own + j]
                c[row + k] = factor
        for j in range(size):
            if j != k:
                c[own + j] = c[own + j] * inverse
