"""The CUDA compiler and driver, in one place: nothing else imports them.

`numba.cuda` is Numba's own target, which is deprecated, or NVIDIA's `numba-cuda`, which takes its
place under the same name where it is installed. Another provider needs another version of this
file only.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
from pathlib import Path
from typing import Any, NamedTuple

from rlcpu.cuda.compile import _module as kernel_module
from rlcpu.cuda.compile import arithmetic
from rlcpu.cuda.device import (
    SIMULATED,
    CudaMemoryError,
    CudaUnavailableError,
    cuda,
    describe,
    is_available,
    require_device,
)

__all__ = [
    "SIMULATED",
    "CudaMemoryError",
    "CudaUnavailableError",
    "arithmetic",
    "cuda",
    "describe",
    "is_available",
    "kernel_module",
    "libdevice",
    "require_device",
]

libdevice: Any = None if SIMULATED else importlib.import_module("numba.cuda.libdevice")

#: Whether `cuda.shared.array` takes an alignment: loads of four numbers need 16 bytes.
ALIGNS = not SIMULATED and "alignment" in inspect.signature(cuda.shared.array).parameters


def _find_bindings() -> Any:
    """`cuda.bindings.driver` where NVIDIA's `numba-cuda`, which is built on it, is installed."""
    with contextlib.suppress(ImportError):
        importlib.import_module("numba_cuda")
        return importlib.import_module("cuda.bindings.driver")
    return None


_bindings: Any = None if SIMULATED else _find_bindings()


def current_device() -> int:
    """Index of the current device, which becomes a thread's first device if it has none."""
    if SIMULATED:
        return 0
    if _bindings is not None:
        error, device = _bindings.cuCtxGetDevice()
        if not error:
            return int(device)
    return int(cuda.get_current_device().id)


def device_name() -> str:
    """Name of the current device, such as "NVIDIA H100 80GB HBM3"."""
    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


# ---------------------------------------------------------------- compiling


class Compiled(NamedTuple):
    """A kernel for one device.

    Attributes:
        handle: the driver's, for `cuLaunchKernel`.
        name: in the machine code.
        code: the machine code, a cubin.
    """

    handle: int
    name: str
    code: bytes


def load(dispatcher: Any, args: list[Any]) -> Compiled | None:
    """Compile a kernel for arguments like these and load it on the current device.

    Returns:
        None if the provider is none that is known to pass arrays as `rlcpu.cuda.memory.Piece` has
        them in `fields`, and numbers as they are.
    """
    if _bindings is None:
        return None
    compiled = dispatcher.compile(tuple(dispatcher.typeof_pyval(arg) for arg in args))
    handle = int(compiled.library.get_cufunc().handle)
    return Compiled(handle, compiled.entry_name, bytes(compiled.library.get_cubin().code))


def load_code(name: str, code: bytes) -> int:
    """Load machine code on the current device.

    Returns:
        The driver's handle.

    Raises:
        Exception: the driver's or the provider's, if it cannot be loaded.
    """
    module = cuda.cudadrv.driver
    image = module.ObjectCode.from_cubin(code, name=name)
    return int(cuda.current_context().create_module_image(image).get_function(name).handle)


def toolchain() -> tuple[str, ...] | None:
    """All of the compiler that decides machine code; None if that is not known."""
    return None if _bindings is None else _toolchain(current_device())


@functools.cache
def _toolchain(device: int) -> tuple[str, ...]:
    packages = ("numba-cuda", "cuda-core", "cuda-bindings")
    versions = [importlib.metadata.version(package) for package in packages]
    nvvm = importlib.import_module("numba.cuda.cudadrv.nvvm")
    linker = importlib.import_module("cuda.bindings.nvjitlink")
    sources = [Path(__file__), Path(__file__).with_name("maths.py")]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sources]
    capability = cuda.get_current_device().compute_capability
    tools = nvvm.NVVM().get_version(), linker.version(), capability
    return (*versions, *digests, *map(str, tools))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the driver said that the device's memory is exhausted."""
    text = f"{type(error).__name__} {error}"
    return "OUT_OF_MEMORY" in text.upper() or isinstance(error, MemoryError)
