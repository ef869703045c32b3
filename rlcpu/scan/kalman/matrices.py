"""Small matrices in plain loops: products, sums and an inverse.

A cell of a matrix holds a number of one model or of each of several, as many as a register has
lanes: the loops are the same. A vector is a matrix of one column. Nothing is checked here.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload

from rlcpu.kernels.compile import INLINE, inline
from rlcpu.kernels.memory import shifted
from rlcpu.kernels.vectors import Vector

# ---------------------------------------------------------------- memory


class SmallMatrix(NamedTuple):
    """Cells in memory; or one matrix of each time step, of which this is the first.

    Unlike arrays it has no owner, whom numba would count wherever one is passed on.
    """

    cells: Any  # pointer
    rows: Any
    columns: Any
    row: Any  # cells from one row to the next
    column: Any  # cells from one column to the next


class Arena(NamedTuple):
    """Memory of a workspace: a pointer to its cells, and an array of one number, cells in use."""

    cells: Any
    used: Any


def take(arena: Any, rows: int, columns: int, count: int = 1) -> Any:
    """Return a matrix, or one for each of some steps, of the next cells; Python counts them."""
    arena.used[0] += count * rows * columns


@overload(take, jit_options=INLINE)
def _take(arena, rows, columns, count=1):
    def take(arena, rows, columns, count=1):
        begin = arena.used[0]
        arena.used[0] += count * rows * columns
        return SmallMatrix(shifted(arena.cells, begin), rows, columns, columns, 1)

    return take


@inline
def of_step(x, k):
    """Return the matrix of step k."""
    return SmallMatrix(shifted(x.cells, k * x.rows * x.columns), x.rows, x.columns, x.row, x.column)


@inline
def transposed(x):
    """Return the transposed matrix."""
    return SmallMatrix(x.cells, x.columns, x.rows, x.column, x.row)


@inline
def get(x, i, j):
    """Return element (i, j)."""
    return x.cells[i * x.row + j * x.column]


@inline
def put(x, i, j, cell):
    """Overwrite element (i, j)."""
    x.cells[i * x.row + j * x.column] = cell


@intrinsic
def lanes_of(typing, x):
    """Return how many numbers a cell of a matrix holds."""
    cell = x.types[0].dtype
    lanes = cell.count if isinstance(cell, Vector) else 1
    return types.intp(x), lambda *_: ir.Constant(ir.IntType(64), lanes)


@intrinsic
def numbers_of(typing, x):
    """Return a pointer to the numbers of a matrix, `lanes_of` in each cell."""
    cell = x.types[0].dtype
    pointer = types.CPointer(cell.dtype if isinstance(cell, Vector) else cell)

    def generate(context, builder, signature, args):
        cells = builder.extract_value(args[0], 0)
        return builder.bitcast(cells, context.get_value_type(pointer))

    return pointer(x), generate


@inline
def read(x, array, parts, first, t):
    """Read a matrix of each lane's model at a time step.

    Args:
        x: overwritten.
        array: (parts, T or 1, rows * columns), of all models.
        parts: (lanes of all blocks,) which of the array's parts each lane reads.
        first: number of the first lane.
        t: time step; one that is constant is read at the first one alone.
    """
    if t == 0 or array.shape[1] > 1:
        numbers, lanes = numbers_of(x), lanes_of(x)
        for lane in range(lanes):
            part = parts[first + lane]
            for i in range(array.shape[2]):
                numbers[i * lanes + lane] = array[part, t, i]


@inline
def write(x, factor, array, first, t):
    """Write factor times a matrix of each lane's model to a time step of an array.

    Args:
        x: the matrix.
        factor: a number.
        array: (models, T or 1, rows * columns), overwritten where the model and the step are.
        first: number of the first lane's model; lanes beyond the last model are left out.
        t: time step.
    """
    numbers, lanes = numbers_of(x), lanes_of(x)
    for lane in range(min(lanes, array.shape[0] - first)):
        for i in range(array.shape[2]):
            array[first + lane, t, i] = factor * numbers[i * lanes + lane]


# ---------------------------------------------------------------- sums and products


@inline
def clear(out):
    """Set a matrix to 0."""
    numbers = numbers_of(out)
    for i in range(out.rows * out.columns * lanes_of(out)):
        numbers[i] = 0.0


@inline
def set_identity(out):
    """Set a matrix to the identity."""
    clear(out)
    numbers, lanes = numbers_of(out), lanes_of(out)
    for i in range(out.rows):
        for lane in range(lanes):
            numbers[i * (out.row + out.column) * lanes + lane] = 1.0


@inline
def copy(out, x):
    """Set out = x."""
    for i in range(out.rows):
        for j in range(out.columns):
            put(out, i, j, get(x, i, j))


@inline
def add(out, factor, x):
    """Set out = out + factor x."""
    for i in range(out.rows):
        for j in range(out.columns):
            put(out, i, j, get(out, i, j) + factor * get(x, i, j))


@inline
def product_at(left, right, i, j):
    """Return element (i, j) of left @ right."""
    total = get(left, i, 0) * get(right, 0, j)
    for k in range(1, left.columns):
        total = total + get(left, i, k) * get(right, k, j)
    return total


@inline
def multiply(out, left, right):
    """Set out = left @ right."""
    for i in range(out.rows):
        for j in range(out.columns):
            put(out, i, j, product_at(left, right, i, j))


@inline
def add_product(out, start, factor, left, right):
    """Set out = start + factor left @ right; `start` may be `out`."""
    for i in range(out.rows):
        for j in range(out.columns):
            put(out, i, j, get(start, i, j) + factor * product_at(left, right, i, j))


@inline
def add_symmetric(out, start, factor, left, right):
    """Set out = start + factor left @ right, of which it is known that it is symmetric."""
    for i in range(out.rows):
        for j in range(i + 1):
            cell = get(start, i, j) + factor * product_at(left, right, i, j)
            put(out, i, j, cell)
            put(out, j, i, cell)


@inline
def invert(x, missing, log_det):
    """Invert a covariance S by Gauss and Jordan's sweeps, and set log_det to log(det(2 pi S)).

    Where `missing`, a column, is 1, rows and columns are left out: the inverse is 0 there. Both are
    NaN of a matrix that is not positive definite.
    """
    lanes, numbers, logs, is_missing = (
        lanes_of(x),
        numbers_of(x),
        numbers_of(log_det),
        numbers_of(missing),
    )
    clear(log_det)
    for k in range(x.rows):
        for lane in range(lanes):
            at = k * (x.row + x.column) * lanes + lane
            if is_missing[k * lanes + lane] != 0.0:
                numbers[at] = 1.0
            elif 0.0 < numbers[at] < math.inf:
                logs[lane] += math.log(2.0 * math.pi * numbers[at])
            else:
                numbers[at] = logs[lane] = math.nan
        inverse = (1.0 - get(missing, k, 0)) / get(x, k, k)
        for i in range(x.rows):
            if i != k:
                factor = get(x, i, k) * inverse
                for j in range(x.rows):
                    if j != k:
                        put(x, i, j, get(x, i, j) - factor * get(x, k, j))
                put(x, i, k, -factor)
        for j in range(x.rows):
            if j != k:
                put(x, k, j, get(x, k, j) * inverse)
        put(x, k, k, inverse)


@inline
def is_close(x, other, tolerance):
    """Tell whether two covariances are equal to a tolerance, in units of the deviations of x."""
    n, lanes, numbers, others, close = x.rows, lanes_of(x), numbers_of(x), numbers_of(other), True
    for i in range(n):
        for j in range(i + 1):
            for lane in range(lanes):
                at, ii, jj = ((i * n + j) * lanes, i * (n + 1) * lanes, j * (n + 1) * lanes)
                scale = math.sqrt(numbers[ii + lane]) * math.sqrt(numbers[jj + lane])
                close &= abs(numbers[at + lane] - others[at + lane]) <= tolerance * scale
    return close
