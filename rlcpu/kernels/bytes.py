"""Copies of rows of any type, as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic as _intrinsic

# Their types do not fit what they are: kernels call an intrinsic without its first argument.
intrinsic: Any = _intrinsic
cgutils: Any = _cgutils

_I64 = ir.IntType(64)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = cgutils.create_struct_proxy(kind)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def copy(
    typing: Any, target: Any, to: Any, source: Any, begin: Any, count: Any
) -> tuple[Any, Callable[..., Any]]:
    """Copy `count` bytes from `source[begin]` to `target[to]`, uint8 arrays that do not overlap.

    By the C library, which suits rows of any size; a loop is as fast at 400 bytes.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        out = _pointer(context, builder, kinds[0], args[0], args[1])
        row = _pointer(context, builder, kinds[2], args[2], args[3])
        cgutils.raw_memcpy(builder, out, row, args[4], ir.Constant(_I64, 1))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


@intrinsic
def copy_word(
    typing: Any, target: Any, to: Any, source: Any, begin: Any, word: Any
) -> tuple[Any, Callable[..., Any]]:
    """Copy one number of the type of `word` between uint8 arrays, in one move."""
    context_type = types.intp

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        size = context.get_abi_sizeof(context.get_data_type(word))
        integer = ir.IntType(8 * size).as_pointer()
        out = builder.bitcast(_pointer(context, builder, kinds[0], args[0], args[1]), integer)
        row = builder.bitcast(_pointer(context, builder, kinds[2], args[2], args[3]), integer)
        builder.store(builder.load(row, align=1), out, align=1)
        return context.get_dummy_value()

    return types.void(target, context_type, source, context_type, word), generate
