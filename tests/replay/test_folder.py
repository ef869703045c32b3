"""A checkpoint's folder: others' files are left alone, and saves wait for each other."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.replay import folder
from rlcpu.replay.checkpoint import reading
from tests.replay.saved import as_bytes, files, load, make_arrays, named, small_blocks, store

TOKEN = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "name", ["x.txt", "manifest.jsonl", f"rlcpu-{TOKEN}.data.bak", f"rlcpu-{TOKEN}-0.data"]
)
def test_foreign_folders_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(ValueError, match="no checkpoint of rlcpu"):
        store(tmp_path, {}, make_arrays(0))
    with pytest.raises(ValueError, match="no checkpoint of rlcpu"):
        reading(tmp_path).__enter__()
    assert files(tmp_path) == {name: b"precious"}


@pytest.mark.parametrize("text", ["", "{}", '{"name": "an app", "version": 1}', "\x00\ufffd" * 9])
def test_foreign_manifests_are_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"manifest\.json: no manifest of rlcpu"):
        store(tmp_path, {}, make_arrays(0))
    with pytest.raises(ValueError, match=r"manifest\.json: no manifest of rlcpu"):
        reading(tmp_path).__enter__()
    assert files(tmp_path) == {"manifest.json": text.encode()}


def test_a_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "buffer"
    path.write_text("precious")
    with pytest.raises(ValueError, match="buffer: no folder"):
        store(path, {}, make_arrays(0))
    with pytest.raises(ValueError, match="buffer: no folder"):
        reading(path).__enter__()
    assert path.read_text() == "precious"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing"):
        store(tmp_path / "missing" / "buffer", {}, make_arrays(0))
    with pytest.raises(FileNotFoundError, match="buffer"):
        reading(tmp_path / "buffer").__enter__()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        reading(tmp_path).__enter__()
    assert not os.listdir(tmp_path)


def test_leftovers_go_and_what_others_put_there_stays(tmp_path: Path) -> None:
    leftovers = [f"rlcpu-{TOKEN}.data", f"rlcpu-{TOKEN}.part"]
    for name in leftovers:
        (tmp_path / name).write_text("half")
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        reading(tmp_path).__enter__()
    store(tmp_path, {}, make_arrays(0))
    assert files(tmp_path).keys() == named(tmp_path)
    for name in [*leftovers, "notes.txt"]:
        (tmp_path / name).write_text("half")
    store(tmp_path, {}, make_arrays(1))
    assert files(tmp_path).keys() == {*named(tmp_path), "notes.txt"}
    assert load(tmp_path)[1] == as_bytes(make_arrays(1))


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_modes_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        store(tmp_path / "buffer", {}, make_arrays(0))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "buffer").stat().st_mode) == 0o777 & ~mask
    for file in (tmp_path / "buffer").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~mask


def test_a_save_waits_for_readers(tmp_path: Path) -> None:
    path = tmp_path / "buffer"
    store(path, {}, make_arrays(0))
    saver = threading.Thread(target=store, args=(path, {}, make_arrays(1)))
    with reading(path) as reader, reading(path) as other:
        saver.start()
        saver.join(0.1)
        assert saver.is_alive()
        for data, now in zip(make_arrays(0).values(), (reader, other, other, reader), strict=True):
            out = np.zeros_like(data)
            name = next(name for name in now.sections if now.num_bytes(name) == len(data))
            now.read_into(name, out)
            np.testing.assert_array_equal(out, data)
    saver.join()
    assert load(path)[1] == as_bytes(make_arrays(1))


def test_many_saves_and_loads_at_once(tmp_path: Path) -> None:
    path, arrays = tmp_path / "buffer", [as_bytes(make_arrays(value)) for value in range(3)]
    store(path, {"value": 0}, make_arrays(0))
    failures: list[BaseException] = []

    def work(value: int) -> None:
        try:
            for _ in range(10):
                store(path, {"value": value}, make_arrays(value))
                header, loaded = load(path)
                assert loaded == arrays[header["value"]]
        except BaseException as error:
            failures.append(error)

    with small_blocks():
        threads = [threading.Thread(target=work, args=(value,)) for value in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert files(path).keys() == named(path)


def test_without_locks_it_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    store(tmp_path / "buffer", {}, make_arrays(0))
    monkeypatch.setattr(folder.fcntl, "flock", refuse)
    store(tmp_path / "buffer", {}, make_arrays(1))
    assert load(tmp_path / "buffer")[1] == as_bytes(make_arrays(1))
    monkeypatch.setattr(folder, "fcntl", None)
    (tmp_path / "buffer" / folder.LOCK).unlink()
    assert load(tmp_path / "buffer")[1] == as_bytes(make_arrays(1))
    store(tmp_path / "buffer", {}, make_arrays(2))
    assert load(tmp_path / "buffer")[1] == as_bytes(make_arrays(2))
