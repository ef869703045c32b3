"""As many tridiagonal systems as a register has numbers, solved in scratch memory.

Each is solved from both ends to its middle: the two eliminations do not wait for each other, and a
step waits for a division most of its time. That takes 11 ns a step of eight systems where one
elimination takes 13. The lines of the next systems are asked for while these are solved, which
halves the time of what no cache holds.
"""

from __future__ import annotations

from rlcpu.kernels.memory import load, prefetch, shifted, store
from rlcpu.kernels.tiles import store_tile, store_tile_first
from rlcpu.kernels.vectors import fill, maximum, where, width
from rlcpu.scan.tridiagonal.steps import (
    Pending,
    backward_error,
    eliminate,
    inlined,
    lacking,
    meet,
    mirrored,
    scaled,
    substitute,
)
from rlcpu.scan.tridiagonal.tiles import ONE, Block, Sources, equation, fetch, keep, kept, loaded

# Lists of positions, one for each lane: where a system begins in each of the five arrays and in a
# buffer, where the system begins that the lane gets next, and where it begins when it is refined.
OUT, BUFFER, NEXT, _AGAIN, LISTS = 4, 5, 6, 10, 14


@inlined
def scratch(n, lanes, check):  # type: ignore[no-untyped-def]
    """Size of a block's memory, in numbers."""
    return (8 * lanes + (7 if check else 4) * (n + 3) + 1) * lanes


@inlined
def _ask(block, line):  # type: ignore[no-untyped-def]
    """Ask for a line of each array, and the one after it, of the block that comes next."""
    lanes = width(block.memory, ONE)
    starts, sources = shifted(block.starts, NEXT * lanes), block.sources
    for at in range(line * lanes, (line + 2) * lanes, lanes):
        prefetch(sources.lower, starts[0] + at)
        prefetch(sources.diagonal, starts[lanes] + at)
        prefetch(sources.upper, starts[2 * lanes] + at)
        prefetch(sources.rhs, starts[3 * lanes] + at)


@inlined
def _forward(block, pivots, n):  # type: ignore[no-untyped-def]
    """Eliminate from both ends; what is left are the two equations in the middle.

    An equation x = 0 is put before the first one, and after the last one too if n is odd.
    """
    lanes = width(pivots, ONE)
    top, bottom = block.memory, shifted(block.memory, 4 * lanes * lanes)
    even = n + (n & 1)
    zero = fill(block.eagerness - block.eagerness, ONE)
    falling = Pending(zero + 1, zero, zero)
    rising = falling
    for k in range(0, even // 2, lanes):
        fetch(block, k, n, top)
        fetch(block, even - lanes - k, n, bottom)
        for row in range(min(lanes, even // 2 - k)):
            _ask(block, 2 * (k + row))
            pivot, falling = eliminate(falling, equation(top, row), block.eagerness)
            keep(pivot, pivots, k + row)
            below = mirrored(equation(bottom, lanes - 1 - row))
            pivot, rising = eliminate(rising, below, block.eagerness)
            keep(pivot, pivots, even - k - row + 1)
    return falling, rising


@inlined
def _backward(pivots, x, middle, half):  # type: ignore[no-untyped-def]
    """All unknowns from the two in the middle, written; zeros, NaN where the outer ones are not."""
    lanes = width(pivots, ONE)
    above, below = middle
    store(above, x, half * lanes)
    store(below, x, (half + 1) * lanes)
    falling, rising = (above, below), (below, above)
    for i in range(1, half):
        current = substitute(kept(pivots, half - i), falling[0], falling[1])
        falling = (current, falling[0])
        store(current, x, (half - i) * lanes)
        current = substitute(kept(pivots, half + 1 + i), rising[0], rising[1])
        rising = (current, rising[0])
        store(current, x, (half + 1 + i) * lanes)
    return (falling[0] - falling[0]) + (rising[0] - rising[0])


@inlined
def write(x, n, target, starts):  # type: ignore[no-untyped-def]
    """Write unknowns, x[-1] first, to where each system begins."""
    lanes = width(x, ONE)
    whole = n // lanes * lanes
    for k in range(0, whole, lanes):
        store_tile(shifted(x, (k + 1) * lanes), target, starts, k, ONE)
    if whole < n:
        store_tile_first(shifted(x, (whole + 1) * lanes), target, starts, whole, n - whole, ONE)


@inlined
def _check(block, x, n, residuals):  # type: ignore[no-untyped-def]
    """Write residuals; returns the backward error of every system, NaN where x is."""
    lanes = width(x, ONE)
    worst = fill(block.eagerness - block.eagerness, ONE)
    store(worst, x, 0)
    store(worst, x, (n + 1) * lanes)
    for k in range(0, n, lanes):
        fetch(block, k, n, block.memory)
        for row in range(min(lanes, n - k)):
            at = (k + row) * lanes
            around = load(x, at, ONE), load(x, at + lanes, ONE), load(x, at + 2 * lanes, ONE)
            lower, diagonal, upper, rhs = loaded(block.memory, row)
            store(lacking(lower, diagonal, upper, rhs, around), residuals, at + lanes)
            error = backward_error(scaled(lower, diagonal, upper, rhs), around)
            worst = maximum(worst, error)
    return worst


@inlined
def _improve(x, by, n, worst, limit):  # type: ignore[no-untyped-def]
    """Add finite corrections to solutions whose backward error is above the limit."""
    lanes = width(x, ONE)
    for at in range(lanes, (n + 1) * lanes, lanes):
        step = load(by, at, ONE)
        better = where(step - step == 0.0, load(x, at, ONE) + step, load(x, at, ONE))
        store(where(worst > limit, better, load(x, at, ONE)), x, at)


@inlined
def _any_above(worst, limit, errors):  # type: ignore[no-untyped-def]
    store(worst, errors, 0)
    above = False
    for lane in range(width(errors, ONE)):
        above = above or errors[lane] > limit
    return above


@inlined
def solve_block(block, pivots, x, n, errors):  # type: ignore[no-untyped-def]
    """Solutions of a block, written; zeros, NaN in the lanes of systems that fail.

    Where the backward error is above the limit, the equations are solved once more for what is
    lacking (iterative refinement: Skeel 1980), which brings all but hopeless systems to rounding.
    """
    lanes, half = width(x, ONE), (n + 1) // 2
    residuals = shifted(x, (2 * half + 2) * lanes)
    correction = shifted(residuals, (2 * half + 2) * lanes)
    linear = shifted(correction, (2 * half + 2) * lanes)
    current, target = block, x
    first = worst = fill(block.eagerness - block.eagerness, ONE)
    for attempt in range(2):
        falling, rising = _forward(current, pivots, n)
        found = _backward(pivots, target, meet(falling, rising, block.eagerness), half)
        if attempt == 0:
            first = found
        else:
            _improve(x, correction, n, worst, block.limit)
        if block.limit < 0:
            break
        worst = _check(block, x, n, residuals)
        if not _any_above(worst, block.limit, errors):
            break
        write(residuals, n, linear, shifted(block.starts, BUFFER * lanes))
        for i in range(4 * lanes):
            block.starts[_AGAIN * lanes + i] = block.starts[i if i < 3 * lanes else 2 * lanes + i]
        lower, diagonal, upper, _ = block.sources
        sources = Sources(lower, diagonal, upper, linear)
        starts = shifted(block.starts, _AGAIN * lanes)
        current = Block(
            *(sources, starts, block.stops, block.memory),
            *(block.whole, block.limit, block.eagerness),
        )
        target = correction
    return first
