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
from typing import Any

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


#: Groups of files that compile the same kernels, by what their paths begin with. Those that take
#: longest come first: no process is then left alone with minutes of work.
ROOMS = {
    "tests/test_notebooks.py": "pages",
    "tests/test_readme.py": "pages",
    "tests/cuda/test_simulator.py": "simulator",
    "tests/envs/": "envs",
    "tests/scan/": "scan",
    "tests/train/": "train",
    "tests/nn/": "train",
    "tests/cuda/": "cuda",
    "tests/kernels/": "kernels",
    "tests/replay/": "replay",
}


def _room(nodeid: str) -> tuple[int, str]:
    """Place in the order and name of a test's room; files of no room come last, each alone."""
    for place, (start, name) in enumerate(ROOMS.items()):
        if nodeid.startswith(start):
            return place, name
    return len(ROOMS), nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile` with rooms in the place of files.

    A room has one process: two of them would compile each kernel twice.
    """
    from xdist.scheduler import LoadFileScheduling

    class Rooms(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _room(nodeid)[1]

    return Rooms(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the rooms; skip the tests marked `gpu` where there is no CUDA driver."""
    sizes = collections.Counter(item.path for item in items)
    items.sort(key=lambda item: (_room(item.nodeid)[0], -sizes[item.path], item.path))
    for item in items:
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return found and count.value > 0
