"""XLA's foreign function interface from Python: functions of NumPy arrays that XLA calls in place.

A handler is a function pointer made by ctypes, so that no compiler is needed. XLA passes it the
addresses of its buffers; the layout of the structures is that of `xla/ffi/api/c_api.h`, version 0.1
and following, which only grow at their ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_EXECUTE = 3  # stage of a call in which results are wanted
_METADATA = 1  # type of the extension by which XLA asks for our version
_INVALID_ARGUMENT = 3  # code of an error: JAX raises ValueError
_NUMBERS = {11: ctypes.c_float, 12: ctypes.c_double}  # by XLA's codes of dtypes
_VERSION = (0, 1)

_Pointer = ctypes.c_void_p


def _structure(name: str, **fields: Any) -> Any:
    """Return a structure, which begins with its own size."""
    size = ("struct_size", ctypes.c_size_t)
    return type(name, (ctypes.Structure,), {"_fields_": [size, *fields.items()]})


_Version = _structure("Version", extension=_Pointer, major=ctypes.c_int, minor=ctypes.c_int)
_Metadata = _structure("Metadata", version=_Version, traits=ctypes.c_uint32)
#: `metadata` is there only if the type says so.
_Extension = _structure(
    "Extension", type=ctypes.c_int, next=_Pointer, metadata=ctypes.POINTER(_Metadata)
)
_Buffer = _structure(
    "Buffer",
    extension=_Pointer,
    dtype=ctypes.c_int,
    data=_Pointer,
    rank=ctypes.c_int64,
    dims=ctypes.POINTER(ctypes.c_int64),
)
_Buffers = _structure(
    "Buffers",
    extension=_Pointer,
    size=ctypes.c_int64,
    types=_Pointer,
    items=ctypes.POINTER(ctypes.POINTER(_Buffer)),
)
_Error = _structure("Error", extension=_Pointer, message=ctypes.c_char_p, code=ctypes.c_int)
_Api = _structure(
    "Api",
    extension=_Pointer,
    version=_Version,
    internal=_Pointer,
    create_error=ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_Error)),
)
#: What a handler gets; attributes follow, which ours have none of.
_Frame = _structure(
    "Frame",
    extension=ctypes.POINTER(_Extension),
    api=ctypes.POINTER(_Api),
    context=_Pointer,
    stage=ctypes.c_int,
    arguments=_Buffers,
    results=_Buffers,
)
_HANDLER = ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_Frame))


def handler(function: Callable[[list[Array], list[Array]], None]) -> Any:
    """Return a pointer that XLA can call, to be kept alive as long as it may.

    Args:
        function: gets the arguments, read-only, and the results, which it overwrites. What it
            raises becomes an error of XLA, with its message.
    """

    def call(pointer: Any) -> int | None:
        """Answer a call of XLA: its question for the version, or a computation."""
        frame = pointer.contents
        extension = frame.extension
        if extension and extension.contents.type == _METADATA:
            version = extension.contents.metadata.contents.version
            version.major, version.minor = _VERSION
            return None
        if frame.stage != _EXECUTE:
            return None
        try:
            arguments, results = _arrays(frame.arguments), _arrays(frame.results)
            for array in arguments:
                array.flags.writeable = False
            function(arguments, results)
        except BaseException as error:  # nothing may pass through XLA's own frames
            return _report(frame.api.contents, error)
        return None

    return _HANDLER(call)


def capsule(pointer: Any) -> Any:
    """Return the capsule for `jax.ffi.register_ffi_target`."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [_Pointer, ctypes.c_char_p, _Pointer]
    return new(ctypes.cast(pointer, _Pointer), None, None)


def _arrays(buffers: Any) -> list[Array]:
    """Return XLA's memory, row-major, as arrays."""
    arrays = []
    for i in range(buffers.size):
        buffer = buffers.items[i].contents
        kind = _NUMBERS.get(buffer.dtype)
        if kind is None:
            raise TypeError(f"expected float32 or float64, got XLA's type {buffer.dtype}")
        shape = buffer.dims[: buffer.rank]
        pointer = ctypes.cast(buffer.data, ctypes.POINTER(kind))
        empty = 0 in shape  # which may have no memory
        arrays.append(np.empty(shape, kind) if empty else np.ctypeslib.as_array(pointer, shape))
    return arrays


def _report(api: Any, error: BaseException) -> int | None:
    message = f"{type(error).__name__}: {error}".encode()
    arguments = _Error(ctypes.sizeof(_Error), None, message, _INVALID_ARGUMENT)
    pointer: int | None = api.create_error(ctypes.byref(arguments))
    return pointer
