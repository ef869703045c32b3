"""Priorities of the items of a buffer: exponents, new items, importance weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.replay.batch import Batch
from rlcpu.replay.buffer import Buffer
from rlcpu.replay.checks import check_count, check_indices, check_number, check_numbers, refuse
from rlcpu.replay.memory import allocate
from rlcpu.replay.sections import Section
from rlcpu.replay.storage import Source
from rlcpu.replay.sum_tree import SumTree
from rlcpu.replay.upkeep import first_offender

Array = npt.NDArray[Any]

MOST = 1e100  # so that no exponent from 0 to 2 leaves the tree's range


class Priorities:
    """Priorities p of items, drawn with probability P proportional to (p + epsilon) ** alpha.

    Schaul et al. 2016, Prioritized experience replay, equations 1 and 3.3.

    Args:
        num_items: number of items; none of them has a priority at first.
        alpha: 0 draws uniformly, 1 in proportion; at most 2.
        beta: 0 to 1, how much of the bias importance weights correct.
        epsilon: added to each priority, so that items of priority 0 are drawn too.

    Attributes:
        largest: largest priority ever given (after exponentiation), at first 1: of new items.
    """

    def __init__(self, num_items: int, alpha: float, beta: float, epsilon: float) -> None:
        self.alpha = check_number("alpha", alpha, 0.0, 2.0)
        self.beta = check_number("beta", beta, 0.0, 1.0)
        self.epsilon = check_number("epsilon", epsilon, 0.0, MOST)
        self.tree = SumTree(check_count("capacity", num_items), seed=0)
        self.largest = 1.0

    def check(self, indices: Any, priorities: Any) -> tuple[Array, Array]:
        """Indices and what their leaves will be: the only place where alpha is applied."""
        array = check_indices(indices)
        numbers = check_numbers("priorities", priorities, array.size)
        capacity = self.tree.capacity
        place = first_offender(array, numbers, capacity, 0.0, MOST)
        if place >= 0:
            expected = f"a priority in [0, {MOST:g}]"
            number = float(numbers[place])
            raise refuse("priorities", int(array[place]), number, capacity, expected)
        return array, (numbers + self.epsilon) ** self.alpha

    def update(self, indices: Array, leaves: Array) -> None:
        """Write checked leaves."""
        self.largest = max(self.largest, self.tree.write(indices, leaves))

    def mark(self, num_envs: int, begin: int, end: int) -> None:
        """Give new items the largest priority; see `SumTree.mark`."""
        self.tree.mark(num_envs, begin, end, self.largest)

    def clear(self, num_envs: int, begin: int, end: int) -> None:
        """Take the priority of items that are lost."""
        self.tree.mark(num_envs, begin, end, 0.0)

    def draw(self, stream: Array, indices: Array, batch: Batch, beta: float | None) -> None:
        """Fill indices, and a batch's probabilities and weights.

        Raises:
            TypeError, ValueError: beta is no number in [0, 1], or no item has a priority.
        """
        beta = self.beta if beta is None else check_number("beta", beta, 0.0, 1.0)
        probabilities, weights = np.empty(indices.size), np.empty(indices.size, np.float32)
        self.tree.draw(stream, indices, beta, probabilities, weights)
        batch.probabilities, batch.weights = probabilities, weights

    def section(self) -> Section:
        """The priorities, for a checkpoint; their sums are a function of them."""
        return Section("priorities", self.tree.leaves.view(np.uint8), None)

    def restore(self, largest: Any, reader: Source) -> None:
        """Take over what a checkpoint holds; ValueError where it is nonsense."""
        leaves = allocate(8 * self.tree.capacity).view(np.float64)
        reader.read_into("priorities", leaves.view(np.uint8), zeroed=True)
        items = np.flatnonzero(leaves)  # those without a priority take no memory
        self.tree.update(items, leaves[items])
        self.largest = check_number("largest", largest, 0.0, (3.0 * MOST) ** 2)


class Prioritized(Buffer):
    """What buffers with priorities have in common."""

    period: int = 1  # steps from an item to the next
    alpha: float
    beta: float
    epsilon: float

    def _prepare(self) -> None:
        items = self._envs * (self._ring.length // self.period)
        made = self._priorities = Priorities(items, self.alpha, self.beta, self.epsilon)
        self.alpha, self.beta, self.epsilon = made.alpha, made.beta, made.epsilon

    def _arrays(self) -> list[Section]:
        return [self._priorities.section()]

    def _state(self) -> dict[str, Any]:
        return {"largest": self._priorities.largest}

    def _restore(self, state: dict[str, Any], reader: Source) -> None:
        self._priorities.restore(state["largest"], reader)
