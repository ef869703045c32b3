"""Machine code on disk: one file for each kernel, argument types, processor and version of numba.

Numba's own cache keeps an index of all variants of one function and numbers their files. All
environments share the drivers here: two processes that fill the cache at once would give two
kernels the same number, and one of them the other's code from then on. Here the name of a file is
the hash of all that decides its content, so that no index is needed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import sys
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, serialize

from rlcpu.kernels import announce
from rlcpu.kernels.fingerprint import fingerprint

# Any: some releases of numba have types, for a part of what is used here.
_pack: Any = serialize.dumps
_NumbaCache: Any = caching.CompileResultCacheImpl


@functools.cache
def _numba_cache() -> Any:
    """Numba's part of the work: finding a folder and packing machine code; None without a folder.

    The folder is NUMBA_CACHE_DIR, this package's __pycache__ or the user's cache, the first that
    can be written.
    """
    try:
        return _NumbaCache(fingerprint)
    except RuntimeError:
        warn_uncached("no folder can be written")
        return None


def cache_folder() -> Path | None:
    """Folder of the machine code, made if need be, or None where nothing can be written."""
    cache = _numba_cache()
    return Path(cache.locator.get_cache_path()) if cache else None


class KernelCache(caching.NullCache):
    """The cache of one kernel, which touches no file before the kernel's first call.

    Where nothing can be written, kernels are compiled in every process, after one warning.

    Args:
        kernel: the compiled driver.
        check: called with fresh machine code before it is kept; raises to refuse it.
    """

    def __init__(self, kernel: Any, check: Callable[[], None]) -> None:
        self._kernel, self._check = kernel, check

    @functools.cached_property
    def _fingerprint(self) -> str:
        """The kernel's hash, which becomes a part of its name in machine code.

        Numba numbers the functions of a process to tell their symbols apart. Kernels that two
        processes compiled would meet under one symbol in a third, and share its environment: the
        array that one returns gets the dtype of the other's.
        """
        found = fingerprint(self._kernel)
        function = self._kernel.py_func
        function.__qualname__ = f"{function.__qualname__}_{found[:16]}"
        return found

    @property
    def cache_path(self) -> str | None:
        """Folder of the machine code, or None without one."""
        return str(cache_folder() or "") or None

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        folder, python = cache_folder(), sys.implementation.cache_tag
        if folder is None:
            return None
        versions = numba.__version__, python, getattr(sys, "abiflags", "")
        key = (self._fingerprint, str(sig), codegen.magic_tuple(), *versions)
        name = self._kernel.py_func.__name__
        return folder / f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code for argument types, or None."""
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        if path is None:
            return None
        try:
            with announce.counted():
                return _numba_cache().rebuild(target_context, pickle.loads(path.read_bytes()))
        except (FileNotFoundError, EOFError, pickle.UnpicklingError, ImportError, AttributeError):
            return None  # absent, damaged, or of what was renamed since: it is written anew
        except Exception as error:
            warn_uncached(f"{path} cannot be loaded: {error!r}")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep freshly compiled code, once it has passed the kernel's check."""
        self._check()
        path = self._path(sig, data.library.codegen)
        if path is None or not _numba_cache().check_cachable(data):
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, _pack(_numba_cache().reduce(data)))
        except OSError as error:
            warn_uncached(str(error))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that other processes see whole or not at all."""
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


_warned = False


def warn_uncached(reason: str) -> None:
    """Say once in a process that compiled kernels are not kept."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"rlcpu keeps no compiled kernels ({reason}): every process compiles anew. "
            "Set NUMBA_CACHE_DIR to a folder that can be written.",
            RuntimeWarning,
            stacklevel=2,
        )
