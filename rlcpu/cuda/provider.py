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
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
HINT = "needed are an NVIDIA GPU, its driver (580 or newer) and `pip install 'numba-cuda[cu13]'`"

_lock = threading.RLock()


class CudaUnavailableError(RuntimeError):
    """There is no CUDA device, or nothing to compile for it."""


class CudaMemoryError(MemoryError):
    """An allocation on the device failed; what was there before is untouched."""


def _problem() -> str:
    """Why kernels cannot run, or an empty string."""
    return "" if SIMULATED else _problem_of(os.getpid())


@functools.cache
def _problem_of(process: int) -> str:
    """The same of one process: a forked one cannot use what its parent has begun."""
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
        plain, own = nvvm.compile_ir, threading.get_ident()

        def compile_ir(ir: Any, **options: Any) -> Any:
            # Other threads may compile kernels of their own meanwhile.
            return plain(ir, **(options | flags if threading.get_ident() == own else options))

        nvvm.compile_ir = compile_ir
        try:
            yield
        finally:
            nvvm.compile_ir = plain


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the driver said that the device's memory is exhausted."""
    text = f"{type(error).__name__} {error}"
    return "OUT_OF_MEMORY" in text.upper() or isinstance(error, MemoryError)
