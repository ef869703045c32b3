"""Instructions on rows of numbers: reading, arithmetic, choices, sums and losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlcpu.nn.instructions.chunk import floats_at, total

# ---------------------------------------------------------------- what is read


def read_column(chunk: Any, instruction: Any) -> None:
    """Read a column of the batch, less a mean, times an inverse deviation."""
    batch, samples, width = chunk.frame.batch, chunk.samples, instruction.width
    values = floats_at(batch.columns[instruction.index].values, batch.size * width)
    moments = chunk.frame.space.moments[chunk.minibatch, instruction.c]
    mean, inverse = moments[0], moments[1]
    for k in range(width):
        row = chunk.rows[instruction.out + k]
        for i in range(row.size):
            row[i] = (values[samples[i] * width + k] - mean) * inverse


def read_number(chunk: Any, instruction: Any) -> None:
    """Read a constant or a setting."""
    fill_row(chunk.rows[instruction.out], chunk.frame.program.numbers[instruction.index])


def read_parameter(chunk: Any, instruction: Any) -> None:
    """Read an array that is learnt."""
    parameters = chunk.frame.learnt.parameters
    for k in range(instruction.width):
        fill_row(chunk.rows[instruction.out + k], parameters[instruction.index + k])


def learn_parameter(chunk: Any, instruction: Any) -> None:
    """Add derivatives by an array to its gradient."""
    for k in range(instruction.width):
        slope = total(chunk.slopes[instruction.out + k])
        chunk.gradients[instruction.index + k] += float(slope)


# ---------------------------------------------------------------- arithmetic


def add(chunk: Any, instruction: Any) -> None:
    """Add the second tensor, times 1 or -1, to the first."""
    sign = float(instruction.c)
    for k in range(instruction.width):
        out, a, b = operands(chunk.rows, chunk.rows, instruction, k)
        for i in range(out.size):
            out[i] = a[i] + sign * b[i]


def multiply(chunk: Any, instruction: Any) -> None:
    """Multiply two tensors, number by number."""
    for k in range(instruction.width):
        out, a, b = operands(chunk.rows, chunk.rows, instruction, k)
        for i in range(out.size):
            out[i] = a[i] * b[i]


def through_sum(chunk: Any, instruction: Any) -> None:
    """Give derivatives by a sum or difference to both tensors."""
    for k in range(instruction.width):
        out, a, b = operands(chunk.slopes, chunk.slopes, instruction, k)
        if instruction.a_gradient != 0:
            add_row(a, out, 1.0)
        if instruction.b_gradient != 0:
            add_row(b, out, float(instruction.c))


def through_product(chunk: Any, instruction: Any) -> None:
    """Give derivatives by a product to both tensors."""
    for k in range(instruction.width):
        slopes, a_slopes, b_slopes = operands(chunk.slopes, chunk.slopes, instruction, k)
        _, a, b = operands(chunk.rows, chunk.rows, instruction, k)
        if instruction.a_gradient != 0:
            add_product(a_slopes, slopes, b)
        if instruction.b_gradient != 0:
            add_product(b_slopes, slopes, a)


def through_each(chunk: Any, instruction: Any) -> None:
    """Give derivatives by results of a scalar function to its arguments, by those in its rows."""
    places, count = chunk.frame.program.operands, instruction.b
    arguments, place = instruction.a, instruction.a + 3 * count
    for _ in range(instruction.c):
        out = places[place]
        place += 1
        for k in range(arguments, arguments + 3 * count, 3):
            if places[k + 2] != 0:
                for w in range(instruction.width):
                    slopes = chunk.slopes[places[k] + w * places[k + 1]]
                    add_product(slopes, chunk.slopes[out + w], chunk.rows[places[place] + w])
                place += 1


def add_up(chunk: Any, instruction: Any) -> None:
    """Add up the numbers of each sample."""
    out = chunk.rows[instruction.out]
    fill_row(out, 0.0)
    for k in range(instruction.a_step):
        add_row(out, chunk.rows[instruction.a + k], 1.0)


def spread(chunk: Any, instruction: Any) -> None:
    """Give derivatives by a sum to all that is in it."""
    for k in range(instruction.a_step):
        add_row(chunk.slopes[instruction.a + k], chunk.slopes[instruction.out], 1.0)


# ---------------------------------------------------------------- one of several


def take(chunk: Any, instruction: Any) -> None:
    """Take the number at an index."""
    out, index = chunk.rows[instruction.out], chunk.rows[instruction.b]
    for i in range(out.size):
        out[i] = chunk.rows[instruction.a + clamped(index[i], instruction.a_step), i]


def give(chunk: Any, instruction: Any) -> None:
    """Add derivatives by a result of "take" to those by the number that was taken."""
    out, index = chunk.slopes[instruction.out], chunk.rows[instruction.b]
    for i in range(out.size):
        chunk.slopes[instruction.a + clamped(index[i], instruction.a_step), i] += out[i]


def choose_best(chunk: Any, instruction: Any) -> None:
    """Write the index of the largest number that is allowed, and the number in the row behind."""
    best, top = chunk.rows[instruction.out], chunk.rows[instruction.out + 1]
    fill_row(best, 0.0)
    fill_row(top, -math.inf)
    for k in range(instruction.a_step):
        row = chunk.rows[instruction.a + k]
        if instruction.c < 0:
            raise_best(best, top, row, float(k))
        else:
            raise_allowed(best, top, row, chunk.rows[instruction.c + k], float(k))


def raise_best(best: Any, top: Any, row: Any, k: float) -> None:
    """Let row k be the best where it is above the top."""
    for i in range(best.size):
        is_better = row[i] > top[i]
        best[i] = k if is_better else best[i]
        top[i] = row[i] if is_better else top[i]


def raise_allowed(best: Any, top: Any, row: Any, allowed: Any, k: float) -> None:
    """Let row k be the best where it is above the top and allowed."""
    for i in range(best.size):
        is_better = row[i] > top[i] and allowed[i] != 0.0
        best[i] = k if is_better else best[i]
        top[i] = row[i] if is_better else top[i]


def clamped(index: float, width: int) -> int:
    """Clamp a computed index to a whole number from 0 to width - 1."""
    whole: int = np.int64(index)  # type: ignore[assignment]
    return min(max(whole, 0), width - 1)


# ---------------------------------------------------------------- losses and statistics


def add_to_statistic(chunk: Any, instruction: Any) -> None:
    """Add the numbers of all samples to a sum of the report."""
    chunk.sums[instruction.index] += total(chunk.rows[instruction.a])


def begin(chunk: Any, instruction: Any) -> None:
    """Write derivatives of the loss, a mean over the minibatch, by each sample's."""
    fill_row(chunk.slopes[instruction.a], chunk.share)


def look_ahead(chunk: Any, instruction: Any) -> None:
    """Read numbers of the same sequence so many time steps later, of its last one at most."""
    steps, out = chunk.rows[instruction.b], chunk.rows[instruction.out]
    width = chunk.samples.size // chunk.frame.settings.steps
    for i in range(out.size):
        left = chunk.frame.settings.steps - 1 - i // width
        place = i + clamped(steps[i], left + 1) * width
        for k in range(instruction.width):
            chunk.rows[instruction.out + k, i] = chunk.rows[instruction.a + k, place]


def scatter(chunk: Any, instruction: Any) -> None:
    """Write the number of each sample to the batch."""
    out, row = chunk.frame.batch.per_sample[instruction.index], chunk.rows[instruction.a]
    for i in range(row.size):
        out[chunk.samples[i]] = row[i]


# ---------------------------------------------------------------- rows


def operands(results: Any, arguments: Any, instruction: Any, k: int) -> Any:
    """Return row k of an instruction's result, and of both of its arguments."""
    a = instruction.a + k * instruction.a_step
    b = instruction.b + k * instruction.b_step
    return results[instruction.out + k], arguments[a], arguments[b]


def fill_row(row: Any, value: float) -> None:
    """Set a row to one number."""
    for i in range(row.size):
        row[i] = value


def add_row(out: Any, row: Any, factor: float) -> None:
    """Add a row times a factor."""
    for i in range(out.size):
        out[i] += factor * row[i]


def add_product(out: Any, row: Any, other: Any) -> None:
    """Add the product of two rows."""
    for i in range(out.size):
        out[i] += row[i] * other[i]
