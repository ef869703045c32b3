"""Compiling an agent's update in a second process, while this one compiles what runs before it.

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

from rlcpu.kernels.compiler.hooks import setting
from rlcpu.kernels.machine import threads
from rlcpu.nn.learning.learner import Learner

_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from rlcpu.train.running.precompile import main; main()"
)


@contextlib.contextmanager
def precompiled(learner: Learner, description: str) -> Iterator[None]:
    """Let a second process compile a learner's kernel during a block, if that is faster.

    The learner's first update compiles the same pieces in the opposite order, and waits for the one
    that the second process is compiling. That process ends with the block, or with this process.

    Args:
        learner: of an agent.
        description: of the agent, see `describe`.
    """
    process = _start(description) if _is_worth_it(learner) else None
    if process is None:
        yield
        return
    learner.compiling_process = process
    try:
        yield
    finally:
        learner.compiling_process = None
        process.kill()
        with process:  # waits, and closes its input
            pass


def describe(agent: Any, kind: str) -> str:
    """Return what an agent's learner depends on, as JSON: its class of this library, and settings.

    Functions among these become "constant", and the network "mlp": neither changes the update.
    `kind` is that of its actions, as `learner_of` of its class takes it.
    """
    ours: Any = next(each for each in type(agent).__mro__ if each.__module__.startswith("rlcpu."))
    settings = {name: getattr(agent.config, name) for name in ours.Config.names()}
    functions = [name for name, value in settings.items() if callable(value)]
    settings |= {**dict.fromkeys(functions, "constant"), "network": "mlp"}
    return json.dumps([ours.__module__, ours.__name__, settings, kind])


def _is_worth_it(learner: Learner) -> bool:
    """Tell whether there is a core, a cache and a Python of its own for a second process."""
    is_main_process = multiprocessing.parent_process() is None and not threads.is_forked()
    is_frozen = getattr(sys, "frozen", False)
    can_start = bool(sys.executable) and not is_frozen and "ipykernel" not in sys.modules
    return is_main_process and can_start and learner.num_workers > 1 and learner.is_uncompiled()


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
    agent_class = getattr(importlib.import_module(module), name)
    agent_class.learner_of(agent_class.Config(**settings), kind).compile()


def _end_with_parent() -> None:
    """End this process when its input ends, as the parent has ended then."""
    sys.stdin.read()
    os._exit(1)
