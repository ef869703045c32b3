"""Which rows of a ring are written, and drawing from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.random import u64, uniform53


class Ring(NamedTuple):
    """Where writing goes on, in `length` slots.

    Attributes:
        length: number of slots.
        added: steps ever added; step number s is in slot s % length while it is there.
    """

    length: int
    added: int

    @property
    def slot(self) -> int:
        """Slot of the next step."""
        return self.added % self.length

    @property
    def filled(self) -> int:
        """Slots that hold a step."""
        return min(self.added, self.length)

    @property
    def first(self) -> int:
        """Number of the oldest step that is there."""
        return self.added - self.filled


@kernel(fastmath=EXACT)
def draw_items(stream, num_envs, first, count, length, out):  # type: ignore[no-untyped-def]
    """Uniform items `env * length + (first + k) % length` with k below `count`, with replacement.

    `stream` is (2,) uint64, and moved on; `out` is (n,) int64.
    """
    total = num_envs * count
    for j in range(out.size):
        u = uniform53(stream[0], u64(stream[1] + u64(j)))
        k = min(np.int64(u * total), total - 1)
        env = k // count
        slot = first + (k - env * count)
        out[j] = env * length + (slot - length if slot >= length else slot)
    stream[1] += u64(out.size)


def spans(begin: int, end: int, length: int, num_envs: int) -> Any:
    """(n, 2) int64 ranges of the items numbered begin to end, going round, of each environment."""
    base = np.arange(num_envs, dtype=np.int64)[:, None] * length
    count = min(max(end - begin, 0), length)
    start = (end - count) % length
    pieces = [(start, min(start + count, length)), (0, max(start + count - length, 0))]
    kept = [piece for piece in pieces if piece[1] > piece[0]]
    return np.concatenate([base + piece for piece in kept]) if kept else np.empty((0, 2), np.int64)
