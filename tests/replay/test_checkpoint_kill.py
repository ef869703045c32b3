"""Interrupted saves: the old checkpoint or the new one is there, whole, and the next save works."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.replay.checkpoint import Section, save
from tests.kernels.processes import run_python
from tests.replay.crashes import Disk, State, patched, write_half
from tests.replay.saved import files, load, named, small_blocks

OLD, NEW = np.arange(60, dtype=np.uint8), np.arange(60, dtype=np.uint8)
NEW[[3, 17, 58]] += 100
CHANGED = [(3, 4), (17, 18), (58, 59)]


@pytest.fixture(autouse=True)
def small() -> Any:
    with small_blocks(4):
        yield


def save_old(path: Path) -> str | None:
    return save(path, {"save": "old"}, [Section("data", OLD)])


def save_new(path: Path, since: str | None) -> str:
    return save(path, {"save": "new"}, [Section("data", NEW, CHANGED)], since)


def find(path: Path) -> str:
    """Which save is in a folder."""
    try:
        header, sections = load(path)
    except FileNotFoundError:
        return "none"
    expected = {"old": OLD, "new": NEW}[header["save"]]
    assert sections == {"data": expected.tobytes()}
    return header["save"]


def restore(path: Path, state: State) -> Path:
    path.mkdir()
    for name, content in state.items():
        (path / name).write_bytes(content)
    return path


@pytest.mark.parametrize("first", ["none", "old"])
@pytest.mark.parametrize("which", ["killed", "cut"])
def test_every_moment_of_a_save(tmp_path: Path, first: str, which: str) -> None:
    path = tmp_path / "buffer"
    token = save_old(path) if first == "old" else None
    disk = Disk(path)
    with patched(disk):
        last = save_new(path, token)
    states: list[State] = getattr(disk, which)
    assert len(states) > 50
    found = []
    for number, state in enumerate(states):
        copy = restore(tmp_path / str(number), state)
        found.append(find(copy))
        save_new(copy, [token, last, None][number % 3])
        assert find(copy) == "new"
        assert files(copy).keys() == named(copy)
    assert set(found) == {first, "new"}
    assert found[-4:] == ["new"] * 4
    if which == "killed":
        assert found == sorted(found, key=[first, "new"].index)


class Interrupt:
    """Raises at one system call, before it does anything or afterwards."""

    def __init__(self, at: int, error: BaseException, after: bool) -> None:
        self.count, self.at, self.error, self.after = 0, at, error, after
        self.name = ""

    def __call__(self, name: str, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self.count += 1
        if self.count != self.at:
            return write_half(name, call, args)
        self.name = name
        if self.after:
            write_half(name, call, args)
        raise self.error


@pytest.mark.parametrize("first", ["none", "old"])
@pytest.mark.parametrize(
    ("error", "after"),
    [
        (OSError(errno.ENOSPC, "disk full"), False),
        (KeyboardInterrupt(), False),
        (KeyboardInterrupt(), True),
    ],
)
def test_every_call_fails(tmp_path: Path, first: str, error: BaseException, after: bool) -> None:
    found, at, interrupt = set(), 0, None
    while interrupt is None or interrupt.name:
        at += 1
        path = tmp_path / str(at)
        token = save_old(path) if first == "old" else None
        interrupt = Interrupt(at, error, after)
        with contextlib.suppress(type(error)), patched(interrupt):
            save_new(path, token)
        now = find(path)
        found.add(now)
        # Only what could not be deleted may be left.
        if path.exists() and interrupt.name != "unlink":
            assert set(os.listdir(path)) - {"rlcpu.lock"} <= (
                named(path) if now != "none" else set()
            )
        save_new(path, token)
        assert find(path) == "new"
        assert files(path).keys() == named(path)
    assert found == {first, "new"}
    assert at > 20


def test_a_failed_save_does_not_count_as_the_last_one(tmp_path: Path) -> None:
    """The folder is synced last: the new checkpoint is there, and nobody has its token."""
    path = tmp_path / "buffer"
    token, calls = save_old(path), []

    def fail(name: str, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        calls.append(name)
        if calls[-3:] == ["replace", "open", "fsync"]:
            raise OSError(errno.EIO, "disk broken")
        return call(*args)

    with pytest.raises(OSError, match="disk broken"), patched(fail):
        save_new(path, token)
    assert find(path) == "new"
    save(path, {"save": "old"}, [Section("data", OLD, [])], token)
    assert find(path) == "old"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_processes(tmp_path: Path, seed: int) -> None:
    script = Path(__file__).with_name("killed.py")
    report = run_python(script, tmp_path / "buffer", seed, 40, OPENBLAS_NUM_THREADS=1)
    assert report["steps"] > 0
    assert report["unfinished"] > 0
