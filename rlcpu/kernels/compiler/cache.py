"""Machine code on disk: one file for each kernel, argument types, processor and version of numba.

Numba's own cache keeps an index of all variants of one function and numbers their files. All
environments share the drivers here: two processes that fill the cache at once would give two
kernels the same number, and one of them the other's code from then on. Here the name of a file is
the hash of all that decides its content, so that no index is needed.

Machine code is run as it is found. A file therefore begins with a digest of its name and content,
and is taken only from a folder, and from an owner, that the user can trust.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import sys
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np

from rlcpu.kernels.compiler import announce, hooks
from rlcpu.kernels.compiler.functions import callees, fingerprint


@functools.cache
def _files() -> hooks.CodeFiles | None:
    """Return numba's part of keeping machine code; None without a folder for it."""
    try:
        return hooks.CodeFiles(fingerprint)
    except RuntimeError:
        warn_uncached("no folder can be written")
        return None


def cache_folder() -> Path | None:
    """Return the folder of the machine code; None if others can write to it.

    It may not be there yet: the first file that is written makes it. Others who can write to a
    parent of it can put another folder in its place, but files in that are not the user's, and are
    not read (`read_whole`).
    """
    files = _files()
    if files is None:
        return None
    folder = files.folder()
    with contextlib.suppress(FileNotFoundError):
        if _is_open_to_others(folder.stat()):
            warn_uncached(f"others than you can write to {folder}")
            return None
    return folder


#: Names without which a file cannot teach numba anything.
TEACHERS = (b"llvmlite", b"numba.core", b"numba.extending")
#: Settings of numba that decide its code, but for those of the processor.
_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT")


@functools.cache
def _compiler_version() -> str:
    """Return a hash of what decides code beside the functions of a kernel (its fingerprint)."""
    from rlcpu import __version__

    versions = __version__, numba.__version__, llvmlite.__version__, np.__version__
    return compiler_version(versions, *TEACHERS)


def compiler_version(versions: tuple[Any, ...], *teachers: bytes) -> str:
    """Return a hash of the versions of all that takes part in compiling, and of sources.

    The sources are those of this package that name LLVM or numba's interface for extensions: an
    intrinsic, an overload, a lowering or a pass may stand in any of them, and use what stands in
    another. To read all takes 10 ms, once in a process.

    Args:
        versions: of the packages that take part.
        *teachers: names without one of which a source does not count.
    """
    digest = hashlib.sha256(repr(versions).encode())
    package = Path(__file__).parents[2]
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if any(name in source for name in teachers):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + source)
    return digest.hexdigest()


#: Functions that kernels call, and whose names in machine code hold their hash already.
_named: set[Any] = set()


class KernelCache(hooks.Cache):
    """The cache of one kernel, which touches no file before the kernel's first call.

    Where nothing can be written, kernels are compiled in every process, after one warning.

    Args:
        kernel: the compiled driver.
        check: called with fresh machine code before it is kept; raises to refuse it.
    """

    def __init__(self, kernel: Any, check: Callable[[], None]) -> None:
        self._kernel, self._check = kernel, check
        self._turn: CompileTurn | None = None

    @functools.cached_property
    def _fingerprint(self) -> str:
        """Return the kernel's hash, and add hashes to the names of the kernel and its callees.

        Names become symbols in machine code, behind which numba counts the functions of a process
        to tell those of one name apart. Kernels that two processes compiled would meet under one
        symbol in a third, and share what numba keeps for a symbol: the array that one returns gets
        the dtype of the other's. So would functions that they call, if one factory made them.
        """
        digest = fingerprint(self._kernel)
        function = self._kernel.py_func
        function.__qualname__ = f"{function.__qualname__}_{digest[:16]}"
        for callee in callees(function):
            if callee.py_func not in _named and not callee.targetoptions.get("forceinline"):
                _named.add(callee.py_func)
                callee.py_func.__qualname__ += f"_{fingerprint(callee)[:16]}"
        return digest

    @property
    def cache_path(self) -> str | None:
        """Return the folder of the machine code, or None without one."""
        return str(cache_folder() or "") or None

    def _path(self, sig: Any) -> Path | None:
        """Return the file for argument types: its name is a hash of all that decides the code."""
        folder, python = cache_folder(), sys.implementation.cache_tag
        if folder is None:
            return None
        settings = [str(hooks.setting(name)) for name in _SETTINGS]
        versions = python, getattr(sys, "abiflags", ""), _compiler_version()
        processor = hooks.processor(self._kernel)
        key = (self._fingerprint, str(sig), processor, *versions, *settings)
        name = self._kernel.py_func.__name__
        return folder / f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.nbc"

    def lacks(self, sig: Any) -> bool:
        """Tell whether the code for argument types is missing, and could be kept."""
        path = self._path(sig)
        return path is not None and not path.exists()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code for argument types, or None, where this process compiles it now.

        Of processes that start together, one compiles a kernel, and the others wait for it.
        """
        path, files = self._path(sig), _files()
        if path is None or files is None:
            return None
        overload = self._load(path, files, target_context)
        if overload is None:
            self.end_turn()  # of an attempt that failed
            with announce.time_counted():
                self._turn = CompileTurn(path)  # waits for it
            overload = self._load(path, files, target_context)  # another process has compiled it
            if overload is not None:
                self.end_turn()
        if overload is not None:
            announce.count()
        return overload

    def end_turn(self) -> None:
        """Let others compile: this process has, or gave up."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()

    def _load(self, path: Path, files: hooks.CodeFiles, target_context: Any) -> Any:
        """Return the code of a file; None if it is absent or of no use."""
        try:
            with announce.time_counted():
                content = read_whole(path)
                if not content:
                    return None
                hooks.refresh_target(target_context)  # with what the code will be linked to
                return files.unpack(target_context, content)
        except (FileNotFoundError, ImportError, AttributeError):
            return None  # absent, or of what was renamed since: it is written anew
        except Exception as error:
            warn_uncached(f"{path} cannot be loaded: {error!r}")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep freshly compiled code, once it has passed the kernel's check."""
        try:
            self._check()
            path, files = self._path(sig), _files()
            content = files.pack(data) if path and files else None
            if path and content is not None:
                _keep(path, content)
        finally:
            announce.count()
            self.end_turn()


class CompileTurn:
    """The turn to compile what will be written to a path: one process has it at a time.

    It is a lock on a file beside the path, which the kernel takes back when a process ends, however
    it does. Where there are no such locks, and after `PATIENCE` seconds, it is taken all the same:
    code that is compiled twice is a loss of time alone.
    """

    PATIENCE = 120.0

    def __init__(self, path: Path) -> None:
        self._path, self._file = path.with_suffix(".turn"), -1
        end = time.monotonic() + self.PATIENCE
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            while time.monotonic() < end:
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    time.sleep(0.02)
        self._close()  # without the lock

    def end(self) -> None:
        """Give the turn to another process, if there is one that waits."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def read_or_make(path: Path | None, make: Callable[[], bytes]) -> bytes:
    """Return the content of a file, which `make` makes where it is absent or damaged.

    Of processes that start together one makes it, and the others wait for it. Without a path, or
    where nothing can be written, every process makes its own.
    """
    content = path and _read(path)
    if content or path is None:
        return content or make()
    turn = CompileTurn(path)  # waits for it
    try:
        content = _read(path)  # another process has made it
        if not content:
            content = make()
            _keep(path, content)
        return content
    finally:
        turn.end()


def _read(path: Path) -> bytes | None:
    """Return the content of a file; None if it is absent or of no use."""
    try:
        return read_whole(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        warn_uncached(f"{path} cannot be read: {error!r}")
        return None


def _keep(path: Path, content: bytes) -> None:
    """Write a file and its folder, or warn that nothing is kept."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        warn_uncached(str(error))


def read_whole(path: Path) -> bytes | None:
    """Read a file of `write_whole`; None if it is damaged, or others can write to it."""
    with path.open("rb") as file:
        content = file.read() if not _is_open_to_others(os.fstat(file.fileno())) else b""
    is_whole = content[:_DIGEST] == _digest(path.name, content[_DIGEST:])
    return content[_DIGEST:] if is_whole else None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, after its digest, that other processes see whole or not at all."""
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(_digest(path.name, content) + content)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


_DIGEST = hashlib.sha256().digest_size


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _is_open_to_others(status: os.stat_result) -> bool:
    """Tell whether others than the user and root can write to a file or folder.

    False on Windows.
    """
    if not hasattr(os, "getuid"):
        return False
    writers = stat.S_IWOTH | (0 if _is_private(status.st_gid) else stat.S_IWGRP)
    return status.st_uid not in (os.getuid(), 0) or bool(status.st_mode & writers)


def _is_private(group: int) -> bool:
    """Tell whether only the user, or root, is in a group: many systems give each user one."""
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:  # a container's user need not have a name
        return group == 0
    is_own = group == user.pw_gid and entry.gr_name == user.pw_name
    return group == 0 or (is_own and set(entry.gr_mem) <= {user.pw_name})


_warned = False


def warn_uncached(reason: str) -> None:
    """Say once in a process that compiled kernels are not kept."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"rlcpu keeps no compiled kernels ({reason}): every process compiles anew. "
            "Set NUMBA_CACHE_DIR to a folder that you can write to, and nobody else.",
            RuntimeWarning,
            stacklevel=2,
        )
