"""How arrays with an axis of steps are seen by kernels: (outer, num_steps, inner), by strides.

Arrays are C-contiguous; those that are repeated to fill a shape have strides of 0.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from rlcpu.cuda.arrays import DeviceArray


class Layout(NamedTuple):
    """A shape, and its axis of steps.

    Attributes:
        shape: of the arrays.
        axis: of the steps, from the first.
    """

    shape: tuple[int, ...]
    axis: int

    @property
    def outer(self) -> int:
        """Number of indices before the axis."""
        return math.prod(self.shape[: self.axis])

    @property
    def num_steps(self) -> int:
        """Length of the axis."""
        return self.shape[self.axis]

    @property
    def inner(self) -> int:
        """Number of lanes, after the axis."""
        return math.prod(self.shape[self.axis + 1 :])

    @property
    def ends(self) -> tuple[int, ...]:
        """The shape without the axis."""
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    def strides(self, name: str, array: DeviceArray) -> tuple[int, int, int]:
        """Strides, in numbers, over outer indices, steps and lanes of an array that broadcasts.

        Raises:
            ValueError: it does not broadcast to the shape, or in a way that takes more strides.
        """
        steps = _broadcast(name, array, self.shape)
        pieces = (slice(0, self.axis), slice(self.axis + 1, None))
        outer, lane = (self._merged(name, array, steps, self.shape, p) for p in pieces)
        return outer, steps[self.axis], lane

    def end_strides(self, name: str, array: DeviceArray) -> tuple[int, int, int]:
        """The same of an array that lacks the axis of steps."""
        steps = _broadcast(name, array, self.ends)
        pieces = (slice(0, self.axis), slice(self.axis, None))
        outer, lane = (self._merged(name, array, steps, self.ends, p) for p in pieces)
        return outer, 0, lane

    @staticmethod
    def _merged(
        name: str, array: DeviceArray, steps: list[int], shape: tuple[int, ...], piece: slice
    ) -> int:
        """The stride of some axes as one."""
        pairs = [p for p in zip(shape[piece], steps[piece], strict=True) if p[0] != 1]
        for (_, slow), (size, fast) in itertools.pairwise(pairs):
            if slow != size * fast:
                raise ValueError(
                    f"{name}: an array of shape {array.shape} has to be repeated along inner axes "
                    f"to fill {shape}; expected one of that shape, or a number"
                )
        return pairs[-1][1] if pairs else 0


def _broadcast(name: str, array: DeviceArray, shape: tuple[int, ...]) -> list[int]:
    """Strides in numbers of a C-contiguous array repeated to fill a shape."""
    sizes = array.shape
    own = zip(reversed(sizes), reversed(shape), strict=False)
    if len(sizes) > len(shape) or any(a not in (1, b) for a, b in own):
        raise ValueError(f"{name}: expected a shape that broadcasts to {shape}, got {sizes}")
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step if size != 1 else 0)
        step *= size
    return [0] * (len(shape) - len(sizes)) + strides[::-1]
