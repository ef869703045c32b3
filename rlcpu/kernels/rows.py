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
from numba.extending import intrinsic

#: The promise: arrays accessed under different names never overlap, nor do the first `MAX_ROWS`
#: rows of observations or finals, whose distance is known only at run time.
MAX_ROWS = 16
SCOPES = (
    *("state", "words", "actions", "rewards", "terminated", "truncated", "source", "target"),
    *(f"{name}{row}" for name in ("observations", "finals") for row in range(MAX_ROWS)),
)


@functools.cache
def row_access(name: str, row: int = 0) -> tuple[Any, Any]:
    """Intrinsics `peek(array, index)` and `poke(array, index, value)` of one alias scope.

    Both take a one-dimensional contiguous array and a non-negative index, and check no bounds.
    """
    scope = f"{name}{row % MAX_ROWS}" if f"{name}0" in SCOPES else name

    @intrinsic
    def peek(typing_context, array, index):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            pointer = _pointer(context, builder, signature.args[0], *arguments)
            value = context.unpack_value(builder, array.dtype, pointer)
            _mark(builder, scope, pointer)
            return value

        return array.dtype(array, types.intp), generate

    @intrinsic
    def poke(typing_context, array, index, value):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
            context.pack_value(builder, array.dtype, arguments[2], pointer)
            _mark(builder, scope, pointer)
            return context.get_dummy_value()

        return types.void(array, types.intp, array.dtype), generate

    return peek, poke


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = cgutils.create_struct_proxy(kind)(context, builder, array).data
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
        if isinstance(instruction, ir.LoadInstr | ir.StoreInstr) and pointer in instruction.operands:
            instruction.set_metadata("alias.scope", own)
            instruction.set_metadata("noalias", others)
