"""Where arrays are, and what computes there: nothing above this module knows a device."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

#: DLPack's devices: memory of a CUDA device, and managed memory, which is used there.
_CUDA = (2, 13)
#: Types of most arguments: nothing else has to be asked of them.
_HOST = {np.ndarray, float, int, type(None)}


def find(device: str, chapter: str = "") -> Any:
    """Return the module that computes on a device other than the CPU.

    A backend is imported by name: it and what it needs are imported when a device is used, and
    nothing else leads there.

    Args:
        device: "cuda".
        chapter: name of a module of the backend, such as "envs"; "" for the backend itself.

    Returns:
        The module `rlcpu.cuda`, or its chapter.

    Raises:
        ValueError: there is no such device.
        rlcpu.cuda.CudaUnavailableError: nothing can run there, with what to install.
    """
    if not isinstance(device, str) or device != "cuda":
        raise ValueError(f'device={device!r}: expected "cpu" or "cuda"')
    backend: Any = importlib.import_module("rlcpu.cuda")
    backend.device.require_device()
    return importlib.import_module(f"rlcpu.cuda.{chapter}") if chapter else backend


class Host:
    """Arrays of the CPU; `rlcpu.cuda.device` has functions of the same names."""

    empty = staticmethod(np.empty)
    asarray = staticmethod(np.asarray)
    to_host = staticmethod(np.asarray)  # not to be written to


def arrays_of(device: str) -> Any:
    """Return the module that makes arrays on a device: `empty`, `asarray`, `to_host`.

    Raises:
        ValueError, rlcpu.cuda.CudaUnavailableError: see `find`.
    """
    return Host if device == "cpu" else find(device, "device")


def device_of(*arrays: Any) -> str:
    """Return where a function of these arguments is computed: "cuda" for one of them, or "cpu".

    Args:
        *arrays: arrays of NumPy, CuPy, torch, jax or Numba, numbers, or None. Managed memory
            counts as the device's.
    """
    for array in arrays:
        if type(array) not in _HOST and _is_on_device(array):
            return "cuda"
    return "cpu"


def cpu_only(what: str, error: type[Exception] = NotImplementedError) -> Exception:
    """Return the exception that says of something that it is computed on the CPU alone."""
    return error(f"{what}: not on a CUDA device, but on the CPU")


def _is_on_device(array: Any) -> bool:
    if isinstance(array, type):
        return False
    if type(array).__module__ == "cupy":  # whose arrays are nowhere else; to ask takes longer
        return True
    device = getattr(array, "__dlpack_device__", None)
    if device is not None:
        return int(device()[0]) in _CUDA
    return getattr(array, "__cuda_array_interface__", None) is not None
