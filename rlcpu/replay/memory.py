"""Big blocks of memory: anonymous or in a file, zeroed, in huge pages where the system has them."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_HUGE = 2**21  # bytes of a huge page on x86-64
# Shared memory, mmap's choice, has no huge pages: random rows of 800 bytes take twice as long.
_PRIVATE: Any = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)


def placed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of an array of one axis that begins where `allocate` lets memory begin."""
    memory = allocate(array.nbytes).view(array.dtype)
    memory[:] = array
    return memory


def allocate(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Zeros that begin at a page, or where there are few of them, at a cache line.

    Nothing is touched: a page takes memory from its first write on.

    Raises:
        MemoryError: the system refuses so much.
    """
    if num_bytes < _HUGE:
        memory = np.zeros(num_bytes + 63, np.uint8)
        first = -memory.ctypes.data % 64
        return memory[first : first + num_bytes]
    try:
        block = mmap.mmap(-1, num_bytes + _HUGE, **_PRIVATE)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no room for {num_bytes:,} bytes: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(block, np.uint8)
    first = -memory.ctypes.data % _HUGE
    return memory[first : first + num_bytes]
