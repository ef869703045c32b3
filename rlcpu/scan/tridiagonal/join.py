"""The equations that chunks of a tridiagonal system leave: of the first and last unknown of each.

Chunk j of J leaves two equations of before, first, last and after: the last unknown of the chunk
before, its own two, and the first unknown of the chunk after. Chunks are in a ring: what comes
before the first is the last. Where the system is none, the coefficients there are zero.
"""

from __future__ import annotations

import numpy as np

from rlcpu.scan.tridiagonal.steps import inlined

#: Numbers of an equation that a chunk leaves: before, first, last, after, rhs, scale.
REST = 6
#: Columns of four equations at work: the ring's last and first unknown, the unknowns before, first,
#: last and after of a chunk, the right-hand side, the scale.
WIDTH = 8
_RHS, _SCALE = 6, 7


@inlined
def eliminate(work, row, column):  # type: ignore[no-untyped-def]
    """Bring the best pivot of a column to a row, and free the rows below of the column."""
    best = row
    for i in range(row + 1, 4):
        if abs(work[i, column]) * work[best, _SCALE] > abs(work[best, column]) * work[i, _SCALE]:
            best = i
    for j in range(WIDTH):
        work[row, j], work[best, j] = work[best, j], work[row, j]
    inverse = 1.0 / work[row, column]
    for j in range(_SCALE):
        work[row, j] *= inverse
    for i in range(row + 1, 4):
        factor = work[i, column]
        for j in range(_SCALE):
            work[i, j] -= factor * work[row, j]


@inlined
def enter(work, row, rest, columns):  # type: ignore[no-untyped-def]
    """Write an equation of a chunk to a row, its four coefficients to some columns."""
    for j in range(WIDTH):
        work[row, j] = 0.0
    for i in range(4):
        work[row, columns[i]] = rest[i]
    work[row, _RHS], work[row, _SCALE] = rest[4], rest[5]


@inlined
def _close(work):  # type: ignore[no-untyped-def]
    """Last and first unknown of the ring from the two equations that are left."""
    for i in (2, 3):
        work[i, 0] += work[i, 4]
        work[i, 1] += work[i, 5]
    eliminate(work, 2, 0)
    first = work[3, _RHS] / work[3, 1]
    return work[2, _RHS] - work[2, 1] * first, first


def join(rests, pivots, ends):  # type: ignore[no-untyped-def]
    """Solve for the first and last unknown of every chunk of a system.

    Args:
        rests: (J, 2, REST) equations that the chunks leave.
        pivots: (J, 2, WIDTH) scratch of float64.
        ends: (J, 2) overwritten with the first and last unknowns.
    """
    count = len(rests)
    work = np.zeros((4, WIDTH))
    for i in range(2):
        enter(work, 2 + i, rests[0, i], (0, 1, 4, 5))
    for j in range(1, count):
        for i in range(2):
            for column in range(WIDTH):
                work[i, column] = work[2 + i, column]
            work[i, 2], work[i, 3] = work[i, 4], work[i, 5]
            work[i, 4] = work[i, 5] = 0.0
            enter(work, 2 + i, rests[j, i], (2, 3, 4, 5))
        eliminate(work, 0, 2)
        eliminate(work, 1, 3)
        pivots[j] = work[:2]
    last, first = _close(work)
    ends[0, 0], ends[count - 1, 1] = first, last
    own, after = last, first
    for i in range(1, count):
        j = count - i
        one, two = pivots[j, 0], pivots[j, 1]
        start = two[_RHS] - two[0] * last - two[1] * first - two[4] * own - two[5] * after
        end = one[_RHS] - one[0] * last - one[1] * first - one[4] * own - one[5] * after
        ends[j, 0], ends[j - 1, 1] = start, end - one[3] * start
        own, after = ends[j - 1, 1], start
