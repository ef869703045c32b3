"""Registers and register tiles: the arithmetic under the Kalman filter.

Numbers are at positions in one workspace, `cells`, of which kernels pass a pointer; nothing is
checked. The two ways of filling a register, one matrix of eight models or eight numbers of one
model's row, differ only in how one number of a matrix becomes a register: `load` or `spread`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic as _intrinsic
from numba.extending import models, overload, register_model

from rlcpu.kernels.simd import VECTOR_BYTES

# Their types do not fit what they are: kernels call an intrinsic without its first argument.
intrinsic: Any = _intrinsic
cgutils: Any = _cgutils

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_FLOATS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
_WORDS = {types.float32: _I32, types.float64: _I64}
#: Bits of the fraction, and exponent of 1.
_FRACTION = {types.float32: (23, 127), types.float64: (52, 1023)}


class Register(types.Type):
    """Numba type of one register full of `dtype`."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        self.count = VECTOR_BYTES * 8 // dtype.bitwidth
        self.vector = ir.VectorType(_FLOATS[dtype], self.count)
        self.words = ir.VectorType(_WORDS[dtype], self.count)
        super().__init__(name=f"Register({dtype})")

    def constant(self, number: float) -> ir.Constant:
        """The number in every lane."""
        return ir.Constant(self.vector, [number] * self.count)


@register_model(Register)
class _RegisterModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Register) -> None:
        super().__init__(manager, kind, kind.vector)  # type: ignore[no-untyped-call]


def lanes(dtype: Any) -> int:
    """How many numbers a register holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


# ---------------------------------------------------------------- LLVM pieces


def read_register(builder: Any, pointer: Any, register: Register) -> Any:
    """LLVM: the register at a pointer to its first number."""
    source = builder.bitcast(pointer, register.vector.as_pointer())
    return builder.load(source, align=register.dtype.bitwidth // 8)


def write_register(builder: Any, vector: Any, pointer: Any, register: Register) -> None:
    """LLVM: write a register to a pointer to its first number."""
    target = builder.bitcast(pointer, register.vector.as_pointer())
    builder.store(vector, target, align=register.dtype.bitwidth // 8)


def splat(builder: Any, number: Any, register: Register) -> Any:
    """LLVM: a number in every lane."""
    empty = ir.Constant(register.vector, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, empty, _mask([0] * register.count))


def _mask(picks: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_I32, len(picks)), picks)


def multiply_add(builder: Any, register: Register, *operands: Any) -> Any:
    """LLVM: x * y + z, rounded once."""
    name = f"llvm.fma.v{register.count}f{register.dtype.bitwidth}"
    kind = ir.FunctionType(register.vector, [register.vector] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), operands)


# ---------------------------------------------------------------- registers


@intrinsic
def stay_outside(typing: Any) -> tuple[Any, Callable[..., Any]]:
    """The function that calls this is not inlined: the gradient compiles in 14 s instead of 19."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def read(typing: Any, cells: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """The number `cells[index]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.gep(args[0], [args[1]]))

    return cells.dtype(cells, types.intp), generate


@intrinsic
def write(typing: Any, cells: Any, index: Any, x: Any) -> tuple[Any, Callable[..., Any]]:
    """Write a number to `cells[index]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(cells, types.intp, cells.dtype), generate


def make_peek(begin: int, pace: int) -> Any:
    """Intrinsic `peek(table, number)`: `table[begin + pace * number]`, which nothing writes to."""

    @intrinsic
    def peek(typing: Any, table: Any, number: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            offset = builder.mul(args[1], ir.Constant(_I64, pace))
            offset = builder.add(offset, ir.Constant(_I64, begin))
            found = builder.load(builder.gep(args[0], [offset]))
            found.set_metadata("invariant.load", builder.module.add_metadata([]))
            return found

        return types.intp(table, types.intp), generate

    return peek


@intrinsic
def load(typing: Any, cells: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """The numbers from `cells[index]` on."""
    register = Register(cells.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return read_register(builder, builder.gep(args[0], [args[1]]), register)

    return register(cells, types.intp), generate


@intrinsic
def spread(typing: Any, cells: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """`cells[index]` in every lane."""
    register = Register(cells.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = builder.load(builder.gep(args[0], [args[1]]))
        return splat(builder, number, register)

    return register(cells, types.intp), generate


@intrinsic
def store(typing: Any, cells: Any, index: Any, x: Any) -> tuple[Any, Callable[..., Any]]:
    """Write all lanes to `cells[index]` and on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write_register(builder, args[2], builder.gep(args[0], [args[1]]), x)
        return context.get_dummy_value()

    return types.void(cells, types.intp, x), generate


@intrinsic
def store_first(typing: Any, cells: Any, index: Any, x: Any) -> tuple[Any, Callable[..., Any]]:
    """Write the first lane to `cells[index]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = builder.extract_element(args[2], ir.Constant(_I32, 0))
        builder.store(first, builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(cells, types.intp, x), generate


def _elementwise(arity: int, build: Callable[..., Any]) -> Any:
    """Intrinsic of `arity` registers to one, `build(builder, register, *vectors)`."""

    def generator(x: Any) -> Callable[..., Any]:
        return lambda context, builder, signature, args: build(builder, x, *args)

    if arity == 1:
        return intrinsic(lambda typing, x: (x(x), generator(x)))
    if arity == 2:
        return intrinsic(lambda typing, x, y: (x(x, y), generator(x)))
    return intrinsic(lambda typing, x, y, z: (x(x, y, z), generator(x)))


def _operator(symbol: Any, function: Any) -> None:
    @overload(symbol)
    def choose(x, y):  # type: ignore[no-untyped-def]
        both = isinstance(x, Register) and isinstance(y, Register)
        return (lambda x, y: function(x, y)) if both else None


_operator(operator.add, _elementwise(2, lambda to, _, x, y: to.fadd(x, y)))
_operator(operator.sub, _elementwise(2, lambda to, _, x, y: to.fsub(x, y)))
_operator(operator.mul, _elementwise(2, lambda to, _, x, y: to.fmul(x, y)))

negated = _elementwise(1, lambda to, _, x: to.fneg(x))
halved = _elementwise(1, lambda to, kind, x: to.fmul(x, kind.constant(0.5)))

#: x * y + z and z - x * y, rounded once.
fma = _elementwise(3, multiply_add)
fnma = _elementwise(3, lambda to, kind, x, y, z: multiply_add(to, kind, to.fneg(x), y, z))


def _build_total(builder: Any, register: Register, x: Any) -> Any:
    distance = register.count // 2
    while distance:
        picks = [(lane + distance) % register.count for lane in range(register.count)]
        x = builder.fadd(x, builder.shuffle_vector(x, x, _mask(picks)))
        distance //= 2
    return x


def _build_reciprocal(builder: Any, register: Register, x: Any) -> Any:
    above = builder.fcmp_ordered(">", x, register.constant(0.0))
    below = builder.fcmp_ordered("<", x, register.constant(float("inf")))
    inverse = builder.fdiv(register.constant(1.0), x)
    return builder.select(builder.and_(above, below), inverse, register.constant(float("nan")))


def _build_seen(builder: Any, register: Register, x: Any) -> Any:
    known = builder.fcmp_ordered("==", x, x)
    return builder.select(known, register.constant(1.0), register.constant(0.0))


def _build_known(builder: Any, register: Register, x: Any) -> Any:
    return builder.select(builder.fcmp_ordered("==", x, x), x, register.constant(0.0))


def _build_mantissa(builder: Any, register: Register, x: Any) -> Any:
    bits, bias = _FRACTION[register.dtype]
    fraction = ir.Constant(register.words, [(1 << bits) - 1] * register.count)
    one = ir.Constant(register.words, [bias << bits] * register.count)
    word = builder.bitcast(x, register.words)
    return builder.bitcast(builder.or_(builder.and_(word, fraction), one), register.vector)


def _build_exponent(builder: Any, register: Register, x: Any) -> Any:
    bits, bias = _FRACTION[register.dtype]
    shift = ir.Constant(register.words, [bits] * register.count)
    word = builder.lshr(builder.bitcast(x, register.words), shift)
    return builder.fsub(builder.sitofp(word, register.vector), register.constant(bias))


#: The sum of all lanes, in every lane.
total = _elementwise(1, _build_total)
#: 1 / x where x is positive and finite, NaN elsewhere: pivots of a matrix that is not definite.
reciprocal = _elementwise(1, _build_reciprocal)
#: 1 where x is a number, 0 where it is NaN; the opposite; x there, 0 where it is NaN.
seen = _elementwise(1, _build_seen)
unseen = _elementwise(1, lambda to, kind, x: to.fsub(kind.constant(1.0), _build_seen(to, kind, x)))
known = _elementwise(1, _build_known)
#: m in [1, 2) and e of x = m * 2**e, for positive normal numbers.
mantissa = _elementwise(1, _build_mantissa)
exponent = _elementwise(1, _build_exponent)
