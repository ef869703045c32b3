"""Loads and stores of vectors.

All take pointers (`address`) and positions in numbers. Nothing is checked here, and the caller
keeps the arrays alive. `registers`, a constant, says how many registers a vector fills.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.simd import address as address
from rlcpu.kernels.vectors import call, indices, intrinsic, kind_of, splat, suffix, unliteral

_I32, _I64 = ir.IntType(32), ir.IntType(64)


# ---------------------------------------------------------------- LLVM pieces


def vector_pointer(builder: Any, pointer: Any, position: Any, kind: Any) -> Any:
    """Address of the vector that begins at a position."""
    return builder.bitcast(builder.gep(pointer, [position]), kind.as_pointer())


def below(builder: Any, stop: Any, count: int) -> Any:
    """Mask of the lanes whose number is below `stop`."""
    return builder.icmp_signed("<", indices(range(count), _I64), splat(builder, stop, count))


def masked_load(builder: Any, source: Any, mask: Any, other: Any, align: int) -> Any:
    """The numbers in memory where the mask says so, those of a vector where not."""
    name = f"llvm.masked.load.{suffix(other.type)}.p0"
    return call(builder, name, other.type, [source, ir.Constant(_I32, align), mask, other])


def masked_store(builder: Any, vector: Any, target: Any, mask: Any, align: int) -> None:
    """Write the numbers where the mask says so."""
    arguments = [vector, target, ir.Constant(_I32, align), mask]
    call(builder, f"llvm.masked.store.{suffix(vector.type)}.p0", ir.VoidType(), arguments)


# ---------------------------------------------------------------- vectors


@intrinsic(prefer_literal=True)
def load(
    typing: Any, pointer: Any, position: Any, registers: Any
) -> tuple[Any, Callable[..., Any]]:
    """The numbers from a position on."""
    vector = kind_of(pointer.dtype, registers)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = vector_pointer(builder, args[0], args[1], vector.code)
        return builder.load(source, align=pointer.dtype.bitwidth // 8)

    return vector(pointer, types.intp, registers), generate


@intrinsic(prefer_literal=True)
def load_first(
    typing: Any, pointer: Any, position: Any, count: Any, other: Any, registers: Any
) -> tuple[Any, Callable[..., Any]]:
    """The first `count` numbers from a position on, then `other`; no more memory is read."""
    vector = kind_of(pointer.dtype, registers)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = vector_pointer(builder, args[0], args[1], vector.code)
        rest = splat(builder, args[3], vector.count)
        mask = below(builder, args[2], vector.count)
        return masked_load(builder, source, mask, rest, pointer.dtype.bitwidth // 8)

    return vector(pointer, types.intp, types.intp, pointer.dtype, registers), generate


@intrinsic
def store(typing: Any, vector: Any, pointer: Any, position: Any) -> tuple[Any, Callable[..., Any]]:
    """Write all numbers from a position on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = vector_pointer(builder, args[1], args[2], vector.code)
        builder.store(args[0], target, align=vector.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(vector, pointer, types.intp), generate


@intrinsic
def store_first(
    typing: Any, vector: Any, pointer: Any, position: Any, count: Any
) -> tuple[Any, Callable[..., Any]]:
    """Write the first `count` numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = vector_pointer(builder, args[1], args[2], vector.code)
        mask = below(builder, args[3], vector.count)
        masked_store(builder, args[0], target, mask, vector.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(vector, pointer, types.intp, types.intp), generate


@intrinsic
def stream(typing: Any, vector: Any, pointer: Any, position: Any) -> tuple[Any, Callable[..., Any]]:
    """Write all numbers past the caches; the address is a multiple of the register's size.

    An ordinary store reads the line that it overwrites, which is a sixth of the traffic of a loop
    with four inputs and one output.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = vector_pointer(builder, args[1], args[2], vector.code)
        instruction = builder.store(args[0], target, align=VECTOR_BYTES)
        hint = builder.module.add_metadata([ir.Constant(_I32, 1)])
        instruction.set_metadata("nontemporal", hint)
        return context.get_dummy_value()

    return types.void(vector, pointer, types.intp), generate


@intrinsic
def prefetch(typing: Any, pointer: Any, position: Any) -> tuple[Any, Callable[..., Any]]:
    """Ask for the cache line of a position; any position is harmless."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = builder.bitcast(builder.gep(*args[:1], [args[1]]), ir.IntType(8).as_pointer())
        hints = [ir.Constant(_I32, number) for number in (0, 3, 1)]  # read, keep near, data
        call(builder, "llvm.prefetch.p0", ir.VoidType(), [line, *hints])
        return context.get_dummy_value()

    return types.void(pointer, types.intp), generate


# ---------------------------------------------------------------- pointers


@intrinsic
def pointer_to(typing: Any, place: Any, like: Any) -> tuple[Any, Callable[..., Any]]:
    """Pointer to numbers of the dtype of `like` from the address of the first, a whole number.

    Kernels that take addresses serve read-only and strided arrays without being compiled for each.
    """
    dtype = unliteral(like)
    pointer: Any = types.CPointer

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return pointer(dtype)(types.intp, dtype), generate


@intrinsic
def shifted(typing: Any, pointer: Any, by: Any) -> tuple[Any, Callable[..., Any]]:
    """The pointer moved by so many numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), generate


@intrinsic
def to_line(typing: Any, pointer: Any, position: Any) -> tuple[Any, Callable[..., Any]]:
    """How many numbers come before the next one that a whole vector may be aligned to.

    With vectors of 64 bytes that is the next cache line; always fewer than a vector holds.
    """
    size = pointer.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        where = builder.ptrtoint(builder.gep(args[0], [args[1]]), _I64)
        ahead = builder.and_(builder.neg(where), ir.Constant(_I64, VECTOR_BYTES - 1))
        return builder.udiv(ahead, ir.Constant(_I64, size))

    return types.intp(pointer, types.intp), generate
