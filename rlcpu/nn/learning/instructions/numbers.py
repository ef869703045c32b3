"""Instructions on rows of numbers: reading, arithmetic, choices, order and losses.

An instruction runs for a `chunk` of samples: `chunk.rows[k]` has number k of each sample, and
`chunk.slopes[k]` the derivatives of the loss with respect to it. It reads rows from
`instruction.a`, `b` and `c` on, and writes `width` rows from `out` on. `a_step` and `b_step` are
steps from one row that it reads to the next, 1, or 0 where one row serves all; but an instruction
that makes one number of several has as `a_step` how many it reads. `index` is where other numbers
are: a column, constants, parameters or a sum. See `rlcpu.nn.tape.program.INSTRUCTION`.
`through_<name>` is its backward pass: it adds to the slopes of the rows that it reads what those of
its result contribute.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlcpu.nn.layers.rows import copy, fill
from rlcpu.nn.learning.instructions.chunk import floats_at, total

# ---------------------------------------------------------------- what is read


def read_column(chunk: Any, instruction: Any) -> None:
    """Read a column of the batch; `c` is the number of its moments, if it is standardised.

    It is -1 for plain numbers, and so names the last moments: a mean of 0, a deviation of 1.
    """
    batch, samples, width = chunk.frame.batch, chunk.samples, instruction.width
    values = floats_at(batch.columns[instruction.index].values, batch.size * width)
    moments, minibatch, number = chunk.frame.space.moments, chunk.minibatch, instruction.c
    mean, inverse = moments[minibatch, number, 0], moments[minibatch, number, 1]
    for k in range(width):
        row = chunk.rows[instruction.out + k]
        for i in range(row.size):
            row[i] = (values[samples[i] * width + k] - mean) * inverse


def read_number(chunk: Any, instruction: Any) -> None:
    """Read constants, or a setting, the same for all samples."""
    numbers = chunk.frame.program.numbers
    for k in range(instruction.width):
        fill(chunk.rows[instruction.out + k], numbers[instruction.index + k])


def read_parameter(chunk: Any, instruction: Any) -> None:
    """Read an array that is learnt and belongs to no network, the same for all samples."""
    parameters = chunk.frame.learnt.parameters
    for k in range(instruction.width):
        fill(chunk.rows[instruction.out + k], parameters[instruction.index + k])


def through_parameter(chunk: Any, instruction: Any) -> None:
    """Add the slopes of all samples to the gradient of an array."""
    for k in range(instruction.width):
        slope = total(chunk.slopes[instruction.out + k])
        chunk.gradients[instruction.index + k] += float(slope)


# ---------------------------------------------------------------- arithmetic


def add(chunk: Any, instruction: Any) -> None:
    """Add the second tensor, times 1 or -1, to the first."""
    sign = float(instruction.c)
    for k in range(instruction.width):
        out, a, b = rows_of(chunk.rows, instruction, k)
        for i in range(out.size):
            out[i] = a[i] + sign * b[i]


def multiply(chunk: Any, instruction: Any) -> None:
    """Multiply two tensors, number by number."""
    for k in range(instruction.width):
        out, a, b = rows_of(chunk.rows, instruction, k)
        for i in range(out.size):
            out[i] = a[i] * b[i]


def through_add(chunk: Any, instruction: Any) -> None:
    """Add the slopes of a sum or difference to those of both tensors."""
    for k in range(instruction.width):
        out, a, b = rows_of(chunk.slopes, instruction, k)
        if instruction.a_gradient != 0:
            add_row(a, out, 1.0)
        if instruction.b_gradient != 0:
            add_row(b, out, float(instruction.c))


def through_multiply(chunk: Any, instruction: Any) -> None:
    """Add to the slopes of each tensor those of a product times the other tensor."""
    for k in range(instruction.width):
        slopes, a_slopes, b_slopes = rows_of(chunk.slopes, instruction, k)
        _, a, b = rows_of(chunk.rows, instruction, k)
        if instruction.a_gradient != 0:
            add_product(a_slopes, slopes, b)
        if instruction.b_gradient != 0:
            add_product(b_slopes, slopes, a)


def sum_numbers(chunk: Any, instruction: Any) -> None:
    """Sum the numbers of each sample."""
    out, count = chunk.rows[instruction.out], instruction.a_step
    fill(out, 0.0)
    for k in range(count):
        add_row(out, chunk.rows[instruction.a + k], 1.0)


def through_sum(chunk: Any, instruction: Any) -> None:
    """Add the slopes of a sum to those of each number in it."""
    count = instruction.a_step
    for k in range(count):
        add_row(chunk.slopes[instruction.a + k], chunk.slopes[instruction.out], 1.0)


# ---------------------------------------------------------------- choices and order


def take(chunk: Any, instruction: Any) -> None:
    """Take the numbers at an index, `width` of `a_step` numbers in groups."""
    index, width = chunk.rows[instruction.b], instruction.width
    count = instruction.a_step // width
    for k in range(width):
        out = chunk.rows[instruction.out + k]
        for i in range(out.size):
            out[i] = chunk.rows[instruction.a + clamped(index[i], count) * width + k, i]


def through_take(chunk: Any, instruction: Any) -> None:
    """Add the slopes of the result to those of the numbers that were taken."""
    index, width = chunk.rows[instruction.b], instruction.width
    count = instruction.a_step // width
    for k in range(width):
        out = chunk.slopes[instruction.out + k]
        for i in range(out.size):
            chunk.slopes[instruction.a + clamped(index[i], count) * width + k, i] += out[i]


def argmax(chunk: Any, instruction: Any) -> None:
    """Write the index of the largest number that is allowed, and the number in the row behind.

    `c` is the first row of the mask, not 0 where a number is allowed; -1 where all are.
    """
    best, largest = chunk.rows[instruction.out], chunk.rows[instruction.out + 1]
    count, mask = instruction.a_step, instruction.c
    fill(best, 0.0)
    fill(largest, -math.inf)
    for k in range(count):
        row = chunk.rows[instruction.a + k]
        allowed = chunk.rows[max(mask, 0) + k]  # not read without a mask
        for i in range(best.size):
            is_better = row[i] > largest[i] and (mask < 0 or allowed[i] != 0.0)
            best[i] = k if is_better else best[i]
            largest[i] = row[i] if is_better else largest[i]


def clamped(index: float, width: int) -> int:
    """Clamp a computed index to a whole number from 0 to width - 1."""
    whole: int = np.int64(index)  # type: ignore[assignment]
    return min(max(whole, 0), width - 1)


def sort(chunk: Any, instruction: Any) -> None:
    """Write the numbers of each sample in ascending order.

    It compares and exchanges rows in Batcher's order, the same for all samples, and without a
    branch on data: NaNs, which have no place in an order, stay somewhere.

    Source: Knuth 1998, "The art of computer programming", volume 3, algorithm 5.2.2 M.
    """
    rows, out, width = chunk.rows, instruction.out, instruction.width
    for k in range(width):
        copy(rows[out + k], rows[instruction.a + k])
    top = 1
    while 2 * top < width:
        top *= 2
    span = top if width > 1 else 0
    while span > 0:
        step, remainder, distance = top, 0, span
        while distance > 0:
            for k in range(width - distance):
                if k & span == remainder:
                    order_rows(rows[out + k], rows[out + k + distance])
            remainder, distance = span, step - span
            step //= 2
        span //= 2


def order_rows(low: Any, high: Any) -> None:
    """Exchange the numbers of two rows where the first is larger."""
    for i in range(low.size):
        a, b = low[i], high[i]
        low[i] = b if b < a else a
        high[i] = a if b < a else b


# ---------------------------------------------------------------- losses and statistics


def add_to_statistic(chunk: Any, instruction: Any) -> None:
    """Add the numbers of all samples to a sum of the report."""
    chunk.sums[instruction.index] += total(chunk.rows[instruction.a])


def through_loss(chunk: Any, instruction: Any) -> None:
    """Begin the backward pass: the loss is a mean, of slope `chunk.share` = 1 / minibatch size."""
    fill(chunk.slopes[instruction.a], chunk.share)


def look_ahead(chunk: Any, instruction: Any) -> None:
    """Read numbers of the same sequence so many time steps later, of its last one at most.

    Samples lie time step after time step, `settings.steps` of them, each of all sequences. Row `b`
    says how many steps each sample looks ahead.
    """
    steps, out = chunk.rows[instruction.b], chunk.rows[instruction.out]
    sequences = chunk.samples.size // chunk.frame.settings.steps
    for i in range(out.size):
        steps_left = chunk.frame.settings.steps - 1 - i // sequences
        later = i + clamped(steps[i], steps_left + 1) * sequences
        for k in range(instruction.width):
            chunk.rows[instruction.out + k, i] = chunk.rows[instruction.a + k, later]


def write_per_sample(chunk: Any, instruction: Any) -> None:
    """Write the number of each sample to `SampleColumns.per_sample`, in the order of the batch."""
    out, row = chunk.frame.batch.per_sample[instruction.index], chunk.rows[instruction.a]
    for i in range(row.size):
        out[chunk.samples[i]] = row[i]


# ---------------------------------------------------------------- rows


def rows_of(rows: Any, instruction: Any, k: int) -> Any:
    """Return row k of an instruction's result, and of both of its arguments.

    `rows` are `chunk.rows` or `chunk.slopes`. An argument with a step of 0 has one row for all k.
    """
    a = instruction.a + k * instruction.a_step
    b = instruction.b + k * instruction.b_step
    return rows[instruction.out + k], rows[a], rows[b]


def add_row(out: Any, row: Any, factor: float) -> None:
    """Add a row times a factor."""
    for i in range(out.size):
        out[i] += factor * row[i]


def add_product(out: Any, row: Any, other: Any) -> None:
    """Add the product of two rows."""
    for i in range(out.size):
        out[i] += row[i] * other[i]
