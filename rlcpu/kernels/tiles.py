"""Tiles: a few numbers of each of many rows, moved from row-major memory to vectors across rows.

Row j of a tile, a vector, holds number j of every row. A tile has as many rows as one register has
numbers and is moved a square of registers at a time, transposed in registers.
It begins at a cache line. See `rlcpu.kernels.memory` for what all loads and stores share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from rlcpu.kernels.memory import below, masked_load, masked_store, vector_pointer
from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.vectors import cgutils, indices, intrinsic, kind_of, splat

_I64 = ir.IntType(64)


def _pairs(builder: Any, a: Any, b: Any, picks: list[int], others: list[int]) -> list[Any]:
    return [builder.shuffle_vector(a, b, indices(mask)) for mask in (picks, others)]


def _within_lanes(builder: Any, rows: list[Any], group: int) -> list[Any]:
    """Transpose groups of rows inside each lane of 16 bytes, which holds `group` numbers.

    Of each group, result j holds number j of every lane of every row.
    """
    count = rows[0].type.count
    for size in (1, 2)[: group.bit_length() - 1]:
        blocks = [
            [row + lane + item + i for row in (0, count) for i in range(size)]
            for lane in range(0, count, group)
            for item in range(0, group, size)
        ]
        half = group // size // 2
        low = [n for k, block in enumerate(blocks) if k // half % 2 == 0 for n in block]
        high = [n for k, block in enumerate(blocks) if k // half % 2 == 1 for n in block]
        firsts = [f + i for f in range(0, count, 2 * size) for i in range(size)]
        rows = [v for i in firsts for v in _pairs(builder, rows[i], rows[i + size], low, high)]
    return rows


def _across_lanes(builder: Any, rows: list[Any], group: int) -> list[Any]:
    """Transpose rows of whole lanes of 16 bytes: result l holds lane l of every row."""
    if len(rows) == 1:
        return rows
    lanes = 2 * rows[0].type.count // group
    even, odd = (
        [n for k in range(p, lanes, 2) for n in range(k * group, k * group + group)] for p in (0, 1)
    )
    merged = [_pairs(builder, a, b, even, odd) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    halves = [_across_lanes(builder, [pair[p] for pair in merged], group) for p in (0, 1)]
    return [row for both in zip(*halves, strict=True) for row in both]


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Columns of a square of vectors.

    Lanes of 16 bytes are first transposed inside, then moved as a whole: shuffles inside of lanes
    take one cycle and those across three.
    """
    count = len(rows)
    group = 16 * 8 // (64 if isinstance(rows[0].type.element, ir.DoubleType) else 32)
    inside = _within_lanes(builder, rows, group)
    columns = [_across_lanes(builder, inside[j::group], group) for j in range(group)]
    return [columns[c % group][c // group] for c in range(count)]


class _Square:
    """Where the numbers of one register from each of as many rows are, and their tile's rows."""

    def __init__(self, dtype: Any, registers: Any) -> None:
        self.vector = kind_of(dtype, registers)
        self.lanes = VECTOR_BYTES * 8 // dtype.bitwidth
        self.register = ir.VectorType(self.vector.code.element, self.lanes)
        self.align = dtype.bitwidth // 8

    def firsts(self) -> range:
        """The first row of each square of the tile."""
        return range(0, self.vector.count, self.lanes)

    def rows(self, builder: Any, memory: Any, starts: Any, position: Any, first: int) -> list[Any]:
        """Addresses of the square's numbers in its rows."""
        numbers = [ir.Constant(_I64, first + r) for r in range(self.lanes)]
        begins = [builder.load(builder.gep(starts, [n])) for n in numbers]
        positions = [builder.add(begin, position) for begin in begins]
        return [vector_pointer(builder, memory, p, self.register) for p in positions]

    def tile(self, builder: Any, tile: Any, first: int) -> list[Any]:
        """Addresses of the square's vectors in the tile."""
        positions = [ir.Constant(_I64, r * self.vector.count + first) for r in range(self.lanes)]
        return [vector_pointer(builder, tile, p, self.register) for p in positions]


@intrinsic(prefer_literal=True)
def load_tile(
    typing: Any, source: Any, starts: Any, position: Any, tile: Any, registers: Any
) -> tuple[Any, Callable[..., Any]]:
    """Move numbers from `position` on of every row into a tile; row i begins at `starts[i]`."""
    square = _Square(source.dtype, registers)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        memory, starts, position, tile, _ = args
        for first in square.firsts():
            pointers = square.rows(builder, memory, starts, position, first)
            vectors = [builder.load(p, align=square.align) for p in pointers]
            targets = square.tile(builder, tile, first)
            for vector, target in zip(transposed(builder, vectors), targets, strict=True):
                builder.store(vector, target, align=VECTOR_BYTES)
        return context.get_dummy_value()

    return types.void(source, starts, types.intp, source, registers), generate


@intrinsic(prefer_literal=True)
def load_tile_part(
    typing: Any, source: Any, starts: Any, span: Any, other: Any, tile: Any, registers: Any
) -> tuple[Any, Callable[..., Any]]:
    """The same of the numbers of a span, with `other` in place of the rest, which is not read.

    `span` is (position, first, stops): of row i the numbers from `first` to `stops[i]`, exclusive.
    """
    square = _Square(source.dtype, registers)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        memory, starts, span, other, tile, _ = args
        position, begin, stops = cgutils.unpack_tuple(builder, span)
        rest = splat(builder, other, square.lanes)
        numbers = builder.add(
            splat(builder, position, square.lanes), indices(range(square.lanes), _I64)
        )
        begun = builder.icmp_signed(">=", numbers, splat(builder, begin, square.lanes))
        for first in square.firsts():
            vectors = []
            for row, pointer in enumerate(square.rows(builder, memory, starts, position, first)):
                stop = builder.load(builder.gep(stops, [ir.Constant(_I64, first + row)]))
                ends = builder.icmp_signed("<", numbers, splat(builder, stop, square.lanes))
                mask = builder.and_(begun, ends)
                vectors.append(masked_load(builder, pointer, mask, rest, square.align))
            targets = square.tile(builder, tile, first)
            for vector, target in zip(transposed(builder, vectors), targets, strict=True):
                builder.store(vector, target, align=VECTOR_BYTES)
        return context.get_dummy_value()

    return types.void(source, starts, span, source.dtype, source, registers), generate


@intrinsic(prefer_literal=True)
def store_tile(
    typing: Any, tile: Any, target: Any, starts: Any, position: Any, registers: Any
) -> tuple[Any, Callable[..., Any]]:
    """Move a tile to the numbers from `position` on of every row; row i begins at `starts[i]`."""
    square = _Square(target.dtype, registers)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tile, memory, starts, position, _ = args
        for first in square.firsts():
            sources = square.tile(builder, tile, first)
            vectors = transposed(builder, [builder.load(p, align=VECTOR_BYTES) for p in sources])
            pointers = square.rows(builder, memory, starts, position, first)
            for vector, pointer in zip(vectors, pointers, strict=True):
                builder.store(vector, pointer, align=square.align)
        return context.get_dummy_value()

    return types.void(target, target, starts, types.intp, registers), generate


@intrinsic(prefer_literal=True)
def store_tile_first(
    typing: Any, tile: Any, target: Any, starts: Any, position: Any, count: Any, registers: Any
) -> tuple[Any, Callable[..., Any]]:
    """The same of the first `count` numbers of every row."""
    square = _Square(target.dtype, registers)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tile, memory, starts, position, count, _ = args
        mask = below(builder, count, square.lanes)
        for first in square.firsts():
            sources = square.tile(builder, tile, first)
            vectors = transposed(builder, [builder.load(p, align=VECTOR_BYTES) for p in sources])
            pointers = square.rows(builder, memory, starts, position, first)
            for vector, pointer in zip(vectors, pointers, strict=True):
                masked_store(builder, vector, pointer, mask, square.align)
        return context.get_dummy_value()

    return types.void(target, target, starts, types.intp, types.intp, registers), generate
