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
from numba.core import errors
from numba.extending import intrinsic

from rlcpu.kernels.memory import pointer_at

#: The promise: arrays accessed under different names never overlap, nor do the first `MAX_ROWS`
#: rows of observations or finals, whose distance is known only at run time. What is written under a
#: name has to be read under the same one, under `ANY`, or by plain Python.
MAX_ROWS = 40
SCOPES = (
    *("state", "words", "actions", "rewards", "terminated", "truncated", "faults"),
    *("source", "target", "outputs", "log_probs", "values", "totals", "lengths"),
    *(f"{name}{row}" for name in ("observations", "finals") for row in range(MAX_ROWS)),
)
#: Name of accesses that promise only not to touch "target".
ANY = "any"


@functools.cache
def row_access(name: str, row: int = 0) -> tuple[Any, Any]:
    """Intrinsics `peek(array, index)` and `poke(array, index, value)` of one alias scope.

    Both take a one-dimensional contiguous array and a non-negative index, and check no bounds.

    Raises:
        ValueError: the name is none of `SCOPES`, with or without the number of a row, nor `ANY`.
        numba.core.errors.TypingError: when compiled for another kind of array.
    """
    scope = f"{name}{row % MAX_ROWS}" if f"{name}0" in SCOPES else name
    if scope not in (*SCOPES, ANY):
        raise ValueError(f"name={name!r}: expected one of {', '.join(SCOPES)}, {ANY}")
    own = tuple(each for each in SCOPES if each == scope or (scope == ANY and each != "target"))

    @intrinsic
    def peek(typing_context, array, index):
        _check_row(array)

        def generate(context, builder, signature, args):
            pointer = pointer_at(context, builder, array, *args)
            value = context.unpack_value(builder, array.dtype, pointer)
            _mark(builder, own, pointer)
            return value

        return array.dtype(array, types.intp), generate

    @intrinsic
    def poke(typing_context, array, index, value):
        _check_row(array)

        def generate(context, builder, signature, args):
            pointer = pointer_at(context, builder, array, *args[:2])
            context.pack_value(builder, array.dtype, args[2], pointer)
            _mark(builder, own, pointer)
            return context.get_dummy_value()

        return types.void(array, types.intp, array.dtype), generate

    return peek, poke


def _check_row(array: Any) -> None:
    if not (isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"):
        raise errors.TypingError(f"rows have to be one-dimensional contiguous arrays, not {array}")


def _mark(builder: Any, own: tuple[str, ...], pointer: Any) -> None:
    """Attach scopes to the loads and stores just emitted through a pointer.

    LLVM takes two accesses for disjoint where all scopes of one are foreign to the other.
    """
    module = builder.module
    domain = module.add_metadata([ir.MetaDataString(module, "rlcpu")])
    nodes = {
        name: module.add_metadata([ir.MetaDataString(module, name), domain]) for name in SCOPES
    }
    scopes = module.add_metadata([nodes[name] for name in own])
    foreign = module.add_metadata([node for name, node in nodes.items() if name not in own])
    for instruction in builder.block.instructions:
        is_access = isinstance(instruction, ir.LoadInstr | ir.StoreInstr)
        if is_access and pointer in instruction.operands:
            instruction.set_metadata("alias.scope", scopes)
            instruction.set_metadata("noalias", foreign)
