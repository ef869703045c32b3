"""A headless Chromium, driven through its own pipe: needs no package beside the browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--window-size=1200,900", "--remote-debugging-pipe"),
)


def find() -> str | None:
    """The browser's path, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab. Messages are JSON, each ended by a zero byte: DevTools' protocol."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; waits for its answer and drops the events before it."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            received = os.read(self._answers, 2**16)
            if not received:
                raise EOFError("the browser has ended")
            self._pending += received
        message, _, self._pending = self._pending.partition(b"\0")
        return json.loads(message)

    def open(self, url: str) -> None:
        """Goes to a page."""
        self.send("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 20.0) -> Any:
        """Waits until an expression holds, and returns its value.

        Raises:
            TimeoutError: it does not.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.evaluate(expression)
            if value:
                return value
            time.sleep(0.1)
        raise TimeoutError(f"not within {seconds:g} s: {expression}")


@contextmanager
def opened(browser: str, profile: Path) -> Iterator[Page]:
    """Starts the browser with a profile of its own, and ends it."""
    command_out, command_in = os.pipe()
    answer_out, answer_in = os.pipe()

    def connect() -> None:  # the browser reads commands from file 3 and answers on file 4
        os.dup2(command_out, 13), os.dup2(answer_in, 14)
        os.dup2(13, 3), os.dup2(14, 4)

    command = [browser, *FLAGS, f"--user-data-dir={profile}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, preexec_fn=connect, close_fds=False, **quiet)
    os.close(command_out)
    os.close(answer_in)
    try:
        yield Page(command_in, answer_out)
    finally:
        process.kill()
        process.wait()
        os.close(command_in)
        os.close(answer_out)
