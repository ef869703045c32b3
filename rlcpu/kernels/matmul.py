"""Products of small matrices, whose sums stay in registers.

LLVM vectorises plain loops by itself. What it does not find is a register tile: rows of one or two
vectors that hold their sums over a whole contraction. Per step of it a tile loads 2 vectors and
`TILE_ROWS` numbers for 2 * `TILE_ROWS` multiply-adds, which hides both the loads and the latency of
the sums. On 4-64-64-3 with relu that reaches 90 % of the FMA peak, the best plain loops 50 %; with
tanh 66 % (128 values of tanh per lane cost as much as a third of the product; on Zen 5).

A product is out = max(left @ right + start, floor), where NaN stays NaN; (rows, depth) @ (depth,
columns). Nothing is checked here. A tile may hang over the last row of its matrix: rows are clamped
to `last_row`, which is then computed several times, with identical results. What intrinsics and
their generators are is said in `rlcpu.kernels.vectors`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from rlcpu.kernels import hooks
from rlcpu.kernels.compile import inline, outline
from rlcpu.kernels.memory import load, load_vector, store, store_vector, transposed
from rlcpu.kernels.vectors import (
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


class Matrix(NamedTuple):
    """Element (r, c) is `values[begin + r * row_stride + c * column_stride]`.

    Tiles read and write whole vectors along a row: only the left factor of a product may have a
    column stride other than 1, elsewhere it is not looked at.
    """

    values: Any  # pointer from `address`. An array in its place would cost two atomic counts a use
    begin: int  # position of the first element
    row_stride: int  # distance between rows, in elements; 0 repeats one row
    column_stride: int  # distance between columns, in elements


class Windows(NamedTuple):
    """A left factor whose rows are windows of images, gathered from where they lie.

    A window has `segments` pieces, such as its lines, each of as many numbers as the depth of a
    product's shape. Number k of piece g of row r is

        values[begin + (r // per_line) * line + (r % per_line) * step + g * segment + k * stride]
    """

    values: Any  # pointer from `address`
    begin: int  # position of the first number of row 0
    first: int  # row of this factor that a product takes as its row 0
    per_line: int  # windows side by side
    line: int  # distance between lines of windows, in numbers; so the next ones
    step: int  # distance between windows side by side
    segments: int  # pieces of a window
    segment: int  # distance between pieces
    stride: int  # distance between numbers of a piece


# ---------------------------------------------------------------- LLVM pieces


def _row_pointers(builder: Any, matrix: Any, rows: int, last_row: Any) -> list[Any]:
    """Emit pointers to the first elements of rows 0 to `rows` - 1 of a `Matrix`, and return them.

    Rows beyond `last_row`, LLVM's value, are that row.
    """
    values, begin, row_stride, _ = cgutils.unpack_tuple(builder, matrix)
    pointers = []
    for row in map(I64, range(rows)):
        clamped = builder.select(builder.icmp_signed("<", row, last_row), row, last_row)
        pointers.append(builder.gep(values, [builder.add(begin, builder.mul(clamped, row_stride))]))
    return pointers


def _window_pointers(builder: Any, windows: Any, rows: int, last_row: Any) -> list[Any]:
    """Emit pointers to the first numbers of rows of `Windows`; see `_row_pointers`.

    One division finds the first row's line, and each row follows from the one before: a division
    for each of eight rows takes as long as a contraction of 40 numbers.
    """
    values, begin, first, per_line, line, step, *_ = cgutils.unpack_tuple(builder, windows)
    line_number = builder.sdiv(first, per_line)
    column = builder.sub(first, builder.mul(line_number, per_line))
    offset = builder.add(builder.mul(line_number, line), builder.mul(column, step))
    position = builder.add(begin, offset)
    to_next_line = builder.sub(line, builder.mul(builder.sub(per_line, I64(1)), step))
    pointers = [builder.gep(values, [position])]
    for row in map(I64, range(1, rows)):
        column = builder.add(column, I64(1))
        is_line_full = builder.icmp_signed("==", column, per_line)
        column = builder.select(is_line_full, I64(0), column)
        following = builder.add(position, builder.select(is_line_full, to_next_line, step))
        exists = builder.icmp_signed("<=", row, last_row)
        position = builder.select(exists, following, position)
        pointers.append(builder.gep(values, [position]))
    return pointers


@contextlib.contextmanager
def _contraction(
    builder: Any, left: Any, depth: Any, is_windows: bool
) -> Iterator[tuple[Any, Any]]:
    """Emit the loop over a contraction, whose body is what the `with` block emits.

    It yields the position of the loop's number in a row of `left`, and its row of `right`. `left`
    is a `Matrix`, or `Windows` with `is_windows`; `depth` is the number of iterations, of `Windows`
    those of each piece.
    """
    if not is_windows:
        stride = builder.extract_value(left, 3)
        with cgutils.for_range(builder, depth) as loop:
            yield builder.mul(loop.index, stride), loop.index
            body = builder.block
    else:
        segments, segment, stride = (builder.extract_value(left, k) for k in (6, 7, 8))
        with cgutils.for_range(builder, segments) as outer:
            begin, first = builder.mul(outer.index, segment), builder.mul(outer.index, depth)
            with cgutils.for_range(builder, depth) as loop:
                place = builder.add(begin, builder.mul(loop.index, stride))
                yield place, builder.add(first, loop.index)
                body = builder.block
    # Unrolled, it takes twice as long to compile, and short contractions are up to 1.5x slower.
    hooks.hint_loop(builder.module, body.terminator, "llvm.loop.unroll.disable")


def _hide(builder: Any, value: Any) -> Any:
    """Emit the same value in such a way that LLVM does not see how it was computed.

    Of pointers that are one stride apart it would compute each from the one before, in every step
    of a contraction: a chain of additions that takes longer than the multiply-adds.
    """
    kind = ir.FunctionType(value.type, [value.type])
    return builder.call(ir.InlineAsm(kind, "", "=r,0"), [value])


# ---------------------------------------------------------------- products


@intrinsic
def transpose(typing, source, out):
    """Write the upper left square of `source` to `out`, transposed.

    Both are `Matrix`; the square has as many rows as a register has numbers.
    """
    dtype = source[0].dtype
    vector = Vector(dtype, lanes_of(dtype))

    def generate(context, builder, signature, args):
        sources, outs = (_row_pointers(builder, m, vector.count, I64(vector.count)) for m in args)
        rows = [load_vector(builder, vector.code, pointer) for pointer in sources]
        for column, pointer in zip(transposed(builder, rows), outs, strict=True):
            store_vector(builder, column, pointer)
        return context.get_dummy_value()

    return types.void(source, out), generate


@inline
def _at(matrix: Matrix, row: int, column: int) -> Matrix:
    """Return the part of a matrix from (row, column) on."""
    begin = matrix.begin + row * matrix.row_stride + column * matrix.column_stride
    return Matrix(matrix.values, begin, matrix.row_stride, matrix.column_stride)


@inline
def _windows_at(windows, row, column):
    """Return windows from a row on; `column` is 0."""
    w, first = windows, windows.first + row
    return Windows(
        w.values, w.begin, first, w.per_line, w.line, w.step, w.segments, w.segment, w.stride
    )


def make_tile_product(
    rows: int, registers: int, part_of: Callable[..., Any] = _at
) -> Callable[..., None]:
    """Make `tile_product(left, right, start, out, corner, depth, last_row, floor)`.

    It computes a tile of a product. `left` is a `Matrix` or `Windows`, the next three are `Matrix`;
    `corner` is the tile's first row and column in `out`; `depth`, at least 1, the numbers in a row
    of `left`, or in a piece of a row of `Windows`; `last_row` counts from the tile's first row.

    Args:
        rows: of a tile.
        registers: vectors in a row of a tile.
        part_of: (left, row, 0) -> `left` from a row on.
    """

    @intrinsic
    def multiply(typing, left, right, start, out, depth, last_row, floor):
        """Compute one tile in registers: a sum for each row, over the contraction."""
        is_windows = left.instance_class is Windows
        point_to_rows = _window_pointers if is_windows else _row_pointers
        dtype = out[0].dtype
        vector = Vector(dtype, registers * lanes_of(dtype)).code
        fma = f"llvm.fma.{type_suffix(vector)}"

        def generate(context, builder, signature, args):
            left, right, start, out, depth, last_row, floor = args
            starts = _row_pointers(builder, start, rows, last_row)
            sums = [
                cgutils.alloca_once_value(builder, load_vector(builder, vector, pointer))
                for pointer in starts
            ]
            pointers = [_hide(builder, p) for p in point_to_rows(builder, left, rows, last_row)]
            values, begin, row_stride, _ = cgutils.unpack_tuple(builder, right)
            with _contraction(builder, left, depth, is_windows) as (column, index):
                position = builder.add(begin, builder.mul(index, row_stride))
                row = load_vector(builder, vector, builder.gep(values, [position]))
                for pointer, total in zip(pointers, sums, strict=True):
                    number = builder.load(builder.gep(pointer, [column]))
                    factor = splat(builder, number, vector.count)
                    added = emit_call(builder, fma, vector, [factor, row, builder.load(total)])
                    builder.store(added, total)
            floors = splat(builder, floor, vector.count)  # the floor in every lane
            for total, pointer in zip(
                sums, _row_pointers(builder, out, rows, last_row), strict=True
            ):
                result = builder.load(total)
                below = builder.fcmp_ordered("<", result, floors)
                store_vector(builder, builder.select(below, floors, result), pointer)
            return context.get_dummy_value()

        return types.void(left, right, start, out, types.intp, types.intp, dtype), generate

    @inline
    def tile_product(left, right, start, out, corner, depth, last_row, floor):
        row, column = corner
        left, right, start = part_of(left, row, 0), _at(right, 0, column), _at(start, row, column)
        multiply(left, right, start, _at(out, row, column), depth, last_row, floor)

    return tile_product


def _make_product(part_of: Callable[..., Any]) -> Callable[..., None]:
    """Make `product(left, right, start, out, shape, floor)`, made of tiles.

    Full tiles first, then low ones for the last rows, and slim ones for the last columns. `shape`
    is (rows, depth, columns), of which columns are a multiple of a register's numbers; `start` may
    be one row, with a row stride of 0. See `make_tile_product` for the others.
    """
    full = make_tile_product(TILE_ROWS, 2, part_of)
    low = make_tile_product(FEW_ROWS, 2, part_of)
    slim = make_tile_product(TILE_ROWS, 1, part_of)

    @outline
    def product(left, right, start, out, shape, floor):
        """Compute all tiles of a product."""
        rows, depth, columns = shape
        vector_size = width(out.values, 1)
        paired = columns - columns % (2 * vector_size)
        whole = rows - rows % TILE_ROWS
        for row in range(0, whole, TILE_ROWS):
            for column in range(0, paired, 2 * vector_size):
                full(left, right, start, out, (row, column), depth, TILE_ROWS - 1, floor)
        for row in range(whole, rows, FEW_ROWS):
            for column in range(0, paired, 2 * vector_size):
                low(left, right, start, out, (row, column), depth, rows - row - 1, floor)
        for row in range(0, rows, TILE_ROWS):
            for column in range(paired, columns, vector_size):
                slim(left, right, start, out, (row, column), depth, rows - row - 1, floor)

    return product


#: The product of two `Matrix`.
product = _make_product(_at)
#: The same, of `Windows` on the left; the depth of the shape is that of one piece.
product_of_windows = _make_product(_windows_at)


# ---------------------------------------------------------------- products of few columns


@intrinsic
def _dots(typing, left, right, start, out, depth, last_row, floor):
    """Write max(start[0, 0] + left[r] . right[0], floor) to out[r, 0], for a register of rows r.

    That is one column of a product whose right factor is transposed. `depth`, the length of rows,
    is a multiple of a register's numbers. Rows behind `last_row` are that row.
    """
    vector = Vector(out[0].dtype, lanes_of(out[0].dtype)).code
    fma = f"llvm.fma.{type_suffix(vector)}"

    def generate(context, builder, signature, args):
        left, right, start, out, depth, last_row, floor = args
        zero = vector(None)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(vector.count)]
        for total in sums:
            builder.store(zero, total)
        pointers = [_hide(builder, p) for p in _row_pointers(builder, left, vector.count, last_row)]
        (weights,) = _row_pointers(builder, right, 1, I64(0))
        step = I64(vector.count)
        with cgutils.for_range(builder, builder.sdiv(depth, step)) as loop:
            place = [builder.mul(loop.index, step)]
            row = load_vector(builder, vector, builder.gep(weights, place))
            for pointer, total in zip(pointers, sums, strict=True):
                factor = load_vector(builder, vector, builder.gep(pointer, place))
                added = emit_call(builder, fma, vector, [factor, row, builder.load(total)])
                builder.store(added, total)
        parts = transposed(builder, [builder.load(total) for total in sums])
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [builder.fadd(*pair) for pair in zip(parts[:half], parts[half:], strict=True)]
        (first,) = _row_pointers(builder, start, 1, I64(0))
        outputs = builder.fadd(parts[0], splat(builder, builder.load(first), vector.count))
        level = splat(builder, floor, vector.count)
        outputs = builder.select(builder.fcmp_ordered("<", outputs, level), level, outputs)
        for row, pointer in enumerate(_row_pointers(builder, out, vector.count, last_row)):
            builder.store(builder.extract_element(outputs, I64(row)), pointer)
        return context.get_dummy_value()

    return types.void(left, right, start, out, types.intp, types.intp, out[0].dtype), generate


@inline
def product_of_few(left, right, start, out, shape, floor):
    """Compute out = max(start + left @ right.T, floor) of few columns, which `product` would pad.

    The arguments are those of `product`, but for `right`, which is transposed, and `start`, which
    is one row. Depth is a multiple of a register's numbers. Two columns of 64 rows, 64 deep, take
    0.2 us, padded to 16 columns 0.6 (Zen 5).
    """
    rows, depth, columns = shape
    step = width(out.values, 1)
    for row in range(0, rows, step):
        for column in range(columns):
            first = _at(start, 0, column)
            begin = out.begin + row * out.row_stride + column
            target = Matrix(out.values, begin, out.row_stride, 1)
            weights, inputs = _at(right, column, 0), _at(left, row, 0)
            _dots(inputs, weights, first, target, depth, rows - row - 1, floor)


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
    vector_size = width(out.values, 1)
    whole = size - size % (4 * vector_size)
    for position in range(0, whole, 4 * vector_size):
        total = load(start.values, start.begin + position, 4)  # a vector of four registers
        for k in range(first, last):
            row = load(right.values, right.begin + columns[k] * right.row_stride + position, 4)
            total = total + row if left is None else fma(fill(left[columns[k]], 4), row, total)
        store(maximum(fill(floor, 4), total), out.values, out.begin + position)
    for position in range(whole, size, vector_size):
        count = min(vector_size, size - position)
        total = load(start.values, start.begin + position, 1, count, 0.0)
        for k in range(first, last):
            row_position = right.begin + columns[k] * right.row_stride + position
            row = load(right.values, row_position, 1, count, 0.0)
            total = total + row if left is None else fma(fill(left[columns[k]], 1), row, total)
        store(maximum(fill(floor, 1), total), out.values, out.begin + position, count)


@inline
def add_to_rows(columns, bounds, left, row, out, size):
    """Add left[c] times a row to each row c of `out`: gradients of `right` in `sum_of_rows`.

    `columns`, `bounds` and `left` are as there; `row` and `out` are `Matrix`, whose rows have
    `size` numbers, whole vectors.
    """
    first, last = bounds
    vector_size = width(out.values, 1)
    whole = size - size % (4 * vector_size)
    for position in range(0, whole, 4 * vector_size):
        added = load(row.values, row.begin + position, 4)  # a vector of four registers
        for k in range(first, last):
            row_position = out.begin + columns[k] * out.row_stride + position
            total = load(out.values, row_position, 4)
            total = total + added if left is None else fma(fill(left[columns[k]], 4), added, total)
            store(total, out.values, row_position)
    for position in range(whole, size, vector_size):
        added = load(row.values, row.begin + position, 1)
        for k in range(first, last):
            row_position = out.begin + columns[k] * out.row_stride + position
            total = load(out.values, row_position, 1)
            total = total + added if left is None else fma(fill(left[columns[k]], 1), added, total)
            store(total, out.values, row_position)
