"""Small matrices in plain loops: products, sums and an inverse.

A cell of a matrix is a number of one model or, in kernels, a `Vector` with the number of as many
models as a register holds: the loops are the same. In plain Python matrices are NumPy's. Nothing is
checked here.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic, overload, register_jitable

from rlcpu.kernels.compile import FAST, INLINE
from rlcpu.kernels.memory import shifted
from rlcpu.kernels.vectors import Vector, where

#: Decorator: plain Python, and a part of every kernel that calls it.
inlined: Any = register_jitable(fastmath=FAST, **INLINE)
#: The same, but called: inlined, a filter takes three times as long to compile.
called: Any = register_jitable(fastmath=FAST, **{**INLINE, "forceinline": False})

# ---------------------------------------------------------------- memory


def take(memory: Any, begin: int, shape: tuple[int, ...]) -> Any:
    """Return the cells from a position on as a matrix; `memory` is an array or a pointer."""
    return memory[begin : begin + math.prod(shape)].reshape(shape)


@overload(take, jit_options=INLINE)
def _take(memory, begin, shape):
    return lambda memory, begin, shape: carray(shifted(memory, begin), shape)


def numbers_of(matrix: Any) -> Any:
    """Return a view of a contiguous matrix as numbers, (cells, lanes)."""
    return matrix.reshape(-1, 1)


@intrinsic
def _numbers_of(typing, matrix):
    cell = matrix.dtype
    number, lanes = (cell.dtype, cell.count) if isinstance(cell, Vector) else (cell, 1)
    view = types.Array(number, 2, "C")

    def generate(context, builder, signature, args):
        source = context.make_array(matrix)(context, builder, args[0])
        result = context.make_array(view)(context, builder)
        word = context.get_value_type(types.intp)
        size = ir.Constant(word, context.get_abi_sizeof(context.get_data_type(number)))
        count = ir.Constant(word, lanes)
        kind = context.get_data_type(number).as_pointer()
        context.populate_array(
            result,
            data=builder.bitcast(source.data, kind),
            shape=cgutils.pack_array(builder, [source.nitems, count]),
            strides=cgutils.pack_array(builder, [builder.mul(size, count), size]),
            itemsize=size,
            meminfo=None,
        )
        return result._getvalue()

    return view(matrix), generate


@overload(numbers_of, jit_options=INLINE)
def _overload_numbers_of(matrix):
    return lambda matrix: _numbers_of(matrix)


# ---------------------------------------------------------------- sums and products


@inlined
def clear(out):
    """Set a matrix to 0."""
    numbers = numbers_of(out)
    for i in range(numbers.shape[0]):
        for lane in range(numbers.shape[1]):
            numbers[i, lane] = 0.0


@inlined
def set_identity(out):
    """Set a matrix to the identity."""
    clear(out)
    numbers, n = numbers_of(out), out.shape[0]
    for i in range(n):
        for lane in range(numbers.shape[1]):
            numbers[i * n + i, lane] = 1.0


@called
def copy(out, matrix):
    """Set out = matrix."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = matrix[i, j]


@called
def add(out, factor, matrix):
    """Set out = out + factor matrix."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = out[i, j] + factor * matrix[i, j]


@inlined
def product_at(left, right, i, j):
    """Return element (i, j) of left @ right."""
    total = left[i, 0] * right[0, j]
    for k in range(1, left.shape[1]):
        total = total + left[i, k] * right[k, j]
    return total


@called
def multiply(out, left, right):
    """Set out = left @ right."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = product_at(left, right, i, j)


@called
def add_product(out, factor, left, right):
    """Set out = out + factor left @ right."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = out[i, j] + factor * product_at(left, right, i, j)


@called
def add_symmetric(out, factor, left, right):
    """Set out = out + factor left @ right, of which it is known that it is symmetric."""
    for i in range(out.shape[0]):
        for j in range(i + 1):
            out[i, j] = out[i, j] + factor * product_at(left, right, i, j)
            out[j, i] = out[i, j]


@called
def apply(out, matrix, x):
    """Set out = matrix @ x, a vector."""
    for i in range(out.shape[0]):
        total = matrix[i, 0] * x[0]
        for k in range(1, matrix.shape[1]):
            total = total + matrix[i, k] * x[k]
        out[i] = total


@called
def apply_to(out, start, factor, matrix, x):
    """Set out = start + factor matrix @ x, a vector."""
    for i in range(out.shape[0]):
        total = matrix[i, 0] * x[0]
        for k in range(1, matrix.shape[1]):
            total = total + matrix[i, k] * x[k]
        out[i] = start[i] + factor * total


# ---------------------------------------------------------------- inverse


def reciprocal(x: Any) -> Any:
    """Return 1 / x where x is positive and finite, NaN elsewhere: pivots that are not definite."""
    return 1.0 / x if 0.0 < x < math.inf else math.nan


@overload(reciprocal, jit_options={"fastmath": FAST, **INLINE})
def _reciprocal(x):
    if isinstance(x, Vector):
        return lambda x: where(x > 0.0, where(x < math.inf, 1.0 / x, math.nan), math.nan)
    return lambda x: 1.0 / x if 0.0 < x < math.inf else math.nan


@called
def invert(matrix, missing, pivots):
    """Invert a covariance by Gauss and Jordan's sweeps, and write down the pivots of 2 pi times it.

    Where `missing` is 1, rows and columns are left out: the inverse is 0 there, and the pivot 1.
    The inverse is NaN of a matrix that is not positive definite.
    """
    n = matrix.shape[0]
    for k in range(n):
        pivot = matrix[k, k] * (1.0 - missing[k]) + missing[k]
        inverse = reciprocal(pivot) * (1.0 - missing[k])
        pivots[k] = pivot * (2.0 * math.pi * (1.0 - missing[k]) + missing[k])
        for i in range(n):
            if i != k:
                factor = matrix[i, k] * inverse
                for j in range(n):
                    if j != k:
                        matrix[i, j] = matrix[i, j] - factor * matrix[k, j]
                matrix[i, k] = -factor
        for j in range(n):
            if j != k:
                matrix[k, j] = matrix[k, j] * inverse
        matrix[k, k] = inverse
