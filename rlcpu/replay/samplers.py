"""Which items of a buffer are drawn: uniformly, by priority, by value, or first in first out.

A sampler knows the items by their numbers (see `Items`), and none of their fields. Its buffer holds
the lock in every call. `ring` is the present state of the buffer's ring of steps, and `backend` has
the functions of the device.

Item number i of an environment begins at its step i * `items.period`, and has the index
env * `items.per_env` + i % `items.per_env`; `items.steps` are those of a sequence, None where items
are transitions. `tree.write_runs(num_envs, begin, end, leaves)` writes the leaves of items number
`begin` to `end`, exclusive, of each environment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.checks import (
    LeafRule,
    PairLimits,
    check_count,
    check_number,
    check_pairs,
    check_range,
)
from rlcpu.replay.items import Batch, Items, Ring, spans
from rlcpu.replay.storage import allocate

Array = npt.NDArray[Any]

MOST = 1e100  # priorities up to here: no exponent from 0 to 2 leaves the tree's range


class UniformSampler:
    """Draws each item as likely as the others, with replacement; the base of the other samplers."""

    def __init__(self, items: Items, backend: Any) -> None:
        self.items, self.backend = items, backend

    def add(self, before: Ring, after: Ring, *weights: Array) -> None:
        """Give new items their weights; calling it again changes nothing.

        The ring was `before`, and is `after`; `weights` are those of a class that takes them.
        """

    def can_draw(self, ring: Ring, count: int) -> bool:
        """Tell whether so many can be drawn: whether `draw` would not raise."""
        begin, end = self.items.numbers(ring)
        return end > begin

    def total_weight(self, ring: Ring) -> float:
        """Return the sum of the weights by which items are drawn."""
        begin, end = self.items.numbers(ring)
        return float((end - begin) * self.items.num_envs)

    def draw(self, stream: Array, ring: Ring, indices: Array, batch: Batch | None) -> None:
        """Draw items, or raise ValueError if there are none.

        Args:
            stream: (2,) uint64, key and counter of random numbers; the counter goes on.
            ring: see above.
            indices: (n,) int64, overwritten with the items' indices.
            batch: gets probabilities and importance weights, where items have different ones: not
                of this class.
        """
        items = self.items
        begin, end = items.to_draw(ring)
        # Item k of those that can be drawn has the index (first + k) % per_env. Transitions are in
        # all filled slots, from slot 0 on; sequences are there from number `begin` on.
        first = begin % items.per_env if items.steps else 0
        draw = self.backend.draw_items
        draw(stream, items.num_envs, first, end - begin, items.per_env, indices)

    def finish_draw(self) -> None:
        """Release the drawn items: their rows are copied."""

    def sections(self, added: int, ring: Ring) -> list[Section]:
        """Return arrays for a checkpoint; `added` steps were saved before."""
        return []

    def state(self) -> dict[str, Any]:
        """Return numbers for a checkpoint, as JSON has them."""
        return {}

    def restore(self, state: dict[str, Any], source: Reader, ring: Ring) -> None:
        """Read the state of a checkpoint; raises any error if it is damaged."""


class _Weighted(UniformSampler):
    """Draws items by the leaves of a tree, one for each item."""

    name = ""  # of the leaves, in checkpoints and errors
    tree: Any  # of the backend
    limits: PairLimits  # of indices and of the numbers that users give
    #: Whether leaves are powers of these, epsilon, and alpha; see `LeafRule`.
    exponents: tuple[bool, float, float] = (False, 0.0, 1.0)

    def _section(self, written: Any) -> Section:
        """Return the leaves for a checkpoint; sums above them are computed when it is loaded.

        `written` are ranges (num_ranges, 2) of leaves, outside of which all are zero.
        """
        leaves = self.backend.to_host(self.tree.leaves)
        written_bytes = leaves.itemsize * np.asarray(written)
        return Section(self.name, leaves.view(np.uint8), changed=None, written=written_bytes)

    def _read_leaves(self, source: Reader) -> Array:
        """Return the leaves of a checkpoint, (capacity,) float64."""
        leaves = allocate(8 * self.tree.capacity).view(np.float64)
        source.read_into(self.name, leaves.view(np.uint8))
        return leaves

    def check_pairs(self, indices: Any, numbers: Any) -> tuple[Array, Array]:
        """Return indices, and numbers for their leaves, after checks; see `checks.check_pairs`."""
        return check_pairs(self.backend, self.name, indices, numbers, self.limits)

    def _rule(self, ring: Ring) -> LeafRule:
        """Return what the tree makes of numbers."""
        items = self.items
        if items.steps is None:
            # What was overwritten hands its number to its successor: all are present.
            written, begin, num_present = min(ring.added, items.per_env), 0, items.per_env
        else:
            begin, end = items.numbers(ring)
            written, num_present = min(end, items.per_env), end - begin
        ranges = items.per_env, written, begin, num_present
        return LeafRule(*self.limits, *ranges, *self.exponents)


class ByPriority(_Weighted):
    """Draws items with probability P proportional to (priority + epsilon) ** alpha.

    Schaul et al. 2016, Prioritized experience replay, equations 1 and 3.3.
    """

    name = "priorities"

    def __init__(
        self,
        items: Items,
        backend: Any,
        alpha: float,
        beta: float,
        epsilon: float,
        num_threads: int | None,
    ) -> None:
        super().__init__(items, backend)
        self.alpha, self.beta, self.epsilon = alpha, beta, epsilon
        self.exponents = True, epsilon, alpha
        self.num_threads = num_threads
        capacity = check_count("capacity", items.num_envs * items.per_env)
        self.tree = backend.tree(capacity, extremes=False)
        self.limits = PairLimits(capacity, low=0.0, high=MOST)
        #: Step that no sequence runs across, see `PrioritizedTrajectoryBuffer.cut`.
        self.cut = 0

    @property
    def largest(self) -> float:
        """Return the leaf of new items: the largest that was ever in the tree, at least 1."""
        return float(self.backend.to_host(self.tree.largest)[0])

    def add(self, before: Ring, after: Ring, *weights: Array) -> None:
        """Give new items the largest priority, and 0 to sequences that are not complete yet.

        These have the leaves of older ones, whose steps were overwritten.
        """
        items, largest = self.items, self.tree.largest
        if items.steps is None:
            self.tree.write_runs(items.num_envs, before.added, after.added, largest)
            return
        _, end_before = items.numbers(before)
        begin, end = items.numbers(after)
        first_after_cut = -(-self.cut // items.period)
        begin = max(begin, end_before, first_after_cut)
        self.tree.write_runs(items.num_envs, min(begin, end), end, largest)
        num_begun_before, num_begun = (-(-ring.added // items.period) for ring in (before, after))
        begin = max(num_begun_before, end)  # those that have begun since, and are not complete
        self.tree.write_runs(items.num_envs, begin, num_begun, np.zeros(1))

    def can_draw(self, ring: Ring, count: int) -> bool:
        """Tell whether there are items, and one has a priority above zero."""
        return super().can_draw(ring, count) and self.total_weight(ring) > 0.0

    def draw(
        self, stream: Array, ring: Ring, indices: Array, batch: Any, beta: float | None = None
    ) -> None:
        """Fill indices, and the batch's probabilities and weights.

        Where items are there and none has a priority, a CUDA device tells so later: until then all
        indices, probabilities and weights are 0.
        """
        beta = self.beta if beta is None else check_number("beta", beta, 0.0, 1.0)
        self.items.to_draw(ring)  # raises where there is nothing at all
        drawn = self.tree.draw(stream, indices, num_threads=self.num_threads, beta=beta)
        batch.probabilities, batch.weights = drawn

    def total_weight(self, ring: Ring) -> float:
        """Return the sum of (priority + epsilon) ** alpha."""
        return float(self.tree.total())

    def check(self, ring: Ring, indices: Any, priorities: Any) -> tuple[Array, Array]:
        """Return indices and priorities after checks."""
        array, numbers = self.check_pairs(indices, priorities)
        self.items.refuse_unwritten(ring, array)
        return array, numbers

    def update(self, ring: Ring, indices: Array, priorities: Array) -> None:
        """Write the leaves of checked priorities; items no longer held are passed over."""
        self.tree.update(indices, priorities, self._rule(ring))

    def sections(self, added: int, ring: Ring) -> list[Section]:
        """Return the leaves of all items that have begun; others have no priority."""
        items = self.items
        num_begun = -(-ring.added // items.period)
        return [self._section(spans(0, num_begun, items.per_env, items.num_envs))]

    def state(self) -> dict[str, Any]:
        """Return the largest priority, and where no sequence runs across."""
        return {"largest": self.largest, "cut": self.cut}

    def restore(self, state: dict[str, Any], source: Reader, ring: Ring) -> None:
        """Read the state of a checkpoint; see `UniformSampler.restore`."""
        leaves = self._read_leaves(source)
        items = np.flatnonzero(leaves)  # zeros are not written: their pages take no memory
        limits = self.limits._replace(high=self.tree.most)  # leaves, not priorities
        self.tree.update(*check_pairs(self.backend, self.name, items, leaves[items], limits))
        # (priority + epsilon) ** alpha with both up to `MOST`, alpha up to 2, and some room.
        self.tree.largest[0] = check_number("largest", state["largest"], 0.0, (3.0 * MOST) ** 2)
        self.cut = check_count("cut", state.get("cut", 0), 0, ring.added + 1)


# ---------------------------------------------------------------- by value


class ByValue(_Weighted):
    """Draws different transitions of one environment by value - min(0, smallest value there).

    Where all weights are zero, all transitions are as likely; `fill_up` says whether those without
    a weight follow where fewer have one than are wanted.

    The tree holds sums of the values themselves: where another value becomes the smallest, all
    weights change, and no sum does.
    """

    name = "values"

    def __init__(self, items: Items, backend: Any, fill_up: bool) -> None:
        super().__init__(items, backend)
        self.fill_up = fill_up
        self.tree = backend.tree(items.per_env, extremes=True)
        # Sums of values that are raised by the smallest, to 2 * most each, have to be finite; there
        # are `per_env` leaves and some more to whole nodes.
        most = float(np.finfo(np.float64).max) / (4 * items.per_env + 64)
        self.limits = PairLimits(items.per_env, low=-most, high=most)

    def check(self, values: Any, count: int) -> Array:
        """Return (count,) values for `add`, or an exception."""
        return check_range(self.backend, self.name, values, count, self.limits)

    def add(self, before: Ring, after: Ring, *weights: Array) -> None:
        """Write the values of new items, `weights[0]`."""
        self.tree.write_runs(1, before.added, after.added, weights[0], after.filled)

    def update(self, ring: Ring, indices: Array, values: Array) -> None:
        """Write values that were checked; IndexError for an item that was never written."""
        self.items.refuse_unwritten(ring, indices)
        self.tree.update(indices, values, self._rule(ring), ring.filled)

    def can_draw(self, ring: Ring, count: int) -> bool:
        """Tell whether there are so many, with a weight unless others fill up: draw, to find out.

        From any stream of random numbers, for what they are decides only which items are drawn.
        """
        if self.fill_up or count > ring.filled:
            return count <= ring.filled
        stream, indices = np.zeros(2, np.uint64), self.backend.empty(count, np.int64)
        return bool(self.tree.draw_distinct(stream, indices, filled=ring.filled))

    def draw(self, stream: Array, ring: Ring, indices: Array, batch: Batch | None) -> None:
        """Draw different items; see `UniformSampler.draw`."""
        filled = ring.filled
        if not self.tree.draw_distinct(stream, indices, filled=filled, fills=self.fill_up):
            values = self.tree.leaves[:filled]
            num_weighted = int((values > min(values.min(), 0.0)).sum()) if filled else 0
            raise ValueError(
                f"sample: {indices.size} different transitions wanted, of {filled} there are, "
                f"{num_weighted} have a weight above zero"
            )

    def sections(self, added: int, ring: Ring) -> list[Section]:
        """Return the values."""
        return [self._section([(0, ring.filled)])]

    def restore(self, state: dict[str, Any], source: Reader, ring: Ring) -> None:
        """Read the state of a checkpoint; see `UniformSampler.restore`."""
        leaves, items = self._read_leaves(source), np.arange(ring.filled)
        pairs = self.check_pairs(items, leaves[: ring.filled])
        self.tree.update(*pairs, filled=ring.filled)


# ---------------------------------------------------------------- first in, first out


class InOrder(UniformSampler):
    """Draws the oldest steps of all environments, each once."""

    taken = 0  # steps of each environment that were drawn so far

    def waiting(self, ring: Ring) -> int:
        """Return steps that were not drawn yet."""
        return ring.added - self.taken

    def can_draw(self, ring: Ring, count: int) -> bool:
        """Tell whether so many sequences wait, one after the other."""
        return count * (self.items.steps or 1) <= self.waiting(ring)

    def draw(self, stream: Array, ring: Ring, indices: Array, batch: Batch | None) -> None:
        """Draw the oldest sequence of each environment; see `UniformSampler.draw`."""
        items, waiting = self.items, self.waiting(ring)
        if waiting < (items.steps or 1):
            raise ValueError(f"sample: {waiting} steps wait, expected {items.steps}")
        slots = np.arange(items.num_envs) * items.per_env + self.taken % items.per_env
        indices[:] = self.backend.asarray(slots)

    def finish_draw(self) -> None:
        """Free the slots of drawn steps for new ones."""
        self.taken += self.items.steps or 1

    def state(self) -> dict[str, Any]:
        """Return the position in the queue."""
        return {"taken": self.taken}

    def restore(self, state: dict[str, Any], source: Reader, ring: Ring) -> None:
        """Read the state of a checkpoint; see `UniformSampler.restore`."""
        self.taken = check_count("taken", state["taken"], 0)
        if not 0 <= self.waiting(ring) <= ring.length:
            raise ValueError(f"taken={self.taken}: expected at most {ring.added}")
