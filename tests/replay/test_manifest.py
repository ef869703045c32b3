"""Manifests that someone made up, with the right checksum."""

from __future__ import annotations

import copy
import json
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.replay import manifest
from rlcpu.replay.checkpoint import Reader
from tests.replay.saved import files, load, small_chunks, store

Content = dict[str, Any]


def _set(*keys: Any) -> Callable[[Content], None]:
    """Replace what the first keys lead to by the last."""

    def change(content: Any) -> None:
        for key in keys[:-2]:
            content = content[key]
        content[keys[-2]] = keys[-1]

    return change


def forge(content: Any) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    digest = manifest._digest(text)
    first = f'{{"format": "rlcpu replay", "version": 1, "blake2b": "{digest}",\n'
    return first.encode() + b'"content": ' + text + b"}\n"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with small_chunks():
        store(tmp_path / "buffer", {"x": 1}, {"data": np.arange(50, dtype=np.uint8)})
    return tmp_path / "buffer"


def read_content(path: Path) -> Any:
    return json.loads((path / "manifest.json").read_text())["content"]


def test_a_manifest_is_json_and_can_be_forged(saved: Path) -> None:
    content = read_content(saved)
    assert (content["header"], content["sections"][0][:3]) == ({"x": 1}, ["data", 50, 8])
    (saved / "manifest.json").write_bytes(forge(content))
    assert load(saved)[1] == {"data": bytes(range(50))}


NAMES = ["../secret", "/etc/passwd", "secret", "", ".", "..", "manifest.json", 3, None, ["a"]]
COUNTS = [-1, 1.0, True, None, "8", [], float("nan")]


@pytest.mark.parametrize(
    "change",
    [
        *(_set("files", 0, 0, name) for name in NAMES),
        *(_set("files", 0, 1, count) for count in [*COUNTS, 0, 31, 33, 10**18]),
        *(_set("sections", 0, 0, name) for name in ["", "A", "../data", 3, None]),
        *(_set("sections", 0, 1, count) for count in [*COUNTS, 57, 48, 10**18]),
        *(_set("sections", 0, 2, count) for count in [*COUNTS, 0, 7, 9, 10**18]),
        *(_set("sections", 0, 3, 0, 0, count) for count in [*COUNTS, 2, 10**30]),
        *(_set("sections", 0, 3, 0, 1, count) for count in [*COUNTS, 25, 10**30]),
        *(_set("sections", 0, 3, 0, 2, count) for count in COUNTS),
        *(_set("sections", 0, 3, 0, row) for row in [[0], [0, 0], [0, 0, 0, 0], None, {}, "", 0]),
        *(_set("token", token) for token in ["", "x", 3, None, "../" * 11]),
        *(_set("header", header) for header in [[], None, 3]),
        *(
            _set(key, value)
            for key in ["files", "sections"]
            for value in [None, 3, {}, [[]], "ab", ""]
        ),
        lambda content: content["sections"].append(content["sections"][0]),
        lambda content: content["files"].append(content["files"][0]),
        lambda content: content.pop("header"),
        lambda content: content["sections"].append(["more", 8, 8, [[0, 0, 0]]]),
    ],
)
def test_forged_manifests_are_refused(saved: Path, change: Callable[[Content], None]) -> None:
    content = copy.deepcopy(read_content(saved))
    (saved.parent / "secret").write_bytes(bytes(32))
    change(content)
    (saved / "manifest.json").write_bytes(forge(content))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="buffer"):
            Reader(saved)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[]", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000, b'"\\ud800"']
)
def test_forged_texts_are_refused(saved: Path, text: bytes) -> None:
    (saved / "manifest.json").write_bytes(forge(text))
    with pytest.raises(ValueError, match=r"manifest\.json"):
        Reader(saved)


def test_another_version_is_named_and_left_alone(saved: Path) -> None:
    text = (saved / "manifest.json").read_text().replace('"version": 1', '"version": 2')
    (saved / "manifest.json").write_text(text)
    before = files(saved)
    with pytest.raises(ValueError, match="version 2, expected 1"):
        Reader(saved)
    with pytest.raises(ValueError, match="version 2, expected 1"):
        store(saved, {}, {"data": np.zeros(50, np.uint8)})
    assert files(saved) == before


def test_a_huge_manifest_is_not_read(saved: Path) -> None:
    os.truncate(saved / "manifest.json", manifest.MAX_BYTES + 1)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="too large"):
            Reader(saved)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_huge_header_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path / "buffer", {}, {})
    before = files(tmp_path / "buffer")
    monkeypatch.setattr(manifest, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match=re.escape("expected at most 1000")):
        store(tmp_path / "buffer", {"x": "a" * 1000}, {"data": np.zeros(3, np.uint8)})
    assert files(tmp_path / "buffer") == before
