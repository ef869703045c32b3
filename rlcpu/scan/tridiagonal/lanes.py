"""One row of tridiagonal systems that lie next to each other, a vector of systems at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.memory import (
    load,
    load_first,
    prefetch,
    shifted,
    store,
    store_first,
    stream,
    to_line,
)
from rlcpu.kernels.vectors import fill, where, width
from rlcpu.scan.tridiagonal.steps import Pending, Pivot, inlined, mirrored, scaled
from rlcpu.scan.tridiagonal.tiles import ONE, Sources


class Columns(NamedTuple):
    """A block of systems.

    Attributes:
        sources: pointers to the first system's first numbers.
        out: the same of the result.
        moves: for each of the sources, whether systems have numbers of their own, or share one.
        steps: distance between unknowns in each of the five.
        n: number of unknowns.
        systems: number of them; 0 for no block.
        stops: pointer to the length of each system, a real number.
        whole: whether all systems are of the same length.
    """

    sources: Any
    out: Any
    moves: Any
    steps: Any
    n: Any
    systems: Any
    stops: Any
    whole: Any


class Scratch(NamedTuple):
    """Memory of two blocks, one on its way to the middle, the other on its way back.

    Attributes:
        pending: pointer to what is left of the equations above, and of those below.
        unknowns: pointer to the last two unknowns found above, and to those below.
        pivots: pointer to the pivots of both, of which there are as many as of one.
        room: number of places for systems.
        eagerness: see `steps.eliminate`.
    """

    pending: Any
    unknowns: Any
    pivots: Any
    room: Any
    eagerness: Any


# ---------------------------------------------------------------- equations


@inlined
def row_at(block, k):  # type: ignore[no-untyped-def]
    """Pointers to row k."""
    sources, steps = block.sources, block.steps
    return Sources(
        shifted(sources.lower, k * steps[0]),
        shifted(sources.diagonal, k * steps[1]),
        shifted(sources.upper, k * steps[2]),
        shifted(sources.rhs, k * steps[3]),
    )


@inlined
def _read(pointer, moves, by):  # type: ignore[no-untyped-def]
    return load(pointer, by, ONE) if moves else fill(pointer[0], ONE)


@inlined
def _read_first(pointer, moves, by, count, zero):  # type: ignore[no-untyped-def]
    if count <= 0:  # there may be no memory
        return fill(zero, ONE)
    return load_first(pointer, by, count, zero, ONE) if moves else fill(pointer[0], ONE)


@inlined
def _whole(block, row, by, rising):  # type: ignore[no-untyped-def]
    moves = block.moves
    diagonal, rhs = _read(row.diagonal, moves[1], by), _read(row.rhs, moves[3], by)
    if rising:
        return scaled(_read(row.upper, moves[2], by), diagonal, _read(row.lower, moves[0], by), rhs)
    return scaled(_read(row.lower, moves[0], by), diagonal, _read(row.upper, moves[2], by), rhs)


@inlined
def _part(block, row, k, by, zero):  # type: ignore[no-untyped-def]
    """The equations where systems begin or end: x = 0 beyond them, and nothing leads there."""
    n, moves = block.n, block.moves
    count = block.systems - by if k < n else 0
    stop = load(block.stops, by, ONE)
    inside, before_last = stop > k, stop > k + 1
    begun, going_on = count if k > 0 else 0, count if k + 1 < n else 0
    lower = where(inside, _read_first(row.lower, moves[0], by, begun, zero), zero)
    diagonal = where(inside, _read_first(row.diagonal, moves[1], by, count, zero), zero + 1)
    upper = where(before_last, _read_first(row.upper, moves[2], by, going_on, zero), zero)
    rhs = where(inside, _read_first(row.rhs, moves[3], by, count, zero), zero)
    return scaled(lower, diagonal, upper, rhs)


@inlined
def fetch(block, row, k, by, rising, zero):  # type: ignore[no-untyped-def]
    """Scaled equations of row k, a vector from system `by` on, mirrored if they are `rising`."""
    inner = k > 0 and k + 1 < block.n
    if block.whole and inner and block.systems - by >= width(block.stops, ONE):
        return _whole(block, row, by, rising)
    equation = _part(block, row, k, by, zero)
    return mirrored(equation) if rising else equation


@inlined
def ask(row, by):  # type: ignore[no-untyped-def]
    """Ask for what is read later."""
    prefetch(row.lower, by)
    prefetch(row.diagonal, by)
    prefetch(row.upper, by)
    prefetch(row.rhs, by)


# ---------------------------------------------------------------- scratch


@inlined
def carry(pending, memory, by, room):  # type: ignore[no-untyped-def]
    """Keep what is left of the equations above."""
    store(pending.diagonal, memory, by)
    store(pending.upper, memory, room + by)
    store(pending.rhs, memory, 2 * room + by)


@inlined
def carried(memory, by, room):  # type: ignore[no-untyped-def]
    """What `carry` kept."""
    diagonal, upper = load(memory, by, ONE), load(memory, room + by, ONE)
    return Pending(diagonal, upper, load(memory, 2 * room + by, ONE))


@inlined
def keep(pivot, memory, by, room):  # type: ignore[no-untyped-def]
    """Keep a pivot."""
    store(pivot.upper, memory, by)
    store(pivot.second, memory, room + by)
    store(pivot.rhs, memory, 2 * room + by)


@inlined
def kept(memory, by, room):  # type: ignore[no-untyped-def]
    """What `keep` kept."""
    upper, second = load(memory, by, ONE), load(memory, room + by, ONE)
    return Pivot(upper, second, load(memory, 2 * room + by, ONE))


# ---------------------------------------------------------------- results


@inlined
def write(x, block, k, streamed):  # type: ignore[no-untyped-def]
    """Write unknown k of all systems, from contiguous memory; past the caches if `streamed`."""
    lanes, systems = width(x, ONE), block.systems
    row = shifted(block.out, k * block.steps[4])
    begin = 0
    if streamed:
        begin = min(to_line(row, 0), systems)
        store_first(load(x, 0, ONE), row, 0, begin)
    whole = (systems - begin) // lanes * lanes
    for by in range(begin, begin + whole, lanes):
        if streamed:
            stream(load(x, by, ONE), row, by)
        else:
            store(load(x, by, ONE), row, by)
    begin += whole
    store_first(load(x, begin, ONE), row, begin, systems - begin)
