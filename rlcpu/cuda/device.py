"""The device: whether it is there, arrays on it, and launches.

Arrays are CuPy's. In the simulator (`NUMBA_ENABLE_CUDASIM=1`), which runs kernels as Python, they
are NumPy's, of a class of their own: so that `rlcpu.backends.device_of` tells them from the host's.
CuPy is imported when the first array is made.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import struct
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu import backends
from rlcpu.kernels.compiler.functions import convert_items

#: Whether kernels run in the simulator, in Python (`NUMBA_ENABLE_CUDASIM=1`).
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
#: Threads of a block: four warps per scheduler hide the latency of arithmetic, and 128 registers
#: per thread are left where two such blocks share a multiprocessor.
BLOCK = 256
#: The simulator runs a thread of the operating system for each: no more of them than items.
_WARP = 4 if SIMULATED else 32
#: Bytes of the largest unit of memory that a warp reads at once.
_ALIGNMENT = 256
_HINT = "needed are an NVIDIA GPU, its driver (580 or newer) and the extra: `pip install '.[cuda]'`"

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of Numba's own target
    from numba import cuda as _cuda

#: The module that kernels use: `cuda.grid`, `cuda.shared.array`, `cuda.syncthreads`, ...
cuda: Any = _cuda


class CudaUnavailableError(RuntimeError):
    """There is no CUDA device, or nothing to compile for it."""


class CudaError(RuntimeError):
    """The driver refuses a kernel, or reports one that it ended."""


class CudaMemoryError(MemoryError):
    """An allocation on the device failed; what was there before is untouched."""


# ---------------------------------------------------------------- whether it is there


def is_available() -> bool:
    """Tell whether kernels can run: on a device, or in the simulator."""
    return not _problem()


def require_device() -> None:
    """Raise unless kernels can run.

    Raises:
        CudaUnavailableError: with what was looked for, and what to install.
    """
    if _problem():
        raise CudaUnavailableError(f'device="cuda": {_problem()}; {_HINT}')


def describe() -> str:
    """Return the device, compiler and arrays, in one line."""
    tools = f"numba-cuda {_version('numba-cuda')}, CuPy {_version('cupy-cuda13x')}"
    if SIMULATED:
        return f"simulator (numba {_version('numba')})"
    if _problem():
        return f"none usable: {_problem().partition(' (')[0]} ({tools})"
    name = cuda.get_current_device().name
    return f"{name.decode() if isinstance(name, bytes) else name} ({tools})"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _problem() -> str:
    """Return why kernels cannot run, or an empty string."""
    return "" if SIMULATED else _problem_of(os.getpid())


@functools.cache
def _problem_of(process: int) -> str:  # a forked one cannot use what its parent has begun
    """Return what is wrong with CUDA in a process, "" for nothing; a forked one is asked anew."""
    try:
        if not cuda.is_available():
            return f"no CUDA device was found ({_driver_error()})"
        cuda.current_context()
        import cupy  # noqa: F401
        import numba_cuda  # noqa: F401
        from numba.cuda import cudaimpl  # noqa: F401  (fails beside a NumPy that it does not know)
    except ImportError as error:
        return f"the package {error.name} is not installed"
    except Exception as error:
        return f"the CUDA device cannot be used ({type(error).__name__}: {error})"
    return ""


def _driver_error() -> str:
    error = cuda.cuda_error() if hasattr(cuda, "cuda_error") else None
    text = " ".join(str(error or "libcuda reports none").split())
    return text if len(text) <= 200 else f"{text[:200]}..."


# ---------------------------------------------------------------- arrays


class SimulatedArray(np.ndarray):
    """NumPy's array as one of a device that is simulated: like CuPy's, it mixes with no host's."""

    def __dlpack_device__(self) -> Any:
        """Return device 0 of DLPack's kind 2, which is CUDA."""
        return (2, 0)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", ())
        _refuse_host_arrays(ufunc, [*inputs, *out])
        # NumPy computes on plain arrays: on these it would call this method again.
        if out:
            options["out"] = tuple(map(_plain, out))
        result = getattr(ufunc, method)(*map(_plain, inputs), **options)
        return result.view(SimulatedArray) if type(result) is np.ndarray else result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in (np.may_share_memory, np.copyto):  # NumPy's own calls of them are plain
            _refuse_host_arrays(function, [*args, *kwargs.values()])
        return super().__array_function__(function, types, args, kwargs)


def _plain(value: Any) -> Any:
    """Return a simulated array as NumPy's; other values as they are."""
    return value.view(np.ndarray) if isinstance(value, SimulatedArray) else value


def _refuse_host_arrays(function: Any, arguments: list[Any]) -> None:
    """Raise TypeError for a host array among a function's arguments."""
    for argument in arguments:
        if type(argument) is np.ndarray:
            raise TypeError(
                f"{function.__name__}: an array of the host {argument.shape} among arrays on the "
                "device"
            )


class _CuPy:
    """The module `cupy`, imported when it is first used."""

    def __getattr__(self, name: str) -> Any:
        require_device()
        import cupy

        value = getattr(cupy, name)
        setattr(self, name, value)  # so that this is not called again
        return value


class _SimulatedCuPy:
    """The module `numpy`, whose functions return arrays of the device that is simulated."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        if isinstance(value, type) or not callable(value):
            return value

        @functools.wraps(value)
        def function(*arguments: Any, **options: Any) -> Any:
            result = value(*arguments, **options)
            return result.view(SimulatedArray) if type(result) is np.ndarray else result

        return function


#: CuPy, or NumPy in the simulator: `xp.where`, `xp.cumsum`, ... of arrays on the device. New arrays
#: are made by the functions below.
xp: Any = _SimulatedCuPy() if SIMULATED else _CuPy()


@contextlib.contextmanager
def _named(shape: Any, dtype: Any) -> Iterator[None]:
    """Raise CudaMemoryError, with the size asked for, if there is not enough memory."""
    try:
        yield
    except MemoryError as error:
        raise CudaMemoryError(
            f"the CUDA device has no memory for an array of shape {shape} and dtype "
            f"{np.dtype(dtype)} ({error})"
        ) from error


def empty(shape: int | Sequence[int], dtype: Any) -> Any:
    """Return a new array on the device, C-contiguous, of any content.

    Raises:
        CudaMemoryError: there is not enough memory; the message names the shape.
    """
    with _named(shape, dtype):
        array = xp.empty(shape, dtype)
    return array.view(SimulatedArray) if SIMULATED else array


def empty_arrays(*wanted: tuple[int, np.dtype[Any]]) -> list[Any]:
    """Return new arrays (size,) of any content in one allocation, which takes most of the time.

    Args:
        *wanted: size and dtype of each.

    Raises:
        CudaMemoryError: there is not enough memory.
    """
    if SIMULATED:
        return [empty(size, dtype) for size, dtype in wanted]
    places, end = [], 0
    for size, dtype in wanted:
        places.append(end)
        end += -(-size * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    make, alloc = xp.ndarray, xp.cuda.alloc
    with _named(end, np.uint8):
        memory = alloc(end)
    return [make(wanted[k][0], wanted[k][1], memory + place) for k, place in enumerate(places)]


def zeros(shape: int | Sequence[int], dtype: Any) -> Any:
    """Return a new array of zeros."""
    array = empty(shape, dtype)
    array.fill(0)
    return array


def asarray(x: Any, dtype: Any = None) -> Any:
    """Return an array on the device: the same memory if it is there and of the dtype, or a copy.

    Args:
        x: array on the device, of any library that has DLPack or `__cuda_array_interface__`: the
            current stream waits for what writes it; or a host array or numbers, which are copied.
        dtype: of the result; None keeps that of `x`.

    Raises:
        ValueError: it is on another device than the current one.
        CudaMemoryError: there is not enough memory for the copy.
    """
    is_ours = isinstance(x, SimulatedArray if SIMULATED else xp.ndarray)
    if not is_ours and backends.device_of(x) == "cpu":
        host = np.asarray(x, dtype)
        with _named(host.shape, host.dtype):
            return np.array(host).view(SimulatedArray) if SIMULATED else xp.asarray(host)
    array = x if is_ours else _of_interface(x)
    if not SIMULATED:
        current = xp.cuda.Device().id
        if array.device.id != current:
            raise ValueError(
                f"an array {array.shape} is on CUDA device {array.device.id}: expected "
                f"{current}, the current one"
            )
    if dtype is None or array.dtype == dtype:
        return array
    with _named(array.shape, dtype):
        return array.astype(dtype)


def _of_interface(x: Any) -> Any:
    """Return another library's array over the same memory.

    DLPack makes the current stream wait for what the other library is writing;
    `__cuda_array_interface__` only names a stream, and torch's does not.
    """
    if SIMULATED:  # Numba's own arrays, around a NumPy array
        return x._ary.view(SimulatedArray)
    if hasattr(x, "__dlpack__") and int(x.__dlpack_device__()[0]) == 2:  # DLPack's code of CUDA
        return xp.from_dlpack(x)
    return xp.asarray(x)  # managed memory too, which CuPy does not take by DLPack


def to_host(x: Any) -> npt.NDArray[Any]:
    """Return a NumPy copy of an array on the device; waits for what writes it."""
    return np.array(x) if SIMULATED else np.asarray(xp.asnumpy(x))


# ---------------------------------------------------------------- launches


class Prepared:
    """An argument that many launches take alike: its words are made at the first of them.

    What its arrays hold may change, their memory and its numbers must not.

    Attributes:
        value: an array on the device, a number, or a tuple of them.
    """

    __slots__ = ("kinds", "value", "words")

    def __init__(self, value: Any) -> None:
        self.value = value
        #: What `_Launcher._flatten` appends.
        self.words: list[Any] | None = None
        self.kinds: list[Any] = []


def launch(kernel: Any, size: int, *args: Any, block: int = BLOCK, grid: int | None = None) -> None:
    """Run a kernel on CuPy's current stream; returns before it has finished.

    Args:
        kernel: see `rlcpu.cuda.compile.kernel`; it does nothing in threads of
            `cuda.grid(1) >= size`.
        size: threads wanted, one per item; nothing is launched for 0.
        *args: contiguous arrays of one axis on the device, numbers, and tuples of them, or
            `Prepared`. Python's numbers become int64 and float64.
        block: threads of a block; fewer where fewer do.
        grid: number of blocks, of exactly `block` threads each; None for as many as `size` needs.

    Raises:
        TypeError: an argument is something else.
        CudaError: the driver refuses the launch, or reports an earlier kernel that it ended.
    """
    if size <= 0:
        return
    if grid is None:
        block = min(block, -(-size // _WARP) * _WARP)
        grid = -(-size // block)
    if SIMULATED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a small grid is small
            configured = kernel.dispatcher[grid, block]
        configured(*map(_simulated, args))
        return
    launcher = getattr(_threads, "launcher", None)
    if launcher is None:
        launcher = _threads.launcher = _Launcher()
    launcher.launch(kernel, grid, block, args)


def _simulated(value: Any) -> Any:
    """Return an argument as the simulator's kernels take it."""
    from numba.cuda.simulator.cudadrv import devicearray as simulated

    if isinstance(value, Prepared):
        return _simulated(value.value)
    if isinstance(value, tuple):
        return convert_items(value, _simulated)
    if not isinstance(value, np.ndarray):
        return value
    # Of a NumPy array it would make a new one, and copy it back: arguments could not overlap.
    return simulated.FakeWithinKernelCUDAArray(simulated.FakeCUDAArray(value))


_threads = threading.local()  # the `_Launcher` of each


def _forget() -> None:
    """Let a fork ask for the device, which it cannot use as its parent has begun to."""
    for owner in (xp, _threads):
        vars(owner).clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

#: Largest number of bytes of a kernel's arguments.
_MOST_BYTES = 32764


class _Launcher:
    """Launches kernels for one thread of the host.

    Arguments are packed into a buffer that CUDA copies: numbers as C aligns them in a struct, an
    array as the seven words of numba's, which are no memory info, no parent, size, bytes of an
    item, address, shape and stride.
    """

    def __init__(self) -> None:
        require_device()
        import cupy
        from cuda.bindings import driver

        self._ndarray, self._cuda, self._driver = cupy.ndarray, cupy.cuda, driver
        cupy.cuda.Device().use()  # CUDA's context becomes this thread's
        # CUDA takes a list of names and values: 1 is the address of the buffer, 2 that of its size.
        # List, size and buffer lie in one memory.
        self._memory = np.zeros(6 + _MOST_BYTES // 8 + 1, np.int64)
        self._list = int(self._memory.ctypes.data)
        self._memory[:5] = 1, self._list + 6 * 8, 2, self._list + 5 * 8, 0

    def launch(self, kernel: Any, grid: int, block: int, args: tuple[Any, ...]) -> None:
        """Launch a kernel; see `launch`."""
        kinds: list[Any] = [self._cuda.runtime.getDevice()]
        words: list[Any] = []
        self._flatten(args, words, kinds)
        key = tuple(kinds)
        loaded = kernel.loaded.get(key)
        if loaded is None:
            loaded = kernel.loaded[key] = self._load(kernel, args)
        function, layout, size = loaded
        try:
            layout.pack_into(self._memory, 5 * 8, size, *words)
        except struct.error as error:
            message = f"a number that the kernel {kernel.function.__name__} does not take: {error}"
            raise ValueError(message) from error
        stream = self._cuda.get_current_stream().ptr
        (status,) = self._driver.cuLaunchKernel(
            function, grid, 1, 1, block, 1, 1, 0, stream, 0, self._list
        )
        if status:
            self._refuse(status, kernel, f" with {grid} blocks of {block} threads")

    def _flatten(self, args: tuple[Any, ...], words: list[Any], kinds: list[Any]) -> None:
        """Append what the buffer takes of arguments, and their kinds: of equal ones, equal types.

        It runs for each argument of each launch: no array makes more than two objects.
        """
        for value in args:
            if isinstance(value, self._ndarray):
                size, item = value.size, value.itemsize
                words += size, item, value.data.ptr, size, item
                kinds += value.dtype, value.strides if size > 1 else (item,) * value.ndim
            elif isinstance(value, tuple):
                kinds += type(value), len(value)
                self._flatten(value, words, kinds)
            elif isinstance(value, Prepared):
                if value.words is None:
                    made: tuple[list[Any], list[Any]] = [], []
                    self._flatten((value.value,), *made)
                    value.kinds, value.words = made[1], made[0]  # words last, for other threads
                words += value.words
                kinds += value.kinds
            else:
                words.append(value)
                kinds.append(type(value))

    def _load(self, kernel: Any, args: tuple[Any, ...]) -> tuple[Any, struct.Struct, int]:
        """Return a kernel's function for arguments of such kinds, and how these are packed."""
        kinds = tuple(map(self._type_of, args))
        capability = divmod(int(self._cuda.Device().compute_capability), 10)
        code = kernel.machine_code(kinds, capability)
        load, find = self._driver.cuLibraryLoadData, self._driver.cuLibraryEnumerateKernels
        status, library = load(code, None, None, 0, None, None, 0)
        if not status:
            status, entries = find(1, library)
        if not status:
            status, function = self._driver.cuKernelGetFunction(entries[0])
        if status:
            self._refuse(status, kernel, "")
        layout = layout_of(kinds)
        return function, struct.Struct(f"@q{layout}"), struct.calcsize(f"@{layout}")

    def _type_of(self, value: Any) -> Any:
        """Return numba's type of an argument."""
        from numba.cuda import types
        from numba.cuda.np.numpy_support import from_dtype

        if isinstance(value, Prepared):
            return self._type_of(value.value)
        if isinstance(value, tuple):
            return types.BaseTuple.from_types(tuple(map(self._type_of, value)), type(value))
        if isinstance(value, self._ndarray):
            if value.ndim != 1 or (value.size > 1 and value.strides != (value.itemsize,)):
                raise TypeError(
                    f"a kernel's array has shape {value.shape} and strides {value.strides}: "
                    "expected one axis, contiguous"
                )
            return types.Array(from_dtype(value.dtype), 1, "C")
        if not isinstance(value, int | float | np.generic):
            raise TypeError(f"a kernel's argument {value!r}: expected arrays, numbers and tuples")
        return from_dtype(np.dtype(type(value)))

    def _refuse(self, status: Any, kernel: Any, how: str) -> None:
        """Raise what a status of the driver says."""
        text = self._driver.cuGetErrorString(status)[1]
        message = f"the kernel {kernel.function.__name__}{how}: {status.name} ({text.decode()})"
        is_memory = status == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        raise (CudaMemoryError if is_memory else CudaError)(message)


def layout_of(kinds: Iterable[Any]) -> str:
    """Return how arguments of numba's types lie in a buffer, in the language of `struct`."""
    from numba.cuda import types
    from numba.cuda.np.numpy_support import as_dtype

    texts = []
    for kind in kinds:
        if isinstance(kind, types.BaseTuple):
            texts.append(layout_of(kind))
        else:
            is_array = isinstance(kind, types.Array)
            texts.append("16x5q" if is_array else as_dtype(kind).char)
    return "".join(texts)
