"""PPO's update is compiled by a second process, while this one compiles what runs before it.

Numba compiles one kernel at a time in a process, and the update takes half of the time of all that
a first training compiles. It does not depend on the environment: the second process runs nothing of
the user's. It leaves machine code in the cache; whatever goes wrong there, this process finds
nothing and compiles the update itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from rlcpu.envs.networks import MLP
from rlcpu.kernels import threads
from rlcpu.kernels.hooks import setting
from rlcpu.train.config import PPOConfig
from rlcpu.train.objective import Updater

_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from rlcpu.train.precompile import main; main()"


@contextlib.contextmanager
def precompiled(updater: Updater) -> Iterator[None]:
    """Have the updater's kernel compiled elsewhere in a block, where that helps.

    The updater's first update compiles the same pieces from the last one on, and waits for the one
    that the other process is at. That ends with the block, or with this process, however it ends.
    """
    process = _start(updater) if _is_worth_it(updater) else None
    if process is None:
        yield
        return
    updater.awaited = process
    try:
        yield
    finally:
        updater.awaited = None
        process.kill()
        with process:  # waits, and closes its input
            pass


def _is_worth_it(updater: Updater) -> bool:
    """Tell whether there is a core, a cache and a Python of its own for a second process."""
    main_process = multiprocessing.parent_process() is None and not threads.is_forked()
    python = sys.executable and not getattr(sys, "frozen", False) and "ipykernel" not in sys.modules
    return main_process and bool(python) and updater.num_workers > 1 and updater.is_uncompiled()


def _start(updater: Updater) -> subprocess.Popen[bytes] | None:
    """Return the second process; its input ends when this process does."""
    kind = updater.kind
    folder: str = setting("CACHE_DIR")
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, kind, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
        )
    except OSError:
        return None


def main() -> None:
    """Return the second process: compile the update of an agent of the given kind of actions."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kind = sys.argv[1]
    choices = tuple(map(int, kind.split())) if kind[0].isdigit() else ()
    actions: Space[Any] = Discrete(2)
    if kind == "continuous":
        actions = Box(-1.0, 1.0, (1,), np.float32)
    elif choices:
        actions = MultiDiscrete(list(choices))
    policy = MLP(Box(-1.0, 1.0, (1,), np.float32), actions, hidden=(1,))
    Updater(policy, PPOConfig(), masked=kind == "masked", choices=choices).compile()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)
