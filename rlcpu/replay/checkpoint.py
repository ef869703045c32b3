"""Buffers in folders: what changed is written beside the old, and one rename makes it count.

A checkpoint is a folder. `manifest.json` names the parts of immutable data files that are the
chunks of each section; a save writes the chunks that changed into new files, makes them durable,
replaces the manifest, and deletes the files that nothing names any more. A process killed at any
moment leaves the old checkpoint or the new one, and the next save deletes what it left.

Many chunks share a file, because small chunks need many: what 16 environments add in 100 steps is
16 places of 40 KB.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.replay import folder, manifest
from rlcpu.replay.checks import check_path
from rlcpu.replay.chunks import Source, Writer, chunk_bytes, create, lengths, parts, write
from rlcpu.replay.manifest import Chunked, Manifest, encode
from rlcpu.replay.sections import Section, Update, check_bytes, check_sections


def save(
    path: str | os.PathLike[str],
    header: dict[str, Any],
    sections: Sequence[Section],
    since: str | None = None,
) -> str:
    """Write a checkpoint, or what changed in it.

    Saves to one folder wait for each other; a save waits for readers, and they for it.

    Args:
        path: a folder, to be made where it does not exist; what contains it does.
        header: what is no array; what JSON says exactly (no NaN, keys are str, no tuples).
        sections: the arrays, read chunk by chunk and never copied as a whole.
        since: the token of the save, or of the `Reader`, after which `changed` counts. If the
            checkpoint in the folder is another one, all bytes are compared with it.

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
    manifest.check_header(header)
    check_sections(sections)
    folder.make(path)
    with folder.locked(path, write=True):
        old = folder.current(path)
        token = secrets.token_hex(16)
        try:
            with contextlib.closing(Source(path)) as source, Writer(path, token) as writer:
                chunked = Update(path, old, old.token == since, source, writer).run(sections)
            new = Manifest(token, header, {}, chunked)
            used = new.used()
            files = {name: size for name, size in old.files.items() if used[name]}
            files.update(writer.files)
            _replace(path, new._replace(files=files))
        except BaseException:
            # The manifest says which files go: an interrupt may fall just after its replacement.
            folder.sweep(path)
            raise
        folder.sweep(path, files)
    return token


def _replace(path: Path, new: Manifest) -> None:
    """Make a manifest the one that counts. The data files' names have to last before it does."""
    temporary = path / f"rlcpu-{new.token}.part"
    handle = create(temporary)
    try:
        write(handle, memoryview(encode(new)))
        os.fsync(handle)
    finally:
        os.close(handle)
    folder.sync(path)
    os.replace(temporary, path / manifest.NAME)
    folder.sync(path)


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
        self._path = check_path("path", path)
        with contextlib.ExitStack() as stack:
            stack.enter_context(folder.locked(self._path, write=False))
            read = folder.current(self._path)
            if not read.token:
                raise FileNotFoundError(f"{self._path}: no checkpoint")
            for name, size in lengths(self._path, read.files).items():
                if size != read.files[name]:
                    found = "missing" if size < 0 else f"{size} bytes"
                    raise ValueError(f"{self._path / name}: {found}, expected {read.files[name]}")
            for name, section in read.sections.items():
                # Chunks of zeros are in no file: the manifest's length has to speak for them.
                if section.chunk_bytes > chunk_bytes(section.num_bytes):
                    raise ValueError(f"{self._path}: section {name}: chunks are too large")
            self._source = stack.enter_context(contextlib.closing(Source(self._path)))
            self._open = stack.pop_all()
        self._sections = read.sections
        self.header, self.token, self.names = read.header, read.token, tuple(read.sections)

    def num_bytes(self, name: str) -> int:
        """Bytes of a section; ValueError where there is none of this name."""
        return self._section(name).num_bytes

    def read_into(self, name: str, out: npt.NDArray[np.uint8], zeroed: bool = False) -> None:
        """Fill `out`, uint8 (num_bytes,), with a section, chunk by chunk.

        Where `out` holds zeros already (`zeroed`), those of the section are not written, so that
        the memory of what was never added is not taken.

        Raises:
            ValueError: its data are damaged or truncated: `out` is overwritten in part; or there
                is no such section, or `out` is not of its size.
        """
        section = self._section(name)
        check_bytes(name, out)
        if len(out) != section.num_bytes or not out.flags.writeable:
            raise ValueError(
                f"section {name}: out of {len(out)} bytes, expected {section.num_bytes}, writable"
            )
        for chunk, data in zip(section.chunks, parts(out, section.chunk_bytes), strict=True):
            self._source.read(chunk, data, zeroed)

    def _section(self, name: str) -> Chunked:
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
