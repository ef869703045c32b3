"""Explicit vectors inside numba kernels: the register tile of a matrix product.

LLVM vectorises plain loops by itself. What it does not find is a register tile: `rows` x `vectors`
SIMD registers that hold their sums over a whole contraction. On 4-64-64-3 the tile reaches 90 % of
the FMA peak, the best plain loops 50 %, so it is spelled out here, once, as a numba type made of
portable LLVM vectors, which LLVM lowers to whatever the machine has.

Nothing is checked here. A tile may hang over the last row of its matrix: rows are clamped to
`last_row`, which is then computed several times, with identical results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import codegen, types
from numba.extending import models, register_model

# Their types do not fit what they are: kernels call an intrinsic without its first argument.
intrinsic: Any = numba.extending.intrinsic
cgutils: Any = _cgutils
_config: Any = numba.config
_host_features: Any = codegen.get_host_cpu_features


def cpu_features() -> str:
    """What kernels may use, as "+avx2,-avx512f": NUMBA_CPU_FEATURES, or all the machine has."""
    features = _config.CPU_FEATURES
    return str(_host_features() if features is None else features)


def _vector_bytes() -> int:
    """Width of the machine's vector registers."""
    features = cpu_features()
    return 64 if "+avx512f" in features else 32 if "+avx2" in features else 16


#: AVX-512 has 32 registers of 64 bytes, AVX2 16 of 32, NEON 32 of 16.
VECTOR_BYTES = _vector_bytes()
_FLOATS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
_INDEX = ir.IntType(64)


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


class Tile(types.Type):
    """Numba type of `rows` x `vectors` registers full of `dtype`."""

    def __init__(self, dtype: types.Float, rows: int, vectors: int) -> None:
        self.dtype, self.rows, self.vectors = dtype, rows, vectors
        super().__init__(name=f"Tile({dtype}, {rows}, {vectors})")

    @property
    def vector(self) -> ir.VectorType:
        """LLVM type of one register."""
        return ir.VectorType(_FLOATS[self.dtype], VECTOR_BYTES * 8 // self.dtype.bitwidth)


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, tile: Tile) -> None:
        registers = ir.ArrayType(tile.vector, tile.rows * tile.vectors)
        super().__init__(manager, tile, registers)  # type: ignore[no-untyped-call]


# ---------------------------------------------------------------- LLVM pieces


def _row_pointers(builder: Any, matrix: Any, tile: Tile, last_row: Any) -> list[Any]:
    """Address of the first element of each row of the tile, clamped to the last row."""
    values, begin, row_stride, _ = cgutils.unpack_tuple(builder, matrix)
    pointers = []
    for row in range(tile.rows):
        number = ir.Constant(_INDEX, row)
        clamped = builder.select(builder.icmp_signed("<", number, last_row), number, last_row)
        pointers.append(builder.gep(values, [builder.add(begin, builder.mul(clamped, row_stride))]))
    return pointers


def _vector_pointers(builder: Any, pointer: Any, tile: Tile) -> list[Any]:
    """Address of each vector of the row that begins at `pointer`."""
    starts = [ir.Constant(_INDEX, v * tile.vector.count) for v in range(tile.vectors)]
    return [builder.bitcast(builder.gep(pointer, [s]), tile.vector.as_pointer()) for s in starts]


def _load_row(builder: Any, pointer: Any, tile: Tile) -> list[Any]:
    align = tile.dtype.bitwidth // 8
    return [builder.load(p, align=align) for p in _vector_pointers(builder, pointer, tile)]


def _splat(builder: Any, scalar: Any, vector: ir.VectorType) -> Any:
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, empty, zeros)


def _pack(builder: Any, tile: Tile, vectors: list[Any]) -> Any:
    packed = ir.Constant(ir.ArrayType(tile.vector, len(vectors)), ir.Undefined)
    for position, vector in enumerate(vectors):
        packed = builder.insert_value(packed, vector, position)
    return packed


def _unpack(builder: Any, tile: Tile, packed: Any) -> list[Any]:
    return [builder.extract_value(packed, i) for i in range(tile.rows * tile.vectors)]


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
    number, carried = builder.phi(_INDEX), [builder.phi(start.type) for start in starts]
    results: list[Any] = []
    yield number, carried, results
    following = builder.add(number, ir.Constant(_INDEX, 1))
    firsts = [ir.Constant(_INDEX, 0), *starts]
    for phi, first, result in zip([number, *carried], firsts, [following, *results], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(result, builder.block)
    after = builder.append_basic_block("product.end")
    branch = builder.cbranch(builder.icmp_signed("<", following, count), body, after)
    hint = builder.module.add_metadata(["llvm.loop.unroll.disable"])
    label = builder.module.add_metadata([hint, body.name])
    label.operands = (label, hint)  # LLVM wants the list of a loop's hints to begin with itself
    branch.set_metadata("llvm.loop", label)
    builder.position_at_end(after)


# ---------------------------------------------------------------- what kernels call


@intrinsic
def address(typing: Any, array: Any) -> tuple[Any, Callable[..., Any]]:
    """Pointer to the first element of a C-contiguous array; the caller keeps the array alive."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.create_struct_proxy(array)(context, builder, args[0]).data

    pointer: Any = types.CPointer
    return pointer(array.dtype)(array), generate


@intrinsic
def lanes(typing: Any, pointer: Any) -> tuple[Any, Callable[..., Any]]:
    """How many numbers of the pointer's dtype one register holds."""
    count = VECTOR_BYTES * 8 // pointer.dtype.bitwidth
    return types.intp(pointer), lambda *_: ir.Constant(_INDEX, count)


@intrinsic(prefer_literal=True)
def load(
    typing: Any, rows: Any, vectors: Any, matrix: Any, last_row: Any
) -> tuple[Any, Callable[..., Any]]:
    """The tile in the matrix's corner; `rows` and `vectors` are constants."""
    tile = Tile(matrix[0].dtype, rows.literal_value, vectors.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = _row_pointers(builder, args[2], tile, args[3])
        return _pack(builder, tile, [v for p in pointers for v in _load_row(builder, p, tile)])

    return tile(rows, vectors, matrix, types.intp), generate


@intrinsic(prefer_literal=True)
def spread(
    typing: Any, rows: Any, vectors: Any, matrix: Any, last_row: Any
) -> tuple[Any, Callable[..., Any]]:
    """Tile whose every row repeats the first element of the matrix's row."""
    tile = Tile(matrix[0].dtype, rows.literal_value, vectors.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = _row_pointers(builder, args[2], tile, args[3])
        filled = [_splat(builder, builder.load(p), tile.vector) for p in pointers]
        return _pack(builder, tile, [row for row in filled for _ in range(tile.vectors)])

    return tile(rows, vectors, matrix, types.intp), generate


@intrinsic
def store(typing: Any, tile: Any, matrix: Any, last_row: Any) -> tuple[Any, Callable[..., Any]]:
    """Write the tile to the matrix's corner."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows = _row_pointers(builder, args[1], tile, args[2])
        pointers = [p for row in rows for p in _vector_pointers(builder, row, tile)]
        for pointer, vector in zip(pointers, _unpack(builder, tile, args[0]), strict=True):
            builder.store(vector, pointer, align=tile.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(tile, matrix, types.intp), generate


@intrinsic
def add_product(
    typing: Any, tile: Any, left: Any, right: Any, depth: Any, last_row: Any
) -> tuple[Any, Callable[..., Any]]:
    """Tile + left @ right over `depth` >= 1 columns of `left` and rows of `right`."""
    signature = tile(tile, left, right, types.intp, types.intp)
    fma = f"llvm.fma.v{tile.vector.count}f{tile.dtype.bitwidth}"

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(tile.vector, [tile.vector] * 3)
        multiply_add = cgutils.get_or_insert_function(builder.module, kind, fma)
        pointers = _row_pointers(builder, args[1], tile, args[4])
        left_stride = builder.extract_value(args[1], 3)
        values, begin, right_stride, _ = cgutils.unpack_tuple(builder, args[2])
        with _loop(builder, args[3], _unpack(builder, tile, args[0])) as (step, sums, results):
            row = builder.gep(values, [builder.add(begin, builder.mul(step, right_stride))])
            vectors = _load_row(builder, row, tile)
            column = builder.mul(step, left_stride)
            numbers = [builder.load(builder.gep(p, [column])) for p in pointers]
            factors = [_splat(builder, n, tile.vector) for n in numbers]
            pairs = [(factor, vector) for factor in factors for vector in vectors]
            results += [
                builder.call(multiply_add, [*pair, total])
                for pair, total in zip(pairs, sums, strict=True)
            ]
        return _pack(builder, tile, results)

    return signature, generate


@intrinsic
def maximum(typing: Any, tile: Any, floor: Any) -> tuple[Any, Callable[..., Any]]:
    """Tile with every number below `floor` raised to it; NaN stays NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        level = _splat(builder, args[1], tile.vector)
        vectors = _unpack(builder, tile, args[0])
        raised = [builder.select(builder.fcmp_ordered("<", v, level), level, v) for v in vectors]
        return _pack(builder, tile, raised)

    return tile(tile, tile.dtype), generate


@intrinsic
def transpose(typing: Any, source: Any, out: Any) -> tuple[Any, Callable[..., Any]]:
    """Transpose the square in the corner of `source`, `lanes` rows of one vector, to `out`."""
    dtype = source[0].dtype
    tile = Tile(dtype, VECTOR_BYTES * 8 // dtype.bitwidth, 1)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        last = ir.Constant(_INDEX, tile.rows)
        rows = [_load_row(builder, p, tile)[0] for p in _row_pointers(builder, args[0], tile, last)]
        outs = _row_pointers(builder, args[1], tile, last)
        for pointer, vector in zip(outs, _transposed(builder, rows), strict=True):
            target = _vector_pointers(builder, pointer, tile)[0]
            builder.store(vector, target, align=dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(source, out), generate


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Columns of a square of vectors: log2(n) rounds that interleave row i and row i + n / 2."""
    count = len(rows)
    picks = [i // 2 + count * (i % 2) for i in range(2 * count)]
    kind = ir.VectorType(ir.IntType(32), count)
    masks = [ir.Constant(kind, picks[:count]), ir.Constant(kind, picks[count:])]
    for _ in range(count.bit_length() - 1):
        pairs = zip(rows[: count // 2], rows[count // 2 :], strict=True)
        rows = [builder.shuffle_vector(a, b, mask) for a, b in pairs for mask in masks]
    return rows
