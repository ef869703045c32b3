"""Many shards behind the interface of one buffer.

Calls to shards are answered later. Blocks are sent without waiting, and remembered until a shard
has said that it stored them, for it may die before that. Batches are slices of a *stock* of
transitions, drawn by all shards for several batches at once. New priorities go with the next
request for transitions.

Each answer brings the shard's `ShardStatus`: `life` names the run of its process, which changes
with a restart; `added` and `blocks` count what it has stored, after a restart what it had saved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
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
from rlcpu.kernels.checks import check_seed
from rlcpu.replay.backend import find
from rlcpu.replay.checks import check_count, check_number, take_numbers
from rlcpu.replay.items import Batch
from rlcpu.replay.structure import TransitionStructure

Array = npt.NDArray[Any]

#: The name of a transition of any shard: the shard, its slot there, and its ticket.
ITEM = np.dtype([("shard", np.int32), ("slot", np.int64), ("ticket", np.int64)])


class EmptyError(ValueError):
    """No shard holds a transition that could be drawn."""


class _Sent(NamedTuple):
    """A block that was sent to a shard, which has not said that it stored it."""

    size: int  # transitions
    block: tuple[Any, Any]  # transitions and priorities, or references to them
    call: Any  # for `Remote.result`


class _Stock(NamedTuple):
    """Transitions that shards have drawn, of which batches are taken."""

    order: Array  # rows that are left, in random order: a batch is a slice of it
    leaves: list[Array]  # arrays of all rows, one for each field
    indices: Array  # of all rows
    probabilities: Array  # of all rows


class _Request(NamedTuple):
    """Transitions that shards were asked for."""

    size: int  # how many in all
    counts: Array  # (num_shards,) int64, how many of each
    shares: Array  # (num_shards,) float64, the probabilities by which these were chosen
    calls: dict[int, Any]  # by shard, for `Remote.result`; two results, `Updated` and `Drawn`
    updates: dict[int, int]  # by shard, how many priorities went with the call


#: Slots, tickets and priorities, arrays (n,) each.
_Update = tuple[Array, Array, Array]
#: Transitions of an update; an argument of more than 100 kB goes through the object store.
_MOST = 4000


def _joined(updates: Iterable[_Update]) -> list[_Update]:
    """Join updates into as few as possible, of `_MOST` transitions each."""
    columns = [np.concatenate(each) for each in zip(*updates, strict=True)]
    count = -(-len(columns[0]) // _MOST) if columns else 0
    return list(zip(*(np.array_split(each, count) for each in columns), strict=True))


class ShardedReplay:
    """Buffers in other processes, which together draw as one buffer would.

    A draw goes to a shard with the probability of its share of all weights, as far as they are
    known here: each answer of a shard tells its own. Importance weights are of the probabilities
    with which transitions were drawn in fact, so that they stay exact while weights move.

    One message to each shard asks for several batches (`prefetch`), for a message costs more than
    what it brings. The next ones are asked for when half of them are handed out, and priorities
    that were updated meanwhile go with that message: a batch does not know those of the last
    `1.5 * prefetch` batches before it. Ape-X draws 16 batches ahead (Horgan et al. 2018,
    "Distributed prioritized experience replay", section 4).

    Args:
        shards: of `ReplayShard`, all of one kind and example.
        structure: of a transition.
        beta: exponent of importance weights, 0 to 1; see `PrioritizedReplayBuffer`.
        prioritized: whether shards have priorities; without, batches have no weights.
        seed: of which shards are drawn from.
        prefetch: batches of a message; 0 to ask for each when it is wanted.
        ledger: where transitions are counted; of sequences, steps stored and sequences drawn.
        num_envs: of shards that are `PrioritizedTrajectoryBuffer`s, else None.
        sequence_length: the same.

    Raises:
        TypeError, ValueError: an argument is bad.
    """

    def __init__(
        self,
        shards: Sequence[Remote],
        structure: TransitionStructure,
        *,
        beta: float = 0.4,
        prioritized: bool = True,
        seed: int = 0,
        prefetch: int = 4,
        ledger: Ledger | None = None,
        num_envs: int | None = None,
        sequence_length: int | None = None,
    ) -> None:
        if not shards:
            raise ValueError("shards: there is none, expected one at least")
        self.structure, self.ledger = structure, ledger or Ledger()
        self.beta = check_number("beta", beta, 0.0, 1.0)
        self.prioritized = prioritized
        self.num_envs = num_envs
        #: Leading axes of a batch's leaves, before that of the batch.
        self._time_shape = () if sequence_length is None else (sequence_length,)
        self._shards = list(shards)
        self._rng = np.random.default_rng(check_seed(seed))
        self._prefetch = check_count("prefetch", prefetch, 0)
        self._request: _Request | None = None
        #: By shard, oldest first: blocks without an answer, and how many priorities a call has.
        self._sent: list[deque[_Sent]] = [deque() for _ in shards]
        self._updates: list[deque[tuple[int, Any]]] = [deque() for _ in shards]
        self._stock: _Stock | None = None
        #: Slots, tickets and priorities, which go with the next message to each shard.
        self._unsent: list[deque[_Update]] = [deque() for _ in shards]
        self._statuses: list[ShardStatus] = [shard.revive() for shard in shards]  # once they are up
        #: Transitions of each shard that the ledger has as stored, and not as lost.
        self._stored = [status.added for status in self._statuses]
        self.ledger.stored += sum(self._stored)
        self.ledger.requested += sum(self._stored)
        self._next = 0  # shard that the next block goes to
        self._count()

    def __len__(self) -> int:
        """Return the number of transitions held, as far as is known here."""
        return sum(self.sizes())

    def sizes(self) -> list[int]:
        """Return how many transitions each shard holds, as far as is known here."""
        return [status.held for status in self._statuses]

    # ------------------------------------------------------------ adding

    def add(self, block: Any, size: int | None = None, priorities: Any = None) -> None:
        """Send transitions to the next shard in turn; returns before they are stored.

        Args:
            block: structured like the example, leaves (n, *shape), or a reference to such in the
                object store, which is passed on and never read here. For sequences, leaves are
                (num_steps, num_envs, *shape); no sequence goes on in another block, so that blocks
                that are to follow each other begin with the last steps of the one before.
            size: n, or num_steps * num_envs, if it is a reference.
            priorities: see `ReplayShard.add`, or a reference to them, or to None; without, what is
                new gets the largest priority so far.

        Raises:
            TypeError, ValueError: the block does not fit the example.
        """
        if size is None:
            block, size = self._check(block)
            self.ledger.requested += size
        shard, self._next = self._next, (self._next + 1) % len(self._shards)
        self.ledger.on_the_way += size
        self._send(shard, size, (block, priorities))

    def _check(self, block: Any) -> tuple[Any, int]:
        """Return a block that fits the example, and how many transitions it has."""
        arrays, lead = self.structure.check(block, 1 + len(self._time_shape))
        if not self._time_shape:
            block = [array if lead else array[None] for array in arrays]
            return self.structure.unflatten(block), lead[0] if lead else 1
        if len(lead) != 2 or lead[0] < self._time_shape[0] or lead[1] != self.num_envs:
            raise ValueError(
                f"block has leading axes {lead}: expected (num_steps, {self.num_envs}) with "
                f"{self._time_shape[0]} steps at least"
            )
        return self.structure.unflatten(arrays), lead[0] * lead[1]

    def _send(self, shard: int, size: int, block: tuple[Any, Any]) -> None:
        """Send a block to a shard as the next one of its present life, and remember it."""

        def send() -> Any:
            status = self._statuses[shard]
            number = status.blocks + len(self._sent[shard])
            return self._shards[shard].call("add", status.life, number, *block)

        call = wait_for_room(send, self.ledger, self._drop_stored)
        self._sent[shard].append(_Sent(size, block, call))

    def _call(self, shard: int, method: str, *arguments: Any) -> Any:
        """Call a shard as soon as its arguments have room."""
        call = self._shards[shard].call
        return wait_for_room(lambda: call(method, *arguments), self.ledger, self._drop_stored)

    def _drop_stored(self) -> None:
        """Forget blocks that shards have stored; dead shards are left for the next call."""
        for shard in range(len(self._shards)):
            self._take_answers_of(shard, False)
        self._count()

    def take_answers(self, *, wait: bool = False) -> None:
        """Read the answers of shards that have come, and revive dead shards.

        Args:
            wait: send all priorities, drop the stock, and wait for all answers.
        """
        if wait:
            self._stock = None
            request, self._request = self._request, None
            if request:
                self._read(request)
            self._send_priorities()
        for shard in range(len(self._shards)):
            while not self._take_answers_of(shard, wait) or (
                wait and self._shards[shard].revive().life != self._statuses[shard].life
            ):  # it died, or it died between two calls and is back
                self._recover(shard)
        self._count()

    def _take_answers_of(self, shard: int, wait: bool) -> bool:
        """Read the answers of one shard that have come, or all; return False if it has died."""
        remote, sent, updates = self._shards[shard], self._sent[shard], self._updates[shard]
        try:
            while sent and (wait or remote.is_ready(sent[0].call)):
                self._take_stored(shard)
            while updates and (wait or remote.is_ready(updates[0][1])):
                self._take_applied(shard)
        except LostError:
            return False
        return True

    def _take_stored(self, shard: int) -> None:
        """Read the answer to the oldest block that was sent, and count its transitions.

        Raises:
            LostError: the shard died.
        """
        sent = self._sent[shard]
        try:
            status = self._shards[shard].result(sent[0].call)
        except LostArgumentError:
            size = sent.popleft().size
            self.ledger.on_the_way -= size
            self.ledger.lost_on_the_way += size
            self._send_again(shard)  # the shard takes nothing that comes after a gap
            return
        if status is None:  # the shard has died since it was sent, and is back
            raise LostError
        size = sent.popleft().size
        self._statuses[shard] = status
        self._stored[shard] += size
        self.ledger.on_the_way -= size
        self.ledger.stored += size

    def _take_applied(self, shard: int) -> None:
        """Read the answer to the oldest update of priorities; LostError if the shard died."""
        count, call = self._updates[shard][0]
        updated = self._shards[shard].result(call)
        self._updates[shard].popleft()
        self._count_updated(shard, count, updated)

    def _count_updated(self, shard: int, count: int, updated: Updated) -> None:
        """Count `count` priorities that were sent, and read the shard's new sum of weights.

        Other fields of its status are read from the answers of `add` alone.
        """
        self.ledger.priorities_applied += updated.applied
        self.ledger.priorities_dropped += count - updated.applied
        status = self._statuses[shard]
        if updated.status.life == status.life:
            self._statuses[shard] = status._replace(total=updated.status.total)

    def _recover(self, shard: int) -> None:
        """Wait until a shard that died is back, count losses, and send blocks it has not stored."""
        ledger, sent = self.ledger, self._sent[shard]
        life = self._statuses[shard].life
        self._statuses[shard] = status = self._shards[shard].revive()
        ledger.shard_restarts += status.life != life  # one death may lose several calls
        ledger.priorities_dropped += sum(count for count, _ in self._updates[shard])
        self._updates[shard].clear()
        # Blocks that it stored and saved, and died before it answered.
        while sent and self._stored[shard] + sent[0].size <= status.added:
            size = sent.popleft().size
            self._stored[shard] += size
            ledger.on_the_way -= size
            ledger.stored += size
        # What it had stored, but not saved.
        ledger.lost_with_shards += self._stored[shard] - status.added
        self._stored[shard] = status.added
        self._send_again(shard)
        self._count()

    def _send_again(self, shard: int) -> None:
        """Send a shard all blocks that it has not stored, numbered from the one it waits for."""
        not_stored = list(self._sent[shard])
        self._sent[shard].clear()
        for each in not_stored:
            self._send(shard, each.size, each.block)

    def _count(self) -> None:
        """Count the transitions that shards hold, and those that were overwritten."""
        count = len(self)
        self.ledger.held = count
        self.ledger.overwritten = self.ledger.stored - self.ledger.lost_with_shards - count

    # ------------------------------------------------------------ sampling

    def can_sample(self, batch_size: int = 1) -> bool:
        """Tell whether any shard has something to be drawn."""
        self.take_answers()
        return self._total() > 0.0

    def sample(
        self, batch_size: int, *, beta: float | None = None, out: Batch | None = None
    ) -> Batch:
        """Draw transitions, or sequences, from all shards, with replacement, in random order.

        Args:
            batch_size: how many.
            beta: instead of the replay's own.
            out: a batch that this replay returned for the same size: overwritten and returned.

        Returns:
            Their copies, leaves (batch_size, *shape), or (sequence_length, batch_size, *shape);
            `indices` are of dtype `ITEM`. A field `discount` of transitions is also the batch's
            `discounts`.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind.
            EmptyError: there is nothing to be drawn.
        """
        size = check_count("batch_size", batch_size)
        beta = self.beta if beta is None else check_number("beta", beta, 0.0, 1.0)
        if out is None:
            out = self._new_batch(size)
        elif not (isinstance(out, Batch) and out.owner is self and len(out) == size):
            raise ValueError(
                f"out={type(out).__name__}: expected a Batch that this replay returned for "
                f"batch_size={size}"
            )
        self.take_answers()
        indices, probabilities, filled = np.empty(size, ITEM), np.empty(size), 0
        while filled < size:
            if self._stock is None:
                request = self._request or self._ask(max(self._prefetch, 1) * size)
                self._request = None
                self._stock_up(request)
            filled += self._fill(out.rows, indices, probabilities, filled)
        num_left = 0 if self._stock is None else len(self._stock.order)
        is_low = self._prefetch > 0 and num_left <= self._prefetch // 2 * size
        if is_low and not self._request and self._total() > 0.0:
            self._request = self._ask(self._prefetch * size)
        items: Any = indices
        out.indices, out.probabilities = items, probabilities
        if self.prioritized:
            weights = (len(self) * probabilities) ** -beta
            out.weights = (weights / weights.max()).astype(np.float32)
        self.ledger.sampled += size
        return out

    def _new_batch(self, size: int) -> Batch:
        """Return arrays for a batch."""
        fields, items = self.structure.fields, (*self._time_shape, size)
        leaves = [np.empty((*items, *field.shape), field.dtype) for field in fields]
        batch = Batch(self.structure.unflatten(leaves), leaves, np.empty(size, np.int64), self)
        names = [field.name for field in fields]
        if "discount" in names and not self._time_shape:
            batch.discounts = leaves[names.index("discount")]
        return batch

    def _fill(self, leaves: Any, indices: Array, probabilities: Array, begin: int) -> int:
        """Fill a batch from its row `begin` on from the stock, and return how many rows.

        Leaves, indices and probabilities are the batch's, and overwritten.
        """
        assert self._stock is not None
        stock = self._stock
        rows, rest = np.split(stock.order, [len(indices) - begin])
        self._stock = stock._replace(order=rest) if len(rest) else None
        places, axis = slice(begin, begin + len(rows)), len(self._time_shape)
        lead = (slice(None),) * axis
        for target, source in zip(leaves, stock.leaves, strict=True):
            np.take(source, rows, axis, out=target[(*lead, places)], mode="clip")
        indices[places], probabilities[places] = stock.indices[rows], stock.probabilities[rows]
        return len(rows)

    def _stock_up(self, request: _Request) -> None:
        """Make a new stock of the transitions that shards drew for a request."""
        parts, missing = self._read(request)
        while missing:
            more, missing = self._read(self._ask(missing))
            parts += more
        sizes = [len(drawn.slots) for _, _, drawn in parts]
        indices, axis = np.empty(sum(sizes), ITEM), len(self._time_shape)
        indices["shard"] = np.repeat([shard for shard, _, _ in parts], sizes)
        indices["slot"] = np.concatenate([drawn.slots for _, _, drawn in parts])
        indices["ticket"] = np.concatenate([drawn.tickets for _, _, drawn in parts])
        fields = zip(*(drawn.leaves for _, _, drawn in parts), strict=True)
        self._stock = _Stock(
            self._rng.permutation(len(indices)),
            # Arrays of a single shard are not copied.
            [each[0] if len(each) == 1 else np.concatenate(each, axis) for each in fields],
            indices,
            np.concatenate([share * drawn.probabilities for _, share, drawn in parts]),
        )

    def _total(self) -> float:
        """Return the sum of all shards' weights."""
        return sum(status.total for status in self._statuses)

    def _ask(self, size: int) -> _Request:
        """Ask shards for transitions, in proportion to their weights."""
        if not self._total() > 0.0:
            raise EmptyError("sample: no shard holds a transition of a priority above zero")
        shares = np.array([status.total for status in self._statuses]) / self._total()
        counts = self._rng.multinomial(size, shares)
        calls, updates = {}, {}
        for shard in np.flatnonzero(counts).tolist():
            unsent = _joined(self._unsent[shard])
            updates[shard] = sum(len(slots) for slots, _, _ in unsent)
            calls[shard] = self._call(shard, "sample", int(counts[shard]), *unsent)
            self._unsent[shard].clear()
        return _Request(size, counts, shares, calls, updates)

    def _read(self, request: _Request) -> tuple[list[tuple[int, float, Drawn]], int]:
        """Wait for the items that shards drew.

        Returns:
            For each shard its number, its share of the draws and its items; and how many items are
            missing because shards died.
        """
        parts, missing = [], 0
        for shard in request.calls:
            try:
                drawn = self._read_one(shard, request)
            except LostError:
                self._recover(shard)
                drawn = None
            if drawn is not None and len(drawn.slots):
                parts.append((shard, float(request.shares[shard]), drawn))
            else:  # it died, or has nothing left since it came back
                missing += int(request.counts[shard])
        return parts, missing

    def _read_one(self, shard: int, request: _Request) -> Drawn:
        """Wait for the items that a shard drew; where they had no room, others are drawn.

        Raises:
            LostError: the shard died.
        """
        remote, (updated_call, drawn_call) = self._shards[shard], request.calls[shard]
        num_updates, count = request.updates[shard], int(request.counts[shard])

        def draw_again() -> Any:
            return remote.result(remote.call("sample", count)[1])

        try:
            updated: Updated = remote.result(updated_call)
        except LostError:
            self.ledger.priorities_dropped += num_updates
            raise
        self._count_updated(shard, num_updates, updated)
        try:
            drawn: Drawn = remote.result(drawn_call)
        except StoreFullError:
            self.ledger.waits += 1
            drawn = wait_for_room(draw_again, self.ledger, self._drop_stored)
        if not len(drawn.slots) and updated.status.life != self._statuses[shard].life:
            raise LostError("it died between two calls")
        return drawn

    def update_priorities(self, indices: Array, priorities: npt.ArrayLike) -> None:
        """Give transitions new priorities, with the next message to their shards.

        Those that were overwritten or lost are passed over and counted.

        Args:
            indices: (n,) of dtype `ITEM`, as a batch has them.
            priorities: (n,), or one for all; finite and not negative.

        Raises:
            TypeError, ValueError: see `PrioritizedReplayBuffer.update_priorities`.
        """
        if not self.prioritized:
            raise TypeError("update_priorities: the shards have no priorities")
        if getattr(indices, "dtype", None) != ITEM or np.ndim(indices) != 1:
            raise TypeError(f"indices={indices!r}: expected those of a batch of this replay")
        numbers = np.asarray(take_numbers(find("cpu"), "priorities", priorities, len(indices)))
        if not (numbers >= 0.0).all() or not np.isfinite(numbers).all():
            raise ValueError("priorities: expected finite numbers that are not negative")
        order = np.argsort(indices["shard"], kind="stable")
        ends = np.cumsum(np.bincount(indices["shard"], minlength=len(self._shards)))[:-1]
        for shard, positions in enumerate(np.split(order, ends)):
            if len(positions):
                items = indices[positions]
                update = items["slot"].copy(), items["ticket"].copy(), numbers[positions]
                self._unsent[shard].append(update)
        self._send_priorities(remaining=max(self._prefetch, 1))

    def _send_priorities(self, *, remaining: int = 0) -> None:
        """Send updates in messages of their own; the last ones remain for the next request."""
        for shard, unsent in enumerate(self._unsent):
            while len(unsent) > remaining:
                call = self._call(shard, "update_priorities", *unsent[0])
                self._updates[shard].append((len(unsent.popleft()[0]), call))

    def save(self) -> None:
        """Let every shard save to its folder, and wait for it."""
        self._send_priorities()
        calls = [shard.call("save") for shard in self._shards]
        for number, (shard, call) in enumerate(zip(self._shards, calls, strict=True)):
            try:
                shard.result(call)
            except LostError:
                self._recover(number)
