"""Storage that leaves out next observations that the observation of the following step equals.

While an episode goes on, the next observation of a step is the observation of the step after it.
`terminated` and `truncated` are not relied on: bytes are compared when steps are added, and a next
observation that differs is stored in a *slot* of its own. So is that of each environment's newest
step, until the following step comes.

Fields of `next_observation` are *twins*, of those of `observation` with the same names.
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

from rlcpu.kernels.compiler.compile import EXACT, inline, kernel
from rlcpu.kernels.machine.memory import copy_bytes, pointer_at, prefetch
from rlcpu.kernels.machine.vectors import emit_call
from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.items import Ring, spans
from rlcpu.replay.storage import SOURCE, TARGET, Rows, Storage, allocate, placed
from rlcpu.replay.structure import TransitionStructure

Array = npt.NDArray[Any]

_MOST_ROWS = 2**31 - 1  # whose numbers are int32
_AHEAD = 32  # rows asked for early: 4,096 of 1 million in 65 us, not 116
#: Names in files of `slot_numbers` and of `slots`.
_NUMBERS_SECTION, _SLOTS_SECTION = "aside", "kept"

# ---------------------------------------------------------------- kernels

# Rows are bytes here. `rows` are numbers of rows in the storage, (1 + num_steps) * num_envs: those
# of each environment's newest step so far, then those of the steps that are added, step by step.
# `unequal` says for each whether its next observation needs a slot; `slot_numbers`, `slots` and
# `free` are the arrays of `DerivingStorage`.

#: Numbers of the `place` of a twin: bytes of its rows, of a slot, and of the twins before it there.
ROW_BYTES, SLOT_BYTES, OFFSET = range(3)


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
    """Fill `out` with `rows`, for steps that are added from slot `begin` on, round the ring."""
    slot = (begin if begin else length) - 1
    for first in range(0, out.size, num_envs):
        for env in range(num_envs):
            out[first + env] = env * length + slot
        slot = slot + 1 if slot + 1 < length else 0


@kernel(fastmath=EXACT)
def mark_unequal(
    observation, next_observation, place, slot_numbers, slots, rows, num_envs, unequal
):
    """Set `unequal` where a field's next observation is not the observation of the following step.

    The newest steps so far have theirs in slots; these are compared with the first observations
    that are added, next observations of added steps with the observations added after them. The
    last steps have no following step yet: the caller sets them. Both observations are uint8, of the
    steps that are added, step by step; where `unequal` is True already, by another field, nothing
    is compared.
    """
    row_bytes, slot_bytes, offset = place[ROW_BYTES], place[SLOT_BYTES], place[OFFSET]
    for env in range(num_envs):
        slot = slot_numbers[rows[env]]
        if slot > 0 and not unequal[env]:
            at = (slot - 1) * slot_bytes + offset
            unequal[env] = _differ(slots, at, observation, env * row_bytes, row_bytes)
    for k in range(num_envs, rows.size - num_envs):
        if not unequal[k]:
            step, following = (k - num_envs) * row_bytes, k * row_bytes
            unequal[k] = _differ(next_observation, step, observation, following, row_bytes)


@inline(exact=True)
def loses_slot(k, unequal, rows, num_envs, slot_numbers):
    """Tell whether row k has a slot that becomes free.

    It does if its step is overwritten, or is the newest so far and equal to what follows.
    """
    is_overwritten = k >= num_envs
    return slot_numbers[rows[k]] > 0 and (is_overwritten or not unequal[k])


@kernel(fastmath=EXACT)
def assign_slots(unequal, rows, num_envs, slot_numbers, free):
    """Free the slots of rows that need none any more, then give slots to rows that need one.

    Returns:
        How many slots are missing; if more than 0, nothing was changed.
    """
    missing = -free[0]
    for k in range(rows.size):
        missing -= loses_slot(k, unequal, rows, num_envs, slot_numbers)
        missing += k >= num_envs and unequal[k]
    if missing > 0:
        return missing
    for k in range(rows.size):
        if loses_slot(k, unequal, rows, num_envs, slot_numbers):
            free[0] += 1
            free[free[0]] = slot_numbers[rows[k]]
            slot_numbers[rows[k]] = 0
    for k in range(num_envs, rows.size):
        if unequal[k]:
            slot_numbers[rows[k]] = free[free[0]]
            free[0] -= 1
    return missing


@kernel(fastmath=EXACT)
def fill_slots(next_observation, place, unequal, rows, num_envs, slot_numbers, slots):
    """Copy a field's next observations that are `unequal` to their slots."""
    row_bytes, slot_bytes, offset = place[ROW_BYTES], place[SLOT_BYTES], place[OFFSET]
    for k in range(num_envs, rows.size):
        if unequal[k]:
            to = (slot_numbers[rows[k]] - 1) * slot_bytes + offset
            copy_bytes(slots, to, next_observation, (k - num_envs) * row_bytes, row_bytes)


@kernel(fastmath=EXACT)
def read_slots(rows, slot_numbers, length, slots, places, storage, batch, table):
    """Correct next observations of a batch, gathered as the observations of the following rows.

    Those in slots are copied from there; the row that follows an environment's last one is its
    first one. The batch has `rows` (batch_size,) of the storage, which has `length` for each
    environment; storage and batch are uint8. `places` are (num_twins, 3), and `table` is that of
    `rlcpu.replay.storage.gather` for the fields of next observations, whose first row is the second
    one of the observations.
    """
    for b in range(rows.size):
        prefetch(slot_numbers, rows[min(b + _AHEAD, rows.size - 1)])
        row = rows[b]
        slot, is_last = slot_numbers[row], (row + 1) % length == 0
        for f in range(places.shape[0] if slot > 0 or is_last else 0):
            row_bytes = places[f, ROW_BYTES]
            to = table[f, TARGET] + b * row_bytes
            if slot > 0:
                at = (slot - 1) * places[f, SLOT_BYTES] + places[f, OFFSET]
                copy_bytes(batch, to, slots, at, row_bytes)
            else:
                at = table[f, SOURCE] + (row - length) * row_bytes
                copy_bytes(batch, to, storage, at, row_bytes)


# ---------------------------------------------------------------- storage


def find_twins(structure: TransitionStructure) -> dict[int, int]:
    """Return for each field of `next_observation` its position, and that of `observation`'s."""
    try:
        sides = [structure.select(name) for name in ("observation", "next_observation")]
    except ValueError as error:
        raise ValueError(f"derive_next: {error}") from error
    # Fields by their name without "observation." or "next_observation.", dtype and shape.
    named = [(field.name.partition(".")[2], *field[1:]) for field in structure.fields]
    observation, following = ({named[number]: number for number in side} for side in sides)
    if observation.keys() != following.keys():
        raise ValueError(
            "derive_next: expected 'observation' and 'next_observation' of the same fields, "
            f"dtypes and shapes, got {structure}"
        )
    return {number: observation[field] for field, number in following.items()}


class DerivingStorage(Storage):
    """Rows of transitions without those next observations that a following observation equals.

    Slots stay in memory even with `memmap`.
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
        self._slot_bytes, offsets = sum(sizes), np.cumsum([0, *sizes[:-1]])
        row_places = zip(sizes, offsets, strict=True)
        #: (num_twins, 3) int64, the place of each twin.
        self._places = np.array([(size, self._slot_bytes, offset) for size, offset in row_places])
        # Positions of the twins: fields of one container follow each other.
        self._twins = slice(min(twins), max(twins) + 1)
        self._pairs = [(twins[number], number) for number in twins]  # `observation`'s field first
        numbers = allocate(4 * num_envs * length).view(np.int32)
        #: (num_envs, length) int32: number of the slot, from 1 on, that holds the next observation
        #: of a row; 0 where it is the observation of the row that follows.
        self.slot_numbers = numbers.reshape(num_envs, length)
        #: (num_slots * slot_bytes,) uint8: all twins of a next observation, slot after slot.
        self.slots: Array
        #: (num_slots + 1,) int32: how many slots are free, then their numbers.
        self.free_slots: Array
        self.slots, self.free_slots = self._make_slots(num_envs)
        super().__init__(structure, num_envs, length, memmap, twins)

    def _make_slots(self, count: int) -> tuple[Array, Array]:
        """Return `slots` and `free_slots` of so many free slots; low numbers are used first."""
        free = np.arange(count + 1, 0, -1, dtype=np.int32)
        free[0] = count
        return allocate(count * self._slot_bytes), free

    @property
    def num_bytes(self) -> int:
        """Return the bytes of everything that is kept."""
        return self.block.size + self.slot_numbers.nbytes + self.slots.size + self.free_slots.nbytes

    def copy_rows(self, filled: int) -> list[Array]:
        """Copy rows; see `Storage.copy_rows`."""
        rows = self.slot_numbers[:, :filled], self.slots, self.free_slots
        return [*super().copy_rows(filled), *(array.copy() for array in rows)]

    def take_rows(self, rows: list[Array]) -> None:
        """Take over rows; see `Storage.take_rows`."""
        *fields, numbers, slots, self.free_slots = rows
        super().take_rows(fields)
        self.slot_numbers[:, : numbers.shape[1]] = numbers
        self.slots = placed(slots)

    # ------------------------------------------------------------ adding

    def write(self, arrays: Sequence[Array], slot: int) -> None:
        """Write steps; see `Storage.write`. If MemoryError is raised, nothing was written."""
        num_steps, num_envs = len(arrays[0]), self.num_envs
        if not num_steps:
            return
        # Bytes of the observations, and of the next observations, that are added, for each twin.
        pairs = [
            [np.ascontiguousarray(arrays[number]).reshape(-1).view(np.uint8) for number in pair]
            for pair in self._pairs
        ]
        numbers = self.slot_numbers.reshape(-1)
        rows = np.empty((1 + num_steps) * num_envs, np.int64)
        number_rows(slot, self.length, num_envs, rows)
        unequal = np.zeros(rows.size, np.bool_)
        unequal[-num_envs:] = True  # the newest steps, which nothing follows yet
        # Where these steps fill the ring, the rows of the newest so far come again at the end of
        # `rows`, overwritten: nothing is compared with them, and their slots are freed there.
        unequal[:num_envs] = num_steps == self.length
        for place, pair in zip(self._places, pairs, strict=True):
            mark_unequal(*pair, place, numbers, self.slots, rows, num_envs, unequal)
        missing = assign_slots(unequal, rows, num_envs, numbers, self.free_slots)
        if missing > 0:
            self._grow(missing)
            assign_slots(unequal, rows, num_envs, numbers, self.free_slots)
        for place, (_, next_observation) in zip(self._places, pairs, strict=True):
            fill_slots(next_observation, place, unequal, rows, num_envs, numbers, self.slots)
        super().write(arrays, slot)

    def _grow(self, missing: int) -> None:
        """Add at least so many free slots; there are never more than rows."""
        old = self.free_slots.size - 1
        count = min(max(2 * old, old + missing), self.slot_numbers.size)
        slots, free = self._make_slots(count)  # lists high numbers, the new ones, first
        slots[: self.slots.size] = self.slots
        # Slots are taken from the end of the list: those that were free already come there.
        new, num_free = count - old, int(self.free_slots[0])
        free[0] = new + num_free
        free[1 + new : 1 + new + num_free] = self.free_slots[1 : 1 + num_free]
        # `free_slots` last: if this is interrupted and called again, its size says what was done.
        self.slots, self.free_slots = slots, free

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
            slots = self.slot_numbers.reshape(-1), self.length, self.slots, self._places
            read_slots(rows, *slots, self.block, batch.block, batch.table[self._twins])

    # ------------------------------------------------------------ files

    def sections(self, added: int, ring: Ring) -> list[Section]:
        """Return the arrays of a checkpoint, see `Storage.sections`; `free_slots` follows.

        Rows of the newest step in the earlier checkpoint have changed too.
        """
        numbers, newest = self.slot_numbers.reshape(-1), max(added - 1, 0)
        changed, written = (spans(n, ring.added, self.length, self.num_envs) for n in (newest, 0))
        size, changed_slots, written_slots = (
            numbers.itemsize,
            *map(self._slots_of, (changed, written)),
        )
        return [
            *super().sections(added, ring),
            Section(_NUMBERS_SECTION, numbers.view(np.uint8), size * changed, size * written),
            Section(_SLOTS_SECTION, self.slots, changed_slots, written_slots),
        ]

    def _slots_of(self, rows: Array) -> Array:
        """Return the ranges of bytes (num_slots, 2) of the slots that some ranges of rows have."""
        numbers = self.slot_numbers.reshape(-1)
        pieces = [numbers[begin:end] for begin, end in rows.tolist()]
        slots = np.concatenate([*pieces, numbers[:0]]).astype(np.int64)
        ends = slots[slots > 0] * self._slot_bytes
        return np.stack([ends - self._slot_bytes, ends], 1)

    def restore(self, source: Reader, ring: Ring) -> None:
        """Read rows and slots of a checkpoint; slots that no row has are free."""
        super().restore(source, ring)
        count = source.num_bytes(_SLOTS_SECTION) // self._slot_bytes
        # `_grow` makes at most twice as many as there are rows.
        most = min(max(2 * ring.filled, 1) * self.num_envs, self.slot_numbers.size)
        if not self.num_envs <= count <= most:
            raise ValueError(f"section kept: {count} slots, expected {self.num_envs} to {most}")
        slots, free = self._make_slots(count)
        source.read_into(_NUMBERS_SECTION, self.slot_numbers.reshape(-1).view(np.uint8))
        source.read_into(_SLOTS_SECTION, slots)
        is_used = _check_slot_numbers(self.slot_numbers, count, ring)
        unused = np.flatnonzero(~is_used)[::-1] + 1
        free[0] = unused.size
        free[1 : 1 + unused.size] = unused
        self.slots, self.free_slots = slots, free


def _check_slot_numbers(numbers: Array, num_slots: int, ring: Ring) -> Array:
    """Return which slots are in use, (num_slots,) bool.

    Raises:
        ValueError: two rows have one slot, a slot is out of range, a newest step has none, or a row
            that was never written has one.
    """
    slots, newest = numbers[numbers > 0] - 1, numbers[:, (ring.added - 1) % ring.length]
    fits = numbers.min() >= 0 and numbers.max() <= num_slots and not numbers[:, ring.filled :].any()
    if not fits or (ring.added and not newest.all()) or np.unique(slots).size < slots.size:
        raise ValueError(
            f"aside: expected different slots from 1 to {num_slots}, one for each newest row, of "
            f"{ring.filled} steps"
        )
    is_used = np.zeros(num_slots, np.bool_)
    is_used[slots] = True
    return is_used


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
