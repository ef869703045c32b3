"""The sum tree: priorities that can be changed, and sampled in proportion."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.replay import tree as drivers
from rlcpu.replay.checks import check_count, check_flag, check_indices, check_pairs, check_range
from rlcpu.replay.device import Placed
from rlcpu.replay.lock import Locked, complete
from rlcpu.replay.storage import make_stream, placed
from rlcpu.replay.tree import WIDTH, layout, make_tree

Array = npt.NDArray[Any]


class Tree:
    """The drivers of `rlcpu.replay.tree` and memory for them: unchecked, one call at a time.

    Leaves are priorities where `filled` is left out, and values where it is the number of items.

    Args:
        capacity: number of leaves, zero at first.
        extremes: whether the smallest and the largest item are kept; values need them.

    Attributes:
        numbers: float64, see `rlcpu.replay.tree.unpack`.
        most: largest priority: the sum of all of them has to be finite.
    """

    def __init__(self, capacity: int, extremes: bool) -> None:
        self.capacity, self.numbers = capacity, make_tree(capacity, extremes)
        offsets = layout.py_func(capacity)
        self._size = int(offsets[-1])  # numbers that are sums
        self.most = float(np.finfo(np.float64).max) / int(offsets[1])

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, numbers=placed(state["numbers"]))

    @property
    def leaves(self) -> Array:
        """(capacity,) float64; `rebuild` after a change."""
        return self.numbers[: self.capacity]

    def total(self) -> float:
        """Sum of all leaves."""
        top = self.numbers[self._size - WIDTH : self._size]
        while top.size > 1:  # in the kernels' order
            top = top[: top.size // 2] + top[top.size // 2 :]
        return float(top[0])

    def extremes(self) -> tuple[float, float]:
        """Smallest and largest priority above zero; they are kept from the first question on."""
        if self.numbers.size == self._size:
            numbers = make_tree(self.capacity, extremes=True)
            numbers[: self._size] = self.numbers
            drivers.rebuild(numbers, self.capacity, None)
            self.numbers = numbers
        half = (self.numbers.size + self._size) // 2
        return float(self.numbers[half - WIDTH : half].min()), float(self.numbers[-WIDTH:].max())

    def update(self, indices: Array, leaves: Array, filled: int | None = None) -> float:
        """Write leaves, and return the largest; see `rlcpu.replay.tree.update`."""
        return float(drivers.update(self.numbers, self.capacity, filled, indices, leaves))

    def write_runs(
        self, num_envs: int, begin: int, end: int, leaves: Array, filled: int | None = None
    ) -> None:
        """Write the leaves of new items; see `rlcpu.replay.tree.write_runs`."""
        drivers.write_runs(self.numbers, self.capacity, filled, num_envs, begin, end, leaves)

    def rebuild(self, filled: int | None = None) -> None:
        """Recompute everything above the leaves."""
        drivers.rebuild(self.numbers, self.capacity, filled)

    def draw(
        self, stream: Array, out: Array, stratified: bool = False, num_threads: int | None = None
    ) -> float:
        """Fill `out`, (n,) int64, with leaves drawn by priority, and return the sum of all.

        Where that is zero, ValueError is raised, and the stream is where it was.
        """
        arguments = (self.numbers, self.capacity, None, stream, stratified, out)
        total = float(launch(drivers.DRAW, out.size, num_threads, *arguments))
        if not total > 0.0:
            stream[1] -= np.uint64(out.size)
            raise ValueError("sample: no item has a priority above zero, the total is 0")
        return total

    def draw_distinct(
        self, stream: Array, out: Array, stratified: bool = False, filled: int | None = None
    ) -> bool:
        """Fill `out`, (n,) int64, with different leaves, by weight.

        Where fewer have a weight, False is returned, and the stream is where it was.
        """
        before, found = stream[1], 0
        if out.size <= (self.capacity if filled is None else filled):
            arguments = (self.numbers, self.capacity, filled, stream, stratified, out)
            found = drivers.draw_distinct(*arguments)
        if found < out.size:
            stream[1] = before
        return bool(found == out.size)


class SumTree(Placed, Locked):
    """Priorities of `capacity` items, zero at first; sampling takes time log8(capacity).

    Every sum is recomputed from what it is the sum of, in float64, so that no error builds up. An
    item of priority zero is never sampled. Several threads may use a tree: its calls wait for each
    other, and let Python run meanwhile.

    Args:
        capacity: number of items.
        seed: of the tree's own stream of random numbers, 0 to 2**64 - 1; None takes a new one.
        num_threads: most threads that a call may use; None for all.
        device: "cuda" for a `rlcpu.cuda.replay.SumTree`.

    Raises:
        TypeError, ValueError: an argument is no whole number, or out of its range.

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
        self._tree = Tree(self.capacity, extremes=False)
        self._make_lock()

    def __getstate__(self) -> dict[str, Any]:
        with self.locked():
            return self._copied()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_lock()

    def __len__(self) -> int:
        return self.capacity

    def __repr__(self) -> str:
        positive = np.count_nonzero(self.leaves)
        return f"SumTree({positive:,} of {self.capacity:,} items have a priority)"

    @property
    def leaves(self) -> Array:
        """(capacity,) float64, the priorities themselves; `rebuild` after a change."""
        return self._tree.leaves

    # ------------------------------------------------------------ reading and writing

    def __getitem__(self, indices: npt.ArrayLike) -> Any:
        """Priorities of items: float64 of the indices' shape, (n,) or ()."""
        array = check_indices(indices)
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
            IndexError: an index is out of range.
            TypeError: an array is of another kind.
            ValueError: a priority is NaN, negative or too large, or a shape is wrong. Nothing is
                changed by a call that raises.
        """
        limits = self.capacity, 0.0, self._tree.most
        pairs = check_pairs("priorities", indices, priorities, *limits)
        with self.locked():
            self._tree.update(*pairs)

    def rebuild(self, priorities: npt.ArrayLike | None = None) -> None:
        """Set all priorities at once, or recompute all sums from those that are there.

        Args:
            priorities: (capacity,), as for `update`.

        Raises:
            TypeError, ValueError: see `update`.
        """
        given = self.leaves if priorities is None else priorities
        numbers = check_range("priorities", given, self.capacity, 0.0, self._tree.most)
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
            return self._tree.total()

    @property
    def min(self) -> float:
        """Smallest priority above zero; 0.0 if there is none."""
        with self.locked():
            least = self._tree.extremes()[0]
        return least if np.isfinite(least) else 0.0

    @property
    def max(self) -> float:
        """Largest priority."""
        with self.locked():
            return max(self._tree.extremes()[1], 0.0)

    # ------------------------------------------------------------ sampling

    def sample(
        self,
        size: int,
        *,
        seed: int | None = None,
        stratified: bool = False,
        replace: bool = True,
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
            TypeError, ValueError: size or seed is no whole number, or out of its range.
            ValueError: no priority is above zero, or fewer of them than `size` without replacement.
        """
        out = np.empty(check_count("size", size), np.int64)
        stratified, replace = check_flag("stratified", stratified), check_flag("replace", replace)
        stream = self._stream if seed is None else make_stream(seed)
        with self.locked():
            if replace:
                self._tree.draw(stream, out, stratified, self._num_threads)
            elif not self._tree.draw_distinct(stream, out, stratified):
                positive = int(np.count_nonzero(self.leaves))
                raise ValueError(
                    f"size={out.size}: expected at most {positive} without replacement, the number "
                    "of items with a priority above zero"
                )
        return out
