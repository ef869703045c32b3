"""Reads and writes of rows that the compiler may assume disjoint.

A loop over lanes reads state, words and actions and writes observations, rewards and flags. LLVM
cannot know that these arrays do not overlap and compares every pair of addresses before every block
of 64 lanes: 25 % of the time of a CartPole step. Accesses made here carry alias scopes, by which
arrays of different scopes are promised not to overlap.

What intrinsics and their generators are is said in `rlcpu.kernels.machine.vectors`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import from_dtype, types
from numba.core import errors
from numba.extending import intrinsic

from rlcpu.kernels.compiler.scopes import attach_scopes, scopes_of
from rlcpu.kernels.machine.memory import pointer_at


@functools.cache
def row_access(name: str, row: int = 0) -> tuple[Any, Any]:
    """Make intrinsics `peek(array, index)` and `poke(array, index, value)` of one alias scope.

    Both take a one-dimensional contiguous array, or a pointer, and a non-negative index, and check
    no bounds.

    Raises:
        ValueError: the name is none of `SCOPES`, with or without the number of a row, nor `ANY`.
        numba.core.errors.TypingError: when compiled for another kind of array.
    """
    scopes = scopes_of(name, row)

    @intrinsic
    def peek(typing_context, array, index):
        """Return the number at an index."""
        _check_row(array)

        def generate(context, builder, signature, args):
            start, position = args
            return _peek(context, builder, array, start, position, scopes)

        return array.dtype(array, types.intp), generate

    @intrinsic
    def poke(typing_context, array, index, value):
        """Write the number at an index."""
        _check_row(array)

        def generate(context, builder, signature, args):
            start, position, number = args
            _poke(context, builder, array, start, position, number, scopes)
            return context.get_dummy_value()

        return types.void(array, types.intp, array.dtype), generate

    return peek, poke


@functools.cache
def load_rows(count: int, name: str, dtype: type | None = None) -> Any:
    """Make an intrinsic (array, stride, i) -> tuple of numbers i, stride + i, 2 * stride + i, ...

    They are of the array's dtype, or become `dtype`. Each row has an alias scope of its own, so
    that LLVM reads one while it writes another: the caller promises that i is below the stride.
    Python that reads them one after the other takes four times as long to compile.
    """
    row_scopes = [scopes_of(name, row) for row in range(count)]

    @intrinsic
    def load(typing_context, array, stride, i):
        """Return numbers i, stride + i, 2 * stride + i, ... of the array, a tuple."""
        _check_row(array)
        kind = types.UniTuple(array.dtype if dtype is None else from_dtype(np.dtype(dtype)), count)

        def generate(context, builder, signature, args):
            start, distance, first = args
            numbers = []
            for row, scopes in enumerate(row_scopes):
                index = _index(builder, row, distance, first)
                number = _peek(context, builder, array, start, index, scopes)
                numbers.append(context.cast(builder, number, array.dtype, kind.dtype))
            return context.make_tuple(builder, kind, numbers)

        return kind(array, types.intp, types.intp), generate

    return load


@functools.cache
def store_rows(count: int, name: str) -> Any:
    """Make an intrinsic (array, stride, i, values) that writes the first `count` numbers there."""
    row_scopes = [scopes_of(name, row) for row in range(count)]

    @intrinsic
    def store(typing_context, array, stride, i, values):
        """Write numbers i, stride + i, 2 * stride + i, ... of the array from a tuple."""
        _check_row(array)
        if not isinstance(values, types.BaseTuple) or len(values) < count:
            raise errors.TypingError(f"expected a tuple of {count} numbers or more, not {values}")

        def generate(context, builder, signature, args):
            start, distance, first, numbers = args
            for row, scopes in enumerate(row_scopes):
                value = builder.extract_value(numbers, row)
                value = context.cast(builder, value, values[row], array.dtype)
                index = _index(builder, row, distance, first)
                _poke(context, builder, array, start, index, value, scopes)
            return context.get_dummy_value()

        return types.void(array, types.intp, types.intp, values), generate

    return store


def _index(builder: Any, row: int, stride: Any, i: Any) -> Any:
    """Emit the position of number i of a row."""
    return builder.add(builder.mul(stride, stride.type(row)), i)


def _peek(
    context: Any, builder: Any, kind: Any, start: Any, index: Any, scopes: tuple[str, ...]
) -> Any:
    """Emit a load of the number at an index, with alias scopes, and return it.

    `start` is LLVM's array or pointer, `kind` numba's type of it.
    """
    pointer = pointer_at(context, builder, kind, start, index)
    first = len(builder.block.instructions)
    value = context.unpack_value(builder, kind.dtype, pointer)
    attach_scopes(builder, scopes, first)
    return value


def _poke(
    context: Any,
    builder: Any,
    kind: Any,
    start: Any,
    index: Any,
    value: Any,
    scopes: tuple[str, ...],
) -> None:
    """Emit a store of the number at an index, with alias scopes; see `_peek`."""
    pointer = pointer_at(context, builder, kind, start, index)
    first = len(builder.block.instructions)
    context.pack_value(builder, kind.dtype, value, pointer)
    attach_scopes(builder, scopes, first)


def _check_row(array: Any) -> None:
    """Raise TypingError for a type of arrays whose positions are not their indices."""
    is_row = isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"
    if not (is_row or isinstance(array, types.CPointer)):
        raise errors.TypingError(f"rows have to be one-dimensional contiguous arrays, not {array}")
