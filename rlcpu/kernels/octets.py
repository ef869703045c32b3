"""Explicit vectors of eight float64, the width of a tree's node and of a cache line.

A node's sum and the search inside it are chains of eight dependent operations in a plain loop;
as vectors they take three steps each, which makes sampling from a sum tree 2.4x as fast. LLVM
lowers the vectors to whatever the machine has.

Nothing is checked here: an index is a position in a one-dimensional contiguous float64 array, a
multiple of eight, and the array begins at a cache line (see `aligned`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic as _intrinsic
from numba.extending import models, register_model

# Their types do not fit what they are: kernels call an intrinsic without its first argument.
intrinsic: Any = _intrinsic
cgutils: Any = _cgutils

WIDTH = 8
LINE = 64  # bytes

_I32, _I64, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_VECTOR = ir.VectorType(_DOUBLE, WIDTH)
_ZERO = ir.Constant(_VECTOR, [0.0] * WIDTH)
_LANES = ir.Constant(_VECTOR, [float(lane) for lane in range(WIDTH)])


class Octet(types.Type):
    """Numba type of eight float64 in registers."""

    def __init__(self) -> None:
        super().__init__(name="Octet")


octet = Octet()


@register_model(Octet)
class _OctetModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Octet) -> None:
        super().__init__(manager, kind, _VECTOR)  # type: ignore[no-untyped-call]


def aligned(count: int, dtype: Any = np.float64) -> npt.NDArray[Any]:
    """Zeros that begin at a cache line."""
    size = count * np.dtype(dtype).itemsize
    memory = np.zeros(size + LINE - 1, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + size].view(dtype)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = cgutils.create_struct_proxy(kind)(context, builder, array).data
    return builder.gep(data, [index])


def _splat(builder: Any, number: Any) -> Any:
    empty = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, empty, _mask([0] * WIDTH))


def _mask(lanes: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_I32, len(lanes)), lanes)


def _shifted(builder: Any, vector: Any, by: int) -> Any:
    """Every lane moved up by `by`, zeros below."""
    lanes = [WIDTH + lane - by if lane >= by else 0 for lane in range(WIDTH)]
    return builder.shuffle_vector(_ZERO, vector, _mask(lanes))


@intrinsic
def load(typing: Any, array: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """The eight numbers from `array[index]` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *args)
        return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=LINE)

    return octet(array, types.intp), generate


@intrinsic
def store(typing: Any, vector: Any, array: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """Write the eight numbers to `array[index]` and on, wherever the array begins."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[1], *args[1:])
        builder.store(args[0], builder.bitcast(pointer, _VECTOR.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(octet, array, types.intp), generate


def _reduction(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Intrinsic: the lanes combined in pairs of distance 4, 2 and 1."""

    @intrinsic
    def reduce(typing: Any, vector: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            found = args[0]
            for distance in (4, 2, 1):
                lanes = [(lane + distance) % WIDTH for lane in range(WIDTH)]
                found = combine(builder, found, builder.shuffle_vector(found, _ZERO, _mask(lanes)))
            return builder.extract_element(found, ir.Constant(_I32, 0))

        return types.float64(octet), generate

    return reduce


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


#: Sum, smallest and largest of the eight numbers; none of them is NaN.
total = _reduction(lambda builder, a, b: builder.fadd(a, b))
lowest = _reduction(_smaller)
highest = _reduction(_larger)


@intrinsic
def positive_or(typing: Any, vector: Any, other: Any) -> tuple[Any, Callable[..., Any]]:
    """The vector with `other` in place of numbers that are not above zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        above = builder.fcmp_ordered(">", args[0], _ZERO)
        return builder.select(above, args[0], _splat(builder, args[1]))

    return octet(octet, types.float64), generate


@intrinsic
def first_or(typing: Any, vector: Any, count: Any, other: Any) -> tuple[Any, Callable[..., Any]]:
    """The vector with `other` in place of all but its first `count` numbers; count is a float."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        within = builder.fcmp_ordered("<", _LANES, _splat(builder, args[1]))
        return builder.select(within, args[0], _splat(builder, args[2]))

    return octet(octet, types.float64, types.float64), generate


@intrinsic
def raised(
    typing: Any, vector: Any, shift: Any, filled: Any, span: Any
) -> tuple[Any, Callable[..., Any]]:
    """Sums of values turned into sums of `value + shift`, negative ones to zero.

    Lane j is the sum of as many values as are left of `filled` after j * `span`, at most `span`.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector, shift, filled, span = (a if a is args[0] else _splat(builder, a) for a in args)
        before = builder.fmul(_LANES, span)
        left = _larger(builder, builder.fsub(filled, before), _ZERO)
        counts = _smaller(builder, left, span)
        # Not contracted: of equal values, sum and product are rounded alike and cancel exactly.
        weights = builder.fadd(vector, builder.fmul(counts, shift))
        return _larger(builder, weights, _ZERO)

    return octet(octet, types.float64, types.float64, types.float64), generate


@intrinsic
def search(typing: Any, weights: Any, x: Any) -> tuple[Any, Callable[..., Any]]:
    """Child in whose share of [0, sum) the number x falls, and x from the share's beginning.

    Sums are rounded, so that x may fall between the shares or beyond the last: then the child may
    be one of weight zero, and all that is found below it too. To look at the leaf in the end costs
    nothing; to keep to children with a weight here, by a second mask, takes three times as long.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, x = args
        for distance in (1, 2, 4):
            sums = builder.fadd(sums, _shifted(builder, sums, distance))
        beyond = builder.fcmp_ordered(">", sums, _splat(builder, x))
        bits = builder.zext(builder.bitcast(beyond, ir.IntType(WIDTH)), _I64)
        ended = builder.or_(bits, ir.Constant(_I64, 1 << (WIDTH - 1)))
        child = builder.cttz(ended, ir.Constant(ir.IntType(1), 1))
        lane = builder.trunc(child, _I32)
        before = builder.extract_element(_shifted(builder, sums, 1), lane)
        rest = _larger(builder, builder.fsub(x, before), ir.Constant(_DOUBLE, 0.0))
        return context.make_tuple(builder, signature.return_type, [child, rest])

    found: Any = types.Tuple
    return found((types.int64, types.float64))(octet, types.float64), generate


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """Ask for the cache line of `array[index]`; any index is harmless."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = _pointer(context, builder, signature.args[0], *args)
        line = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        read, near, data = (ir.Constant(_I32, number) for number in (0, 3, 1))
        builder.call(function, [line, read, near, data])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate
