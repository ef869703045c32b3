"""From the leaves of a tree to importance weights."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from rlcpu.kernels.compile import EXACT, inline, kernel, specialise

_MOST = np.float32(3e38)


def importance_weight(ratio: float, beta: float) -> float:
    """(N P) ** -beta over its maximum in the batch, `ratio` being P over its minimum.

    A logarithm and an exponential, which vectorise. In float32, as weights are, the relative error
    is below (2 + log(ratio)) * 1.2e-7.
    """
    return math.exp(-beta * math.log(ratio))


@functools.cache
def weights_kernel() -> Any:
    """(tree, indices, total, beta, probabilities, weights): of items that were drawn from a tree.

    The leaves come first in `tree`; indices are int64, valid and of positive leaves; `beta` is
    float32, and the outputs are float64 and float32.
    """
    scalar = specialise(importance_weight, np.float32)

    @inline
    def weigh(weights, beta):  # type: ignore[no-untyped-def]
        for k in range(weights.size):
            weights[k] = scalar(weights[k], beta)

    @kernel(fastmath=EXACT)
    def make_weights(tree, indices, total, beta, probabilities, weights):  # type: ignore[no-untyped-def]
        least = np.inf
        for k in range(indices.size):
            leaf = tree[indices[k]]
            probabilities[k] = leaf / total
            least = min(least, leaf)
        for k in range(indices.size):
            weights[k] = min(np.float32(tree[indices[k]] / least), _MOST)
        weigh(weights, beta)

    return make_weights
