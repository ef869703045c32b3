"""What kernels find wrong, told to the host without a wait.

A kernel that finds a bad number writes where to a word in memory of the host, and writes nothing
else of what is wrong. The host looks at the word when it is asked for the next thing, or by
`rlcpu.cuda.synchronize`, and raises then: as CUDA itself reports errors of kernels.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.cuda import device
from rlcpu.cuda.device import SIMULATED, SimulatedArray, xp

_live: weakref.WeakSet[Faults] = weakref.WeakSet()


class Faults:
    """A word for each kind of fault of one owner (a tree, an engine), 0 where there is none.

    Attributes:
        words: (K,) int64, which kernels take and `report` writes; memory of the host.
    """

    def __init__(self, *make_errors: Callable[[int], Exception]) -> None:
        """Take K functions (position) -> exception, one for each kind of fault."""
        self._make_errors, size = make_errors, len(make_errors)
        if SIMULATED:
            self._host = np.zeros(size, np.int64)
            self.words: Any = self._host.view(SimulatedArray)
        else:
            device.require_device()
            pinned, here = xp.cuda.alloc_pinned_memory(8 * size), xp.cuda.Device().id
            self._host = np.frombuffer(pinned, np.int64, size)
            self._host[:] = 0
            memory = xp.cuda.UnownedMemory(pinned.ptr, 8 * size, pinned, here)
            pointer = xp.cuda.MemoryPointer(memory, 0)
            self.words = xp.ndarray((size,), np.int64, pointer)
        self._words = self._host.data  # which is read faster
        _live.add(self)

    def check(self) -> None:
        """Raise the exception of a fault that has been reported since the last check."""
        if not any(self._words):
            return
        reported = self._host.copy()
        self._host[:] = 0
        kind = int(np.flatnonzero(reported)[0])
        raise self._make_errors[kind](int(reported[kind]) - 1)


def report(words, kind, position):
    """Write to the `words` of `Faults` that the item at a position has a fault of a kind.

    Of several threads that find one, any may stay: a word is written at once, so that it is whole.
    """
    words[kind] = position + 1


def synchronize() -> None:
    """Wait until the device has finished all that was launched.

    Raises:
        CudaUnavailableError: there is none.
        ValueError: a kernel found a bad number since the last call; the message says which.
    """
    if not SIMULATED:
        xp.cuda.Device().synchronize()
    for faults in list(_live):
        faults.check()
