"""The CUDA compiler and driver, in one place: nothing else imports them.

`numba.cuda` is Numba's own target, which is deprecated, or NVIDIA's `numba-cuda`, which takes its
place under the same name where it is installed. Another provider needs another version of this
file only.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

#: Whether kernels run in the simulator, in Python (`NUMBA_ENABLE_CUDASIM=1`).
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of Numba's own target
    from numba import cuda as _cuda

#: The module that kernels use: `cuda.grid`, `cuda.shared.array`, `cuda.syncthreads`, ...
cuda: Any = _cuda
#: Functions that become one PTX instruction, or a few; the simulator has none.
libdevice: Any = None if SIMULATED else importlib.import_module("numba.cuda.libdevice")


class _SimulatedModule:
    """`cuda` inside simulated kernels.

    The simulator puts its module into a function's globals while a thread runs it, and takes it
    away although other threads of the block are still there; this one looks it up at every use.
    """

    def __getattr__(self, name: str) -> Any:
        simulated: Any = importlib.import_module("numba.cuda.simulator.kernel")
        return getattr(simulated._get_kernel_context(), name)


#: What the functions of a kernel get for `cuda`.
kernel_module: Any = _SimulatedModule() if SIMULATED else cuda

#: Whether `cuda.shared.array` takes an alignment: loads of four numbers need 16 bytes.
ALIGNS = not SIMULATED and "alignment" in inspect.signature(cuda.shared.array).parameters

#: What to install for a GPU.
HINT = "needed are an NVIDIA GPU, its driver (580 or newer) and `pip install rlcpu[cuda]`"

_lock = threading.RLock()


class CudaUnavailableError(RuntimeError):
    """There is no CUDA device, or nothing to compile for it."""


class CudaMemoryError(MemoryError):
    """An allocation on the device failed; what was there before is untouched."""


@functools.cache
def _problem() -> str:
    """Why kernels cannot run, or an empty string."""
    if SIMULATED:
        return ""
    try:
        if not cuda.is_available():
            return f"no CUDA device was found ({_driver_error()})"
        cuda.current_context()
    except Exception as error:
        return f"the CUDA device cannot be used ({type(error).__name__}: {error})"
    return ""


def _driver_error() -> str:
    error = cuda.cuda_error() if hasattr(cuda, "cuda_error") else None
    text = " ".join(str(error or "libcuda reports none").split())
    return text if len(text) <= 200 else f"{text[:200]}..."


def is_available() -> bool:
    """Whether kernels can run: on a device, or in the simulator."""
    return not _problem()


def require_device() -> None:
    """Raise unless kernels can run.

    Raises:
        CudaUnavailableError: with what was looked for, and what to install.
    """
    if _problem():
        raise CudaUnavailableError(f'device="cuda": {_problem()}; {HINT}')


def describe() -> str:
    """Provider and device, in one line."""
    try:
        version = f"numba-cuda {importlib.metadata.version('numba-cuda')}"
    except importlib.metadata.PackageNotFoundError:
        version = f"numba.cuda {importlib.metadata.version('numba')}"
    if SIMULATED:
        return f"simulator ({version})"
    if _problem():
        return f"none usable: {_problem()} ({version})"
    return f"{device_name()} ({version})"


def device_name() -> str:
    """Name of the current device, such as "NVIDIA H100 80GB HBM3"."""
    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


# ---------------------------------------------------------------- compiling


def jit_device(function: Any) -> Any:
    """A device function, inlined where the provider has a switch for that."""
    known = inspect.signature(cuda.jit).parameters
    options = {"forceinline": True} if "forceinline" in known and not SIMULATED else {}
    return cuda.jit(device=True, **options)(function)


def jit_kernel(function: Any, exact: bool, **options: Any) -> Any:
    """A kernel, compiled at its first launch with arguments of new types; see `arithmetic`."""
    if SIMULATED:
        return cuda.jit(function)
    if "lto" in inspect.signature(cuda.jit).parameters:
        options["lto"] = False  # the linker would generate the code, without NVVM's switches
    dispatcher = cuda.jit(**options)(function)
    compile_signature: Any = dispatcher.compile

    def compile_as_asked(signature: Any) -> Any:
        with arithmetic(exact):
            return compile_signature(signature)

    dispatcher.compile = compile_as_asked
    return dispatcher


@contextlib.contextmanager
def arithmetic(exact: bool) -> Iterator[None]:
    """What is compiled inside is exact, or fast but true to NaN and infinity.

    `cuda.jit` knows `fastmath=True` alone, by which LLVM assumes that no NaN exists, and contracts
    multiplications with additions without it. NVVM has the switches that are wanted: exact is
    without contraction; fast divides and takes roots within 2 ulp and flushes subnormals to 0.
    """
    if SIMULATED:
        yield
        return
    nvvm: Any = importlib.import_module("numba.cuda.cudadrv.nvvm")
    flags = {"fma": False} if exact else {"prec_div": False, "prec_sqrt": False, "ftz": True}
    with _lock:
        plain = nvvm.compile_ir
        nvvm.compile_ir = lambda ir, **options: plain(ir, **{**options, **flags})
        try:
            yield
        finally:
            nvvm.compile_ir = plain


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the driver said that the device's memory is exhausted."""
    text = f"{type(error).__name__} {error}"
    return "OUT_OF_MEMORY" in text.upper() or isinstance(error, MemoryError)
