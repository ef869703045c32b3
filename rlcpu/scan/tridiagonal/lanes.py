"""Lane functions of tridiagonal systems: what `blocks` runs on vectors of systems, in scratch.

Rows that a lane does not have say x = 0, so that they change nothing in whole systems. A chunk, or
a ring, ends where its lane stops: what comes after it there is in another place.
"""

from __future__ import annotations

from typing import Any

from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.memory import address, store
from rlcpu.kernels.vectors import fill, fma, maximum, total, where
from rlcpu.scan.blocks import SOON, Lanes, ask, get, given, put, read, report, shared, stops, write
from rlcpu.scan.gather import ONE
from rlcpu.scan.plans import Input, inlined
from rlcpu.scan.tridiagonal.equations import (
    REST,
    Factors,
    Left,
    Multiplier,
    Pending,
    Pivot,
    Rest,
    advance,
    back,
    backward_error,
    close_ring,
    eliminate,
    eliminate_pair,
    enter_chunk,
    factor,
    lacking,
    meet,
    mirrored,
    nan_or_zero,
    open_chunk,
    reduce_pair,
    scaled,
    substitute,
)

LOWER, DIAGONAL, UPPER, RHS, X = range(5)  # planes of inputs
#: Planes of a pivot, of which the unknown takes the last one's place, and of what pivots of rings
#: have of x[-1] and x[0]. The first is the plane of the first input, or `BESIDE` the inputs where
#: these are needed again.
SECOND_ABOVE, SOLUTION, BEFORE, FIRST = range(1, 5)
BESIDE = 4


def inputs_of(arrays: Any, transposed: bool = False) -> list[Input]:
    """The inputs of a plan, from lower, diagonal, upper and rhs (batch..., n).

    The lower coefficients of the transposed systems are the upper ones one row before, and the
    other way round.
    """
    lower, diagonal, upper, rhs = arrays[:4]
    if transposed:
        below, above = Input(upper, 0, -1, -1), Input(lower, 0, 1, 1)
    else:
        below, above = Input(lower, 0, -1), Input(upper, 0, 1)
    return [below, Input(diagonal, 1), above, Input(rhs)]


@inlined
def numbers(block, k):
    """Coefficients and right-hand side of equation k of all lanes."""
    lower, diagonal = read(block, LOWER, k), read(block, DIAGONAL, k)
    return lower, diagonal, read(block, UPPER, k), read(block, RHS, k)


@inlined
def equation(block, k):
    """Equation k of all lanes, scaled."""
    lower, diagonal, upper, rhs = numbers(block, k)
    return scaled(lower, diagonal, upper, rhs)


@inlined
def keep(pivot, block, planes, k):
    """Write pivot k to planes from the given one on."""
    put(pivot.upper, block, planes, k)
    put(pivot.second, block, planes + SECOND_ABOVE, k)
    put(pivot.rhs, block, planes + SOLUTION, k)


@inlined
def kept(block, planes, k):
    """What `keep` wrote."""
    second, rhs = get(block, planes + SECOND_ABOVE, k), get(block, planes + SOLUTION, k)
    return Pivot(get(block, planes, k), second, rhs)


@inlined
def finish(x, block, planes, k):
    """Write unknown k to the output; also to its plane where `check` reads it."""
    write(x, block, 0, k)
    if planes == BESIDE:
        put(x, block, planes + SOLUTION, k)


# ---------------------------------------------------------------- whole systems


@inlined
def solve_whole(block, pivoting, planes):
    """Unknowns, by elimination from both ends, which hide each other's latency."""
    half, last = block.rows // 2, block.rows - 1
    top, bottom = equation(block, 0), mirrored(equation(block, last))
    falling = Pending(top.diagonal, top.upper, top.rhs)
    rising = Pending(bottom.diagonal, bottom.upper, bottom.rhs)
    ask(block, 4, 0, SOON)
    ask(block, 4, 1, last - SOON)
    for i in range(1, half):
        ask(block, 4, 2 * i, i + SOON)
        pivot, falling = eliminate(falling, equation(block, i), pivoting)
        keep(pivot, block, planes, i - 1)
        ask(block, 4, 2 * i + 1, last - i - SOON)
        pivot, rising = eliminate(rising, mirrored(equation(block, last - i)), pivoting)
        keep(pivot, block, planes, last - i + 1)
    above, below = meet(falling, rising, pivoting)
    finish(above, block, planes, half - 1)
    finish(below, block, planes, half)
    up, after_up, down, after_down = above, below, below, above
    for i in range(1, half):
        x = substitute(kept(block, planes, half - 1 - i), up, after_up)
        finish(x, block, planes, half - 1 - i)
        after_up = up
        up = x
        x = substitute(kept(block, planes, half + i), down, after_down)
        finish(x, block, planes, half + i)
        after_down = down
        down = x
    return nan_or_zero(up) + nan_or_zero(down)


@inlined
def solve(block, pivoting):
    """Systems, whose unknowns are the only result."""
    return solve_whole(block, pivoting, LOWER)


@inlined
def solve_checked(block, pivoting):
    """The same; reports the backward error, while the equations are still in the caches."""
    trace, nothing = solve_whole(block, pivoting, BESIDE), nan_or_zero(fill(pivoting, ONE))
    report(worst_error(block, nothing, nothing, True), block, 0)
    return trace


# ---------------------------------------------------------------- one matrix

#: Rows of factors. x[half - 1] follows from no other unknown: the multiplier of the middle is in
#: the place of what it would have of x[half] and x[half + 1].
INVERSE, ABOVE, SECOND, SCALE, MULTIPLE, FACTORS = range(6)


@inlined
def entry(planes, plane, k):
    """One number as a vector: the rules compute on these."""
    return fill(planes[plane, k], ONE)


@inlined
def set_entry(value, planes, plane, k):
    """Overwrite one number."""
    store(value, address(planes), plane * planes.shape[1] + k, 1)


@inlined
def set_factors(factors, planes, k):
    """What x[k] is made of."""
    set_entry(factors.inverse, planes, INVERSE, k)
    set_entry(factors.upper, planes, ABOVE, k)
    set_entry(factors.second, planes, SECOND, k)


@inlined
def set_multiplier(multiplier, planes, k):
    """What equation k does to a right-hand side."""
    set_entry(multiplier.scale, planes, SCALE, k)
    set_entry(multiplier.factor, planes, MULTIPLE, k)


@kernel(fastmath=EXACT)
def factor_matrix(planes):
    """Factor a matrix of an even number of rows, from both ends as `solve` does.

    Factors that are not finite tell of a matrix for which that is impossible.

    Args:
        planes: (FACTORS, rows) with lower, diagonal and upper in the first three, whose numbers
            that are ignored are zero; overwritten.
    """
    half, last, zero = planes.shape[1] // 2, planes.shape[1] - 1, fill(planes[0, 0], ONE)
    one = zero + 1.0
    falling = rising = Pending(one, zero, zero)
    for i in range(half):
        row = scaled(entry(planes, 0, i), entry(planes, 1, i), entry(planes, 2, i), one)
        multiplier, above, falling = factor(falling, row)
        set_multiplier(multiplier, planes, i)
        k = last - i
        row = scaled(entry(planes, 2, k), entry(planes, 1, k), entry(planes, 0, k), one)
        multiplier, below, rising = factor(rising, row)
        set_multiplier(multiplier, planes, k)
        if i > 0:
            set_factors(above, planes, i - 1)
            set_factors(below, planes, k + 1)
    middle = scaled(falling.upper, falling.diagonal, zero, one)
    multiplier, below, left = factor(rising, middle)
    above = Factors(1.0 / left.diagonal, multiplier.scale, multiplier.factor)
    set_factors(above, planes, half - 1)
    set_factors(below, planes, half)


@inlined
def shared_number(block, plane, k):
    """A number of the factors that all lanes share."""
    return fill(shared(block)[plane * block.rows + k], ONE)


@inlined
def descend(pending, block, k):
    """Right-hand sides of the pivot and of what is pending."""
    multiplier = Multiplier(shared_number(block, SCALE, k), shared_number(block, MULTIPLE, k))
    return advance(pending, read(block, 0, k), multiplier)


@inlined
def ascend(following, second, block, k):
    """x[k] from the two unknowns that it is made of."""
    inverse, above = shared_number(block, INVERSE, k), shared_number(block, ABOVE, k)
    factors = Factors(inverse, above, shared_number(block, SECOND, k))
    x = back(get(block, 0, k), following, second, factors)
    write(x, block, 0, k)
    return x


@inlined
def solve_factored(block, parameter):
    """Unknowns of systems of one matrix in place of rhs, the only input."""
    half, last, zero = block.rows // 2, block.rows - 1, fill(parameter, ONE)
    falling = rising = zero
    for i in range(half):
        ask(block, 1, 2 * i, i + SOON)
        above, falling = descend(falling, block, i)
        ask(block, 1, 2 * i + 1, last - i - SOON)
        below, rising = descend(rising, block, last - i)
        if i > 0:
            put(above, block, 0, i - 1)
            put(below, block, 0, last - i + 1)
    scale = shared_number(block, ABOVE, half - 1)
    middle = Multiplier(scale, shared_number(block, SECOND, half - 1))
    pivot, pending = advance(rising, falling, middle)
    above = pending * shared_number(block, INVERSE, half - 1)
    write(above, block, 0, half - 1)
    put(pivot, block, 0, half)
    below = ascend(above, zero, block, half)
    after_above, after_below = below, above
    for i in range(1, half):
        x = ascend(above, after_above, block, half - 1 - i)
        after_above, above = above, x
        x = ascend(below, after_below, block, half + i)
        after_below, below = below, x
    return nan_or_zero(above) + nan_or_zero(below)


# ---------------------------------------------------------------- chunks and rings


@inlined
def open_block(block):
    """The first two equations of chunks as rests; a ring of one unknown is its own neighbour."""
    lower, diagonal, upper, rhs = numbers(block, 0)
    alone, nothing = stops(block) < 2, nan_or_zero(diagonal)
    diagonal = where(alone, lower + diagonal + upper, diagonal)
    lower, upper = where(alone, nothing, lower), where(alone, nothing, upper)
    return open_chunk(scaled(lower, diagonal, upper, rhs), equation(block, 1))


@inlined
def select(condition, x, y):
    """What is left of one equation where the condition holds, else of the other."""
    return Left(
        where(condition, x.diagonal, y.diagonal),
        where(condition, x.upper, y.upper),
        where(condition, x.rhs, y.rhs),
        where(condition, x.scale, y.scale),
    )


@inlined
def select_rest(condition, x, y):
    """The same of rests."""
    before, first = where(condition, x.before, y.before), where(condition, x.first, y.first)
    return Rest(select(condition, x.left, y.left), before, first)


@inlined
def reduce_rows(block, pivoting, keeps):
    """The two equations that a chunk leaves, and one over its smallest pivot.

    With `keeps` the pivots are written beside the equations, for `substitute_rows`.
    """
    one, two = open_block(block)
    largest = nan_or_zero(one.before)
    ask(block, 4, 0, SOON)
    ask(block, 4, 1, SOON + 1)
    for k in range(2, block.rows):
        ask(block, 4, k, k + SOON)
        inverse, pivot, new_one, new_two = reduce_pair(one, two, equation(block, k), pivoting)
        if keeps:
            keep(pivot.pivot, block, BESIDE, k - 1)
            put(pivot.before, block, BESIDE + BEFORE, k - 1)
            put(pivot.first, block, BESIDE + FIRST, k - 1)
        if k >= block.least:  # some lanes have stopped
            goes_on = stops(block) > k
            inverse = where(goes_on, inverse, nan_or_zero(largest))
            new_one = select_rest(goes_on, new_one, one)
            new_two = select_rest(goes_on, new_two, two)
        one, two, largest = new_one, new_two, maximum(abs(inverse), largest)
    return one, two, largest


@inlined
def eliminate_rows(block, before, first, pivoting):
    """Pivots in place of the equations of a chunk of which x[-1] and x[0] are known."""
    top, following = open_block(block)
    one, two = enter_chunk(top, before, first), enter_chunk(following, before, first)
    for k in range(2, block.rows):
        ask(block, 4, k, k + SOON)
        _, pivot, new_one, new_two = eliminate_pair(one, two, equation(block, k), pivoting)
        keep(pivot, block, LOWER, k - 1)
        if k >= block.least:
            goes_on = stops(block) > k
            new_one, new_two = select(goes_on, new_one, one), select(goes_on, new_two, two)
        one, two = new_one, new_two


@inlined
def substitute_rows(block, outer, rings):
    """Unknowns from pivots and from x[-1], x[0], x[m-1] and x[m] of m rows.

    With `rings` pivots hold x[-1] and x[0]; without they are used up.
    """
    planes = BESIDE if rings else LOWER
    before, first, last, after = outer
    nothing = nan_or_zero(first)
    finish(where(stops(block) > 0, first, nothing), block, planes, 0)
    final = block.rows - 1
    finish(where(stops(block) > final, last, nothing), block, planes, final)
    x, second, trace = last, after, nothing + nan_or_zero(last)
    for i in range(1, final):
        k = final - i
        pivot = kept(block, planes, k)
        if rings:
            rhs = fma(-get(block, planes + FIRST, k), first, pivot.rhs)
            rhs = fma(-get(block, planes + BEFORE, k), before, rhs)
            pivot = Pivot(pivot.upper, pivot.second, rhs)
        current = substitute(pivot, x, second)
        second, value = x, current
        if k >= block.least - 1:  # some lanes have not begun
            begun = stops(block) > k + 1
            current, second = where(begun, current, last), where(begun, second, after)
            value = where(stops(block) > k, current, nothing)
        x = current
        trace = trace + nan_or_zero(x)
        finish(value, block, planes, k)
    return trace


@inlined
def reduce(block, pivoting):
    """Chunks, first pass: reports what they leave, and one over the smallest pivot."""
    one, two, largest = reduce_rows(block, pivoting, False)
    place = 0
    for rest in (one, two):
        report(rest.before, block, place)
        report(rest.first, block, place + 1)
        place += 2
        for number in rest.left:
            report(number, block, place)
            place += 1
    report(largest, block, 2 * REST)
    return nan_or_zero(one.left.rhs)


@inlined
def expand(block, pivoting):
    """Chunks, second pass: x[-1], x[0], x[m-1] and x[m] are given."""
    before, first = given(block, 0), given(block, 1)
    eliminate_rows(block, before, first, pivoting)
    return substitute_rows(block, (before, first, given(block, 2), given(block, 3)), False)


@inlined
def solve_ring(block, pivoting):
    """A periodic system is one chunk whose neighbour on both sides is itself.

    Reports backward errors where one over the smallest pivot of any lane is above the number that
    all lanes share, else 0.
    """
    one, two, largest = reduce_rows(block, pivoting, True)
    last, first = close_ring(one, two)
    trace = substitute_rows(block, (last, first, last, first), True)
    error, nothing = nan_or_zero(trace), nan_or_zero(largest)
    if total(where(largest > shared(block)[0], nothing + 1.0, nothing)) > 0.0:
        error = worst_error(block, where(stops(block) < 2, first, last), first, True)
    report(error, block, 0)
    return trace


# ---------------------------------------------------------------- what is lacking


@inlined
def worst_error(block, before, after, is_solved):
    """The largest backward error, or NaN, from x[-1] and x[m], which are zero where there are none.

    Unless x `is_solved`, and in its plane, it is an input, and what equations lack is written.
    """
    plane = BESIDE + SOLUTION if is_solved else X
    x, worst, trace = row_of(block, plane, 0, is_solved), nan_or_zero(before), nan_or_zero(before)
    for k in range(block.rows):
        own = following = after
        if k + 1 < block.rows:
            own = following = row_of(block, plane, k + 1, is_solved)
            if k + 1 >= block.least:
                following = where(stops(block) > k + 1, own, after)
        lower, diagonal, upper, rhs = numbers(block, k)
        around = before, x, following
        if not is_solved:
            ask(block, 5, k, k + SOON)
            write(lacking(lower, diagonal, upper, rhs, around), block, 0, k)
        error = backward_error(scaled(lower, diagonal, upper, rhs), around)
        worst, trace = maximum(error, worst), trace + nan_or_zero(error)
        before = x
        x = own  # 0 beyond the lane's stop, unlike what follows the last row
    return worst + trace


@inlined
def row_of(block, plane, k, is_scratch):
    """Row k of a plane that was written to, or of an input."""
    return get(block, plane, k) if is_scratch else read(block, plane, k)


@inlined
def check(block, zero):
    """What the equations lack; reports the backward error. x[-1] and x[m] are given."""
    worst = worst_error(block, given(block, 0), given(block, 1), False)
    report(worst, block, 0)
    return nan_or_zero(worst)


FACTORED = Lanes(solve_factored, planes=1, outputs=(0,))
SOLVE = Lanes(solve, planes=4, outputs=(SOLUTION,))
CHECKED = Lanes(solve_checked, planes=7, outputs=(BESIDE + SOLUTION,), writes=1)
REDUCE = Lanes(reduce, planes=4, writes=2 * REST + 1)
EXPAND = Lanes(expand, planes=4, outputs=(SOLUTION,), reads=4)
RING = Lanes(solve_ring, planes=9, outputs=(BESIDE + SOLUTION,), writes=1)
CHECK = Lanes(check, planes=5, outputs=(RHS,), reads=2, writes=1)
