"""Where functions of scan are computed: on the host's cores, or on the device of their arrays."""

from __future__ import annotations

from typing import Any

from rlcpu.backends import cpu_only, device_of, find


def backend_of(chapter: str, *arrays: Any) -> Any:
    """The module of `rlcpu.cuda` that computes if an array is on a device; None for the host."""
    device = device_of(*arrays)
    return None if device == "cpu" else find(device, chapter)


def check_on_host(function: str, **arguments: Any) -> None:
    """Refuse arrays on a device as arguments of what is not computed there.

    Args:
        function: the function, or its option, as users know it.
        **arguments: by name.

    Raises:
        NotImplementedError: one is on a device.
    """
    for name, value in arguments.items():
        if device_of(value) != "cpu":
            raise cpu_only(f"{function} with {name} of {type(value).__name__}")
