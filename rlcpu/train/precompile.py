"""An agent's update is compiled by a second process, while this one compiles what runs before it.

Numba compiles one kernel at a time in a process, and the update takes half of the time of all that
a first training compiles. It does not depend on the environment: the second process runs nothing of
the user's. It leaves machine code in the cache; whatever goes wrong there, this process finds
nothing and compiles the update itself.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from rlcpu.kernels import threads
from rlcpu.kernels.hooks import setting
from rlcpu.nn.learner import Learner

_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from rlcpu.train.precompile import main; main()"


@contextlib.contextmanager
def precompiled(learner: Learner, description: str) -> Iterator[None]:
    """Have a learner's kernel compiled elsewhere in a block, where that helps.

    The learner's first update compiles the same pieces from the last one on, and waits for the one
    that the other process is at. That ends with the block, or with this process, however it ends.

    Args:
        learner: of an agent.
        description: of the agent, see `describe`.
    """
    process = _start(description) if _is_worth_it(learner) else None
    if process is None:
        yield
        return
    learner.awaited = process
    try:
        yield
    finally:
        learner.awaited = None
        process.kill()
        with process:  # waits, and closes its input
            pass


def describe(agent: Any, kind: str) -> str:
    """Return what an agent's learner depends on: the library's class of it, and its settings.

    Functions among these are left out, and so are layers that another setting makes.

    Args:
        agent: to be described.
        kind: of its actions, as `learner_of` of its class takes it.
    """
    made: Any = next(each for each in type(agent).__mro__ if each.__module__.startswith("rlcpu."))
    settings = {name: getattr(agent.config, name) for name in made.Config.names()}
    functions = [name for name, value in settings.items() if callable(value)]
    settings |= {**dict.fromkeys(functions, "constant"), "network": "mlp"}
    return json.dumps([made.__module__, made.__name__, settings, kind])


def _is_worth_it(learner: Learner) -> bool:
    """Tell whether there is a core, a cache and a Python of its own for a second process."""
    main_process = multiprocessing.parent_process() is None and not threads.is_forked()
    python = sys.executable and not getattr(sys, "frozen", False) and "ipykernel" not in sys.modules
    return main_process and bool(python) and learner.num_workers > 1 and learner.is_uncompiled()


def _start(description: str) -> subprocess.Popen[bytes] | None:
    """Return the second process; its input ends when this process does."""
    folder: str = setting("CACHE_DIR")
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, description, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
        )
    except OSError:
        return None


def main() -> None:
    """Run the second process: compile the update of an agent that `describe` has described."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    module, name, settings, kind = json.loads(sys.argv[1])
    made = getattr(importlib.import_module(module), name)
    made.learner_of(made.Config(**settings), kind).compile()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)
