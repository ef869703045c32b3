"""Which actions are allowed: what `Dynamics.action_mask` returns, as bits behind an observation.

A mask is a tuple of one bool for each action of a `Discrete`. Kernels keep it as whole numbers of
32 bits, action k as bit `k % 32` of number `k // 32`, in float32 rows of their own that follow the
rows of the observation. So whatever shows or keeps an observation shows or keeps its mask, and an
environment without a mask has no such rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rlcpu.kernels.compile import define, inline, kernel, outline, source_of_tuple

Array = npt.NDArray[Any]
#: Actions in a row.
BITS = 32
_WORD = ir.IntType(BITS)


def mask_rows(count: int) -> int:
    """Return the number of rows that hold the mask of so many actions."""
    return -(-count // BITS)


@functools.cache
def make_pack(count: int) -> Any:
    """Make an intrinsic: a tuple of `count` bools -> the float32 rows that hold them, a tuple.

    As Python, that of 2,000 actions takes a minute to compile.
    """
    kind = types.UniTuple(types.float32, mask_rows(count))

    @intrinsic
    def pack(typing_context, mask):
        """Type and emit the packing: action k is bit `k % 32` of row `k // 32`."""

        def generate(context, builder, signature, args):
            """Emit the words, bit by bit, and their view as float32."""
            words = [ir.Constant(_WORD, 0)] * kind.count
            for k in range(count):
                bit = context.cast(
                    builder, builder.extract_value(args[0], k), mask[k], types.boolean
                )
                shifted = builder.shl(builder.zext(bit, _WORD), ir.Constant(_WORD, k % BITS))
                words[k // BITS] = builder.or_(words[k // BITS], shifted)
            rows = [builder.bitcast(word, ir.FloatType()) for word in words]
            return context.make_tuple(builder, kind, rows)

        return kind(mask), generate

    return pack


@functools.cache
def make_unpack(first: int, count: int) -> Callable[..., Any]:
    """Make an inlinable function: rows, of which those from `first` on are a mask -> its bools."""
    words = [f"w{row} = single(rows[{first + row}]).view(u32)" for row in range(mask_rows(count))]
    bools = source_of_tuple(f"(w{k // BITS} & u32({1 << k % BITS})) != zero" for k in range(count))
    lines = "".join(f"\n    {line}" for line in [*words, f"return {bools}"])
    names = {"u32": np.uint32, "zero": np.uint32(0), "single": np.float32}
    return inline(define(f"def unpack(rows):{lines}", **names))


@outline
def _spread(word, cells):
    for k in range(cells.size):
        cells[k] = np.float32((word >> np.uint32(k)) & np.uint32(1))


@functools.cache
def make_spread(first: int, count: int) -> Callable[..., Any]:
    """Make `make_unpack`'s function for many actions: (rows, scratch) -> the last `count` bits."""
    lines = ["cells = scratch[scratch.size - count :]"]
    for row in range(mask_rows(count)):
        cells = f"cells[{row * BITS} : {min((row + 1) * BITS, count)}]"
        lines.append(f"spread(single(rows[{first + row}]).view(u32), {cells})")
    source = "def unpack(rows, scratch):" + "".join(f"\n    {x}" for x in [*lines, "return cells"])
    names = {"u32": np.uint32, "single": np.float32, "spread": _spread, "count": count}
    return inline(define(source, **names))


@kernel
def write_masks(rows, masks):
    """Write masks (N, count) int8 of rows (any, N), the last of which are masks.

    Returns whether one allows nothing. For one environment NumPy takes ten times as long.
    """
    count, is_empty = masks.shape[1], False
    first = rows.shape[0] - (count + BITS - 1) // BITS
    for i in range(masks.shape[0]):
        mask, is_any = masks[i], np.int8(0)
        for k in range(count):
            word = np.float32(rows[first + k // BITS, i]).view(np.uint32)
            mask[k] = (word >> np.uint32(k % BITS)) & np.uint32(1)
            is_any |= mask[k]
        is_empty |= is_any == 0
    return is_empty


def masks_of(rows: Array, count: int) -> Array:
    """Return masks (..., count) bool from their rows (..., mask rows) float32, in any memory order.

    Their first axis of memory is that of the actions: one pass over the rows for each action.
    """
    words = np.moveaxis(rows.view(np.uint32), -1, 0)
    parts = []
    for row in range(mask_rows(count)):
        bits = np.uint32(1) << np.arange(min(BITS, count - row * BITS), dtype=np.uint32)
        parts.append((words[row] & bits.reshape(-1, *[1] * (words.ndim - 1))) != 0)
    masks = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return np.moveaxis(masks, 0, -1)


def pack_masks(masks: Array) -> Array:
    """Return the rows (n, mask rows) float32 that hold masks (n, count) bool."""
    n, count = masks.shape
    bits = np.zeros((n, mask_rows(count) * BITS), np.bool_)
    bits[:, :count] = masks
    packed: Array = np.packbits(bits, axis=1, bitorder="little").view("<u4")
    return packed.astype(np.uint32, copy=False).view(np.float32)


def masks_of_infos(infos: Any, count: int, over: Array) -> Array:
    """Return masks (n, count) bool in a vector environment's infos; False where there are none.

    Args:
        infos: Gymnasium's, `action_mask` of each environment, and `_action_mask` where it has one.
        count: of actions.
        over: (n,) bool, where a mask may be missing or allow nothing: nobody acts there.

    Raises:
        ValueError: a mask is missing, allows nothing, or has another shape or dtype.
    """
    masks = np.zeros((len(over), count), np.bool_)
    reported: Any = infos.get("action_mask", ())
    held = np.flatnonzero(infos.get("_action_mask", np.ones(len(reported), np.bool_)))
    for i in held:
        mask = np.asarray(reported[i])
        if mask.shape != (count,) or mask.dtype.kind not in "biu":
            raise ValueError(
                f'infos["action_mask"][{i}] is {mask.dtype} of shape {mask.shape}, expected '
                f"zeros and ones of ({count},),"
            )
        masks[i] = mask != 0
    empty = np.flatnonzero(~masks.any(axis=1) & ~over)
    if empty.size:
        fault = "allows nothing in" if empty[0] in held else "lacks"
        raise ValueError(
            f'infos["action_mask"] {fault} environment {empty[0]}, expected an allowed action,'
        )
    return masks
