"""Vectors of numbers as values of a kernel, with the operators of numbers.

A scalar function of plain numbers, written without branches (`where` in their place), computes a
vector of them just as well: `+ - * /`, `-x`, `abs`, comparisons, and the functions `where`,
`maximum`, `fma`, `inverse_power` and `smallest_normal` mean the same for both. A vector fills one
or more registers of the machine; two hide the latency of a chain of dependent operations that one
would wait for. LLVM lowers vectors to whatever the machine has.

`rlcpu.kernels.memory` loads and stores them.

An intrinsic, as numba calls it, is a function of the types of its arguments, after a typing
context. It returns a signature, and `generate(context, builder, signature, args)`, which emits
LLVM's code by llvmlite's `builder`. Values in such code, `args` among them, are LLVM's: what the
kernel will compute.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model, type_callable
from numba.extending import lower_builtin as lower

from rlcpu.kernels import hooks

I1, I8, I32, I64 = map(ir.IntType, (1, 8, 32, 64))
#: What vectors are made of; bytes are only moved and compared with zero.
_ELEMENTS = {
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
    types.uint8: I8,
    types.boolean: I1,
}
#: Size of a number in memory.
BYTES = {ir.FloatType(): 4, ir.DoubleType(): 8, I8: 1}
#: A number as an integer: its type, the bits of the exponent, the largest exponent of all.
_WORDS = {
    ir.FloatType(): (I32, 0xFF << 23, 0xFE << 23),
    ir.DoubleType(): (I64, 0x7FF << 52, 0x7FE << 52),
}


def cpu_features() -> str:
    """Return the features that kernels may use, as "+avx2,-avx512f": NUMBA_CPU_FEATURES, or all."""
    features = hooks.setting("CPU_FEATURES")
    return hooks.host_features() if features is None else str(features)


def _vector_bytes() -> int:
    features = cpu_features()
    return 64 if "+avx512f" in features else 32 if "+avx2" in features else 16


#: Width of a vector register: AVX-512 has 32 of 64 bytes, AVX2 16 of 32, NEON 32 of 16.
VECTOR_BYTES = _vector_bytes()


class Vector(types.Type):
    """Numba type of `count` numbers of a dtype in registers."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Vector({dtype}, {count})")

    @property
    def code(self) -> ir.VectorType:
        """Return LLVM's type."""
        return ir.VectorType(_ELEMENTS[self.dtype], self.count)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.code)


# ---------------------------------------------------------------- LLVM pieces


def lanes_of(dtype: Any) -> int:
    """Return how many numbers of a numba dtype one register holds."""
    return VECTOR_BYTES * 8 // int(dtype.bitwidth)


def vector_type(dtype: Any, registers: Any) -> Vector:
    """Return the type of a vector of so many registers, a literal, full of a dtype."""
    return Vector(dtype, registers.literal_value * lanes_of(dtype))


def mask_of(vector: Vector) -> Vector:
    """Return numba's type of the result of comparing two vectors."""
    return Vector(types.boolean, vector.count)


def constant_vector(numbers: Any, kind: Any = I32) -> ir.Constant:
    """Return LLVM's constant vector of whole numbers, of an integer type."""
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(kind, len(numbers)), numbers)


def splat(builder: Any, number: Any, count: int) -> Any:
    """Emit a vector that repeats a number."""
    empty = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, empty, constant_vector([0] * count))


def emit_call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Emit a call of one of LLVM's own functions, or of the C library, and return its result."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def type_suffix(kind: Any) -> str:
    """Return the suffix of LLVM's functions on a vector, as in `llvm.fma.v8f64`."""
    kinds = {ir.FloatType(): "f32", ir.DoubleType(): "f64", ir.IntType(8): "i8"}
    return f"v{kind.count}{kinds[kind.element]}"


# ---------------------------------------------------------------- operators


def _vectors(context: Any, builder: Any, kinds: Any, values: Any, like: Any) -> list[Any]:
    """Return arguments as vectors of the type `like`: numbers are converted and repeated.

    `kinds` are numba's types of the arguments, `values` LLVM's values.
    """
    return [
        value
        if isinstance(kind, Vector)
        else splat(builder, context.cast(builder, value, kind, like.dtype), like.count)
        for kind, value in zip(kinds, values, strict=True)
    ]


def _common(*kinds: Any) -> Vector | None:
    """Return the type of the vectors among arguments; None if there is no one such type.

    The other arguments have to be numbers.
    """
    vectors = {kind for kind in kinds if isinstance(kind, Vector)}
    others = [kind for kind in kinds if not isinstance(kind, Vector)]
    fits = len(vectors) == 1 and all(isinstance(types.unliteral(k), types.Number) for k in others)
    return vectors.pop() if fits else None


def _define(function: Any, arity: int, result: Any, build: Callable[..., Any]) -> None:
    """Teach numba a function of vectors, some of which may be numbers.

    Args:
        function: what kernels call.
        arity: number of arguments.
        result: type of the result, from that of the vectors.
        build: emits the code from a builder and vectors of one type.
    """

    def type_of(*kinds: Any) -> Any:
        kind = _common(*kinds)
        return kind and result(kind)

    # Numba asks a function how many arguments it takes.
    typers = [lambda x: type_of(x), lambda x, y: type_of(x, y), lambda x, y, z: type_of(x, y, z)]
    type_callable(function)(lambda context: typers[arity - 1])

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        like = _common(*signature.args)
        return build(builder, *_vectors(context, builder, signature.args, values, like))

    for pattern in range(1, 2**arity):  # each choice of which arguments are vectors, but none
        kinds = [Vector if pattern >> i & 1 else types.Number for i in range(arity)]
        lower(function, *kinds)(generate)


def _same(kind: Any) -> Any:
    return kind


for _operator, _name in [
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
]:
    _define(_operator, 2, _same, lambda builder, x, y, _n=_name: getattr(builder, _n)(x, y))
for _operator, _name in [
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.eq, "=="),
]:
    _define(_operator, 2, mask_of, lambda builder, x, y, _n=_name: builder.fcmp_ordered(_n, x, y))
_define(operator.neg, 1, _same, lambda builder, x: builder.fneg(x))
_define(abs, 1, _same, lambda b, x: emit_call(b, f"llvm.fabs.{type_suffix(x.type)}", x.type, [x]))


# ---------------------------------------------------------------- functions of numbers and vectors


def where(condition: Any, x: Any, y: Any) -> Any:
    """Return `x` where the condition holds, else `y`."""
    return x if condition else y


def maximum(x: float, y: float) -> float:
    """Return the larger number; `y` if one of them is NaN."""
    return x if x > y else y


def fma(x: float, y: float, z: float) -> float:
    """Return `x * y + z`, rounded once (in plain Python twice)."""
    return x * y + z


def inverse_power(x: float) -> float:
    """Return the power of two that brings a positive number into [2, 4); 0 for infinity and NaN.

    Numbers below the smallest normal one count as if they were that.
    """
    if not math.isfinite(x):
        return 0.0
    least = -125 if isinstance(x, np.float32) else -1021
    exponent = max(math.frexp(x)[1], least) if x > 0 else least
    return type(x)(math.ldexp(1.0, 2 - exponent))


def smallest_normal(x: Any) -> Any:
    """Return the smallest number of x's dtype that has all digits."""
    return np.finfo(type(x)).smallest_normal


def _select(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    like = _common(*signature.args[1:])
    vectors = _vectors(context, builder, signature.args[1:], values[1:], like)
    return builder.select(values[0], *vectors)


def _type_where(condition: Any, x: Any, y: Any) -> Any:
    return _common(x, y) if getattr(condition, "dtype", None) == types.boolean else None


def _inverse_power(builder: Any, x: Any) -> Any:
    """Emit `inverse_power`: the exponent's bits, flipped, are those of the inverse."""
    word, exponent_bits, largest_power = _WORDS[x.type.element]
    kind = ir.VectorType(word, x.type.count)
    exponent = ir.Constant(kind, [exponent_bits] * kind.count)
    largest = ir.Constant(kind, [largest_power] * kind.count)
    flipped = builder.and_(builder.not_(builder.bitcast(x, kind)), exponent)
    above = builder.icmp_unsigned(">", flipped, largest)
    return builder.bitcast(builder.select(above, largest, flipped), x.type)


def _smallest_normal(builder: Any, x: Any) -> Any:
    word, _, _ = _WORDS[x.type.element]
    kind, digits = ir.VectorType(word, x.type.count), 23 if word is I32 else 52
    return builder.bitcast(ir.Constant(kind, [1 << digits] * kind.count), x.type)


def _larger(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def _smaller(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


type_callable(where)(lambda context: _type_where)
for _kinds in [(Vector, Vector), (Vector, types.Number), (types.Number, Vector)]:
    lower(where, Vector, *_kinds)(_select)
_define(maximum, 2, _same, _larger)
_define(
    fma,
    3,
    _same,
    lambda b, x, y, z: emit_call(b, f"llvm.fma.{type_suffix(x.type)}", x.type, [x, y, z]),
)
_define(inverse_power, 1, _same, _inverse_power)
_define(smallest_normal, 1, _same, _smallest_normal)


# ---------------------------------------------------------------- constants


@intrinsic(prefer_literal=True)
def fill(typing, number, registers):
    """Return a vector that repeats a number of its dtype; `registers` is a constant."""
    dtype = types.unliteral(number)
    vector = vector_type(dtype, registers)
    return vector(dtype, registers), lambda _, b, __, args: splat(b, args[0], vector.count)


@intrinsic(prefer_literal=True)
def width(typing, pointer, registers):
    """Return how many numbers of the pointer's dtype the registers hold."""
    count = vector_type(pointer.dtype, registers).count
    return types.intp(pointer, registers), lambda *_: ir.Constant(I64, count)


@intrinsic
def lane_numbers(typing, like):
    """Return the vector 0, 1, 2, ... of the type of another."""
    numbers = ir.Constant(like.code, [float(lane) for lane in range(like.count)])
    return like(like), lambda *_: numbers


# ---------------------------------------------------------------- between the numbers of a vector


def _reduction(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Make an intrinsic (vector) -> number, which combines all n numbers of a vector.

    `combine` emits the combination of two vectors. Numbers are combined in pairs of lanes that are
    n / 2, ..., 2, 1 apart.
    """

    @intrinsic
    def reduce(typing, vector):
        """Return all numbers of a vector, combined."""

        def generate(context, builder, signature, args):
            combined, distance = args[0], vector.count // 2
            while distance:
                picks = constant_vector((i + distance) % vector.count for i in range(vector.count))
                combined = combine(
                    builder, combined, builder.shuffle_vector(combined, combined, picks)
                )
                distance //= 2
            return builder.extract_element(combined, ir.Constant(I32, 0))

        return vector.dtype(vector), generate

    return reduce


#: Sum, smallest and largest number of a vector that holds no NaN.
total = _reduction(lambda builder, x, y: builder.fadd(x, y))
lowest = _reduction(_smaller)
highest = _reduction(_larger)


@intrinsic
def nonzero_bits(typing, vector):
    """Return 64 bits: whether each of at most 64 numbers is not 0, as NaN is not."""

    def generate(context, builder, signature, args):
        is_nonzero = builder.fcmp_unordered("!=", args[0], ir.Constant(args[0].type, None))
        return builder.zext(builder.bitcast(is_nonzero, ir.IntType(vector.count)), I64)

    return types.uint64(vector), generate


@intrinsic
def lowest_bit(typing, word):
    """Return the position of the lowest bit of a uint64; 64 of 0."""
    return types.int64(types.uint64), lambda _, builder, __, args: builder.cttz(args[0], I1(0))


def _moved_up(builder: Any, vector: Any, by: int) -> Any:
    """Emit the vector whose lane k has the number of lane k - `by`; 0 where there is none."""
    count = vector.type.count
    picks = constant_vector(count + i - by if i >= by else 0 for i in range(count))
    return builder.shuffle_vector(ir.Constant(vector.type, [0.0] * count), vector, picks)


@intrinsic
def search(typing, weights, x):
    """Return the lane in whose share of [0, sum) x falls, and how far x is from the share's start.

    The share of lane k goes from sum(weights[:k]) to sum(weights[:k + 1]). Sums are rounded, so
    that x may fall between the shares or beyond the last: then the lane may be one of weight zero.
    """

    def generate(context, builder, signature, args):
        sums, x = args
        count, distance = weights.count, 1
        while distance < count:  # afterwards lane k has the sum of weights[:k + 1]
            sums = builder.fadd(sums, _moved_up(builder, sums, distance))
            distance *= 2
        ends_after_x = builder.fcmp_ordered(">", sums, splat(builder, x, count))
        bits = builder.zext(builder.bitcast(ends_after_x, ir.IntType(count)), I64)
        last_lane = ir.Constant(I64, 1 << (count - 1))
        lane = builder.cttz(builder.or_(bits, last_lane), ir.Constant(I1, 1))
        start = builder.extract_element(_moved_up(builder, sums, 1), builder.trunc(lane, I32))
        distance_from_start = _larger(builder, builder.fsub(x, start), ir.Constant(x.type, 0.0))
        return context.make_tuple(builder, signature.return_type, [lane, distance_from_start])

    returned = types.Tuple((types.int64, weights.dtype))
    return returned(weights, weights.dtype), generate
