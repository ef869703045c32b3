"""Scaling of numbers in front of networks: what these get of an observation, or of a column.

    input = (number - mean) * scale, within +-limit

A limit of infinity is none. NaN stays NaN, so that whoever looks at outputs sees it: comparisons
with it are false, and the smaller or the larger of it and a limit would be the limit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compiler.compile import inline

Array = npt.NDArray[Any]
#: Limit of observations that are normalised by their deviations, as stable-baselines3's and
#: CleanRL's; and that of policies in files that were written before policies had limits.
USUAL_LIMIT = 10.0
NO_LIMIT = np.array(np.inf, np.float32)


class Scaling(NamedTuple):
    """Numbers by which the inputs of a network are scaled."""

    mean: Array  #: (size,) float32
    scale: Array  #: (size,) float32
    limit: Array = NO_LIMIT  #: () float32, of the absolute values

    def apply(self, inputs: Array) -> Array:
        """Return inputs (..., size) scaled, within the limit."""
        limited: Array = np.clip((inputs - self.mean) * self.scale, -self.limit, self.limit)
        return limited


@inline
def scaled(x, mean, scale, limit):
    """Return (x - mean) * scale in float32, within +-limit; NaN of NaN."""
    y = (np.float32(x) - mean) * scale
    y = -limit if y < -limit else y
    return limit if y > limit else y
