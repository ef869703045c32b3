"""Runs many Python programs, each in a process of its own that begins with rlcpu imported.

A new interpreter takes most of a second to import rlcpu, which is as long as what most programs of
the documentation do. Here they are forks of one process that has imported it and nothing else has
run in.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import sys
import warnings
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


def run(folder: Path, *argv: str, codes: tuple[int, ...] = (0,)) -> str:
    """Return the output of `python -W error ...`, which must succeed and warn of nothing.

    Args:
        folder: where it runs.
        argv: a script and its arguments, or "-m", a module and its arguments.
        codes: that it may exit with.
    """
    output = folder / ".output"
    process = _context.Process(target=_run, args=(folder, argv, output, dict(os.environ)))
    process.start()
    process.join()
    text = output.read_text("utf-8")
    assert process.exitcode in codes, f"{argv}\n{text}"
    return text


def _run(folder: Path, argv: tuple[str, ...], output: Path, variables: dict[str, str]) -> None:
    """Become the program, in a fork: its folder, arguments, variables and streams."""
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.path.insert(0, str(folder))
    warnings.resetwarnings()
    warnings.simplefilter("error")
    try:
        if argv[0] == "-m":
            sys.argv = list(argv[1:])
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(argv)
            runpy.run_path(str(folder / argv[0]), run_name="__main__")
    finally:
        atexit._run_exitfuncs()
