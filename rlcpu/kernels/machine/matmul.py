"""Products of small matrices, whose sums stay in registers.

LLVM vectorises plain loops by itself. What it does not find is a register tile: rows of one or two
vectors that hold their sums over a whole contraction. Per step of it a tile loads 2 vectors and
`TILE_ROWS` numbers for 2 * `TILE_ROWS` multiply-adds, which hides both the loads and the latency of
the sums. On 4-64-64-3 with relu that reaches 90 % of the FMA peak, the best plain loops 50 %; with
tanh 66 % (128 values of tanh per lane cost as much as a third of the product; on Zen 5).

A product is out = max(left @ right + start, floor), where NaN stays NaN; (rows, depth) @ (depth,
columns). Nothing is checked here. A tile may hang over the last row of its matrix: rows are clamped
to `last_row`, which is then computed several times, with identical results.

What intrinsics and their generators are is said in `rlcpu.kernels.machine.vectors`. In generators,
matrices are a `Matrix` or `Windows` of LLVM's values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from rlcpu.kernels.compiler import linking
from rlcpu.kernels.compiler.compile import inline, outline
from rlcpu.kernels.machine.memory import load, load_vector, store, store_vector, transposed
from rlcpu.kernels.machine.vectors import (
    I64,
    VECTOR_BYTES,
    Vector,
    emit_call,
    fill,
    fma,
    lanes_of,
    maximum,
    splat,
    type_suffix,
    width,
)

#: 16 of AVX-512's and NEON's 32 registers hold a tile, 8 of AVX2's 16.
TILE_ROWS = 4 if VECTOR_BYTES == 32 else 8
#: Height below the last full tile, such as the few outputs of the last layer.
FEW_ROWS = 4
#: Columns up to which `product_of_few` is faster than `product`.
FEW_COLUMNS = 4
#: Share of numbers among zeros up to which `sum_of_rows` is faster than a product.
MANY_ONES = 0.2
_ZERO = I64(0)
#: Registers of the sums in `sum_of_rows`: additions to four of them do not wait for one another.
SUM_REGISTERS = 4


class Matrix(NamedTuple):
    """Element (r, c) is `values[begin + r * row_stride + c * column_stride]`.

    Tiles read and write whole vectors along a row: only the left factor of a product may have a
    column stride other than 1.
    """

    values: Any  # pointer from `address`. An array in its place would cost two atomic counts a use
    begin: int  # position of the first element
    row_stride: int  # distance between rows, in elements; 0 repeats one row
    column_stride: int  # distance between columns, in elements


class Windows(NamedTuple):
    """A left factor whose rows are windows of images, gathered from where they lie.

    A window has `num_pieces` pieces, such as its lines, each of as many numbers as the depth of a
    product's shape. Number k of piece g of row r is

        values[begin + (r // per_line) * line_step + (r % per_line) * window_step
               + g * piece_step + k * number_step]
    """

    values: Any  # pointer from `address`
    begin: int  # position of the first number of row 0
    first: int  # row of this factor that a product takes as its row 0
    per_line: int  # windows side by side
    line_step: int  # from a line of windows to the next one, in numbers; so the other steps
    window_step: int  # from a window to the next one of its line
    num_pieces: int  # of a window
    piece_step: int  # from a piece to the next one of its window
    number_step: int  # from a number to the next one of its piece


# ---------------------------------------------------------------- LLVM pieces


def _matrices_of(builder: Any, kinds: Any, values: Any) -> list[Any]:
    """Return each `Matrix` or `Windows` with LLVM's values as its fields, from types and values."""
    return [
        kind.instance_class(*cgutils.unpack_tuple(builder, value))
        for kind, value in zip(kinds, values, strict=True)
    ]


def _part(builder: Any, left: Any, row: Any = _ZERO, column: Any = _ZERO) -> Any:
    """Return the part of a `Matrix` from (row, column) on, or of `Windows` from a row on."""
    no_wrap = ["nsw"]  # as numba's own arithmetic: LLVM knows then that positions only grow
    if isinstance(left, Windows):
        return left._replace(first=builder.add(left.first, row, flags=no_wrap))
    down = builder.mul(row, left.row_stride, flags=no_wrap)
    across = builder.mul(column, left.column_stride, flags=no_wrap)
    begin = builder.add(builder.add(left.begin, down, flags=no_wrap), across, flags=no_wrap)
    return left._replace(begin=begin)


def _row_pointers(builder: Any, matrix: Any, rows: int, last_row: Any) -> list[Any]:
    """Emit pointers to the first elements of rows 0 to `rows` - 1 of a `Matrix` or of `Windows`.

    Rows beyond `last_row`, LLVM's value, are that row.
    """
    if isinstance(matrix, Windows):
        return _window_pointers(builder, matrix, rows, last_row)
    pointers = []
    for row in map(I64, range(rows)):
        clamped = builder.select(builder.icmp_signed("<", row, last_row), row, last_row)
        position = builder.add(matrix.begin, builder.mul(clamped, matrix.row_stride))
        pointers.append(builder.gep(matrix.values, [position]))
    return pointers


def _window_pointers(builder: Any, windows: Windows, rows: int, last_row: Any) -> list[Any]:
    """Emit pointers to the first numbers of rows of `Windows`; see `_row_pointers`.

    One division finds the line and column of the first row's window, and each row follows from the
    one before: a division for each of eight rows takes as long as a contraction of 40 numbers.
    """
    per_line, step = windows.per_line, windows.window_step
    line_number = builder.sdiv(windows.first, per_line)
    column = builder.sub(windows.first, builder.mul(line_number, per_line))
    offset = builder.add(builder.mul(line_number, windows.line_step), builder.mul(column, step))
    position = builder.add(windows.begin, offset)
    back_to_start = builder.mul(builder.sub(per_line, I64(1)), step)
    to_next_line = builder.sub(windows.line_step, back_to_start)  # from the last window of a line
    pointers = [builder.gep(windows.values, [position])]
    for row in map(I64, range(1, rows)):
        column = builder.add(column, I64(1))
        is_line_full = builder.icmp_signed("==", column, per_line)
        column = builder.select(is_line_full, I64(0), column)
        following = builder.add(position, builder.select(is_line_full, to_next_line, step))
        exists = builder.icmp_signed("<=", row, last_row)
        position = builder.select(exists, following, position)
        pointers.append(builder.gep(windows.values, [position]))
    return pointers


@contextlib.contextmanager
def _contraction(builder: Any, left: Any, depth: Any) -> Iterator[tuple[Any, Any]]:
    """Emit the loop over a contraction, whose body is what the `with` block emits.

    It yields LLVM's positions of the iteration's number in a row of `left`, and of its row in
    `right`. `depth` is the number of iterations, of `Windows` those of each piece.
    """
    if isinstance(left, Windows):
        with cgutils.for_range(builder, left.num_pieces) as outer:
            begin = builder.mul(outer.index, left.piece_step)
            first_row = builder.mul(outer.index, depth)
            with cgutils.for_range(builder, depth) as loop:
                position = builder.add(begin, builder.mul(loop.index, left.number_step))
                yield position, builder.add(first_row, loop.index)
                body = builder.block
    else:
        with cgutils.for_range(builder, depth) as loop:
            yield builder.mul(loop.index, left.column_stride), loop.index
            body = builder.block  # its branch back to the loop's head is emitted behind the block
    # Unrolled, it takes twice as long to compile, and short contractions are up to 1.5x slower.
    linking.hint_loop(builder.module, body.terminator, "llvm.loop.unroll.disable")


def _hide(builder: Any, value: Any) -> Any:
    """Emit the same value in such a way that LLVM does not see how it was computed.

    Of pointers that are one stride apart it would compute each from the one before, in every step
    of a contraction: a chain of additions that takes longer than the multiply-adds. Assembly of no
    instructions, whose result lies in the register of its operand ("=r,0"), costs nothing.
    """
    kind = ir.FunctionType(value.type, [value.type])
    return builder.call(ir.InlineAsm(kind, "", "=r,0"), [value])


def _multiply_add(builder: Any, x: Any, y: Any, place: Any) -> None:
    """Emit `place += x * y` of vectors; LLVM keeps the memory at `place` in a register."""
    name = f"llvm.fma.{type_suffix(x.type)}"
    builder.store(emit_call(builder, name, x.type, [x, y, builder.load(place)]), place)


def _at_least(builder: Any, vector: Any, floor: Any) -> Any:
    """Emit the larger of each number of a vector and the number `floor`; NaN stays NaN."""
    floors = splat(builder, floor, vector.type.count)
    return builder.select(builder.fcmp_ordered("<", vector, floors), floors, vector)


# ---------------------------------------------------------------- products


@intrinsic
def transpose(typing, source, out):
    """Write the upper left square of `source` to `out`, transposed.

    Both are `Matrix`; the square has as many rows as a register has numbers.
    """
    vector = Vector(source[0].dtype, lanes_of(source[0].dtype))

    def generate(context, builder, signature, args):
        sources, outs = (
            _row_pointers(builder, matrix, vector.count, I64(vector.count))
            for matrix in _matrices_of(builder, (source, out), args)
        )
        rows = [load_vector(builder, vector.code, pointer) for pointer in sources]
        for column, pointer in zip(transposed(builder, rows), outs, strict=True):
            store_vector(builder, column, pointer)
        return context.get_dummy_value()

    return types.void(source, out), generate


def _signature_of_tile(left: Any, right: Any, start: Any, out: Any) -> Any:
    """Return numba's signature of the intrinsics (*matrices, corner, depth, last_row, floor)."""
    corner = types.UniTuple(types.intp, 2)
    return types.void(left, right, start, out, corner, types.intp, types.intp, out[0].dtype)


def make_tile_product(rows: int, registers: int) -> Any:
    """Make the intrinsic that computes a tile of a product, of `rows` rows of `registers` vectors.

    It is `tile_product(left, right, start, out, corner, depth, last_row, floor)`: `left` is a
    `Matrix` or `Windows`, the next three are `Matrix`; `corner` is the tile's first row and column
    in `out`; `depth`, at least 1, the numbers in a row of `left`, or in a piece of a row of
    `Windows`; `last_row` counts from the tile's first row.
    """

    @intrinsic
    def tile_product(typing, left, right, start, out, corner, depth, last_row, floor):
        """Compute one tile in registers: a sum for each row, over the contraction."""
        vector = Vector(out[0].dtype, registers * lanes_of(out[0].dtype)).code

        def generate(context, builder, signature, args):
            *matrices, corner, depth, last_row, floor = args
            kinds = left, right, start, out
            factor, other, first_sums, result = _matrices_of(builder, kinds, matrices)
            row, column = cgutils.unpack_tuple(builder, corner)
            factor, other = _part(builder, factor, row), _part(builder, other, column=column)
            first_sums, result = (
                _part(builder, matrix, row, column) for matrix in (first_sums, result)
            )
            sums = [
                cgutils.alloca_once_value(builder, load_vector(builder, vector, pointer))
                for pointer in _row_pointers(builder, first_sums, rows, last_row)
            ]
            pointers = [_hide(builder, p) for p in _row_pointers(builder, factor, rows, last_row)]
            with _contraction(builder, factor, depth) as (position, index):
                place = builder.add(other.begin, builder.mul(index, other.row_stride))
                vector_of_row = load_vector(builder, vector, builder.gep(other.values, [place]))
                for pointer, total in zip(pointers, sums, strict=True):
                    number = builder.load(builder.gep(pointer, [position]))
                    in_all_lanes = splat(builder, number, vector.count)
                    _multiply_add(builder, in_all_lanes, vector_of_row, total)
            # Not before the loop, in which these pointers would take registers.
            outs = _row_pointers(builder, result, rows, last_row)
            for pointer, total in zip(outs, sums, strict=True):
                store_vector(builder, _at_least(builder, builder.load(total), floor), pointer)
            return context.get_dummy_value()

        return _signature_of_tile(left, right, start, out), generate

    return tile_product


_full_tile = make_tile_product(TILE_ROWS, registers=2)
_low_tile = make_tile_product(FEW_ROWS, registers=2)
_slim_tile = make_tile_product(TILE_ROWS, registers=1)


@outline
def product(left, right, start, out, shape, floor):
    """Compute a product by tiles: full ones, low ones of the last rows, slim ones of last columns.

    `left` is a `Matrix` or `Windows`, the next three are `Matrix`; `start` may be one row, with a
    row stride of 0. `shape` is (rows, depth, columns), of which columns are a multiple of a
    register's numbers, and the depth is that of one piece of `Windows`.
    """
    rows, depth, columns = shape
    one, two = width(out.values, 1), width(out.values, 2)  # numbers in a row of a tile
    end_of_full, end_of_pairs = rows - rows % TILE_ROWS, columns - columns % two
    for row in range(0, end_of_full, TILE_ROWS):
        for column in range(0, end_of_pairs, two):
            _full_tile(left, right, start, out, (row, column), depth, TILE_ROWS - 1, floor)
    for row in range(end_of_full, rows, FEW_ROWS):
        for column in range(0, end_of_pairs, two):
            _low_tile(left, right, start, out, (row, column), depth, rows - row - 1, floor)
    for row in range(0, rows, TILE_ROWS):
        for column in range(end_of_pairs, columns, one):
            _slim_tile(left, right, start, out, (row, column), depth, rows - row - 1, floor)


# ---------------------------------------------------------------- products of few columns


@intrinsic
def _dots(typing, left, right, start, out, corner, depth, last_row, floor):
    """Compute some rows of one column of `product_of_few`: as many as a register has numbers.

    All are `Matrix`, `left` with numbers of a row side by side. `corner` is the first row and the
    column in `out`; `right` is transposed, so that the column is a row of it; `depth`, the length
    of rows, is a multiple of a register's numbers; `last_row` counts from the first row.
    """
    vector = Vector(out[0].dtype, lanes_of(out[0].dtype)).code

    def generate(context, builder, signature, args):
        *matrices, corner, depth, last_row, floor = args
        kinds = left, right, start, out
        factor, other, first_sums, result = _matrices_of(builder, kinds, matrices)
        row, column = cgutils.unpack_tuple(builder, corner)
        factor, result = _part(builder, factor, row), _part(builder, result, row, column)
        other, first_sums = _part(builder, other, column), _part(builder, first_sums, column=column)
        weights = builder.gep(other.values, [other.begin])
        first_sum = builder.load(builder.gep(first_sums.values, [first_sums.begin]))
        sums = [cgutils.alloca_once(builder, vector) for _ in range(vector.count)]
        for total in sums:  # here, not at the function's entry: this may be the body of a loop
            builder.store(vector(None), total)
        starts = _row_pointers(builder, factor, vector.count, last_row)
        pointers = [_hide(builder, pointer) for pointer in starts]
        with cgutils.for_range(builder, builder.sdiv(depth, I64(vector.count))) as loop:
            position = [builder.mul(loop.index, I64(vector.count))]
            weights_here = load_vector(builder, vector, builder.gep(weights, position))
            for pointer, total in zip(pointers, sums, strict=True):
                numbers = load_vector(builder, vector, builder.gep(pointer, position))
                _multiply_add(builder, numbers, weights_here, total)
        # Transposed, vector k has partial sum k of every row: their sum has the rows' dot products.
        parts = transposed(builder, [builder.load(total) for total in sums])
        while len(parts) > 1:  # by halves, so that additions do not wait for one another
            half = len(parts) // 2
            parts = [builder.fadd(*pair) for pair in zip(parts[:half], parts[half:], strict=True)]
        dots = builder.fadd(parts[0], splat(builder, first_sum, vector.count))
        dots = _at_least(builder, dots, floor)
        for lane, pointer in enumerate(_row_pointers(builder, result, vector.count, last_row)):
            builder.store(builder.extract_element(dots, I64(lane)), pointer)
        return context.get_dummy_value()

    return _signature_of_tile(left, right, start, out), generate


@inline
def product_of_few(left, right, start, out, shape, floor):
    """Compute out = max(start + left @ right.T, floor) of few columns, which `product` would pad.

    The arguments are those of `product`, but for `right`, which is transposed, and `start`, which
    is one row. Depth is a multiple of a register's numbers. Two columns of 64 rows, 64 deep, take
    0.2 us, padded to 16 columns 0.6 (Zen 5).
    """
    rows, depth, columns = shape
    for row in range(0, rows, width(out.values, 1)):
        for column in range(columns):
            _dots(left, right, start, out, (row, column), depth, rows - row - 1, floor)


# ---------------------------------------------------------------- few numbers among zeros


@inline
def sum_of_rows(columns, bounds, left, right, start, out, size, floor):
    """Compute one row of a product whose left row is zeros but for a few numbers.

    The sum is added up as in `product`, and has the same bits.

    Args:
        columns: pointer to the columns where `left` is not 0, those from bounds[0] to bounds[1].
        bounds: see `columns`; the last one is exclusive.
        left: pointer to the left row; None if those numbers are 1.
        right: `Matrix`, of which row c is multiplied by left[c].
        start: `Matrix` of one row.
        out: `Matrix` of one row, overwritten.
        size: numbers of a row.
        floor: lower bound of the results.
    """
    first, last = bounds
    one, many = width(out.values, 1), width(out.values, SUM_REGISTERS)  # numbers in the registers
    end_of_many = size - size % many
    for position in range(0, end_of_many, many):
        total = load(start.values, start.begin + position, SUM_REGISTERS)
        for k in range(first, last):
            place = right.begin + columns[k] * right.row_stride + position
            row = load(right.values, place, SUM_REGISTERS)
            if left is None:
                total = total + row
            else:
                total = fma(fill(left[columns[k]], SUM_REGISTERS), row, total)
        store(maximum(fill(floor, SUM_REGISTERS), total), out.values, out.begin + position)
    for position in range(end_of_many, size, one):
        count = min(one, size - position)  # the last vector may end within a register
        total = load(start.values, start.begin + position, 1, count, 0.0)
        for k in range(first, last):
            place = right.begin + columns[k] * right.row_stride + position
            row = load(right.values, place, 1, count, 0.0)
            total = total + row if left is None else fma(fill(left[columns[k]], 1), row, total)
        store(maximum(fill(floor, 1), total), out.values, out.begin + position, count)


@inline
def add_to_rows(columns, bounds, left, row, out, size):
    """Add left[c] times a row to each row c of `out`: gradients of `right` in `sum_of_rows`.

    `columns`, `bounds` and `left` are as there; `row` and `out` are `Matrix`, whose rows have
    `size` numbers, whole vectors.
    """
    first, last = bounds
    one, many = width(out.values, 1), width(out.values, SUM_REGISTERS)  # numbers in the registers
    end_of_many = size - size % many
    for position in range(0, end_of_many, many):
        added = load(row.values, row.begin + position, SUM_REGISTERS)
        for k in range(first, last):
            place = out.begin + columns[k] * out.row_stride + position
            total = load(out.values, place, SUM_REGISTERS)
            if left is None:
                total = total + added
            else:
                total = fma(fill(left[columns[k]], SUM_REGISTERS), added, total)
            store(total, out.values, place)
    for position in range(end_of_many, size, one):
        added = load(row.values, row.begin + position, 1)
        for k in range(first, last):
            place = out.begin + columns[k] * out.row_stride + position
            total = load(out.values, place, 1)
            total = total + added if left is None else fma(fill(left[columns[k]], 1), added, total)
            store(total, out.values, place)
