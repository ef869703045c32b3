"""Threading layer, thread count, and the choice between serial and parallel kernels.

Numba has three threading layers. GNU OpenMP, its default on Linux, stalls 4-12 ms when another
process is busy, and aborts a forked child. Workqueue aborts the process when two Python threads
call kernels at once. TBB does neither, so it is loaded before the first parallel call; but a child
that is forked after several threads have used it may wait for ever for a thread that it lacks, and
with one CPU, a process that has forked waits for ever as it ends: there it is not started.
The serial kernel takes the place of the parallel one where that could abort or wait: in a forked
child under OpenMP, in such a child under TBB, and while another one runs under workqueue. A user's
own `numba.njit(parallel=True)` functions are not guarded: under workqueue they may run neither at
the same time as each other nor as a kernel of this package.

Nothing guards a fork at the moment when a thread of Python's ends: that holds a lock of libgcc's
unwinder (seen with Python 3.11), for which the child waits for ever as it loads its first kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import platform
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

from rlcpu.kernels.compiler import hooks
from rlcpu.kernels.compiler.cache import cache_folder
from rlcpu.kernels.compiler.compile import kernel

_LIBRARIES = {
    "linux": "lib/libtbb.so.12",
    "darwin": "lib/libtbb.12.dylib",
    "win32": "Library/bin/tbb12.dll",
}
_one_at_a_time = threading.Lock()
#: Identifiers of the Python threads that have started the threading layer or a parallel kernel.
_callers: set[int] = set()
#: Threading layers that no longer work in this process, because it was forked.
_lost_in_fork: frozenset[str] = frozenset()


class UsableCpus(NamedTuple):
    """Number of CPUs that this process may use."""

    number: int
    limit: str  # name of what limits them; "" for nothing


class Kernels(NamedTuple):
    """One driver, compiled twice."""

    serial: Any  # runs on the calling thread
    parallel: Any  # runs on all of numba's threads
    grain: int  # units of work (see `launch`) from which `parallel` is faster


def for_cores(driver: Callable[..., Any], grain: int, **options: Any) -> Kernels:
    """Compile a driver, whose loop is a `prange`, for one core and for all; see `kernel`."""
    return Kernels(kernel(driver, **options), kernel(driver, parallel=True, **options), grain)


def launcher(kernels: Kernels, work: int, num_threads: int | None) -> Callable[..., Any]:
    """Return a function of a driver's arguments, for many calls with the same work: `launch`."""
    if work < kernels.grain or num_threads == 1:
        return kernels.serial
    return functools.partial(launch, kernels, work, num_threads)


def launch(kernels: Kernels, work: int, num_threads: int | None, *args: Any) -> Any:
    """Call a driver and return its result, the same from the serial and the parallel kernel.

    The serial one is called below the grain, and where the parallel one may abort the process.

    Args:
        kernels: the driver.
        work: units of work of this call, as `Kernels.grain` counts them.
        num_threads: at most so many; None for all.
        *args: arguments of the driver.
    """
    if work < kernels.grain or num_threads == 1 or _limit() == 1:
        return kernels.serial(*args)
    layer = threading_layer()
    if layer in _lost_in_fork:
        return kernels.serial(*args)
    _callers.add(threading.get_ident())
    # All threads are wanted, and numba has them: the rest, which takes 4 us, would change nothing.
    if num_threads is None and layer == "tbb" and _usable_cpus().number >= _limit():
        return kernels.parallel(*args)
    count, before = num_threads or default_num_threads(), numba.get_num_threads()
    lock = _one_at_a_time if layer == "workqueue" else None
    if count == 1 or (lock and not lock.acquire(blocking=False)):  # another kernel runs
        return kernels.serial(*args)
    try:
        numba.set_num_threads(count)
        return kernels.parallel(*args)
    finally:
        numba.set_num_threads(before)
        if lock:
            lock.release()


def check_num_threads(num_threads: int | None) -> int | None:
    """Return the argument itself, if numba can run that many threads.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is below 1 or above numba's limit.
    """
    limit = _limit()
    if num_threads is None:
        return None
    if not isinstance(num_threads, int | np.integer) or isinstance(num_threads, bool):
        raise TypeError(f"num_threads={num_threads!r}: expected an int or None")
    if not 1 <= num_threads <= limit:
        raise ValueError(
            f"num_threads={num_threads}: expected 1 to {limit} (NUMBA_NUM_THREADS sets the limit)"
        )
    return int(num_threads)


# ---------------------------------------------------------------- how many threads


def _limit() -> int:
    """Return the number of threads that numba may start."""
    return int(numba.config.NUMBA_NUM_THREADS)


def default_num_threads() -> int:
    """Return the threads of a parallel kernel where no number is given.

    What NUMBA_NUM_THREADS or `numba.set_num_threads` says; else one for each CPU that this process
    may use, also in a container whose share of the CPUs is smaller than their number.
    """
    if _limit() == 1:
        return 1  # to ask numba starts its layer
    set_by_user = int(numba.get_num_threads())
    return set_by_user if set_by_user < _limit() else min(_limit(), _usable_cpus().number)


@functools.cache
def _usable_cpus() -> UsableCpus:
    """Count the usable CPUs: as many as the user says who has set NUMBA_NUM_THREADS."""
    default = hooks.setting("NUMBA_DEFAULT_NUM_THREADS")
    is_set = "NUMBA_NUM_THREADS" in os.environ or _limit() != default
    return UsableCpus(_limit(), "NUMBA_NUM_THREADS") if is_set else usable_cpus()


def usable_cpus(root: Path = Path("/")) -> UsableCpus:
    """Count the CPUs that this process may use; numba counts those of the affinity mask alone.

    Args:
        root: folder in the place of `/`, for tests.
    """
    count = getattr(os, "process_cpu_count", os.cpu_count)() or 1  # heeds -X cpu_count
    if hasattr(os, "sched_getaffinity"):
        count = min(count, len(os.sched_getaffinity(0)))
    limits = [UsableCpus(count, "affinity" if count < (os.cpu_count() or 1) else "")]
    quota = _cgroup_quota(root)
    if quota is not None:
        limits.append(UsableCpus(max(1, math.ceil(quota)), "cgroup limit"))
    slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if slurm.isdecimal() and int(slurm) > 0:
        limits.append(UsableCpus(int(slurm), "SLURM_CPUS_PER_TASK"))
    return min(limits, key=lambda cpus: cpus.number)


def _cgroup_quota(root: Path) -> float | None:
    """Return the least quota of CPUs of this process's control group and of those above it.

    None without one. `root` stands for `/`.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:  # "0::/a/b" of version 2, "4:cpu,cpuacct:/a/b" of version 1
        _, controllers, path = line.split(":", 2)
        is_v2 = not controllers
        if not is_v2 and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("" if is_v2 else "cpu")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        # A container may see its own group at the top, under whatever path the host knows it.
        for depth in range(len(parts) + 1):
            quotas.append(_quota_of(top.joinpath(*parts[:depth]), is_v2))
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_of(group: Path, is_v2: bool) -> float | None:
    """Return the CPUs that one control group may use; None where there is no limit."""
    try:
        if is_v2:
            quota, period = (group / "cpu.max").read_text().split()
        else:
            names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            quota, period = ((group / name).read_text().strip() for name in names)
        return float(quota) / float(period) if float(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # not there, or "max"
        return None


# ---------------------------------------------------------------- threading layer


@functools.cache
def threading_layer() -> str:
    """Return numba's threading layer, "tbb", "omp" or "workqueue", which is started if need be."""
    _load_tbb()
    _callers.add(threading.get_ident())
    numba.get_num_threads()  # starts the layer
    return str(numba.threading_layer())


def _load_tbb() -> None:
    """Load the library of TBB that pip installed, so that numba finds it."""
    # pip installs TBB outside of the loader's path: numba finds it only once it is in the process.
    # <prefix>/lib/python3.x/site-packages/numba/__init__.py is five below the prefix, if there are
    # that many: `pip install --target` may be less deep.
    prefix_of_numba = Path(numba.__file__).parents[4:5]
    for root in dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix), *prefix_of_numba)):
        with contextlib.suppress(OSError):
            library = root / _LIBRARIES.get(sys.platform, "")
            ctypes.CDLL(str(library), mode=getattr(ctypes, "RTLD_GLOBAL", 0))
            return


def _describe_layer() -> str:
    """Return the threading layer, and what it lacks."""
    lacks = {"omp": "serial after a fork", "workqueue": "one parallel kernel at a time"}.get(
        threading_layer()
    )
    if lacks is None:
        return threading_layer()
    tbb = "pip" if platform.machine() in ("x86_64", "AMD64") else "conda"
    return f"{threading_layer()} ({lacks}; `{tbb} install tbb` for a better one)"


def _describe_threads() -> str:
    """Return the number of threads of all CPUs, and what limits it."""
    default, cpus, reason = default_num_threads(), os.cpu_count() or 1, _usable_cpus().limit
    if int(numba.get_num_threads()) < _limit():
        reason = "numba.set_num_threads"
    return f"{default} of {max(cpus, default)}" + (f" ({reason})" if reason else "")


def is_forked() -> bool:
    """Tell whether this process is the child of a fork that happened after rlcpu was imported."""
    return bool(_lost_in_fork)


def _mark_forked() -> None:
    """Note in a forked child which threading layers are lost."""
    global _lost_in_fork, _one_at_a_time
    _lost_in_fork |= {"omp"}
    if _callers - {threading.get_ident()}:
        _lost_in_fork |= {"tbb"}
    _one_at_a_time = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


def _describe_vectors() -> str:
    """Return the width of kernels' vectors, and the widest instructions for them."""
    from rlcpu.kernels.machine.vectors import VECTOR_BYTES, cpu_features

    features = cpu_features().split(",")
    known = {"+avx512f": "AVX-512", "+avx2": "AVX2", "+sve": "NEON, SVE"}  # from the widest on
    names = [name for feature, name in known.items() if feature in features]
    names.append("NEON" if platform.machine() in ("arm64", "aarch64") else "SSE")
    return f"{VECTOR_BYTES * 8} bits ({names[0]})"


def show_config() -> dict[str, str]:
    """Return versions and settings that decide how fast kernels run, by name."""
    import gymnasium
    import llvmlite.binding

    import rlcpu

    return {
        "rlcpu": rlcpu.__version__,
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
        "threading layer": _describe_layer(),
        "threads": _describe_threads(),
        "cpu": hooks.setting("CPU_NAME") or llvmlite.binding.get_host_cpu_name(),
        "vector width": _describe_vectors(),
        "cache folder": str(cache_folder() or "none: nothing can be written"),
        "gpu": "found" if any(Path("/dev").glob("nvidia[0-9]*")) else "none found",
    }
