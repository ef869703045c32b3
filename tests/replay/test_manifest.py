"""Manifests that someone made up, with the right checksum."""

from __future__ import annotations

import copy
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.replay import checkpoint
from rlcpu.replay.checkpoint import Section, reading, save
from tests.replay.saved import files, load, small_blocks, store

Content = dict[str, Any]
FILE = "the only file"


def _set(*keys: Any) -> Callable[[Content], None]:
    """Replace what the first keys lead to by the last."""

    def change(content: Any) -> None:
        for key in keys[:-2]:
            content = content[key]
        content[next(iter(content)) if keys[-2] == FILE else keys[-2]] = keys[-1]

    return change


def _rename(key: str, name: str) -> Callable[[Content], None]:
    """Give a file or a section another name."""

    def change(content: Any) -> None:
        ((_, value),) = content[key].items()
        content[key] = {name: value}

    return change


def forge(content: Any) -> bytes:
    """A manifest of some content, or of a text in its place."""
    told = {"format": "rlcpu replay", "version": 3, "blake2b": "", "content": None}
    if isinstance(content, bytes):
        return json.dumps(told)[:-5].encode() + content + b"}"
    return json.dumps(told | {"blake2b": checkpoint._digest(content), "content": content}).encode()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with small_blocks():
        data = np.arange(50, dtype=np.uint8)
        section = Section("data", data, None, [(0, 20), (30, 50)])
        data[20:30] = 0
        save(tmp_path / "buffer", {"x": 1}, [section])
    return tmp_path / "buffer"


def read_content(path: Path) -> Any:
    return json.loads((path / "manifest.json").read_text())["content"]


def test_a_manifest_is_json_and_can_be_forged(saved: Path) -> None:
    content = read_content(saved)
    ((file, num_bytes),) = content["files"].items()
    size, (part,) = content["sections"]["data"]
    assert (content["header"], size, part[:4]) == ({"x": 1}, 50, [file, 0, 2, 40])
    assert num_bytes == 2 * 16 + 40
    (saved / "manifest.json").write_bytes(forge(content))
    assert load(saved)[1] == {"data": bytes([*range(20), *[0] * 10, *range(30, 50)])}


NAMES = ["../secret", "/etc/passwd", "secret", "", ".", "..", "manifest.json", "3", "null", "[]"]
COUNTS = [-1, 1.0, True, None, "8", [], float("nan")]


@pytest.mark.parametrize(
    "change",
    [
        *(_rename("files", name) for name in NAMES),
        *(_set("files", FILE, count) for count in [*COUNTS, 0, 71, 10**30]),
        *(_rename("sections", name) for name in ["", "A", "../data", "a b"]),
        *(_set("sections", "data", 0, count) for count in COUNTS),
        *(_set("sections", "data", 1, parts) for parts in [*COUNTS[:5], [[]], [0], {"": 0}]),
        *(_set("sections", "data", 1, 0, 0, name) for name in NAMES),
        *(_set("sections", "data", 1, 0, 1, count) for count in [*COUNTS, 1, 10**30]),
        *(_set("sections", "data", 1, 0, 2, count) for count in [*COUNTS, 3, 2**59, 10**30]),
        *(_set("sections", "data", 1, 0, 3, count) for count in [*COUNTS, 41, 10**18]),
        *(_set("sections", "data", 1, 0, 4, count) for count in COUNTS),
        *(_set("sections", "data", 1, 0, row) for row in [[0], [0] * 4, [0] * 6, None, {}, "", 0]),
        *(_set("token", token) for token in ["", "x", 3, None, "../" * 11]),
        *(_set("header", header) for header in [[], None, 3]),
        *(
            _set(key, value)
            for key in ["files", "sections"]
            for value in [None, 3, [], {"": []}, "ab", ""]
        ),
        lambda content: content.pop("header"),
        lambda content: content["sections"].update(more=content["sections"]["data"]),
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
            reading(saved).__enter__()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, 19, 20, 30, 49, 51, 10**18])
def test_other_sizes_are_refused(saved: Path, size: int) -> None:
    content = read_content(saved)
    content["sections"]["data"][0] = size
    (saved / "manifest.json").write_bytes(forge(content))
    with reading(saved) as reader, pytest.raises(ValueError, match=r"section data|ranges"):
        reader.read_into("data", np.zeros(min(size, 50), np.uint8))


@pytest.mark.parametrize("change", [{2: 1, 3: 56}, {2: 0, 3: 72}, {1: 16, 2: 1}, {3: 39}, {4: 0}])
def test_forged_parts_are_refused(saved: Path, change: dict[int, int]) -> None:
    content = read_content(saved)
    for place, number in change.items():
        content["sections"]["data"][1][0][place] = number
    (saved / "manifest.json").write_bytes(forge(content))
    out = np.zeros(60, np.uint8)
    with reading(saved) as reader, pytest.raises(ValueError, match=r"\.data: "):
        reader.read_into("data", out[:50])
    assert not out[50:].any()


RANGES = [[-1, 3], [3, 2], [0, 51], [2**63 - 1, -(2**63)], [-(2**63), 2**63 - 1], [40, 50, 0, 10]]


@pytest.mark.parametrize("edges", RANGES)
def test_forged_ranges_are_refused(saved: Path, edges: list[int]) -> None:
    """Of a right checksum, in a segment of the right size."""
    content = read_content(saved)
    (name,), table = content["files"], np.array(edges, np.int64).tobytes()
    text = table + bytes(72 - len(table))
    part = [name, 0, len(edges) // 2, len(text) - len(table), zlib.crc32(text)]
    content["sections"]["data"][1] = [part]
    (saved / name).write_bytes(text)
    (saved / "manifest.json").write_bytes(forge(content))
    with reading(saved) as reader, pytest.raises(ValueError, match="ranges"):
        reader.read_into("data", np.zeros(50, np.uint8))


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[]", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000, b'"\\ud800"']
)
def test_forged_texts_are_refused(saved: Path, text: bytes) -> None:
    (saved / "manifest.json").write_bytes(forge(text))
    with pytest.raises(ValueError, match=r"manifest\.json"):
        reading(saved).__enter__()


def test_another_version_is_named_and_left_alone(saved: Path) -> None:
    text = (saved / "manifest.json").read_text().replace('"version": 3', '"version": 4')
    (saved / "manifest.json").write_text(text)
    before = files(saved)
    with pytest.raises(ValueError, match="version 4, expected 3"):
        reading(saved).__enter__()
    with pytest.raises(ValueError, match="version 4, expected 3"):
        store(saved, {}, {"data": np.zeros(50, np.uint8)})
    assert files(saved) == before
