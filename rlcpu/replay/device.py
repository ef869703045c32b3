"""Trees and buffers in the memory of a CUDA device: other classes, behind the same names."""

from __future__ import annotations

import importlib
from typing import Any

DEVICES = ("cpu", "cuda")


def find(cls: Any, device: str) -> Any:
    """A class, or its counterpart on a device.

    Raises:
        NotImplementedError: there is no such class for the device.
        ValueError: there is no such device.
    """
    if device not in DEVICES:
        raise ValueError(f"device={device!r}: expected one of {', '.join(map(repr, DEVICES))}")
    if device == "cpu":
        return cls
    twin = getattr(importlib.import_module("rlcpu.cuda.replay"), cls.__name__, None)
    if twin is None:
        raise NotImplementedError(f"device={device!r}: no {cls.__name__} there, but on the CPU")
    return twin


def make(cls: Any, device: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `cls(*args, device=device, **options)` begins with: for `__new__`.

    An object of `cls` itself is still empty then; one of `rlcpu.cuda.replay` is complete, and no
    instance of `cls`, so that Python leaves it alone.

    Raises:
        NotImplementedError, ValueError: see `find`.
    """
    twin = find(cls, device)
    return object.__new__(cls) if twin is cls else twin(*args, **options)
