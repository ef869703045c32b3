"""Locks of buffers and trees, against other threads, forks, and interrupts such as Ctrl-C."""

from __future__ import annotations

import copy
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_count = itertools.count()
_locks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_held: list[Any] = []
#: Calls after which `complete` gives up: Ctrl-C that is held down interrupts 30 times a second.
_ATTEMPTS = range(1000)


class Locked:
    """Base of classes whose methods hold a lock."""

    _lock: Any
    order: int  # of locks of which several are taken: lower numbers first

    def _make_lock(self) -> None:
        self.order, self._lock = next(_count), threading.RLock()
        _locks[self.order] = self._lock

    def _copy_attributes_without(self, *left_out: str) -> dict[str, Any]:
        """Return a copy of all attributes but for the lock and those that are left out."""
        left_out = ("_lock", "order", *left_out)
        return copy.deepcopy(
            {name: vars(self)[name] for name in vars(self) if name not in left_out}
        )

    def locked(self) -> Any:
        """Return the lock as a context manager.

        RuntimeError if a handler finds its own thread in a call.
        """
        # The lock lets its thread in again. Looking first is safe: a handler that runs between
        # this and the lock's own code has ended by then. A lock in Python could be interrupted
        # when it is taken and not yet released by anything.
        if self._lock._is_owned():
            raise RuntimeError(
                f"this {type(self).__name__} is in the middle of another call of the same thread, "
                "as a signal's handler or a finalizer may find it: call it when that has returned"
            )
        return self._lock


def complete(work: Callable[..., None], *args: Any) -> None:
    """Call `work(*args)`; where it is interrupted, call it again before the exception goes on.

    Ctrl-C and the handlers of signals raise anywhere between two steps of Python, and would leave
    half of the work done. `work` must have the same effect however often it was begun before; where
    it raises MemoryError, it has none.
    """
    try:
        work(*args)
    except MemoryError:
        raise
    except BaseException:
        # Python looks for signals at calls and where loops go back: none of them is before `try`.
        for _ in _ATTEMPTS:
            try:
                work(*args)
                break
            except BaseException:
                continue
        raise


def _hold_all() -> None:
    """Wait until no thread is in a call, by all locks: a forked child would find it half done."""
    global _held
    held = []
    for each in sorted(_locks.valuerefs(), key=lambda each: each.key):  # as calls take them
        if (lock := each()) is not None:
            lock.acquire()
            held.append(lock)
    _held = held


def _release_all() -> None:
    while _held:
        _held.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
