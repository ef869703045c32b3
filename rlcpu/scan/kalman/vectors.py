"""Memory and registers of the Kalman filter: in kernels by pointers, in plain Python on arrays.

Numbers are at positions in one workspace, `cells`; nothing is checked. A register is a vector of
`rlcpu.kernels.vectors`, and one number in plain Python. The two ways of filling a register, with a
matrix of eight models or with eight numbers of one model's row, differ only in how one number of a
matrix becomes a register: `load` or `spread`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import register_jitable

from rlcpu.kernels.compile import FAST, INLINE
from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.vectors import (
    Vector,
    cgutils,
    indices,
    intrinsic,
    lower,
    splat,
    type_callable,
    where,
)

#: Decorator: plain Python, and inlined where a kernel calls it.
inlined: Any = register_jitable(fastmath=FAST, **INLINE)
#: The same, but called.
called: Any = register_jitable(fastmath=FAST, **{**INLINE, "forceinline": False})

_I64 = ir.IntType(64)
#: Bits of a number: type of the word, bits of the fraction, exponent of 1.
_FRACTION = {types.float32: (ir.IntType(32), 23, 127), types.float64: (_I64, 52, 1023)}


def lanes(dtype: Any) -> int:
    """How many numbers a register holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


def register_of(dtype: Any) -> Any:
    """Numba type of one register full of a dtype."""
    return Vector(dtype, VECTOR_BYTES * 8 // dtype.bitwidth)


@intrinsic
def aligned(typing: Any, array: Any) -> tuple[Any, Callable[..., Any]]:
    """Pointer to the first number in an array that begins a register; the caller keeps it alive."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = cgutils.create_struct_proxy(array)(context, builder, args[0]).data
        last = ir.Constant(_I64, VECTOR_BYTES - 1)
        word = builder.add(builder.ptrtoint(data, _I64), last)
        return builder.inttoptr(builder.and_(word, builder.not_(last)), data.type)

    pointer: Any = types.CPointer
    return pointer(array.dtype)(array), generate


@intrinsic
def pointer_to(typing: Any, kind: Any, word: Any) -> tuple[Any, Callable[..., Any]]:
    """Pointer to numbers of a kind, a NumPy type, from an address."""
    make: Any = types.CPointer
    pointer = make(kind.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], context.get_value_type(pointer))

    return pointer(kind, types.int64), generate


@intrinsic
def call_at(
    typing: Any, function: Any, first: Any, second: Any, number: Any
) -> tuple[Any, Callable[..., Any]]:
    """Call the C function at an address with two pointers, as words, and a whole number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64] * 3)
        words = [builder.ptrtoint(pointer, _I64) for pointer in args[1:3]]
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [*words, args[3]])
        return context.get_dummy_value()

    return types.void(types.int64, first, second, types.int64), generate


# ---------------------------------------------------------------- plain Python


def peek(table: Any, index: int) -> Any:
    """`table[index]`, which nothing writes to."""
    return table[index]


def read(cells: Any, index: int) -> Any:
    """The number `cells[index]`."""
    return cells[index]


def write(cells: Any, index: int, x: Any) -> None:
    """Write a number to `cells[index]`."""
    cells[index] = x


def load(cells: Any, index: int) -> Any:
    """The register of the numbers from `cells[index]` on."""
    return cells[index]


def spread(cells: Any, index: int) -> Any:
    """`cells[index]` in every lane."""
    return cells[index]


def store(cells: Any, index: int, x: Any) -> None:
    """Write all lanes to `cells[index]` and on."""
    cells[index] = x


def store_first(cells: Any, index: int, x: Any) -> None:
    """Write the first lane to `cells[index]`."""
    cells[index] = x


def total(x: Any) -> Any:
    """The sum of all lanes, in every lane."""
    return x


def mantissa(x: Any) -> Any:
    """M in [1, 2) of x = M * 2**e, for positive normal numbers."""
    return math.frexp(x)[0] * 2.0


def exponent(x: Any) -> Any:
    """The e of x = m * 2**e with m in [1, 2), for positive normal numbers."""
    return math.frexp(x)[1] - 1.0


@inlined
def reciprocal(x: Any) -> Any:
    """1 / x where x is positive and finite, NaN elsewhere: pivots that are not definite."""
    return where(x > 0.0, where(x < math.inf, 1.0 / x, math.nan), math.nan)


@inlined
def unseen(x: Any) -> Any:
    """1 where x is NaN, 0 where it is a finite number."""
    return where(x == x, x * 0.0, 1.0)


def make_access(across: bool) -> tuple[Any, Any]:
    """How to read one element as a register, and how to write it."""
    return (load, store) if across else (spread, store_first)


# ---------------------------------------------------------------- machine code


def teach(function: Any, typer: Callable[..., Any], build: Callable[..., Any]) -> None:
    """Teach numba a function of pointers and registers.

    Args:
        function: what kernels call.
        typer: type of the result, from those of the arguments.
        build: emits the code, from a builder, the types of the arguments, and their values.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        # Loops are as short as matrices: unrolled, they take 1.7 times as long to compile.
        builder.function.attributes.add("optsize")
        result = build(builder, signature.args, *values)
        return context.get_dummy_value() if signature.return_type == types.void else result

    anything: Any = types.VarArg
    type_callable(function)(lambda context: typer)
    lower(function, anything(types.Any))(generate)


def read_register(builder: Any, pointer: Any, dtype: Any) -> Any:
    """LLVM: the register at a pointer to its first number."""
    source = builder.bitcast(pointer, register_of(dtype).code.as_pointer())
    return builder.load(source, align=dtype.bitwidth // 8)


def write_register(builder: Any, vector: Any, pointer: Any, dtype: Any) -> None:
    """LLVM: write a register to a pointer to its first number."""
    target = builder.bitcast(pointer, register_of(dtype).code.as_pointer())
    builder.store(vector, target, align=dtype.bitwidth // 8)


def _peek(builder: Any, kinds: Any, table: Any, index: Any) -> Any:
    found = builder.load(builder.gep(table, [index]))
    found.set_metadata("invariant.load", builder.module.add_metadata([]))
    return found


def _store_first(builder: Any, kinds: Any, cells: Any, index: Any, x: Any) -> None:
    first = builder.extract_element(x, ir.Constant(ir.IntType(32), 0))
    builder.store(first, builder.gep(cells, [index]))


def _spread(builder: Any, kinds: Any, cells: Any, index: Any) -> Any:
    number = builder.load(builder.gep(cells, [index]))
    return splat(builder, number, register_of(kinds[0].dtype).count)


def _total(builder: Any, kinds: Any, x: Any) -> Any:
    count = x.type.count
    distance = count // 2
    while distance:
        picks = indices((lane + distance) % count for lane in range(count))
        x = builder.fadd(x, builder.shuffle_vector(x, x, picks))
        distance //= 2
    return x


def _constants(dtype: Any, count: int) -> tuple[Any, ...]:
    word, bits, bias = _FRACTION[dtype]
    return tuple(indices([n] * count, word) for n in (bits, bias << bits, (1 << bits) - 1))


def _mantissa(builder: Any, kinds: Any, x: Any) -> Any:
    _, one, fraction = _constants(kinds[0].dtype, x.type.count)
    word = builder.bitcast(x, one.type)
    return builder.bitcast(builder.or_(builder.and_(word, fraction), one), x.type)


def _exponent(builder: Any, kinds: Any, x: Any) -> Any:
    bits, one, _ = _constants(kinds[0].dtype, x.type.count)
    word = builder.lshr(builder.bitcast(x, one.type), bits)
    bias = float(_FRACTION[kinds[0].dtype][2])
    return builder.fsub(builder.sitofp(word, x.type), ir.Constant(x.type, [bias] * x.type.count))


teach(peek, lambda table, index: table.dtype, _peek)
teach(
    read,
    lambda cells, index: cells.dtype,
    lambda builder, kinds, cells, index: builder.load(builder.gep(cells, [index])),
)
teach(
    write,
    lambda cells, index, x: types.void,
    lambda builder, kinds, cells, index, x: builder.store(x, builder.gep(cells, [index])),
)
teach(
    load,
    lambda cells, index: register_of(cells.dtype),
    lambda builder, kinds, cells, index: read_register(
        builder, builder.gep(cells, [index]), kinds[0].dtype
    ),
)
teach(
    store,
    lambda cells, index, x: types.void,
    lambda builder, kinds, cells, index, x: write_register(
        builder, x, builder.gep(cells, [index]), kinds[0].dtype
    ),
)
teach(spread, lambda cells, index: register_of(cells.dtype), _spread)
teach(store_first, lambda cells, index, x: types.void, _store_first)
teach(total, lambda x: x, _total)
teach(mantissa, lambda x: x, _mantissa)
teach(exponent, lambda x: x, _exponent)
