"""Environment variables of numba with which nothing here runs, refused before numba reads them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_EXIT_BAD_SETTINGS = 2


def check_settings() -> None:
    """Refuse values of numba's environment variables that it would fail over, or ignore.

    Raises:
        ValueError: NUMBA_NUM_THREADS is no number of threads.
        ImportError: NUMBA_DISABLE_JIT is set.
        SystemExit: either, in a process of the `rlcpu` command, which prints the sentence alone.
    """
    try:
        _check_threads()
        _check_compiler()
    except (ValueError, ImportError) as error:
        if not _is_command():
            raise
        # The command's own module cannot: this package is imported before it.
        print(f"rlcpu: error: {error}", file=sys.stderr)
        sys.exit(_EXIT_BAD_SETTINGS)


def _check_threads() -> None:
    threads = os.environ.get("NUMBA_NUM_THREADS", "1")
    if not threads.strip().isdecimal() or int(threads) < 1:
        raise ValueError(f"NUMBA_NUM_THREADS={threads!r}: expected a whole number, at least 1")


def _check_compiler() -> None:
    disabled = os.environ.get("NUMBA_DISABLE_JIT", "0").strip()
    if disabled.isdecimal() and int(disabled):
        raise ImportError(
            f"NUMBA_DISABLE_JIT={disabled!r}: nothing of rlcpu runs without numba's compiler; "
            "unset the variable"
        )


def _is_command() -> bool:
    """Tell whether this process runs `rlcpu` or `python -m rlcpu`."""
    script = getattr(sys, "argv", None) or [""]
    if script[0] != "-m":
        return Path(script[0]).stem == "rlcpu"
    # Python has not yet found the module that it shall run: its arguments follow the name of it.
    return sys.orig_argv[-len(script)].removeprefix("-m") == "rlcpu"


check_settings()
