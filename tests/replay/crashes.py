"""What a disk holds at each moment of a save: after a kill, and after a power cut."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlcpu.replay import folder
from tests.replay.saved import files

CALLS = ("open", "write", "fsync", "replace", "unlink", "mkdir")
State = dict[str, bytes]  # the files of a folder


@contextmanager
def patched(hook: Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]) -> Iterator[None]:
    """Have `hook(name, call, arguments)` do what the system calls of a save would."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            call = getattr(os, name)

            def replacement(*args: Any, _name: str = name, _call: Any = call) -> Any:
                return hook(_name, _call, args)

            patch.setattr(os, name, replacement)
        patch.setattr(folder, "open", open_by_system_calls, raising=False)
        yield


class Raw(io.FileIO):
    """A file whose every write is a call of `os.write`, which can be replaced."""

    def write(self, data: Any) -> int:
        return os.write(self.fileno(), data)


def open_by_system_calls(path: Path, mode: str, opener: Any) -> Any:
    """`open`, for writing with a buffer so small that a few bytes take several writes."""
    if mode == "rb":
        return open(path, mode, opener=opener)
    return io.BufferedWriter(Raw(path, mode.replace("b", ""), opener=opener), 8)


def write_half(name: str, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """A call that succeeds; a write takes half of what it is given."""
    if name == "write":
        handle, data = args
        return call(handle, data[: (len(data) + 1) // 2])
    return call(*args)


class Disk:
    """Follows a save into `folder` and keeps every state that could be found afterwards.

    A kill leaves what was written. A power cut leaves the bytes of files that were synced, here
    none of the others, and of the changes of names since the folder was synced any part: here
    all, none, the manifest's alone, or the deletions alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.synced = files(folder) if folder.is_dir() else {}
        self.listed = dict(self.synced)
        self.opened: dict[int, Path] = {}
        self.killed: list[State] = []
        self.cut: list[State] = []

    def __call__(self, name: str, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._look()
        result = write_half(name, call, args)
        if name == "open":
            self.opened[result] = Path(args[0])
        elif name == "fsync" and self.opened[args[0]] == self.folder:
            self.listed = self._durable()
        elif name == "fsync" and self.opened[args[0]].is_file():
            path = self.opened[args[0]]
            self.synced[path.name] = path.read_bytes()
        elif name == "replace":
            self.synced[Path(args[1]).name] = self.synced.pop(Path(args[0]).name, b"")
        self._look()
        return result

    def _durable(self) -> State:
        return {name: self.synced.get(name, b"") for name in os.listdir(self.folder)}

    def _look(self) -> None:
        if not self.folder.is_dir():
            return
        renamed, listed = self._durable(), self.listed
        manifest = {name: renamed[name] for name in renamed if name == "manifest.json"}
        deleted = {name: listed[name] for name in listed if name in renamed}
        self.killed.append(files(self.folder))
        self.cut += [renamed, listed, {**listed, **manifest}, deleted]
