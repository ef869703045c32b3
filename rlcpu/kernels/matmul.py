"""Products of small matrices, whose sums stay in registers.

LLVM vectorises plain loops by itself. What it does not find is a register tile: rows of one or two
vectors that hold their sums over a whole contraction. On 4-64-64-3 the tile reaches 90 % of the FMA
peak, the best plain loops 50 %, so it is spelled out here: a tuple of vectors, one for each row.

Per step of the contraction a tile loads 2 vectors and `TILE_ROWS` numbers for 2 * `TILE_ROWS`
multiply-adds, which hides both the loads and the latency of the sums: 90 % of the FMA peak on
4-64-64-3 with relu, 66 % with tanh (128 values of tanh per lane cost as much as a third of the
product), measured on Zen 5.

Nothing is checked here. A tile may hang over the last row of its matrix: rows are clamped to
`last_row`, which is then computed several times, with identical results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from numba.core import cgutils, types
from numba.extending import intrinsic

from rlcpu.kernels.compile import inline, outline
from rlcpu.kernels.memory import transposed
from rlcpu.kernels.vectors import (
    I64,
    VECTOR_BYTES,
    Vector,
    call,
    kind_of,
    lanes_of,
    splat,
    suffix,
    width,
)

#: 16 of AVX-512's and NEON's 32 registers hold a tile, 8 of AVX2's 16.
TILE_ROWS = 4 if VECTOR_BYTES == 32 else 8
#: Height below the last full tile, such as the few outputs of the last layer.
FEW_ROWS = 4


class Matrix(NamedTuple):
    """Element (r, c) is `values[begin + r * row_stride + c * column_stride]`.

    Tiles read and write whole vectors along a row: only the left factor of a product may have a
    column stride other than 1, elsewhere it is not looked at.

    Attributes:
        values: pointer from `address`. An array in its place would cost two atomic counts a use.
        begin: position of the first element.
        row_stride: distance between rows, in elements; 0 repeats one row.
        column_stride: distance between columns, in elements.
    """

    values: Any
    begin: int
    row_stride: int
    column_stride: int


# ---------------------------------------------------------------- LLVM pieces


def _rows(builder: Any, matrix: Any, rows: int, last_row: Any) -> list[Any]:
    """Pointers to the first elements of so many rows, clamped to the last row."""
    values, begin, row_stride, _ = cgutils.unpack_tuple(builder, matrix)
    pointers = []
    for row in map(I64, range(rows)):
        clamped = builder.select(builder.icmp_signed("<", row, last_row), row, last_row)
        pointers.append(builder.gep(values, [builder.add(begin, builder.mul(clamped, row_stride))]))
    return pointers


def _load(builder: Any, vector: Vector, pointer: Any) -> Any:
    place = builder.bitcast(pointer, vector.code.as_pointer())
    return builder.load(place, align=vector.dtype.bitwidth // 8)


def _store(builder: Any, vector: Vector, value: Any, pointer: Any) -> None:
    place = builder.bitcast(pointer, vector.code.as_pointer())
    builder.store(value, place, align=vector.dtype.bitwidth // 8)


@contextmanager
def _loop(
    builder: Any, count: Any, starts: list[Any]
) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """Loop of at least one pass, with values carried from pass to pass in registers.

    Yields the pass number, the carried values and an empty list for what they become. LLVM may not
    unroll the loop: that doubles the time to compile and slows short contractions by up to 1.5x.
    """
    before, body = builder.block, builder.append_basic_block("product")
    builder.branch(body)
    builder.position_at_end(body)
    number, carried = builder.phi(I64), [builder.phi(start.type) for start in starts]
    results: list[Any] = []
    yield number, carried, results
    following = builder.add(number, I64(1))
    for phi, first, result in zip(
        [number, *carried], [I64(0), *starts], [following, *results], strict=True
    ):
        phi.add_incoming(first, before)
        phi.add_incoming(result, builder.block)
    after = builder.append_basic_block("product.end")
    branch = builder.cbranch(builder.icmp_signed("<", following, count), body, after)
    hint = builder.module.add_metadata(["llvm.loop.unroll.disable"])
    label = builder.module.add_metadata([hint, body.name])
    label.operands = (label, hint)  # LLVM wants the list of a loop's hints to begin with itself
    branch.set_metadata("llvm.loop", label)
    builder.position_at_end(after)


# ---------------------------------------------------------------- tiles


def _make_start(read: Callable[[Any, Vector, Any], Any]) -> Any:
    """Intrinsic: the tile in a matrix's corner, whose rows are `read(builder, vector, pointer)`."""

    @intrinsic(prefer_literal=True)
    def start(typing, rows, registers, matrix, last_row):
        vector = kind_of(matrix[0].dtype, registers)
        tile = types.UniTuple(vector, rows.literal_value)

        def generate(context, builder, signature, args):
            pointers = _rows(builder, args[2], tile.count, args[3])
            return context.make_tuple(builder, tile, [read(builder, vector, p) for p in pointers])

        return tile(rows, registers, matrix, types.intp), generate

    return start


#: (rows, registers, matrix, last_row) -> tile; `rows` and `registers` are constants.
load_rows = _make_start(_load)
#: The same with the first element of each row in the place of all of the row.
spread_rows = _make_start(lambda b, vector, place: splat(b, b.load(place), vector.count))


@intrinsic
def add_product(typing, tile, left, right, depth, last_row):
    """Tile + left @ right over `depth` >= 1 columns of `left` and rows of `right`."""
    vector = tile.dtype
    fma = f"llvm.fma.{suffix(vector.code)}"

    def generate(context, builder, signature, args):
        pointers = _rows(builder, args[1], tile.count, args[4])
        left_stride = builder.extract_value(args[1], 3)
        values, begin, right_stride, _ = cgutils.unpack_tuple(builder, args[2])
        starts = cgutils.unpack_tuple(builder, args[0])
        with _loop(builder, args[3], starts) as (step, sums, results):
            place = builder.gep(values, [builder.add(begin, builder.mul(step, right_stride))])
            row, column = _load(builder, vector, place), builder.mul(step, left_stride)
            for pointer, total in zip(pointers, sums, strict=True):
                number = builder.load(builder.gep(pointer, [column]))
                factor = splat(builder, number, vector.count)
                results.append(call(builder, fma, vector.code, [factor, row, total]))
        return context.make_tuple(builder, tile, results)

    return tile(tile, left, right, types.intp, types.intp), generate


@intrinsic
def store_rows(typing, tile, floor, matrix, last_row):
    """Write the tile to the matrix's corner, numbers below `floor` raised to it; NaN stays NaN."""
    vector = tile.dtype

    def generate(context, builder, signature, args):
        level = splat(builder, args[1], vector.count)
        pointers = _rows(builder, args[2], tile.count, args[3])
        rows = cgutils.unpack_tuple(builder, args[0])
        for row, pointer in zip(rows, pointers, strict=True):
            raised = builder.select(builder.fcmp_ordered("<", row, level), level, row)
            _store(builder, vector, raised, pointer)
        return context.get_dummy_value()

    return types.void(tile, vector.dtype, matrix, types.intp), generate


@intrinsic
def transpose(typing, source, out):
    """Transpose the square of one register's width in the corner of `source` to `out`."""
    dtype = source[0].dtype
    vector = Vector(dtype, lanes_of(dtype))

    def generate(context, builder, signature, args):
        sources, outs = (_rows(builder, m, vector.count, I64(vector.count)) for m in args)
        rows = [_load(builder, vector, pointer) for pointer in sources]
        for column, pointer in zip(transposed(builder, rows), outs, strict=True):
            _store(builder, vector, column, pointer)
        return context.get_dummy_value()

    return types.void(source, out), generate


# ---------------------------------------------------------------- products


@inline
def _at(matrix: Matrix, row: int, column: int) -> Matrix:
    """The part of a matrix from (row, column) on."""
    begin = matrix.begin + row * matrix.row_stride + column * matrix.column_stride
    return Matrix(matrix.values, begin, matrix.row_stride, matrix.column_stride)


def _make_tile_product(start_tile: Any, rows: int, registers: int) -> Callable[..., None]:
    @inline
    def tile_product(left, right, start, out, corner, depth, last_row, floor):
        row, column = corner
        tile = start_tile(rows, registers, _at(start, row, column), last_row)
        tile = add_product(tile, _at(left, row, 0), _at(right, 0, column), depth, last_row)
        store_rows(tile, floor, _at(out, row, column), last_row)

    return tile_product


def _make_product(start_tile: Any, decorate: Any) -> Callable[..., None]:
    """Whole product out of tiles: full ones, a last row of low ones, a last column of slim ones."""
    full = _make_tile_product(start_tile, TILE_ROWS, 2)
    low = _make_tile_product(start_tile, FEW_ROWS, 2)
    slim = _make_tile_product(start_tile, TILE_ROWS, 1)

    @decorate
    def product(left, right, start, out, shape, floor):
        rows, depth, columns = shape
        one = width(out.values, 1)
        paired = columns - columns % (2 * one)
        whole = rows - rows % TILE_ROWS
        for row in range(0, whole, TILE_ROWS):
            for column in range(0, paired, 2 * one):
                full(left, right, start, out, (row, column), depth, TILE_ROWS - 1, floor)
        for row in range(whole, rows, FEW_ROWS):
            for column in range(0, paired, 2 * one):
                low(left, right, start, out, (row, column), depth, rows - row - 1, floor)
        for row in range(0, rows, TILE_ROWS):
            for column in range(paired, columns, one):
                slim(left, right, start, out, (row, column), depth, rows - row - 1, floor)

    return product


#: out = max(start + left @ right, floor); `start` gives one number per row (its first column).
product_from_column = _make_product(spread_rows, inline)
#: out = max(start + left @ right, floor); `start` is a matrix, or one row with a row stride of 0.
product = _make_product(load_rows, outline)
