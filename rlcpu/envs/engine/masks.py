"""Action masks: which actions are allowed in a state, as bits behind an observation.

`Dynamics.action_mask` returns a mask as a tuple of one bool for each action of a `Discrete`, or for
each choice of each number of a `MultiDiscrete`, or writes them into an array. Kernels keep it as
whole numbers of 32 bits, "words": action k is bit `k % 32` of word `k // 32`. A word is one more
float32 row, behind the rows of the observation, which has its bits. So whatever shows or keeps an
observation shows or keeps its mask, and an environment without a mask has no such rows.

A mask in which one number of a `MultiDiscrete` has no choice allows no action: it is kept as zeros.
So a mask that allows nothing has no bit set, whatever the actions.
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

from rlcpu.kernels.compiler.compile import define, inline, kernel, outline, source_of_tuple
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.memory import array_at, make_stack_zeros, pointer_to
from rlcpu.kernels.machine.rows import load_rows

Array = npt.NDArray[Any]
#: Actions in a word.
BITS = 32
_WORD = ir.IntType(BITS)
u8, u32 = np.uint8, np.uint32


def mask_rows(count: int) -> int:
    """Return the number of rows that hold the mask of `count` actions."""
    return -(-count // BITS)


@functools.cache
def make_pack(count: int, choices: tuple[int, ...] = ()) -> Any:
    """Make an intrinsic: a tuple of `count` bools -> the tuple of float32 rows that hold them.

    `choices` are those of each number of a `MultiDiscrete`; () of a `Discrete`. As Python, the
    packing of 2,000 actions takes a minute to compile.
    """
    kind = types.UniTuple(types.float32, mask_rows(count))
    ends = set(np.cumsum(choices).tolist())

    @intrinsic
    def pack(typing_context, mask):
        """Type and emit the packing: action k is bit `k % 32` of row `k // 32`."""

        def generate(context, builder, signature, args):
            """Emit the words, bit by bit, and their view as float32."""
            words = [ir.Constant(_WORD, 0)] * kind.count
            nothing, allows, any_choice = ir.Constant(_WORD, 0), None, None
            for k in range(count):
                bit = context.cast(
                    builder, builder.extract_value(args[0], k), mask[k], types.boolean
                )
                any_choice = bit if any_choice is None else builder.or_(any_choice, bit)
                if k + 1 in ends:  # the last choice of a number
                    allows = any_choice if allows is None else builder.and_(allows, any_choice)
                    any_choice = None
                bit_in_word = builder.shl(builder.zext(bit, _WORD), ir.Constant(_WORD, k % BITS))
                words[k // BITS] = builder.or_(words[k // BITS], bit_in_word)
            if allows is not None:
                words = [builder.select(allows, word, nothing) for word in words]
            rows = [builder.bitcast(word, ir.FloatType()) for word in words]
            return context.make_tuple(builder, kind, rows)

        return kind(mask), generate

    return pack


@functools.cache
def make_unpack(first: int, count: int) -> Callable[..., Any]:
    """Make an inlinable function: rows -> the tuple of `count` bools of an action mask.

    Args:
        first: the row at which the mask begins, behind the observation.
        count: actions.
    """
    words = [f"w{row} = single(rows[{first + row}]).view(u32)" for row in range(mask_rows(count))]
    bools = source_of_tuple(f"(w{k // BITS} & u32({1 << k % BITS})) != zero" for k in range(count))
    lines = "".join(f"\n    {line}" for line in [*words, f"return {bools}"])
    names = {"u32": np.uint32, "zero": np.uint32(0), "single": np.float32}
    return inline(define(f"def unpack(rows):{lines}", **names))


@outline
def write_mask(rows, first, stride, mask):
    """Write the mask of an observation to an array of bools, in loops, however many actions it has.

    Number w of its float32 rows is `rows[first + w * stride]`.
    """
    for begin in range(0, mask.size, BITS):
        word = np.float32(rows[first + begin // BITS * stride]).view(u32)
        for k in range(min(BITS, mask.size - begin)):
            mask[begin + k] = (word >> u32(k)) & u32(1) != u32(0)


@functools.cache
def make_pack_written(write: Any, count: int, choices: tuple[int, ...]) -> Callable[..., Any]:
    """Make (state, params) -> the rows, as of `make_pack`, of a mask that `write` writes.

    `write`, a compiled function, is (state, params, out), where `out` are `count` bools on the
    stack, all False. There each word is written over bools that are in a word already. As a tuple
    so many bools would be as many values to LLVM: of 1,000 it takes minutes and gigabytes.
    """
    num_words = mask_rows(count)
    zeros, load = make_stack_zeros(num_words * BITS), load_rows(num_words, ANY)
    like_bool, like_byte, like_word, like_row = np.bool_(0), u8(0), u32(0), np.float32(0)
    ends = np.cumsum((0, *choices))

    @outline
    def pack_written(state, params):
        place = zeros()
        write(state, params, array_at(place, (count,), like_bool))
        bools, words = pointer_to(place, like_byte), pointer_to(place, like_word)
        allows = u32(1)
        for j in range(ends.size - 1):
            any_choice = u32(0)
            for k in range(ends[j], ends[j + 1]):
                any_choice |= u32(bools[k])
            allows &= any_choice
        for w in range(num_words):
            word = u32(0)
            for k in range(BITS):
                word |= u32(bools[w * BITS + k]) << u32(k)
            words[w] = word * allows
        return load(pointer_to(place, like_row), 1, 0)

    return pack_written


@kernel
def write_masks(rows, masks):
    """Write the action masks of N environments, (N, count) int8, from rows of observations.

    `rows` is (any, N) float32, whose last rows are the masks. Returns whether a mask allows
    nothing. A number of a row holds `BITS` actions of a mask, by its bits. For one environment
    NumPy takes ten times as long.
    """
    count, some_mask_is_empty = masks.shape[1], False
    first = rows.shape[0] - (count + BITS - 1) // BITS
    for i in range(masks.shape[0]):
        mask, any_allowed = masks[i], np.int8(0)
        for k in range(count):
            word = np.float32(rows[first + k // BITS, i]).view(np.uint32)
            mask[k] = (word >> np.uint32(k % BITS)) & np.uint32(1)
            any_allowed |= mask[k]
        some_mask_is_empty |= any_allowed == 0
    return some_mask_is_empty


def masks_of(rows: Array, count: int) -> Array:
    """Return masks (..., count) bool from their rows (..., mask rows) float32, in any memory order.

    The first axis of their memory is that of the actions: one pass over the rows for each action.
    """
    words = np.moveaxis(rows.view(np.uint32), -1, 0)
    parts = []
    for row in range(mask_rows(count)):
        bit_of_action = np.uint32(1) << np.arange(min(BITS, count - row * BITS), dtype=np.uint32)
        parts.append((words[row] & bit_of_action.reshape(-1, *[1] * (words.ndim - 1))) != 0)
    masks = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return np.moveaxis(masks, 0, -1)


def find_usable(masks: Array, choices: tuple[int, ...]) -> Array:
    """Tell which masks (n, count) bool allow an action, (n,) bool.

    `choices` are those of each number of a `MultiDiscrete`, of which each needs one; () of a
    `Discrete`.
    """
    begins = np.cumsum((0, *choices[:-1]))
    has_choice = np.logical_or.reduceat(masks, begins, axis=1)
    return np.asarray(has_choice.all(axis=1))


def pack_masks(masks: Array, choices: tuple[int, ...] = ()) -> Array:
    """Return the rows (n, mask rows) float32 that hold masks (n, count) bool; see `find_usable`."""
    n, count = masks.shape
    bits = np.zeros((n, mask_rows(count) * BITS), np.bool_)
    bits[:, :count] = masks & find_usable(masks, choices)[:, None]
    packed: Array = np.packbits(bits, axis=1, bitorder="little").view("<u4")
    return packed.astype(np.uint32, copy=False).view(np.float32)


def join_masks(name: str, masks: Any, choices: tuple[int, ...]) -> Array:
    """Return masks as one array, also where there is a tuple of an array for each number.

    Gymnasium's `MultiDiscrete.sample` takes such tuples, of arrays (..., number of choices).
    `choices` are those of each number; () of a `Discrete`. Arrays of other sizes, which make no
    array together, raise ValueError, in which `name` is that of the masks.
    """
    if isinstance(masks, tuple | list) and len(masks) == len(choices):
        arrays = list(map(np.asarray, masks))
        if all(each.shape[-1:] == (n,) for each, n in zip(arrays, choices, strict=True)):
            return np.concatenate(arrays, axis=-1)
    try:
        return np.asarray(masks)
    except ValueError:
        expected = f"one array, or arrays of {choices} choices"
        raise ValueError(f"{name} has arrays of other sizes: expected {expected}") from None


def masks_of_infos(infos: Any, count: int, choices: tuple[int, ...], over: Array) -> Array:
    """Return the action masks in a vector environment's infos, (n, count) bool.

    Where an environment has no mask, it is False.

    Args:
        infos: Gymnasium's, with `action_mask` of each environment, and `_action_mask`, which says
            whether it has one; all have one where that is left out. A mask of several numbers is
            flat, or a tuple of an array for each number.
        count: of choices, of all numbers.
        choices: of each number of a `MultiDiscrete`; () of a `Discrete`.
        over: (n,) bool, environments whose episode is over: their masks may be missing or allow
            nothing.

    Raises:
        ValueError: a mask is missing, allows nothing, or has another shape or dtype.
    """
    masks = np.zeros((len(over), count), np.bool_)
    reported: Any = infos.get("action_mask", ())
    if isinstance(reported, tuple) and reported:
        reported = join_masks('infos["action_mask"]', reported, choices)
    envs_with_mask = np.flatnonzero(infos.get("_action_mask", np.ones(len(reported), np.bool_)))
    for i in envs_with_mask:
        mask = join_masks(f'infos["action_mask"][{i}]', reported[i], choices)
        if mask.shape != (count,) or mask.dtype.kind not in "biu":
            raise ValueError(
                f'infos["action_mask"][{i}] is {mask.dtype} of shape {mask.shape}, expected '
                f"zeros and ones of ({count},),"
            )
        masks[i] = mask != 0
    envs_at_fault = np.flatnonzero(~find_usable(masks, choices) & ~over)
    if envs_at_fault.size:
        fault = "allows nothing in" if envs_at_fault[0] in envs_with_mask else "lacks"
        raise ValueError(
            f'infos["action_mask"] {fault} environment {envs_at_fault[0]}, '
            "expected an allowed action,"
        )
    return masks
