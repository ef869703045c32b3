"""Arrays on the device: ours, and those of torch, CuPy and jax, checked before they are used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.cuda import dlpack, provider
from rlcpu.cuda.memory import Piece, allocate, empty_cache

__all__ = [
    "DeviceArray",
    "c_strides",
    "empty",
    "empty_cache",
    "from_host",
    "is_device_array",
    "take",
    "zeros",
]

#: `__dlpack_device__` of memory on a CUDA device.
_CUDA = 2
#: What both protocols call the default stream, on which everything here is launched and copied.
_DEFAULT_STREAM = 1


class DeviceArray:
    """An array on the device, which other libraries take without a copy.

    `torch.as_tensor(array, device="cuda")` and `cupy.asarray(array)` read
    `__cuda_array_interface__`, `jax.dlpack.from_dlpack(array)` and `torch.from_dlpack(array)` the
    DLPack protocol; the memory lives as long as any of them. `numpy.asarray(array)` copies it to
    the host.

    Args:
        memory: `rlcpu.cuda.memory.Piece`, or the simulator's array of one dimension.
        shape: of the view.
        strides: in bytes; by default those of a C-contiguous array.
        owner: kept alive as long as this view is.

    Attributes:
        memory, shape, strides, owner: see above.
        dtype: NumPy dtype.
    """

    def __init__(
        self,
        memory: Any,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        owner: Any = None,
    ) -> None:
        self.memory, self.shape, self.dtype = memory, tuple(shape), np.dtype(memory.dtype)
        self.owner = owner
        contiguous = c_strides(self.shape, self.dtype.itemsize)
        self.strides = contiguous if strides is None else tuple(strides)

    @property
    def device(self) -> int:
        """Index of the device where it is."""
        return 0 if provider.SIMULATED else int(self.memory.device)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its items."""
        return self.size * self.dtype.itemsize

    @property
    def T(self) -> DeviceArray:
        """The same memory with the dimensions in reverse order."""
        return DeviceArray(self.memory, self.shape[::-1], self.strides[::-1], self.owner)

    def view(self, shape: Sequence[int], begin: int = 0) -> DeviceArray:
        """The items from number `begin` on of a contiguous array, in another shape."""
        part = self.memory[begin : begin + math.prod(shape)]
        return DeviceArray(part, shape, owner=self.owner)

    def copy_to_host(self) -> npt.NDArray[Any]:
        """A NumPy copy; waits for the kernels that write it."""
        host = self.memory.copy_to_host()
        return np.lib.stride_tricks.as_strided(host, self.shape, self.strides)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("copy=False: an array on the device is copied to reach NumPy")
        host = self.copy_to_host()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype})"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "data": (self.memory.pointer, False),
            "stream": _DEFAULT_STREAM,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA, self.device)

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        if stream not in (None, -1, _DEFAULT_STREAM):
            provider.cuda.synchronize()  # other streams do not wait for the default one
        return dlpack.export(self, self.memory.pointer, self.__dlpack_device__())


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a C-contiguous array."""
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides[: len(shape)]))


# ---------------------------------------------------------------- allocation


def empty(shape: int | Sequence[int], dtype: Any) -> DeviceArray:
    """New memory of any content.

    Raises:
        CudaMemoryError: there is not enough of it.
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    memory, owner = allocate(math.prod(sizes), np.dtype(dtype), sizes)
    return DeviceArray(memory, sizes, owner=owner)


def from_host(values: npt.ArrayLike, dtype: Any = None) -> DeviceArray:
    """A copy of a host array on the device.

    Raises:
        CudaMemoryError: there is not enough memory.
    """
    host = np.ascontiguousarray(values, dtype)
    array = empty(np.shape(values), host.dtype)
    if host.size:
        array.memory.copy_to_device(host.reshape(-1))
    return array


def zeros(shape: int | Sequence[int], dtype: Any) -> DeviceArray:
    """New memory of zeros."""
    if provider.SIMULATED:
        return from_host(np.zeros(shape, dtype))
    array = empty(shape, dtype)
    array.memory.clear()
    return array


# ---------------------------------------------------------------- arrays of others


def is_device_array(value: Any) -> bool:
    """Whether a value is an array on a CUDA device, of this library or of another."""
    if isinstance(value, DeviceArray | type):
        return isinstance(value, DeviceArray)
    if provider.SIMULATED and hasattr(value, "__cuda_ndarray__"):
        return True
    if hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
        return int(value.__dlpack_device__()[0]) == _CUDA
    return getattr(value, "__cuda_array_interface__", None) is not None


def take(
    name: str, value: Any, dtype: Any, shape: Sequence[int] | None = None, write: bool = False
) -> DeviceArray:
    """An argument as a contiguous array on the current device, without a copy if it is one.

    Args:
        name: of the argument, for messages.
        value: an array on the device, or on the host, which is copied.
        dtype: what it has to be.
        shape: what it has to be; None for any.
        write: whether it is an output: on the device, and writable.

    Raises:
        TypeError: not an array, or of another dtype; on the host where it is an output.
        ValueError: another shape, not C-contiguous, not aligned, read-only where it is an output,
            or on another device. Nothing has been written then.
    """
    if is_device_array(value):
        array = _adopt(name, value, write)
    elif write or not isinstance(value, np.ndarray | list | tuple | np.generic):
        where = "an array on the CUDA device" if write else "an array"
        raise TypeError(f"{name}={type(value).__name__}: expected {where}")
    else:
        _check(name, np.asarray(value), dtype, shape)
        return from_host(value, dtype)
    _check(name, array, dtype, shape)
    if array.size and array.strides != c_strides(array.shape, array.dtype.itemsize):
        raise ValueError(f"{name} has strides {array.strides}: expected a C-contiguous array")
    return array


def _check(name: str, array: Any, dtype: Any, shape: Sequence[int] | None) -> None:
    if array.dtype != np.dtype(dtype):
        raise TypeError(f"{name} has dtype {array.dtype}: expected {np.dtype(dtype)}")
    if shape is not None and tuple(array.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(array.shape)}: expected {tuple(shape)}")


def _adopt(name: str, value: Any, write: bool) -> DeviceArray:
    """An array on the device as ours, over the same memory."""
    if isinstance(value, DeviceArray):
        _check_device(name, value.device)
        return value
    if provider.SIMULATED:
        return DeviceArray(value.reshape(-1), tuple(value.shape), value.strides)
    if hasattr(value, "__dlpack_device__"):
        _check_device(name, int(value.__dlpack_device__()[1]))
    if write and (getattr(value, "__cuda_array_interface__", None) or {}).get("data", (0, 0))[1]:
        raise ValueError(f"{name} is read-only: expected a writable array")
    view = dlpack.view(value)
    if view.pointer % view.dtype.itemsize:
        raise ValueError(f"{name} is not aligned to its {view.dtype.itemsize}-byte items")
    if view.stream not in (None, _DEFAULT_STREAM):
        provider.cuda.external_stream(view.stream).synchronize()
    size = math.prod(view.shape)
    memory = Piece(view.pointer, size, view.dtype, provider.current_device(), view.owner)
    return DeviceArray(memory, view.shape, view.strides)


def _check_device(name: str, device: int) -> None:
    current = provider.current_device()
    if device != current:
        raise ValueError(f"{name} is on CUDA device {device}: expected {current}, the current one")
