"""A stream of random numbers that can be saved: a key and the number to be drawn next."""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.random import splitmix64, stream_seeds


def make_stream(seed: int | None) -> npt.NDArray[np.uint64]:
    """(2,) uint64, key and counter, of a seed, or of the system's entropy where it is None.

    Raises:
        TypeError: the seed is no whole number.
        ValueError: it is negative or above 2**64 - 1.
    """
    whole = secrets.randbits(64) if seed is None else check_count("seed", seed, 0, 2**64)
    first = stream_seeds(whole, 1)
    return np.array([splitmix64(first)[0], 0], np.uint64)
