"""A checkpoint's folder: whose it is, who may write, and what interrupted saves left."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Container, Iterator
from pathlib import Path

from rlcpu.replay import manifest
from rlcpu.replay.manifest import Manifest

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "rlcpu.lock"
TEMPORARY = re.compile(r"rlcpu-[0-9a-f]{32}\.part")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


def make(path: Path) -> None:
    """Make a checkpoint's folder, if it is not there yet.

    Raises:
        FileNotFoundError: there is no folder to make it in.
        ValueError: there is something else.
    """
    if os.path.lexists(path):
        if _has_manifest(path):
            manifest.read_text(path)
        return
    try:
        path.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}") from error
    sync(path.parent)


def current(path: Path) -> Manifest:
    """The manifest in a folder; one that says nothing where there is none yet.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it is something else than a checkpoint, or its manifest is damaged.
    """
    return manifest.read(path) if _has_manifest(path) else Manifest("", {}, {}, {})


def _has_manifest(path: Path) -> bool:
    """Whether there is one; raises as `current` for a folder that has none and is not ours."""
    try:
        names = os.listdir(path)
    except NotADirectoryError as error:
        raise ValueError(f"{path}: no folder, and a checkpoint is one") from error
    if manifest.NAME in names:
        return True
    # Where the first save was killed, all names are ours.
    if any(name != LOCK and not _is_ours(name) for name in names):
        raise ValueError(f"{path}: a folder that is not empty, and no checkpoint of rlcpu")
    return False


def _is_ours(name: str) -> bool:
    return bool(manifest.DATA_FILE.fullmatch(name) or TEMPORARY.fullmatch(name))


@contextlib.contextmanager
def locked(path: Path, *, write: bool) -> Iterator[None]:
    """Hold a folder's lock: one writer, or any number of readers; wait for it.

    It ends with the process that holds it, however that ends, which a file that is merely there
    would not. The file stays: a second one of the same name would be a second lock. Without
    locks (Windows, some network file systems), two saves at once may lose one's data files.
    """
    handle = _open_lock(path, write)
    try:
        _flock(handle, "LOCK_EX" if write else "LOCK_SH")
        yield
    finally:
        # A process forked meanwhile has the handle too: closing it here would not be enough.
        _flock(handle, "LOCK_UN")
        if handle >= 0:
            os.close(handle)


def _open_lock(path: Path, write: bool) -> int:
    """The lock's file; -1 for a reader where there is none, as in some copies, or none to open."""
    try:
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        return manifest.open_file(path / LOCK, flags)
    except OSError:
        if write:
            raise
        return -1


def _flock(handle: int, operation: str) -> None:
    if fcntl is not None and handle >= 0:
        try:
            fcntl.flock(handle, getattr(fcntl, operation))
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise


def sweep(path: Path, kept: Container[str] | None = None) -> None:
    """Delete every file of ours that is not `kept`, or that the manifest does not name.

    It never fails: what cannot be deleted now is deleted by the next save.
    """
    with contextlib.suppress(OSError, ValueError):
        kept = current(path).files if kept is None else kept
        for name in os.listdir(path):
            if _is_ours(name) and name not in kept:
                with contextlib.suppress(OSError):
                    os.unlink(path / name)


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
