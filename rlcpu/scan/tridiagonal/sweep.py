"""Two blocks of tridiagonal systems that lie next to each other, in one sweep over their rows.

The first is on its way back from its middle to its ends. The second is on its way there, and takes
the room of the pivots that the first has used: they need half the memory, and memory is read and
written all the time, not in turn.
"""

from __future__ import annotations

from rlcpu.kernels.memory import load, shifted, store
from rlcpu.kernels.vectors import fill, width
from rlcpu.scan.tridiagonal.lanes import (
    ask,
    carried,
    carry,
    fetch,
    keep,
    kept,
    row_at,
    write,
)
from rlcpu.scan.tridiagonal.steps import Pending, eliminate, inlined, meet, substitute
from rlcpu.scan.tridiagonal.tiles import ONE

AHEAD = 256  # numbers of a row that are asked for before they are read, at least one row


@inlined
def _middle(block, scratch, streamed):  # type: ignore[no-untyped-def]
    """Solve for the two unknowns in the middle, and write them."""
    room, half = scratch.room, (block.n + 1) // 2
    top, bottom = scratch.unknowns, shifted(scratch.unknowns, 2 * room)
    for by in range(0, block.systems, width(top, ONE)):
        falling = carried(scratch.pending, by, room)
        rising = carried(shifted(scratch.pending, 3 * room), by, room)
        above, below = meet(falling, rising, scratch.eagerness)
        store(above, top, by)
        store(below, top, room + by)
        store(below, bottom, by)
        store(above, bottom, room + by)
    write(top, block, half - 1, streamed)
    if half < block.n:
        write(bottom, block, half, streamed)


@inlined
def _row(block, i, end):  # type: ignore[no-untyped-def]
    """Number of the row that is i rows from an end; there are evenly many."""
    return (block.n + 1) // 2 * 2 - 1 - i if end == 1 else i


@inlined
def _ahead(there, then, i, end, room):  # type: ignore[no-untyped-def]
    """Pointers to a row that is read some rows later, maybe of the next block."""
    later = i + (AHEAD + room - 1) // room
    rest = later - (there.n + 1) // 2
    if rest < 0:
        return row_at(there, _row(there, later, end))
    return row_at(then, _row(then, rest, end))


@inlined
def _step(blocks, scratch, i, slot, end):  # type: ignore[no-untyped-def]
    """One row of each of two blocks, at one of the ends; returns where the unknowns are."""
    back, there, then = blocks
    room, rising, zero = scratch.room, end == 1, scratch.eagerness - scratch.eagerness
    pivots = shifted(scratch.pivots, (2 * slot + end) * 3 * room)
    pending = shifted(scratch.pending, 3 * end * room)
    unknowns = shifted(scratch.unknowns, 2 * end * room)
    last, second = shifted(unknowns, ((i + 1) & 1) * room), shifted(unknowns, (i & 1) * room)
    k = _row(there, i, end)
    row, ahead = row_at(there, k), _ahead(there, then, i, end, room)
    for by in range(0, room, width(pivots, ONE)):
        if i > 0 and by < back.systems:
            pivot = kept(pivots, by, room)
            x = substitute(pivot, load(last, by, ONE), load(second, by, ONE))
            store(x, second, by)
        if by < there.systems:
            ask(ahead, by)
            equation = fetch(there, row, k, by, rising, zero)
            left = Pending(equation.diagonal, equation.upper, equation.rhs)
            if i > 0:
                pivot, left = eliminate(carried(pending, by, room), equation, scratch.eagerness)
                keep(pivot, pivots, by, room)
            carry(left, pending, by, room)
    return second


@inlined
def sweep(blocks, scratch, turned, streamed):  # type: ignore[no-untyped-def]
    """One block from its middle to its ends, the next one from its ends to its middle.

    Args:
        blocks: these two, either of which may be empty, and the one after them.
        scratch: see `Scratch`; what the second block leaves there the next call takes up.
        turned: whether the first block's pivots lie in the order in which they were found; every
            other block's do.
        streamed: whether to write past the caches.

    Returns:
        Zeros, NaN in the lanes of systems of the first block that fail.
    """
    back, half, room = blocks[0], (blocks[0].n + 1) // 2, scratch.room
    if back.systems > 0:
        _middle(back, scratch, streamed)
    for i in range(half):
        slot = half - 1 - i if turned else i - 1
        for end in range(2):
            x = _step(blocks, scratch, i, slot, end)
            k = half + i if end == 1 else half - 1 - i
            if i > 0 and back.systems > 0 and k < back.n:
                write(x, back, k, streamed)
    trace = fill(scratch.eagerness - scratch.eagerness, ONE)
    ends = shifted(scratch.unknowns, ((half - 1) & 1) * room)
    for by in range(0, back.systems, width(ends, ONE)):
        first, last = load(ends, by, ONE), load(ends, 2 * room + by, ONE)
        trace = trace + (first - first) + (last - last)
    return trace
