"""Where the matrices of a filter lie, how numbers get there, and what is computed of them.

The workspace of one block of models is memory in registers of the machine. A cell is a number, of
one model, or a `Vector` that holds the number of as many models as a register has lanes. A register
is then one such cell; of one model it is as many cells of a row, and rows are filled up with zeros.
In plain Python cells and registers are numbers.

A table of whole numbers says where each matrix is. A matrix is known by the place of its
description there: its first register, its rows, its columns in cells, and the registers from one
row to the next, 0 where one row stands for all. `~x` is the transposed of `x`, as a left factor.
Nothing is checked.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import overload, register_jitable

from rlcpu.kernels.compile import FAST, INLINE, compact
from rlcpu.kernels.memory import load_tile, shifted
from rlcpu.kernels.vectors import Vector, where

ONE = 1  # register of a vector

#: Decorator: plain Python, and a part of every kernel that calls it.
inlined: Any = register_jitable(fastmath=FAST, **INLINE)
#: The same, but called: inlined, a filter takes three times as long to compile.
called: Any = register_jitable(fastmath=FAST, **{**INLINE, "forceinline": False})


class Workspace(NamedTuple):
    """The memory in three units, and the table, which every block of models has to itself.

    In kernels all are pointers.
    """

    cells: Any
    registers: Any
    numbers: Any
    table: Any


class Files(NamedTuple):
    """Flat arrays of numbers, in kernels pointers.

    Attributes:
        observations: of all models.
        matrices: F, Q, H, R, initial mean and covariance.
        places: where each lane's part of each of these seven begins, (7 * lanes of all blocks,).
        out: what is computed.
        logliks: (models,).
    """

    observations: Any
    matrices: Any
    places: Any
    out: Any
    logliks: Any


#: What is computed: log-likelihoods alone; with all states; smoothed states; gradients.
VALUE, STATES, SMOOTH, GRADIENT = range(4)

# ---------------------------------------------------------------- the table, by number

#: One of the above; whether to update in Joseph's form; models; whether a matrix varies with time;
#: numbers of a cell.
(KIND, JOSEPH, MODELS, VARIES, LANES) = range(5)
#: Numbers from one time step to the next of each input, 0 where it is constant; of each output its
#: first number, and numbers from one model and from one time step to the next.
PACES, OUTPUTS = 5, 5 + 7
#: Time steps, and those of a chunk; numbers of a state, m, and of an observation, p; cells of a
#: register.
(STEPS, CHUNK, STATE, OBSERVATION, WIDTH) = range(33, 38)
#: Where the states at the beginning of each chunk are kept, registers of each, and of everything.
(STARTS, START, REGISTERS) = range(38, 41)
#: The first lane's model; the current step of the chunk; whether an observation of it is missing.
(FIRST, STEP, GAPS) = range(41, 44)

AT, ROWS, COLUMNS, DOWN = range(4)
_FIRST_MATRIX = GAPS + 1
_shapes: list[str] = []


def _matrices(shape: str, count: int) -> list[int]:
    """Names for matrices of a shape, its rows and columns by letter."""
    begin = _FIRST_MATRIX + 4 * len(_shapes)
    _shapes.extend([shape] * count)
    return list(range(begin, begin + 4 * count, 4))


#: F, F', Q, P, (F + F K H)'; two for in between; N, and N at the end of a chunk.
(TRANSITION, TURNED_TRANSITION, TRANSITION_COV, COV, CLOSED) = _matrices("mm", 5)
(SQUARE, OTHER, ADJOINT, ADJOINT_BEFORE) = _matrices("mm", 4)
#: H, H P, two for in between; H'; R, one for in between.
(DESIGN, PROJECTED, FEW, ALSO_FEW) = _matrices("pm", 4)
(TURNED_DESIGN,) = _matrices("mp", 1)
(OBSERVATION_COV, SMALL) = _matrices("pp", 2)
#: Gradients with respect to F, Q, H and R.
(TRANSITION_SLOPE, TRANSITION_COV_SLOPE) = _matrices("mm", 2)
(DESIGN_SLOPE, OBSERVATION_COV_SLOPE) = *_matrices("pm", 1), *_matrices("pp", 1)
#: A row that stands for any matrix of zeros; F' r, r, x; s; sums of e' u; the log-likelihood.
(ZERO,) = _matrices("1n", 1)
(LINE, SCORE, SMOOTHED) = _matrices("1m", 3)
(TILT, SQUARES, LOGLIK) = *_matrices("1p", 1), *_matrices("11", 2)
#: A row for each step of a chunk, from the current one on: a, the mean after the update; -y, or 0
#: where it is missing; 1 where it is missing, else 0; e; u; pivots of 2 pi S. The next step's a is
#: a row behind a.
(MEAN, FILTERED) = _matrices("1m", 2)
(OBSERVED, HIDDEN, ERROR, WEIGHTED, PIVOTS) = _matrices("1p", 5)
(NEXT_MEAN,) = _matrices("1m", 1)
#: Of the current step, and if a backward pass follows of each step of a chunk: the covariance after
#: the update, K, M.
(FILTERED_COV, GAIN, PRECISION) = _matrices("mm", 1) + _matrices("mp", 1) + _matrices("pp", 1)
END = _FIRST_MATRIX + 4 * len(_shapes)

#: Steps of a chunk, fewer where what is recorded of them takes more than this many numbers.
LONGEST, RECORDS = 32, 2**17


@functools.lru_cache(maxsize=64)
def lay_out(
    steps: int, m: int, p: int, width: int, backward: bool, longest: int = LONGEST
) -> npt.NDArray[np.int64]:
    """The part of the table that says where everything is, for so many time steps.

    `width` is the number of cells of a register.
    """
    chunk = min(steps, max(8, min(longest, RECORDS // (m * m + p * p + m * p + m + p))))
    sizes = {"m": m, "p": p, "n": max(m, p), "1": 1}
    table, at = np.zeros(END, np.int64), 0
    for block, shape in zip(range(_FIRST_MATRIX, END, 4), _shapes, strict=True):
        rows, columns = (sizes[letter] for letter in shape)
        down = -(-columns // width)
        table[block : block + 4] = at, rows, columns, down
        each_step = MEAN <= block < NEXT_MEAN or (block >= FILTERED_COV and backward)
        copies = chunk if each_step else 1
        # One register between blocks: eight models of 8 x 8 take 4096 bytes, a distance at which
        # processors take a read for one of what was just written.
        at += (copies * rows + (block == MEAN)) * down + 1
    down = -(-m // width)
    table[ZERO + DOWN], table[NEXT_MEAN] = 0, table[MEAN] + down
    start, starts = (m + 1) * down + 1, -(-steps // chunk) if backward else 1
    table[STEPS : REGISTERS + 1] = (steps, chunk, m, p, width, at, start, at + starts * start)
    table.flags.writeable = False
    return table


@inlined
def cell_of(w, block, row):
    """Position of the first cell of a row."""
    return (w.table[block + AT] + row * w.table[block + DOWN]) * w.table[WIDTH]


@called
def go_to(w, k, recorded):
    """Make step k of the chunk the current one; `recorded` if each has matrices of its own."""
    compact()
    t = w.table
    by = k - t[STEP]
    t[STEP] = k
    for block in range(MEAN, FILTERED_COV, 4):
        t[block + AT] += by * t[block + DOWN]
    if recorded:
        for block in range(FILTERED_COV, END, 4):
            t[block + AT] += by * t[block + ROWS] * t[block + DOWN]


# ---------------------------------------------------------------- numbers in and out


@called
def read(w, files, block, which, step):
    """A matrix of every lane's model, one of the seven inputs."""
    compact()
    t = w.table
    lanes, columns = t[LANES], t[block + COLUMNS]
    first = which * ((t[MODELS] + lanes - 1) // lanes * lanes) + t[FIRST]
    for lane in range(lanes):
        source = files.places[first + lane] + step * t[PACES + which]
        for i in range(t[block + ROWS]):
            to = cell_of(w, block, i)
            for j in range(columns):
                w.numbers[(to + j) * lanes + lane] = files.matrices[source + i * columns + j]


@called
def write(w, files, block, which, step, factor):
    """A matrix of every lane's model, times a factor, to one of the outputs."""
    compact()
    t, numbers = w.table, w.numbers
    output = OUTPUTS + 3 * which
    begin, pitch, pace = t[output], t[output + 1], t[output + 2]
    lanes, columns, models = t[LANES], t[block + COLUMNS], min(t[LANES], t[MODELS] - t[FIRST])
    to = begin + t[FIRST] * pitch + step * pace
    for i in range(t[block + ROWS]):
        at = cell_of(w, block, i) * lanes
        for j in range(columns):
            for lane in range(models):
                files.out[to + lane * pitch + j] = factor * numbers[at + j * lanes + lane]
        to += columns


@called
def read_matrices(w, files, step):
    """F, Q, H and R of a time step: those that vary, at the first one all."""
    compact()
    t = w.table
    for i, block in enumerate((TRANSITION, TRANSITION_COV, DESIGN, OBSERVATION_COV)):
        if t[PACES + i + 1] or step == 0:
            read(w, files, block, i + 1, step)
    if t[PACES + 1] or step == 0:
        combine(w, TURNED_TRANSITION, ~TRANSITION, 0.0, ZERO)
    if t[PACES + 3] or step == 0:
        combine(w, TURNED_DESIGN, ~DESIGN, 0.0, ZERO)


@called
def observe(w, files, begin, count):
    """Read the observations of a chunk, and note whether some are missing."""
    compact()
    go_to(w, 0, False)
    t, r, numbers, lanes = w.table, w.registers, w.numbers, w.table[LANES]
    to, p, rows, whole, gaps = cell_of(w, OBSERVED, 0) * lanes, t[OBSERVATION], count, 0, False
    size = cell_of(w, OBSERVED, 1) * lanes - to
    if lanes > 1:  # the numbers of a lane follow one another: squares of them are transposed
        rows, p = 1, count * p
        starts, whole = shifted(files.places, t[FIRST]), p // lanes * lanes
        trace, squares = r[t[ZERO + AT]], cell_of(w, SQUARES, 0) * lanes
        for i in range(0, whole, lanes):
            tile, first = shifted(numbers, to + i * lanes), t[OBSERVED + AT] + i
            load_tile(files.observations, starts, begin * t[OBSERVATION] + i, tile, ONE)
            for k in range(first, first + lanes):
                trace, r[k] = r[k] * 0.0 + trace, -r[k]
        r[t[SQUARES + AT]] = trace
        for i in range(squares, squares + lanes):
            gaps |= numbers[i] != numbers[i]
    for lane in range(lanes):
        source = files.places[t[FIRST] + lane] + begin * t[OBSERVATION]
        for k in range(rows):
            for i in range(whole, p):
                y = files.observations[source + k * p + i]
                gaps |= y != y
                numbers[to + k * size + i * lanes + lane] = -y
    hidden = cell_of(w, HIDDEN, 0) * lanes
    if gaps:
        for i in range(count * size):
            y = numbers[to + i]
            numbers[hidden + i] = 0.0 if y == y else 1.0
            numbers[to + i] = y if y == y else 0.0
    t[GAPS] = 1 if gaps else 0


# ---------------------------------------------------------------- products


@inlined
def add(w, out, start, left, right):
    """Out = start + left @ right; `out` may be `start`."""
    multiply(w, out, start, left, right, False)


@inlined
def add_symmetric(w, out, start, left, right):
    """The same, of which it is known that it is symmetric: half of it is computed."""
    multiply(w, out, start, left, right, True)


@called
def multiply(w, out, start, left, right, symmetric):
    """`add` and `add_symmetric`, four rows at a time."""
    compact()
    c, r, t, own = w.cells, w.registers, w.table, left if left >= 0 else ~left
    wide, rows, depth, down, along = t[WIDTH], t[own + ROWS], t[own + COLUMNS], t[own + DOWN], 1
    x, down = t[own + AT] * wide, down * wide
    if left < 0:
        rows, depth, down, along = depth, rows, along, down
    o, s, ahead, begin, width = (
        t[out + AT],
        t[start + AT],
        t[start + DOWN],
        t[right + AT],
        t[right + DOWN],
    )
    for i in range(0, rows - 3, 4):
        wanted = width
        if symmetric:
            wanted = (i + 3) // wide + 1
        for j in range(wanted):
            first, second = r[s + j], r[s + ahead + j]
            third, fourth = r[s + 2 * ahead + j], r[s + 3 * ahead + j]
            a, y = x, begin + j
            for _ in range(depth):
                z = r[y]
                first = c[a] * z + first
                second = c[a + down] * z + second
                third = c[a + 2 * down] * z + third
                fourth = c[a + 3 * down] * z + fourth
                a, y = a + along, y + width
            r[o + j], r[o + width + j] = first, second
            r[o + 2 * width + j], r[o + 3 * width + j] = third, fourth
        o, s, x = o + 4 * width, s + 4 * ahead, x + 4 * down
    for _ in range(rows & 3):
        multiply_row(c, r, o, s, x, along, begin, width, depth)
        o, s, x = o + width, s + ahead, x + down
    if symmetric:
        o = t[out + AT] * wide
        for i in range(1, rows):
            for j in range(i):
                c[o + j * width * wide + i] = c[o + i * width * wide + j]


@inlined
def multiply_row(c, r, out, start, left, along, right, width, depth):
    """One row, of four registers at once as long as there are so many."""
    j = 0
    while j + 4 <= width:
        x, y, s = left, right + j, start + j
        first, second, third, fourth = r[s], r[s + 1], r[s + 2], r[s + 3]
        for _ in range(depth):
            z = c[x]
            first = z * r[y] + first
            second = z * r[y + 1] + second
            third = z * r[y + 2] + third
            fourth = z * r[y + 3] + fourth
            x, y = x + along, y + width
        r[out + j], r[out + j + 1], r[out + j + 2], r[out + j + 3] = first, second, third, fourth
        j += 4
    while j < width:
        total, x, y = r[start + j], left, right + j
        for _ in range(depth):
            total = c[x] * r[y] + total
            x, y = x + along, y + width
        r[out + j] = total
        j += 1


@called
def add_row(w, out, start, left, right):
    """`add` of one row, the current step's, with less to begin with: 6 ns instead of 12."""
    compact()
    t, y, width, x = w.table, w.table[right + AT], w.table[right + DOWN], cell_of(w, left, 0)
    depth = t[left + COLUMNS]
    multiply_row(w.cells, w.registers, t[out + AT], t[start + AT], x, 1, y, width, depth)


@called
def recur(w, rows, right):
    """Row k + 1 = row k + 1 + row k @ right, one row after the other."""
    compact()
    t, y, width, x = w.table, w.table[right + AT], w.table[right + DOWN], cell_of(w, rows, 0)
    after, pitch, depth = t[rows + AT] + width, width * t[WIDTH], t[rows + COLUMNS]
    for _ in range(t[rows + ROWS]):
        multiply_row(w.cells, w.registers, after, after, x, 1, y, width, depth)
        after, x = after + width, x + pitch


# ---------------------------------------------------------------- element by element


@called
def combine(w, out, x, times, y):
    """Out = x + times * y; `x` may be transposed."""
    compact()
    c, own = w.cells, x if x >= 0 else ~x
    down, along = w.table[own + DOWN] * w.table[WIDTH], 1
    if x < 0:
        down, along = along, down
    for i in range(w.table[out + ROWS]):
        o, a, b = cell_of(w, out, i), cell_of(w, own, 0) + i * down, cell_of(w, y, i)
        for j in range(w.table[out + COLUMNS]):
            c[o + j] = c[b + j] * times + c[a + j * along]


@called
def add_to_diagonal(w, out, number):
    """Out = out + number * I."""
    compact()
    for i in range(w.table[out + ROWS]):
        at = cell_of(w, out, i) + i
        w.cells[at] = w.cells[at] + number


@called
def copy(w, out, begin, count):
    """Registers that follow one another."""
    compact()
    for i in range(count):
        w.registers[out + i] = w.registers[begin + i]


def reciprocal(x: Any) -> Any:
    """1 / x where x is positive and finite, NaN elsewhere: pivots that are not definite."""
    return 1.0 / x if 0.0 < x < math.inf else math.nan


@overload(reciprocal, jit_options={"fastmath": FAST, **INLINE})
def _reciprocal(x):
    if isinstance(x, Vector):
        return lambda x: where(x > 0.0, where(x < math.inf, 1.0 / x, math.nan), math.nan)
    return lambda x: 1.0 / x if 0.0 < x < math.inf else math.nan


@called
def invert_precision(w):
    """From S to M = -S^-1 by sweeps, NaN if S is not positive definite, and pivots of 2 pi S.

    A missing observation is not swept: what M has of it is 0, and its pivot counts as 1.
    """
    compact()
    c, t, size = w.cells, w.table, w.table[OBSERVATION]
    begin, down = cell_of(w, PRECISION, 0), t[PRECISION + DOWN] * t[WIDTH]
    hidden, pivots = cell_of(w, HIDDEN if t[GAPS] else ZERO, 0), cell_of(w, PIVOTS, 0)
    for k in range(size):
        own, gone = begin + k * down, c[hidden + k]
        seen = 1.0 - gone
        pivot = c[own + k] * seen + gone
        inverse = reciprocal(pivot) * seen
        c[pivots + k] = pivot * (seen * (2.0 * math.pi) + gone)
        c[own + k] = -inverse
        for row in range(begin, begin + size * down, down):
            if row != own:
                factor = c[row + k] * inverse
                for j in range(size):
                    if j != k:
                        c[row + j] = c[row + j] - factor * c[own + j]
                c[row + k] = factor
        for j in range(size):
            if j != k:
                c[own + j] = c[own + j] * inverse
