"""Items of arrays and tuples in users' functions, whose indices stay inside.

Plain Python raises IndexError outside of a table, and wraps negative indices around. A kernel
checks nothing and would read other memory, and an exception would keep all other lanes from their
step. So in a user's function an index outside of an array or a tuple means its first or last item,
which costs two instructions and vectorises.

A whole number that is read of an array is Python's: numba would add two uint8 as uint64, whose
difference with an int64 is a float64.

`rlcpu.kernels.compiler.user_compiler` puts these intrinsics in the place of numba's statements.
What intrinsics and their generators are is said in `rlcpu.kernels.machine.vectors`; a `table` is an
array or a tuple.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic

from rlcpu.kernels.compiler import hooks
from rlcpu.kernels.compiler.scopes import attach_scopes

_INDICES = (types.Integer, types.IntEnumMember)

# ---------------------------------------------------------------- indices that stay inside


def clamp(builder: Any, index: Any, size: Any) -> Any:
    """Emit an index from 0 to size - 1; negative ones count from the end, as in Python."""
    # int() of NaN is poison to LLVM, which could leave the comparisons out: any number will do.
    index = hooks.freeze(builder, index)
    zero, last = index.type(0), builder.sub(size, index.type(1))
    negative = builder.icmp_signed("<", index, zero)
    index = builder.select(negative, builder.add(index, size), index)
    index = builder.select(builder.icmp_signed("<", index, zero), zero, index)
    return builder.select(builder.icmp_signed(">", index, last), last, index)


def clamp_by_branch(builder: Any, index: Any, size: Any) -> Any:
    """Emit what `clamp` does, by a branch that is hardly ever taken.

    One step after the other waits for each of the four instructions otherwise, and LLVM leaves one
    comparison out wherever it knows that the index is inside.
    """
    index = hooks.freeze(builder, index)
    start = builder.block
    is_outside = builder.icmp_unsigned(">=", index, size)  # a negative index is large, unsigned
    with cgutils.if_unlikely(builder, is_outside):
        clamped, outside = clamp(builder, index, size), builder.block
    inside = builder.phi(index.type)
    inside.add_incoming(index, start)
    inside.add_incoming(clamped, outside)
    return inside


class _Inside(NamedTuple):
    """Conversion of an array's index to one that stays inside."""

    kind: Any  # numba's type of the new index
    #: (context, builder, array, index) -> the new index, which it emits.
    move: Callable[..., Any]


def _index_inside(table: Any, index: Any, clamp_one: Callable[..., Any]) -> _Inside:
    """Return how an index of an array stays inside, from the types of both.

    `index` is a whole number, a slice, which stays as it is, or a tuple of these. `clamp_one` emits
    a whole number that stays inside: `clamp` or `clamp_by_branch`.

    Raises:
        numba.core.errors.TypingError: the table is no array, or the index of another type.
    """
    is_tuple = isinstance(index, types.BaseTuple)
    kinds = index.types if is_tuple else (index,)
    inside_kinds = [types.intp if isinstance(kind, _INDICES) else kind for kind in kinds]
    if not isinstance(table, types.Array):
        raise errors.TypingError(f"it reads an item of {table}, which has none")
    if not all(isinstance(kind, types.Integer | types.SliceType) for kind in inside_kinds):
        wanted = "whole numbers and slices"
        raise errors.TypingError(f"an array takes {wanted}, and is given {types.unliteral(index)}")
    if len(kinds) > table.ndim:
        raise errors.TypingError(f"it gives {len(kinds)} indices to an array of {table.ndim} axes")
    inside_kind = types.BaseTuple.from_types(inside_kinds) if is_tuple else inside_kinds[0]

    def move(context: Any, builder: Any, array: Any, position: Any) -> Any:
        """Emit the index, or tuple of indices, `position`, moved inside of the array."""
        shape = cgutils.create_struct_proxy(table)(context, builder, array).shape
        inside = cgutils.unpack_tuple(builder, position) if is_tuple else [position]
        sizes = cgutils.unpack_tuple(builder, shape)[: len(kinds)]
        for axis, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
            if isinstance(kind, _INDICES):
                number = context.cast(builder, inside[axis], kind, types.intp)
                inside[axis] = clamp_one(builder, number, size)
        return context.make_tuple(builder, inside_kind, inside) if is_tuple else inside[0]

    return _Inside(inside_kind, move)


# ---------------------------------------------------------------- reads


def _make_read(clamp_one: Callable[..., Any]) -> Any:
    """Make an intrinsic (table, index) -> `table[index]`, whose index is kept inside of the table.

    `clamp_one` is that of `_index_inside`. Whole numbers of arrays become int64. Without an alias
    scope a read of a constant would keep the loop over lanes from vectors: LLVM takes it for memory
    that the loop writes.
    """

    @intrinsic(prefer_literal=True)
    def read(typing_context, table, index):
        """Return `table[index]`, with the index kept inside."""
        if isinstance(table, types.BaseTuple):
            return _read_of_tuple(table, index)
        inside = _index_inside(table, index, clamp_one)
        kind, get = hooks.generator_of(typing_context, operator.getitem, (table, inside.kind))
        is_narrow = isinstance(kind, types.Integer) and kind != types.uint64

        def generate(context, builder, signature, values):
            array, position = values
            position = inside.move(context, builder, array, position)
            first = len(builder.block.instructions)
            item = get(context, builder, (array, position))
            if not table.mutable:  # a constant
                attach_scopes(builder, ("table",), first)
            return context.cast(builder, item, kind, types.int64) if is_narrow else item

        return (types.int64 if is_narrow else kind)(table, index), generate

    return read


#: Of the state's arrays, and of tables of constants in functions whose lanes are a register's.
read_item, read_table = _make_read(clamp_by_branch), _make_read(clamp)


def _read_of_tuple(table: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """Return signature and generator of `table[index]`, from the types of a tuple and an index.

    A constant index that is outside is refused; others are kept inside by `_pick`.
    """
    if not isinstance(index, types.IntegerLiteral):
        if not isinstance(index, _INDICES):
            index_type = types.unliteral(index)
            raise errors.TypingError(f"it reads a tuple by {index_type}: tuples take whole numbers")
        return types.unliteral(table).dtype(table, index), _pick
    place = index.literal_value
    if not -len(table) <= place < len(table):
        raise errors.TypingError(f"it reads item {place} of a tuple of {len(table)}")
    kind = table.types[place]

    def generate(context, builder, signature, values):
        item = builder.extract_value(values[0], place % len(table))
        return hooks.borrowed(context, builder, kind, item)

    return kind(table, index), generate


def _pick(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Emit one item of a tuple, chosen by comparisons: numba's way is a branch each, and raises."""
    table, index = values
    items = cgutils.unpack_tuple(builder, table)
    position = context.cast(builder, index, signature.args[1], types.intp)
    position = clamp(builder, position, position.type(len(items)))
    picked = items[0]
    for k, item in enumerate(items[1:], 1):
        picked = builder.select(builder.icmp_signed("==", position, position.type(k)), item, picked)
    return hooks.borrowed(context, builder, signature.return_type, picked)


# ---------------------------------------------------------------- writes


def check_written(what: str, kind: Any, value: Any, loc: Any = None) -> None:
    """Raise TypingError for a real number that is written into whole ones or bools.

    Args:
        what: "an array" or a field, for the message.
        kind: numba's type of what is there.
        value: type of what is written.
        loc: where in the source; None if numba knows.
    """
    real = getattr(value, "dtype", value)
    if isinstance(real, types.Float) and not isinstance(kind, types.Float):
        fitting = "a comparison" if kind == types.boolean else "int()"
        raise errors.TypingError(f"it writes a float into {what} of {kind}: use {fitting}", loc)


@intrinsic(prefer_literal=True)
def write_item(typing_context, table, index, value):
    """Write `table[index] = value` into an array, with indices kept inside.

    A value that is an array of a shape that does not fit is not written: an exception would keep
    other environments from their step.
    """
    if not isinstance(table, types.Array) or not table.mutable:
        raise errors.TypingError("it writes into something else than an array of the state")
    check_written("an array", table.dtype, value)
    value_kind = types.unliteral(value)
    inside = _index_inside(table, index, clamp_by_branch)
    access = table, inside.kind
    _, put = hooks.generator_of(typing_context, operator.setitem, (*access, value_kind))
    part_kind, get = hooks.generator_of(typing_context, operator.getitem, access)
    are_arrays = isinstance(value_kind, types.Array) and isinstance(part_kind, types.Array)

    def generate(context, builder, signature, values):
        array, position, new = values
        position = inside.move(context, builder, array, position)
        if not are_arrays:
            put(context, builder, (array, position, new))
            return context.get_dummy_value()
        part = get(context, builder, (array, position))  # a view of what is written
        target, source = (
            _TypedArray(kind, cgutils.create_struct_proxy(kind)(context, builder, each))
            for kind, each in ((part_kind, part), (value_kind, new))
        )
        is_numbas = _fits(builder, target, source)
        if part_kind.ndim == value_kind.ndim == 1:
            is_row = _is_row_of(builder, target, source)
            is_numbas = builder.and_(is_numbas, builder.not_(is_row))
            with builder.if_then(is_row):
                _copy_row(context, builder, target, source)
        context.nrt.decref(builder, part_kind, part)  # `get` counted one more user of its memory
        with builder.if_then(is_numbas):
            put(context, builder, (array, position, new))
        return context.get_dummy_value()

    return types.void(table, index, value_kind), generate


class _TypedArray(NamedTuple):
    """An array in a generator."""

    kind: Any  # numba's type
    parts: Any  # numba's structure: `data`, `shape`, `strides` and more, LLVM's values


def _fits(builder: Any, target: _TypedArray, source: _TypedArray) -> Any:
    """Emit whether an array can be written into another, repeated along its axes of size 1."""
    sizes = [cgutils.unpack_tuple(builder, each.parts.shape)[::-1] for each in (target, source)]
    fits = cgutils.true_bit if source.kind.ndim <= target.kind.ndim else cgutils.false_bit
    for target_size, source_size in zip(*sizes, strict=False):  # from the last axis on
        same = builder.icmp_signed("==", target_size, source_size)
        one = builder.icmp_signed("==", source_size, source_size.type(1))
        fits = builder.and_(fits, builder.or_(same, one))
    return fits


def _is_row_of(builder: Any, target: _TypedArray, source: _TypedArray) -> Any:
    """Emit whether `_copy_row` can write an array of one axis into another.

    Both are of one length; and of the same stride, unless they are of different dtypes and so of
    different memory.
    """
    pairs = [(target.parts.shape, source.parts.shape)]
    if target.kind.dtype == source.kind.dtype:
        pairs.append((target.parts.strides, source.parts.strides))
    are_equal = [
        builder.icmp_signed("==", builder.extract_value(first, 0), builder.extract_value(second, 0))
        for first, second in pairs
    ]
    return functools.reduce(builder.and_, are_equal)


def _copy_row(context: Any, builder: Any, target: _TypedArray, source: _TypedArray) -> None:
    """Emit a loop that copies the numbers of an array of one axis, also where the two overlap.

    Numba's way allocates memory for those that overlap, as those of `queue[0:3] = queue[1:4]` do.
    Here a target behind its source is written from its end.
    """

    def pointer_in(array: _TypedArray, position: Any) -> Any:
        """Emit the pointer to a number of an array."""
        shape = cgutils.unpack_tuple(builder, array.parts.shape)
        strides, layout = cgutils.unpack_tuple(builder, array.parts.strides), array.kind.layout
        data, indices = array.parts.data, [position]
        return cgutils.get_item_pointer2(context, builder, data, shape, strides, layout, indices)

    (count,) = cgutils.unpack_tuple(builder, target.parts.shape)
    addresses = [builder.ptrtoint(each.parts.data, cgutils.intp_t) for each in (target, source)]
    is_forward = builder.icmp_unsigned("<=", *addresses)
    with cgutils.for_range(builder, count) as loop:
        from_end = builder.sub(builder.sub(count, count.type(1)), loop.index)
        position = builder.select(is_forward, loop.index, from_end)
        to, at = pointer_in(target, position), pointer_in(source, position)
        item = context.unpack_value(builder, source.kind.dtype, at)
        item = context.cast(builder, item, source.kind.dtype, target.kind.dtype)
        context.pack_value(builder, target.kind.dtype, item, to)


@intrinsic
def fit(typing_context, target, value):
    """Return what `target += value` adds: to an array of whole numbers one of the array's dtype.

    Numba refuses an int64 there, which NumPy takes from a Python number.
    """
    kind = types.unliteral(value)
    if isinstance(target, types.Array) and isinstance(target.dtype, types.Integer):
        kind = target.dtype if isinstance(kind, types.Integer) else kind

    def generate(context, builder, signature, values):
        number = context.cast(builder, values[1], value, kind)
        return hooks.borrowed(context, builder, kind, number)

    return kind(target, value), generate


# ---------------------------------------------------------------- powers


def _make_power(exponent: int) -> Any:
    """Make an intrinsic (x) -> x ** exponent by products, rounded like numba's own power."""
    bits = [exponent >> k & 1 for k in range(exponent.bit_length())]

    @intrinsic
    def power(typing_context, x):
        """Return x ** exponent: the product of x ** (2 ** k) for each bit k of the exponent."""
        kind, _ = hooks.generator_of(typing_context, operator.mul, (x, x))
        _, multiply = hooks.generator_of(typing_context, operator.mul, (kind, kind))

        def generate(context, builder, signature, values):
            square, result = context.cast(builder, values[0], x, kind), None
            for k, bit in enumerate(bits):
                if k:
                    square = multiply(context, builder, (square, square))
                if bit and result is None:
                    result = square
                elif bit:
                    result = multiply(context, builder, (result, square))
            return result

        return kind(x), generate

    return power


#: Whole exponents -> intrinsics for them. Numba's own power of a whole number is a loop, which
#: keeps the loop over lanes from vectors.
POWERS = {exponent: _make_power(exponent) for exponent in range(2, 9)}
