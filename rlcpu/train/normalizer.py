"""Running mean and deviation of observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Normalizer:
    """Mean and variance of all rows added so far.

    Source: Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing
    sample variances".

    Attributes:
        count: rows so far.
        mean, squares: (size,) float64, mean and sum of squared deviations.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)

    def add(self, rows: Array) -> None:
        """Add rows (n, size)."""
        count = self.count + len(rows)
        mean = rows.mean(axis=0, dtype=np.float64)
        squares = ((rows - mean) ** 2).sum(axis=0)
        delta = mean - self.mean
        self.mean = self.mean + delta * (len(rows) / count)
        self.squares = self.squares + squares + delta**2 * (self.count * len(rows) / count)
        self.count = count

    def scale(self) -> Array:
        """(size,) float64, one over the standard deviation."""
        return 1.0 / np.sqrt(self.squares / max(self.count, 1) + 1e-8)
