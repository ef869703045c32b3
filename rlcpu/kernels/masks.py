"""Arrays of flags as masks of vectors.

A flag is a byte, 0 or not: kernels take `flags.view(np.uint8)`, because numba's pointers to bool
cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from rlcpu.kernels.memory import below
from rlcpu.kernels.vectors import Mask, call, intrinsic

_BYTE, _I32 = ir.IntType(8), ir.IntType(32)


def _flags(builder: Any, args: Any, kind: ir.VectorType) -> Any:
    return builder.bitcast(builder.gep(args[0], [args[1]]), kind.as_pointer())


@intrinsic
def load_mask(
    typing: Any, pointer: Any, position: Any, like: Any
) -> tuple[Any, Callable[..., Any]]:
    """The flags from a position on, as many as the vector `like` has numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.VectorType(_BYTE, like.count)
        found = builder.load(_flags(builder, args, kind), align=1)
        return builder.icmp_unsigned("!=", found, ir.Constant(kind, [0] * like.count))

    return Mask(like.count)(pointer, types.intp, like), generate


@intrinsic
def load_mask_first(
    typing: Any, pointer: Any, position: Any, like: Any, count: Any
) -> tuple[Any, Callable[..., Any]]:
    """The first `count` flags from a position on, the rest unset; no more memory is read."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.VectorType(_BYTE, like.count)
        none = ir.Constant(kind, [0] * like.count)
        wanted = below(builder, args[3], like.count)
        arguments = [_flags(builder, args, kind), ir.Constant(_I32, 1), wanted, none]
        found = call(builder, f"llvm.masked.load.v{like.count}i8.p0", kind, arguments)
        return builder.icmp_unsigned("!=", found, none)

    return Mask(like.count)(pointer, types.intp, like, types.intp), generate
