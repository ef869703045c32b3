"""Loops over rows of units that kinds of layers share."""

from __future__ import annotations

from rlcpu.kernels.compile import inline


@inline
def fill(row, value):
    """Set a row to one number."""
    for i in range(row.size):
        row[i] = value


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
        add_to(sums, rows[begin : begin + width])


@inline
def sample(rows, i, width, size):
    """Return the first `size` numbers of row i, of rows of `width` numbers."""
    begin = i * width
    return rows[begin : begin + size]
