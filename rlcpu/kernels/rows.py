"""Reads and writes of rows that the compiler may assume disjoint.

A loop over lanes reads state, words and actions and writes observations, rewards and flags. LLVM
cannot know that these arrays do not overlap and compares every pair of addresses before every block
of 64 lanes: 25 % of the time of a CartPole step. Accesses made here carry alias scopes, by which
arrays of different scopes are promised not to overlap.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

_struct: Any = cgutils.create_struct_proxy  # Any: typed in some releases of numba

#: The promise: arrays accessed under different names never overlap, nor do the first `MAX_ROWS`
#: rows of observations or finals, whose distance is known only at run time.
MAX_ROWS = 16
SCOPES = (
    *("state", "words", "actions", "rewards", "terminated", "truncated", "source", "target"),
    *("outputs", "log_probs", "values", "totals", "lengths"),
    *(f"{name}{row}" for name in ("observations", "finals") for row in range(MAX_ROWS)),
)


@functools.cache
def row_access(name: str, row: int = 0) -> tuple[Any, Any]:
    """Intrinsics `peek(array, index)` and `poke(array, index, value)` of one alias scope.

    Both take a one-dimensional contiguous array and a non-negative index, and check no bounds.

    Raises:
        ValueError: the name is none of `SCOPES`, with or without the number of a row.
        numba.core.errors.TypingError: when compiled for another kind of array.
    """
    scope = f"{name}{row % MAX_ROWS}" if f"{name}0" in SCOPES else name
    if scope not in SCOPES:
        raise ValueError(f"name={name!r}: expected one of {', '.join(SCOPES)}")

    @intrinsic
    def peek(typing_context: Any, array: Any, index: Any) -> Any:
        _check_row(array)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], *arguments)
            value = context.unpack_value(builder, array.dtype, pointer)
            _mark(builder, scope, pointer)
            return value

        return array.dtype(array, types.intp), generate

    @intrinsic
    def poke(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
        _check_row(array)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
            context.pack_value(builder, array.dtype, arguments[2], pointer)
            _mark(builder, scope, pointer)
            return context.get_dummy_value()

        return types.void(array, types.intp, array.dtype), generate

    return peek, poke


def _check_row(array: Any) -> None:
    if not (isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"):
        raise TypingError(f"rows have to be one-dimensional contiguous arrays, not {array}")


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = _struct(kind)(context, builder, array).data
    return builder.gep(data, [index])


def _mark(builder: Any, scope: str, pointer: Any) -> None:
    """Attach the scope to the loads and stores just emitted through a pointer."""
    domain = builder.module.add_metadata([ir.MetaDataString(builder.module, "rlcpu")])
    nodes = {
        name: builder.module.add_metadata([ir.MetaDataString(builder.module, name), domain])
        for name in SCOPES
    }
    own = builder.module.add_metadata([nodes[scope]])
    others = builder.module.add_metadata([nodes[name] for name in SCOPES if name != scope])
    for instruction in builder.block.instructions:
        is_access = isinstance(instruction, ir.LoadInstr | ir.StoreInstr)
        if is_access and pointer in instruction.operands:
            instruction.set_metadata("alias.scope", own)
            instruction.set_metadata("noalias", others)
