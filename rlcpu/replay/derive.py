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

from rlcpu.replay.derive_kernels import keep_aside, mark_unequal, replace_aside, settle
from rlcpu.replay.memory import allocate, placed
from rlcpu.replay.ring import Ring, spans
from rlcpu.replay.sections import Section
from rlcpu.replay.storage import Rows, Source, Storage
from rlcpu.replay.structure import Structure

Array = npt.NDArray[Any]

_MOST_ROWS = 2**31 - 1  # whose numbers are int32


def find_twins(structure: Structure) -> dict[int, int]:
    """Positions of the fields of `next_observation`, and those of the same in `observation`.

    Raises:
        ValueError: one of the two is missing, or their fields are not alike.
    """
    observation = _beneath(structure, "observation")
    following = _beneath(structure, "next_observation")
    alike = [{name: each[1:] for name, each in f.items()} for f in (observation, following)]
    if alike[0] != alike[1]:
        raise ValueError(
            "derive_next: expected 'observation' and 'next_observation' of the same fields, "
            f"dtypes and shapes, got {structure}"
        )
    return {number: observation[name][0] for name, (number, *_) in following.items()}


def _beneath(structure: Structure, name: str) -> dict[str, tuple[Any, ...]]:
    """Position, dtype and shape of each field of a subtree, by its name there."""
    try:
        numbers = structure.select(name)
    except ValueError as error:
        raise ValueError(f"derive_next: {error}") from error
    fields = [(number, structure.fields[number]) for number in numbers]
    return {f.name.removeprefix(name): (number, f.dtype, f.shape) for number, f in fields}


class DerivingStorage(Storage):
    """Rows of transitions without next observations, but for those that no observation follows.

    Args:
        structure: see `Storage`; with `observation` and a `next_observation` of the same fields.
        num_envs: see `Storage`.
        length: see `Storage`.
        memmap: see `Storage`. What is kept aside stays in memory.

    Attributes:
        aside: (num_envs, length) int32: number of the slot, from 1 on, that holds the row's next
            observation; 0 where it is the observation of the row that follows.
        kept: (num_slots * slot_bytes,) uint8: all fields of a next observation, slot after slot.
        free: (num_slots + 1,) int32: how many slots are free, then their numbers.

    Raises:
        ValueError: the fields do not fit, or there are too many rows.
        FileExistsError, MemoryError, OSError: see `Storage`.
    """

    def __init__(
        self,
        structure: Structure,
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
        """Memory of slots, and a list of them that hands out low numbers first."""
        free = np.arange(count + 1, 0, -1, dtype=np.int32)
        free[0] = count
        return allocate(count * self._slot_bytes), free

    @property
    def num_bytes(self) -> int:
        """Bytes of everything that is kept."""
        return self.block.size + self.aside.nbytes + self.kept.size + self.free.nbytes

    def copy_rows(self, filled: int) -> list[Array]:
        """See `Storage.copy_rows`."""
        own = self.aside[:, :filled], self.kept, self.free
        return [*super().copy_rows(filled), *(array.copy() for array in own)]

    def take_rows(self, rows: list[Array]) -> None:
        """See `Storage.take_rows`."""
        *fields, aside, kept, self.free = rows
        super().take_rows(fields)
        self.aside[:, : aside.shape[1]] = aside
        self.kept = placed(kept)

    # ------------------------------------------------------------ adding

    def write(self, arrays: Sequence[Array], slot: int) -> None:
        """Copy (num_steps, num_envs, *field.shape) arrays; see `Storage.write`.

        Raises:
            MemoryError: there is no room for more next observations. Nothing is written.
        """
        num_steps = len(arrays[0])
        if not num_steps:
            return
        skipped = max(num_steps - self.length, 0)
        begin = (slot + skipped) % self.length
        pairs = [[_bytes(arrays[number][skipped:]) for number in pair] for pair in self._pairs]
        unequal = self._compare(pairs, num_steps - skipped, begin)
        missing = settle(unequal, self.aside, self.free, begin)
        if missing > 0:
            self._grow(missing)
            settle(unequal, self.aside, self.free, begin)
        for place, (_, following) in zip(self._places, pairs, strict=True):
            keep_aside(following, place, unequal, self.aside, self.kept, begin)
        super().write(arrays, slot)

    def _compare(self, pairs: list[list[Array]], num_steps: int, begin: int) -> Array:
        """Whose next observation is to be kept: (1 + num_steps, num_envs) bool.

        The first row is for the newest steps so far, the last one for those that become it.
        """
        unequal = np.zeros((1 + num_steps, self.num_envs), np.bool_)
        unequal[-1] = True
        unequal[0] = num_steps == self.length  # about to be overwritten
        for place, pair in zip(self._places, pairs, strict=True):
            mark_unequal(*pair, place, self.aside, self.kept, begin, unequal)
        return unequal

    def _grow(self, missing: int) -> None:
        """Make room for at least so many slots more. Rows have one each, at most."""
        old = self.free.size - 1  # replaced last: an interrupt in between is begun again from here
        count = min(max(2 * old, old + missing), self.aside.size)
        kept, free = self._make_slots(count)
        kept[: self.kept.size] = self.kept
        # Those that were free are handed out first.
        new, num_free = count - old, int(self.free[0])
        free[0] = new + num_free
        free[1 + new : 1 + new + num_free] = self.free[1 : 1 + num_free]
        self.kept, self.free = kept, free

    # ------------------------------------------------------------ sampling

    def make_batch(self, batch_size: int, steps: int | None) -> Rows:
        """Room for a batch; see `Storage.make_batch`."""
        rows = super().make_batch(batch_size, steps)
        return rows._replace(twins=rows.table[self._twins])

    def gather(self, rows: Array, batch: Rows, steps: int, num_threads: int | None) -> None:
        """Copy rows to a batch; see `Storage.gather`. `steps` is 1."""
        super().gather(rows, batch, steps, num_threads)
        if batch.twins is not None:
            kept = (self.aside, self.kept, self._places)
            replace_aside(rows, *kept, self.block, batch.block, batch.twins)

    # ------------------------------------------------------------ files

    def sections(self, added: int, total: int) -> list[Section]:
        """See `Storage.sections`. What is in free slots is nobody's, and need not be up to date."""
        ranges = spans(max(added - 1, 0), total, self.length, self.num_envs)  # newest ones change
        numbers = self.aside.reshape(-1)
        pieces = [numbers[begin:end] for begin, end in ranges.tolist()]
        slots = np.concatenate([*pieces, numbers[:0]]).astype(np.int64)
        ends = slots[slots > 0] * self._slot_bytes
        written = np.stack([ends - self._slot_bytes, ends], 1)
        return [
            *super().sections(added, total),
            Section("aside", numbers.view(np.uint8), 4 * ranges),
            Section("kept", self.kept, written),
        ]

    def describe(self) -> dict[str, Any]:
        """Number of slots."""
        return {"slots": self.free.size - 1}

    def restore(self, source: Source, description: dict[str, Any], ring: Ring) -> None:
        """See `Storage.restore`."""
        super().restore(source, description, ring)
        count = description["slots"]
        if type(count) is not int or not self.num_envs <= count <= self.aside.size:
            most = f"{self.num_envs} to {self.aside.size}"
            raise ValueError(f"slots={count!r}: expected {most} of them")
        kept, free = self._make_slots(count)
        source.read_into("aside", self.aside.reshape(-1).view(np.uint8), zeroed=True)
        source.read_into("kept", kept, zeroed=True)
        taken = _check_aside(self.aside, count, ring)
        unused = np.flatnonzero(~taken)[::-1] + 1
        free[0] = unused.size
        free[1 : 1 + unused.size] = unused
        self.kept, self.free = kept, free


def _bytes(array: Array) -> Array:
    """An array's bytes; contiguous ones are not copied."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _check_aside(aside: Array, num_slots: int, ring: Ring) -> Array:
    """Which slots are taken, (num_slots,) bool.

    Raises:
        ValueError: a slot that is not there, or has two rows; a row that was never written, or a
            newest one without.
    """
    if aside.min() < 0 or aside.max() > num_slots:
        wrong = aside[(aside < 0) | (aside > num_slots)][0]
        raise ValueError(f"aside: holds slot {wrong}, expected 0 to {num_slots}")
    if aside[:, ring.filled :].any():
        raise ValueError(f"aside: rows hold slots, expected {ring.filled} steps of an environment")
    if ring.added and not aside[:, (ring.added - 1) % ring.length].all():
        raise ValueError("aside: a newest row has no slot, expected one each")
    slots = aside[aside > 0] - 1
    taken = np.zeros(num_slots, np.bool_)
    taken[slots] = True
    if np.count_nonzero(taken) < slots.size:
        raise ValueError(f"aside: {slots.size} rows share slots, expected one each")
    return taken
