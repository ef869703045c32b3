"""Kernels of `DerivingStorage`: compare, find slots, keep, and put back when drawn.

Rows are bytes here. `aside` is (num_envs, length) int32, the slot of each row's next observation,
from 1 on, or 0; `unequal` is (1 + num_steps, num_envs) bool, for the newest steps so far and those
that are added, from slot `begin` of each environment's rows on, going round; a `place` is three
int64: bytes of a row of a field, bytes of a slot, and of the fields before it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from rlcpu.kernels.bytes import cgutils, copy, intrinsic
from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.octets import prefetch

_AHEAD = 32  # rows asked for early: 4,096 of 1 million in 65 us, not 116


@intrinsic
def _differ(
    typing: Any, one: Any, begin: Any, other: Any, start: Any, count: Any
) -> tuple[Any, Callable[..., Any]]:
    """Whether `count` bytes from `one[begin]` on are others than those from `other[start]` on.

    By the C library: for 1,600 rows of 16 bytes, 2.5 us and a loop over bytes 4.3; of 400 bytes,
    13 us and 28.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, size = ir.IntType(8).as_pointer(), ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [byte, byte, size])
        function = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
        rows = [
            builder.gep(
                cgutils.create_struct_proxy(signature.args[k])(context, builder, args[k]).data,
                [args[k + 1]],
            )
            for k in (0, 2)
        ]
        found = builder.call(function, [*rows, args[4]])
        return builder.icmp_signed("!=", found, ir.Constant(ir.IntType(32), 0))

    return types.boolean(one, types.intp, other, types.intp, types.intp), generate


@kernel(fastmath=EXACT)
def mark_unequal(observation, following, place, aside, kept, begin, unequal):  # type: ignore[no-untyped-def]
    """Mark the rows of a field whose next observation is not the observation that follows.

    `observation` and `following` are uint8, (num_steps, num_envs) rows; what is marked stays so.
    """
    num_steps, num_envs = unequal.shape[0] - 1, unequal.shape[1]
    row_bytes, slot_bytes, offset = place[0], place[1], place[2]
    newest = (begin if begin else aside.shape[1]) - 1
    for env in range(num_envs):
        slot = aside[env, newest]
        if slot > 0 and not unequal[0, env]:
            at = (slot - 1) * slot_bytes + offset
            unequal[0, env] = _differ(kept, at, observation, env * row_bytes, row_bytes)
    for t in range(1, num_steps):
        for env in range(num_envs):
            at = (t * num_envs + env) * row_bytes
            before = at - num_envs * row_bytes
            if not unequal[t, env]:
                unequal[t, env] = _differ(following, before, observation, at, row_bytes)


@inline_exact
def _give_back(row, at, free):  # type: ignore[no-untyped-def]
    free[0] += 1
    free[free[0]] = row[at]
    row[at] = 0


@inline_exact
def _take(row, at, free):  # type: ignore[no-untyped-def]
    row[at] = free[free[0]]
    free[0] -= 1


@inline_exact
def _missing(unequal, aside, free, begin):  # type: ignore[no-untyped-def]
    num_steps, num_envs, length = unequal.shape[0] - 1, unequal.shape[1], aside.shape[1]
    newest, missing = (begin if begin else length) - 1, -free[0]
    for env in range(num_envs):
        missing -= (aside[env, newest] > 0) and not unequal[0, env]
        at = begin
        for t in range(num_steps):
            missing += unequal[1 + t, env]
            missing -= aside[env, at] > 0
            at = at + 1 if at + 1 < length else 0
    return missing


@kernel(fastmath=EXACT)
def settle(unequal, aside, free, begin):  # type: ignore[no-untyped-def]
    """Take the slots of rows that need them no longer, and give some to those that do.

    Returns how many are missing; if there are any, nothing is changed.
    """
    missing = _missing(unequal, aside, free, begin)
    if missing > 0:
        return missing
    num_steps, num_envs, length = unequal.shape[0] - 1, unequal.shape[1], aside.shape[1]
    newest = (begin if begin else length) - 1
    for env in range(num_envs):
        row = aside[env]
        if row[newest] > 0 and not unequal[0, env]:
            _give_back(row, newest, free)
        at = begin
        for _ in range(num_steps):
            # Not in the function: to pass arrays is to count references, 38 us for 1,600 rows
            # instead of 3.5.
            if row[at] > 0:
                _give_back(row, at, free)
            at = at + 1 if at + 1 < length else 0
    for env in range(num_envs):
        row, at = aside[env], begin
        for t in range(num_steps):
            if unequal[1 + t, env]:
                _take(row, at, free)
            at = at + 1 if at + 1 < length else 0
    return missing


@kernel(fastmath=EXACT)
def keep_aside(following, place, unequal, aside, kept, begin):  # type: ignore[no-untyped-def]
    """Copy the rows of a field that are marked to their slots."""
    num_steps, num_envs, length = unequal.shape[0] - 1, unequal.shape[1], aside.shape[1]
    row_bytes, slot_bytes, offset = place[0], place[1], place[2]
    for t in range(num_steps):
        at = (begin + t) % length
        for env in range(num_envs):
            if unequal[1 + t, env]:
                to = (aside[env, at] - 1) * slot_bytes + offset
                copy(kept, to, following, (t * num_envs + env) * row_bytes, row_bytes)


@kernel(fastmath=EXACT)
def replace_aside(rows, aside, kept, places, storage, batch, table):  # type: ignore[no-untyped-def]
    """Put what is not in the row that follows into a batch of `rows`.

    That is what is kept aside, and what follows the last row of an environment: its first one.
    `table` is (num_fields, 3) int64, see `GATHER`; it begins one row late.
    """
    length, size = aside.shape[1], rows.size
    numbers = aside.reshape(-1)
    for b in range(size):
        prefetch(numbers, rows[min(b + _AHEAD, size - 1)])
        row = rows[b]
        slot = numbers[row]
        if slot > 0:
            for f in range(places.shape[0]):
                row_bytes, slot_bytes, offset = places[f, 0], places[f, 1], places[f, 2]
                at = (slot - 1) * slot_bytes + offset
                copy(batch, table[f, 2] + b * row_bytes, kept, at, row_bytes)
        elif (row + 1) % length == 0:
            for f in range(places.shape[0]):
                row_bytes = places[f, 0]
                at = table[f, 0] + (row - length) * row_bytes
                copy(batch, table[f, 2] + b * row_bytes, storage, at, row_bytes)
