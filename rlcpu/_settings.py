"""Environment variables of numba with which nothing here runs, refused before numba reads them."""

from __future__ import annotations

import os


def check_settings() -> None:
    """Refuse values of numba's environment variables that it would fail over, or ignore.

    Raises:
        ValueError: NUMBA_NUM_THREADS is no number of threads.
        ImportError: NUMBA_DISABLE_JIT is set.
    """
    threads = os.environ.get("NUMBA_NUM_THREADS", "1")
    if not threads.strip().isdecimal() or int(threads) < 1:
        raise ValueError(f"NUMBA_NUM_THREADS={threads!r}: expected a whole number, at least 1")
    disabled = os.environ.get("NUMBA_DISABLE_JIT", "0").strip()
    if disabled.isdecimal() and int(disabled):
        raise ImportError(
            f"NUMBA_DISABLE_JIT={disabled!r}: nothing of rlcpu runs without numba's compiler; "
            "unset the variable"
        )


check_settings()
