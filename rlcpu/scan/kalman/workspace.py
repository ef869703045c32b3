"""Where everything lies in the workspace of one block of models, and how it gets there.

A workspace is one flat array of cells (see `matrices`). A table of whole numbers says where in it
each matrix is, beside the sizes of the problem. Kernels change the table: `go_to` makes another
time step of a chunk the current one.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import compact
from rlcpu.scan.kalman.matrices import AT, COLUMNS, DOWN, MULTIPLY, ROWS, called, combine

#: What is computed: log-likelihoods alone; with all states; smoothed states; gradients.
VALUE, STATES, SMOOTH, GRADIENT = range(4)

# ---------------------------------------------------------------- the table, by number

#: One of the above; whether to update in Joseph's form; models; time steps, and those of a chunk;
#: numbers of a state, m, and of an observation, p.
(KIND, JOSEPH, BATCH, STEPS, CHUNK, STATE, OBSERVATION) = range(MULTIPLY + 1, MULTIPLY + 8)
#: Numbers from one time step's F, Q, H and R to the next, 0 for a constant one; whether one varies.
(PACES, VARIES) = OBSERVATION + 1, OBSERVATION + 5
#: Current step of the chunk; where the states at the beginning of each chunk are kept, and how many
#: cells each of them takes; cells in all.
(STEP, STARTS, START, CELLS) = range(VARIES + 1, VARIES + 5)

_numbers: Any = iter(range(CELLS + 1, 1000, 4))


def _name(count: int) -> list[int]:
    return [next(_numbers) for _ in range(count)]


#: m x m: F, F', Q, P, (F + F K H)', two for in between, N, N at the end of a chunk.
(TRANSITION, TURNED_TRANSITION, TRANSITION_COV, COV, CLOSED) = _name(5)
(SQUARE, OTHER, ADJOINT, ADJOINT_BEFORE) = _name(4)
#: Gradients with respect to F, Q, H and R.
(TRANSITION_SLOPE, TRANSITION_COV_SLOPE, DESIGN_SLOPE, OBSERVATION_COV_SLOPE) = _name(4)
#: p x m: H, H P, two for in between; m x p: H'; p x p: R, one for in between.
(DESIGN, PROJECTED, FEW, ALSO_FEW, TURNED_DESIGN, OBSERVATION_COV, SMALL) = _name(7)
#: A row that stands for any matrix of zeros; 1 x m: F' r, r, x; 1 x p: s; 1 x 1: sum of e' u,
#: log-likelihood.
(ZERO, LINE, SCORE, SMOOTHED, TILT, SQUARES, LOGLIK) = _name(7)
#: Of the current step. 1 x m: a, the next a, the mean after the update; 1 x p: -y, or 0 where it is
#: missing; 1 where it is missing, else 0; e; u; pivots of S.
(MEAN, NEXT_MEAN, FILTERED, OBSERVED, HIDDEN, ERROR, WEIGHTED, PIVOTS) = _name(8)
#: Of the current step, too, if a backward pass follows: covariance after the update, K, M.
(FILTERED_COV, GAIN, PRECISION) = _name(3)
#: Some of these of all steps of a chunk, row by row.
(MEANS, NEXT_MEANS, FILTERED_MEANS, ALL_OBSERVED, ERRORS, ALL_WEIGHTED) = _name(6)
END = next(_numbers)


#: Steps of a chunk, fewer where what is recorded of them takes more than this many numbers.
LONGEST, RECORDS = 32, 2**17


def make_table(
    kind: int, problem: Any, width: int, longest: int = LONGEST
) -> npt.NDArray[np.int64]:
    """The table of a problem.

    Args:
        kind: `VALUE`, `STATES`, `SMOOTH` or `GRADIENT`.
        problem: a `model.Problem`.
        width: what rows of matrices are filled up to whole multiples of.
        longest: steps of a chunk.
    """
    steps, m, p = problem.steps, problem.state, problem.observation
    chunk = min(steps, max(8, min(longest, RECORDS // (m * m + p * p + m * p + m + p))))
    paces = [
        math.prod(shape[1:]) if name in problem.varying else 0
        for name, shape in zip(problem.inputs._fields[1:5], problem.shapes[1:5], strict=True)
    ]
    backward = kind >= SMOOTH
    table = _lay_out(chunk, m, p, width, backward).copy()
    sizes = problem.models, steps, chunk, m, p
    table[KIND:STEP] = (kind, problem.joseph, *sizes, *paces, any(paces))
    table[CELLS] = table[STARTS] + table[START] * (-(-steps // chunk) if backward else 1)
    return table


@functools.lru_cache(maxsize=64)
def _lay_out(chunk: int, m: int, p: int, width: int, backward: bool) -> npt.NDArray[np.int64]:
    """The part of the table that does not depend on the number of models or time steps."""
    n, q = -(-m // width) * width, -(-p // width) * width
    square, wide, tall, small = (m, m, n), (p, m, n), (m, p, q), (p, p, q)
    line, short, one = (1, m, n), (1, p, q), (1, 1, width)
    blocks = dict.fromkeys(range(TRANSITION, DESIGN_SLOPE, 4), square)
    blocks |= {DESIGN_SLOPE: wide, OBSERVATION_COV_SLOPE: small}
    blocks |= dict.fromkeys(range(DESIGN, TURNED_DESIGN, 4), wide)
    blocks |= {TURNED_DESIGN: tall, OBSERVATION_COV: small, SMALL: small}
    blocks |= {ZERO: (1, max(n, q), max(n, q)), LINE: line, SCORE: line, SMOOTHED: line}
    blocks |= {TILT: short, SQUARES: one, LOGLIK: one, MEAN: line, FILTERED: line}
    blocks |= dict.fromkeys(range(OBSERVED, FILTERED_COV, 4), short)
    blocks |= {FILTERED_COV: square, GAIN: tall, PRECISION: small}
    table, at = np.zeros(END, np.int64), 0
    for block, (rows, columns, down) in blocks.items():
        table[block : block + 4] = at, rows, columns, down
        steps = chunk if MEAN <= block < FILTERED_COV or (block >= FILTERED_COV and backward) else 1
        # One line between blocks: eight models of 8 x 8 take 4096 bytes, a distance at which
        # processors take a read for one of what was just written.
        at += (steps + (block == MEAN)) * rows * down + width
    table[ZERO + DOWN] = 0
    table[NEXT_MEAN : NEXT_MEAN + 4] = table[MEAN] + n, *line
    ones = (MEAN, NEXT_MEAN, FILTERED, OBSERVED, ERROR, WEIGHTED)
    for block, first in zip(range(MEANS, END, 4), ones, strict=True):
        table[block : block + 4] = table[first : first + 4]
    table[STARTS], table[START] = at, (m + 1) * n + width
    return table


@called
def go_to(t, k, recorded):
    """Make step k of the chunk the current one; `recorded` if each has matrices of its own."""
    compact()
    by = k - t[STEP]
    t[STEP] = k
    for block in range(MEAN, FILTERED_COV, 4):
        t[block + AT] += by * t[block + DOWN]
    if recorded:
        for block in range(FILTERED_COV, MEANS, 4):
            t[block + AT] += by * t[block + ROWS] * t[block + DOWN]


# ---------------------------------------------------------------- numbers in and out of the cells


class Files(NamedTuple):
    """Flat arrays of numbers, in kernels pointers.

    Attributes:
        observations: of all models.
        matrices: F, Q, H, R, initial mean and covariance.
        places: where each model's part of each of these seven begins, (models * 7,).
        out: what is computed.
        logliks: (models,).
    """

    observations: Any
    matrices: Any
    places: Any
    out: Any
    logliks: Any


@called
def pack(numbers, lanes, t, block, files, which, first, after):
    """Read a matrix of the models from `first` on, so many numbers after where it begins.

    Lanes beyond the last model repeat it.
    """
    compact()
    columns = t[block + COLUMNS]
    for lane in range(lanes):
        model = min(first + lane, t[BATCH] - 1)
        begin = files.places[7 * model + which] + after
        for i in range(t[block + ROWS]):
            to = t[block + AT] + i * t[block + DOWN]
            for j in range(columns):
                numbers[(to + j) * lanes + lane] = files.matrices[begin + i * columns + j]


@called
def unpack(numbers, lanes, t, block, out, begin, pitch, first, factor):
    """Write a matrix of each model, times a factor; `pitch` numbers after one another."""
    compact()
    columns, models, to = t[block + COLUMNS], min(lanes, t[BATCH] - first), begin + first * pitch
    for i in range(t[block + ROWS]):
        at = (t[block + AT] + i * t[block + DOWN]) * lanes
        for j in range(columns):
            for lane in range(models):
                out[to + lane * pitch + j] = factor * numbers[at + j * lanes + lane]
        to += columns


@called
def read_matrices(c, numbers, lanes, t, files, first, step):
    """F, Q, H and R of a time step: those that vary, at the first one all."""
    compact()
    for which, block in enumerate((TRANSITION, TRANSITION_COV, DESIGN, OBSERVATION_COV)):
        if t[PACES + which] or step == 0:
            pack(numbers, lanes, t, block, files, which + 1, first, step * t[PACES + which])
    if t[PACES] or step == 0:
        combine(c, t, TURNED_TRANSITION, ~TRANSITION, 0.0, ZERO)
    if t[PACES + 2] or step == 0:
        combine(c, t, TURNED_DESIGN, ~DESIGN, 0.0, ZERO)


@called
def observe(numbers, lanes, t, files, first, begin, count):
    """Read the observations of a chunk; whether some are missing."""
    compact()
    go_to(t, 0, False)
    gaps, p, to, down = False, t[OBSERVATION], t[OBSERVED], t[OBSERVED + DOWN]
    for lane in range(lanes):
        model = min(first + lane, t[BATCH] - 1)
        for i in range(p):
            source = files.places[7 * model] + begin * p + i
            for k in range(count):
                y = files.observations[source + k * p]
                gaps |= y != y
                numbers[(to + k * down + i) * lanes + lane] = -y
    if gaps:
        hidden = (t[HIDDEN] - to) * lanes
        for at in range(to * lanes, (to + count * down) * lanes):
            y = numbers[at]
            numbers[at + hidden] = 0.0 if y == y else 1.0
            numbers[at] = y if y == y else 0.0
    return gaps
