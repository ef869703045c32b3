"""Users' functions in the compiler: indices that stay inside of tables, errors of one sentence.

Plain Python raises IndexError outside of a table, and wraps negative indices around. A kernel
checks nothing and would read other memory, and an exception would keep all other lanes from their
step. So in a user's function an index outside of an array or a tuple means its first or last item,
which costs two instructions and vectorises.

A function that is given arrays reads a whole number of them as Python's: numba would add two uint8
as uint64, whose difference with an int64 is a float64.

This is done to numba's statements, before and after their types are known, by intrinsics: see
`hooks.linked_compiler`. What intrinsics and their generators are is said in
`rlcpu.kernels.vectors`; a `table` is an array or a tuple.
"""

from __future__ import annotations

import functools
import linecache
import operator
import re
import types as python_types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic

from rlcpu.kernels import hooks, maths

# ---------------------------------------------------------------- reads


def _make_read(keep_inside: Callable[..., Any], widens: bool) -> Any:
    """Make an intrinsic (table, index) -> `table[index]`, whose index is kept inside of the table.

    Args:
        keep_inside: emits one index that is inside, `clamp` or `clamp_by_branch`.
        widens: whether whole numbers of arrays become int64.
    """

    @intrinsic(prefer_literal=True)
    def read(typing_context, table, index):
        """Return `table[index]`, with the index kept inside."""
        if isinstance(table, types.BaseTuple):
            return _read_of_tuple(table, index)
        index_type, move_inside = _index_inside(table, index, keep_inside)
        kind, get = hooks.generator_of(typing_context, operator.getitem, (table, index_type))
        is_narrow = widens and isinstance(kind, types.Integer) and kind != types.uint64

        def generate(context, builder, signature, values):
            item = get(context, builder, (values[0], move_inside(context, builder, *values)))
            return context.cast(builder, item, kind, types.int64) if is_narrow else item

        return (types.int64 if is_narrow else kind)(table, index), generate

    return read


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


@intrinsic(prefer_literal=True)
def write_item(typing_context, table, index, value):
    """Write `table[index] = value` into an array, with indices kept inside.

    A value that is an array of a shape that does not fit is not written: an exception would keep
    other environments from their step. One row into another goes by `_copy_row`, which allocates
    nothing; all else numba writes.
    """
    if not isinstance(table, types.Array) or not table.mutable:
        raise errors.TypingError("it writes into something else than an array of the state")
    _check_written("an array", table.dtype, value)
    inside, keep_inside = _index_inside(table, index, clamp_by_branch)
    value_kind = types.unliteral(value)
    _, put = hooks.generator_of(typing_context, operator.setitem, (table, inside, value_kind))

    part, get = hooks.generator_of(typing_context, operator.getitem, (table, inside))
    has_shape = isinstance(value_kind, types.Array) and isinstance(part, types.Array)

    def generate(context, builder, signature, values):
        position = keep_inside(context, builder, *values[:2])
        if not has_shape:
            put(context, builder, (values[0], position, values[2]))
            return context.get_dummy_value()
        target = get(context, builder, (values[0], position))  # the part that is written
        pair = (part, target), (value_kind, values[2])
        fits = _fits(context, builder, *pair)
        if part.ndim == value_kind.ndim == 1:  # numbers in a row, which need no memory
            is_row = _is_row_of(context, builder, *pair)
            fits = builder.and_(fits, builder.not_(is_row))
            with builder.if_then(is_row):
                _copy_row(context, builder, *pair)
        context.nrt.decref(builder, part, target)
        with builder.if_then(fits):
            put(context, builder, (values[0], position, values[2]))
        return context.get_dummy_value()

    return types.void(table, index, value_kind), generate


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


def _fits(context: Any, builder: Any, target: Any, source: Any) -> Any:
    """Emit whether an array can be written into another, repeated along its axes of size 1.

    Args:
        context: numba's.
        builder: LLVM's.
        target: type and value of the array that is written.
        source: type and value of the array that is read.
    """
    sizes = []
    for kind, array in (target, source):
        shape = cgutils.create_struct_proxy(kind)(context, builder, array).shape
        sizes.append(cgutils.unpack_tuple(builder, shape)[::-1])
    fits = cgutils.true_bit if source[0].ndim <= target[0].ndim else cgutils.false_bit
    for target_size, source_size in zip(*sizes, strict=False):
        same = builder.icmp_signed("==", target_size, source_size)
        one = builder.icmp_signed("==", source_size, source_size.type(1))
        fits = builder.and_(fits, builder.or_(same, one))
    return fits


def _is_row_of(context: Any, builder: Any, target: Any, source: Any) -> Any:
    """Emit whether `_copy_row` can write an array of one axis into another.

    Both are of one length, and of the same stride unless they are of different dtypes and so of
    different memory. The arguments are those of `_fits`.
    """
    written, read = (
        cgutils.create_struct_proxy(kind)(context, builder, array)
        for kind, array in (target, source)
    )
    pairs = [(written.shape, read.shape)]
    if target[0].dtype == source[0].dtype:
        pairs.append((written.strides, read.strides))
    are_equal = [
        builder.icmp_signed("==", builder.extract_value(first, 0), builder.extract_value(second, 0))
        for first, second in pairs
    ]
    return functools.reduce(builder.and_, are_equal)


def _copy_row(context: Any, builder: Any, target: Any, source: Any) -> None:
    """Emit a loop that copies the numbers of an array of one axis, also where the two overlap.

    Numba's way allocates memory for those that overlap, as those of `queue[0:3] = queue[1:4]` do.
    Here a target behind its source is written from its end. The arguments are those of `_fits`.
    """
    written, read = (
        cgutils.create_struct_proxy(kind)(context, builder, array)
        for kind, array in (target, source)
    )
    (count,) = cgutils.unpack_tuple(builder, written.shape)
    addresses = [builder.ptrtoint(array.data, cgutils.intp_t) for array in (written, read)]
    is_forward = builder.icmp_unsigned("<=", *addresses)
    with cgutils.for_range(builder, count) as loop:
        from_end = builder.sub(builder.sub(count, count.type(1)), loop.index)
        place = builder.select(is_forward, loop.index, from_end)
        to, at = (
            cgutils.get_item_pointer2(
                context, builder, array.data, cgutils.unpack_tuple(builder, array.shape),
                cgutils.unpack_tuple(builder, array.strides), kind.layout, [place],
            )
            for array, (kind, _) in ((written, target), (read, source))
        )  # fmt: skip
        item = context.unpack_value(builder, source[0].dtype, at)
        item = context.cast(builder, item, source[0].dtype, target[0].dtype)
        context.pack_value(builder, target[0].dtype, item, to)


def _index_inside(
    table: Any, index: Any, clamp_one: Callable[..., Any]
) -> tuple[Any, Callable[..., Any]]:
    """Type the index of an array as one that stays inside of the array.

    Args:
        table: type of the array.
        index: type of the index: a whole number, a slice, or a tuple of these.
        clamp_one: emits a whole number that stays inside, `clamp` or `clamp_by_branch`.

    Returns:
        The type of the index that stays inside, and `keep_inside(context, builder, array, index)`,
        which emits it.

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

    def keep_inside(context: Any, builder: Any, array: Any, position: Any) -> Any:
        """Emit the index, or tuple of indices, `position`, moved inside of the array."""
        shape = cgutils.create_struct_proxy(table)(context, builder, array).shape
        sizes = cgutils.unpack_tuple(builder, shape)
        numbers = cgutils.unpack_tuple(builder, position) if is_tuple else [position]
        inside = [
            clamp_one(builder, context.cast(builder, number, kind, types.intp), size)
            if isinstance(kind, _INDICES)
            else number
            for number, kind, size in zip(numbers, kinds, sizes, strict=False)
        ]
        return context.make_tuple(builder, inside_kind, inside) if is_tuple else inside[0]

    return inside_kind, keep_inside


def _check_written(what: str, kind: Any, value: Any, loc: Any = None) -> None:
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


def _prepared(statement: Any, scope: Any, compiler_state: Any, has_arrays: bool) -> Iterator[Any]:
    """Yield the statement, or those that do the same with functions of this module.

    It is one of numba's statements of a function, before types are known. They read and write
    items. If states of environments have arrays (`has_arrays`), they convert what `+=` adds, see
    `fit`, and read NumPy's constants by a name; else they multiply in the place of `x ** 2`, up to
    `x ** 8`: numba's power of a whole number is a loop, which keeps the loop over lanes from
    vectors.
    """
    variables = hooks.item_access(statement)
    if variables is not None:
        read = read_item if has_arrays else read_table
        function = read if len(variables) == 2 else write_item
        yield from hooks.call_statements(function, variables, statement, scope)
        return
    if has_arrays:
        yield from hooks.fit_operand(fit, statement, scope) or (hooks.named_constant(statement),)
        return
    power = hooks.constant_power(statement, compiler_state)
    if power is None or power[1] not in _POWERS:
        yield statement
    else:
        yield from hooks.call_statements(_POWERS[power[1]], (power[0],), statement, scope)


def _make_power(exponent: int) -> Any:
    """Make an intrinsic (x) -> x ** exponent by products, rounded like numba's own power."""

    @intrinsic
    def power(typing_context, x):
        """Return x ** exponent."""
        kind, _ = hooks.generator_of(typing_context, operator.mul, (x, x))
        _, multiply = hooks.generator_of(typing_context, operator.mul, (kind, kind))

        def generate(context, builder, signature, values):
            factor, result = context.cast(builder, values[0], x, kind), None
            for k, bit in enumerate(reversed(f"{exponent:b}")):
                if k:  # factor is x ** 2 ** k
                    factor = multiply(context, builder, (factor, factor))
                if bit == "1":
                    is_first = result is None
                    result = factor if is_first else multiply(context, builder, (result, factor))
            return result

        return kind(x), generate

    return power


_POWERS = {exponent: _make_power(exponent) for exponent in range(2, 9)}


def _pick(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Return one item of a tuple by comparisons.

    Numba's own way is a branch for each, and raises.
    """
    items = cgutils.unpack_tuple(builder, values[0])
    position = context.cast(builder, values[1], signature.args[1], types.intp)
    position = clamp(builder, position, position.type(len(items)))
    picked = items[0]
    for k, item in enumerate(items[1:], 1):
        picked = builder.select(builder.icmp_signed("==", position, position.type(k)), item, picked)
    return hooks.borrowed(context, builder, signature.return_type, picked)


def clamp(builder: Any, index: Any, size: Any) -> Any:
    """Return an index from 0 to size - 1; negative ones count from the end, as in Python."""
    # int() of NaN is poison to LLVM, which could leave the comparisons out: any number will do.
    index = hooks.freeze(builder, index)
    zero, last = index.type(0), builder.sub(size, index.type(1))
    negative = builder.icmp_signed("<", index, zero)
    index = builder.select(negative, builder.add(index, size), index)
    index = builder.select(builder.icmp_signed("<", index, zero), zero, index)
    return builder.select(builder.icmp_signed(">", index, last), last, index)


def clamp_by_branch(builder: Any, index: Any, size: Any) -> Any:
    """Return what `clamp` does, by a branch that is hardly ever taken.

    One step after the other waits for each of the four instructions otherwise, and LLVM leaves one
    comparison out wherever it knows that the index is inside.
    """
    index = hooks.freeze(builder, index)
    start = builder.block
    with cgutils.if_unlikely(builder, builder.icmp_unsigned(">=", index, size)):
        clamped, outside = clamp(builder, index, size), builder.block
    inside = builder.phi(index.type)
    inside.add_incoming(index, start)
    inside.add_incoming(clamped, outside)
    return inside


#: Of the state's arrays, and of tables of constants in functions whose lanes are a register's.
read_item, read_table = _make_read(clamp_by_branch, True), _make_read(clamp, False)

_ALLOCATED = (types.List, types.Set, types.DictType, types.Generator)
_INDICES = (types.Integer, types.IntEnumMember)


def _checked(statement: Any, scope: Any, state: Any, arrays: bool) -> Iterator[Any]:
    """Yield the statement; raise TypingError if it allocates, or writes what a field cannot hold.

    It is one of numba's statements, whose types are known. With `arrays` the function has arrays
    that are not constants.
    """
    assigned = hooks.assigned(statement, state)
    is_array = isinstance(assigned, types.Array) and assigned.mutable and not arrays
    if isinstance(assigned, _ALLOCATED) or is_array:
        raise errors.TypingError(
            f"it makes {_name_of(assigned)}, and kernels allocate nothing", statement.loc
        )
    if field := hooks.written_field(statement, state):
        if isinstance(field[1], types.Array):
            raise errors.TypingError(
                f"it puts another array into a field: write into it, {field[0]}[:] = ...",
                statement.loc,
            )
        _check_written(f"the field {field[0]}", *field[1:], statement.loc)
    yield statement


def _name_of(kind: Any) -> str:
    """Return a type as a user would call it."""
    names = {types.List: "a list", types.Set: "a set", types.DictType: "a dict"}
    names |= {types.Generator: "a generator", types.Array: "an array"}
    return next((name for base, name in names.items() if isinstance(kind, base)), str(kind))


# ---------------------------------------------------------------- whole numbers beside real ones

_WHOLE = (types.Integer, types.Boolean)
_DIVISIONS = {operator.truediv, operator.itruediv}
_POWER = {operator.pow, operator.ipow, pow}
_COMPARISONS = {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}
#: What computes in float64 in numba as soon as a whole number meets a float32.
_MIXED = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, max, min}
_MIXED |= {operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod}
_MIXED |= {*_DIVISIONS, *_POWER, *_COMPARISONS}


def _real_arguments(function: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types of arguments with which a float32 function calls a function or operator.

    Whole numbers become float32 if they meet a float32, are divided, or go into a function of
    mathematics: numba would compute in float64. Other types stay.
    """
    is_real = [types.unliteral(kind) == types.float32 for kind in kinds]
    if not kinds or not all(is_real[k] or isinstance(kinds[k], _WHOLE) for k in range(len(kinds))):
        return kinds
    plain = getattr(function, "py_func", function)
    is_mathematics = getattr(plain, "__module__", "") in ("math", maths.__name__)
    is_mathematics = is_mathematics and plain not in maths.OVERLOADED  # some of which take bits
    is_ufunc = isinstance(function, np.ufunc)
    if any(is_real):
        is_power = function in _POWER and not is_real[-1]  # numba multiplies
        becomes_real = not is_power and (function in _MIXED or is_ufunc or is_mathematics)
    else:
        stays_whole = is_ufunc and any("l" in loop for loop in function.types)
        stays_whole = stays_whole or getattr(plain, "__name__", "") == "clip"
        becomes_real = function in _DIVISIONS or ((is_ufunc or is_mathematics) and not stays_whole)
    return (types.float32,) * len(kinds) if becomes_real else kinds


def _unify(first: Any, second: Any, context: Any, real: Any) -> Any:
    """Return the type of a variable to which values of two types are assigned.

    None where numba's rules are right. They give float64 for a float32 and an int64, where `real`,
    the type of the function's floats, is wanted, and lack NamedTuples. `context` is numba's.
    """
    kinds = types.unliteral(first), types.unliteral(second)
    if real in kinds and any(isinstance(kind, _WHOLE) for kind in kinds):
        return real
    classes = [getattr(kind, "instance_class", None) for kind in kinds]
    are_tuples = all(isinstance(kind, types.BaseTuple) for kind in kinds)
    if not are_tuples or classes[0] is not classes[1] or len(kinds[0]) != len(kinds[1]):
        return None
    items = [context.unify_pairs(*pair) for pair in zip(*kinds, strict=True)]
    return None if None in items else types.BaseTuple.from_types(items, classes[0])


@functools.cache
def type_rules(real: Any) -> hooks.TypeRules:
    """Return the rules of types in a function whose floats are of the type `real`."""
    convert = _real_arguments if real == types.float32 else lambda _, kinds: kinds
    return hooks.TypeRules(convert, functools.partial(_unify, real=real))


@functools.cache
def compiler_of(real: Any) -> type:
    """Return numba's compiler for a scalar function of this library."""
    return hooks.linked_compiler(rules=type_rules(real))


# ---------------------------------------------------------------- errors

#: A sentence for each user's function that numba could not compile.
_failures: dict[python_types.FunctionType, str] = {}


@functools.cache
def user_compiler(arrays: bool, real: Any) -> type:
    """Return numba's compiler for a user's scalar function, which may be given arrays.

    It keeps a sentence on what is wrong with a function in `_failures`. `real` is the type of its
    floats.
    """
    check = functools.partial(_checked, arrays=arrays)
    prepare = functools.partial(_prepared, has_arrays=arrays)
    base = hooks.linked_compiler(check, prepare, unroll=not arrays, rules=type_rules(real))

    class GuardedCompiler(base):  # type: ignore[misc,valid-type]
        def compile_extra(self, function: Any) -> Any:
            try:
                compiled = super().compile_extra(function)
            except errors.NumbaError as error:
                _failures[function] = _sentence(function, error, self.state)
                raise
            _failures.pop(function, None)
            return compiled

    return GuardedCompiler


# ---------------------------------------------------------------- what users are told


def explain(error: Exception, callees: Iterable[Any]) -> None:
    """Raise one sentence for numba's error if one of the functions, callees first, is its cause.

    Raises:
        TypeError: with file, line and text of a user's function.
    """
    for callee in callees:
        if callee.py_func in _failures:
            raise TypeError(_failures[callee.py_func]) from None


def holds_double(kind: Any) -> bool:
    """Tell whether a type is a float64, or a tuple that holds one."""
    if isinstance(kind, types.BaseTuple):
        return any(map(holds_double, kind))
    return getattr(kind, "real", kind) == types.float64  # `real`: of numbers with slopes


def describe_doubles(doubles: list[tuple[python_types.FunctionType, int, str]]) -> str:
    """Return the message for lines of float32 functions that compute in float64.

    Args:
        doubles: function, line, and the variable that is assigned; "" for none.
    """
    lines: dict[Any, str] = {}
    for function, line, name in doubles:
        text = place(function.__code__.co_filename, line, function.__name__)
        lines[function, line] = f"{text} computes {name + ' ' if name else ''}in float64"
    return (
        f"{'; '.join(lines.values())}: a float32 kernel, whose speed that halves, wants math's or "
        "one's own functions of floats in the place of NumPy's"
    )


def _sentence(function: python_types.FunctionType, error: Any, state: Any) -> str:
    """Return what is wrong with a function, and where, from the error and the compiler's state."""
    code = function.__code__
    if "unify" in str(error.msg) and not any(map(holds_double, state.args)):
        for line, variable, kind, operands in hooks.types_before_failure(state):
            if holds_double(kind) and not any(map(holds_double, operands)):
                return describe_doubles([(function, line, variable)])
    path, line = code.co_filename, getattr(error.loc, "line", code.co_firstlineno)
    reason = re.sub(r"\x1b\[[0-9;]*m", "", str(error.msg)).strip()
    # What intrinsics of this module raise begins with these words.
    explained = re.search(r"TypingError: ((?:it|an array) .*)", reason)
    call = re.search(r"found for signature:\s*>+ (.*)", reason)
    reason = f"numba has no {call[1]}" if call else reason.partition("\n")[0]
    reason = explained[1] if explained else reason
    return f"{place(path, line, function.__name__)} cannot be compiled: {reason}"


def place(path: str, line: int, name: str) -> str:
    """Return file and line of a piece of source, and its text."""
    text = linecache.getline(path, line).strip()
    return f"{path}, line {line}, in {name}: `{text}`"
