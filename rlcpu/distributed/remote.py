"""Calls to objects in other processes, their errors, and waiting for room in the object store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from rlcpu.distributed.ledger import Ledger

#: Seconds in which the object store has to have room again, and between two attempts.
PATIENCE, PAUSE = 120.0, 0.05


class LostError(Exception):
    """An actor died before it answered."""


class LostArgumentError(Exception):
    """An argument of a call was lost with the machine that held it; the call was not made."""


class StoreFullError(Exception):
    """The object store, and the disk behind it, have no room for an argument or a result.

    Where an argument has no room, nothing was called; else the call was made, and its result lost.
    """


class Remote(Protocol):
    """An object in another process; calls are answered in the order in which they were sent."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Send a call, and return what `result` and `is_ready` take.

        Of a method in its class's `num_results`, a list of them, one for each result.

        Raises:
            StoreFullError: the arguments have no room.
        """

    def result(self, call: Any) -> Any:
        """Wait for the answer.

        Raises:
            LostError: the process died before it answered.
            LostArgumentError, StoreFullError: see there.
        """

    def is_ready(self, call: Any) -> bool:
        """Tell whether `result` would not wait."""

    def revive(self) -> Any:
        """Wait until the process is back after its death, and return the state of its handshake."""


def wait_for_room(
    action: Callable[[], Any], ledger: Ledger, meanwhile: Callable[[], Any] = lambda: None
) -> Any:
    """Run a call once the object store has room for its results; each attempt is counted.

    Args:
        action: the call; its result is returned.
        ledger: its `waits` count failed attempts.
        meanwhile: called between attempts, to drop references to objects that are not needed.

    Raises:
        StoreFullError: there was no room for minutes.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return action()
        except StoreFullError:
            if time.monotonic() > end:
                raise
        ledger.waits += 1
        meanwhile()
        time.sleep(PAUSE)
