"""Lane functions of tridiagonal systems, by the rules of `equations` on the blocks of `blocks`.

Each computes some systems, or chunks of systems, one in each lane of a vector; `k` is the number of
an equation in its lane, `block` a `LaneBlock`, and values that are read from it are vectors. Lanes
may be of different lengths: rows that a lane does not have say x = 0, which changes nothing in a
whole system. A chunk ends where its lane does: the unknown after it, x[m] of m rows, is in another
chunk. A periodic system is one chunk or more, of which the last is followed by the first.

`prefetch_row(block, num_inputs, call, later_row)` asks for a part of the inputs, of which whole
systems have four, lower to rhs, and systems of one matrix rhs alone.

`block.rows` are computed, an even number, of which all lanes have the first `block.common_rows`:
from there on it is asked row by row, by `lane_rows`, which lanes go on. `falling` is an elimination
from the top down, `rising` one from the bottom up, of `mirrored` equations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.memory import (
    load,
    pointer_to,
    prefetch,
    prefetch_far,
    store,
    stream,
)
from rlcpu.kernels.machine.vectors import maximum, where, width
from rlcpu.scan.tridiagonal.blocks import ROW, LaneFunction, LaneInput
from rlcpu.scan.tridiagonal.equations import (
    END_AFTER,
    END_BEFORE,
    END_FIRST,
    END_LAST,
    EQUATION_NUMBERS,
    ChunkPending,
    Pending,
    Pivot,
    ScaledPending,
    backward_error,
    eliminate,
    eliminate_pair,
    eliminate_pair_with_outer,
    insert_outer,
    mirrored,
    nan_or_zero,
    residual,
    scaled,
    solve_middle,
    start_chunk,
    substitute,
)

LOWER, DIAGONAL, UPPER, RHS, X = range(5)  # planes of inputs
#: Planes of a pivot, which takes the place of an equation; the unknown that of its right-hand side.
PIVOT_UPPER, PIVOT_SECOND, SOLUTION = range(3)
ROWS_AHEAD = 2  # rows between the one that is prefetched and the one that is read, of long lanes


# ---------------------------------------------------------------- rows of a block


@inline(exact=True)
def load_row(block, plane, k):
    """Return row k of a plane, a vector."""
    first = plane * block.plane_size + k * width(block.memory, ROW)
    return load(block.memory, first, ROW)


@inline(exact=True)
def store_row(value, block, plane, k):
    """Overwrite row k of a plane."""
    store(value, block.memory, plane * block.plane_size + k * width(block.memory, ROW))


@inline(exact=True)
def read_input(block, i, k):
    """Return row k of input i, of which the lane function has not overwritten the plane."""
    if block.begin <= k < block.end:
        source = pointer_to(block.sources[i], block.memory[0])
        return load(source, k * block.source_steps[i], ROW)
    return load_row(block, i, k)


@inline(exact=True)
def write_output(value, block, k):
    """Write row k of the output."""
    if k < block.output_rows:
        if block.streams:
            stream(value, block.target, k * block.target_step)
        else:
            store(value, block.target, k * block.target_step)


@inline(exact=True)
def lane_rows(block):
    """Return the number of rows of each lane, as a vector."""
    return load(block.extras, 0, ROW)


@inline(exact=True)
def extra_input(block, i):
    """Return extra input i of each lane, as a vector."""
    return load(block.extras, (1 + i) * width(block.extras, ROW), ROW)


@inline(exact=True)
def set_extra_output(value, block, i):
    """Set extra output i of each lane to the numbers of a vector."""
    store(value, block.extras, (1 + i) * width(block.extras, ROW))


@inline(exact=True)
def prefetch_row(block, num_inputs, call, later_row):
    """Prefetch a part of the first inputs; called once for each row that a lane function reads.

    What is asked for is the next panel, line by line in the order of memory, which makes this pay.
    Of a panel of rows line q is number q % lines_across of lane q // lines_across; of one of
    columns it is number q % lines_across of row q // lines_across. Where a panel does not fit the
    cache, `lines_across` is 0 and a later row of this block is asked for. `call` is the number of
    this call, from 0 on, `later_row` a row of this block that is read soon.
    """
    if not block.plan.prefetches:
        return
    lanes, lines_across = width(block.memory, ROW), block.plan.lines_across
    is_rows = block.plan.inner == 1
    lane, row, column = 0, later_row, block.first_lane
    if lines_across > 0:
        line = block.first_line + call
        # In 32 bits: to divide by a number that is not constant takes longer in 64.
        major: Any = np.int64(np.uint32(line) // np.uint32(lines_across))
        minor = (line - major * lines_across) * lanes
        if is_rows:
            lane, row, column = major, minor, 0
        else:
            row, column = major, minor
    for i in range(num_inputs):
        place, source = block.plan.places[i], pointer_to(block.addresses[i], block.memory[0])
        at = block.starts[i * lanes + lane] + row * place.step + column * place.lane
        if is_rows:  # the first cache holds this panel and little more
            prefetch_far(source, at)
        else:
            prefetch(source, at)
            if lines_across == 0:  # lanes of two lines
                prefetch(source, at + lanes - 1)


# ---------------------------------------------------------------- equations


def inputs_of(arrays: Any, transposed: bool = False) -> list[LaneInput]:
    """Return the inputs of lane functions, from lower, diagonal, upper and rhs (outer, n, inner).

    With `transposed`, those of the transposed systems: their lower coefficients are the upper ones
    one row before, and the other way round.
    """
    lower, diagonal, upper, rhs = arrays[:4]
    below, above, shift = (upper, lower, 1) if transposed else (lower, upper, 0)
    return [
        LaneInput(below, fill_value=0, neighbour=-1, shift=-shift),
        LaneInput(diagonal, fill_value=1),
        LaneInput(above, fill_value=0, neighbour=1, shift=shift),
        LaneInput(rhs, fill_value=0),
    ]


@inline(exact=True)
def read_equation(block, k):
    """Return lower, diagonal, upper and rhs of equation k of all lanes, as they are."""
    lower, diagonal = read_input(block, LOWER, k), read_input(block, DIAGONAL, k)
    return lower, diagonal, read_input(block, UPPER, k), read_input(block, RHS, k)


@inline(exact=True)
def read_scaled_equation(block, k):
    """Return equation k of all lanes as a scaled `Equation`."""
    lower, diagonal, upper, rhs = read_equation(block, k)
    return scaled(lower, diagonal, upper, rhs)


@inline(exact=True)
def store_pivot(pivot, block, k):
    """Overwrite the planes of an equation with its pivot."""
    store_row(pivot.upper, block, PIVOT_UPPER, k)
    store_row(pivot.second, block, PIVOT_SECOND, k)
    store_row(pivot.rhs, block, SOLUTION, k)


@inline(exact=True)
def load_pivot(block, k):
    """Return the pivot of x[k], which `store_pivot` wrote."""
    second, rhs = load_row(block, PIVOT_SECOND, k), load_row(block, SOLUTION, k)
    return Pivot(load_row(block, PIVOT_UPPER, k), second, rhs)


# ---------------------------------------------------------------- whole systems


@inline(exact=True)
def solve(block, pivoting):
    """Write the unknowns of whole systems; see `LaneFunction`.

    Elimination goes from both ends to the middle, and substitution back: the latency of one
    direction hides that of the other.
    """
    half, last = block.rows // 2, block.rows - 1
    top, bottom = read_scaled_equation(block, 0), mirrored(read_scaled_equation(block, last))
    falling = Pending(top.diagonal, top.upper, top.rhs)
    rising = Pending(bottom.diagonal, bottom.upper, bottom.rhs)
    prefetch_row(block, 4, 0, ROWS_AHEAD)
    prefetch_row(block, 4, 1, last - ROWS_AHEAD)
    for i in range(1, half):
        prefetch_row(block, 4, 2 * i, i + ROWS_AHEAD)
        pivot, falling = eliminate(falling, read_scaled_equation(block, i), pivoting)
        store_pivot(pivot, block, i - 1)
        prefetch_row(block, 4, 2 * i + 1, last - i - ROWS_AHEAD)
        pivot, rising = eliminate(rising, mirrored(read_scaled_equation(block, last - i)), pivoting)
        store_pivot(pivot, block, last - i + 1)
    above, below = solve_middle(falling, rising, pivoting)
    write_output(above, block, half - 1)
    write_output(below, block, half)
    # The last unknown on each side, and the one before it.
    up, before_up, down, before_down = above, below, below, above
    for i in range(1, half):
        x = substitute(load_pivot(block, half - 1 - i), up, before_up)
        write_output(x, block, half - 1 - i)
        before_up = up
        up = x
        x = substitute(load_pivot(block, half + i), down, before_down)
        write_output(x, block, half + i)
        before_down = down
        down = x
    return nan_or_zero(up) + nan_or_zero(down)


# ---------------------------------------------------------------- chunks


@inline(exact=True)
def start_chunks(block):
    """Return the first two equations of chunks as `start_chunk` does.

    In a ring of one unknown, that unknown is its own neighbour on both sides.
    """
    lower, diagonal, upper, rhs = read_equation(block, 0)
    alone, nothing = lane_rows(block) < 2, nan_or_zero(diagonal)
    diagonal = where(alone, lower + diagonal + upper, diagonal)
    lower, upper = where(alone, nothing, lower), where(alone, nothing, upper)
    return start_chunk(scaled(lower, diagonal, upper, rhs), read_scaled_equation(block, 1))


@inline(exact=True)
def select_pending(condition, x, y):
    """Return, in each lane, x where the condition holds, else y: both `ScaledPending`."""
    return ScaledPending(
        where(condition, x.diagonal, y.diagonal),
        where(condition, x.upper, y.upper),
        where(condition, x.rhs, y.rhs),
        where(condition, x.scale, y.scale),
    )


@inline(exact=True)
def select_chunk_pending(condition, x, y):
    """Return, in each lane, x where the condition holds, else y: both `ChunkPending`."""
    before, first = where(condition, x.before, y.before), where(condition, x.first, y.first)
    return ChunkPending(select_pending(condition, x.pending, y.pending), before, first)


@inline(exact=True)
def reduce_chunks(block, pivoting):
    """Eliminate all unknowns of chunks but the outer ones, with two equations pending.

    Returns:
        The two equations that are left of each chunk, `ChunkPending`, and one over its smallest
        pivot: where that is large, the caller doubts the solution.
    """
    pending_one, pending_two = start_chunks(block)
    largest_inverse = nan_or_zero(pending_one.before)
    prefetch_row(block, 4, 0, ROWS_AHEAD)
    prefetch_row(block, 4, 1, ROWS_AHEAD + 1)
    for k in range(2, block.rows):
        prefetch_row(block, 4, k, k + ROWS_AHEAD)
        inverse, new_one, new_two = eliminate_pair_with_outer(
            pending_one, pending_two, read_scaled_equation(block, k), pivoting
        )
        if k >= block.common_rows:  # some lanes have stopped
            goes_on = lane_rows(block) > k
            inverse = where(goes_on, inverse, nan_or_zero(largest_inverse))
            new_one = select_chunk_pending(goes_on, new_one, pending_one)
            new_two = select_chunk_pending(goes_on, new_two, pending_two)
        pending_one, pending_two = new_one, new_two
        largest_inverse = maximum(abs(inverse), largest_inverse)
    return pending_one, pending_two, largest_inverse


@inline(exact=True)
def eliminate_chunks(block, before, first, pivoting):
    """Overwrite the equations of chunks with pivots; x[-1] and x[0] are `before` and `first`.

    The two equations that are pending in the end, of x[m-1] and x[m], are dropped: these two
    unknowns are known already, see `substitute_chunks`.
    """
    one, two = start_chunks(block)
    pending_one, pending_two = insert_outer(one, before, first), insert_outer(two, before, first)
    for k in range(2, block.rows):
        prefetch_row(block, 4, k, k + ROWS_AHEAD)
        _, pivot, new_one, new_two = eliminate_pair(
            pending_one, pending_two, read_scaled_equation(block, k), pivoting
        )
        store_pivot(pivot, block, k - 1)
        if k >= block.common_rows:  # some lanes have stopped
            goes_on = lane_rows(block) > k
            new_one, new_two = (
                select_pending(goes_on, new_one, pending_one),
                select_pending(goes_on, new_two, pending_two),
            )
        pending_one, pending_two = new_one, new_two


@inline(exact=True)
def substitute_chunks(block, first, last, after):
    """Write the unknowns of chunks from pivots and from x[0], x[m-1] and x[m].

    Returns 0, NaN in lanes whose unknowns are not finite.
    """
    zero, final = nan_or_zero(first), block.rows - 1
    write_output(where(lane_rows(block) > 0, first, zero), block, 0)
    write_output(where(lane_rows(block) > final, last, zero), block, final)
    # x[k+1] and x[k+2], from which x[k] follows.
    x, second, failures = last, after, zero + nan_or_zero(last)
    for i in range(1, final):
        k = final - i
        current = substitute(load_pivot(block, k), x, second)
        second, value = x, current
        # A lane that is shorter begins at its own last row, and has 0 in the rows beyond.
        if k >= block.common_rows - 1:
            has_begun = lane_rows(block) > k + 1
            current, second = where(has_begun, current, last), where(has_begun, second, after)
            value = where(lane_rows(block) > k, current, zero)
        x = current
        failures = failures + nan_or_zero(x)
        write_output(value, block, k)
    return failures


@inline(exact=True)
def report_equations(block, pivoting):
    """Set extra outputs to what `reduce_chunks` returns: the first pass; see `LaneFunction`.

    They are numbers of two equations, in the order of `solve_chunk_ends`, and of the pivot.
    """
    one, two, largest_inverse = reduce_chunks(block, pivoting)
    place = 0
    for equation in (one, two):
        set_extra_output(equation.before, block, place)
        set_extra_output(equation.first, block, place + 1)
        place += 2
        for number in equation.pending:
            set_extra_output(number, block, place)
            place += 1
    set_extra_output(largest_inverse, block, 2 * EQUATION_NUMBERS)
    return nan_or_zero(one.pending.rhs)


@inline(exact=True)
def solve_chunks(block, pivoting):
    """Write the unknowns of chunks: the second pass; see `LaneFunction`.

    The outer ones, x[-1], x[0], x[m-1] and x[m], are extra inputs.
    """
    before, first = extra_input(block, END_BEFORE), extra_input(block, END_FIRST)
    last, after = extra_input(block, END_LAST), extra_input(block, END_AFTER)
    eliminate_chunks(block, before, first, pivoting)
    return substitute_chunks(block, first, last, after)


# ---------------------------------------------------------------- residuals


@inline(exact=True)
def check_solutions(block, pivoting):
    """Set extra output 0 to the largest backward error of each lane; see `LaneFunction`.

    Residuals are written if there is an output. x is input `X`; the unknowns before and after the
    lane are extra inputs 0 and 1. `pivoting` is not used.
    """
    before, after, x = extra_input(block, 0), extra_input(block, 1), read_input(block, X, 0)
    worst = failures = nan_or_zero(before)
    for k in range(block.rows):
        row = next_x = after
        if k + 1 < block.rows:
            row = next_x = read_input(block, X, k + 1)
            if k + 1 >= block.common_rows:
                next_x = where(lane_rows(block) > k + 1, row, after)
        prefetch_row(block, 5, k, k + ROWS_AHEAD)
        lower, diagonal, upper, rhs = read_equation(block, k)
        around = before, x, next_x
        write_output(residual(lower, diagonal, upper, rhs, around), block, k)
        error = backward_error(scaled(lower, diagonal, upper, rhs), around)
        worst, failures = maximum(error, worst), failures + nan_or_zero(error)
        before = x
        x = row  # 0 beyond the lane's stop, unlike the unknown that follows the last row
    set_extra_output(worst + failures, block, 0)
    return nan_or_zero(worst + failures)


SOLVE = LaneFunction(solve, planes=4, output=SOLUTION)
REDUCE = LaneFunction(report_equations, planes=4, num_extra_outputs=2 * EQUATION_NUMBERS + 1)
EXPAND = LaneFunction(solve_chunks, planes=4, output=SOLUTION, num_extra_inputs=4)
ERRORS = LaneFunction(check_solutions, planes=5, num_extra_inputs=2, num_extra_outputs=1)
RESIDUALS = LaneFunction(
    check_solutions, planes=5, output=RHS, num_extra_inputs=2, num_extra_outputs=1
)
