"""A block of periodic tridiagonal systems that lie next to each other, row by row.

Number k of scratch's slots holds the pivots of unknown k, and then, in place of their right-hand
sides, the unknowns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.memory import load, load_first, shifted, store
from rlcpu.kernels.vectors import fill, fma, maximum, width
from rlcpu.scan.tridiagonal.chunk_steps import Rest, open_chunk
from rlcpu.scan.tridiagonal.lanes import ask, row_at, write
from rlcpu.scan.tridiagonal.ring_steps import (
    DOUBTFUL,
    RingPivot,
    close_ring,
    eliminate_ring,
    outer_part,
)
from rlcpu.scan.tridiagonal.steps import backward_error, inlined, scaled
from rlcpu.scan.tridiagonal.tiles import ONE

#: Numbers of a system beside its slots: two rests, one over the smallest pivot, what is NaN if the
#: system fails, its backward error.
BESIDE = 15
KEEPS = 5  # numbers of a slot
_LARGEST, _TRACE, _WORST = 12, 13, 14
_X = 2  # number of a slot that becomes the unknown
_AHEAD = 3  # rows that are asked for before they are read


class Rings(NamedTuple):
    """Blocks and their scratch.

    Attributes:
        there: the block, see `lanes.Columns`.
        then: the block that comes next.
        rests: pointer to what is not in slots.
        slots: pointer to the slots.
        room: number of places for systems.
        eagerness: see `steps.eliminate`.
    """

    there: Any
    then: Any
    rests: Any
    slots: Any
    room: Any
    eagerness: Any


@inlined
def _read(pointer, moves, by, count, other):  # type: ignore[no-untyped-def]
    return load_first(pointer, by, count, other, ONE) if moves else fill(pointer[0], ONE)


@inlined
def _fetch(block, row, by, zero):  # type: ignore[no-untyped-def]
    """Scaled equations of a row, a vector from system `by` on; x = 0 beyond the last."""
    count, moves = block.systems - by, block.moves
    return scaled(
        _read(row.lower, moves[0], by, count, zero),
        _read(row.diagonal, moves[1], by, count, zero + 1),
        _read(row.upper, moves[2], by, count, zero),
        _read(row.rhs, moves[3], by, count, zero),
    )


@inlined
def _carry(rest, memory, by, room):  # type: ignore[no-untyped-def]
    store(rest.before, memory, by)
    store(rest.first, memory, room + by)
    store(rest.diagonal, memory, 2 * room + by)
    store(rest.upper, memory, 3 * room + by)
    store(rest.rhs, memory, 4 * room + by)
    store(rest.scale, memory, 5 * room + by)


@inlined
def _carried(memory, by, room):  # type: ignore[no-untyped-def]
    before, first = load(memory, by, ONE), load(memory, room + by, ONE)
    diagonal, upper = load(memory, 2 * room + by, ONE), load(memory, 3 * room + by, ONE)
    rhs, scale = load(memory, 4 * room + by, ONE), load(memory, 5 * room + by, ONE)
    return Rest(before, first, diagonal, upper, rhs, scale)


@inlined
def _slot(rings, k):  # type: ignore[no-untyped-def]
    return shifted(rings.slots, KEEPS * k * rings.room)


@inlined
def _unknowns(rings, k):  # type: ignore[no-untyped-def]
    """Pointer to unknown k of all systems, in the ring."""
    n = rings.there.n
    k = k - n if k >= n else k
    return shifted(rings.slots, (KEEPS * (k + n if k < 0 else k) + _X) * rings.room)


@inlined
def _keep(pivot, memory, by, room):  # type: ignore[no-untyped-def]
    store(pivot.upper, memory, by)
    store(pivot.second, memory, room + by)
    store(pivot.rhs, memory, _X * room + by)
    store(pivot.before, memory, 3 * room + by)
    store(pivot.first, memory, 4 * room + by)


@inlined
def _kept(memory, by, room):  # type: ignore[no-untyped-def]
    upper, second = load(memory, by, ONE), load(memory, room + by, ONE)
    rhs, before = load(memory, _X * room + by, ONE), load(memory, 3 * room + by, ONE)
    return RingPivot(upper, second, rhs, before, load(memory, 4 * room + by, ONE))


@inlined
def _ahead(rings, k):  # type: ignore[no-untyped-def]
    """Pointers to a row that is read some rows later, maybe of the next block."""
    later = k + _AHEAD
    if later < rings.there.n:
        return row_at(rings.there, later)
    return row_at(rings.then, later - rings.there.n)


@inlined
def _forward(rings):  # type: ignore[no-untyped-def]
    """Eliminate all but the outer unknowns."""
    block, room, eagerness = rings.there, rings.room, rings.eagerness
    one_at, two_at = rings.rests, shifted(rings.rests, 6 * room)
    largest_at = shifted(rings.rests, _LARGEST * room)
    for k in range(block.n):
        row, ahead, slot = row_at(block, k), _ahead(rings, k), _slot(rings, k - 1)
        for by in range(0, block.systems, width(rings.rests, ONE)):
            ask(ahead, by)
            new = _fetch(block, row, by, eagerness - eagerness)
            if k < 2:
                following, top = open_chunk(new, new)
                if k == 0:
                    _carry(top, two_at, by, room)
                    store(new.rhs - new.rhs, largest_at, by)
                else:
                    _carry(following, one_at, by, room)
            else:
                one, two = _carried(one_at, by, room), _carried(two_at, by, room)
                pivot, inverse, one, two = eliminate_ring(one, two, new, eagerness)
                _keep(pivot, slot, by, room)
                _carry(one, one_at, by, room)
                _carry(two, two_at, by, room)
                store(maximum(abs(inverse), load(largest_at, by, ONE)), largest_at, by)


@inlined
def _backward(rings, streamed):  # type: ignore[no-untyped-def]
    """Write all unknowns, to slots too."""
    block, room = rings.there, rings.room
    n, lanes, trace_at = block.n, width(rings.rests, ONE), shifted(rings.rests, _TRACE * room)
    top, bottom = _unknowns(rings, 0), _unknowns(rings, n - 1)
    for by in range(0, block.systems, lanes):
        one = _carried(rings.rests, by, room)
        last, first = close_ring(one, _carried(shifted(rings.rests, 6 * room), by, room))
        store(first, top, by)
        store(last, bottom, by)
        store((first - first) + (last - last), trace_at, by)
    write(bottom, block, n - 1, streamed)
    for i in range(n - 2):
        k = n - 2 - i
        slot, below, beyond = _slot(rings, k), _unknowns(rings, k + 1), _unknowns(rings, k + 2)
        for by in range(0, block.systems, lanes):
            pivot = _kept(slot, by, room)
            outer = outer_part(pivot, load(bottom, by, ONE), load(top, by, ONE))
            inner = fma(-pivot.second, load(beyond, by, ONE), outer)
            x = fma(-pivot.upper, load(below, by, ONE), inner)
            store(x, slot, _X * room + by)
            store(load(trace_at, by, ONE) + (x - x), trace_at, by)
        write(shifted(slot, _X * room), block, k, streamed)
    write(top, block, 0, streamed)


@inlined
def _is_doubtful(rings):  # type: ignore[no-untyped-def]
    largest, doubtful = shifted(rings.rests, _LARGEST * rings.room), False
    for i in range(rings.there.systems):
        doubtful = doubtful or not largest[i] <= DOUBTFUL
    return doubtful


@inlined
def _check(rings, errors):  # type: ignore[no-untyped-def]
    """Write the backward errors of a block."""
    block, worst_at = rings.there, shifted(rings.rests, _WORST * rings.room)
    zero = rings.eagerness - rings.eagerness
    for k in range(block.n):
        row = row_at(block, k)
        above, here, below = _unknowns(rings, k - 1), _unknowns(rings, k), _unknowns(rings, k + 1)
        for by in range(0, block.systems, width(worst_at, ONE)):
            around = load(above, by, ONE), load(here, by, ONE), load(below, by, ONE)
            error = backward_error(_fetch(block, row, by, zero), around)
            worst = load(worst_at, by, ONE) if k > 0 else fill(zero, ONE)
            store(maximum(error, worst), worst_at, by)
    for i in range(block.systems):
        errors[i] = worst_at[i]


@inlined
def solve_rings(rings, streamed, checked, errors):  # type: ignore[no-untyped-def]
    """Solve a block.

    Args:
        rings: the block and its scratch.
        streamed: whether to write past the caches.
        checked: whether to write backward errors even if no pivot is small.
        errors: pointer to the backward error of the first system.

    Returns:
        Zeros, NaN where a system fails.
    """
    _forward(rings)
    _backward(rings, streamed)
    if checked or _is_doubtful(rings):
        _check(rings, errors)
    zero, trace_at = rings.eagerness - rings.eagerness, shifted(rings.rests, _TRACE * rings.room)
    trace = fill(zero, ONE)
    for by in range(0, rings.there.systems, width(trace_at, ONE)):
        trace = trace + load_first(trace_at, by, rings.there.systems - by, zero, ONE)
    return trace
