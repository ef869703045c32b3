"""What a checkpoint's manifest says, and the one text that says it.

The manifest is JSON in two lines. The first names the format, its version and the checksum of the
second, so that every flipped bit is noticed before anything is parsed:

    {"format": "rlcpu replay", "version": 1, "blake2b": "...",
    "content": {"token": ..., "header": ..., "files": ..., "sections": ...}}
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections import Counter
from pathlib import Path
from reprlib import repr as shorten
from typing import Any, NamedTuple

VERSION = 1
NAME = "manifest.json"
DATA_FILE = re.compile(r"rlcpu-[0-9a-f]{32}-[0-9]+\.data")
SECTION = re.compile(r"[a-z0-9_]+")
TOKEN = re.compile(r"[0-9a-f]{32}")
# A manifest holds about 40 bytes for each chunk of data: this is room for millions of them, and
# keeps a foreign file of the same name from filling the memory.
MAX_BYTES = 1 << 28
COUNT = range(2**63)
_CONTENT = {
    "token": TOKEN,
    "header": dict,
    "files": [(DATA_FILE, COUNT)],
    "sections": [(SECTION, COUNT, range(1, 2**63), list)],
}
# No link is followed, and no pipe waited for. Windows has neither, but tells text from bytes here.
_FLAGS = sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "BINARY"))
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
    with open(open_file(path, os.O_RDONLY), "rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise ValueError(f"{path}: no manifest of rlcpu: too large")
        match = _TEXT.fullmatch(file.read())
    if match is None:
        raise ValueError(f"{path}: no manifest of rlcpu, or damaged")
    if int(match[1]) != VERSION:
        raise ValueError(f"{path}: version {int(match[1])}, expected {VERSION}")
    return match


def open_file(path: Path, flags: int) -> int:
    """The descriptor of a file in a checkpoint's folder, which may be anybody's.

    Raises:
        FileNotFoundError: there is nothing, and `flags` make nothing.
        ValueError: it is a link, a pipe or something else that is no file.
        OSError: the system refuses.
    """
    try:
        handle = os.open(path, flags | _FLAGS, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
            raise ValueError(f"{path}: a link or no file, and expected a file") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(f"{path}: no file, and expected one")
    return handle


def conform(value: Any, schema: Any, name: str) -> None:
    """Raise ValueError unless a JSON value is as a schema has it.

    Args:
        value: from anybody.
        schema: a type; a range of whole numbers; a pattern of strings; a list of one schema, for
            any number of such values; a tuple, for a list of as many; or a dict, for an object of
            these keys.
        name: what messages call it.
    """
    parts: list[tuple[Any, Any, Any]] = []
    if isinstance(schema, range):
        good = type(value) is int and value in schema
    elif isinstance(schema, re.Pattern):
        good = isinstance(value, str) and bool(schema.fullmatch(value))
    elif isinstance(schema, type):
        good = isinstance(value, schema)
    elif isinstance(schema, dict):
        good = isinstance(value, dict) and value.keys() == schema.keys()
        parts = [(key, value[key], each) for key, each in schema.items()] if good else []
    else:
        good = isinstance(value, list) and (isinstance(schema, list) or len(value) == len(schema))
        each = schema * len(value) if good and isinstance(schema, list) else schema
        parts = list(zip(range(len(each)), value, each, strict=True)) if good else []
    if not good:
        wanted = schema.__name__ if isinstance(schema, type) else shorten(schema)
        raise ValueError(f"{name}: {shorten(value)}, expected {wanted}")
    for key, part, each in parts:
        conform(part, each, f"{name}.{key}")


def _decode(content: Any) -> Manifest:
    """A manifest whose every name and number can be relied upon, from JSON."""
    conform(content, _CONTENT, "content")
    files = dict(map(tuple, content["files"]))
    names = list(files)
    sections = {}
    for name, num_bytes, chunk_bytes, rows in content["sections"]:
        section = Chunked(num_bytes, chunk_bytes, [_chunk(row, names) for row in rows])
        if len(rows) != -(-num_bytes // chunk_bytes):
            raise ValueError(f"section {name}: {len(rows)} chunks")
        for index, chunk in enumerate(section.chunks):
            if chunk != ZEROS and chunk.offset + section.length(index) > files[chunk.file]:
                raise ValueError(f"section {name}: chunk {index} is beyond the end of its file")
        sections[name] = section
    if len(files) != len(content["files"]) or len(sections) != len(content["sections"]):
        raise ValueError("a file or a section is named twice")
    manifest = Manifest(content["token"], content["header"], files, sections)
    if any(used > files[name] for name, used in manifest.used().items()):
        raise ValueError("chunks overlap")
    return manifest


def _chunk(row: Any, names: list[str]) -> Chunk:
    if row == []:
        return ZEROS
    file, offset, checksum = row
    for number in row:
        if type(number) is not int or number < 0:
            raise ValueError(f"{number!r} is no count")
    return Chunk(names[file], offset, checksum)
