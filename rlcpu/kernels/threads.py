"""Threading layer, thread count, and the choice between serial and parallel kernels.

GNU OpenMP, numba's default on Linux, stalls 4-12 ms when another process is busy and aborts a
forked child; workqueue aborts the process when two Python threads call kernels at once. TBB does
neither, so it is loaded before the first parallel call. Where it is missing, parallel kernels run
only where the layer that numba chose cannot abort.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numba as _numba
import numpy as np

from rlcpu.kernels.cache import cache_folder

numba: Any = _numba  # Any: some releases of numba have types, for a part of what is used here

_LIBRARIES = {
    "linux": "lib/libtbb.so.12",
    "darwin": "lib/libtbb.12.dylib",
    "win32": "Library/bin/tbb12.dll",
}
_one_at_a_time = threading.Lock()
_forked = False


class Kernels(NamedTuple):
    """One driver, compiled twice.

    Attributes:
        serial: runs on the calling thread.
        parallel: runs on all of numba's threads.
        grain: units of work (see `launch`) from which `parallel` is faster.
    """

    serial: Any
    parallel: Any
    grain: int


def launch(kernels: Kernels, work: int, num_threads: int | None, *args: Any) -> Any:
    """Call a driver, serial below its grain and parallel above; the results are the same."""
    if work < kernels.grain or num_threads == 1:
        return kernels.serial(*args)
    layer = threading_layer()
    if num_threads is None and layer == "tbb":
        return kernels.parallel(*args)
    return _launch_guarded(kernels, layer, num_threads, args)


def _launch_guarded(
    kernels: Kernels, layer: str, num_threads: int | None, args: tuple[Any, ...]
) -> Any:
    """Call the parallel kernel with a thread count, or the serial one where parallel may abort."""
    guard = layer == "workqueue"
    if (layer == "omp" and _forked) or (guard and not _one_at_a_time.acquire(blocking=False)):
        return kernels.serial(*args)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(num_threads or before)
        return kernels.parallel(*args)
    finally:
        numba.set_num_threads(before)
        if guard:
            _one_at_a_time.release()


def check_num_threads(num_threads: int | None) -> int | None:
    """The argument itself, if numba can run that many threads.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is below 1 or above numba's limit.
    """
    limit = numba.config.NUMBA_NUM_THREADS
    if num_threads is None:
        return None
    if not isinstance(num_threads, int | np.integer) or isinstance(num_threads, bool):
        raise TypeError(f"num_threads={num_threads!r}: expected an int or None")
    if not 1 <= num_threads <= limit:
        raise ValueError(
            f"num_threads={num_threads}: expected 1 to {limit} (NUMBA_NUM_THREADS sets the limit)"
        )
    return int(num_threads)


@functools.cache
def threading_layer() -> str:
    """Name of numba's threading layer ("tbb", "omp" or "workqueue"), started if need be."""
    _load_tbb()
    numba.get_num_threads()
    return str(numba.threading_layer())


def _load_tbb() -> None:
    # pip installs TBB outside of the loader's path: numba finds it only once it is in the process.
    roots = (Path(sys.prefix), Path(sys.base_prefix), Path(numba.__file__).parents[4])
    for root in roots:
        try:
            mode = getattr(ctypes, "RTLD_GLOBAL", 0)
            ctypes.CDLL(str(root / _LIBRARIES.get(sys.platform, "")), mode=mode)
            return
        except OSError:
            continue


def _mark_forked() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


def show_config() -> dict[str, str]:
    """Versions and settings that decide how fast kernels run, by name."""
    import gymnasium
    import llvmlite.binding

    import rlcpu

    cpu = llvmlite.binding.get_host_cpu_features()
    width = 512 if cpu.get("avx512f") else 256 if cpu.get("avx2") else 128
    return {
        "rlcpu": rlcpu.__version__,
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
        "threading layer": threading_layer(),
        "threads": f"{numba.get_num_threads()} of {numba.config.NUMBA_NUM_THREADS}",
        "cpu": llvmlite.binding.get_host_cpu_name(),
        "vector width": f"{width} bits",
        "cache folder": str(cache_folder() or "none: nothing can be written"),
        "gpu": "found" if any(Path("/dev").glob("nvidia[0-9]*")) else "none found",
    }
