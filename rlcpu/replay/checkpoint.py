"""Named bytes in a folder, saved again and again, whole after every crash.

Each save writes the bytes that have changed to one new file, a segment, which nobody changes later.
`manifest.json` lists the segments, and the parts of them that make up each section. A part is a
table of ranges followed by their bytes. Parts lie over zeros, later ones over earlier ones.

A save makes its segment durable, writes a new manifest beside the old one, puts it in its place
with one `os.replace`, and deletes the files that nothing names any more. A process that is killed
at any moment leaves the old checkpoint or the new one, and the next save deletes what it left.

The manifest is JSON in two lines. The first names the format, its version and the checksum of the
second, so that every flipped bit is noticed before anything is parsed:

    {"format": "rlcpu replay", "version": 2, "blake2b": "...",
    "content": {"token": ..., "header": ..., "files": ..., "sections": ...}}
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import re
import secrets
import stat
import zlib
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.replay.checks import check_path
from rlcpu.replay.folder import LOCK, locked, new_file, open_file, sync

Bytes = npt.NDArray[np.uint8]
Table = npt.NDArray[np.int64]
Ranges = Sequence[tuple[int, int]] | Table

MANIFEST = "manifest.json"
VERSION = 2
# Bytes that are copied and checked at a time: they stay in the cache.
BLOCK = 1 << 18
# Parts of a section, after which a save writes it whole: a load opens as many files, and each save
# writes a manifest of 75 bytes for each part.
MOST_PARTS = 256
# This keeps a foreign manifest from filling the memory.
MAX_MANIFEST = 1 << 26

_OURS = re.compile(r"rlcpu-[0-9a-f]{32}\.(data|part)")
_SEGMENT = re.compile(r"rlcpu-[0-9a-f]{32}\.data")
_SECTION = re.compile(r"[a-z0-9_]+")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_TEXT = re.compile(
    rb'\{"format": "rlcpu replay", "version": ([0-9]{1,9}), "blake2b": "([0-9a-f]{32})",\n'
    rb'"content": (.*)\}\n',
    re.DOTALL,
)


class Section(NamedTuple):
    """A part of a buffer's memory.

    Attributes:
        name: of small letters, digits and underscores.
        data: its bytes, uint8 (num_bytes,), contiguous; nobody may write to them during a save.
        changed: ranges [begin, end) of bytes, shape (num_ranges, 2), outside of which nothing
            changed since the save that `since` names; None: any byte may have changed. A section
            that has grown since then was followed by zeros.
        written: ranges outside of which all bytes are zero, or of no use; None: all of it.
    """

    name: str
    data: Bytes
    changed: Ranges | None = None
    written: Ranges | None = None


class _Part(NamedTuple):
    """Ranges of a section: a table of (num_ranges, 2) int64 and their bytes, and their CRC-32.

    CRC-32 at 6.4 GB/s costs less than writing; SHA-1 and SHA-256 make 1.9, BLAKE2b 1.3 (zlib 1.2.13
    and OpenSSL 3.0 on Zen 5). It finds every burst of up to 32 bits.
    """

    file: str
    offset: int
    num_ranges: int
    num_bytes: int
    checksum: int

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return 16 * self.num_ranges + self.num_bytes


class _Manifest(NamedTuple):
    """One save: bytes of each segment by name; bytes and parts of each section by name."""

    token: str
    header: dict[str, Any]
    files: dict[str, int]
    sections: dict[str, tuple[int, list[_Part]]]


_NOTHING = _Manifest("", {}, {}, {})


# ---------------------------------------------------------------- saving


def save(
    path: str | os.PathLike[str],
    header: dict[str, Any],
    sections: Sequence[Section],
    since: str | None = None,
) -> str:
    """Write a checkpoint, or what changed in it.

    Saves to one folder wait for each other; a save waits for readers, and they for it. A folder
    takes at most twice its data: a save that would exceed it writes everything anew.

    Args:
        path: a folder, to be made where it does not exist; what contains it does.
        header: what is no array; what JSON says exactly (no NaN, keys are str, no tuples).
        sections: the arrays, read block by block and never copied as a whole.
        since: the token of the save, or of the `Reader`, after which `changed` counts. If the
            checkpoint in the folder is another one, everything is written.

    Returns:
        A token that names this save.

    Raises:
        FileNotFoundError: there is no folder that `path` could be in.
        ValueError: `path` is something else than a checkpoint, which is left alone, or a
            checkpoint with a damaged manifest; or an argument is not as described.
        TypeError: JSON has nothing for something in the header.
        OSError: the system could not write; the old checkpoint is still there.
    """
    path = check_path("path", path)
    if json.loads(json.dumps(header, allow_nan=False)) != header:
        raise ValueError(
            "header: expected keys of str and sequences of list, which JSON gives back"
        )
    _make_folder(path)
    with locked(path, write=True):
        old = _current(path)
        token = secrets.token_hex(16)
        try:
            kept = old if old.token == since and not _find_damage(path, old) else _NOTHING
            new = _write_segment(path, token, header, sections, kept)
            temporary = path / f"rlcpu-{token}.part"
            with new_file(temporary) as write:
                write(_encode(new))
            sync(path)  # the segment's name has to last before the manifest that names it
            os.replace(temporary, path / MANIFEST)
            sync(path)
        except BaseException:
            # The manifest says which files go: an interrupt may fall just after its replacement.
            _sweep(path)
            raise
        _sweep(path, new.files)
    return token


def _make_folder(path: Path) -> None:
    """Make a checkpoint's folder; ValueError where there is something else already."""
    if os.path.lexists(path):
        _current(path)
        return
    try:
        path.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}") from error
    sync(path.parent)


def _write_segment(
    path: Path, token: str, header: dict[str, Any], sections: Sequence[Section], old: _Manifest
) -> _Manifest:
    """Write the segment that makes a new checkpoint of the old one, and return its manifest."""
    name, size = f"rlcpu-{token}.data", 0
    made: dict[str, tuple[int, list[_Part]]] = {}
    with new_file(path / name) as write:
        for section, parts, table in _plan(sections, old):
            checksum, num_bytes = 0, _num_bytes(table)
            for block in _blocks(table, section.data):
                write(block)
                checksum = zlib.crc32(block, checksum)
            if len(table):
                part = _Part(name, size, len(table), num_bytes - table.nbytes, checksum)
                parts, size = [*parts, part], size + num_bytes
            made[section.name] = len(section.data), parts
    named = [part.file for _, parts in made.values() for part in parts]
    return _Manifest(token, header, {each: old.files.get(each, size) for each in named}, made)


def _plan(sections: Sequence[Section], old: _Manifest) -> list[tuple[Section, list[_Part], Table]]:
    """Of each section the parts that stay, and the ranges to be written."""
    whole: list[tuple[Section, list[_Part], Table]] = []
    changes: list[tuple[Section, list[_Part], Table]] = []
    for section in sections:
        name, data, changed, written = section
        whole.append((section, [], _merge(written, data)))
        num_bytes, parts = old.sections.get(name, (len(data) + 1, []))
        if changed is not None and num_bytes <= len(data) and len(parts) < MOST_PARTS:
            changes.append((section, parts, _merge(changed, data)))
        else:
            changes.append(whole[-1])
    files = {part.file for _, parts, _ in changes for part in parts}
    kept = sum(old.files[name] for name in files)
    new, most = (sum(_num_bytes(table) for *_, table in plan) for plan in (changes, whole))
    return changes if kept + new <= 2 * most else whole


def _merge(ranges: Ranges | None, data: Bytes) -> Table:
    """Ranges in order, apart from each other, and none of them empty."""
    table = np.array([(0, len(data))] if ranges is None else ranges, np.int64).reshape(-1, 2)
    table = table[table[:, 0] < table[:, 1]]
    begin, end = table[np.argsort(table[:, 0])].T
    end = np.maximum.accumulate(end)
    first = np.flatnonzero(np.append(True, begin[1:] > end[:-1])[: len(begin)])
    last = np.append(first[1:], len(begin))[: len(first)] - 1
    return np.stack([begin[first], end[last]], 1).astype("<i8")


def _num_bytes(table: Table) -> int:
    """Bytes that ranges take in a segment."""
    return table.nbytes + int((table[:, 1] - table[:, 0]).sum())


def _blocks(table: Table, data: Bytes) -> Iterator[bytes]:
    """A table and the bytes of its ranges; many small ranges together are one block."""
    pending: list[Any] = [table.tobytes()]
    size = 0
    for piece in _pieces(table, data):
        pending.append(piece)
        size += len(piece)
        if size >= BLOCK or len(pending) == 4096:
            yield b"".join(pending)
            pending, size = [], 0
    yield b"".join(pending)


def _pieces(table: Table, data: Bytes) -> Iterator[memoryview]:
    """The bytes of ranges, at most BLOCK at a time."""
    view = data.data
    for begin, end in table.tolist():
        for at in range(begin, end, BLOCK):
            yield view[at : min(at + BLOCK, end)]


def _sweep(path: Path, kept: Container[str] | None = None) -> None:
    """Delete every file of ours that is not `kept`, or that the manifest does not name.

    It never fails: what cannot be deleted now is deleted by the next save.
    """
    with contextlib.suppress(OSError, ValueError):
        kept = _current(path).files if kept is None else kept
        for name in os.listdir(path):
            if _OURS.fullmatch(name) and name not in kept:
                with contextlib.suppress(OSError):
                    os.unlink(path / name)


# ---------------------------------------------------------------- reading


class Reader:
    """A checkpoint to be read, unchanged by saves until it is closed; a context manager.

    A save into the same folder waits for it, also in the same process.

    Args:
        path: the checkpoint's folder.

    Attributes:
        header: what `save` was given.
        names: of the sections, in their order.
        token: names this save; for `since` in `save`.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: it is damaged or truncated, foreign, or of a version that is unknown here.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._prefix = check_path("path", path), ""
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(self._path, write=False))
            read = _current(self._path)
            if not read.token:
                raise FileNotFoundError(f"{self._path}: no checkpoint")
            if damage := _find_damage(self._path, read):
                raise ValueError(damage)
            self._open = stack.pop_all()
        self._sections = read.sections
        self.header, self.token, self.names = read.header, read.token, tuple(read.sections)

    def within(self, prefix: str) -> Reader:
        """The same, for sections whose names begin so, by the rest of their names."""
        other = copy.copy(self)
        other._prefix = self._prefix + prefix
        return other

    def num_bytes(self, name: str) -> int:
        """Bytes of a section; ValueError where there is none of this name."""
        return self._section(name)[0]

    def num_held(self, name: str) -> int:
        """Bytes in files that are written to a section; where there are none, it is zeros."""
        return sum(part.num_bytes for part in self._section(name)[1])

    def read_into(self, name: str, out: Bytes, zeroed: bool = False) -> None:
        """Fill `out`, uint8 (num_bytes,), with a section.

        Where `out` holds zeros already (`zeroed`), those of the section are not written, so that
        the memory of what was never added is not taken.

        Raises:
            ValueError: its data are damaged or truncated: `out` is overwritten in part; or there
                is no such section, or `out` is not of its size.
        """
        num_bytes, parts = self._section(name)
        if len(out) != num_bytes:
            raise ValueError(f"section {name}: {num_bytes} bytes, expected {len(out)}")
        if not zeroed:
            out[:] = 0
        for part in parts:
            self._read_part(part, out)

    def _read_part(self, part: _Part, out: Bytes) -> None:
        path = self._path / part.file
        edges = np.empty(2 * part.num_ranges, "<i8")
        table = edges.reshape(-1, 2)
        with open(open_file(path, os.O_RDONLY), "rb", buffering=BLOCK) as file:
            file.seek(part.offset)
            checksum = _fill(file, edges.view(np.uint8).data, 0, path)
            within = ((edges >= 0) & (edges <= len(out))).all()
            if not within or (np.diff(edges) < 0).any() or _num_bytes(table) != part.size:
                raise ValueError(f"{path}: damaged: no ranges of {len(out)} bytes")
            for piece in _pieces(table, out):
                checksum = _fill(file, piece, checksum, path)
        if checksum != part.checksum:
            raise ValueError(f"{path}: damaged: wrong checksum")

    def _section(self, name: str) -> tuple[int, list[_Part]]:
        name = self._prefix + name
        if name not in self._sections:
            raise ValueError(f"{self._path}: no section {name}, but {', '.join(self.names)}")
        return self._sections[name]

    def close(self) -> None:
        """Let saves go on."""
        self._open.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def nonsense(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise ValueError for whatever a header of another kind than expected leads to."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{os.fspath(path)}: does not fit: {error!r}") from error


class Saved:
    """What a buffer is composed of, as checkpoints have it: nothing, where this is not overridden.

    `ring` is the buffer's `rlcpu.replay.items.Ring`.
    """

    def sections(self, added: int, ring: Any) -> list[Section]:
        """Arrays; `added` steps of the ring were saved before."""
        return []

    def state(self) -> dict[str, Any]:
        """Numbers, as JSON has them."""
        return {}

    def restore(self, state: dict[str, Any], source: Reader, ring: Any) -> None:
        """Take over what a checkpoint holds; any error where that is nonsense."""


def _fill(file: Any, piece: memoryview, checksum: int, path: Path) -> int:
    """Read a piece; the checksum of all up to its end."""
    if file.readinto(piece) < len(piece):
        raise ValueError(f"{path}: too short")
    return zlib.crc32(piece, checksum)


def _find_damage(path: Path, manifest: _Manifest) -> str:
    """What is wrong with the files that a manifest names, as far as their sizes tell."""
    for name, size in manifest.files.items():
        try:
            status = os.lstat(path / name)
        except FileNotFoundError:
            return f"{path / name}: missing"
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return f"{path / name}: {status.st_size} bytes, expected {size} in a file"
    return ""


# ---------------------------------------------------------------- the manifest


def _encode(manifest: _Manifest) -> bytes:
    """The text of a manifest; ValueError where it is too large."""
    text = json.dumps(manifest._asdict(), separators=(",", ":")).encode()
    first = f'{{"format": "rlcpu replay", "version": {VERSION}, "blake2b": "{_digest(text)}",\n'
    whole = first.encode() + b'"content": ' + text + b"}\n"
    if len(whole) > MAX_MANIFEST:
        raise ValueError(f"a manifest of {len(whole)} bytes, expected at most {MAX_MANIFEST}")
    return whole


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _current(path: Path) -> _Manifest:
    """The manifest in a folder; one that says nothing where there is none yet.

    What it says holds together; the segments are not looked at.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it is something else than a checkpoint, or its manifest is damaged.
    """
    try:
        names = os.listdir(path)
    except NotADirectoryError as error:
        raise ValueError(f"{path}: no folder, and a checkpoint is one") from error
    if MANIFEST not in names:
        # Where the first save was killed, all names are ours.
        if any(name != LOCK and not _OURS.fullmatch(name) for name in names):
            raise ValueError(f"{path}: a folder that is not empty, and no checkpoint of rlcpu")
        return _NOTHING
    path = path / MANIFEST
    with open(open_file(path, os.O_RDONLY), "rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_MANIFEST:
            raise ValueError(f"{path}: no manifest of rlcpu: too large")
        match = _TEXT.fullmatch(file.read())
    if match is None:
        raise ValueError(f"{path}: no manifest of rlcpu, or damaged")
    if int(match[1]) != VERSION:
        raise ValueError(f"{path}: version {int(match[1])}, expected {VERSION}")
    if _digest(match[3]).encode() != match[2]:
        raise ValueError(f"{path}: damaged: wrong checksum")
    try:
        return _decode(json.loads(match[3]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: no manifest of rlcpu: {error!r}") from error


def _decode(content: Any) -> _Manifest:
    """A manifest whose every name and number can be relied upon, from JSON; else any exception."""
    token, header, files, found = (content[name] for name in _Manifest._fields)
    sections = {name: (size, [_Part(*row) for row in rows]) for name, (size, rows) in found.items()}
    parts = [part for _, each in sections.values() for part in each]
    numbers = [*files.values(), *(size for size, _ in sections.values())]
    numbers += [number for part in parts for number in part[1:]]
    names = [(_TOKEN, [token]), (_SEGMENT, files), (_SECTION, sections)]
    if not all(pattern.fullmatch(name) for pattern, each in names for name in each):
        raise ValueError("a name that is none of ours")
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise ValueError("a number that is no size")
    if not isinstance(header, dict):
        raise ValueError("the header is no object")
    used = Counter[str]()
    for part in parts:
        used[part.file] += part.size
        if part.offset + part.size > files[part.file] or used[part.file] > files[part.file]:
            raise ValueError(f"{part}: overlaps others, or ends beyond the end of its file")
    return _Manifest(token, header, files, sections)
