"""What a kernel's machine code depends on, as one hash, and the on-disk cache keyed by it."""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba.core.caching import FunctionCache, NullCache
from numba.core.dispatcher import Dispatcher
from numba.extending import _Intrinsic as Intrinsic


_PLAIN = (int, float, complex, str, bytes, frozenset, type(None), np.generic, np.dtype)


def _codes(code: types.CodeType) -> list[types.CodeType]:
    """The code object and those nested in it."""
    nested = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return [code, *(inner for outer in nested for inner in _codes(outer))]


def referenced_globals(function: types.FunctionType) -> dict[str, Any]:
    """The globals that a function reads, by name; builtins are left out."""
    names = {
        instruction.argval
        for code in _codes(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    scope = function.__globals__
    return {name: scope[name] for name in sorted(names) if name in scope}


def fingerprint(function: Callable[..., Any]) -> str:
    """SHA-256 of everything that decides a function's machine code, its callees included.

    It covers bytecode, constants, closed-over values and referenced globals, recursively through
    functions, and the source file of every intrinsic. Line numbers and file names do not count.
    """
    digest = hashlib.sha256()
    _add(digest, function, set())
    return digest.hexdigest()


def _add(digest: Any, value: Any, seen: set[int]) -> None:
    if isinstance(value, Dispatcher):
        options = {k: sorted(v) if isinstance(v, set) else v for k, v in value.targetoptions.items()}
        digest.update(repr(sorted(options.items())).encode())
        value = value.py_func
    if isinstance(value, types.FunctionType):
        _add_function(digest, value, seen)
    elif isinstance(value, Intrinsic):
        digest.update(_source_digest(inspect.getsourcefile(value._defn) or ""))
        _add_function(digest, value._defn, seen)
    elif isinstance(value, tuple | list):
        digest.update(type(value).__name__.encode())
        for item in value:
            _add(digest, item, seen)
    elif isinstance(value, type):
        digest.update(f"{value.__qualname__}{getattr(value, '_fields', '')}".encode())
    elif isinstance(value, types.ModuleType):
        digest.update(value.__name__.encode())
    elif isinstance(value, _PLAIN):
        digest.update(f"{type(value).__name__}:{value!r}".encode())
    else:  # numba knows it by name; a repr would hold its address
        digest.update(f"{type(value).__name__}:{getattr(value, '__name__', '')}".encode())


def _add_function(digest: Any, function: types.FunctionType, seen: set[int]) -> None:
    digest.update(function.__name__.encode())
    if id(function) in seen:
        return
    seen.add(id(function))
    for code in _codes(function.__code__):
        digest.update(code.co_code)
        digest.update(repr(code.co_names).encode())
        constants = (c for c in code.co_consts[_has_docstring(code) :])
        _add(digest, [c for c in constants if not isinstance(c, types.CodeType)], seen)
    attributes = {name for code in _codes(function.__code__) for name in code.co_names}
    for value in referenced_globals(function).values():
        _add(digest, value, seen)
        if isinstance(value, types.ModuleType):
            for name in sorted(attributes & vars(value).keys()):
                _add(digest, vars(value)[name], seen)
    for cell in function.__closure__ or ():
        _add(digest, cell.cell_contents, seen)
    _add(digest, function.__defaults__ or (), seen)


def _has_docstring(code: types.CodeType) -> bool:
    return bool(code.co_consts) and isinstance(code.co_consts[0], str)


@functools.cache
def _source_digest(path: str) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest() if path else b""


class _KeyedCache(FunctionCache):
    """Numba's cache of one kernel, with the fingerprint in place of the closure's pickle."""

    def __init__(self, kernel: Dispatcher) -> None:
        self._fingerprint = fingerprint(kernel)
        super().__init__(kernel.py_func)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return sig, codegen.magic_tuple(), self._fingerprint


class KernelCache:
    """Opens a kernel's cache at its first call: importing a module touches no file.

    Where nothing can be written, kernels are compiled in every process, after one warning.
    """

    def __init__(self, kernel: Dispatcher, check: Callable[[], None]) -> None:
        self._kernel = kernel
        self._check = check

    @functools.cached_property
    def _cache(self) -> Any:
        try:
            return _KeyedCache(self._kernel)
        except RuntimeError:
            _warn_uncached("no folder can be written")
            return NullCache()

    @property
    def cache_path(self) -> str | None:
        """Folder of the machine code, or None without one."""
        return self._cache.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code for a signature, or None."""
        return self._cache.load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep freshly compiled code, once it has passed the kernel's check."""
        self._check()
        try:
            self._cache.save_overload(sig, data)
        except OSError as error:
            _warn_uncached(str(error))

    def enable(self) -> None:
        """Part of numba's interface of a cache."""
        self._cache.enable()

    def disable(self) -> None:
        """Part of numba's interface of a cache."""
        self._cache.disable()

    def flush(self) -> None:
        """Part of numba's interface of a cache."""
        self._cache.flush()


@functools.cache
def _warn_uncached(reason: str) -> None:
    warnings.warn(
        f"rlcpu keeps no compiled kernels ({reason}): every process compiles anew. "
        "Set NUMBA_CACHE_DIR to a folder that can be written.",
        RuntimeWarning,
        stacklevel=2,
    )
