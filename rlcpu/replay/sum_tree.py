"""The sum tree: priorities that can be changed, and sampled in proportion."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.octets import WIDTH
from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.replay.checks import check_count, check_flag, check_indices, check_numbers, refuse
from rlcpu.replay.device import Placed
from rlcpu.replay.distinct import distinct_kernel
from rlcpu.replay.draw import draw_kernels
from rlcpu.replay.lock import Locked, complete
from rlcpu.replay.memory import placed
from rlcpu.replay.stream import make_stream
from rlcpu.replay.tree import PRIORITIES, layout, make_tree
from rlcpu.replay.upkeep import (
    first_offender,
    first_outside,
    mark_kernel,
    rebuild_kernel,
    update_kernel,
)
from rlcpu.replay.weigh import weights_kernel

Array = npt.NDArray[Any]


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
        self._offsets = layout.py_func(self.capacity)
        self._numbers = make_tree(self.capacity, extremes=False)
        self._make_lock()
        #: Priorities up to here: the sum of all of them has to be finite.
        self._most = float(np.finfo(np.float64).max) / int(self._offsets[1])

    def __getstate__(self) -> dict[str, Any]:
        with self.locked():
            return self._copied()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _numbers=placed(state["_numbers"]))
        self._make_lock()

    def __len__(self) -> int:
        return self.capacity

    def __repr__(self) -> str:
        positive = np.count_nonzero(self.leaves)
        return f"SumTree({positive:,} of {self.capacity:,} items have a priority)"

    @property
    def leaves(self) -> Array:
        """(capacity,) float64, the priorities themselves; `rebuild` after a change."""
        return self._numbers[: self.capacity]

    # ------------------------------------------------------------ reading and writing

    def __getitem__(self, indices: npt.ArrayLike) -> Any:
        """Priorities of items: float64 of the indices' shape, (n,) or ()."""
        array = check_indices(indices)
        if array.size and not (array.min() >= 0 and array.max() < self.capacity):
            worst = array.min() if array.min() < 0 else array.max()
            raise refuse("priorities", int(worst), 0.0, self.capacity, "")
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
        array = check_indices(indices)
        numbers = check_numbers("priorities", priorities, array.size)
        place = first_offender(array, numbers, self.capacity, 0.0, self._most)
        if place >= 0:
            raise self._refuse(int(array[place]), float(numbers[place]))
        self.write(array, numbers)

    def write(self, indices: Array, priorities: Array) -> float:
        """`update` with (n,) int64 and (n,) float64, unchecked; returns the largest, or 0.0.

        `indices` are overwritten.
        """
        update = update_kernel(PRIORITIES)
        with self.locked():
            return float(update(self._numbers, self.capacity, 0, indices, priorities))

    def _refuse(self, index: int, number: float) -> Exception:
        expected = f"a finite priority in [0, {self._most:.3g}]"
        return refuse("priorities", index, number, self.capacity, expected)

    def mark(self, num_envs: int, begin: int, end: int, priority: float) -> None:
        """Fill runs of items, one of each of `num_envs` equal parts; see `mark_kernel`."""
        items = self.capacity // num_envs
        with self.locked():
            mark_kernel()(self._numbers, self.capacity, num_envs, items, begin, end, priority)

    def rebuild(self, priorities: npt.ArrayLike | None = None) -> None:
        """Set all priorities at once, or recompute all sums from those that are there.

        Args:
            priorities: (capacity,), as for `update`.

        Raises:
            TypeError, ValueError: see `update`.
        """
        numbers = None
        if priorities is not None:
            numbers = check_numbers("priorities", priorities, self.capacity)
        given = self.leaves if numbers is None else numbers
        place = first_outside(given, 0.0, self._most)
        if place >= 0:
            raise self._refuse(place, float(given[place]))
        with self.locked():
            complete(self._rebuild, numbers)

    def _rebuild(self, numbers: Array | None) -> None:
        if numbers is not None:
            self.leaves[:] = numbers
        rebuild_kernel(PRIORITIES)(self._numbers, self.capacity, 0)

    # ------------------------------------------------------------ sums and extremes

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        end = int(self._offsets[-1])
        with self.locked():
            top = self._numbers[end - WIDTH : end].copy()
        while top.size > 1:  # in the kernels' order
            top = top[: top.size // 2] + top[top.size // 2 :]
        return float(top[0])

    @property
    def min(self) -> float:
        """Smallest priority above zero; 0.0 if there is none."""
        least = float(self._extremes()[0].min())
        return least if np.isfinite(least) else 0.0

    @property
    def max(self) -> float:
        """Largest priority."""
        return max(float(self._extremes()[1].max()), 0.0)

    def _extremes(self) -> tuple[Array, Array]:
        """Top nodes of the trees of extremes, which are kept from the first question on."""
        end = int(self._offsets[-1])
        with self.locked():
            if self._numbers.size == end:
                numbers = make_tree(self.capacity, extremes=True)
                numbers[:end] = self._numbers
                rebuild_kernel(PRIORITIES)(numbers, self.capacity, 0)
                self._numbers = numbers
            half = (self._numbers.size + end) // 2
            return self._numbers[half - WIDTH : half].copy(), self._numbers[-WIDTH:].copy()

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
                self._draw(stream, stratified, out)
            else:
                self._draw_distinct(stream, stratified, out)
        return out

    def draw(
        self, stream: Array, out: Array, beta: float, probabilities: Array, weights: Array
    ) -> None:
        """Fill `out`, (n,) int64, by another stream, and what `weights_kernel` makes of it."""
        with self.locked():
            total = self._draw(stream, False, out)
            arguments = (self._numbers, out, total, np.float32(beta))
            weights_kernel()(*arguments, probabilities, weights)

    def _draw(self, stream: Array, stratified: bool, out: Array) -> float:
        arguments = (self._numbers, self.capacity, 0, stream, bool(stratified), out)
        weight = launch(draw_kernels(PRIORITIES), out.size, self._num_threads, *arguments)
        if not weight > 0.0:
            stream[1] -= np.uint64(out.size)
            raise ValueError("sample: no item has a priority above zero, the total is 0")
        return float(weight)

    def _draw_distinct(self, stream: Array, stratified: bool, out: Array) -> None:
        before = stream[1]
        arguments = (self._numbers, self.capacity, 0, stream, bool(stratified), out)
        found = 0
        if out.size <= self.capacity:
            found = distinct_kernel(PRIORITIES)(*arguments)
        if found < out.size:
            stream[1] = before
            positive = int(np.count_nonzero(self.leaves))
            raise ValueError(
                f"size={out.size}: expected at most {positive} without replacement, the number of "
                "items with a priority above zero"
            )
