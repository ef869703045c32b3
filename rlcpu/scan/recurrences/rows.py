"""Recurrences over rows: each lane's steps lie side by side in memory.

A block of rows is computed a piece of `PIECE` steps at a time. Vectors are made of the steps of one
row, but for y, which goes from step to step. So a piece takes three passes over scratch memory: the
coefficients a and b, along the rows; y, across the rows, whose squares are transposed in registers;
and the results, along the rows again. The y of each row goes from a piece to the next.

To bring all inputs to columns in tiles, and the outputs back, would be less code. It takes 0.9 to
1.1 times as long where the arrays fit the caches, 1.4 times where rows are 4,096 bytes apart, and
twice as long beyond the caches: so many rows at a time are more than memory is prefetched for.

Of a `RecurrencePlan`, `plan`, are used here: `direction`, 1 to compute from the last step to the
first, -1 from the first to the last; `shorter_by`, the steps that the first piece lacks, so that
the others are aligned; `num_streamed`, how many outputs are written past the caches. "Before" is
before in the order of computation, "after" (of the rules) the next step in time.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compiler.compile import inline, outline, prefer_small_code
from rlcpu.kernels.machine.memory import (
    address,
    load,
    load_tile,
    shifted,
    store,
    store_tile,
    to_line,
)
from rlcpu.kernels.machine.vectors import fill, smallest_normal, where
from rlcpu.scan.recurrences.rules import Rule, Step, next_y
from rlcpu.scan.recurrences.steps import (
    lanes_of,
    pointer_into,
    pointers_at,
    prefetch_step,
    read_after,
    read_initial,
    read_step,
    write_numbers,
)

REGISTERS = 2  # of rows in a block: two hide the latency of one step after the other
PIECE = 128  # steps of a piece


class Piece(NamedTuple):
    """Steps of a block that are computed together."""

    outer: Any  # first row of the block
    width: Any  # number of rows
    step: Any  # first step
    num_steps: Any  # number of steps


class PieceScratch(NamedTuple):
    """Pointers to scratch memory of a piece.

    A plane holds a number for each step of each row; a row begins every `row_stride_of` numbers.
    """

    a: Any  # plane of the coefficients a
    b: Any  # plane of the coefficients b, then y; behind the last step of a row, y before the piece
    tiles: Any  # two tiles, of a and of b: a vector of all rows for each of `lanes_of` steps
    starts: Any  # where each row begins in a plane, int64


def block_rows(dtype: Any) -> int:
    """Return the rows of a block."""
    return REGISTERS * lanes_of(dtype)


def row_stride_of(dtype: Any) -> int:
    """Return the distance between the rows of a plane, in numbers."""
    return PIECE + lanes_of(dtype)


# ---------------------------------------------------------------- across the rows


@functools.cache
def _make_compute_y(continue_y: Any, dtype: Any) -> Any:
    """Make `compute_y(scratch, count, direction, last_y, products)`: y of a piece, in place of b.

    The `count` steps go from the last to the first if `direction` is 1, the other way if -1.
    `last_y` points to y of each row before the piece, and is overwritten with that after it.
    `continue_y` is that of a `Rule`. If it is `next_y`, `products` of each row are multiplied by
    all its a: y after the row is linear in y before it, by this factor, which joins the parts of a
    long row.
    """
    vector_lanes, rows, zero = lanes_of(dtype), block_rows(dtype), dtype(0.0)
    is_linear, tile_size = continue_y is next_y, vector_lanes * rows

    @outline(exact=True)
    def compute_y(scratch, count, direction, last_y, products):
        """Overwrite b of a piece with y, step by step across the rows; vectors are of all rows."""
        y, product = load(last_y, 0, REGISTERS), load(products, 0, REGISTERS)
        num_tiles = (count + vector_lanes - 1) // vector_lanes
        a, b = scratch.tiles, shifted(scratch.tiles, tile_size)
        for i in range(num_tiles):
            begin = (num_tiles - 1 - i if direction > 0 else i) * vector_lanes
            load_tile(scratch.a, scratch.starts, begin, a, REGISTERS)
            load_tile(scratch.b, scratch.starts, begin, b, REGISTERS)
            some = min(vector_lanes, count - begin)
            for j in range(some):
                at = (some - 1 - j if direction > 0 else j) * rows
                factor = load(a, at, REGISTERS)
                y = continue_y(factor, load(b, at, REGISTERS), y)
                store(y, b, at)
                if is_linear:
                    product = product * factor
            store_tile(b, scratch.b, scratch.starts, begin, REGISTERS)
        store(y, last_y, 0)
        if is_linear:
            # To 0: subnormal numbers, in which many factors end, take 150 cycles an operation.
            vanished = abs(product) < smallest_normal(product)
            store(where(vanished, zero, product), products, 0)

    return compute_y


# ---------------------------------------------------------------- a block


def make_rows(rule: Rule, dtype: Any) -> Any:
    """Make `rows(plan, clips, outer, width)`: all steps of `width` rows from `outer` on.

    A piece, `PIECE` steps of all rows, is computed in three passes, which `PieceScratch` connects:
    a and b along the rows, y across them in place of b, and the outputs along the rows.

    It writes the outputs. But where rows are parts of a longer one, with `plan.wants_ends`, it
    writes to `plan.ends` the last y of each row and the product of all its a: by these the
    parts are joined. Only linear rules have such parts. `plan` is a view of a
    `RecurrencePlan`, `clips` are those of `Rule`.
    """
    vector_lanes, max_rows, row_stride = lanes_of(dtype), block_rows(dtype), row_stride_of(dtype)
    plane_size, tile_size = max_rows * row_stride, vector_lanes * max_rows
    is_linear, one = rule.continue_y is next_y, dtype(1.0)
    compute_y = _make_compute_y(rule.continue_y, dtype)
    coefficients, results, has_second = rule.coefficients, rule.results, rule.outputs == 2
    is_read = Step._make(field in rule.reads for field in Step._fields)
    # Two tiles; y before a piece, products and y; planes of a and b.
    size = 2 * tile_size + 3 * max_rows + 2 * plane_size
    size += 2 * vector_lanes  # to begin at a cache line, and to load whole vectors at the end

    @inline(exact=True)
    def compute_coefficients(plan, piece, scratch, clips):
        """Write a and b of all steps of a piece to scratch memory."""
        prefer_small_code()
        # How many steps of the arrays come after the piece's first step.
        count, num_after = piece.num_steps, plan.num_steps - piece.step - 1
        for row in range(piece.width):
            pointers = pointers_at(plan, piece.outer + row, piece.step, 0)
            last_value = pointer_into(plan.last_values, piece.outer + row, 0, 0)[0]
            begin = row * row_stride
            for k in range(0, count, vector_lanes):
                # The next piece; it lies before this one where the last step is computed first.
                prefetch_step(pointers, k - plan.direction * PIECE, is_read)
                step = read_step(pointers, k, min(vector_lanes, count - k))
                # `num_after - k` of the steps after are in the arrays; behind is `last_value`.
                after = read_after(pointers, k + 1, num_after - k, num_after - k, last_value)
                a, b = coefficients(step, after, clips)
                store(a, scratch.a, begin + k)
                store(b, scratch.b, begin + k)

    @inline(exact=True)
    def write_results(plan, piece, scratch, clips):
        """Write the outputs of all steps of a piece, from y in scratch memory."""
        prefer_small_code()
        num_streamed, count = plan.num_streamed, piece.num_steps
        num_after = plan.num_steps - piece.step - 1
        for row in range(piece.width):
            pointers = pointers_at(plan, piece.outer + row, piece.step, 0)
            first = pointer_into(plan.first_output, piece.outer + row, piece.step, 0)
            second = pointer_into(plan.second_output, piece.outer + row, piece.step, 0)
            last_value = pointer_into(plan.last_values, piece.outer + row, 0, 0)[0]
            begin = row * row_stride
            for k in range(0, count, vector_lanes):
                some = min(vector_lanes, count - k)
                # y of the step after: the rules that read it compute the last step first.
                y, previous_y = load(scratch.b, begin + k, 1), load(scratch.b, begin + k + 1, 1)
                after = read_after(pointers, k + 1, num_after - k, num_after - k, last_value)
                step = read_step(pointers, k, some)
                computed = results(y, previous_y, step, after, clips)
                write_numbers(computed[0], first, k, some, num_streamed > 0)
                if has_second:
                    write_numbers(computed[1], second, k, some, num_streamed > 1)

    @inline(exact=True)
    def rows(plan, clips, outer, width):
        """Compute all steps of `width` rows from `outer` on, piece by piece."""
        prefer_small_code()
        num_steps, direction = plan.num_steps, plan.direction
        memory, starts = np.zeros(size, dtype), np.empty(max_rows, np.int64)
        for row in range(max_rows):  # of the planes
            starts[row] = row * row_stride
        # One after the other in memory: tiles, y before a piece, products, y, planes of a and b.
        tiles = shifted(address(memory), to_line(address(memory), 0))
        y_before = shifted(tiles, 2 * tile_size)
        products = shifted(y_before, max_rows)
        store(fill(one, REGISTERS), products, 0)
        y = shifted(products, max_rows)
        a = shifted(y, max_rows)
        scratch = PieceScratch(a, shifted(a, plane_size), tiles, address(starts))
        lane, row_distance = 0, plan.initial.outer  # of rows there is one lane
        read_initial(plan, outer, lane, row_distance, width, y)
        num_pieces = (num_steps + plan.shorter_by + PIECE - 1) // PIECE
        for i in range(num_pieces):
            begin = (num_pieces - 1 - i if direction > 0 else i) * PIECE - plan.shorter_by
            step = max(begin, 0)  # the first piece lacks `shorter_by` steps
            piece = Piece(outer, width, step, min(begin + PIECE, num_steps) - step)
            compute_coefficients(plan, piece, scratch, clips)
            store(load(y, 0, REGISTERS), y_before, 0)
            compute_y(scratch, piece.num_steps, direction, y, products)
            for row in range(width):  # y before is `previous_y` of the piece's last step
                scratch.b[row * row_stride + piece.num_steps] = y_before[row]
            if not plan.wants_ends:
                write_results(plan, piece, scratch, clips)
        if is_linear and plan.wants_ends:
            for row in range(width):
                plan.ends[outer + row] = y[row]
                plan.ends[plan.outer + outer + row] = products[row]
        return memory.size + starts.size  # keeps them alive until now: pointers do not

    return rows
