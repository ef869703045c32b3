"""What a checkpoint's manifest says, and the one text that says it.

The manifest is JSON in two lines. The first names the format, its version and the checksum of the
second, so that every flipped bit is noticed before anything is parsed:

    {"format": "rlcpu replay", "version": 1, "blake2b": "...",
    "content": {"token": ..., "header": ..., "files": ..., "sections": ...}}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 1
NAME = "manifest.json"
DATA_FILE = re.compile(r"rlcpu-[0-9a-f]{32}-[0-9]+\.data")
SECTION = re.compile(r"[a-z0-9_]+")
TOKEN = re.compile(r"[0-9a-f]{32}")
# A manifest holds about 40 bytes for each chunk of data: this is room for millions of them, and
# keeps a foreign file of the same name from filling the memory.
MAX_BYTES = 1 << 28
_TEXT = re.compile(
    rb'\{"format": "rlcpu replay", "version": ([0-9]{1,9}), "blake2b": "([0-9a-f]{32})",\n'
    rb'"content": (.*)\}\n',
    re.DOTALL,
)


class Chunk(NamedTuple):
    """Where one chunk of a section is, and its CRC-32; nowhere if all its bytes are zero."""

    file: str
    offset: int
    checksum: int


ZEROS = Chunk("", 0, 0)  # in JSON the empty list


class Chunked(NamedTuple):
    """A section: chunks of `chunk_bytes` each, but for the last."""

    num_bytes: int
    chunk_bytes: int
    chunks: list[Chunk]

    def length(self, index: int) -> int:
        """Bytes of one chunk."""
        return min(self.chunk_bytes, self.num_bytes - index * self.chunk_bytes)


class Manifest(NamedTuple):
    """One save: `files` are the lengths in bytes of the data files, by name."""

    token: str
    header: dict[str, Any]
    files: dict[str, int]
    sections: dict[str, Chunked]

    def used(self) -> Counter[str]:
        """Bytes of each data file that are part of a section."""
        used: Counter[str] = Counter()
        for section in self.sections.values():
            for index, chunk in enumerate(section.chunks):
                used[chunk.file] += section.length(index)
        del used[ZEROS.file]
        return used


def encode(manifest: Manifest) -> bytes:
    """The text of a manifest.

    Raises:
        TypeError: the header holds something that JSON cannot say.
        ValueError: the header would not come back as it is, or is too large.
    """
    numbers = {name: number for number, name in enumerate(manifest.files)}
    sections = [
        [name, num_bytes, chunk_bytes, [_row(chunk, numbers) for chunk in chunks]]
        for name, (num_bytes, chunk_bytes, chunks) in manifest.sections.items()
    ]
    check_header(manifest.header)
    content = {
        "token": manifest.token,
        "header": manifest.header,
        "files": list(manifest.files.items()),
        "sections": sections,
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    first = f'{{"format": "rlcpu replay", "version": {VERSION}, "blake2b": "{_digest(text)}",\n'
    whole = first.encode() + b'"content": ' + text + b"}\n"
    if len(whole) > MAX_BYTES:
        raise ValueError(f"a manifest of {len(whole)} bytes, expected at most {MAX_BYTES}")
    return whole


def _row(chunk: Chunk, numbers: dict[str, int]) -> list[int]:
    return [] if chunk == ZEROS else [numbers[chunk.file], chunk.offset, chunk.checksum]


def check_header(header: dict[str, Any]) -> None:
    """Refuse a header that would not be read as it was written; raises as `encode`."""
    try:
        same = (
            isinstance(header, dict) and json.loads(json.dumps(header, allow_nan=False)) == header
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"header: JSON cannot say it: {error}") from error
    if not same:
        raise ValueError(
            "header: expected a dict that JSON gives back as it is: keys are str, sequences lists"
        )


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def read(folder: Path) -> Manifest:
    """The manifest in a folder; what it says holds together, but the data files are not looked at.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, foreign, or of a version that is unknown here.
    """
    path, match = folder / NAME, read_text(folder)
    if _digest(match[3]).encode() != match[2]:
        raise ValueError(f"{path}: damaged: wrong checksum")
    try:
        return _decode(json.loads(match[3]))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ValueError(f"{path}: no manifest of rlcpu: {error!r}") from error


def read_text(folder: Path) -> re.Match[bytes]:
    """A manifest's version, checksum and content, of which only the version is checked."""
    path = folder / NAME
    if path.exists() and not (path.is_file() and path.stat().st_size <= MAX_BYTES):
        raise ValueError(f"{path}: no manifest of rlcpu: not a file, or too large")
    with open(path, "rb") as file:
        match = _TEXT.fullmatch(file.read())
    if match is None:
        raise ValueError(f"{path}: no manifest of rlcpu, or damaged")
    if int(match[1]) != VERSION:
        raise ValueError(f"{path}: version {int(match[1])}, expected {VERSION}")
    return match


def _decode(content: Any) -> Manifest:
    """A manifest whose every name and number can be relied upon, from JSON."""
    files = {_name(name, DATA_FILE): _count(length) for name, length in content["files"]}
    names = list(files)
    sections = {}
    for name, num_bytes, chunk_bytes, rows in content["sections"]:
        chunks = [_chunk(row, names) for row in rows]
        section = Chunked(_count(num_bytes), _count(chunk_bytes), chunks)
        if section.chunk_bytes < 1 or len(chunks) != -(-section.num_bytes // section.chunk_bytes):
            raise ValueError(f"section {name}: {len(chunks)} chunks")
        for index, chunk in enumerate(chunks):
            if chunk != ZEROS and chunk.offset + section.length(index) > files[chunk.file]:
                raise ValueError(f"section {name}: chunk {index} is beyond the end of its file")
        sections[_name(name, SECTION)] = section
    if not isinstance(content["header"], dict) or not isinstance(content["sections"], list):
        raise ValueError("header is no object, or sections are no list")
    if len(files) != len(content["files"]) or len(sections) != len(content["sections"]):
        raise ValueError("a file or a section is named twice")
    manifest = Manifest(_name(content["token"], TOKEN), content["header"], files, sections)
    if any(used > files[name] for name, used in manifest.used().items()):
        raise ValueError("chunks overlap")
    return manifest


def _chunk(row: Any, names: list[str]) -> Chunk:
    if row == []:
        return ZEROS
    file, offset, checksum = row
    return Chunk(names[_count(file)], _count(offset), _count(checksum))


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _name(value: Any, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{value!r} is no name")
    return value
