"""The machine code of kernels."""

from __future__ import annotations

from typing import Any

import numba
import pytest

from rlcpu.kernels.machine.vectors import VECTOR_BYTES

#: Marks tests of what LLVM makes vectors of. With AVX2 alone it holds gathers, and branches that
#: both sides of are computed, to cost more than they save on some machines, and leaves them.
needs_avx512 = pytest.mark.skipif(VECTOR_BYTES < 64, reason="needs vectors of 64 bytes")
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
