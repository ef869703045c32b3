"""The device's memory: pieces of it, copies of them, and a pool of what is in use no more.

The provider's own arrays cost 15 us for each slice and 9 us as an argument of a kernel, as long as
a step of a million environments takes on the device; a `Piece` costs a tenth of that. In the
simulator its arrays take the place of pieces.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.cuda import provider
from rlcpu.cuda.provider import CudaMemoryError, cuda

#: Sizes are multiples of this, so that blocks fit again.
_GRAIN = 512
#: Number -> block of bytes, and its address. Blocks are held here alone: were they held by what
#: uses them, the provider would free them as soon as the collector finds that in a cycle.
_blocks: dict[int, tuple[Any, int]] = {}
_numbers = itertools.count()
#: (device, bytes) -> numbers of blocks that are in use no more. The driver's own allocation waits
#: for all kernels.
_free: dict[tuple[int, int], list[int]] = collections.defaultdict(list)


class Piece:
    """Numbers of one dtype next to each other on a device: what a kernel gets as an array.

    Args:
        pointer: address of the first one.
        size: how many.
        dtype: NumPy dtype.
        device: index of the device.
        owner: keeps the memory.

    Attributes:
        pointer, size, dtype, device, owner: see above.
        fields: what the provider's kernels get for an array of one dimension: two addresses that
            kernels do not use, items, bytes of an item, address, then shape and stride.
    """

    __cuda_memory__ = True  # by which the provider's copies know memory of the device
    __slots__ = ("device", "dtype", "fields", "owner", "pointer", "size")

    def __init__(self, pointer: int, size: int, dtype: np.dtype[Any], device: int, owner: Any):
        self.pointer, self.size, self.dtype = pointer, size, dtype
        self.device, self.owner = device, owner
        self.fields = (0, 0, size, dtype.itemsize, pointer, size, dtype.itemsize)

    @property
    def shape(self) -> tuple[int]:
        """Of one dimension."""
        return (self.size,)

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return self.size * self.dtype.itemsize

    @property
    def device_ctypes_pointer(self) -> ctypes.c_size_t:
        """The address, as the provider's copies want it."""
        return ctypes.c_size_t(self.pointer)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data, shape = (self.pointer, False), (self.size,)
        return {"shape": shape, "typestr": self.dtype.str, "data": data, "version": 3}

    def __getitem__(self, part: slice) -> Piece:
        begin, end, _ = part.indices(self.size)
        at = self.pointer + begin * self.dtype.itemsize
        return Piece(at, max(end - begin, 0), self.dtype, self.device, self.owner)

    def view(self, dtype: Any) -> Piece:
        """The same bytes as numbers of another dtype."""
        kind = np.dtype(dtype)
        return Piece(self.pointer, self.nbytes // kind.itemsize, kind, self.device, self.owner)

    def copy_to_device(self, source: Any) -> None:
        """Overwrite with as many numbers of the same dtype, of the device or of the host."""
        if (source.size, source.dtype) != (self.size, self.dtype):
            raise ValueError(f"{source.size} {source.dtype}: expected {self.size} {self.dtype}")
        if not self.size:
            return
        provider.current_device()  # a thread's first use of the driver
        driver = cuda.cudadrv.driver
        if isinstance(source, np.ndarray):
            driver.host_to_device(self, np.ascontiguousarray(source), self.nbytes)
        else:
            driver.device_to_device(self, source, self.nbytes)

    def copy_to_host(self) -> npt.NDArray[Any]:
        """A NumPy copy; waits for what writes it."""
        host = np.empty(self.size, self.dtype)
        if self.size:
            provider.current_device()
            cuda.cudadrv.driver.device_to_host(host, self, self.nbytes)
        return host

    def clear(self) -> None:
        """Overwrite with zeros."""
        provider.current_device()
        cuda.cudadrv.driver.device_memset(self, 0, self.nbytes)


class _Lease:
    """The use of a block, which returns to the pool when nothing uses it any more.

    Kernels that still read it have been launched before any that will write it: all of them, and
    all copies, go through one stream.
    """

    __slots__ = ("key", "number")

    def __init__(self, key: tuple[int, int], number: int) -> None:
        self.key, self.number = key, number

    def __del__(self, free: Any = _free) -> None:
        free[self.key].append(self.number)


def allocate(count: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Memory for `count` numbers, at least one, of any content, and what keeps it.

    Raises:
        CudaMemoryError: there is not enough; the message names the shape.
    """
    nbytes = max(count, 1) * dtype.itemsize
    key = provider.current_device(), -(-nbytes // _GRAIN) * _GRAIN
    try:
        number = _free[key].pop()
    except IndexError:
        number = _new_block(key[1], shape, dtype)
    lease = _Lease(key, number)
    block, pointer = _blocks[number]
    if provider.SIMULATED:
        return block[:nbytes].view(dtype), lease
    return Piece(pointer, max(count, 1), dtype, key[0], lease), lease


def _new_block(nbytes: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Number of a block of the driver's; if there is none, the pool is given back first."""
    for attempt in range(2):
        try:
            block = cuda.device_array(nbytes, np.uint8)
        except Exception as error:
            if not provider.is_out_of_memory(error):
                raise
            if attempt:
                raise CudaMemoryError(
                    f"the CUDA device has no {nbytes / 1e6:,.1f} MB for an array of shape {shape} "
                    f"and dtype {dtype}"
                ) from error
            empty_cache()
        else:
            number = next(_numbers)
            pointer = 0 if provider.SIMULATED else int(block.device_ctypes_pointer.value)
            _blocks[number] = block, pointer
            return number
    raise AssertionError


def empty_cache() -> None:
    """Give memory that is in use no more back to the driver."""
    for numbers in list(_free.values()):
        with contextlib.suppress(IndexError):
            while True:
                del _blocks[numbers.pop()]
