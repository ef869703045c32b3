"""The DLPack protocol and `__cuda_array_interface__`, by which libraries share memory.

Source: DLPack 0.8, `dlpack.h` (unversioned capsules, which every library understands), and the
array API standard's description of `__dlpack__`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_KINDS = {code: kind for kind, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Managed._fields_ = (
    ("tensor", _Tensor),
    ("manager_ctx", ctypes.c_void_p),
    ("deleter", _Deleter),
)

_NAME = b"dltensor"
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, _Destructor)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)

#: What is exported lives here until its consumer lets go: address -> (structure, numbers, owner).
_exported: dict[int, tuple[Any, ...]] = {}


@_Deleter
def _release(address: int) -> None:
    """The consumer's call when it is done."""
    _exported.pop(address, None)


@_Destructor
def _drop(capsule: int) -> None:
    """The end of a capsule that nobody consumed; a consumer has renamed it otherwise."""
    if _is_valid(capsule, _NAME):
        _exported.pop(_pointer(capsule, _NAME), None)


def export(owner: Any, pointer: int, device: tuple[int, int]) -> Any:
    """A capsule "dltensor" of memory that `owner` keeps alive.

    Args:
        owner: has `shape`, `strides` in bytes and `dtype`.
        pointer: address of the first item.
        device: DLPack's type and index of the device.
    """
    dtype, ndim = np.dtype(owner.dtype), len(owner.shape)
    numbers = (ctypes.c_int64 * max(2 * ndim, 1))(
        *owner.shape, *(stride // dtype.itemsize for stride in owner.strides)
    )
    strides = ctypes.cast(ctypes.byref(numbers, 8 * ndim), ctypes.POINTER(ctypes.c_int64))
    shape = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64))
    code, width = _CODES[dtype.kind], 8 * dtype.itemsize
    tensor = _Tensor(pointer or None, *device, ndim, code, width, 1, shape, strides, 0)
    managed = _Managed(tensor, None, _release)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, numbers, owner)
    return _new(address, _NAME, _drop)


class View(NamedTuple):
    """Memory of another library.

    Attributes:
        pointer: address of the first item.
        shape, dtype: of the array.
        strides: in bytes; None if it is C-contiguous.
        stream: on which it is being written; None if the default stream need not wait.
        owner: keeps it alive.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: Sequence[int] | None
    stream: int | None
    owner: Any


def view(value: Any) -> View:
    """The memory of an array on the device, through DLPack where it has that.

    DLPack makes the default stream wait for what the array's library is writing;
    `__cuda_array_interface__` only names the stream, and torch's does not.

    Raises:
        TypeError: its dtype has no counterpart in NumPy.
    """
    if hasattr(value, "__dlpack__"):
        return _import(value)
    interface = value.__cuda_array_interface__
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    strides, stream = interface.get("strides"), interface.get("stream")
    return View(interface["data"][0] or 0, shape, dtype, strides, stream, value)


def _import(value: Any) -> View:
    """The memory behind `__dlpack__`, ready for the default stream."""
    capsule = value.__dlpack__(stream=1)
    tensor = ctypes.cast(_pointer(id(capsule), _NAME), ctypes.POINTER(_Tensor)).contents
    if tensor.code not in _KINDS or tensor.lanes != 1:
        raise TypeError(f"{type(value).__name__} has DLPack type {tensor.code}: expected numbers")
    dtype = np.dtype(f"{_KINDS[tensor.code]}{tensor.bits // 8}")
    shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = [tensor.strides[k] * dtype.itemsize for k in range(tensor.ndim)]
    # The capsule is not consumed: it keeps the memory, and its destructor frees it.
    pointer = (tensor.data or 0) + tensor.byte_offset
    return View(pointer, shape, dtype, strides, None, (value, capsule))
