"""The sum tree: priorities that can be changed, and sampled in proportion."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.machine.threads import check_num_threads
from rlcpu.replay.backend import find
from rlcpu.replay.checks import (
    LeafRule,
    PairLimits,
    check_count,
    check_flag,
    check_pairs,
    check_range,
    take_indices,
)
from rlcpu.replay.lock import Locked, complete
from rlcpu.replay.storage import make_stream

Array = npt.NDArray[Any]


class SumTree(Locked):
    """Priorities of `capacity` items, zero at first; sampling takes time log8(capacity).

    Every sum is recomputed from what it is the sum of, in float64, so that no error builds up. An
    item of priority zero is never sampled. Several threads may use a tree: its calls wait for each
    other, and let Python run meanwhile.

    Args:
        capacity: number of items.
        seed: of the tree's own stream of random numbers, 0 to 2**128 - 1; None takes a new one.
        num_threads: most threads that a call may use; None for all.
        device: "cpu" or "cuda": where the priorities are, and the indices that are drawn. The
            results are the same, bit for bit.

    Example:
        >>> tree = SumTree(3, seed=0)
        >>> tree.update([0, 2], [1.0, 3.0])
        >>> tree.total, tree.min, tree.max, tree[[0, 1, 2]]
        (4.0, 1.0, 3.0, array([1., 0., 3.]))
    """

    def __init__(
        self,
        capacity: int,
        *,
        seed: int | None = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.capacity = check_count("capacity", capacity)
        self._num_threads = check_num_threads(num_threads)
        self._stream = make_stream(seed)
        self._backend = find(device)
        self.device: str = self._backend.device
        self._tree = self._backend.tree(self.capacity, extremes=False)
        self._limits = PairLimits(self.capacity, low=0.0, high=self._tree.most)
        size = self.capacity  # all leaves were written, and none is passed over
        self._rule = LeafRule(*self._limits, per_env=size, written=size, begin=0, num_present=size)
        self._make_lock()

    def __getstate__(self) -> dict[str, Any]:
        with self.locked():
            return self._copy_attributes_without()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_lock()

    def __len__(self) -> int:
        return self.capacity

    def __repr__(self) -> str:
        where = "" if self.device == "cpu" else f", device={self.device}"
        return (
            f"SumTree({self._num_positive():,} of {self.capacity:,} items have a priority{where})"
        )

    def _num_positive(self) -> int:
        return int((self.leaves > 0.0).sum())

    @property
    def leaves(self) -> Array:
        """Return the priorities themselves, (capacity,) float64; call `rebuild` after a change."""
        leaves: Array = self._tree.leaves
        return leaves

    # ------------------------------------------------------------ reading and writing

    def __getitem__(self, indices: npt.ArrayLike) -> Any:
        """Return priorities of items: float64 of the indices' shape, (n,) or ()."""
        array = self._backend.asarray(take_indices(self._backend, indices))
        if array.size and not (array.min() >= 0 and array.max() < self.capacity):
            worst = array.min() if array.min() < 0 else array.max()
            raise IndexError(f"indices: {worst} is out of range, expected 0 to {self.capacity - 1}")
        with self.locked():
            priorities = self.leaves[array]
        return priorities if np.ndim(indices) else priorities[0]

    def update(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give items new priorities; of equal indices the last one counts.

        Args:
            indices: (n,) of any integer dtype, each in [0, capacity).
            priorities: (n,), or one for all; finite, not negative, and below the largest float64
                divided by the capacity.

        Raises:
            IndexError, TypeError, ValueError: they are not. Nothing is changed by a call that
                raises. Values of arrays on a CUDA device are checked there, without a wait: such a
                call changes nothing either, and the tree's next `update` or `sample`, `total`, or
                `rlcpu.cuda.synchronize` raises.
        """
        pairs = check_pairs(self._backend, "priorities", indices, priorities, self._limits)
        with self.locked():
            self._tree.update(*pairs, self._rule)

    def rebuild(self, priorities: npt.ArrayLike | None = None) -> None:
        """Set all (capacity,) priorities at once, or recompute all sums; see `update`."""
        leaves = self.leaves if priorities is None else priorities
        numbers = check_range(self._backend, "priorities", leaves, self.capacity, self._limits)
        with self.locked():
            complete(self._rebuild, numbers)

    def _rebuild(self, numbers: Array) -> None:
        self.leaves[:] = numbers
        self._tree.rebuild()

    # ------------------------------------------------------------ sums and extremes

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        with self.locked():
            return float(self._tree.total())

    @property
    def min(self) -> float:
        """Return the smallest priority above zero; 0.0 if there is none."""
        with self.locked():
            least = self._tree.extremes()[0]
        return float(least) if np.isfinite(least) else 0.0

    @property
    def max(self) -> float:
        """Return the largest priority."""
        with self.locked():
            return max(float(self._tree.extremes()[1]), 0.0)

    # ------------------------------------------------------------ sampling

    def sample(
        self, size: int, *, seed: int | None = None, stratified: bool = False, replace: bool = True
    ) -> npt.NDArray[np.int64]:
        """Draw items with probabilities proportional to their priorities.

        Args:
            size: how many.
            seed: of this call alone; None goes on with the tree's own stream.
            stratified: cut [0, total) into `size` equal parts and draw one number from each. With
                `replace=False`, what is left to be drawn is cut again after every round.
            replace: whether an item may be drawn more than once. If not, each item is drawn from
                those that were not drawn before (successive sampling), the law of
                `numpy.random.Generator.choice(replace=False, p=...)`.

        Returns:
            (size,) indices, in the order of drawing.

        Raises:
            ValueError: no priority is above zero, or fewer of them than `size` without replacement.
                On a CUDA device the next call raises the first of these, as in `update`, and all
                indices are 0 meanwhile.
        """
        out: Array = self._backend.empty(check_count("size", size), np.int64)
        stratified, replace = check_flag("stratified", stratified), check_flag("replace", replace)
        stream = self._stream if seed is None else make_stream(seed)
        with self.locked():
            if replace:
                self._tree.draw(stream, out, stratified, self._num_threads)
            elif not self._tree.draw_distinct(stream, out, stratified):
                most = self._num_positive()
                raise ValueError(
                    f"size={out.size}: expected at most {most} without replacement, the number of "
                    "items with a priority above zero"
                )
        return out
