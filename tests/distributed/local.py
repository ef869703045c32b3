"""Shards in this process that die when a test says so, in the place of Ray's actors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from rlcpu.distributed.replay import LostArgumentError, LostError


class Call:
    """A call that was sent: not answered yet, answered, or lost."""

    def __init__(self, method: str, arguments: tuple[Any, ...]) -> None:
        self.method, self.arguments = method, arguments
        self.answer: Any = None
        self.state = "sent"


class Local:
    """An object whose calls wait in a line until `work`, or until an answer is asked for."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.object = make, make()
        self.line: deque[Call] = deque()
        self.unread: list[Call] = []
        self.blocks_lost: list[Any] = []

    def call(self, method: str, *arguments: Any) -> Call:
        call = Call(method, arguments)
        self.line.append(call)
        return call

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

    def result(self, call: Call) -> Any:
        while call.state == "sent":
            self.work(1)
        if call.state == "lost":
            raise LostError("died")
        if call.state == "argument lost":
            raise LostArgumentError("its machine died")
        if call in self.unread:
            self.unread.remove(call)
        return call.answer

    def is_ready(self, call: Call) -> bool:
        return call.state != "sent"

    def revive(self) -> Any:
        return self.object.greet()[1]
