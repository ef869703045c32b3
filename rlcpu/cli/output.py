"""Standard output that may be closed, full, or unable to encode what is printed."""

from __future__ import annotations

import os
import sys
from typing import Any, Self


class Output:
    """Standard output in a context: no run fails because it cannot be printed.

    Letters that it cannot encode are escaped. Where it is closed or full, the rest of what is
    printed is dropped, and one line on standard error says so.

    Attributes:
        trouble: why something was dropped, or "".
    """

    def __init__(self) -> None:
        self.stream: Any = sys.stdout
        self.trouble = ""

    def write(self, text: str) -> int:
        """Print a text."""
        try:
            self._try("write", text)
        except UnicodeEncodeError:
            self._try("write", text.encode("ascii", "backslashreplace").decode())
        return len(text)

    def flush(self) -> None:
        """Print the text that waits in the buffer."""
        if self.stream is not None:
            self._try("flush")

    def _try(self, method: str, *text: str) -> None:
        """Call a method of the stream, and note what is wrong with it: later calls do nothing."""
        if self.trouble:
            return
        if self.stream is None:  # as Python leaves it where the shell has closed it
            self.trouble = "it is closed"
            return
        try:
            getattr(self.stream, method)(*text)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.trouble = error.strerror or str(error)
            drop_output(self.stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __enter__(self) -> Self:
        sys.stdout = self
        return self

    def __exit__(self, *error: object) -> None:
        sys.stdout = self.stream
        self.flush()
        if self.trouble:
            line = f"rlcpu: standard output cannot be written: {self.trouble}"
            print(line, file=sys.stderr)


def drop_output(stream: Any) -> None:
    """Discard the buffer of a stream, which Python would write when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
