"""Small matrices in plain loops: products, sums and an inverse.

A cell of a matrix holds a number of one model, or a vector of numbers: one of each of several
models, as many as a register has lanes. The loops are the same. What has to be done to each number,
such as a logarithm, goes through `scalars_of`: number `lane` of cell i is i * lanes + lane of them.
A column of numbers is a matrix, too. `out` is overwritten; nothing is checked.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload

from rlcpu.kernels.compiler.compile import INLINE, inline
from rlcpu.kernels.machine.memory import shifted
from rlcpu.kernels.machine.vectors import Vector

PLUS, MINUS = 1.0, -1.0  # signs: out = start MINUS left @ right

# ---------------------------------------------------------------- memory


class SmallMatrix(NamedTuple):
    """A matrix in memory, or the first of some that follow each other, one for each time step.

    Unlike an array it has no owner, whom numba would count wherever one is passed on.
    """

    cells: Any  # pointer to numbers or vectors
    rows: Any
    columns: Any
    row_stride: Any  # cells from one row to the next
    column_stride: Any  # cells from one column to the next


class Arena(NamedTuple):
    """Memory that matrices are taken from: a pointer to cells, and an array (1,), cells in use."""

    cells: Any
    used: Any


def allocate(arena: Any, rows: int, columns: int, count: int = 1) -> Any:
    """Return a new matrix, or the first of `count`, in the next cells of an arena.

    In Python, only count the cells.
    """
    arena.used[0] += count * rows * columns


@overload(allocate, jit_options=INLINE)
def _allocate(arena, rows, columns, count=1):
    def allocate(arena, rows, columns, count=1):
        begin = arena.used[0]
        arena.used[0] += count * rows * columns
        return SmallMatrix(shifted(arena.cells, begin), rows, columns, columns, 1)

    return allocate


@inline
def matrix_at(x, k):
    """Return matrix k of some that follow each other, of which x is the first."""
    cells = shifted(x.cells, k * x.rows * x.columns)
    return SmallMatrix(cells, x.rows, x.columns, x.row_stride, x.column_stride)


@inline
def transposed(x):
    """Return the transposed matrix, in the same memory."""
    return SmallMatrix(x.cells, x.columns, x.rows, x.column_stride, x.row_stride)


@inline
def element(x, i, j):
    """Return element (i, j)."""
    return x.cells[i * x.row_stride + j * x.column_stride]


@inline
def set_element(x, i, j, cell):
    """Overwrite element (i, j)."""
    x.cells[i * x.row_stride + j * x.column_stride] = cell


@intrinsic
def lanes_of(typing, x):
    """Return how many numbers a cell of a matrix holds, a constant."""
    cell = x.types[0].dtype
    lanes = cell.count if isinstance(cell, Vector) else 1
    return types.intp(x), lambda *_: ir.Constant(ir.IntType(64), lanes)


@intrinsic
def scalars_of(typing, x):
    """Return a pointer to the numbers of a matrix, those of a cell side by side."""
    cell = x.types[0].dtype
    pointer = types.CPointer(cell.dtype if isinstance(cell, Vector) else cell)

    def generate(context, builder, signature, args):
        cells = builder.extract_value(args[0], 0)
        return builder.bitcast(cells, context.get_value_type(pointer))

    return pointer(x), generate


@inline
def read_models(x, array, positions, first, t):
    """Overwrite x with a matrix of each lane's model at step t; at t > 0 if the matrix varies.

    `array`, `ModelRows`, is an input of all models. `positions`, (lanes of all blocks,), says where
    each lane's model is there; the block's lanes begin with lane `first`.
    """
    if t == 0 or array.steps > 1:
        numbers, lanes = scalars_of(x), lanes_of(x)
        for lane in range(lanes):
            position = positions[first + lane]
            for i in range(array.size):
                numbers[i * lanes + lane] = array.numbers[position, t, i]


@inline
def write_models(x, factor, array, first, t):
    """Write `factor` times x, a matrix of each lane's model, to step t of an array, `ModelRows`.

    `first` is the number of the first lane's model; lanes beyond the last model are left out.
    """
    numbers, lanes = scalars_of(x), lanes_of(x)
    for lane in range(min(lanes, array.count - first)):
        for i in range(array.size):
            array.numbers[first + lane, t, i] = factor * numbers[i * lanes + lane]


# ---------------------------------------------------------------- sums and products


@inline
def set_zero(out):
    """Set a matrix to 0."""
    numbers = scalars_of(out)
    for i in range(out.rows * out.columns * lanes_of(out)):
        numbers[i] = 0.0


@inline
def copy(out, x):
    """Set out = x."""
    for i in range(out.rows):
        for j in range(out.columns):
            set_element(out, i, j, element(x, i, j))


@inline
def add(out, factor, x):
    """Set out = out + factor x."""
    for i in range(out.rows):
        for j in range(out.columns):
            set_element(out, i, j, element(out, i, j) + factor * element(x, i, j))


@inline
def product_at(left, right, i, j):
    """Return element (i, j) of left @ right."""
    total = element(left, i, 0) * element(right, 0, j)
    for k in range(1, left.columns):
        total = total + element(left, i, k) * element(right, k, j)
    return total


@inline
def multiply(out, left, right):
    """Set out = left @ right."""
    for i in range(out.rows):
        for j in range(out.columns):
            set_element(out, i, j, product_at(left, right, i, j))


@inline
def subtract_from_identity(out, left, right):
    """Set out = identity - left @ right."""
    for i in range(out.rows):
        for j in range(out.columns):
            one_or_zero = 1.0 if i == j else 0.0
            set_element(out, i, j, one_or_zero - product_at(left, right, i, j))


@inline
def add_product(out, start, factor, left, right):
    """Set out = start + factor left @ right; `start` may be `out`."""
    for i in range(out.rows):
        for j in range(out.columns):
            set_element(out, i, j, element(start, i, j) + factor * product_at(left, right, i, j))


@inline
def accumulate(out, factor, left, right):
    """Set out = out + factor left @ right."""
    add_product(out, out, factor, left, right)


@inline
def add_symmetric(out, start, factor, left, right):
    """Set out = start + factor left @ right where that is symmetric: half of it is computed."""
    for i in range(out.rows):
        for j in range(i + 1):
            cell = element(start, i, j) + factor * product_at(left, right, i, j)
            set_element(out, i, j, cell)
            set_element(out, j, i, cell)


@inline
def invert(x, missing, log_det, variances, tolerance):
    """Replace a covariance S by its inverse, and set log_det, a cell, to log(det(2 pi S)).

    By Gauss and Jordan's sweeps, a row at a time. Rows and columns of which `missing`, a column, is
    1 are left out: the inverse is 0 there. Both results are NaN of a matrix that is not positive
    definite: where what a row adds to those before it is at most `tolerance` times its variance.
    `variances`, a column, is overwritten with the diagonal of S.
    """
    lanes, numbers = lanes_of(x), scalars_of(x)
    logs, is_missing = scalars_of(log_det), scalars_of(missing)
    diagonal = scalars_of(variances)
    set_zero(log_det)
    for k in range(x.rows):
        set_element(variances, k, 0, element(x, k, k))
    for k in range(x.rows):
        for lane in range(lanes):
            at = k * (x.row_stride + x.column_stride) * lanes + lane  # of element (k, k)
            if is_missing[k * lanes + lane] != 0.0:
                numbers[at] = 1.0  # any number that can be divided by
            elif tolerance * diagonal[k * lanes + lane] < numbers[at] < math.inf:
                logs[lane] += math.log(2.0 * math.pi * numbers[at])
            else:
                numbers[at] = logs[lane] = math.nan
        inverse = (1.0 - element(missing, k, 0)) / element(x, k, k)
        for i in range(x.rows):
            if i != k:
                factor = element(x, i, k) * inverse
                for j in range(x.rows):
                    if j != k:
                        set_element(x, i, j, element(x, i, j) - factor * element(x, k, j))
                set_element(x, i, k, -factor)
        for j in range(x.rows):
            if j != k:
                set_element(x, k, j, element(x, k, j) * inverse)
        set_element(x, k, k, inverse)


@inline
def is_close(x, other, tolerance):
    """Tell whether two covariances are equal, but for `tolerance` times the deviations in x.

    Element (i, j) may differ by tolerance * sqrt(x[i, i] * x[j, j]), in every lane.
    """
    n, lanes, all_close = x.rows, lanes_of(x), True
    numbers, others = scalars_of(x), scalars_of(other)
    for i in range(n):
        for j in range(i + 1):
            for lane in range(lanes):
                at = (i * n + j) * lanes + lane
                variance_i = numbers[i * (n + 1) * lanes + lane]
                variance_j = numbers[j * (n + 1) * lanes + lane]
                scale = math.sqrt(variance_i) * math.sqrt(variance_j)
                all_close &= abs(numbers[at] - others[at]) <= tolerance * scale
    return all_close
