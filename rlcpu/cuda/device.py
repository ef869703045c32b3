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
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu import backends

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

        return getattr(cupy, name)


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
    if backends.device_of(x) == "cpu":
        host = np.asarray(x, dtype)
        with _named(host.shape, host.dtype):
            return np.array(host).view(SimulatedArray) if SIMULATED else xp.asarray(host)
    if SIMULATED:
        array = x if isinstance(x, SimulatedArray) else _of_interface(x)
    else:
        array = x if isinstance(x, xp.ndarray) else _of_interface(x)
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


def launch(kernel: Any, size: int, *args: Any, block: int = BLOCK, grid: int | None = None) -> None:
    """Run a kernel on CuPy's current stream; returns before it has finished.

    Args:
        kernel: see `rlcpu.cuda.compile.kernel`; it does nothing in threads of
            `cuda.grid(1) >= size`.
        size: threads wanted, one per item; nothing is launched for 0.
        *args: arrays on the device, numbers, and tuples of them. Python's numbers become int64 and
            float64.
        block: threads of a block; fewer where fewer do.
        grid: number of blocks, of exactly `block` threads each; None for as many as `size` needs.
    """
    if size <= 0:
        return
    if grid is None:
        block = min(block, -(-size // _WARP) * _WARP)
        grid = -(-size // block)
    stream = 0 if SIMULATED else xp.cuda.get_current_stream().ptr
    configured = _configured(kernel.dispatcher, grid, block, stream)
    values, kinds = zip(*map(_argument, args), strict=True)
    if SIMULATED:
        configured(*values)
    else:
        compiled = _compiled(kernel.dispatcher, kinds, values)
        compiled.launch(values, configured.griddim, configured.blockdim, configured.stream)


def _configure(dispatcher: Any, grid: int, block: int, stream: int) -> Any:
    """Return a dispatcher for so many blocks and threads; `stream` is CUDA's, 0 the default one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a small grid is small
        queue = cuda.external_stream(stream) if stream else 0
        return dispatcher[grid, block, queue]


#: The simulator's kernel is configured in place: another launch may have changed it meanwhile.
_configured = _configure if SIMULATED else functools.lru_cache(maxsize=1024)(_configure)


#: Compiled kernels, by the dispatcher and the kinds of its arguments.
_kernels: dict[tuple[Any, tuple[Any, ...]], Any] = {}


def _compiled(dispatcher: Any, kinds: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
    """Return the kernel that is compiled for arguments of such kinds.

    Numba would look at the types of all arguments at each launch, which takes a tenth of a
    millisecond where some are tuples.
    """
    key = dispatcher, kinds
    if key not in _kernels:
        _kernels[key] = dispatcher.compile(tuple(map(dispatcher.typeof_pyval, values)))
    return _kernels[key]


def _argument(value: Any) -> tuple[Any, Any]:
    """Return an argument as Numba's kernels take it, and its kind: equal ones have equal types."""
    if isinstance(value, tuple):
        items, kinds = zip(*map(_argument, value), strict=True) if value else ((), ())
        is_named = hasattr(value, "_fields")
        return type(value)(*items) if is_named else items, (type(value), *kinds)
    if SIMULATED:
        from numba.cuda.simulator.cudadrv import devicearray as simulated

        if not isinstance(value, np.ndarray):
            return value, None
        # Of a NumPy array it would make a new one, and copy it back: arguments could not overlap.
        return simulated.FakeWithinKernelCUDAArray(simulated.FakeCUDAArray(value)), None
    if isinstance(value, xp.ndarray):
        return _view(value.data.ptr, value.shape, value.strides, value.dtype.str)
    return value, type(value)


@functools.lru_cache(maxsize=4096)
def _view(
    pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str
) -> tuple[Any, Any]:
    """Return Numba's array over memory of CuPy's and its type.

    The array is a description, which does not keep the memory alive.

    To make one takes tens of microseconds, and a step of environments has twelve; from call to call
    they are mostly the same.
    """
    interface = {"data": (pointer, False), "shape": shape, "strides": strides, "typestr": dtype}
    array = cuda.from_cuda_array_interface({**interface, "version": 3}, sync=False)
    return array, array._numba_type_
