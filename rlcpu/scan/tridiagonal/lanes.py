"""Lane functions of tridiagonal systems: what `blocks` runs on vectors of systems, in scratch.

Rows that a lane does not have say x = 0, so that they change nothing in whole systems. A chunk ends
where its lane stops: the unknown after it is in another chunk. A periodic system is one chunk or
more, of which the last is followed by the first.
"""

from __future__ import annotations

from typing import Any

from rlcpu.kernels.compile import EXACT, inline, kernel
from rlcpu.kernels.memory import address, pointer_to, store
from rlcpu.kernels.vectors import fill, maximum, where
from rlcpu.scan.tridiagonal.blocks import (
    ONE,
    ROWS_AHEAD,
    LaneInput,
    Lanes,
    extra_input,
    get,
    prefetch_row,
    put,
    read,
    set_extra_output,
    stops,
    write,
)
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
    eliminate,
    eliminate_pair,
    enter_chunk,
    factor,
    meet,
    mirrored,
    nan_or_zero,
    open_chunk,
    reduce_pair,
    residual,
    scaled,
    substitute,
)

LOWER, DIAGONAL, UPPER, RHS, X = range(5)  # planes of inputs
#: Planes of a pivot, which takes the place of an equation; the unknown that of its right-hand side.
PIVOT_UPPER, PIVOT_SECOND, SOLUTION = range(3)


def inputs_of(arrays: Any, transposed: bool = False) -> list[LaneInput]:
    """Return the inputs of a plan, from lower, diagonal, upper and rhs (outer, n, inner).

    The lower coefficients of the transposed systems are the upper ones one row before, and the
    other way round.
    """
    lower, diagonal, upper, rhs = arrays[:4]
    if transposed:
        below, above = LaneInput(upper, 0, -1, -1), LaneInput(lower, 0, 1, 1)
    else:
        below, above = LaneInput(lower, 0, -1), LaneInput(upper, 0, 1)
    return [below, LaneInput(diagonal, 1), above, LaneInput(rhs)]


@inline(exact=True)
def numbers(block, k):
    """Return coefficients and right-hand side of equation k of all lanes."""
    lower, diagonal = read(block, LOWER, k), read(block, DIAGONAL, k)
    return lower, diagonal, read(block, UPPER, k), read(block, RHS, k)


@inline(exact=True)
def equation(block, k):
    """Return equation k of all lanes, scaled."""
    lower, diagonal, upper, rhs = numbers(block, k)
    return scaled(lower, diagonal, upper, rhs)


@inline(exact=True)
def put_pivot(pivot, block, k):
    """Overwrite the planes of an equation with its pivot."""
    put(pivot.upper, block, PIVOT_UPPER, k)
    put(pivot.second, block, PIVOT_SECOND, k)
    put(pivot.rhs, block, SOLUTION, k)


@inline(exact=True)
def get_pivot(block, k):
    """Return pivot k from its planes."""
    second, rhs = get(block, PIVOT_SECOND, k), get(block, SOLUTION, k)
    return Pivot(get(block, PIVOT_UPPER, k), second, rhs)


# ---------------------------------------------------------------- whole systems


@inline(exact=True)
def solve(block, pivoting):
    """Write the unknowns, by elimination from both ends, which hide each other's latency."""
    half, last = block.rows // 2, block.rows - 1
    top, bottom = equation(block, 0), mirrored(equation(block, last))
    falling = Pending(top.diagonal, top.upper, top.rhs)
    rising = Pending(bottom.diagonal, bottom.upper, bottom.rhs)
    prefetch_row(block, 4, 0, ROWS_AHEAD)
    prefetch_row(block, 4, 1, last - ROWS_AHEAD)
    for i in range(1, half):
        prefetch_row(block, 4, 2 * i, i + ROWS_AHEAD)
        pivot, falling = eliminate(falling, equation(block, i), pivoting)
        put_pivot(pivot, block, i - 1)
        prefetch_row(block, 4, 2 * i + 1, last - i - ROWS_AHEAD)
        pivot, rising = eliminate(rising, mirrored(equation(block, last - i)), pivoting)
        put_pivot(pivot, block, last - i + 1)
    above, below = meet(falling, rising, pivoting)
    write(above, block, half - 1)
    write(below, block, half)
    up, after_up, down, after_down = above, below, below, above
    for i in range(1, half):
        x = substitute(get_pivot(block, half - 1 - i), up, after_up)
        write(x, block, half - 1 - i)
        after_up = up
        up = x
        x = substitute(get_pivot(block, half + i), down, after_down)
        write(x, block, half + i)
        after_down = down
        down = x
    return nan_or_zero(up) + nan_or_zero(down)


# ---------------------------------------------------------------- one matrix

#: Rows of factors. x[half - 1] follows from no other unknown: the multiplier of the middle is in
#: the place of what it would have of x[half] and x[half + 1].
INVERSE, ABOVE, SECOND, SCALE, MULTIPLE, FACTORS = range(6)


@inline(exact=True)
def entry(planes, plane, k):
    """Return one number as a vector: the rules compute on these."""
    return fill(planes[plane, k], ONE)


@inline(exact=True)
def set_entry(value, planes, plane, k):
    """Overwrite one number."""
    store(value, address(planes), plane * planes.shape[1] + k, 1)


@inline(exact=True)
def set_factors(factors, planes, k):
    """Store the factors of x[k]."""
    set_entry(factors.inverse, planes, INVERSE, k)
    set_entry(factors.upper, planes, ABOVE, k)
    set_entry(factors.second, planes, SECOND, k)


@inline(exact=True)
def set_multiplier(multiplier, planes, k):
    """Store the multipliers of equation k for a right-hand side."""
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


@inline(exact=True)
def shared_number(block, plane, k):
    """Return a number of the factors that all lanes share."""
    return fill(pointer_to(block.plan.shared, block.memory[0])[plane * block.rows + k], ONE)


@inline(exact=True)
def descend(pending, block, k):
    """Return right-hand sides of the pivot and of what is pending."""
    multiplier = Multiplier(shared_number(block, SCALE, k), shared_number(block, MULTIPLE, k))
    return advance(pending, read(block, 0, k), multiplier)


@inline(exact=True)
def ascend(following, second, block, k):
    """Return x[k] from the two unknowns that it is made of."""
    inverse, above = shared_number(block, INVERSE, k), shared_number(block, ABOVE, k)
    factors = Factors(inverse, above, shared_number(block, SECOND, k))
    x = back(get(block, 0, k), following, second, factors)
    write(x, block, k)
    return x


@inline(exact=True)
def solve_factored(block, parameter):
    """Write the unknowns of systems of one matrix, from rhs, the only input."""
    half, last, zero = block.rows // 2, block.rows - 1, fill(parameter, ONE)
    falling = rising = zero
    for i in range(half):
        prefetch_row(block, 1, 2 * i, i + ROWS_AHEAD)
        above, falling = descend(falling, block, i)
        prefetch_row(block, 1, 2 * i + 1, last - i - ROWS_AHEAD)
        below, rising = descend(rising, block, last - i)
        if i > 0:
            put(above, block, 0, i - 1)
            put(below, block, 0, last - i + 1)
    scale = shared_number(block, ABOVE, half - 1)
    middle = Multiplier(scale, shared_number(block, SECOND, half - 1))
    pivot, pending = advance(rising, falling, middle)
    above = pending * shared_number(block, INVERSE, half - 1)
    write(above, block, half - 1)
    put(pivot, block, 0, half)
    below = ascend(above, zero, block, half)
    after_above, after_below = below, above
    for i in range(1, half):
        x = ascend(above, after_above, block, half - 1 - i)
        after_above, above = above, x
        x = ascend(below, after_below, block, half + i)
        after_below, below = below, x
    return nan_or_zero(above) + nan_or_zero(below)


# ---------------------------------------------------------------- chunks


@inline(exact=True)
def open_block(block):
    """Return the first two equations of chunks as rests; a ring of one is its own neighbour."""
    lower, diagonal, upper, rhs = numbers(block, 0)
    alone, nothing = stops(block) < 2, nan_or_zero(diagonal)
    diagonal = where(alone, lower + diagonal + upper, diagonal)
    lower, upper = where(alone, nothing, lower), where(alone, nothing, upper)
    return open_chunk(scaled(lower, diagonal, upper, rhs), equation(block, 1))


@inline(exact=True)
def select(condition, x, y):
    """Return the rest of one equation where the condition holds, else that of the other."""
    return Left(
        where(condition, x.diagonal, y.diagonal),
        where(condition, x.upper, y.upper),
        where(condition, x.rhs, y.rhs),
        where(condition, x.scale, y.scale),
    )


@inline(exact=True)
def select_rest(condition, x, y):
    """Select between two rests, number by number."""
    before, first = where(condition, x.before, y.before), where(condition, x.first, y.first)
    return Rest(select(condition, x.left, y.left), before, first)


@inline(exact=True)
def reduce_rows(block, pivoting):
    """Return the two equations that a chunk leaves, and one over its smallest pivot, of each lane.

    `block` is a `LaneBlock`; with `pivoting`, a flag, equations are exchanged where the next one's
    first number is larger.
    """
    one, two = open_block(block)
    largest = nan_or_zero(one.before)
    prefetch_row(block, 4, 0, ROWS_AHEAD)
    prefetch_row(block, 4, 1, ROWS_AHEAD + 1)
    for k in range(2, block.rows):
        prefetch_row(block, 4, k, k + ROWS_AHEAD)
        inverse, new_one, new_two = reduce_pair(one, two, equation(block, k), pivoting)
        if k >= block.least:  # some lanes have stopped
            goes_on = stops(block) > k
            inverse = where(goes_on, inverse, nan_or_zero(largest))
            new_one = select_rest(goes_on, new_one, one)
            new_two = select_rest(goes_on, new_two, two)
        one, two, largest = new_one, new_two, maximum(abs(inverse), largest)
    return one, two, largest


@inline(exact=True)
def eliminate_rows(block, before, first, pivoting):
    """Put pivots in place of the equations of a chunk of which x[-1] and x[0] are known."""
    top, following = open_block(block)
    one, two = enter_chunk(top, before, first), enter_chunk(following, before, first)
    for k in range(2, block.rows):
        prefetch_row(block, 4, k, k + ROWS_AHEAD)
        _, pivot, new_one, new_two = eliminate_pair(one, two, equation(block, k), pivoting)
        put_pivot(pivot, block, k - 1)
        if k >= block.least:
            goes_on = stops(block) > k
            new_one, new_two = select(goes_on, new_one, one), select(goes_on, new_two, two)
        one, two = new_one, new_two


@inline(exact=True)
def substitute_rows(block, first, last, after):
    """Write the unknowns of a chunk from pivots and from x[0], x[m-1] and x[m]."""
    zero, final = nan_or_zero(first), block.rows - 1
    write(where(stops(block) > 0, first, zero), block, 0)
    write(where(stops(block) > final, last, zero), block, final)
    x, second, trace = last, after, zero + nan_or_zero(last)
    for i in range(1, final):
        k = final - i
        current = substitute(get_pivot(block, k), x, second)
        second, value = x, current
        if k >= block.least - 1:  # some lanes have not begun
            begun = stops(block) > k + 1
            current, second = where(begun, current, last), where(begun, second, after)
            value = where(stops(block) > k, current, zero)
        x = current
        trace = trace + nan_or_zero(x)
        write(value, block, k)
    return trace


@inline(exact=True)
def reduce(block, pivoting):
    """Report what chunks leave, and one over the smallest pivot: the first pass."""
    one, two, largest = reduce_rows(block, pivoting)
    place = 0
    for rest in (one, two):
        set_extra_output(rest.before, block, place)
        set_extra_output(rest.first, block, place + 1)
        place += 2
        for number in rest.left:
            set_extra_output(number, block, place)
            place += 1
    set_extra_output(largest, block, 2 * REST)
    return nan_or_zero(one.left.rhs)


@inline(exact=True)
def expand(block, pivoting):
    """Write the unknowns of chunks, whose outer ones are known: the second pass."""
    before, first = extra_input(block, 0), extra_input(block, 1)
    eliminate_rows(block, before, first, pivoting)
    return substitute_rows(block, first, extra_input(block, 2), extra_input(block, 3))


# ---------------------------------------------------------------- residuals


@inline(exact=True)
def check(block, zero):
    """Write residuals if they are an output; report the largest backward error."""
    before, after, x = extra_input(block, 0), extra_input(block, 1), read(block, X, 0)
    worst = trace = nan_or_zero(before)
    for k in range(block.rows):
        row = following = after
        if k + 1 < block.rows:
            row = following = read(block, X, k + 1)
            if k + 1 >= block.least:
                following = where(stops(block) > k + 1, row, after)
        prefetch_row(block, 5, k, k + ROWS_AHEAD)
        lower, diagonal, upper, rhs = numbers(block, k)
        around = before, x, following
        write(residual(lower, diagonal, upper, rhs, around), block, k)
        error = backward_error(scaled(lower, diagonal, upper, rhs), around)
        worst, trace = maximum(error, worst), trace + nan_or_zero(error)
        before = x
        x = row  # 0 beyond the lane's stop, unlike the unknown that follows the last row
    set_extra_output(worst + trace, block, 0)
    return nan_or_zero(worst + trace)


FACTORED = Lanes(solve_factored, planes=1, output=0)
SOLVE = Lanes(solve, planes=4, output=SOLUTION)
REDUCE = Lanes(reduce, planes=4, num_extra_outputs=2 * REST + 1)
EXPAND = Lanes(expand, planes=4, output=SOLUTION, num_extra_inputs=4)
ERRORS = Lanes(check, planes=5, num_extra_inputs=2, num_extra_outputs=1)
RESIDUALS = Lanes(check, planes=5, output=RHS, num_extra_inputs=2, num_extra_outputs=1)
