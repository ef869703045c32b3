"""Files in the folder of a checkpoint, which may be anybody's: no links, durable, locked."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "rlcpu.lock"
# No link is followed, and no pipe waited for. Windows has neither, but tells text from bytes here.
_FLAGS = sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "BINARY"))
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


def open_file(path: Path, flags: int) -> int:
    """The descriptor of a file in a checkpoint's folder, which may be anybody's.

    A new file's mode follows the umask.

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


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Callable[[bytes], None]]:
    """A function that writes to a new file, which is durable in the end."""
    handle = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def write(block: bytes) -> None:
        view = memoryview(block)
        while view:  # the system may take fewer at a time
            view = view[os.write(handle, view) :]

    try:
        yield write
        os.fsync(handle)
    finally:
        os.close(handle)


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
    """Hold a folder's lock: one writer, or any number of readers; wait for it.

    It ends with the process that holds it, however that ends, which a file that is merely there
    would not. The file stays: a second one of the same name would be a second lock. Without
    locks (Windows, some network file systems), two saves at once may lose one's segment.
    """
    try:
        handle = open_file(path / LOCK, os.O_RDWR | os.O_CREAT if write else os.O_RDONLY)
    except OSError:
        if write:
            raise
        handle = -1  # a reader needs none, as in some copies, or where it may not open one
    try:
        _flock(handle, "LOCK_EX" if write else "LOCK_SH")
        yield
    finally:
        # A process forked meanwhile has the handle too: closing it here would not be enough.
        _flock(handle, "LOCK_UN")
        if handle >= 0:
            os.close(handle)


def _flock(handle: int, operation: str) -> None:
    try:
        if fcntl is not None and handle >= 0:
            fcntl.flock(handle, getattr(fcntl, operation))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
