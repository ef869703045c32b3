"""Functions of arrays on a CUDA device are computed there."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

_CUDA = (2, 13)  # DLPack's devices: memory of a CUDA device, and managed memory


def is_on_device(array: Any) -> bool:
    """Whether an argument is an array on a CUDA device: of torch, CuPy, jax, Numba or our own."""
    return type(array) is not np.ndarray and _is_on_device(array)


def _is_on_device(array: Any) -> bool:
    device = getattr(array, "__dlpack_device__", None)
    if device is not None:
        return int(device()[0]) in _CUDA
    return getattr(array, "__cuda_array_interface__", None) is not None


def refuse_on_device(arguments: dict[str, Any]) -> None:
    """Raise if an argument of a function that only the CPU has is on a CUDA device.

    Args:
        arguments: by name.

    Raises:
        TypeError: one is.
    """
    for name, value in arguments.items():
        if is_on_device(value):
            kind = type(value).__name__
            raise TypeError(f"{name}: expected an array on the host, got {kind} on a CUDA device")


def on_device(name: str, arguments: dict[str, Any]) -> Any:
    """Call the function of that name of `rlcpu.cuda.scan`.

    Args:
        name: of the public function.
        arguments: what it was given, by name: its `locals()` before anything else.
    """
    arguments = {key: value for key, value in arguments.items() if key != "num_threads"}
    return getattr(importlib.import_module("rlcpu.cuda.scan"), name)(**arguments)
