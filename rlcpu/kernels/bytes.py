"""Copies of rows of any type, as bytes, through the caches or past them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic as _intrinsic

from rlcpu.kernels.compile import inline_exact

# Their types do not fit what they are: kernels call an intrinsic without its first argument.
intrinsic: Any = _intrinsic
cgutils: Any = _cgutils

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_LINE = 64  # bytes
_WORDS = ir.VectorType(_I64, _LINE // 8)


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


@intrinsic
def _misplaced(typing: Any, array: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """Bytes from the beginning of a cache line to `array[index]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *args)
        return builder.and_(builder.ptrtoint(pointer, _I64), ir.Constant(_I64, _LINE - 1))

    return types.intp(array, types.intp), generate


@intrinsic
def _stream_line(
    typing: Any, target: Any, to: Any, source: Any, begin: Any
) -> tuple[Any, Callable[..., Any]]:
    """Copy one cache line to the line that begins at `target[to]`, without reading that first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds, line = signature.args, _WORDS.as_pointer()
        out = builder.bitcast(_pointer(context, builder, kinds[0], args[0], args[1]), line)
        row = builder.bitcast(_pointer(context, builder, kinds[2], args[2], args[3]), line)
        store = builder.store(builder.load(row, align=1), out, align=_LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_I32, 1)]))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), generate


@intrinsic
def fence(typing: Any) -> tuple[Any, Callable[..., Any]]:
    """Let no other thread see what follows before what was streamed."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@inline_exact
def stream(target, to, source, begin, count):  # type: ignore[no-untyped-def]
    """`copy` past the caches, for what is not read again soon; call `fence` after the last one."""
    head = min(-_misplaced(target, to) % _LINE, count)
    copy(target, to, source, begin, head)
    lines = (count - head) // _LINE
    for line in range(lines):
        done = head + line * _LINE
        _stream_line(target, to + done, source, begin + done)
    done = head + lines * _LINE
    copy(target, to + done, source, begin + done, count - done)
