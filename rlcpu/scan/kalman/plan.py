"""Where everything lies in the workspace of one model, or of one register full of models.

A workspace is a flat array of numbers beside a table of whole numbers: sizes, then position and
distance between rows of each block. Kernels know a block by its number. Tables and pointers keep
the functions that are called small: with a NamedTuple of blocks the filter took 64 s to compile,
with the table it takes 9.
"""

from __future__ import annotations

import functools
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.scan.kalman.vectors import lanes

# ---------------------------------------------------------------- numbers, at the table's beginning

#: Models; time steps; size m of a state and p of an observation; steps of a chunk; chunks.
(BATCH, STEPS, STATE, OBSERVATION, CHUNK, CHUNKS) = range(6)
#: Numbers that a record takes; where saved ones begin, 0 without; numbers that a state takes; where
#: saved ones begin; the distance between those of two chunks; where begins, a number a chunk,
#: whether the covariance stands still in it.
(RECORD, RECORDS, PACE, STARTS, BETWEEN, FLAGS) = range(6, 12)
#: Size of the workspace; whether some matrix varies; whether to update in Joseph's form.
(END, VARIES, JOSEPH) = range(12, 15)
#: From here on: distance between two time steps of each of the 7 inputs, 0 where it is constant.
PACES = 15
HEAD = 22

# ---------------------------------------------------------------- inputs, by number

(IN_OBSERVATIONS, IN_TRANSITION, IN_TRANSITION_COV, IN_DESIGN, IN_OBSERVATION_COV) = range(5)
(IN_MEAN, IN_COV) = range(5, 7)

# ---------------------------------------------------------------- blocks, by number
# As numpy.int64: numba compiles a function anew for each Python int that it is called with.

_numbers: Any = iter(np.arange(100))
#: F (m, m) and F', Q (m, m), H (p, m), R (p, p) of the current time step.
(TRANSITION, TURNED, TRANSITION_COV, DESIGN, OBSERVATION_COV) = islice(_numbers, 5)
#: Mean a (1, m) and covariance P (m, m) before the current observation: one state.
(MEAN, COV) = islice(_numbers, 2)
#: One record: filtered mean (1, m), u = M v (1, p); filtered covariance (m, m), gain K' (p, m),
#: M (p, p), inverse covariance of the innovation v, 0 where nothing was observed.
(FILTERED, SCORE, FILTERED_COV, GAIN, PRECISION) = islice(_numbers, 5)
#: Observations of a chunk (chunk, p).
(OBSERVED,) = islice(_numbers, 1)
#: Within a time step: v (1, p), H P (p, m), and others (p, m), (p, p), (1, m), (m, m), (m, m).
(INNOVATION, PROJECTED, FEW, SMALL, LINE, SQUARE, OTHER) = islice(_numbers, 7)
#: A row of zeros that stands for any matrix, and I (m, m).
(ZERO, IDENTITY) = islice(_numbers, 2)
#: Sums over a chunk, (1, 1) each: squares of standardised innovations, number of observations,
#: mantissa and exponent of the product of all pivots; log-likelihood so far, and in the end.
(SQUARES, COUNT, MANTISSA, EXPONENT, LOGLIK, RESULT) = islice(_numbers, 6)
#: Adjoint of a state, (1, m) and, twice the gradient, (m, m).
(MEAN_SLOPE, COV_SLOPE) = islice(_numbers, 2)
#: Gradients with respect to F, Q, H and R.
(TRANSITION_SLOPE, TRANSITION_COV_SLOPE, DESIGN_SLOPE, OBSERVATION_COV_SLOPE) = islice(_numbers, 4)
#: One row.
ONE = np.int64(1)


class Layout(NamedTuple):
    """How matrices become registers.

    Attributes:
        dtype: "float32" or "float64".
        across: an element is a register that holds the number of as many models; otherwise it is
            one number of one model, and a register holds a part of a row.
    """

    dtype: str
    across: bool


class Sizes(NamedTuple):
    """Sizes of a problem.

    Attributes:
        batch: models.
        steps: time steps.
        state: m, size of a state.
        observation: p, size of an observation.
        chunk: time steps of a chunk.
    """

    batch: int
    steps: int
    state: int
    observation: int
    chunk: int


def make_table(layout: Layout, sizes: Sizes, backward: bool) -> npt.NDArray[np.int64]:
    """The table of a workspace, but for `VARIES`, `JOSEPH` and the paces.

    Args:
        layout: see there.
        sizes: see there.
        backward: leave room for a record a step of the chunk, and for a state a chunk.

    Returns:
        (HEAD + 2 * blocks,) int64, a new array.
    """
    return _make_table(layout, sizes, backward).copy()


@functools.lru_cache(maxsize=64)
def _make_table(layout: Layout, sizes: Sizes, backward: bool) -> npt.NDArray[np.int64]:
    width, shapes = lanes(layout.dtype), _shapes(sizes)
    table = np.zeros(HEAD + 2 * len(shapes), np.int64)
    table[: len(sizes)] = sizes
    chunks = table[CHUNKS] = -(-sizes.steps // sizes.chunk)
    at = 0
    for number, (rows, columns) in enumerate(shapes):
        row = columns * width if layout.across else -(-columns // width) * width
        table[HEAD + 2 * number : HEAD + 2 * number + 2] = at, row
        at += rows * row
    table[HEAD + 2 * ZERO + 1] = 0
    mean, record, end = table[HEAD + 2 * np.array([MEAN, FILTERED, OBSERVED])]
    table[RECORD], table[PACE] = end - record, record - mean
    if backward:
        table[RECORDS], table[BETWEEN] = at, table[PACE]
        at += sizes.chunk * table[RECORD]
    table[STARTS] = at
    table[FLAGS] = at = at + (chunks if backward else 1) * table[PACE]
    table[END] = at + chunks
    return table


def _shapes(sizes: Sizes) -> list[tuple[int, int]]:
    """Shape of every block, in the order of their numbers."""
    m, p = sizes.state, sizes.observation
    few, line, square, small = (p, m), (1, m), (m, m), (p, p)
    matrices, state = [square, square, few, small], [line, square]
    record = [line, (1, p), square, few, small]
    scratch = [(1, p), few, few, small, line, square, square, (1, max(m, p)), square]
    sums = [(1, 1)] * 6
    observed = [(sizes.chunk, p)]
    return [square, *matrices, *state, *record, *observed, *scratch, *sums, *state, *matrices]
