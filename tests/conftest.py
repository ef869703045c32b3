"""What every test shares: one kernel cache, no screen, hypothesis without deadlines.

The environment variables are set before numba, pygame, matplotlib or Jupyter are imported, and the
subprocesses that tests start inherit them. A test that needs a kernel cache of its own starts a
subprocess with its own NUMBA_CACHE_DIR.
"""

from __future__ import annotations

import collections
import ctypes
import gc
import os
import signal
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
# To colour messages, where colorama is installed, takes 1 % of the time of numba's compiler.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
# Jupyter warns, which is an error here, unless it is told which folders to use.
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")

# A shell ignores Ctrl-C in what it runs behind it, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The first example compiles: no deadline. CI draws the same examples every time.
hypothesis.settings.register_profile("rlcpu", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("rlcpu")


#: A room is the tests of one folder, or of files in none whose names begin with one word
#: (`test_cli.py` and `test_cli_process.py`): they compile the same kernels. Those that take longest
#: come first, so that no process is left alone with minutes of work; then those of most tests.
LONGEST = (
    "envs",
    "distributed",
    "pages",
    "more envs",
    "train",
    "scan",
    "kernels",
    "mujoco",
    "simulator",
    "replay",
    "benches",
    "cuda",
    "adapters",
)
#: Rooms that one process would be left with at the end, and the first file of their second half,
#: which is a room of its own: kernels that both need are compiled once, and then loaded.
HALVES = {"envs": "test_n"}
#: Folders and words that share a room.
SHARED = {"notebooks": "pages", "readme": "pages", "nn": "train"}


def _room_of(nodeid: str) -> str:
    """Name of a test's room."""
    path = nodeid.partition("::")[0]
    if path == "tests/cuda/test_simulator.py":
        return "simulator"
    if nodeid.endswith("[distributed]"):  # a page
        return "distributed"  # whose tests look for what a cluster leaves behind
    name = path.removeprefix("tests/").partition("/")[0]
    word = name.removeprefix("test_").removesuffix(".py").partition("_")[0]
    room, file = SHARED.get(word, word), path.rpartition("/")[2]
    return f"more {room}" if file >= HALVES.get(room, "~") else room


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto` is a process more than there are CPUs: clusters that are killed mostly wait."""
    from rlcpu.kernels.machine.threads import usable_cpus

    return usable_cpus().number + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile` with rooms in the place of files.

    A room has one process: two of them would compile what kernels share twice.
    """
    from xdist.scheduler import LoadFileScheduling

    class Rooms(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _room_of(nodeid)

    return Rooms(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Count what was imported as old: the garbage collector looks at that no more.

    `gc.freeze` alone would keep `rlcpu.kernels.compiler.announce` from doing the same after each
    kernel, and kernels would compile for a quarter longer. To look at all that some hundred kernels
    leave behind takes ten seconds, each time.
    """
    gc.collect()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker end without a last look at what kernels left, of which nobody would hear."""
    if hasattr(session.config, "workerinput"):
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the rooms; skip the tests marked `gpu` where there is no CUDA driver."""
    sizes = collections.Counter(_room_of(item.nodeid) for item in items)
    order = {room: place for place, room in enumerate(LONGEST)}

    def place(item: pytest.Item) -> tuple[Any, ...]:
        room = _room_of(item.nodeid)
        waits = item.get_closest_marker("soak") is not None  # for minutes, while others compute
        return order.get(room, len(order)), -sizes[room], room, not waits, item.path

    items.sort(key=place)
    for item in items:
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


#: Rooms whose tests run on all CPUs where they ask for no number of threads.
PARALLEL = ("kernels", "scan", "replay", "cuda", "simulator", "benches")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a test, and the processes that it starts, one CPU or all.

    Every driver is compiled twice, serial and parallel. With one CPU the serial one is enough, and
    others run on the second CPU already. What threads are the question of asks for their number, or
    is marked `parallel`.
    """
    from rlcpu.kernels.machine import threads

    if _room_of(item.nodeid) in PARALLEL or item.get_closest_marker("parallel"):
        os.environ.pop("SLURM_CPUS_PER_TASK", None)
    else:
        os.environ["SLURM_CPUS_PER_TASK"] = "1"
    threads._usable_cpus.cache_clear()


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return found and count.value > 0
