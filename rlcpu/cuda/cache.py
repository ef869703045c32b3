"""Machine code of kernels for the device on disk: one file per kernel, types, options and card.

The compiler takes half a second to half a minute for a kernel, in every process anew. A file is
named by the hash of all that decides its content (see `rlcpu.kernels.cache`, in whose folder it
lies); a damaged one is compiled anew, as is one that the driver refuses.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rlcpu.cuda import provider
from rlcpu.cuda.compile import Kernel
from rlcpu.kernels.cache import cache_folder, read_whole, warn_uncached, write_whole
from rlcpu.kernels.functions import fingerprint, references


def load(kernel: Kernel, args: list[Any]) -> int | None:
    """The driver's handle of a kernel on the current device, from its file or compiled.

    Args:
        kernel: the driver.
        args: arguments like those of its launches, empty arrays of the host for arrays.

    Returns:
        The handle, or None if the provider has none.
    """
    path = _path(kernel, args)
    if path is not None:
        # Whatever is wrong with a file, the compiler is there.
        with contextlib.suppress(Exception):
            return _read(path)
    compiled = provider.load(kernel.dispatcher, args)
    if compiled is None:
        return None
    if path is not None:
        content = compiled.name.encode() + b"\0" + compiled.code
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
        except OSError as error:
            warn_uncached(str(error))
    return compiled.handle


def _read(path: Path) -> int:
    """Load a file's machine code.

    Raises:
        Exception: it is absent, damaged or refused.
    """
    name, _, code = read_whole(path).partition(b"\0")
    return provider.load_code(name.decode(), code)


def _path(kernel: Kernel, args: list[Any]) -> Path | None:
    folder, tools = cache_folder(), provider.toolchain()
    if folder is None or tools is None:
        return None
    kinds = [(arg.dtype.str, 1) if isinstance(arg, np.ndarray) else _kind(arg) for arg in args]
    options = sorted(kernel.dispatcher.targetoptions.items())
    key = (
        key_of(kernel.dispatcher), kernel.exact, repr(options), kinds, tools,
        sys.implementation.cache_tag,
    )  # fmt: skip
    name = kernel.dispatcher.py_func.__name__
    return folder / f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.cubin"


def _kind(number: Any) -> tuple[str, int]:
    return np.asarray(number).dtype.str, 0


def key_of(dispatcher: Any) -> str:
    """SHA-256 of a kernel and of all device functions that it reaches, and how."""
    digest, numbers = hashlib.sha256(), dict[Any, int]()

    def add(function: Any) -> None:
        known = function in numbers
        number = numbers.setdefault(function, len(numbers))
        digest.update(f"{number} ".encode())
        if known:
            return
        plain = function.py_func
        digest.update(fingerprint(plain).encode())
        for value in references(plain):
            if hasattr(value, "py_func"):
                add(value)

    add(dispatcher)
    return digest.hexdigest()
