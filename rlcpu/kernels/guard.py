"""Users' functions in the compiler: reads that stay inside of tables, errors of one sentence.

Plain Python raises IndexError outside of a table, and wraps negative indices around. A kernel
checks nothing and would read other memory, and an exception would keep all other lanes from their
step. So in a user's function an index outside of an array or a tuple means its first or last item,
which costs two instructions and vectorises.
"""

from __future__ import annotations

import functools
import linecache
import operator
import re
import types as python_types
from collections.abc import Iterable, Iterator
from typing import Any

from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic

from rlcpu.kernels import hooks

# ---------------------------------------------------------------- reads


@intrinsic
def read(typing_context, table, index):
    """`table[index]` of an array or a tuple of equal types, with the index kept inside of it."""
    if isinstance(table, types.BaseTuple):
        return table.dtype(table, index), _pick
    several = isinstance(index, types.BaseTuple)
    kinds = index.types if several else (index,)
    whole = types.UniTuple(types.intp, len(kinds)) if several else types.intp
    kind, get = hooks.generator_of(typing_context, operator.getitem, (table, whole))

    def generate(context, builder, signature, values):
        array, position = values
        sizes = cgutils.unpack_tuple(
            builder, cgutils.create_struct_proxy(table)(context, builder, array).shape
        )
        numbers = cgutils.unpack_tuple(builder, position) if several else [position]
        inside = [
            _clamp(builder, context.cast(builder, number, given, types.intp), size)
            for number, given, size in zip(numbers, kinds, sizes, strict=False)
        ]
        position = context.make_tuple(builder, whole, inside) if several else inside[0]
        return get(context, builder, (array, position))

    return kind(table, index), generate


def _pick(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Return one item of a tuple by comparisons.

    Numba's own way is a branch for each, and raises.
    """
    items = cgutils.unpack_tuple(builder, values[0])
    position = context.cast(builder, values[1], signature.args[1], types.intp)
    position = _clamp(builder, position, position.type(len(items)))
    picked = items[0]
    for k, item in enumerate(items[1:], 1):
        picked = builder.select(builder.icmp_signed("==", position, position.type(k)), item, picked)
    return hooks.borrowed(context, builder, signature.return_type, picked)


def _clamp(builder: Any, index: Any, size: Any) -> Any:
    """Return an index from 0 to size - 1; negative ones count from the end, as in Python."""
    # int() of NaN is poison to LLVM, which could leave the comparisons out: any number will do.
    index = hooks.freeze(builder, index)
    zero, last = index.type(0), builder.sub(size, index.type(1))
    negative = builder.icmp_signed("<", index, zero)
    index = builder.select(negative, builder.add(index, size), index)
    index = builder.select(builder.icmp_signed("<", index, zero), zero, index)
    return builder.select(builder.icmp_signed(">", index, last), last, index)


_ALLOCATED = (types.List, types.Set, types.DictType, types.Generator)
_INDICES = (types.Integer, types.IntEnumMember)


def _guarded(statement: Any, scope: Any, state: Any, arrays: bool) -> Iterator[Any]:
    """Return the statement, or several that do the same with `read`.

    With `arrays` the function has arrays that are not constants, and may slice them.
    """
    made = hooks.assigned(statement, state)
    is_array = isinstance(made, types.Array) and made.mutable and not arrays
    if isinstance(made, _ALLOCATED) or is_array:
        raise errors.TypingError(
            f"it makes {_named(made)}, and kernels allocate nothing", statement.loc
        )
    table, index, is_constant = hooks.table_read(statement, state) or (None, None, False)
    if table is None or (isinstance(table, types.BaseTuple) and is_constant):
        yield statement
        return
    kinds = index.types if isinstance(index, types.BaseTuple) else (index,)
    is_table = isinstance(table, types.Array | types.BaseTuple)
    if not is_table or not all(isinstance(kind, _INDICES) for kind in kinds):
        if arrays:
            yield statement
            return
        raise errors.TypingError(
            f"{_named(table)} is read by {_named(index)}: tables take whole numbers", statement.loc
        )
    yield from hooks.call_instead(read, statement, scope, state)


def _named(kind: Any) -> str:
    """Return a type as a user would call it."""
    names = {types.List: "a list", types.Set: "a set", types.DictType: "a dict"}
    names |= {types.Generator: "a generator", types.Array: "an array"}
    return next((name for base, name in names.items() if isinstance(kind, base)), str(kind))


# ---------------------------------------------------------------- errors

#: What numba said of users' functions that it could not compile.
_failures: dict[python_types.FunctionType, str] = {}


@functools.cache
def user_compiler(arrays: bool) -> type:
    """Numba's compiler for a user's scalar function, which may be given arrays: `pipeline_class`.

    It remembers in one sentence what is wrong with a function.
    """

    class Compiler(hooks.linked_compiler(functools.partial(_guarded, arrays=arrays))):  # type: ignore[misc]
        def compile_extra(self, function: Any) -> Any:
            try:
                compiled = super().compile_extra(function)
            except errors.NumbaError as error:
                _failures[function] = _sentence(function, error)
                raise
            _failures.pop(function, None)
            return compiled

    return Compiler


# ---------------------------------------------------------------- what users are told


def explain(error: Exception, callees: Iterable[Any]) -> None:
    """Raise one sentence for numba's error if one of the functions, callees first, is its cause.

    Raises:
        TypeError: with file, line and text of a user's function.
    """
    for callee in callees:
        if callee.py_func in _failures:
            raise TypeError(_failures[callee.py_func]) from None


def _sentence(function: python_types.FunctionType, error: Any) -> str:
    code = function.__code__
    path, line = code.co_filename, getattr(error.loc, "line", code.co_firstlineno)
    reason = re.sub(r"\x1b\[[0-9;]*m", "", str(error.msg)).strip()
    call = re.search(r"found for signature:\s*>+ (.*)", reason)
    reason = f"numba has no {call[1]}" if call else reason.partition("\n")[0]
    return f"{place(path, line, function.__name__)} cannot be compiled: {reason}"


def place(path: str, line: int, name: str) -> str:
    """Return file and line of a piece of source, and its text."""
    text = linecache.getline(path, line).strip()
    return f"{path}, line {line}, in {name}: `{text}`"
