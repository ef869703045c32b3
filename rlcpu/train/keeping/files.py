"""Files that are there whole or not at all: agents, curves, pictures."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

#: This machine in the names of temporary files: a folder may be another machine's as well.
_NODE = f"{zlib.crc32(platform.node().encode()):08x}"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], is_durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of `path` when the block ends without an exception.

    What killed processes of this machine left of the same file is removed (on Windows it stays:
    there is no safe way to ask whether a process runs). A device or a pipe is written as it is.

    Args:
        path: of the file.
        is_durable: wait until the file is on the disk under its name, 15 ms. Otherwise it is there
            after a kill, and may be empty or the old one after a power failure.

    Raises:
        OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if _is_special(target):
        with open(target, "wb") as file:
            yield file
        return
    temporary = _temporary(target)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        # There is none after the replacement, and no trouble here may hide what went wrong before.
        with contextlib.suppress(OSError):
            temporary.unlink()
    with contextlib.suppress(OSError):
        if is_durable:
            _sync(target.parent)
        _sweep(target)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Find out whether `replacing` can write a file, by making one beside it.

    Raises:
        OSError: it cannot.
    """
    target = Path(os.path.realpath(path))
    if os.path.isdir(target):
        raise IsADirectoryError(f"{os.fspath(path)!r} is a folder, expected a file name")
    if not os.path.isdir(target.parent):
        raise FileNotFoundError(f"there is no folder {str(Path(path).parent)!r}")
    if not _is_special(target):
        temporary = _temporary(target)
        open(temporary, "xb").close()
        temporary.unlink()
    elif not os.access(target, os.W_OK):
        raise PermissionError(f"{os.fspath(path)!r} cannot be written")


def _is_special(target: Path) -> bool:
    """Tell whether something is there that is neither file nor folder, such as /dev/null."""
    return os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target)


def _temporary(target: Path) -> Path:
    """Return a new name beside a file; it tells whose it is."""
    return target.with_name(f"{target.name}.{_NODE}-{os.getpid()}-{secrets.token_hex(4)}.part")


def _sync(folder: Path) -> None:
    """Make the folder's names durable, where the system can."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(target: Path) -> None:
    """Remove temporary files of the same target whose process has ended."""
    ours = re.compile(re.escape(target.name) + rf"\.{_NODE}-(\d+)-[0-9a-f]{{8}}\.part")
    for name in os.listdir(target.parent):
        match = ours.fullmatch(name)
        if match and not _is_running(int(match[1])):
            with contextlib.suppress(OSError):
                os.unlink(target.parent / name)


def _is_running(process: int) -> bool:
    """Tell whether a process of this machine may still run."""
    if os.name != "posix":  # os.kill(process, 0) would end it on Windows
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
