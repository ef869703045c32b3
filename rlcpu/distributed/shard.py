"""One of the buffers that make up a sharded one: what its process does, without any network."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

import rlcpu
from rlcpu.replay import ReplayBuffer, checkpoint
from rlcpu.replay.checkpoint import MANIFEST, Section
from rlcpu.replay.checks import check_number
from rlcpu.replay.items import spans

Array = npt.NDArray[Any]


class Standing(NamedTuple):
    """What a shard tells of itself with every answer.

    Attributes:
        life: names this run of the process; another one after each restart.
        blocks: blocks stored, those of the last save included.
        added: transitions stored, those of the last save included.
        held: transitions that are there.
        total: sum of the weights that they are drawn by.
    """

    life: int
    blocks: int
    added: int
    held: int
    total: float


class Updated(NamedTuple):
    """What became of new priorities.

    Attributes:
        applied: how many reached their transition.
        standing: of the shard after that.
    """

    applied: int
    standing: Standing


class Drawn(NamedTuple):
    """Transitions of one shard.

    Attributes:
        leaves: an array (n, *shape) for each field of the structure.
        slots: (n,) int64, where they were.
        tickets: (n,) int64, which name each transition for good.
        probabilities: (n,) float64, of each draw, within the shard.
    """

    leaves: list[Array]
    slots: Array
    tickets: Array
    probabilities: Array


class ReplayShard:
    """A buffer of transitions whose every transition has a name, so that none is mistaken.

    The name is a ticket, a number that no other transition of any shard life has: a priority is
    applied only where the slot still holds the transition that it was computed for. Blocks are
    numbered, and each is stored once.

    Args:
        kind: `ReplayBuffer`, `PrioritizedReplayBuffer`, or a subclass.
        options: arguments of its constructor, without `num_envs` and `n_step`.
        folder: where to save, and what to go on from if there is something; None to save nothing.
        save_period: seconds between saves, each made at the end of the call that is then answered.

    Raises:
        TypeError, ValueError: an argument is bad, or the folder holds something else.
    """

    #: What is small comes first, for it arrives also where there is no room for the rest.
    num_results: ClassVar = {"sample": 2}

    def __init__(
        self,
        kind: type[ReplayBuffer],
        options: Mapping[str, Any],
        *,
        folder: str | os.PathLike[str] | None = None,
        save_period: float = 30.0,
    ) -> None:
        if not (isinstance(kind, type) and issubclass(kind, ReplayBuffer)):
            raise TypeError(f"kind={kind!r}: expected ReplayBuffer or PrioritizedReplayBuffer")
        for name in ("num_envs", "n_step", "derive_next"):
            if name in options:
                raise TypeError(f"{name}: not for a shard, which gets single transitions")
        self._period = check_number("save_period", save_period, 0.0, 1e9)
        self._folder = None if folder is None else Path(folder)
        self._life = time.time_ns()  # later than all tickets of lives before
        self._blocks = self._added = 0
        self._saved: tuple[str, int] | None = None
        if self._folder is not None and (self._folder / MANIFEST).exists():
            self._load(kind, options)
        else:
            self.buffer = kind(**options)
            self._tickets = np.full(self.buffer.capacity, -1, np.int64)
        self._next_save = time.monotonic() + self._period

    def standing(self) -> Standing:
        """See `Standing`."""
        buffer = self.buffer
        return Standing(self._life, self._blocks, self._added, len(buffer), buffer.total_weight())

    def greet(self) -> tuple[str, Standing]:
        """The version of rlcpu here, and the standing."""
        return rlcpu.__version__, self.standing()

    def add(
        self, life: int, number: int, block: Any, priorities: Array | None = None
    ) -> Standing | None:
        """Store a block of transitions.

        Args:
            life: of the `Standing` that the sender knows.
            number: of the block: `Standing.blocks`, counted on.
            block: structured like the example, leaves (n, *shape).
            priorities: (n,); None gives them the largest one so far.

        Returns:
            The standing; None if the block was meant for another life, and is not stored.

        Raises:
            TypeError, ValueError: see `ReplayBuffer.add`.
        """
        if life != self._life or number != self._blocks:
            return None
        before = self._added
        self.buffer.add(block)
        self._added = self.buffer.num_added
        self._blocks += 1
        count, capacity = self._added - before, self.buffer.capacity
        new = np.arange(max(before, before + count - capacity), before + count)
        self._tickets[new % capacity] = self._life + new
        if priorities is not None:
            buffer: Any = self.buffer
            buffer.update_priorities(new % capacity, priorities[new - before])
        self._save_in_time()
        return self.standing()

    def sample(self, count: int, *updates: Array) -> tuple[Updated, Drawn]:
        """Draw so many transitions as the buffer does, or none if it has nothing to be drawn.

        Before that, `update_priorities(*updates)` if there are any.
        """
        updated = self.update_priorities(*updates) if updates else Updated(0, self.standing())
        return updated, self._draw(count)

    def _draw(self, count: int) -> Drawn:
        if not self.buffer.total_weight() > 0.0:
            fields, none = self.buffer.structure.fields, np.empty(0, np.int64)
            leaves = [np.empty((0, *field.shape), field.dtype) for field in fields]
            return Drawn(leaves, none, none, np.empty(0))
        batch = self.buffer.sample(count)
        probabilities = batch.probabilities
        if probabilities is None:
            probabilities = np.full(count, 1.0 / len(self.buffer))
        leaves = list(self.buffer.structure.collect(batch.data))
        return Drawn(leaves, batch.indices, self._tickets[batch.indices], probabilities)

    def update_priorities(self, slots: Array, tickets: Array, priorities: Array) -> Updated:
        """Give transitions that are still there new priorities."""
        there = self._tickets[slots] == tickets
        buffer: Any = self.buffer
        if there.any():
            buffer.update_priorities(slots[there], priorities[there])
        self._save_in_time()
        return Updated(int(there.sum()), self.standing())

    # ------------------------------------------------------------ saving

    def save(self) -> Standing:
        """Write what has changed to the folder, as of this moment."""
        if self._folder is not None:
            since, added = self._saved or (None, 0)
            slots = spans(added, self._added, self.buffer.capacity, 1)
            held = [(0, 8 * len(self.buffer))]
            tickets = Section("tickets", self._tickets.view(np.uint8), 8 * slots, held)
            header = {
                "buffer": "ReplayShard",
                "blocks": self._blocks,
                "part": self.buffer.describe(),
            }
            sections = [tickets, *self.buffer.sections(added, "part_")]
            self._saved = checkpoint.save(self._folder, header, sections, since), self._added
        self._next_save = time.monotonic() + self._period
        return self.standing()

    def _save_in_time(self) -> None:
        if time.monotonic() >= self._next_save:
            self.save()

    def _load(self, kind: type[ReplayBuffer], options: Mapping[str, Any]) -> None:
        assert self._folder is not None
        with checkpoint.reading(self._folder, "ReplayShard") as reader:
            header, part = reader.header, reader.within("part_")
            rest = {"num_threads": options.get("num_threads")}
            self.buffer = kind.restored(header["part"], part, options["example"], rest)
            self._blocks, self._added = int(header["blocks"]), self.buffer.num_added
            if self.buffer.capacity != options["capacity"]:
                held = f"holds capacity={self.buffer.capacity}"
                raise ValueError(f"{self._folder}: {held}, expected {options['capacity']}")
            self._tickets = np.zeros(self.buffer.capacity, np.int64)
            reader.read_into("tickets", self._tickets.view(np.uint8))
            self._tickets[len(self.buffer) :] = -1
            self._saved = reader.token, self._added
