"""Trees and buffers in the memory of a CUDA device: other classes, behind the same names."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

DEVICES = ("cpu", "cuda")


def find(cls: Any, device: str) -> Any:
    """A class, or its counterpart on a device.

    Raises:
        NotImplementedError: there is no such class for the device.
        ValueError: there is no such device.
    """
    if not isinstance(device, str) or device not in DEVICES:
        raise ValueError(f"device={device!r}: expected one of {', '.join(map(repr, DEVICES))}")
    if device == "cpu":
        return cls
    twin = getattr(importlib.import_module("rlcpu.cuda.replay"), cls.__name__, None)
    if twin is None:
        raise NotImplementedError(f"device={device!r}: no {cls.__name__} there, but on the CPU")
    return twin


class Placed:
    """Base of the classes that take `device=`: calling one may make its counterpart on a device."""

    if not TYPE_CHECKING:  # type checkers and `help` show the arguments of `__init__`

        def __new__(cls, *args, device="cpu", **options):
            """An object of this class, or its counterpart in `rlcpu.cuda.replay`.

            An object of this class is still empty. The counterpart is complete, and no instance of
            this class, so that Python does not call `__init__`.

            Raises:
                NotImplementedError, ValueError: see `find`.
            """
            kind = find(cls, device)
            return super().__new__(cls) if kind is cls else kind(*args, **options)
