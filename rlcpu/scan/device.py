"""Where functions of scan are computed: on one core or all, or on the device of their arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlcpu.backends import cpu_only, device_of, find
from rlcpu.kernels.compile import kernel
from rlcpu.kernels.threads import Kernels


def for_cores(driver: Callable[..., Any], grain: int, **options: Any) -> Kernels:
    """Compile a driver, whose loop is a `prange`, for one core and for all; see `kernel`."""
    return Kernels(kernel(driver, **options), kernel(driver, parallel=True, **options), grain)


def backend_of(chapter: str, *arrays: Any) -> Any:
    """Return the module of `rlcpu.cuda` for an array on a device; None for the host."""
    device = device_of(*arrays)
    return None if device == "cpu" else find(device, chapter)


def check_on_host(function: str, **arguments: Any) -> None:
    """Raise NotImplementedError for an argument on a device, where `function` is not computed."""
    for name, value in arguments.items():
        if device_of(value) != "cpu":
            raise cpu_only(f"{function} with {name} of {type(value).__name__}")
