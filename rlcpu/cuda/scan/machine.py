"""The size of the device."""

from __future__ import annotations

import functools
from typing import NamedTuple

from rlcpu.cuda.provider import SIMULATED, cuda


class Machine(NamedTuple):
    """A device.

    Attributes:
        multiprocessors: how many it has.
        cache: bytes of its second cache.
    """

    multiprocessors: int
    cache: int


@functools.cache
def machine() -> Machine:
    """The current device; in the simulator one that is small enough for every loop to repeat."""
    if SIMULATED:
        return Machine(1, 2**11)
    device = cuda.get_current_device()
    return Machine(int(device.MULTIPROCESSOR_COUNT), int(device.L2_CACHE_SIZE))
