"""Half of a block of tall tridiagonal systems, which lie next to each other: in pieces of its rows.

The pivots of all rows would leave the caches. So the half is eliminated twice: from its end to the
middle to find out what is pending there and before each piece, and piece by piece on the way back,
where only the pivots of a piece are kept. The coefficients are read twice, and nothing else leaves
the caches; the arithmetic, and so each result, is that of `sweep`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.memory import load, load_first, shifted, store
from rlcpu.kernels.vectors import width
from rlcpu.scan.tridiagonal.lanes import ask, carried, carry, fetch, keep, kept, row_at, write
from rlcpu.scan.tridiagonal.steps import Pending, eliminate, inlined, scaled, substitute
from rlcpu.scan.tridiagonal.sweep import AHEAD
from rlcpu.scan.tridiagonal.tiles import ONE, Sources


class Half(NamedTuple):
    """Half of a block; row 0 is that at its end, the first or the last of the systems.

    Attributes:
        block: see `lanes.Columns`.
        end: 1 for the half of the last rows.
        size: number of rows of a piece; the first one may have fewer.
        count: number of pieces.
        marks: pointer to what is pending before each piece, and after the last.
        unknowns: pointer to the last two unknowns found, row k's at k modulo 2.
        room: number of places for systems.
        eagerness: see `steps.eliminate`.
    """

    block: Any
    end: Any
    size: Any
    count: Any
    marks: Any
    unknowns: Any
    room: Any
    eagerness: Any


@inlined
def rows_of(half):  # type: ignore[no-untyped-def]
    """Number of rows; the last half has one more than there are unknowns if these are odd."""
    return (half.block.n + 1) // 2


@inlined
def unknowns_at(half, row):  # type: ignore[no-untyped-def]
    """Pointer to the unknowns of a row, one of the last two."""
    return shifted(half.unknowns, (row & 1) * half.room)


@inlined
def mark_at(half, piece):  # type: ignore[no-untyped-def]
    """Pointer to what is pending before a piece."""
    return shifted(half.marks, 3 * half.room * piece)


@inlined
def _number(half, row):  # type: ignore[no-untyped-def]
    """Number of a row in the system."""
    return 2 * rows_of(half) - 1 - row if half.end == 1 else row


@inlined
def _begin(half, piece):  # type: ignore[no-untyped-def]
    """First row of a piece."""
    return max(rows_of(half) - (half.count - piece) * half.size, 0)


@inlined
def _is_plain(half, row):  # type: ignore[no-untyped-def]
    """Whether nothing begins or ends at a row, and no number is shared."""
    block, k = half.block, _number(half, row)
    moves = block.moves
    inner = row > 0 and k > 0 and k + 1 < block.n
    return block.whole and inner and moves[0] and moves[1] and moves[2] and moves[3]


@inlined
def _read(at, by):  # type: ignore[no-untyped-def]
    lower, diagonal = load(at.lower, by, ONE), load(at.diagonal, by, ONE)
    return scaled(lower, diagonal, load(at.upper, by, ONE), load(at.rhs, by, ONE))


@inlined
def _read_first(at, by, count, zero):  # type: ignore[no-untyped-def]
    lower = load_first(at.lower, by, count, zero, ONE)
    diagonal = load_first(at.diagonal, by, count, zero + 1, ONE)
    upper = load_first(at.upper, by, count, zero, ONE)
    return scaled(lower, diagonal, upper, load_first(at.rhs, by, count, zero, ONE))


@inlined
def _advance(half, equation, by, pending, pivots, keeps):  # type: ignore[no-untyped-def]
    """Eliminate with what is pending before and after a row; keep the pivots if told so."""
    pivot, left = eliminate(carried(pending[0], by, half.room), equation, half.eagerness)
    carry(left, pending[1], by, half.room)
    if keeps:
        keep(pivot, pivots, by, half.room)


@inlined
def _down(half, rows, pending, pivots, keeps):  # type: ignore[no-untyped-def]
    """Eliminate with a row.

    Args:
        half: see `Half`.
        rows: its number, and that of a row to ask for.
        pending: pointers to what is pending before and after it.
        pivots: pointer to where its pivots go.
        keeps: whether they are kept.
    """
    block, row, lanes = half.block, rows[0], width(half.marks, ONE)
    k, zero, rising = _number(half, row), half.eagerness - half.eagerness, half.end == 1
    at, ahead = row_at(block, k), row_at(block, _number(half, rows[1]))
    if _is_plain(half, row):
        # Without branches: a narrow block has few vectors a row, and each would pay for them.
        if rising:
            at = Sources(at.upper, at.diagonal, at.lower, at.rhs)
        whole = block.systems // lanes * lanes
        for by in range(0, whole, lanes):
            ask(ahead, by)
            _advance(half, _read(at, by), by, pending, pivots, keeps)
        if whole < block.systems:
            ask(ahead, whole)
            equation = _read_first(at, whole, block.systems - whole, zero)
            _advance(half, equation, whole, pending, pivots, keeps)
        return
    for by in range(0, block.systems, lanes):
        equation = fetch(block, at, k, by, rising, zero)
        if row == 0:
            left = Pending(equation.diagonal, equation.upper, equation.rhs)
            carry(left, pending[1], by, half.room)
        else:
            _advance(half, equation, by, pending, pivots, keeps)


@inlined
def descend(half):  # type: ignore[no-untyped-def]
    """Eliminate from the end to the middle, and leave all marks."""
    distance = (AHEAD + half.room - 1) // half.room
    for piece in range(half.count):
        begin, end = _begin(half, piece), _begin(half, piece + 1)
        source, target = mark_at(half, piece), mark_at(half, piece + 1)
        for i in range(end - begin):
            row = begin + i
            _down(half, (row, row + distance), (source, target), target, False)
            source = target


@inlined
def _up(half, row, pivots):  # type: ignore[no-untyped-def]
    """Find the unknowns before a row, from its pivots; they take the place of those after it."""
    last, second = unknowns_at(half, row), unknowns_at(half, row + 1)
    for by in range(0, half.block.systems, width(pivots, ONE)):
        pivot = kept(pivots, by, half.room)
        store(substitute(pivot, load(last, by, ONE), load(second, by, ONE)), second, by)


@inlined
def _write(half, row, streamed):  # type: ignore[no-untyped-def]
    """Write the unknowns of a row."""
    k = _number(half, row)
    if k < half.block.n:
        write(unknowns_at(half, row), half.block, k, streamed)


@inlined
def ascend(half, pivots, streamed):  # type: ignore[no-untyped-def]
    """Write all unknowns from the middle to the end.

    Args:
        half: the last two unknowns found are those in the middle; marks are overwritten.
        pivots: pointer to scratch for those of a piece.
        streamed: whether to write past the caches.
    """
    count, step = half.count, 3 * half.room
    distance = (AHEAD + half.room - 1) // half.room
    for i in range(count):
        piece = count - 1 - i
        begin, end = _begin(half, piece), _begin(half, piece + 1)
        source, target = mark_at(half, piece), mark_at(half, piece + 1)
        for j in range(end - begin):
            later = begin + j + distance
            if later >= end:  # of the piece that comes next
                later += _begin(half, piece - 1) - end
            to = shifted(pivots, step * j)
            _down(half, (begin + j, later), (source, target), to, True)
            source = target
        # Not before: it may be the place of this piece's last right-hand sides.
        _write(half, end - 1, streamed)
        for j in range(end - begin):
            row = end - 1 - j
            if row > 0:
                _up(half, row, shifted(pivots, step * (row - begin)))
            if row > begin:
                _write(half, row - 1, streamed)
