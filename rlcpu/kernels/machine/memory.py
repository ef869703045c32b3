"""Loads and stores of vectors, copies of bytes, and what the processor is told about memory.

`source`, `target` and `pointer` are pointers (`address`, `pointer_to`) or contiguous arrays, and
positions are counted in their numbers. A pointer is cheaper to pass on: an array costs two atomic
counts. Nothing is checked here, and the caller keeps the arrays alive. `registers`, a constant,
says how many registers a vector fills; a vector of a cache line has `ONE_LINE` of them.

What intrinsics and their generators are is said in `rlcpu.kernels.machine.vectors`. An argument
that may be left out has the type `none` then, and its LLVM value means nothing.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.vectors import (
    BYTES,
    I8,
    I32,
    I64,
    Vector,
    constant_vector,
    emit_call,
    lanes_of,
    mask_of,
    splat,
    type_suffix,
    vector_type,
)
from rlcpu.kernels.machine.vectors import VECTOR_BYTES as VECTOR_BYTES

LINE = 64  # bytes of a cache line
ONE_LINE = LINE // VECTOR_BYTES


# NumPy's `PyArrayObject` is the head of all Python objects, and then `char *data`.
_HEAD = object.__basicsize__
_pointer_at = ctypes.c_void_p.from_address


def array_address(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first number.

    From the memory of the array itself: `__array_interface__` and `ctypes`, which describe all of
    it, take ten times as long, most of a small call.
    """
    return _pointer_at(id(array) + _HEAD).value or 0


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return zeros that begin at a cache line: a vector across two takes twice as long to store."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + LINE - 1, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + size].view(dtype).reshape(shape)


# ---------------------------------------------------------------- pointers


@intrinsic
def address(typing, array):
    """Return a pointer to the first number of a contiguous array; the caller keeps it alive."""
    pointer = types.CPointer(array.dtype)
    return pointer(array), lambda context, builder, _, args: _data(context, builder, array, args[0])


@intrinsic
def place_of(typing, array, position):
    """Return the address of a number of a contiguous array, or behind a pointer."""

    def generate(context, builder, signature, args):
        return builder.ptrtoint(pointer_at(context, builder, array, *args), I64)

    return types.intp(array, types.intp), generate


@intrinsic
def pointer_to(typing, place, like):
    """Return a pointer to numbers of the dtype of `like`, of the address of the first.

    Kernels that take addresses serve read-only and strided arrays without being compiled for each.
    """
    dtype = types.unliteral(like)

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(dtype)(types.intp, dtype), generate


@intrinsic
def call_at(typing, function, values):
    """Call the C function at an address, see `compile.c_function`, with numbers and pointers."""

    def generate(context, builder, signature, args):
        place, tuple_of_words = args
        words = cgutils.unpack_tuple(builder, tuple_of_words, len(values))
        kind = ir.FunctionType(ir.VoidType(), [word.type for word in words])
        builder.call(builder.inttoptr(place, kind.as_pointer()), words)
        return context.get_dummy_value()

    return types.void(types.int64, values), generate


def make_stack_zeros(count: int) -> Any:
    """Make an intrinsic () -> the address of `count` bytes on the caller's stack, zeros.

    They begin at a cache line, last until the caller returns, and are zeroed by every call.
    """
    kind = ir.ArrayType(I8, count)

    @intrinsic
    def stack_zeros(typing):
        def generate(context, builder, signature, args):
            memory = cgutils.alloca_once(builder, kind)  # of which a loop has one, too
            memory.align = LINE
            cgutils.memset(builder, builder.bitcast(memory, I8.as_pointer()), I64(count), 0)
            return builder.ptrtoint(memory, I64)

        return types.intp(), generate

    return stack_zeros


@inline(exact=True)
def array_at(address, shape, like):
    """Return the C-contiguous array at an address; whoever owns its memory keeps it alive."""
    return carray(pointer_to(address, like), shape)


@intrinsic
def shifted(typing, pointer, by):
    """Return the pointer moved by so many numbers."""
    return pointer(pointer, types.intp), lambda _, builder, __, args: builder.gep(args[0], args[1:])


@intrinsic
def part(typing, source, begin, count):
    """Return so many numbers from a position on, as an array.

    A slice is checked against the array, and counted, which is most of the code of a short
    function.
    """
    kind = types.Array(source.dtype, 1, "C")

    def generate(context, builder, signature, args):
        start, first, size = args
        array = make_array(kind)(context, builder)
        itemsize = I64(context.get_abi_sizeof(array.data.type.pointee))
        data = pointer_at(context, builder, source, start, first)
        populate_array(array, data, [size], [itemsize], itemsize, meminfo=None, parent=None)
        return array._getvalue()

    return kind(source, types.intp, types.intp), generate


@intrinsic
def to_line(typing, pointer, position):
    """Return the count of numbers before the next one that a whole vector may be aligned to.

    With vectors of 64 bytes that is the next cache line; always fewer than a vector holds.
    """

    def generate(context, builder, signature, args):
        place = builder.ptrtoint(pointer_at(context, builder, pointer, *args), I64)
        bytes_ahead = builder.and_(builder.neg(place), I64(VECTOR_BYTES - 1))  # a power of two
        return builder.udiv(bytes_ahead, I64(pointer.dtype.bitwidth // 8))

    return types.intp(pointer, types.intp), generate


# ---------------------------------------------------------------- LLVM pieces


def _data(context: Any, builder: Any, kind: Any, start: Any) -> Any:
    """Emit a pointer to the first number of an array; return a pointer as it is.

    `kind` is numba's type of `start`, an array or a pointer.
    """
    if isinstance(kind, types.Array):
        return cgutils.create_struct_proxy(kind)(context, builder, start).data
    return start


def pointer_at(
    context: Any, builder: Any, kind: Any, start: Any, position: Any, *, to: Any = None
) -> Any:
    """Emit a pointer to a position in an array or behind a pointer.

    `kind` is numba's type of `start`; `to` is LLVM's type of what is pointed to, if it is not the
    dtype.
    """
    pointer = builder.gep(_data(context, builder, kind, start), [position])
    return builder.bitcast(pointer, to.as_pointer()) if to else pointer


def _optional(kind: Any, argument: Any) -> Any:
    """Return numba's type of an argument that may be left out."""
    return types.none if argument is None else kind


def _lanes_below(builder: Any, stop: Any, count: int) -> Any:
    """Emit a mask of `count` lanes: whether the number of the lane is below `stop`."""
    return builder.icmp_signed("<", constant_vector(range(count), I64), splat(builder, stop, count))


# LLVM 22 took the operand for the alignment away, which had been a constant. It still reads code
# with the operand, older releases none without, and no other instruction is as good in all of them:
# `llvm.vp.load` takes a blend more. An alignment of 1 gives the same instructions as the true one,
# with AVX-512, AVX2 and SSE2, and is what leaving out the attribute means.
_ALIGNMENT = [] if binding.llvm_version_info >= (22,) else [ir.Constant(I32, 1)]


def load_vector(
    builder: Any, kind: Any, pointer: Any, mask: Any = None, other: Any = None, align: int = 0
) -> Any:
    """Emit the load of a vector of LLVM's type `kind` from a pointer, and return it.

    Lanes that are not set in `mask` are not read, and have the number of the vector `other`.
    `align` are bytes; 0 for those of a number.
    """
    place = builder.bitcast(pointer, kind.as_pointer())
    if mask is None:
        return builder.load(place, align=align or BYTES[kind.element])
    name = f"llvm.masked.load.{type_suffix(kind)}.p0"
    return emit_call(builder, name, kind, [place, *_ALIGNMENT, mask, other])


def store_vector(builder: Any, vector: Any, pointer: Any, mask: Any = None, align: int = 0) -> None:
    """Emit the store of a vector to a pointer; see `load_vector`."""
    place = builder.bitcast(pointer, vector.type.as_pointer())
    if mask is None:
        builder.store(vector, place, align=align or BYTES[vector.type.element])
        return
    name = f"llvm.masked.store.{type_suffix(vector.type)}.p0"
    emit_call(builder, name, ir.VoidType(), [vector, place, *_ALIGNMENT, mask])


# ---------------------------------------------------------------- vectors


@intrinsic(prefer_literal=True)
def load(typing, source, position, registers, count=None, other=None):
    """Return the numbers from a position on; with a count only so many, and then `other`."""
    vector = vector_type(source.dtype, registers)
    optional = _optional(types.intp, count), _optional(source.dtype, other)

    def generate(context, builder, signature, args):
        start, first, _, size, fill = args
        place, mask, others = pointer_at(context, builder, source, start, first), None, None
        if count is not None:
            mask = _lanes_below(builder, size, vector.count)
            others = splat(builder, fill, vector.count)
        return load_vector(builder, vector.code, place, mask, others)

    return vector(source, types.intp, registers, *optional), generate


@intrinsic
def store(typing, vector, target, position, count=None):
    """Write all numbers, or so many, from a position on."""

    def generate(context, builder, signature, args):
        numbers, start, first, size = args
        mask = _lanes_below(builder, size, vector.count) if count is not None else None
        store_vector(builder, numbers, pointer_at(context, builder, target, start, first), mask)
        return context.get_dummy_value()

    return types.void(vector, target, types.intp, _optional(types.intp, count)), generate


@intrinsic
def load_mask(typing, flags, position, like, count=None):
    """Tell which bytes from a position on are not 0, as many as the vector `like` has numbers.

    Given a count only so many are read, and the rest is unset. Kernels take `flags.view(np.uint8)`,
    because numba's pointers to bool cannot be read.
    """

    def generate(context, builder, signature, args):
        start, first, _, size = args
        zeros = ir.VectorType(I8, like.count)(None)
        mask = _lanes_below(builder, size, like.count) if count is not None else None
        place = pointer_at(context, builder, flags, start, first)
        bytes_of_flags = load_vector(builder, zeros.type, place, mask, zeros)
        return builder.icmp_unsigned("!=", bytes_of_flags, zeros)

    kinds = flags, types.intp, like, _optional(types.intp, count)
    return mask_of(like)(*kinds), generate


# ---------------------------------------------------------------- caches


def _make_prefetch(level: int) -> Any:
    """Make an intrinsic that asks for a cache line, to the cache of a level."""

    @intrinsic
    def prefetch(typing, source, position):
        """Ask for the cache line of a position; any position is harmless."""

        def generate(context, builder, signature, args):
            line = pointer_at(context, builder, source, *args, to=I8)
            is_write, locality, is_data = 0, 4 - level, 1  # 3 is the first cache, 2 the second
            hints = map(I32, (is_write, locality, is_data))
            emit_call(builder, "llvm.prefetch.p0", ir.VoidType(), [line, *hints])
            return context.get_dummy_value()

        return types.void(source, types.intp), generate

    return prefetch


#: To the first cache, or to the second one what the first would not keep until it is read.
prefetch, prefetch_far = _make_prefetch(1), _make_prefetch(2)


@intrinsic
def stream(typing, vector, target, position):
    """Write all numbers past the caches; the address is a multiple of the register's size.

    An ordinary store reads the line that it overwrites, which is a sixth of the traffic of a loop
    with four inputs and one output. Call `fence` after the last one.
    """

    def generate(context, builder, signature, args):
        numbers, start, first = args
        place = pointer_at(context, builder, target, start, first, to=vector.code)
        instruction = builder.store(numbers, place, align=VECTOR_BYTES)
        is_set = builder.module.add_metadata([I32(1)])  # the form that LLVM wants of this mark
        instruction.set_metadata("nontemporal", is_set)
        return context.get_dummy_value()

    return types.void(vector, target, types.intp), generate


@intrinsic
def fence(typing):
    """Let no other thread see later stores before streamed ones."""

    def generate(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


# ---------------------------------------------------------------- bytes


@intrinsic
def copy_bytes(typing, target, to, source, begin, count):
    """Copy `count` bytes from `source[begin]` to `target[to]`, which do not overlap.

    By the C library, which suits rows of any size; a loop is as fast at 400 bytes.
    """

    def generate(context, builder, signature, args):
        target_start, target_place, source_start, source_place, size = args
        out = pointer_at(context, builder, target, target_start, target_place)
        row = pointer_at(context, builder, source, source_start, source_place)
        cgutils.raw_memcpy(builder, out, row, size, I64(1))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


@intrinsic
def copy_word(typing, target, to, source, begin, word):
    """Copy a number of the type of `word` from the bytes at source[begin] to those at target[to].

    The bytes need not be aligned to the number.
    """

    def generate(context, builder, signature, args):
        target_start, target_place, source_start, source_place, _ = args
        kind = ir.IntType(8 * context.get_abi_sizeof(context.get_data_type(word)))
        out = pointer_at(context, builder, target, target_start, target_place, to=kind)
        row = pointer_at(context, builder, source, source_start, source_place, to=kind)
        builder.store(builder.load(row, align=1), out, align=1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, word), generate


@inline(exact=True)
def stream_bytes(target, to, source, begin, count):
    """Copy bytes past the caches, for what is not read again soon; `fence` after the last one.

    Whole cache lines of the target are streamed; the bytes before and after them are not.
    """
    first_line = min(to_line(target, to), count)
    copy_bytes(target, to, source, begin, first_line)
    rest = count - (count - first_line) % LINE
    for k in range(first_line, rest, LINE):
        stream(load(source, begin + k, ONE_LINE), target, to + k)
    copy_bytes(target, to + rest, source, begin + rest, count - rest)


# ---------------------------------------------------------------- squares


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Emit the transposed square: of n vectors of n numbers those of their numbers 0, 1, ...

    `_shuffle_rows` leaves rows and columns in another order. Which that is, is found by shuffling
    the numbers 0 to n * n - 1 here; then rows are taken, and columns returned, in the order that
    undoes it.
    """
    kind, count = rows[0].type, len(rows)

    def emit_shuffle(a: Any, b: Any, picks: Any) -> Any:
        return builder.shuffle_vector(a, b, constant_vector(picks.tolist()))

    numbers = np.arange(count**2).reshape(count, count)  # number j of row i is i * n + j
    shuffled = np.array(
        _shuffle_rows(list(numbers), kind, lambda a, b, picks: np.append(a, b)[picks])
    )
    row_order, column_order = np.argsort(shuffled[0] // count), np.argsort(shuffled[:, 0] % count)
    columns = _shuffle_rows([rows[row] for row in row_order], kind, emit_shuffle)
    return [columns[column] for column in column_order]


def _shuffle_rows(rows: list[Any], kind: Any, shuffle: Callable[[Any, Any, Any], Any]) -> list[Any]:
    """Shuffle pairs of n rows in log2(n) passes: each result holds one number of every row.

    A pass makes two new rows of rows k and n / 2 + k: numbers of both, interleaved one by one. Four
    rows abcd, efgh, ijkl, mnop become aibj, ckdl, emfn, gohp, and these aeim, bfjn, cgko, dhlp.

    Wide vectors are cut into groups of 16 bytes: numbers are interleaved in groups first, then
    groups as a whole. Shuffles inside of groups take one cycle, those across three: with passes
    that interleave whole vectors a tridiagonal solver of rows takes 8 % longer.

    Args:
        rows: vectors of n numbers.
        kind: LLVM's type of these.
        shuffle: (row a, row b, picks) -> the numbers at the positions `picks` of both together.
    """
    group, half = 16 // BYTES[kind.element], len(rows) // 2  # numbers of a group
    positions = np.arange(2 * len(rows)).reshape(2, -1, group)  # row of the pair, group, number
    # Of every group of both rows the lower half, number by number; `group // 2` on, the upper half.
    inside = positions[:, :, : group // 2].transpose(1, 2, 0).ravel()
    # Every second group of both rows; `group` on, the others.
    across = positions[:, ::2].ravel()
    passes = [(inside, group // 2)] * (group.bit_length() - 1)  # log2(group)
    passes += [(across, group)] * ((len(rows) // group).bit_length() - 1)
    for first_picks, to_second in passes:
        pairs = list(zip(rows[:half], rows[half:], strict=True))
        both_picks = first_picks, first_picks + to_second
        rows = [shuffle(a, b, picks) for a, b in pairs for picks in both_picks]
    return rows


# ---------------------------------------------------------------- tiles
#
# A tile is a few numbers of each of many rows, moved from row-major memory to vectors across rows:
# its row j, a vector, holds number j of every row. There are one or more times as many rows as a
# register has numbers, moved a square at a time, transposed in registers. A tile begins at a cache
# line.


def _squares(
    builder: Any, vector: Any, memory: Any, starts: Any, position: Any, tile: Any
) -> Iterator[tuple[int, list[Any], list[Any]]]:
    """Yield the first row of each square of a tile, and pointers to its rows and columns.

    Rows are in row-major memory; columns, parts of the tile's vectors of the type `vector`, in the
    tile. The others are LLVM's values of arguments of `load_tile`; `memory` is its source.
    """
    lanes = lanes_of(vector.dtype)
    for first in range(0, vector.count, lanes):
        begins = [builder.load(builder.gep(starts, [I64(first + row)])) for row in range(lanes)]
        rows = [builder.gep(memory, [builder.add(begin, position)]) for begin in begins]
        columns = [builder.gep(tile, [I64(row * vector.count + first)]) for row in range(lanes)]
        yield first, rows, columns


@intrinsic(prefer_literal=True)
def load_tile(typing, source, starts, position, tile, registers, span=None, other=None):
    """Read some numbers of every row, from `position` on, into a tile; see above.

    Row i begins at `starts[i]` of `source`. With L numbers in a register there are L * registers
    rows, of which L numbers each are read: number j of all rows is vector j of the tile. With a
    span (first, stops), row i has `other` in place of numbers before `first` and from `stops[i]`
    on, which are not read.
    """
    vector, one = vector_type(source.dtype, registers), Vector(source.dtype, lanes_of(source.dtype))
    optional = _optional(span, span), _optional(source.dtype, other)

    def generate(context, builder, signature, args):
        memory, begins, start, out, _, limits, fill = args
        mask = others = None
        if span is not None:
            first, stops = cgutils.unpack_tuple(builder, limits)
            others = splat(builder, fill, one.count)
            steps = constant_vector(range(one.count), I64)
            positions = builder.add(splat(builder, start, one.count), steps)
            is_begun = builder.icmp_signed(">=", positions, splat(builder, first, one.count))
        for first_row, rows, columns in _squares(builder, vector, memory, begins, start, out):
            loaded = []
            for row, pointer in enumerate(rows, first_row):
                if span is not None:
                    stop = splat(builder, builder.load(builder.gep(stops, [I64(row)])), one.count)
                    is_before_stop = builder.icmp_signed("<", positions, stop)
                    mask = builder.and_(is_begun, is_before_stop)
                loaded.append(load_vector(builder, one.code, pointer, mask, others))
            for numbers, pointer in zip(transposed(builder, loaded), columns, strict=True):
                store_vector(builder, numbers, pointer, align=VECTOR_BYTES)
        return context.get_dummy_value()

    return types.void(source, starts, types.intp, source, registers, *optional), generate


@intrinsic(prefer_literal=True)
def store_tile(typing, tile, target, starts, position, registers, count=None):
    """Write a tile to the numbers of every row from `position` on, all of them or `count` each."""
    vector, one = vector_type(target.dtype, registers), Vector(target.dtype, lanes_of(target.dtype))

    def generate(context, builder, signature, args):
        numbers, memory, begins, start, _, size = args
        mask = _lanes_below(builder, size, one.count) if count is not None else None
        for _, rows, parts in _squares(builder, vector, memory, begins, start, numbers):
            columns = [load_vector(builder, one.code, each, align=VECTOR_BYTES) for each in parts]
            for row, pointer in zip(transposed(builder, columns), rows, strict=True):
                store_vector(builder, row, pointer, mask)
        return context.get_dummy_value()

    kinds = target, target, starts, types.intp, registers, _optional(types.intp, count)
    return types.void(*kinds), generate
