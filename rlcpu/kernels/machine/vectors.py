"""Vectors of numbers as values of a kernel, with the operators of numbers.

A scalar function of plain numbers, written without branches (`where` in their place), computes a
vector of them just as well: `+ - * /`, `-x`, `abs`, comparisons, and the functions `where`,
`maximum`, `fma`, `inverse_power` and `smallest_normal` mean the same for both. A vector fills one
or more registers of the machine; two hide the latency of a chain of dependent operations that one
would wait for. LLVM lowers vectors to whatever the machine has.

`rlcpu.kernels.machine.memory` loads and stores them.

An intrinsic, as numba calls it, is a function of the types of its arguments, after a typing
context. It returns a signature, and `generate(context, builder, signature, args)`, which emits
LLVM's code by llvmlite's `builder`. Values in such code, `args` among them, are LLVM's: what the
kernel will compute. `context` is numba's: it knows how types lie in memory, and converts. A
`prefer_literal` intrinsic is given the types of constants, which know their values.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model, type_callable
from numba.extending import lower_builtin as lower

from rlcpu.kernels.compiler import hooks

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
#: Bits of a number of IEEE 754, from the highest on: sign, exponent, digits. An integer of as many
#: bits, the number of digits, and the largest exponent, of infinity and NaN, without its digits.
_FORMATS = {ir.FloatType(): (I32, 23, 0xFF), ir.DoubleType(): (I64, 52, 0x7FF)}


def cpu_features() -> str:
    """Return the features that kernels may use, as "+avx2,-avx512f": NUMBA_CPU_FEATURES, or all."""
    features = hooks.setting("CPU_FEATURES")
    return hooks.host_features() if features is None else str(features)


def _vector_bytes() -> int:
    """Return the bytes of a vector register of this processor."""
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
    """Emit a vector that repeats a number: its lane 0, picked for every lane, as LLVM wants it."""
    empty = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    first = builder.insert_element(empty, number, I32(0))
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
        """Return the type of the result; None for arguments that are no vectors of one type."""
        kind = _common(*kinds)
        return kind and result(kind)

    # Numba asks a function how many arguments it takes.
    typers = [lambda x: type_of(x), lambda x, y: type_of(x, y), lambda x, y, z: type_of(x, y, z)]
    type_callable(function)(lambda context: typers[arity - 1])

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        """Emit the function of arguments some of which are numbers."""
        like = _common(*signature.args)
        return build(builder, *_vectors(context, builder, signature.args, values, like))

    for kinds in itertools.product((Vector, types.Number), repeat=arity):
        if Vector in kinds:
            lower(function, *kinds)(generate)


def _same(kind: Any) -> Any:
    """Return the type of the result of a function whose result is as its vectors."""
    return kind


def _emit_intrinsic(name: str) -> Callable[..., Any]:
    """Make the function (builder, *vectors) that emits a call of an intrinsic of LLVM's."""

    def build(builder: Any, *vectors: Any) -> Any:
        kind = vectors[0].type
        return emit_call(builder, f"llvm.{name}.{type_suffix(kind)}", kind, [*vectors])

    return build


_define(operator.add, 2, _same, lambda builder, x, y: builder.fadd(x, y))
_define(operator.sub, 2, _same, lambda builder, x, y: builder.fsub(x, y))
_define(operator.mul, 2, _same, lambda builder, x, y: builder.fmul(x, y))
_define(operator.truediv, 2, _same, lambda builder, x, y: builder.fdiv(x, y))
_define(operator.gt, 2, mask_of, lambda builder, x, y: builder.fcmp_ordered(">", x, y))
_define(operator.ge, 2, mask_of, lambda builder, x, y: builder.fcmp_ordered(">=", x, y))
_define(operator.lt, 2, mask_of, lambda builder, x, y: builder.fcmp_ordered("<", x, y))
_define(operator.le, 2, mask_of, lambda builder, x, y: builder.fcmp_ordered("<=", x, y))
_define(operator.eq, 2, mask_of, lambda builder, x, y: builder.fcmp_ordered("==", x, y))
_define(operator.neg, 1, _same, lambda builder, x: builder.fneg(x))
_define(abs, 1, _same, _emit_intrinsic("fabs"))


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
    of_smallest = -125 if isinstance(x, np.float32) else -1021  # of the smallest normal number
    exponent = max(math.frexp(x)[1], of_smallest) if x > 0 else of_smallest
    return type(x)(math.ldexp(1.0, 2 - exponent))  # x = f * 2 ** exponent, f in [0.5, 1)


def smallest_normal(x: Any) -> Any:
    """Return the smallest number of x's dtype that has all digits."""
    return np.finfo(type(x)).smallest_normal


def _select(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Emit `where`."""
    condition, *choices = values
    kinds = signature.args[1:]
    vectors = _vectors(context, builder, kinds, choices, _common(*kinds))
    return builder.select(condition, *vectors)


def _type_where(condition: Any, x: Any, y: Any) -> Any:
    """Return the type of `where`; None if there is no vector of conditions."""
    return _common(x, y) if getattr(condition, "dtype", None) == types.boolean else None


def _bits_in(vector: Any, exponent: int) -> ir.Constant:
    """Return the bits of a power of two, given its exponent's, for every lane of a vector."""
    (word, digits, _), count = _FORMATS[vector.type.element], vector.type.count
    return ir.Constant(ir.VectorType(word, count), [exponent << digits] * count)


def _inverse_power(builder: Any, x: Any) -> Any:
    """Emit `inverse_power`: the exponent's bits, flipped, are those of the inverse.

    They count from a bias b, 127 or 1023, so that e + b means 2 ** e, and 2 b + 1 are all bits set.
    Flipped they are b + 1 - e: 2 ** (1 - e), for x in [2 ** e, 2 ** (e + 1)).
    """
    _, _, all_set = _FORMATS[x.type.element]
    exponent, largest = _bits_in(x, all_set), _bits_in(x, all_set - 1)
    flipped = builder.and_(builder.not_(builder.bitcast(x, exponent.type)), exponent)
    is_above = builder.icmp_unsigned(">", flipped, largest)  # of subnormal x, all bits are set
    return builder.bitcast(builder.select(is_above, largest, flipped), x.type)


def _smallest_normal(builder: Any, x: Any) -> Any:
    """Emit `smallest_normal`, whose exponent's bits are 1."""
    return builder.bitcast(_bits_in(x, 1), x.type)


def _larger(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def _smaller(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


type_callable(where)(lambda context: _type_where)
for _kinds in [(Vector, Vector), (Vector, types.Number), (types.Number, Vector)]:
    lower(where, Vector, *_kinds)(_select)
_define(maximum, 2, _same, _larger)
_define(fma, 3, _same, _emit_intrinsic("fma"))
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
            (combined,), count = args, vector.count
            distance = count // 2
            while distance:
                picks = constant_vector((lane + distance) % count for lane in range(count))
                moved = builder.shuffle_vector(combined, combined, picks)
                combined = combine(builder, combined, moved)
                distance //= 2
            return builder.extract_element(combined, I32(0))

        return vector.dtype(vector), generate

    return reduce


#: Sum, smallest and largest number of a vector that holds no NaN.
total = _reduction(lambda builder, x, y: builder.fadd(x, y))
lowest = _reduction(_smaller)
highest = _reduction(_larger)


def _bits_of(builder: Any, mask: Any) -> Any:
    """Emit the lanes of a mask, at most 64, as the lowest bits of a whole number."""
    return builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), I64)


@intrinsic
def nonzero_bits(typing, vector):
    """Return 64 bits: whether each of at most 64 numbers is not 0, as NaN is not."""

    def generate(context, builder, signature, args):
        is_nonzero = builder.fcmp_unordered("!=", args[0], vector.code(None))
        return _bits_of(builder, is_nonzero)

    return types.uint64(vector), generate


@intrinsic
def lowest_bit(typing, word):
    """Return the position of the lowest bit of a uint64; 64 of 0."""
    is_never_zero = I1(0)
    signature = types.int64(types.uint64)
    return signature, lambda _, builder, __, args: builder.cttz(args[0], is_never_zero)


def _moved_up(builder: Any, vector: Any, by: int) -> Any:
    """Emit the vector whose lane k has the number of lane k - `by`; 0 where there is none."""
    count = vector.type.count
    picks = constant_vector(count + lane - by if lane >= by else 0 for lane in range(count))
    zeros = ir.Constant(vector.type, [0.0] * count)
    return builder.shuffle_vector(zeros, vector, picks)  # picks count zeros first, then the vector


@intrinsic
def search(typing, weights, x):
    """Return the lane in whose share of [0, sum) x falls, and how far x is from the share's start.

    The share of lane k goes from sum(weights[:k]) to sum(weights[:k + 1]). Sums are rounded, so
    that x may fall between the shares or beyond the last: then the lane may be one of weight zero.
    """

    def generate(context, builder, signature, args):
        (sums, x), count, distance = args, weights.count, 1
        # Each lane adds the sum of the 1, 2, 4, ... lanes below those that it has added already.
        while distance < count:
            sums = builder.fadd(sums, _moved_up(builder, sums, distance))
            distance *= 2
        # Now lane k has the end of its share. The first that is above x is its own; else the last.
        ends_after_x = _bits_of(builder, builder.fcmp_ordered(">", sums, splat(builder, x, count)))
        last_lane, is_never_zero = I64(1 << (count - 1)), I1(1)
        lane = builder.cttz(builder.or_(ends_after_x, last_lane), is_never_zero)
        start = builder.extract_element(_moved_up(builder, sums, 1), builder.trunc(lane, I32))
        from_start = _larger(builder, builder.fsub(x, start), x.type(0.0))
        return context.make_tuple(builder, signature.return_type, [lane, from_start])

    returned = types.Tuple((types.int64, weights.dtype))
    return returned(weights, weights.dtype), generate
