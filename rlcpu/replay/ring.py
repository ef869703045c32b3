"""Which steps a ring holds, and which items begin in it: transitions, or sequences of steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
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


class Items(NamedTuple):
    """What is drawn: transitions, or sequences of steps.

    Item number i of an environment begins at its step i * period. Its index, while it is there, is
    `env * per_env + i % per_env`; it is there when all of its steps are.

    Attributes:
        num_envs: number of environments.
        per_env: items of each that can be there.
        steps: of a sequence; None for transitions.
        period: steps from the beginning of an item to that of the next.
    """

    num_envs: int
    per_env: int
    steps: int | None = None
    period: int = 1

    def numbers(self, ring: Ring) -> tuple[int, int]:
        """Numbers of the first item that is there, and of the first that is not yet."""
        added, first = ring.added, max(ring.added - ring.length, 0)
        if self.steps is None:
            return first, added
        begin = -(-first // self.period)
        return begin, max((added - self.steps) // self.period + 1, begin)

    def to_draw(self, ring: Ring) -> tuple[int, int]:
        """What `numbers` returns; ValueError if there are no items."""
        begin, end = self.numbers(ring)
        if begin == end:
            added = f"{ring.added} steps were added, expected {self.steps} for a sequence"
            raise ValueError(f"sample: {'the buffer is empty' if self.steps is None else added}")
        return begin, end

    def refuse_unwritten(self, ring: Ring, indices: npt.NDArray[np.int64]) -> None:
        """Raise IndexError for an item that never was there."""
        end = self.numbers(ring)[1]
        if end < self.per_env and indices.size:
            slots = indices % self.per_env
            worst = int(slots.argmax())
            if slots[worst] >= end:
                raise IndexError(f"indices: nothing was written at {int(indices[worst])} yet")


@inline_exact
def pick_item(u, num_envs, first, count, length):
    """One of the items `env * length + (first + k) % length` with k below `count`.

    Each is as likely; u is uniform in [0, 1).
    """
    k = min(np.int64(u * (num_envs * count)), num_envs * count - 1)
    env = k // count
    slot = first + (k - env * count)
    return env * length + (slot - length if slot >= length else slot)


@kernel(fastmath=EXACT)
def draw_items(stream, num_envs, first, count, length, out):
    """Fill `out`, (n,) int64, see `pick_item`; `stream` is (2,) uint64, and moved on."""
    for j in range(out.size):
        u = uniform53(stream[0], u64(stream[1] + u64(j)))
        out[j] = pick_item(u, num_envs, first, count, length)
    stream[1] += u64(out.size)


def spans(begin: int, end: int, length: int, num_envs: int) -> Any:
    """(n, 2) int64 ranges of the items numbered begin to end, going round, of each environment."""
    base = np.arange(num_envs, dtype=np.int64)[:, None] * length
    count = min(max(end - begin, 0), length)
    start = (end - count) % length
    pieces = [(start, min(start + count, length)), (0, max(start + count - length, 0))]
    kept = [piece for piece in pieces if piece[1] > piece[0]]
    return np.concatenate([base + piece for piece in kept]) if kept else np.empty((0, 2), np.int64)
