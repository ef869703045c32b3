"""Next observations that are not stored: the observations that follow, and the few that differ.

While an episode goes on, the next observation of a step is the observation of the step after it. No
flag is believed: bytes are compared when steps are added, and what differs is kept aside, whatever
the reason. So is the next observation of each environment's newest step, until its successor comes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.memory import copy_bytes, pointer_at, prefetch
from rlcpu.kernels.vectors import emit_call
from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.items import Ring, spans
from rlcpu.replay.storage import Rows, Storage, allocate, placed
from rlcpu.replay.structure import TransitionStructure

Array = npt.NDArray[Any]

_MOST_ROWS = 2**31 - 1  # whose numbers are int32
_AHEAD = 32  # rows asked for early: 4,096 of 1 million in 65 us, not 116

# ---------------------------------------------------------------- kernels

# Rows are bytes here. `rows` are numbers of rows, (1 + num_steps) * num_envs of them: of the newest
# step of each environment so far, then of those that are added, step by step. `unequal` says for
# each whether its next observation has to be kept. A `place` is three int64: bytes of a row of a
# field, of a slot, and of the fields before it there.


@intrinsic
def _differ(typing, one, begin, other, start, count):
    """Tell whether `count` bytes of two arrays differ; the C library is twice as fast as a loop."""

    def generate(context, builder, signature, args):
        rows = [pointer_at(context, builder, one, *args[:2])]
        rows.append(pointer_at(context, builder, other, *args[2:4]))
        order = emit_call(builder, "memcmp", ir.IntType(32), [*rows, args[4]])
        return builder.icmp_signed("!=", order, order.type(0))

    return types.boolean(one, types.intp, other, types.intp, types.intp), generate


@kernel(fastmath=EXACT)
def number_rows(begin, length, num_envs, out):
    """Fill `rows` of steps that are added from slot `begin` of each environment on, going round."""
    slot = (begin if begin else length) - 1
    for first in range(0, out.size, num_envs):
        for env in range(num_envs):
            out[first + env] = env * length + slot
        slot = slot + 1 if slot + 1 < length else 0


@kernel(fastmath=EXACT)
def mark_unequal(observation, next_observation, place, aside, kept, rows, num_envs, unequal):
    """Mark the rows of a field whose next observation is not the observation that follows.

    The next observation of each environment's newest step so far lies in the slots `kept`, and is
    compared with the first observation that is added; those of added steps with the observations
    added after them. The last added ones have no successor yet: who calls marks them. Arrays are
    uint8, `observation` and `next_observation` those of the steps that are added.
    """
    row_bytes, slot_bytes, offset = place[0], place[1], place[2]
    for env in range(num_envs):
        slot = aside[rows[env]]
        if slot > 0 and not unequal[env]:
            at = (slot - 1) * slot_bytes + offset
            unequal[env] = _differ(kept, at, observation, env * row_bytes, row_bytes)
    for k in range(num_envs, rows.size - num_envs):
        if not unequal[k]:
            before, at = (k - num_envs) * row_bytes, k * row_bytes
            unequal[k] = _differ(next_observation, before, observation, at, row_bytes)


@kernel(fastmath=EXACT)
def assign_slots(unequal, rows, num_envs, aside, free):
    """Take the slots of rows that need them no longer, and give some to those that do.

    Returns how many are missing; if there are any, nothing is changed.
    """
    missing = -free[0]
    for k in range(rows.size):
        missing -= aside[rows[k]] > 0 and (k >= num_envs or not unequal[k])
        missing += k >= num_envs and unequal[k]
    if missing > 0:
        return missing
    for k in range(rows.size):
        if aside[rows[k]] > 0 and (k >= num_envs or not unequal[k]):
            free[0] += 1
            free[free[0]] = aside[rows[k]]
            aside[rows[k]] = 0
    for k in range(num_envs, rows.size):
        if unequal[k]:
            aside[rows[k]] = free[free[0]]
            free[0] -= 1
    return missing


@kernel(fastmath=EXACT)
def keep_aside(following, place, unequal, rows, num_envs, aside, slots):
    """Copy the rows of a field that are marked to their slots."""
    row_bytes, slot_bytes, offset = place[0], place[1], place[2]
    for k in range(num_envs, rows.size):
        if unequal[k]:
            to = (aside[rows[k]] - 1) * slot_bytes + offset
            copy_bytes(slots, to, following, (k - num_envs) * row_bytes, row_bytes)


@kernel(fastmath=EXACT)
def replace_aside(rows, aside, length, slots, places, storage, batch, table):
    """Write next observations that are not in the following row to a batch of `rows`.

    That is what is kept aside, and what follows the last row of an environment: its first one.
    `table` is that of `GATHER`; it begins one row late.
    """
    for b in range(rows.size):
        prefetch(aside, rows[min(b + _AHEAD, rows.size - 1)])
        row = rows[b]
        slot = aside[row]
        if slot > 0:
            for f in range(places.shape[0]):
                row_bytes, slot_bytes, offset = places[f, 0], places[f, 1], places[f, 2]
                at = (slot - 1) * slot_bytes + offset
                copy_bytes(batch, table[f, 2] + b * row_bytes, slots, at, row_bytes)
        elif (row + 1) % length == 0:
            for f in range(places.shape[0]):
                row_bytes = places[f, 0]
                at = table[f, 0] + (row - length) * row_bytes
                copy_bytes(batch, table[f, 2] + b * row_bytes, storage, at, row_bytes)


# ---------------------------------------------------------------- storage


def find_twins(structure: TransitionStructure) -> dict[int, int]:
    """Return the positions of `next_observation`'s fields, and of the same in `observation`."""
    try:
        sides = [structure.select(name) for name in ("observation", "next_observation")]
    except ValueError as error:
        raise ValueError(f"derive_next: {error}") from error
    named = [(field.name.partition(".")[2], *field[1:]) for field in structure.fields]
    observation, following = ({named[number]: number for number in side} for side in sides)
    if observation.keys() != following.keys():
        raise ValueError(
            "derive_next: expected 'observation' and 'next_observation' of the same fields, "
            f"dtypes and shapes, got {structure}"
        )
    return {number: observation[field] for field, number in following.items()}


class DerivingStorage(Storage):
    """Rows of transitions without next observations, but for those that no observation follows.

    What is kept aside stays in memory even with `memmap`.

    Attributes:
        aside: (num_envs, length) int32: number of the slot, from 1 on, that holds the row's next
            observation; 0 where it is the observation of the row that follows.
        kept: (num_slots * slot_bytes,) uint8: all fields of a next observation, slot after slot.
        free: (num_slots + 1,) int32: how many slots are free, then their numbers.
    """

    def __init__(
        self,
        structure: TransitionStructure,
        num_envs: int,
        length: int,
        memmap: str | os.PathLike[str] | None = None,
    ) -> None:
        twins = find_twins(structure)
        if num_envs * length > _MOST_ROWS:
            raise ValueError(
                f"derive_next: {num_envs * length} transitions, expected at most {_MOST_ROWS}"
            )
        sizes = [structure.fields[number].row_bytes for number in twins]
        self._slot_bytes, begins = sum(sizes), np.cumsum([0, *sizes[:-1]])
        #: (num_twins, 3) int64: bytes of a row of the field, of a slot, and before it in a slot.
        self._places = np.array([(n, sum(sizes), b) for n, b in zip(sizes, begins, strict=True)])
        self._twins = slice(min(twins), max(twins) + 1)
        self._pairs = [(twins[number], number) for number in twins]
        self.aside = allocate(4 * num_envs * length).view(np.int32).reshape(num_envs, length)
        self.kept, self.free = self._make_slots(num_envs)
        super().__init__(structure, num_envs, length, memmap, twins)

    def _make_slots(self, count: int) -> tuple[Array, Array]:
        """Return the memory of slots, and a list of them that hands out low numbers first."""
        free = np.arange(count + 1, 0, -1, dtype=np.int32)
        free[0] = count
        return allocate(count * self._slot_bytes), free

    @property
    def num_bytes(self) -> int:
        """Return the bytes of everything that is kept."""
        return self.block.size + self.aside.nbytes + self.kept.size + self.free.nbytes

    def copy_rows(self, filled: int) -> list[Array]:
        """Copy rows; see `Storage.copy_rows`."""
        rows = self.aside[:, :filled], self.kept, self.free
        return [*super().copy_rows(filled), *(array.copy() for array in rows)]

    def take_rows(self, rows: list[Array]) -> None:
        """Take over rows; see `Storage.take_rows`."""
        *fields, aside, kept, self.free = rows
        super().take_rows(fields)
        self.aside[:, : aside.shape[1]] = aside
        self.kept = placed(kept)

    # ------------------------------------------------------------ adding

    def write(self, arrays: Sequence[Array], slot: int) -> None:
        """Write steps; see `Storage.write`. If MemoryError is raised, nothing was written."""
        num_steps, num_envs = len(arrays[0]), self.num_envs
        if not num_steps:
            return
        pairs = [
            [np.ascontiguousarray(arrays[number]).reshape(-1).view(np.uint8) for number in pair]
            for pair in self._pairs
        ]
        aside, rows = self.aside.reshape(-1), np.empty((1 + num_steps) * num_envs, np.int64)
        number_rows(slot, self.length, num_envs, rows)
        unequal = np.zeros(rows.size, np.bool_)
        unequal[-num_envs:] = True  # those that become the newest
        unequal[:num_envs] = num_steps == self.length  # about to be overwritten
        for place, pair in zip(self._places, pairs, strict=True):
            mark_unequal(*pair, place, aside, self.kept, rows, num_envs, unequal)
        missing = assign_slots(unequal, rows, num_envs, aside, self.free)
        if missing > 0:
            self._grow(missing)
            assign_slots(unequal, rows, num_envs, aside, self.free)
        for place, (_, following) in zip(self._places, pairs, strict=True):
            keep_aside(following, place, unequal, rows, num_envs, aside, self.kept)
        super().write(arrays, slot)

    def _grow(self, missing: int) -> None:
        """Make room for at least so many slots more. Rows have one each, at most."""
        old = self.free.size - 1
        count = min(max(2 * old, old + missing), self.aside.size)
        kept, free = self._make_slots(count)  # all free, the new ones first: high numbers are
        kept[: self.kept.size] = self.kept
        # Those that were free are handed out first, from the end.
        new, num_free = count - old, int(self.free[0])
        free[0] = new + num_free
        free[1 + new : 1 + new + num_free] = self.free[1 : 1 + num_free]
        # `free` last: an interrupt before that leaves its size, and the next call begins again.
        self.kept, self.free = kept, free

    # ------------------------------------------------------------ sampling

    def gather(
        self,
        rows: Array,
        batch: Rows,
        steps: int,
        num_threads: int | None,
        fields: list[int] | None = None,
    ) -> None:
        """Copy rows to a batch; see `Storage.gather`. `steps` is 1."""
        super().gather(rows, batch, steps, num_threads, fields)
        if fields is None or self._twins.start in fields:  # one of them is never without the others
            aside = self.aside.reshape(-1), self.length, self.kept, self._places
            replace_aside(rows, *aside, self.block, batch.block, batch.table[self._twins])

    # ------------------------------------------------------------ files

    def sections(self, added: int, ring: Ring) -> list[Section]:
        """Return the arrays of a checkpoint.

        See `Storage.sections`. Free slots need not be up to date.
        """
        numbers = self.aside.reshape(-1)
        # Those that were the newest ones change.
        rows = [spans(n, ring.added, self.length, self.num_envs) for n in (max(added - 1, 0), 0)]
        slots = [self._slots_of(each) for each in rows]
        return [
            *super().sections(added, ring),
            Section("aside", numbers.view(np.uint8), *(4 * each for each in rows)),
            Section("kept", self.kept, *slots),
        ]

    def _slots_of(self, rows: Array) -> Array:
        """Return (n, 2) ranges of bytes of the slots of (n, 2) ranges of rows."""
        numbers = self.aside.reshape(-1)
        pieces = [numbers[begin:end] for begin, end in rows.tolist()]
        slots = np.concatenate([*pieces, numbers[:0]]).astype(np.int64)
        ends = slots[slots > 0] * self._slot_bytes
        return np.stack([ends - self._slot_bytes, ends], 1)

    def restore(self, source: Reader, ring: Ring) -> None:
        """Take over rows, and the next observations that lie aside, of a checkpoint.

        Slots that no row names are free.
        """
        super().restore(source, ring)
        count = source.num_bytes("kept") // self._slot_bytes
        # `_grow` makes at most twice as many as there are rows.
        most = min(max(2 * ring.filled, 1) * self.num_envs, self.aside.size)
        if not self.num_envs <= count <= most:
            raise ValueError(f"section kept: {count} slots, expected {self.num_envs} to {most}")
        rows, free = self._make_slots(count)
        source.read_into("aside", self.aside.reshape(-1).view(np.uint8))
        source.read_into("kept", rows)
        taken = _check_aside(self.aside, count, ring)
        unused = np.flatnonzero(~taken)[::-1] + 1
        free[0] = unused.size
        free[1 : 1 + unused.size] = unused
        self.kept, self.free = rows, free


def _check_aside(aside: Array, num_slots: int, ring: Ring) -> Array:
    """Return the slots that are taken, (num_slots,) bool.

    ValueError for numbers that are nonsense.
    """
    slots, newest = aside[aside > 0] - 1, aside[:, (ring.added - 1) % ring.length]
    good = aside.min() >= 0 and aside.max() <= num_slots and not aside[:, ring.filled :].any()
    if not good or (ring.added and not newest.all()) or np.unique(slots).size < slots.size:
        raise ValueError(
            f"aside: expected different slots from 1 to {num_slots}, one for each newest row, of "
            f"{ring.filled} steps"
        )
    taken = np.zeros(num_slots, np.bool_)
    taken[slots] = True
    return taken


def make_storage(
    structure: TransitionStructure,
    num_envs: int,
    length: int,
    memmap: str | os.PathLike[str] | None,
    derive_next: bool,
) -> Storage:
    """Return a new storage, of the kind that `derive_next` asks for."""
    kind = DerivingStorage if derive_next else Storage
    return kind(structure, num_envs, length, memmap)
