"""The learner's side of one shard: what was sent to it, and what it has answered.

Calls to shards are answered later. Blocks are sent without waiting, and remembered until the shard
has said that it stored them, for it may die before that. New priorities go with the next request
for items.

Each answer brings the shard's `ShardStatus`: `life` names the run of its process, which changes
with a restart; `added` transitions and `blocks` count what it has stored, after a restart what it
had saved; `held` are the transitions that are still there, `total` the sum of their weights.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.distributed.ledger import Ledger
from rlcpu.distributed.remote import (
    LostArgumentError,
    LostError,
    Remote,
    StoreFullError,
    wait_for_room,
)
from rlcpu.distributed.shard import Drawn, ShardStatus, Updated

Array = npt.NDArray[Any]
#: Priorities of a message; an argument of more than 100 kB goes through the object store.
_MOST = 4000


class Priorities(NamedTuple):
    """New priorities of n items of a shard."""

    slots: Array  # (n,) int64
    tickets: Array  # (n,) int64
    values: Array  # (n,) float64


class _SentBlock(NamedTuple):
    """A block that the shard has not said to have stored."""

    size: int  # transitions
    block: Any  # transitions, or a reference to them
    priorities: Any  # of these, or a reference to them, or None
    call: Any  # for `Remote.result`


class _SentPriorities(NamedTuple):
    """Priorities that the shard has not said to have received."""

    size: int
    call: Any


class Asked(NamedTuple):
    """Items that a shard was asked to draw."""

    shard: int  # number of the shard
    size: int
    share: float  # probability by which the shard was chosen for each
    num_priorities: int  # that went with the call
    updated: Any  # calls for `Remote.result`, of an `Updated` and a `Drawn`
    drawn: Any


class ShardClient:
    """One shard, a `ReplayShard` in its process, as the learner sees it.

    Transitions are counted in the ledger. `meanwhile` is called while a message waits for room in
    the object store.
    """

    def __init__(
        self, remote: Remote, number: int, ledger: Ledger, meanwhile: Callable[[], None]
    ) -> None:
        self._remote, self._number = remote, number
        self._ledger, self._meanwhile = ledger, meanwhile
        #: As far as it is known here.
        self.status: ShardStatus = remote.revive()  # once its process runs
        self._stored = self.status.added  # transitions that the ledger has as stored, and not lost
        ledger.stored += self._stored
        ledger.requested += self._stored
        ledger.held += self.status.held
        ledger.overwritten += self._stored - self.status.held
        # Oldest first: what has no answer, and priorities that go with the next request.
        self._sent_blocks: deque[_SentBlock] = deque()
        self._sent_priorities: deque[_SentPriorities] = deque()
        self._unsent: deque[Priorities] = deque()

    # ------------------------------------------------------------ blocks

    def send(self, size: int, block: Any, priorities: Any) -> None:
        """Send a block as the next one of the shard's present life, and remember it."""

        def send() -> Any:  # reading answers meanwhile changes the status, and what was sent
            status = self.status
            number = status.blocks + len(self._sent_blocks)
            return self._remote.call("add", status.life, number, block, priorities)

        call = wait_for_room(send, self._ledger, self._meanwhile)
        self._sent_blocks.append(_SentBlock(size, block, priorities, call))

    def _send_again(self) -> None:
        """Send all blocks that are not stored, numbered from the one that the shard waits for."""
        not_stored = list(self._sent_blocks)
        self._sent_blocks.clear()
        for sent in not_stored:
            self.send(sent.size, sent.block, sent.priorities)

    # ------------------------------------------------------------ answers

    def take_answers(self, wait: bool) -> None:
        """Read the answers that have come, or wait for all; recover the shard if it has died."""
        while not self.read_answers(wait) or (wait and self._has_restarted()):
            self.recover()

    def _has_restarted(self) -> bool:
        """Tell whether the shard died between two calls, and is back."""
        present: ShardStatus = self._remote.revive()
        return present.life != self.status.life

    def read_answers(self, wait: bool = False) -> bool:
        """Read the answers that have come, or wait for all; return False if the shard has died."""
        blocks, priorities = self._sent_blocks, self._sent_priorities
        is_ready = self._remote.is_ready
        try:
            while blocks and (wait or is_ready(blocks[0].call)):
                self._read_stored()
            while priorities and (wait or is_ready(priorities[0].call)):
                updated = self._remote.result(priorities[0].call)
                self._count_updated(priorities.popleft().size, updated)
        except LostError:
            return False
        return True

    def _read_stored(self) -> None:
        """Read the answer to the oldest block, and count it; LostError if the shard died."""
        try:
            status = self._remote.result(self._sent_blocks[0].call)
        except LostArgumentError:
            size = self._sent_blocks.popleft().size
            self._ledger.on_the_way -= size
            self._ledger.lost_on_the_way += size
            self._send_again()  # the shard takes nothing that comes after a gap
            return
        if status is None:  # the shard has died since the block was sent, and is back
            raise LostError
        self._count_stored()
        self._set_status(status)

    def _count_stored(self) -> None:
        """Count the oldest block that was sent as stored."""
        size = self._sent_blocks.popleft().size
        self._stored += size
        self._ledger.on_the_way -= size
        self._ledger.stored += size

    def _set_status(self, status: ShardStatus) -> None:
        """Set the status, and count what the shard holds; stored and lost ones are counted."""
        ledger = self._ledger
        ledger.held += status.held - self.status.held
        ledger.overwritten = ledger.stored - ledger.lost_with_shards - ledger.held
        self.status = status

    def _count_updated(self, size: int, updated: Updated) -> None:
        """Count `size` priorities that were sent, and set the shard's new sum of weights.

        Blocks that its status counts may still have answers that nobody has read.
        """
        self._ledger.priorities_applied += updated.applied
        self._ledger.priorities_dropped += size - updated.applied
        if updated.status.life == self.status.life:
            self.status = self.status._replace(total=updated.status.total)

    def recover(self) -> None:
        """Wait until the dead shard is back, count losses, and send blocks it has not stored."""
        ledger, status = self._ledger, self._remote.revive()
        ledger.shard_restarts += status.life != self.status.life  # one death loses several calls
        ledger.priorities_dropped += sum(sent.size for sent in self._sent_priorities)
        self._sent_priorities.clear()
        # Blocks that it stored and saved, and died before it answered.
        while self._sent_blocks and self._stored + self._sent_blocks[0].size <= status.added:
            self._count_stored()
        # What it had stored, but not saved.
        ledger.lost_with_shards += self._stored - status.added
        self._stored = status.added
        self._set_status(status)
        self._send_again()

    # ------------------------------------------------------------ items

    def request(self, size: int, share: float) -> Asked:
        """Ask for items, drawn at random; all priorities that are not sent go with the message."""
        unsent = _join(self._unsent)
        calls = self._call("sample", size, *unsent)
        self._unsent.clear()
        num_priorities = sum(len(each.slots) for each in unsent)
        return Asked(self._number, size, share, num_priorities, *calls)

    def read(self, asked: Asked) -> Drawn | None:
        """Wait for the items; return None if the shard died, or has none left since it is back."""
        try:
            drawn = self._read_drawn(asked)
        except LostError:
            self.recover()
            return None
        return drawn if len(drawn.slots) else None

    def _read_drawn(self, asked: Asked) -> Drawn:
        """Wait for the items, or draw others where these had no room; LostError if it died."""

        def draw_again() -> Any:
            _, drawn = self._remote.call("sample", asked.size)
            return self._remote.result(drawn)

        try:
            updated: Updated = self._remote.result(asked.updated)
        except LostError:
            self._ledger.priorities_dropped += asked.num_priorities
            raise
        self._count_updated(asked.num_priorities, updated)
        try:
            drawn: Drawn = self._remote.result(asked.drawn)
        except StoreFullError:
            self._ledger.waits += 1
            drawn = wait_for_room(draw_again, self._ledger, self._meanwhile)
        # A shard that came back with items has drawn good ones, of what it had saved.
        if not len(drawn.slots) and updated.status.life != self.status.life:
            raise LostError("it died between two calls")
        return drawn

    def update_priorities(self, priorities: Priorities) -> None:
        """Remember priorities, which go with the next request, or a message of their own."""
        self._unsent.append(priorities)

    def send_priorities(self, remaining: int = 0) -> None:
        """Send the oldest priorities, each in a message of its own, until so many remain."""
        while len(self._unsent) > remaining:
            call = self._call("update_priorities", *self._unsent[0])
            self._sent_priorities.append(_SentPriorities(len(self._unsent.popleft().slots), call))

    def start_saving(self) -> Any:
        """Let the shard save; returns the call for `finish_saving`."""
        return self._remote.call("save")

    def finish_saving(self, call: Any) -> None:
        """Wait until the shard has saved; one that died is recovered."""
        try:
            self._remote.result(call)
        except LostError:
            self.recover()

    def _call(self, method: str, *arguments: Any) -> Any:
        """Call the shard as soon as the arguments have room."""
        return wait_for_room(
            lambda: self._remote.call(method, *arguments), self._ledger, self._meanwhile
        )


def _join(priorities: Iterable[Priorities]) -> list[Priorities]:
    """Join priorities into as few as possible, of at most `_MOST` items each."""
    columns = [np.concatenate(each) for each in zip(*priorities, strict=True)]
    count = -(-len(columns[0]) // _MOST) if columns else 0
    pieces = zip(*(np.array_split(each, count) for each in columns), strict=True)
    return list(map(Priorities._make, pieces))
