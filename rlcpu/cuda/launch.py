"""Launching kernels: one thread per item on the default stream."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import Kernel
from rlcpu.cuda.provider import SIMULATED, cuda

#: Threads of a block: four warps per scheduler hide the latency of arithmetic, and 128 registers
#: per thread are left where two such blocks share a multiprocessor.
BLOCK = 256
#: The simulator runs a thread of the operating system for each: no more of them than items.
_WARP = 4 if SIMULATED else 32


def launch(kernel: Kernel, size: int, *args: Any, block: int = BLOCK, shared: int = 0) -> None:
    """Run a kernel on at least `size` threads; returns before it has finished.

    Args:
        kernel: the driver, which does nothing in threads of `cuda.grid(1) >= size`.
        size: threads wanted; nothing is launched for 0.
        *args: arguments; a `DeviceArray` becomes its flat memory.
        block: threads of a block; fewer where fewer do.
        shared: dynamic shared memory of a block, in bytes.
    """
    if size > 0:
        block = min(block, -(-size // _WARP) * _WARP)
        launch_grid(kernel, -(-size // block), block, *args, shared=shared)


def launch_grid(
    kernel: Kernel,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *args: Any,
    shared: int = 0,
) -> None:
    """Run a kernel on a grid of blocks; returns before it has finished."""
    plain = [arg.memory if isinstance(arg, DeviceArray) else arg for arg in args]
    _configure(kernel, grid, block, shared)(*plain)


def _configure_now(kernel: Kernel, grid: Any, block: Any, shared: int) -> Any:
    """The kernel with its launch configuration, without a warning that a small one is small."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kernel.dispatcher[grid, block, 0, shared]


# A configured kernel is an object of its own, but in the simulator.
_configure: Any = _configure_now if SIMULATED else functools.lru_cache(1024)(_configure_now)


def synchronize() -> None:
    """Wait until the device has finished all that was launched."""
    cuda.synchronize()
