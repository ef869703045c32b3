"""Launching kernels: one thread per item on the default stream."""

from __future__ import annotations

import ctypes
import struct
import threading
import warnings
from typing import Any

import numpy as np

from rlcpu.cuda import cache, provider
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import Kernel
from rlcpu.cuda.memory import Piece
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
    """Run a kernel on a grid of blocks; returns before it has finished.

    Raises:
        ValueError: an array is on another device than the current one.
    """
    device = provider.current_device()
    plain, types = [], []
    for arg in args:
        if isinstance(arg, DeviceArray):
            if arg.device != device:
                raise ValueError(
                    f"an array {arg!r} is on CUDA device {arg.device}: expected {device}, the "
                    "current one"
                )
            plain.append(arg.memory)
            types.append(arg.dtype)
        else:
            plain.append(arg)
            types.append(type(arg))
    _loaded(kernel, device, tuple(types), tuple(plain))(grid, block, shared, plain)


class _Configured:
    """A kernel of the simulator, or of a provider other than `numba-cuda`, launched by it."""

    def __init__(self, kernel: Kernel) -> None:
        self.dispatcher = kernel.dispatcher

    def __call__(self, grid: Any, block: Any, shared: int, args: list[Any]) -> None:
        given = args
        if not SIMULATED:
            given = [cuda.as_cuda_array(a) if isinstance(a, Piece) else a for a in args]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a small grid is small
            configured = self.dispatcher[grid, block, 0, shared]
        configured(*given)


class _Loaded:
    """A kernel's machine code on one device.

    Numba's own launch takes 9 us for each array among the arguments and 10 us besides; this one,
    which writes the same parameters into one buffer, 8 us for a dozen.

    Args:
        handle: the driver's.
        args: arguments of the types of all launches.
    """

    def __init__(self, handle: int, args: tuple[Any, ...]) -> None:
        self.handle, self.lock = handle, threading.Lock()
        self.format = struct.Struct("=" + "".join(map(_slot, args)))
        self.buffer = ctypes.create_string_buffer(self.format.size)
        begin = ctypes.addressof(self.buffer)
        places = range(begin, begin + self.format.size, 8)
        self.places = (ctypes.c_void_p * len(places))(*places)
        self.parameters = ctypes.addressof(self.places)
        self.run = cuda.cudadrv.driver.driver.cuLaunchKernel

    def __call__(self, grid: Any, block: Any, shared: int, args: list[Any]) -> None:
        values: list[Any] = []
        for arg in args:
            if type(arg) is Piece:
                values += arg.fields
            else:
                values.append(arg)
        x, y, z = (grid, 1, 1) if isinstance(grid, int) else (*grid, 1, 1)[:3]
        u, v, w = (block, 1, 1) if isinstance(block, int) else (*block, 1, 1)[:3]
        with self.lock:  # the driver copies the buffer before it returns
            self.format.pack_into(self.buffer, 0, *values)
            self.run(self.handle, x, y, z, u, v, w, shared, 0, self.parameters, 0)


#: Struct code of a parameter in eight bytes, by the kind and size of its type.
_SLOTS = dict(
    zip(
        ("f4", "f8", "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"),
        ("f4x", "d", "?7x", "b7x", "h6x", "i4x", "q", "B7x", "H6x", "I4x", "Q"),
        strict=True,
    )
)


def _slot(arg: Any) -> str:
    """Struct code of one argument; KeyError if it is of no known type."""
    if isinstance(arg, Piece):
        return "7q"
    dtype = np.asarray(arg).dtype
    return _SLOTS[f"{dtype.kind}{dtype.itemsize}"]


_ready: dict[Any, Any] = {}


def _loaded(kernel: Kernel, device: int, types: Any, args: tuple[Any, ...]) -> Any:
    """What launches a kernel with arguments of some types, compiled at its first call."""
    key = kernel.dispatcher, device, types
    found = _ready.get(key)
    if found is None:
        found = _ready[key] = _load(kernel, args)
    return found


def _load(kernel: Kernel, args: tuple[Any, ...]) -> Any:
    if SIMULATED:
        return _Configured(kernel)
    likes = [np.empty(0, arg.dtype) if isinstance(arg, Piece) else arg for arg in args]
    handle = cache.load(kernel, likes)
    return _Configured(kernel) if handle is None else _Loaded(handle, args)


def synchronize() -> None:
    """Wait until the device has finished all that was launched."""
    cuda.synchronize()
