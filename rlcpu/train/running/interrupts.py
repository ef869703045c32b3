"""Ctrl-C in the middle of a round of learning: it waits until the round is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class WholeRounds:
    """A context in which `run` calls functions that Ctrl-C and SIGTERM do not interrupt.

    A round changes environments, buffer, networks and counters one after the other. A signal that
    comes meanwhile gets to its handler at the round's end, so that an interrupted agent has done
    whole rounds. A second signal does not wait, for a round may compile for seconds. In other
    threads than the main one there are no signals, and nothing is changed.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._waiting: tuple[int, FrameType | None] | None = None
        self._running = self._is_set = False

    def __enter__(self) -> WholeRounds:
        self._set_handlers()
        return self

    def __exit__(self, *error: object) -> None:
        self._restore_handlers()

    def _set_handlers(self) -> None:
        """Put `_handle` in the place of Python's handlers, which are remembered."""
        self._is_set = True
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._handle)

    def _restore_handlers(self) -> None:
        """Put the handlers back that were there before."""
        self._is_set = False
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self._handle:  # nobody has set another one meanwhile
                signal.signal(number, handler)

    def run(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function; a signal that has come meanwhile is handled then."""
        if not self._is_set:  # a callback has caught what a handler raised
            self._set_handlers()
        self._running = True
        try:
            function(*args)
        finally:
            self._running = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._handlers[waiting[0]](*waiting)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; call Python's handler for it afterwards, or for a second one."""
        if self._running and self._waiting is None:
            self._waiting = number, frame
            return
        self._waiting = None
        try:
            self._handlers[number](number, frame)
        except BaseException:
            # It may have come in front of `with`, or in the first step of `__exit__`.
            self._restore_handlers()
            raise
