"""Rows of units: loops over them that kinds of layers share, and matrices that they make."""

from __future__ import annotations

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.matmul import Matrix
from rlcpu.kernels.machine.memory import address, part


@inline
def fill(row, value):
    """Set a row to one number."""
    for i in range(row.size):
        row[i] = value


@inline
def copy(target, source):
    """Copy one row to another."""
    for i in range(target.size):
        target[i] = source[i]


@inline
def add_to(sums, row):
    """Add one row to another."""
    for i in range(sums.size):
        sums[i] += row[i]


@inline
def add_rows(sums, rows):
    """Add rows, of the width of `sums`, to it."""
    width = sums.size
    for begin in range(0, rows.size, width):
        add_to(sums, part(rows, begin, width))


@inline
def row_at(rows, i, width):
    """Return row i, of rows of `width` numbers."""
    return part(rows, i * width, width)


@inline
def as_matrix(rows, width):
    """Return rows of `width` numbers, of an array of one axis, as a factor or result of a product.

    As `transposed`, `repeated` and `Matrix` itself it says only where numbers lie.
    """
    return Matrix(address(rows), begin=0, row_stride=width, column_stride=1)


@inline
def transposed(rows, width):
    """Return the transpose of `as_matrix`, a left factor."""
    return Matrix(address(rows), begin=0, row_stride=1, column_stride=width)


@inline
def repeated(row):
    """Return a matrix all of whose rows are the beginning of one array.

    So the same biases are added to each row of a product; and of a product of one row it is the
    result.
    """
    return Matrix(address(row), begin=0, row_stride=0, column_stride=1)
