"""Priorities of the items of a buffer on the device: exponents, new items, importance weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch
from rlcpu.cuda.operands import constants
from rlcpu.cuda.replay.buffer import Buffer
from rlcpu.cuda.replay.draw import probabilities_kernel, weights_kernel
from rlcpu.cuda.replay.sum_tree import SumTree
from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.checks import check_number
from rlcpu.replay.samplers import MOST


class Priorities:
    """`rlcpu.replay.samplers.ByPriority` in the memory of a CUDA device.

    Args:
        num_items: number of items; none of them has a priority at first.
        alpha: 0 draws uniformly, 1 in proportion; at most 2.
        beta: 0 to 1, how much of the bias importance weights correct.
        epsilon: added to each priority, so that items of priority 0 are drawn too.
    """

    def __init__(self, num_items: int, alpha: float, beta: float, epsilon: float) -> None:
        self.alpha = check_number("alpha", alpha, 0.0, 2.0)
        self.beta = check_number("beta", beta, 0.0, 1.0)
        self.epsilon = check_number("epsilon", epsilon, 0.0, MOST)
        self.tree = SumTree(num_items, seed=0)

    def check_beta(self, beta: float | None) -> float:
        """The argument, or what stands for None."""
        return self.beta if beta is None else check_number("beta", beta, 0.0, 1.0)

    def draw(
        self, stream: npt.NDArray[np.uint64], indices: DeviceArray, beta: float
    ) -> tuple[DeviceArray, DeviceArray]:
        """Fill indices; returns their probabilities and importance weights.

        Raises:
            ValueError: no item has a priority.
        """
        probabilities = arrays.empty(indices.size, np.float64)
        weights = arrays.empty(indices.size, np.float32)
        least = arrays.empty(1, np.float64)
        least.memory.copy_to_device(constants((np.inf,), np.dtype(np.float64)).memory)
        self.tree.draw(stream, indices)
        numbers = self.tree.numbers
        drawn = numbers, indices, self.tree.total, probabilities, least
        launch(probabilities_kernel(), indices.size, *drawn)
        weighed = numbers, indices, np.float32(beta), least, weights
        launch(weights_kernel(), indices.size, *weighed)
        return probabilities, weights

    # ------------------------------------------------------------ files

    def section(self) -> Section:
        """The priorities, for a checkpoint; their sums are a function of them."""
        return Section("priorities", self.tree.leaves.copy_to_host().view(np.uint8), None)

    @property
    def largest(self) -> float:
        """Largest priority ever given (after exponentiation), at first 1: of new items."""
        return float(self.tree.largest.copy_to_host()[0])

    def restore(self, largest: Any, reader: Reader) -> None:
        """Take over what a checkpoint holds; ValueError where it is nonsense."""
        leaves = np.empty(self.tree.capacity)
        reader.read_into("priorities", leaves.view(np.uint8))
        self.tree.rebuild(leaves)
        most = check_number("largest", largest, 0.0, (3.0 * MOST) ** 2)
        self.tree.largest.memory.copy_to_device(np.array([most]))


class Prioritized(Buffer):
    """What buffers with priorities have in common."""

    def _prioritize(self, num_items: int, alpha: float, beta: float, epsilon: float) -> None:
        self._priorities = Priorities(num_items, alpha, beta, epsilon)
        self.alpha, self.beta = self._priorities.alpha, self._priorities.beta
        self.epsilon = self._priorities.epsilon

    def _arrays(self) -> list[Section]:
        return [self._priorities.section()]

    def _state(self) -> dict[str, Any]:
        return {"largest": self._priorities.largest}

    def _restore(self, state: dict[str, Any], reader: Reader) -> None:
        self._priorities.restore(state["largest"], reader)
