"""One of the buffers that make up a sharded one: the object in its process, without any network."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

import rlcpu
from rlcpu.replay import PrioritizedTrajectoryBuffer, ReplayBuffer, checkpoint
from rlcpu.replay.checkpoint import MANIFEST, Section
from rlcpu.replay.checks import check_number
from rlcpu.replay.items import Items, spans

Array = npt.NDArray[Any]


class ShardStatus(NamedTuple):
    """Report of a shard on itself, which comes with every answer."""

    life: int  # names this run of the process; another one after each restart
    blocks: int  # blocks stored, those of the last save included
    added: int  # transitions stored, those of the last save included; of sequences, their steps
    held: int  # transitions that are there
    total: float  # sum of the weights that they are drawn by


class Updated(NamedTuple):
    """Result of an update of priorities."""

    applied: int  # how many reached their transition
    status: ShardStatus  # of the shard after that


class Drawn(NamedTuple):
    """Transitions of one shard, or sequences."""

    leaves: list[Array]  # for each field (n, *shape), or (sequence_length, n, *shape)
    slots: Array  # (n,) int64, where they were
    tickets: Array  # (n,) int64, which name each transition for good
    probabilities: Array  # (n,) float64, of each draw, within the shard


#: Arguments in which a saved buffer has to equal the new one.
_SIZES = "capacity", "num_envs", "length", "sequence_length", "period"
#: Arguments of buffers of transitions that a shard does not take.
_REFUSED = "num_envs", "n_step", "truncated", "derive_next"


class ReplayShard:
    """A buffer in which every transition has a ticket, and every block of transitions a number.

    A ticket is a number that no other transition in its slot has, in any life of the shard: a
    priority is applied only where the slot still holds the transition that it was computed for. By
    the numbers of blocks each is stored once.

    With a `PrioritizedTrajectoryBuffer`, sequences are drawn and have tickets. Each lies within one
    block: two blocks need not follow each other, for collectors take turns, die, and blocks get
    lost.

    Args:
        kind: `ReplayBuffer`, `PrioritizedReplayBuffer`, `PrioritizedTrajectoryBuffer` (which draws
            uniformly with alpha=0), or a subclass.
        options: arguments of its constructor; for transitions without `num_envs` and `n_step`.
            `num_threads` is 1 without: threads of one process wait for CPUs that others have.
        folder: where to save, and what to go on from if there is something; None to save nothing.
        save_period: seconds between saves, each made at the end of the call that is then answered.

    Raises:
        TypeError, ValueError: an argument is bad, or the folder holds something else.
    """

    #: What is small comes first, for it arrives also where there is no room for the rest.
    num_results: ClassVar = {"sample": 2}

    def __init__(
        self,
        kind: type[ReplayBuffer] | type[PrioritizedTrajectoryBuffer],
        options: Mapping[str, Any],
        *,
        folder: str | os.PathLike[str] | None = None,
        save_period: float = 30.0,
    ) -> None:
        kinds = ReplayBuffer, PrioritizedTrajectoryBuffer
        if not (isinstance(kind, type) and issubclass(kind, kinds)):
            raise TypeError(
                f"kind={kind!r}: expected ReplayBuffer, PrioritizedReplayBuffer or "
                "PrioritizedTrajectoryBuffer"
            )
        for name in _REFUSED:
            if name in options and issubclass(kind, ReplayBuffer):
                raise TypeError(f"{name}: not for a shard, which gets single transitions")
        options = {"num_threads": 1, **options}
        self._period = check_number("save_period", save_period, 0.0, 1e9)
        self._folder = None if folder is None else Path(folder)
        self._life = time.time_ns()  # later than all tickets of lives before
        self._blocks = 0
        self._saved: tuple[str, int] | None = None
        if self._folder is not None and (self._folder / MANIFEST).exists():
            self._load(kind, options)
        else:
            self.buffer = kind(**options)
            self._tickets = np.full(self._items.num_envs * self._items.per_env, -1, np.int64)
        self._next_save = time.monotonic() + self._period

    @property
    def _items(self) -> Items:
        """Return the items that are drawn, transitions or sequences; each has slot and ticket.

        `per_env` of each of `num_envs` environments have a place; `steps` are those of a sequence,
        None of transitions; `period` steps lie between the begins of two items.
        """
        return self.buffer._items

    def status(self) -> ShardStatus:
        """Return the shard's `ShardStatus`."""
        buffer = self.buffer
        added = buffer.num_added * self._items.num_envs
        return ShardStatus(self._life, self._blocks, added, len(buffer), buffer.total_weight())

    def handshake(self) -> tuple[str, ShardStatus]:
        """Return the version of rlcpu here, and the status."""
        return rlcpu.__version__, self.status()

    def add(
        self, life: int, number: int, block: Any, priorities: Array | None = None
    ) -> ShardStatus | None:
        """Store a block of transitions.

        Args:
            life: of the `ShardStatus` that the sender knows.
            number: of the block: `ShardStatus.blocks`, counted on.
            block: structured like the example, leaves (n, *shape); for sequences, (num_steps,
                num_envs, *shape).
            priorities: (n,), or (num_sequences, num_envs) of those in the block that begin at the
                buffer's steps 0, period, 2 * period and so on; None gives them the largest one so
                far.

        Returns:
            The status; None if the block was meant for another life, and is not stored.

        Raises:
            TypeError, ValueError: see `ReplayBuffer.add`.
        """
        if life != self._life or number != self._blocks:
            return None
        buffer: Any = self.buffer
        if self._items.steps:
            buffer.cut()
        added_before = buffer.num_added
        buffer.add(block)
        self._blocks += 1
        first, complete, slots = self._issue_tickets(added_before)
        if priorities is not None and complete.size:
            rows = np.reshape(priorities, (-1, self._items.num_envs))[complete - first]
            buffer.update_priorities(slots.ravel(), rows.ravel())
        self._save_in_time()
        return self.status()

    def _issue_tickets(self, added_before: int) -> tuple[int, Array, Array]:
        """Give tickets to the items of the steps that came after the first `added_before`.

        Item k of each environment begins at step k * period, and has the place k % per_env. Items k
        of all environments have one ticket, in slots of their own: slot and ticket name an item.
        One that is not complete yet has ticket -1, like the places that nobody has written to.

        Returns:
            The number of the first item that began with these steps, the numbers (n,) of those that
            are complete, which have a ticket now, and their slots (n, num_envs).
        """
        items, added = self._items, self.buffer.num_added
        first = self._begun(added_before)
        begun = np.arange(first, self._begun(added))[-items.per_env :]  # the last ones fit
        tickets = self._tickets.reshape(items.num_envs, items.per_env)
        tickets[:, begun % items.per_env] = -1
        complete = begun[begun * items.period + (items.steps or 1) <= added]
        tickets[:, complete % items.per_env] = self._life + complete
        slots = (complete % items.per_env)[:, None] + items.per_env * np.arange(items.num_envs)
        return first, complete, slots

    def _begun(self, steps: int) -> int:
        """Return how many items of an environment begin within so many first steps."""
        return -(-steps // self._items.period)

    def sample(self, count: int, *updates: tuple[Array, Array, Array]) -> tuple[Updated, Drawn]:
        """Update priorities, then draw `count` items as the buffer does, or none if it is empty.

        Each of `updates` has the arguments of `update_priorities`.
        """
        applied = sum(self.update_priorities(*update).applied for update in updates)
        return Updated(applied, self.status()), self._draw(count)

    def _draw(self, count: int) -> Drawn:
        """Draw from the buffer; nothing, with empty arrays, while it cannot be sampled."""
        if not self.buffer.can_sample(count):
            fields, none = self.buffer.structure.fields, np.empty(0, np.int64)
            lead = (self._items.steps, 0) if self._items.steps else (0,)
            leaves = [np.empty((*lead, *field.shape), field.dtype) for field in fields]
            return Drawn(leaves, none, none, np.empty(0))
        batch = self.buffer.sample(count)
        probabilities = batch.probabilities
        if probabilities is None:
            probabilities = np.full(count, 1.0 / len(self.buffer))
        leaves = list(self.buffer.structure.collect(batch.data))
        return Drawn(leaves, batch.indices, self._tickets[batch.indices], probabilities)

    def update_priorities(self, slots: Array, tickets: Array, priorities: Array) -> Updated:
        """Give transitions that are still there new priorities."""
        is_present = self._tickets[slots] == tickets
        buffer: Any = self.buffer
        if is_present.any():
            buffer.update_priorities(slots[is_present], priorities[is_present])
        self._save_in_time()
        return Updated(int(is_present.sum()), self.status())

    # ------------------------------------------------------------ saving

    def save(self) -> ShardStatus:
        """Write the changes since the last save to the folder, if there is one."""
        if self._folder is not None:
            last_token, added = self._saved or (None, 0)  # `num_added` at the last save
            changed, written = self._slots_since(added), self._slots_since(0)
            size = self._tickets.itemsize  # sections count bytes
            data = self._tickets.view(np.uint8)
            tickets = Section("tickets", data, changed=size * changed, written=size * written)
            header = {
                "buffer": "ReplayShard",
                "blocks": self._blocks,
                "part": self.buffer.describe(),
            }
            sections = [tickets, *self.buffer.sections(added, "part_")]
            token = checkpoint.save(self._folder, header, sections, last_token)
            self._saved = token, self.buffer.num_added
        self._next_save = time.monotonic() + self._period
        return self.status()

    def _slots_since(self, added: int) -> Any:
        """Return ranges (any, 2) of slots of items that began after the first `added` steps."""
        items, end = self._items, self._begun(self.buffer.num_added)
        return spans(self._begun(added), end, items.per_env, items.num_envs)

    def _save_in_time(self) -> None:
        """Save if the period since the last save is over."""
        if time.monotonic() >= self._next_save:
            self.save()

    def _load(self, kind: Any, options: Mapping[str, Any]) -> None:
        """Restore buffer and tickets from the folder.

        Raises:
            ValueError: it holds a buffer of other sizes.
        """
        assert self._folder is not None
        with checkpoint.reading(self._folder, "ReplayShard") as reader:
            header, part = reader.header, reader.within("part_")
            settings = {"num_threads": options["num_threads"]}
            self.buffer = kind.restored(header["part"], part, options["example"], settings)
            self._blocks = int(header["blocks"])
            for name in _SIZES:
                if name in options and (saved := getattr(self.buffer, name)) != options[name]:
                    expected = f"expected {options[name]}"
                    raise ValueError(f"{self._folder}: holds {name}={saved}, {expected}")
            items, added = self._items, self.buffer.num_added
            self._tickets = np.empty(items.num_envs * items.per_env, np.int64)
            reader.read_into("tickets", self._tickets.view(np.uint8))
            # Places that nobody has written to are in no section.
            self._tickets.reshape(items.num_envs, -1)[:, self._begun(added) :] = -1
            self._saved = reader.token, added
