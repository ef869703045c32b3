"""What every test shares: one kernel cache, no screen, hypothesis without deadlines.

The environment variables are set before numba, pygame, matplotlib or Jupyter are imported, and the
subprocesses that tests start inherit them. A test that needs a kernel cache of its own starts a
subprocess with its own NUMBA_CACHE_DIR.
"""

from __future__ import annotations

import collections
import ctypes
import os
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]

# Compiling is most of the suite's time: the machine code is kept from one run to the next.
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".cache" / "numba"))
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("MPLBACKEND", "agg")
# Jupyter warns, which is an error here, unless it is told which folders to use.
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")

# The first example compiles: no deadline. CI draws the same examples every time.
hypothesis.settings.register_profile("rlcpu", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("rlcpu")


#: Files of few tests that take a minute or more.
LONG = ("test_notebooks.py", "test_readme.py", "test_simulator.py", "test_ptx.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; skip the tests marked `gpu` where there is no CUDA driver."""
    _sort(items)
    for item in items:
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _sort(items: list[pytest.Item]) -> None:
    """Long files first, then those of most tests, as xdist does.

    No process is then left alone with minutes of work; and two processes are rarely at the same
    package at once, whose kernels both would compile.
    """
    sizes = collections.Counter(item.path for item in items)
    ranks = {name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: (ranks.get(item.path.name, 99), -sizes[item.path], item.path))


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return found and count.value > 0
