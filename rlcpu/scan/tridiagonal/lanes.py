"""One row of tridiagonal systems that lie next to each other, a vector of systems at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.memory import load, load_first, prefetch, shifted, store, store_first, stream
from rlcpu.kernels.vectors import fill, where, width
from rlcpu.scan.tridiagonal.steps import Pending, inlined, scaled
from rlcpu.scan.tridiagonal.tiles import ONE, Sources

AHEAD = 256  # numbers of an array that are asked for before they are read, at least one row


class Columns(NamedTuple):
    """A block of systems.

    Attributes:
        sources: pointers to the first system's first numbers.
        out: the same of the result.
        moves: for each of these, whether systems have numbers of their own, or share one.
        steps: distance between unknowns in each.
        sizes: number of unknowns, of systems, and of places for them in scratch.
        stops: pointer to the length of each system, a real number.
        carried: pointer to what is left of the equations above, or to two unknowns below.
        pivots: pointer to scratch.
        whole: whether all systems are of the same length.
        streamed: whether to write past the caches.
        eagerness: see `eliminate`.
    """

    sources: Any
    out: Any
    moves: Any
    steps: Any
    sizes: Any
    stops: Any
    carried: Any
    pivots: Any
    whole: Any
    streamed: Any
    eagerness: Any


@inlined
def _read(pointer, moves, by):  # type: ignore[no-untyped-def]
    return load(pointer, by, ONE) if moves else fill(pointer[0], ONE)


@inlined
def _read_first(pointer, moves, by, count, zero):  # type: ignore[no-untyped-def]
    return load_first(pointer, by, count, zero, ONE) if moves else fill(pointer[0], ONE)


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
def _equation(block, row, by):  # type: ignore[no-untyped-def]
    moves = block.moves
    return scaled(
        _read(row.lower, moves[0], by),
        _read(row.diagonal, moves[1], by),
        _read(row.upper, moves[2], by),
        _read(row.rhs, moves[3], by),
    )


@inlined
def equation_part(block, row, k, by, count):  # type: ignore[no-untyped-def]
    """The same where systems begin or end: x = 0 beyond them, and nothing leads there."""
    moves, zero = block.moves, block.eagerness - block.eagerness
    stop = load(block.stops, by, ONE)
    inside, before_last = stop > k, stop > k + 1
    lower = where(inside, _read_first(row.lower, moves[0], by, count, zero), zero)
    diagonal = where(inside, _read_first(row.diagonal, moves[1], by, count, zero), zero + 1)
    upper = where(before_last, _read_first(row.upper, moves[2], by, count, zero), zero)
    rhs = where(inside, _read_first(row.rhs, moves[3], by, count, zero), zero)
    if k == 0:
        lower = fill(zero, ONE)
    return scaled(lower, diagonal, upper, rhs)


@inlined
def fetch(block, row, k, by):  # type: ignore[no-untyped-def]
    """Scaled equations of row k, a vector from system `by` on."""
    n, systems, _ = block.sizes
    rest = systems - by
    if block.whole and k > 0 and k + 1 < n and rest >= width(block.carried, ONE):
        return _equation(block, row, by)
    return equation_part(block, row, k, by, rest)


@inlined
def ask(block, row, by):  # type: ignore[no-untyped-def]
    """Ask for what is read some rows later."""
    ahead = (AHEAD + block.sizes[2] - 1) // block.sizes[2]
    steps = block.steps
    prefetch(row.lower, ahead * steps[0] + by)
    prefetch(row.diagonal, ahead * steps[1] + by)
    prefetch(row.upper, ahead * steps[2] + by)
    prefetch(row.rhs, ahead * steps[3] + by)


@inlined
def carry(block, pending, by):  # type: ignore[no-untyped-def]
    """Keep what is left of the equations above."""
    room = block.sizes[2]
    store(pending.diagonal, block.carried, by)
    store(pending.upper, block.carried, room + by)
    store(pending.rhs, block.carried, 2 * room + by)


@inlined
def carried(block, by):  # type: ignore[no-untyped-def]
    """What `carry` kept."""
    room, carried = block.sizes[2], block.carried
    diagonal, upper = load(carried, by, ONE), load(carried, room + by, ONE)
    return Pending(diagonal, upper, load(carried, 2 * room + by, ONE))


@inlined
def write(block, x, k, by):  # type: ignore[no-untyped-def]
    """Write unknown k."""
    rest = block.sizes[1] - by
    row = shifted(block.out, k * block.steps[4])
    if rest < width(block.carried, ONE):
        store_first(x, row, by, rest)
    elif block.streamed:
        stream(x, row, by)
    else:
        store(x, row, by)
