"""As many equations as a register has numbers, one of each system: tiles of them, and pivots."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.memory import load, shifted, store
from rlcpu.kernels.tiles import load_tile, load_tile_part
from rlcpu.kernels.vectors import width
from rlcpu.scan.tridiagonal.steps import Pivot, inlined, scaled

ONE = 1  # register of a vector: with two, the pivots of 100 unknowns overflow the first cache


class Sources(NamedTuple):
    """Pointers to the arrays that are read."""

    lower: Any
    diagonal: Any
    upper: Any
    rhs: Any


class Block(NamedTuple):
    """As many systems as a register has lanes.

    Attributes:
        sources: pointers to coefficients and right-hand sides.
        starts: pointer to the lists of positions.
        stops: pointer to the length of each system, then to that less one.
        memory: pointer to scratch: two tiles, pivots of x[-1] to x[n], x[-1] to x[n].
        whole: whether all systems are of length n.
        limit: backward error from which a solution is refined; negative for no check.
        eagerness: see `eliminate`.
    """

    sources: Any
    starts: Any
    stops: Any
    memory: Any
    whole: Any
    limit: Any
    eagerness: Any


@inlined
def _fetch_whole(block, k, tile):  # type: ignore[no-untyped-def]
    lanes = width(tile, ONE)
    area, starts, sources = lanes * lanes, block.starts, block.sources
    load_tile(sources.lower, starts, k, tile, ONE)
    load_tile(sources.diagonal, shifted(starts, lanes), k, shifted(tile, area), ONE)
    load_tile(sources.upper, shifted(starts, 2 * lanes), k, shifted(tile, 2 * area), ONE)
    load_tile(sources.rhs, shifted(starts, 3 * lanes), k, shifted(tile, 3 * area), ONE)


@inlined
def _fetch_part(block, k, tile):  # type: ignore[no-untyped-def]
    """The same where systems begin or end: x = 0 beyond them, and nothing leads there."""
    lanes = width(tile, ONE)
    area, starts, sources = lanes * lanes, block.starts, block.sources
    inside, before_last = (k, 0, block.stops), (k, 0, shifted(block.stops, lanes))
    zero = block.eagerness - block.eagerness
    load_tile_part(sources.lower, starts, (k, 1, block.stops), zero, tile, ONE)
    starts, tile = shifted(starts, lanes), shifted(tile, area)
    load_tile_part(sources.diagonal, starts, inside, zero + 1, tile, ONE)
    starts, tile = shifted(starts, lanes), shifted(tile, area)
    load_tile_part(sources.upper, starts, before_last, zero, tile, ONE)
    starts, tile = shifted(starts, lanes), shifted(tile, area)
    load_tile_part(sources.rhs, starts, inside, zero, tile, ONE)


@inlined
def fetch(block, k, n, tile):  # type: ignore[no-untyped-def]
    """Equations k and following of every system, a square tile of each array."""
    if block.whole and k > 0 and k + width(tile, ONE) < n:
        _fetch_whole(block, k, tile)
    else:
        _fetch_part(block, k, tile)


@inlined
def loaded(tile, row):  # type: ignore[no-untyped-def]
    """Lower, diagonal, upper and rhs of the equations in a row of four tiles."""
    lanes = width(tile, ONE)
    at, area = row * lanes, lanes * lanes
    lower, diagonal = load(tile, at, ONE), load(tile, area + at, ONE)
    return lower, diagonal, load(tile, 2 * area + at, ONE), load(tile, 3 * area + at, ONE)


@inlined
def equation(tile, row):  # type: ignore[no-untyped-def]
    """The scaled equations in a row of four tiles."""
    lower, diagonal, upper, rhs = loaded(tile, row)
    return scaled(lower, diagonal, upper, rhs)


@inlined
def keep(pivot, pivots, slot):  # type: ignore[no-untyped-def]
    """Write pivots to scratch."""
    lanes = width(pivots, ONE)
    at = 3 * lanes * slot
    store(pivot.upper, pivots, at)
    store(pivot.second, pivots, at + lanes)
    store(pivot.rhs, pivots, at + 2 * lanes)


@inlined
def kept(pivots, slot):  # type: ignore[no-untyped-def]
    """Pivots from scratch."""
    lanes = width(pivots, ONE)
    at = 3 * lanes * slot
    upper, second = load(pivots, at, ONE), load(pivots, at + lanes, ONE)
    return Pivot(upper, second, load(pivots, at + 2 * lanes, ONE))
