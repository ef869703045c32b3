"""Shards in this process that die when a test says so, in the place of Ray's actors."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rlcpu.distributed.remote import LostArgumentError, LostError, StoreFullError


class Call:
    """A call that was sent: not answered yet, answered, or lost."""

    def __init__(self, method: str, arguments: tuple[Any, ...]) -> None:
        self.method, self.arguments = method, arguments
        self.answer: Any = None
        self.state = "sent"


class Part(NamedTuple):
    """One result of a call that has several."""

    call: Call
    index: int

    @property
    def state(self) -> str:
        return self.call.state


class Local:
    """An object whose calls wait in a line until `work`, or until an answer is asked for.

    Attributes:
        no_room: arguments, and results but the first of several, that find no room from now on.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.object = make, make()
        self.line: deque[Call] = deque()
        self.unread: list[Call] = []
        self.blocks_lost: list[Any] = []
        self.no_room = 0

    def call(self, method: str, *arguments: Any) -> Any:
        self._take_room()
        given = [a.call.answer[a.index] if isinstance(a, Part) else a for a in arguments]
        call = Call(method, tuple(given))
        self.line.append(call)
        count = getattr(type(self.object), "num_results", {}).get(method)
        return call if count is None else [Part(call, index) for index in range(count)]

    def _take_room(self) -> None:
        if self.no_room:
            self.no_room -= 1
            raise StoreFullError("full")

    def work(self, count: int | None = None) -> None:
        """Do what waits, or the first calls of it."""
        for _ in range(len(self.line) if count is None else min(count, len(self.line))):
            call = self.line.popleft()
            if any(each is block for each in call.arguments for block in self.blocks_lost):
                call.state = "argument lost"
                continue
            call.answer = getattr(self.object, call.method)(*call.arguments)
            call.state = "answered"
            self.unread.append(call)

    def die(self) -> None:
        """Lose the object, what waits, and all answers that nobody has read; then come back."""
        for call in (*self.line, *self.unread):
            call.state = "lost"
        self.line.clear()
        self.unread.clear()
        self.object = self.make()

    def lose_block(self) -> bool:
        """Lose the first block on the way, if there is one."""
        waiting = [call.arguments[2] for call in self.line if call.method == "add"]
        self.blocks_lost.extend(waiting[:1])
        return bool(waiting)

    def result(self, call: Any) -> Any:
        if isinstance(call, Part):
            answer = self.result(call.call)
            if call.index:
                self._take_room()
            return answer[call.index]
        while call.state == "sent":
            self.work(1)
        if call.state == "lost":
            raise LostError("died")
        if call.state == "argument lost":
            raise LostArgumentError("its machine died")
        if call in self.unread:
            self.unread.remove(call)
        return call.answer

    def is_ready(self, call: Any) -> bool:
        return call.state != "sent"

    def revive(self) -> Any:
        return self.object.handshake()[1]


class Here:
    """Actors in this process, in the place of a cluster; numbers in `dying` say who dies next."""

    def __init__(self, num_actors: int, address: str | None) -> None:
        self.actors: list[Local] = []
        self.dying: list[int] = []

    def start(self, kind: type, *arguments: Any, **options: Any) -> Local:
        self.actors.append(Local(lambda: kind(*arguments, **options)))
        return self.actors[-1]

    def put(self, value: Any) -> Any:
        return value

    def store_bytes(self) -> int:
        return 10**9

    def wait(self, calls: list[Any], timeout: float) -> list[Any]:
        while self.dying:
            self.actors[self.dying.pop()].die()
        return calls[-1:]  # the last one is there first

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        yield

    def close(self) -> None:
        self.actors.clear()
