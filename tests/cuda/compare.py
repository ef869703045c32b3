"""Comparisons of arrays of which some are on the device, where they mix with no host array."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.backends import device_of
from rlcpu.cuda.device import SIMULATED, to_host


def on_host(x: Any) -> Any:
    """Return a copy of an array on the device; other values as they are."""
    return to_host(x) if device_of(x) == "cuda" else x


def equal(found: Any, expected: Any, **options: Any) -> bool:
    """Tell whether two arrays are equal, wherever they are."""
    return np.array_equal(on_host(found), on_host(expected), **options)


def close(found: Any, expected: Any, **options: Any) -> bool:
    """Tell whether two arrays are close to each other, wherever they are."""
    return np.allclose(on_host(found), on_host(expected), **options)


def same(found: Any, expected: Any) -> bool:
    """Tell whether two arrays are equal; sums on a card, which fuses and adds, within 4 ulp."""
    if SIMULATED or found.dtype.kind != "f":
        return equal(found, expected)
    return close(found, expected, rtol=4 * np.finfo(found.dtype).eps, atol=0.0)
