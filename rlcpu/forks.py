"""Forks in the middle of what other threads do, which do not exist in the child."""

from __future__ import annotations

import os
from typing import Any


def waited_for(lock: Any) -> Any:
    """Return the lock itself, for which forks wait from now on.

    A child of a process whose other thread holds a lock would wait for it for ever. Of several
    locks, a fork takes the one that was registered last first, and so has to do who takes several.
    """
    if hasattr(os, "register_at_fork"):
        release = lock.release
        os.register_at_fork(before=lock.acquire, after_in_parent=release, after_in_child=release)
    return lock
