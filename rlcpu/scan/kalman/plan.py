"""Where everything lies in the workspace of one model, or of one register full of models.

A workspace is a flat array of numbers. Matrices are blocks in it, known by their numbers; their
rows are whole registers. What a kernel does with it is written in a table of whole numbers, beside
the sizes below: see `programs`.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

from rlcpu.scan.kalman.vectors import lanes

# ---------------------------------------------------------------- the beginning of the table

#: Models; time steps; steps of a chunk; chunks; size of the workspace.
(BATCH, STEPS, CHUNK, CHUNKS, END) = range(5)
#: Whether some matrix varies; whether a backward pass follows; whether a forward pass without
#: records takes all steps of a chunk at once where the covariance stands still.
(VARIES, BACKWARD, AT_ONCE) = range(5, 8)
#: Size m of a state and p of an observation.
(STATE, OBSERVATION) = range(8, 10)
#: Numbers that a state takes; where the saved ones begin; the distance between those of two chunks;
#: where begins, a number a chunk, whether the covariance stands still in it.
(PACE, STARTS, BETWEEN, FLAGS) = range(10, 14)
#: Where blocks lie that the passes themselves look at: the state, its covariance and the identity,
#: and the distance between rows of these two; the observations of a chunk, and the distance between
#: its rows; sums; the result.
(AT_STATE, AT_COV, AT_IDENTITY, COV_ROW, AT_OBSERVED, OBSERVED_ROW) = range(14, 20)
(AT_SUMS, AT_RESULT) = range(20, 22)
#: From here on where each program begins, and where the last one ends.
PROGRAMS = 22

# ---------------------------------------------------------------- inputs, by number

(IN_OBSERVATIONS, IN_TRANSITION, IN_TRANSITION_COV, IN_DESIGN, IN_OBSERVATION_COV) = range(5)
(IN_MEAN, IN_COV) = range(5, 7)

# ---------------------------------------------------------------- blocks, by number

_numbers: Any = iter(range(100))
#: F (m, m) and F', Q (m, m), H (p, m), R (p, p) of the current time step.
(TRANSITION, TURNED, TRANSITION_COV, DESIGN, OBSERVATION_COV) = islice(_numbers, 5)
#: Mean a (1, m) and covariance P (m, m) before the current observation, log-likelihood (1, 1) of
#: those before: one state.
(MEAN, COV, LOGLIK) = islice(_numbers, 3)
#: One record: filtered mean (1, m), u = M v (1, p); filtered covariance (m, m), gain K' (p, m),
#: M (p, p), inverse covariance of the innovation v, 0 where nothing was observed.
(FILTERED, SCORE, FILTERED_COV, GAIN, PRECISION) = islice(_numbers, 5)
#: Observations of a chunk (chunk, p), and of the current time step (1, p).
(OBSERVED, CURRENT) = islice(_numbers, 2)
#: Within a time step: v (1, p), 1 where an observation is missing (1, p), H P (p, m), and others
#: (p, m), (p, p), (1, m), (m, m), (m, m).
(INNOVATION, HIDDEN, PROJECTED, FEW, SMALL, LINE, SQUARE, OTHER) = islice(_numbers, 8)
#: A row of zeros that stands for any matrix, and I (m, m).
(ZERO, IDENTITY) = islice(_numbers, 2)
#: Of all steps of a chunk: means (chunk + 1, m), v and u (chunk, p).
(MEANS, INNOVATIONS, SCORES) = islice(_numbers, 3)
#: Sums over a chunk, (1, 1) each: squares of standardised innovations, number of missing
#: observations, mantissa and exponent of the product of all pivots; the result.
(SQUARES, MISSING, MANTISSA, EXPONENT, RESULT) = islice(_numbers, 5)
#: Adjoint of a state, (1, m) and, twice the gradient, (m, m).
(MEAN_SLOPE, COV_SLOPE) = islice(_numbers, 2)
#: Gradients with respect to F, Q, H and R.
(TRANSITION_SLOPE, TRANSITION_COV_SLOPE, DESIGN_SLOPE, OBSERVATION_COV_SLOPE) = islice(_numbers, 4)


class Layout(NamedTuple):
    """How matrices become registers.

    Attributes:
        dtype: "float32" or "float64".
        across: an element is a register that holds the number of as many models; otherwise it is
            one number of one model, and a register holds a part of a row.
        width: numbers of a register; plain Python computes with registers of one.
    """

    dtype: str
    across: bool
    width: int

    @property
    def element(self) -> int:
        """Numbers of one matrix element."""
        return self.width if self.across else 1


def make_layout(dtype: str, across: bool) -> Layout:
    """The layout that kernels have on this machine."""
    return Layout(dtype, across, lanes(dtype))


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


class Place(NamedTuple):
    """A block in the workspace.

    Attributes:
        at: position of its first number.
        row: distance between rows, 0 where one stands for all.
        rows: how many.
        columns: elements of a row.
    """

    at: int
    row: int
    rows: int
    columns: int


def make_places(layout: Layout, sizes: Sizes) -> list[Place]:
    """Every block's place, one after the other, in the order of their numbers."""
    places, at = [], 0
    for number, (rows, columns) in enumerate(_shapes(sizes)):
        row = columns * layout.element
        row += -row % layout.width
        places.append(Place(at, 0 if number == ZERO else row, rows, columns))
        at += rows * row
    return places


def _shapes(sizes: Sizes) -> list[tuple[int, int]]:
    m, p = sizes.state, sizes.observation
    few, line, short, square, small, one = (p, m), (1, m), (1, p), (m, m), (p, p), (1, 1)
    matrices = [square, square, few, small]
    record = [line, short, square, few, small]
    observed = [(sizes.chunk, p), short]
    scratch = [short, short, few, few, small, line, square, square, (1, max(m, p)), square]
    scratch += [(sizes.chunk + 1, m), (sizes.chunk, p), (sizes.chunk, p)]
    slopes = [line, square, *matrices]
    return [square, *matrices, line, square, one, *record, *observed, *scratch, *[one] * 5, *slopes]
