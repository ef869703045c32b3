"""Named bytes in a folder, saved again and again, whole after every crash.

Each save writes the bytes that have changed to one new file, a segment, which nobody changes later.
`manifest.json` lists the segments, and the parts of them that make up each section. A part is a
table of ranges followed by their bytes. Parts lie over zeros, later ones over earlier ones.

A save makes its segment durable, writes a new manifest beside the old one, puts it in its place
with one `os.replace`, and deletes the files that nothing names any more. A process that is killed
at any moment leaves the old checkpoint or the new one, and the next save deletes what it left.

The manifest holds a checksum of its content, so that every flipped bit is noticed:

    {"format": "rlcpu replay", "version": 3, "blake2b": "...",
    "content": {"token": ..., "header": ..., "files": ..., "sections": ...}}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
VERSION = 3
# Bytes that are copied and checked at a time: they stay in the cache.
BLOCK = 1 << 18
# Parts of a section, after which a save writes it whole: a load opens as many files, and each save
# writes a manifest of 75 bytes for each part.
MOST_PARTS = 256

_FORMAT = "rlcpu replay"
_OURS = re.compile(r"rlcpu-[0-9a-f]{32}\.(data|part)")
_SEGMENT = re.compile(r"rlcpu-[0-9a-f]{32}\.data")
_SECTION = re.compile(r"[a-z0-9_]+")
_TOKEN = re.compile(r"[0-9a-f]{32}")


class Section(NamedTuple):
    """A part of a buffer's memory."""

    name: str  # of small letters, digits and underscores
    data: Bytes  # uint8 (num_bytes,), contiguous; nobody may write to it during a save
    #: Ranges [begin, end) of bytes, (num_ranges, 2), apart from each other, outside of which
    #: nothing changed since the save that `since` names; None: any byte may have changed. A section
    #: that has grown since then was followed by zeros.
    changed: Ranges | None = None
    #: Ranges outside of which all bytes are zero, or of no use; None: all of it.
    written: Ranges | None = None


class _Part(NamedTuple):
    """Ranges of a section: a table of (num_ranges, 2) int64 and their bytes, and their CRC-32.

    CRC-32 at 6.4 GB/s costs less than writing; SHA-1 and SHA-256 make 1.9, BLAKE2b 1.3 (zlib 1.2.13
    and OpenSSL 3.0 on Zen 5). It finds every burst of up to 32 bits.
    """

    file: str
    offset: int  # of the table in the file
    num_ranges: int
    num_bytes: int  # of all ranges
    checksum: int  # of table and bytes

    @property
    def size(self) -> int:
        """Return the bytes of the file that table and ranges take."""
        return 16 * self.num_ranges + self.num_bytes


class _Manifest(NamedTuple):
    """One save."""

    token: str  # names the save
    header: dict[str, Any]
    files: dict[str, int]  # bytes of each segment
    sections: dict[str, tuple[int, list[_Part]]]  # bytes and parts of each section


class _SectionPlan(NamedTuple):
    """Treatment of a section by a save."""

    section: Section
    parts: list[_Part]  # that lie in old segments, and stay
    table: Table  # ranges that are written to the new segment


#: That of a folder without a checkpoint.
_NOTHING = _Manifest(token="", header={}, files={}, sections={})


# ---------------------------------------------------------------- saving


def save(
    path: str | os.PathLike[str],
    header: dict[str, Any],
    sections: Sequence[Section],
    since: str | None = None,
) -> str:
    """Write a checkpoint, or what changed in it, and return a token that names this save.

    Saves to one folder wait for each other; a save waits for readers, and they for it. A folder
    takes at most twice its data: a save that would exceed it writes everything anew.

    Args:
        path: a folder, to be made where it does not exist; what contains it does.
        header: what is no array; what JSON says exactly (no NaN, keys are str, no tuples).
        sections: the arrays, never copied as a whole.
        since: the token of the save, or of a `Reader`, after which `changed` counts. If the
            checkpoint in the folder is another one, everything is written.

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
            previous = old if old.token == since and not _find_damage(path, old) else _NOTHING
            new = _write_segment(path, token, header, sections, previous)
            temporary = path / f"rlcpu-{token}.part"
            with new_file(temporary) as file:
                file.write(_encode(new))
            sync(path)  # the segment's name has to last before the manifest that names it
            os.replace(temporary, path / MANIFEST)
            sync(path)
        finally:
            _sweep(path)
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
    """Write a segment, named by the save's token, and return the manifest of the new checkpoint.

    It has what changed since `old`, the manifest that `Section.changed` counts from; all since
    `_NOTHING`.
    """
    name, listed = f"rlcpu-{token}.data", {}
    with new_file(path / name) as file:
        for section, parts, table in _plan(sections, old):
            if len(table):
                checksum, begin = 0, file.tell()
                for piece in (table.tobytes(), *_pieces(table, section.data)):
                    file.write(piece)
                    checksum = zlib.crc32(piece, checksum)
                num_bytes = file.tell() - begin - table.nbytes
                parts = [*parts, _Part(name, begin, len(table), num_bytes, checksum)]
            listed[section.name] = len(section.data), parts
        size = file.tell()
    files = [part.file for _, parts in listed.values() for part in parts]
    return _Manifest(token, header, {each: old.files.get(each, size) for each in files}, listed)


def _plan(sections: Sequence[Section], old: _Manifest) -> list[_SectionPlan]:
    """Return what is written: changes alone, unless the folder would take more than twice its data.

    A section is written whole where it is new, has shrunk, or has too many parts already.
    """
    whole = [_SectionPlan(each, [], _table(each.written, each.data)) for each in sections]
    changes: list[_SectionPlan] = []
    for plan in whole:
        section = plan.section
        size, parts = old.sections.get(section.name, (math.inf, []))  # inf: a new one
        if section.changed is None or size > len(section.data) or len(parts) >= MOST_PARTS:
            changes.append(plan)
        else:
            table = _table(section.changed, section.data)
            changes.append(_SectionPlan(section, parts, table))
    old_files = {part.file for plan in changes for part in plan.parts}
    bytes_after = sum(old.files[name] for name in old_files)
    bytes_after += sum(_num_bytes(plan.table) for plan in changes)
    whole_bytes = sum(_num_bytes(plan.table) for plan in whole)
    return changes if bytes_after <= 2 * whole_bytes else whole


def _table(ranges: Ranges | None, data: Bytes) -> Table:
    """Return ranges that are not empty; everything for None."""
    table = np.array([(0, len(data))] if ranges is None else ranges, "<i8").reshape(-1, 2)
    return table[table[:, 0] < table[:, 1]]


def _num_bytes(table: Table) -> int:
    """Return the number of bytes that ranges take in a segment."""
    return table.nbytes + int((table[:, 1] - table[:, 0]).sum())


def _pieces(table: Table, data: Bytes) -> Iterator[Any]:
    """Return the bytes of ranges, at most BLOCK at a time."""
    view = data.data
    for begin, end in table.tolist():
        for at in range(begin, end, BLOCK):
            yield view[at : min(at + BLOCK, end)]


def _sweep(path: Path) -> None:
    """Delete our files that the manifest does not name, now or by the next save; never fails."""
    with contextlib.suppress(OSError, ValueError):
        named = _current(path).files
        for name in os.listdir(path):
            if _OURS.fullmatch(name) and name not in named:
                with contextlib.suppress(OSError):
                    os.unlink(path / name)


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class Reader:
    """An open checkpoint; see `reading`."""

    path: Path  # the folder
    header: dict[str, Any]  # what `save` was given
    token: str  # names this save; for `since` in `save`
    sections: dict[str, tuple[int, list[_Part]]]  # bytes and parts of each
    prefix: str = ""  # stands before the names that methods get

    def within(self, prefix: str) -> Reader:
        """Return a reader of sections whose names begin with `prefix`; their rest is the name."""
        return replace(self, prefix=self.prefix + prefix)

    def num_bytes(self, name: str) -> int:
        """Return the bytes of a section; ValueError where there is none of this name."""
        return self._section(name)[0]

    def num_stored(self, name: str) -> int:
        """Return the bytes of a section that lie in files; all others are zeros."""
        return sum(part.num_bytes for part in self._section(name)[1])

    def read_into(self, name: str, out: Bytes) -> None:
        """Fill zeros, uint8 (num_bytes,), with a section; ValueError if it is damaged.

        Zeros of the section are not written: what was never added takes no memory.
        """
        num_bytes, parts = self._section(name)
        if len(out) != num_bytes:
            raise ValueError(f"section {name}: {num_bytes} bytes, expected {len(out)}")
        for part in parts:
            self._read_part(part, out)

    def _read_part(self, part: _Part, out: Bytes) -> None:
        """Read one part of a file into `out`, in the ranges that the part names.

        Raises:
            ValueError: its ranges are outside of `out`, or its checksum is wrong.
        """
        path = self.path / part.file
        table = np.empty((part.num_ranges, 2), "<i8")
        with open_file(path, "rb") as file:
            file.seek(part.offset)
            checksum = _fill(file, table.reshape(-1).view(np.uint8).data, 0, path)  # from 0 on
            begin, end = table.T
            within = ((begin >= 0) & (begin <= end) & (end <= len(out))).all()
            if not within or _num_bytes(table) != part.size:
                raise ValueError(f"{path}: damaged: no ranges of {len(out)} bytes")
            for piece in _pieces(table, out):
                checksum = _fill(file, piece, checksum, path)
        if checksum != part.checksum:
            raise ValueError(f"{path}: damaged: wrong checksum")

    def _section(self, name: str) -> tuple[int, list[_Part]]:
        """Return bytes and parts of a section; ValueError where there is none of this name."""
        name = self.prefix + name
        if name not in self.sections:
            raise ValueError(f"{self.path}: no section {name}, but {', '.join(self.sections)}")
        return self.sections[name]


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], kind: str | None = None) -> Iterator[Reader]:
    """Open a checkpoint of a kind, or of any; saves wait until it is closed.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: it is damaged or truncated, foreign, of a version that is unknown here, or of
            another kind. Whatever nonsense leads to in the end is a ValueError too.
    """
    path = check_path("path", path)
    with locked(path, write=False):
        manifest = _current(path)
        if not manifest.token:
            raise FileNotFoundError(f"{path}: no checkpoint")
        if damage := _find_damage(path, manifest):
            raise ValueError(damage)
        if kind and manifest.header.get("buffer") != kind:
            raise ValueError(f"{path}: holds a {manifest.header.get('buffer')}, expected a {kind}")
        try:
            yield Reader(path, manifest.header, manifest.token, manifest.sections)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{path}: does not fit: {error!r}") from error


def _fill(file: Any, piece: memoryview, checksum: int, path: Path) -> int:
    """Fill a piece with the next bytes of a file, and return `checksum` continued over it."""
    if file.readinto(piece) < len(piece):
        raise ValueError(f"{path}: too short")
    return zlib.crc32(piece, checksum)


def _find_damage(path: Path, manifest: _Manifest) -> str:
    """Return what is wrong with the sizes of a manifest's files; "" if nothing is."""
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
    """Return the text of a manifest."""
    content = manifest._asdict()
    first = {"format": _FORMAT, "version": VERSION, "blake2b": _digest(content)}
    return json.dumps({**first, "content": content}).encode()


def _digest(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def _current(path: Path) -> _Manifest:
    """Return the manifest in a folder, or `_NOTHING` where there is none yet.

    Raises:
        ValueError: the folder is something else than a checkpoint, or its manifest is damaged.
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
    with open_file(path, "rb") as file:
        text = file.read()
    try:
        whole = json.loads(text)
        is_ours, version = whole["format"] == _FORMAT, whole["version"]
        if is_ours and version == VERSION:
            if json.dumps(whole).encode() != text or _digest(whole["content"]) != whole["blake2b"]:
                raise ValueError("damaged: wrong checksum")
            return _decode(whole["content"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: no manifest of rlcpu, or damaged: {error!r}") from error
    raise ValueError(f"{path}: version {version}, expected {VERSION} of {_FORMAT}")


def _decode(content: Any) -> _Manifest:
    """Return the manifest in a JSON value, every name and number checked; raises any exception."""
    token, header, files, listed = (content[name] for name in _Manifest._fields)
    sections = {
        name: (size, [_Part(*row) for row in rows]) for name, (size, rows) in listed.items()
    }
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
    if any(part.offset + part.size > files[part.file] for part in parts):
        raise ValueError("a part ends beyond the end of its file")
    if sum(part.size for part in parts) > sum(files.values()):  # memory is taken for parts
        raise ValueError("parts overlap")
    return _Manifest(token, header, files, sections)
