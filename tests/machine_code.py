"""The machine code of kernels."""

from __future__ import annotations

from typing import Any

import numba

OPTIONS = ("error_model", "fastmath", "nogil")


def assembly(kernel: Any, *arguments: Any) -> str:
    """What `kernel` is compiled to for arguments, compiled anew: out of a cache comes none."""
    options = {name: kernel.targetoptions[name] for name in OPTIONS if name in kernel.targetoptions}
    anew = numba.njit(**options)(kernel.py_func)
    anew.compile(tuple(map(numba.typeof, arguments)))
    (code,) = anew.inspect_asm().values()
    return code
