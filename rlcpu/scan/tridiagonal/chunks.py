"""As many chunks of long tridiagonal systems as a register has numbers, side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.memory import prefetch, shifted, store
from rlcpu.kernels.tiles import load_tile, load_tile_part, store_tile, store_tile_first
from rlcpu.kernels.vectors import maximum, width
from rlcpu.scan.tridiagonal.chunk_steps import eliminate_pair, enter_chunk, open_chunk, reduce_pair
from rlcpu.scan.tridiagonal.steps import inlined, substitute
from rlcpu.scan.tridiagonal.tiles import ONE, equation, keep, kept

AHEAD = 4  # tiles that are asked for before they are needed
#: Lists of a number for each chunk: where it begins in each array and in out, where it ends,
#: whether it begins its system, whether it ends it.
OUT, STOP, BEGINS, ENDS, LISTS = 4, 5, 6, 7, 8


class Chunks(NamedTuple):
    """As many chunks as a register has lanes, of one length.

    Attributes:
        sources: pointers to the coefficients and right-hand sides.
        lists: pointer to the lists.
        length: number of equations.
        memory: pointer to scratch, of the size `chunk_scratch`.
        eagerness: see `steps.eliminate`.
    """

    sources: Any
    lists: Any
    length: Any
    memory: Any
    eagerness: Any


@inlined
def chunk_scratch(m, lanes):  # type: ignore[no-untyped-def]
    """Numbers of scratch: four tiles, pivots, unknowns."""
    return (4 * lanes + 4 * m + 1) * lanes


@inlined
def _fetch_part(chunks, k):  # type: ignore[no-untyped-def]
    tile, lists, sources = chunks.memory, chunks.lists, chunks.sources
    lanes, zero = width(tile, ONE), chunks.eagerness - chunks.eagerness
    area, span = lanes * lanes, (k, 0, shifted(lists, STOP * lanes))
    load_tile_part(sources.lower, lists, span, zero, tile, ONE)
    lists, tile = shifted(lists, lanes), shifted(tile, area)
    load_tile_part(sources.diagonal, lists, span, zero, tile, ONE)
    lists, tile = shifted(lists, lanes), shifted(tile, area)
    load_tile_part(sources.upper, lists, span, zero, tile, ONE)
    lists, tile = shifted(lists, lanes), shifted(tile, area)
    load_tile_part(sources.rhs, lists, span, zero, tile, ONE)


@inlined
def _fetch_whole(chunks, k):  # type: ignore[no-untyped-def]
    tile, lists, sources = chunks.memory, chunks.lists, chunks.sources
    lanes = width(tile, ONE)
    area = lanes * lanes
    load_tile(sources.lower, lists, k, tile, ONE)
    load_tile(sources.diagonal, shifted(lists, lanes), k, shifted(tile, area), ONE)
    load_tile(sources.upper, shifted(lists, 2 * lanes), k, shifted(tile, 2 * area), ONE)
    load_tile(sources.rhs, shifted(lists, 3 * lanes), k, shifted(tile, 3 * area), ONE)


@inlined
def _cut_ends(chunks, k):  # type: ignore[no-untyped-def]
    """Zero in place of what leads out of a system."""
    tile, lists = chunks.memory, chunks.lists
    lanes, last = width(tile, ONE), chunks.length - 1 - k
    area = lanes * lanes
    for lane in range(lanes):
        if k == 0 and lists[BEGINS * lanes + lane] != 0:
            tile[lane] = 0
        if last < lanes and lists[ENDS * lanes + lane] != 0:
            tile[2 * area + last * lanes + lane] = 0


@inlined
def ask_chunks(chunks, k):  # type: ignore[no-untyped-def]
    """Ask for what is read some tiles after equation k."""
    sources, lists = chunks.sources, chunks.lists
    lanes = width(chunks.memory, ONE)
    k += AHEAD * lanes
    for lane in range(lanes):
        prefetch(sources.lower, lists[lane] + k)
        prefetch(sources.diagonal, lists[lanes + lane] + k)
        prefetch(sources.upper, lists[2 * lanes + lane] + k)
        prefetch(sources.rhs, lists[3 * lanes + lane] + k)


@inlined
def fetch_chunks(chunks, k):  # type: ignore[no-untyped-def]
    """Equations k and following of every chunk, as many as a register has numbers."""
    lanes = width(chunks.memory, ONE)
    if k + lanes <= chunks.length:
        _fetch_whole(chunks, k)
    else:
        _fetch_part(chunks, k)
    if k == 0 or k + lanes >= chunks.length:
        _cut_ends(chunks, k)


@inlined
def open_chunks(chunks):  # type: ignore[no-untyped-def]
    """The first tiles, and the first two equations of every chunk as rests."""
    fetch_chunks(chunks, 0)
    return open_chunk(equation(chunks.memory, 0), equation(chunks.memory, 1))


# ---------------------------------------------------------------- the two passes


@inlined
def reduce_chunks(chunks):  # type: ignore[no-untyped-def]
    """The two equations that every chunk leaves, and one over the smallest pivot."""
    lanes, m = width(chunks.memory, ONE), chunks.length
    one, two = open_chunks(chunks)
    ask_chunks(chunks, 0)
    largest = one.diagonal * 0.0
    for k in range(0, m, lanes):
        if k > 0:
            fetch_chunks(chunks, k)
            ask_chunks(chunks, k)
        for row in range(0 if k > 0 else 2, min(lanes, m - k)):
            new = equation(chunks.memory, row)
            inverse, one, two = reduce_pair(one, two, new, chunks.eagerness)
            largest = maximum(abs(inverse), largest)
    return one, two, largest


@inlined
def _eliminate(chunks, before, first, pivots):  # type: ignore[no-untyped-def]
    """Eliminate all but the outer unknowns, which are known; pivot k is that of x[k]."""
    lanes, m = width(chunks.memory, ONE), chunks.length
    top, following = open_chunks(chunks)
    ask_chunks(chunks, 0)
    one, two = enter_chunk(top, before, first), enter_chunk(following, before, first)
    for k in range(0, m, lanes):
        if k > 0:
            fetch_chunks(chunks, k)
            ask_chunks(chunks, k)
        for row in range(0 if k > 0 else 2, min(lanes, m - k)):
            new = equation(chunks.memory, row)
            pivot, one, two = eliminate_pair(one, two, new, chunks.eagerness)
            keep(pivot, pivots, k + row - 1)


@inlined
def expand_chunks(chunks, outer, out):  # type: ignore[no-untyped-def]
    """Write all unknowns of the chunks; a vector of zeros, NaN in lanes of numbers not finite."""
    before, first, last, after = outer
    lanes, m = width(chunks.memory, ONE), chunks.length
    pivots = shifted(chunks.memory, 4 * lanes * lanes)
    x = shifted(pivots, 3 * lanes * m)
    _eliminate(chunks, before, first, pivots)
    store(first, x, 0)
    store(last, x, (m - 1) * lanes)
    following, second, trace = last, after, first - first
    for i in range(1, m - 1):
        k = m - 1 - i
        current = substitute(kept(pivots, k), following, second)
        second = following
        following = current
        trace = trace + (current - current)
        store(current, x, k * lanes)
    starts, whole = shifted(chunks.lists, OUT * lanes), m // lanes * lanes
    for k in range(0, whole, lanes):
        store_tile(shifted(x, k * lanes), out, starts, k, ONE)
    if whole < m:
        store_tile_first(shifted(x, whole * lanes), out, starts, whole, m - whole, ONE)
    return trace
