"""Returns of n steps, added up when transitions are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.replay.batch import Batch
from rlcpu.replay.checks import check_count, check_number
from rlcpu.replay.ring import Ring
from rlcpu.replay.structure import Structure

Array = npt.NDArray[Any]


@inline_exact
def sum_ahead(rewards, terminated, truncated, row, ring, settings):
    """Sum of discounted rewards from a row on, discount of what follows, and the last row.

    `rewards`, `terminated` and `truncated` are (num_envs * length,); `ring` is (length, newest
    slot), `settings` (n, gamma).
    """
    length, newest = ring
    n, gamma = settings
    begin = row // length * length
    ahead = (newest - (row - begin)) % length
    total, discount = 0.0, 1.0
    for k in range(n):
        total += discount * np.float64(rewards[row])
        discount *= gamma
        if terminated[row] or truncated[row] or k == min(ahead, n - 1):
            break
        row = row + 1 if row + 1 < begin + length else begin
    return total, discount, row


@kernel(fastmath=EXACT)
def look_ahead(rewards, terminated, truncated, rows, ring, settings, out):
    """`sum_ahead` of each of `rows`, to three arrays (batch_size,): sums, discounts, last rows."""
    returns, discounts, last = out
    for b in range(rows.size):
        found = sum_ahead(rewards, terminated, truncated, rows[b], ring, settings)
        returns[b], discounts[b], last[b] = found


class NStep:
    """n-step returns of a storage's transitions.

    R = sum of gamma^k r_{t+k} for k below m, where m is n, or less if an episode terminated or was
    truncated after m steps, or the newest step is reached. `reward` becomes R; `next_observation`,
    `terminated` and `truncated` become those of the last step summed; `Batch.discounts` is gamma^m,
    so that R + discounts * (1 - terminated) * V(next_observation) is the target.

    Args:
        structure: has `reward` (one real number), `terminated`, and if there are any,
            `truncated` (each one bool) and `next_observation`.
        n: number of steps.
        gamma: discount factor in [0, 1].

    Attributes:
        n, gamma: see above.
        wanted: positions of `reward`, `terminated` and `truncated`, which is `terminated` if there
            is none; empty if n is 1.
        first: positions of the fields that are those of the first step.
        last: of those that are those of the last step.
    """

    def __init__(self, structure: Structure, n: int, gamma: float) -> None:
        self.n, self.gamma = check_count("n_step", n), check_number("gamma", gamma, 0.0, 1.0)
        self.first: list[int] = []
        self.last: list[int] = []
        self.wanted: list[int] = []
        if self.n == 1:
            return
        present = {field.name.partition(".")[0] for field in structure.fields}
        reward = _find(structure, "reward", "float32 or float64", np.float32, np.float64)
        names = ["terminated", "truncated"] if "truncated" in present else ["terminated"]
        flags = [_find(structure, name, "bool", np.bool_) for name in names]
        self.wanted = [reward, flags[0], flags[-1]]
        following = structure.select("next_observation") if "next_observation" in present else ()
        self.last = sorted({*flags, *following})
        taken = {reward, *self.last}
        self.first = [number for number in range(len(structure.fields)) if number not in taken]

    def gather(
        self, storage: Any, ring: Ring, indices: Array, batch: Batch, num_threads: int | None
    ) -> None:
        """Fill a batch with the transitions at indices that were drawn."""
        rows = batch.rows
        if self.n == 1:
            storage.gather(indices, rows, 1, num_threads)
            return
        storage.gather(indices, rows, 1, num_threads, self.first)
        place, settings = (ring.length, (ring.added - 1) % ring.length), (self.n, self.gamma)
        found = storage.look_ahead(self.wanted, indices, place, settings)
        rows.leaves[self.wanted[0]][:], batch.discounts, last = found
        storage.gather(last, rows, 1, num_threads, self.last)


def _find(structure: Structure, name: str, expected: str, *dtypes: Any) -> int:
    """Position of a field that is one number of one of the dtypes per transition."""
    found = structure.select(name)
    field = structure.fields[found[0]]
    if len(found) != 1 or field.shape or field.dtype not in dtypes:
        raise ValueError(
            f"n_step: the {name!r} field is {field.dtype} {field.shape}: expected one {expected} "
            "per transition"
        )
    return found[0]
