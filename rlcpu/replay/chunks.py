"""Chunks of bytes in data files: appended to new ones, read and compared in old ones."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from rlcpu.replay.manifest import ZEROS, Chunk, open_file

# A save after 16 places of 40 KB changed in 800 MB takes 17 ms with chunks of 256 KiB, 36 with
# 64 KiB (the manifest is four times as long), 52 with 1 MiB and 350 with 16 MiB. A full save and a
# load cost the same with each: 0.6 and 0.25 s.
MIN_CHUNK_BYTES = 1 << 18
# Larger sections have larger chunks instead of more: the manifest is written anew each time.
MAX_CHUNKS = 1 << 14
# Old chunks die with their file: a file is deleted when nothing in it is used.
MAX_FILE_BYTES = 1 << 26


def chunk_bytes(num_bytes: int) -> int:
    """Bytes of each chunk of a section: a power of two."""
    size = MIN_CHUNK_BYTES
    while size * MAX_CHUNKS < num_bytes:
        size *= 2
    return size


def parts(data: npt.NDArray[np.uint8], size: int) -> Iterator[memoryview]:
    """A section's bytes in chunks of `size`."""
    return (data[begin : begin + size].data for begin in range(0, len(data), size))


# CRC-32 at 6.4 GB/s costs less than writing; SHA-1 and SHA-256 make 1.9, BLAKE2b 1.3, MD5 0.8
# (zlib 1.2.13 and OpenSSL 3.0 on Zen 5). It finds every burst of up to 32 bits and misses one
# other change in 2^32, so that it alone never decides that a chunk need not be written.
checksum = zlib.crc32


def is_zero(data: memoryview) -> bool:
    """Whether all bytes are zero: by words, 5 us for 256 KiB."""
    whole = len(data) // 8 * 8
    words = np.frombuffer(data[:whole], np.uint64)
    return not (words.size and words.max()) and not any(data[whole:])


class Writer:
    """Appends chunks to new data files; all are durable when the `with` block ends.

    Args:
        folder: where the files are made.
        token: what their names begin with.
    """

    def __init__(self, folder: Path, token: str) -> None:
        self.files: dict[str, int] = {}
        self._folder, self._token = folder, token
        self._handle, self._name = -1, ""

    def append(self, data: memoryview) -> Chunk:
        """Write one chunk, unless it is zeros, as what was never added to is; where it is now."""
        if is_zero(data):
            return ZEROS
        if self._handle < 0 or self.files[self._name] + len(data) > MAX_FILE_BYTES:
            self._finish()
            self._name = f"rlcpu-{self._token}-{len(self.files)}.data"
            self._handle = create(self._folder / self._name)
            self.files[self._name] = 0
        chunk = Chunk(self._name, self.files[self._name], checksum(data))
        write(self._handle, data)
        self.files[self._name] += len(data)
        return chunk

    def _finish(self) -> None:
        if self._handle >= 0:
            os.fsync(self._handle)
            self._close()

    def _close(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            os.close(handle)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._close()


def create(path: Path) -> int:
    """A new file's descriptor, for writing; its mode follows the umask."""
    return open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def write(handle: int, data: memoryview) -> None:
    """Write all bytes: the system may take fewer at a time."""
    while data:
        data = data[os.write(handle, data) :]


class Source:
    """Reads chunks of data files; keeps the last file open.

    Args:
        folder: where the files are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: FileIO | None = None
        self._name = ""
        self._scratch = np.empty(0, np.uint8)

    def read(self, chunk: Chunk, out: memoryview, zeroed: bool = False) -> None:
        """Fill `out` with a chunk; `zeroed` says that it holds zeros already.

        Raises:
            ValueError: the file is missing or too short, or these are not the bytes once written.
        """
        if chunk == ZEROS:
            if not zeroed:
                np.frombuffer(out, np.uint8)[:] = 0
            return
        file, rest = self._open(chunk.file), out
        file.seek(chunk.offset)
        while rest:
            count = file.readinto(rest)
            if not count:
                raise ValueError(f"{self._folder / chunk.file}: too short")
            rest = rest[count:]
        if checksum(out) != chunk.checksum:
            raise ValueError(f"{self._folder / chunk.file}: damaged: wrong checksum")

    def holds(self, chunk: Chunk, data: memoryview) -> bool:
        """Whether a chunk is there, whole, and equal to `data`."""
        if chunk == ZEROS or checksum(data) != chunk.checksum:
            return chunk == ZEROS and is_zero(data)
        if len(self._scratch) < len(data):
            self._scratch = np.empty(len(data), np.uint8)
        found = self._scratch[: len(data)]
        try:
            self.read(chunk, found.data)
        except (OSError, ValueError):
            return False
        return np.array_equal(found, np.frombuffer(data, np.uint8))

    def _open(self, name: str) -> FileIO:
        if self._file is None or name != self._name:
            self.close()
            try:
                self._file = FileIO(open_file(self._folder / name, os.O_RDONLY))
                self._name = name
            except FileNotFoundError as error:
                raise ValueError(f"{self._folder / name}: missing") from error
        return self._file

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


def lengths(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Bytes of each data file; -1 for what is no file."""
    found = {}
    for name in names:
        try:
            status = os.lstat(folder / name)
        except FileNotFoundError:
            found[name] = -1
        else:
            found[name] = status.st_size if stat.S_ISREG(status.st_mode) else -1
    return found
