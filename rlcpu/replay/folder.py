"""Files in the folder of a checkpoint, which may be anybody's: no links, durable, locked."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "rlcpu.lock"
# No link is followed, and no pipe waited for; Windows knows neither.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_FILE = (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


def open_file(path: Path, mode: str) -> IO[bytes]:
    """Open a file in a checkpoint's folder; ValueError if it is a link or no file."""
    try:
        file: Any = open(path, mode, opener=_open)  # noqa: SIM115 (the caller closes it)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise ValueError(f"{path}: a link or no file, and expected a file") from error
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{path}: no file, and expected one")
    return file


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | _FLAGS, 0o666)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file to be written to, which is durable in the end."""
    with open_file(path, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Make a folder's names durable, where the system can."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # Windows opens no folder
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, *, write: bool) -> Iterator[None]:
    """Wait for a folder's lock, and hold it: one writer, or any number of readers.

    The lock ends with the process that holds it, however that ends. Its file is never deleted: a
    second one of the same name would be a second lock. Without locks (Windows, some network file
    systems), two saves at once may lose the segment of one.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open_file(path / LOCK, "ab" if write else "rb"))
        except OSError:
            if write:
                raise
            # A reader needs none, as in some copies, or where it may not open one.
        else:
            _flock(file, "LOCK_EX" if write else "LOCK_SH")
            # A process forked meanwhile has the file too: closing it here would not be enough.
            stack.callback(_flock, file, "LOCK_UN")
        yield


def _flock(file: IO[bytes], operation: str) -> None:
    try:
        if fcntl is not None:
            fcntl.flock(file, getattr(fcntl, operation))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
