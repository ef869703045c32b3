"""The machine code of kernels."""

from __future__ import annotations

from typing import Any

import numba

OPTIONS = ("error_model", "fastmath", "nogil")


def compiled_anew(kernel: Any, *arguments: Any) -> Any:
    """Compile a kernel again for arguments: the code that comes out of a cache cannot be read."""
    options = {name: kernel.targetoptions[name] for name in OPTIONS if name in kernel.targetoptions}
    anew = numba.njit(**options)(kernel.py_func)
    anew.compile(tuple(map(numba.typeof, arguments)))
    return anew


def assembly(kernel: Any, *arguments: Any) -> str:
    """Return the machine code of a kernel for arguments."""
    (code,) = compiled_anew(kernel, *arguments).inspect_asm().values()
    text: str = code
    return text
