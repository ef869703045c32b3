"""Many shards behind the interface of one buffer.

Blocks go to the shards in turn. Batches are slices of a *stock* of transitions, drawn by all shards
for several batches at once. `rlcpu.distributed.client` says what becomes of calls to a shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.distributed.client import Asked, Priorities, ShardClient
from rlcpu.distributed.ledger import Ledger
from rlcpu.distributed.remote import Remote
from rlcpu.distributed.shard import Drawn
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


class _Stock(NamedTuple):
    """Transitions that shards have drawn, of which batches are taken."""

    order: Array  # rows that are left, in random order: a batch is a slice of it
    leaves: list[Array]  # arrays of all rows, one for each field
    indices: Array  # of all rows, of dtype `ITEM`
    probabilities: Array  # of all rows


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
        #: A learner's buffer in whose place this stands; its files hold that one.
        self.in_place_of: Any = None
        self._rng = np.random.default_rng(check_seed(seed))
        self._prefetch = check_count("prefetch", prefetch, 0)
        self._asked: list[Asked] = []  # what comes into the next stock
        self._stock: _Stock | None = None
        self._next = 0  # shard that the next block goes to
        self._shards: list[ShardClient] = []
        for number, shard in enumerate(shards):
            self._shards.append(ShardClient(shard, number, self.ledger, self._drop_stored))

    def __len__(self) -> int:
        """Return the number of transitions held, as far as is known here."""
        return sum(self.sizes())

    def sizes(self) -> list[int]:
        """Return how many transitions each shard holds, as far as is known here."""
        return [shard.status.held for shard in self._shards]

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
        self.ledger.on_the_way += size
        shard, self._next = self._shards[self._next], (self._next + 1) % len(self._shards)
        shard.send(size, block, priorities)

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

    def _drop_stored(self) -> None:
        """Forget blocks that shards have stored; dead shards are left for the next call."""
        for shard in self._shards:
            shard.read_answers()

    def take_answers(self, *, wait: bool = False) -> None:
        """Read the answers of shards that have come, and revive dead shards.

        Args:
            wait: send all priorities, drop the stock, and wait for all answers.
        """
        if wait:
            self._stock = None
            asked, self._asked = self._asked, []
            for each in asked:
                self._shards[each.shard].read(each)
            for shard in self._shards:
                shard.send_priorities()
        for shard in self._shards:
            shard.take_answers(wait)

    # ------------------------------------------------------------ sampling

    def can_sample(self, batch_size: int = 1) -> bool:
        """Tell whether `sample` could draw so many, as far as is known here.

        A shard whose weights have become zero meanwhile, or that dies, may still let `sample` raise
        `EmptyError`.
        """
        size = check_count("batch_size", batch_size)
        self.take_answers()
        num_left = 0 if self._stock is None else len(self._stock.order)
        return self._total() > 0.0 or num_left >= size

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
                asked = self._asked or self._ask(max(self._prefetch, 1) * size)
                self._asked = []
                self._stock = self._draw_stock(asked)
            filled += self._fill(out.rows, indices, probabilities, filled)
        self._ask_ahead(size)
        items: Any = indices
        out.indices, out.probabilities = items, probabilities
        if self.prioritized:
            weights = (len(self) * probabilities) ** -beta
            out.weights = (weights / weights.max()).astype(np.float32)
        self.ledger.sampled += size
        return out

    def _new_batch(self, size: int) -> Batch:
        """Return arrays for a batch; each `sample` puts others in the place of its indices."""
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
        filled, axis = slice(begin, begin + len(rows)), len(self._time_shape)
        for target, source in zip(leaves, stock.leaves, strict=True):
            place = target[:, filled] if self._time_shape else target[filled]
            # No row is outside; where NumPy is to raise, it writes to a copy of `out` first.
            np.take(source, rows, axis, out=place, mode="clip")
        indices[filled], probabilities[filled] = stock.indices[rows], stock.probabilities[rows]
        return len(rows)

    def _total(self) -> float:
        """Return the sum of all shards' weights."""
        return sum(shard.status.total for shard in self._shards)

    def _ask(self, size: int) -> list[Asked]:
        """Ask shards for transitions, in proportion to their weights; EmptyError without any."""
        if not self._total() > 0.0:
            raise EmptyError("sample: no shard holds a transition of a priority above zero")
        shares = np.array([shard.status.total for shard in self._shards]) / self._total()
        counts = self._rng.multinomial(size, shares)
        return [
            shard.request(int(count), float(share))
            for shard, count, share in zip(self._shards, counts, shares, strict=True)
            if count
        ]

    def _ask_ahead(self, size: int) -> None:
        """Ask for `prefetch` batches of a size if half of them are handed out, and not before."""
        num_left = 0 if self._stock is None else len(self._stock.order)
        is_low = self._prefetch > 0 and num_left <= self._prefetch // 2 * size
        if is_low and not self._asked and self._total() > 0.0:
            self._asked = self._ask(self._prefetch * size)

    def _draw_stock(self, asked: list[Asked]) -> _Stock:
        """Return the transitions that shards drew; where one died, others draw in its place."""
        parts: list[tuple[Asked, Drawn]] = []
        while asked:
            missing = 0
            for each in asked:
                drawn = self._shards[each.shard].read(each)
                if drawn is None:
                    missing += each.size
                else:
                    parts.append((each, drawn))
            asked = self._ask(missing) if missing else []
        all_drawn = [drawn for _, drawn in parts]
        sizes = [len(drawn.slots) for drawn in all_drawn]
        indices, axis = np.empty(sum(sizes), ITEM), len(self._time_shape)
        indices["shard"] = np.repeat([each.shard for each, _ in parts], sizes)
        indices["slot"] = np.concatenate([drawn.slots for drawn in all_drawn])
        indices["ticket"] = np.concatenate([drawn.tickets for drawn in all_drawn])
        fields = zip(*(drawn.leaves for drawn in all_drawn), strict=True)
        return _Stock(
            self._rng.permutation(len(indices)),
            # Arrays of a single shard are not copied.
            [each[0] if len(each) == 1 else np.concatenate(each, axis) for each in fields],
            indices,
            np.concatenate([each.share * drawn.probabilities for each, drawn in parts]),
        )

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
        for number, shard in enumerate(self._shards):
            places = np.flatnonzero(indices["shard"] == number)
            if len(places):
                items, values = indices[places], numbers[places]
                slots, tickets = items["slot"].copy(), items["ticket"].copy()
                shard.update_priorities(Priorities(slots, tickets, values))
        for shard in self._shards:
            shard.send_priorities(remaining=max(self._prefetch, 1))

    def save(self) -> None:
        """Let every shard save to its folder, and wait for it."""
        for shard in self._shards:
            shard.send_priorities()
        calls = [shard.start_saving() for shard in self._shards]
        for shard, call in zip(self._shards, calls, strict=True):
            shard.finish_saving(call)
