"""Filter, smoother and gradient of linear-Gaussian models, as loops over time.

x[t + 1] = F x[t] + w[t], y[t] = H x[t] + v[t], with w and v normal, of covariances Q and R. The
state before y[t] is seen has mean a and covariance P. With e = H a - y, S = H P H' + R, M = -S^-1,
K = P H' M and u = M e:

* update: mean a + P H' u, covariance P + K H P or, in Joseph's form,
  (I + K H) P (I + K H)' + K R K' (Anderson and Moore 1979, Optimal filtering, chapter 5; Bucy and
  Joseph 1968);
* prediction: a = F mean, P = F cov F' + Q;
* log-likelihood: (e' u - log(det(S)) - p log(2 pi)) / 2.

Backward (Bryson and Frazier 1963; de Jong 1989), r is the gradient of the log-likelihood with
respect to a[t + 1], and r r' + N twice that with respect to P[t + 1]. A step leads to those of t:

* r1 = F' r, N1 = F' N F;
* smoothed mean x = mean + cov r1, and covariance cov + cov N1 cov;
* s = u + K' r1, Y = K' N1, G = M + Y K;
* r = r1 + H' s, N = N1 + H' Y + Y' H + H' G H.

The gradients, with the old r and N:

* F: r x' + N F cov; Q: (r r' + N) / 2;
* y: -s; H: s x' + Y cov + K'; R: (s s' + G) / 2.

The signs are such that everything is a sum. For matrices, and the arguments `c` and `t` of all
functions, see `matrices`; `numbers` are the cells' numbers, one after the other.

Time is cut into chunks. A backward pass keeps the state at the beginning of every chunk, and takes
the chunks in reverse: forward again from there, with everything recorded, then backward.

With constant matrices P converges. Where no number of it has changed over a chunk by more than
`SETTLED` units of rounding, it is no longer computed in the following chunks without missing
observations. If the distance to the limit shrinks by a factor d a step, what is left of it is at
most SETTLED / (32 (1 - d)) units, below the 1 / (1 - d) that the recursion's own rounding adds up
to. The same is done for N.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import prange, types

from rlcpu.kernels.compile import c_function, kernel
from rlcpu.kernels.memory import call_at, pointer_to
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import VECTOR_BYTES, Vector
from rlcpu.scan.kalman.matrices import (
    COLUMNS,
    DOWN,
    ROWS,
    add,
    add_row,
    add_symmetric,
    add_to_diagonal,
    called,
    combine,
    compact,
    copy_cells,
    inlined,
    invert,
    lanes_of,
    multiply,
    recur,
)
from rlcpu.scan.kalman.workspace import (
    ADJOINT,
    ADJOINT_BEFORE,
    ALL_OBSERVED,
    ALL_WEIGHTED,
    ALSO_FEW,
    BATCH,
    CHUNK,
    CLOSED,
    COV,
    DESIGN,
    DESIGN_SLOPE,
    END,
    ERROR,
    ERRORS,
    FEW,
    FILTERED,
    FILTERED_COV,
    FILTERED_MEANS,
    GAIN,
    GRADIENT,
    HIDDEN,
    JOSEPH,
    KIND,
    LINE,
    LOGLIK,
    MEAN,
    MEANS,
    NEXT_MEAN,
    NEXT_MEANS,
    OBSERVATION,
    OBSERVATION_COV,
    OBSERVATION_COV_SLOPE,
    OBSERVED,
    OTHER,
    PACES,
    PIVOTS,
    PRECISION,
    PROJECTED,
    SCORE,
    SMALL,
    SMOOTH,
    SMOOTHED,
    SQUARE,
    SQUARES,
    START,
    STARTS,
    STATE,
    STATES,
    STEPS,
    TILT,
    TRANSITION,
    TRANSITION_COV,
    TRANSITION_COV_SLOPE,
    TRANSITION_SLOPE,
    TURNED_DESIGN,
    TURNED_TRANSITION,
    VARIES,
    WEIGHTED,
    ZERO,
    Files,
    go_to,
    observe,
    pack,
    read_matrices,
    unpack,
)

SETTLED = 2.0  # units of the dtype's epsilon, of correlations
SAFE = 1e15  # the product of two numbers between 1 / SAFE and SAFE never overflows, nor its square

# ---------------------------------------------------------------- a step forward


@called
def update(c, t, gaps):
    """From a and P to mean and covariance after the current step's observation."""
    compact()
    add(c, t, PROJECTED, ZERO, DESIGN, COV)
    add_row(c, t, ERROR, OBSERVED, MEAN, TURNED_DESIGN)
    add(c, t, PRECISION, OBSERVATION_COV, PROJECTED, TURNED_DESIGN)
    if gaps:
        hide(c, t)
    invert(c, t, PRECISION, PIVOTS)
    if gaps:
        show(c, t)
    add(c, t, GAIN, ZERO, ~PROJECTED, PRECISION)
    add_row(c, t, WEIGHTED, ZERO, ERROR, PRECISION)
    add_row(c, t, FILTERED, MEAN, WEIGHTED, PROJECTED)
    if t[JOSEPH]:
        update_joseph(c, t)
    else:
        add_symmetric(c, t, FILTERED_COV, COV, GAIN, PROJECTED)


@called
def hide(c, t):
    """Take missing observations out: no error, unit variance, uncorrelated."""
    compact()
    for i in range(t[OBSERVATION]):
        gone = c[t[HIDDEN] + i]
        seen = 1.0 - gone
        c[t[ERROR] + i] = c[t[ERROR] + i] * seen
        row = t[PRECISION] + i * t[PRECISION + DOWN]
        for j in range(t[OBSERVATION]):
            down = t[PRECISION] + j * t[PRECISION + DOWN] + i
            c[row + j] = c[row + j] * seen
            c[down] = c[down] * seen
        c[row + i] = c[row + i] + gone


@called
def show(c, t):
    """Take the unit variances out again: the precision of what is missing is 0."""
    compact()
    for i in range(t[OBSERVATION]):
        at = t[PRECISION] + i * (t[PRECISION + DOWN] + 1)
        c[at] = c[at] + c[t[HIDDEN] + i]


@called
def update_joseph(c, t):
    """Covariance after the update in Joseph's form."""
    compact()
    combine(c, t, FEW, ~GAIN, 0.0, ZERO)
    add(c, t, SQUARE, ZERO, ~DESIGN, FEW)
    add_to_diagonal(c, t, SQUARE, 1.0)
    add(c, t, OTHER, ZERO, COV, SQUARE)
    add_symmetric(c, t, FILTERED_COV, ZERO, ~SQUARE, OTHER)
    add(c, t, ALSO_FEW, ZERO, OBSERVATION_COV, FEW)
    add_symmetric(c, t, FILTERED_COV, FILTERED_COV, GAIN, ALSO_FEW)


@called
def predict(c, t):
    """The next step's a and P."""
    compact()
    add_row(c, t, NEXT_MEAN, ZERO, FILTERED, TURNED_TRANSITION)
    add(c, t, SQUARE, ZERO, FILTERED_COV, TURNED_TRANSITION)
    add_symmetric(c, t, COV, TRANSITION_COV, TRANSITION, SQUARE)


@called
def freeze(c, t):
    """What `glide` needs beside the `update` of a step: (F K)' in `FEW`, and (F + F K H)'."""
    compact()
    add(c, t, FEW, ZERO, ~GAIN, TURNED_TRANSITION)
    add(c, t, CLOSED, TURNED_TRANSITION, ~DESIGN, FEW)


@called
def glide(c, t, filtered):
    """All steps of a chunk in which P stands still; with the filtered means, or without.

    The next mean is a (F + F K H)' - y (F K)', not by way of the error: so it waits 16 cycles for
    this one instead of 60.
    """
    compact()
    add(c, t, NEXT_MEANS, ZERO, ALL_OBSERVED, FEW)
    recur(c, t, MEANS, CLOSED)
    add(c, t, ERRORS, ALL_OBSERVED, MEANS, TURNED_DESIGN)
    add(c, t, ALL_WEIGHTED, ZERO, ERRORS, PRECISION)
    if filtered:
        add(c, t, FILTERED_MEANS, MEANS, ALL_WEIGHTED, PROJECTED)


# ---------------------------------------------------------------- a step backward


@called
def retreat_mean(c, t, gradient):
    """The current step backward: r, x, s, and what they add to the gradients."""
    compact()
    add_row(c, t, LINE, ZERO, SCORE, TRANSITION)
    add_row(c, t, SMOOTHED, FILTERED, LINE, FILTERED_COV)
    add_row(c, t, TILT, WEIGHTED, LINE, GAIN)
    if gradient:
        add(c, t, TRANSITION_SLOPE, TRANSITION_SLOPE, ~SCORE, SMOOTHED)
        add(c, t, TRANSITION_COV_SLOPE, TRANSITION_COV_SLOPE, ~SCORE, SCORE)
        add(c, t, DESIGN_SLOPE, DESIGN_SLOPE, ~TILT, SMOOTHED)
        add(c, t, OBSERVATION_COV_SLOPE, OBSERVATION_COV_SLOPE, ~TILT, TILT)
    add_row(c, t, SCORE, LINE, TILT, DESIGN)


@called
def retreat_cov(c, t, gradient, times):
    """The same for N, `times` as much for the gradients; smoothed covariance in `OTHER`."""
    compact()
    add(c, t, SQUARE, ZERO, ADJOINT, TRANSITION)
    if gradient:
        add(c, t, OTHER, ZERO, SQUARE, FILTERED_COV)
        combine(c, t, TRANSITION_SLOPE, TRANSITION_SLOPE, times, OTHER)
        combine(c, t, TRANSITION_COV_SLOPE, TRANSITION_COV_SLOPE, times, ADJOINT)
    add_symmetric(c, t, ADJOINT, ZERO, ~TRANSITION, SQUARE)
    if not gradient:
        add(c, t, SQUARE, ZERO, ADJOINT, FILTERED_COV)
        add_symmetric(c, t, OTHER, FILTERED_COV, FILTERED_COV, SQUARE)
    add(c, t, FEW, ZERO, ~GAIN, ADJOINT)
    add(c, t, SMALL, PRECISION, FEW, GAIN)
    if gradient:
        combine(c, t, ALSO_FEW, ~GAIN, 0.0, ZERO)
        add(c, t, ALSO_FEW, ALSO_FEW, FEW, FILTERED_COV)
        combine(c, t, DESIGN_SLOPE, DESIGN_SLOPE, times, ALSO_FEW)
        combine(c, t, OBSERVATION_COV_SLOPE, OBSERVATION_COV_SLOPE, times, SMALL)
    add(c, t, ADJOINT, ADJOINT, ~DESIGN, FEW)
    add(c, t, FEW, FEW, SMALL, DESIGN)
    add_symmetric(c, t, ADJOINT, ADJOINT, ~FEW, DESIGN)


# ---------------------------------------------------------------- chunks


@inlined
def grow(product, volume, pivot):
    """Product of pivots, and sum of logarithms of what would take it out of range."""
    if not 1.0 / SAFE < pivot < SAFE:
        return product, volume + math.log(pivot)
    product *= pivot
    if 1.0 / SAFE < product < SAFE:
        return product, volume
    return 1.0, volume + math.log(product)


@called
def weigh(c, numbers, lanes, t, count, still, gaps):
    """Add the log-likelihood of a chunk."""
    compact()
    go_to(t, 0, False)
    p = t[OBSERVATION]
    add(c, t, SMALL, ZERO, ~ERRORS, ALL_WEIGHTED)
    total = c[t[SMALL]]
    for i in range(1, p):
        total = c[t[SMALL] + i * (t[SMALL + DOWN] + 1)] + total
    c[t[SQUARES]] = total
    for lane in range(lanes):
        product, volume, missing = 1.0, 0.0, 0.0
        for k in range(1 if still else count):
            for i in range(p):
                at = k * t[PIVOTS + DOWN] + i
                pivot = numbers[(t[PIVOTS] + at) * lanes + lane]
                product, volume = grow(product, volume, pivot)
                if gaps:
                    missing += numbers[(t[HIDDEN] + at) * lanes + lane]
        volume = (volume + math.log(product)) * (count if still else 1)
        volume += math.log(2.0 * math.pi) * (count * p - missing)
        at = t[LOGLIK] * lanes + lane
        numbers[at] += 0.5 * (numbers[t[SQUARES] * lanes + lane] - volume)


@called
def is_settled(numbers, lanes, t, block, before, tolerance):
    """Whether a covariance stands still, in proportion to the standard deviations."""
    compact()
    settled = True
    for i in range(t[block + ROWS]):
        for j in range(i + 1):
            for lane in range(lanes):
                at = i * t[block + DOWN] + j
                now = numbers[(t[block] + at) * lanes + lane]
                change = now - numbers[(before + at) * lanes + lane]
                scale = numbers[(t[block] + i * (t[block + DOWN] + 1)) * lanes + lane]
                scale *= numbers[(t[block] + j * (t[block + DOWN] + 1)) * lanes + lane]
                settled &= change * change <= tolerance * scale
    return settled


@called
def pass_chunk(c, numbers, lanes, t, files, first, begin, count, still, frozen, gaps, recorded):
    """Forward through a chunk.

    Args:
        c: see `matrices`.
        numbers: see above.
        lanes: of a cell.
        t: see `matrices`.
        files: see there.
        first: number of the first lane's model.
        begin: first time step.
        count: of time steps.
        still: whether P stands still in it.
        frozen: and did so in the chunk before, whose gain is still there.
        gaps: whether some observations are missing.
        recorded: whether each step has matrices of its own, or all the same.
    """
    compact()
    for block in range(MEANS, END, 4):
        t[block + ROWS] = count
    for k in range(1 if still else count):
        go_to(t, k, recorded)
        if t[VARIES]:
            read_matrices(c, numbers, lanes, t, files, first, begin + k)
        if not frozen:
            update(c, t, gaps)
        if t[KIND] == STATES:
            write_covs(numbers, lanes, t, files, first, begin + k, count if still else 1)
        if not still:
            predict(c, t)
    if still:
        if not frozen:
            freeze(c, t)
        glide(c, t, recorded or t[KIND] == STATES)
    if t[KIND] == STATES:
        m = t[STATE]
        pitch = t[STEPS] * m
        unpack(numbers, lanes, t, MEANS, files.out, begin * m, pitch, first, 1.0)
        at = t[BATCH] * pitch + begin * m
        unpack(numbers, lanes, t, FILTERED_MEANS, files.out, at, pitch, first, 1.0)


@called
def write_covs(numbers, lanes, t, files, first, step, count):
    """Covariances before and after an update, of a time step and those that have the same."""
    compact()
    size = t[STATE] * t[STATE]
    pitch = t[STEPS] * size
    for s in range(step, step + count):
        at = 2 * t[BATCH] * t[STEPS] * t[STATE] + s * size
        unpack(numbers, lanes, t, COV, files.out, at, pitch, first, 1.0)
        at += t[BATCH] * pitch
        unpack(numbers, lanes, t, FILTERED_COV, files.out, at, pitch, first, 1.0)


def forward(c, numbers, t, first, tolerance, observations, matrices, places, out, logliks):
    """Through all chunks; notes where each began and whether P stood still in it.

    The models are those from `first` on, as many as there are lanes. The cells are zero before.
    """
    compact()
    files, lanes = Files(observations, matrices, places, out, logliks), lanes_of(c)
    read_matrices(c, numbers, lanes, t, files, first, 0)
    pack(numbers, lanes, t, MEAN, files, 5, first, 0)
    pack(numbers, lanes, t, COV, files, 6, first, 0)
    still, settled, size = False, False, t[COV + ROWS] * t[COV + DOWN]
    for begin in range(0, t[STEPS], t[CHUNK]):
        count = min(t[CHUNK], t[STEPS] - begin)
        gaps = observe(numbers, lanes, t, files, first, begin, count)
        before, still = still, settled and not gaps
        start = t[STARTS]
        if t[KIND] >= SMOOTH:
            start += begin // t[CHUNK] * t[START]
        copy_cells(c, start, t[COV], size)
        copy_cells(c, start + size, t[MEAN], t[MEAN + DOWN])
        numbers[(start + t[START] - 1) * lanes] = 1.0 if still else 0.0
        frozen = before and still
        pass_chunk(c, numbers, lanes, t, files, first, begin, count, still, frozen, gaps, False)
        weigh(c, numbers, lanes, t, count, still, gaps)
        copy_cells(c, t[MEAN], t[MEAN] + count * t[MEAN + DOWN], t[MEAN + DOWN])
        settled = still
        if not (still or gaps or t[VARIES]):
            settled = is_settled(numbers, lanes, t, COV, start, tolerance)
    for lane in range(min(lanes, t[BATCH] - first)):
        files.logliks[first + lane] = numbers[t[LOGLIK] * lanes + lane]


def backward(c, numbers, t, first, tolerance, observations, matrices, places, out, logliks):
    """Through all chunks in reverse, each forward again first; after `forward` of these models."""
    compact()
    files, lanes = Files(observations, matrices, places, out, logliks), lanes_of(c)
    gradient, settled, size = t[KIND] == GRADIENT, False, t[COV + ROWS] * t[COV + DOWN]
    for number in range((t[STEPS] - 1) // t[CHUNK], -1, -1):
        begin = number * t[CHUNK]
        count = min(t[CHUNK], t[STEPS] - begin)
        start = t[STARTS] + number * t[START]
        gaps = observe(numbers, lanes, t, files, first, begin, count)
        copy_cells(c, t[COV], start, size)
        copy_cells(c, t[MEAN], start + size, t[MEAN + DOWN])
        still = numbers[(start + t[START] - 1) * lanes] != 0.0
        settled = settled and still
        pass_chunk(c, numbers, lanes, t, files, first, begin, count, still, False, gaps, True)
        copy_cells(c, t[ADJOINT_BEFORE], t[ADJOINT], size)
        for k in range(count - 1, -1, -1):
            go_to(t, k, not still)
            if t[VARIES]:
                read_matrices(c, numbers, lanes, t, files, first, begin + k)
            retreat_mean(c, t, gradient)
            if not settled or k == count - 1:
                retreat_cov(c, t, gradient, float(count if settled else 1))
            write_step(c, numbers, lanes, t, files, first, begin + k)
        if still and not settled:
            settled = is_settled(numbers, lanes, t, ADJOINT, t[ADJOINT_BEFORE], tolerance)
    if gradient:
        m = t[STATE]
        at = write_slopes(c, numbers, lanes, t, files, first, 0, False)
        unpack(numbers, lanes, t, SCORE, files.out, at, m, first, 1.0)
        add(c, t, ADJOINT, ADJOINT, ~SCORE, SCORE)
        at += t[BATCH] * m
        unpack(numbers, lanes, t, ADJOINT, files.out, at, m * m, first, 0.5)


@called
def write_step(c, numbers, lanes, t, files, first, step):
    """What the backward pass finds out about a time step."""
    compact()
    m, p = t[STATE], t[OBSERVATION]
    if t[KIND] == GRADIENT:
        unpack(numbers, lanes, t, TILT, files.out, step * p, t[STEPS] * p, first, -1.0)
        if t[VARIES]:
            write_slopes(c, numbers, lanes, t, files, first, step, True)
    else:
        pitch = t[STEPS] * m
        unpack(numbers, lanes, t, SMOOTHED, files.out, step * m, pitch, first, 1.0)
        at = t[BATCH] * pitch + step * m * m
        unpack(numbers, lanes, t, OTHER, files.out, at, pitch * m, first, 1.0)


@called
def write_slopes(c, numbers, lanes, t, files, first, step, varying):
    """Slopes of the matrices that vary, or of those that do not; where the next ones begin.

    Those of the observations, of F, Q, H and R and of the initial mean and covariance follow one
    another, each (batch, ...), with a time axis where they vary.
    """
    compact()
    begin = t[BATCH] * t[STEPS] * t[OBSERVATION]
    for which in range(4):
        block, pace = TRANSITION_SLOPE + 4 * which, t[PACES + which]
        size = t[block + ROWS] * t[block + COLUMNS]
        pitch = size * t[STEPS] if pace else size
        factor = 0.5 if block in (TRANSITION_COV_SLOPE, OBSERVATION_COV_SLOPE) else 1.0
        if varying == (pace > 0):
            unpack(numbers, lanes, t, block, files.out, begin + step * pace, pitch, first, factor)
        if varying and pace > 0:
            combine(c, t, block, ZERO, 0.0, ZERO)
        begin += t[BATCH] * pitch
    return begin


# ---------------------------------------------------------------- kernels

#: m * m of all models and steps from which a second core is worth waking: 20 us of the smallest.
GRAIN = 2**14


@functools.cache
def address_of(function: Any, dtype: str, lanes: int) -> int:
    """Address of `multiply`, `forward` or `backward`, compiled for cells of so many lanes.

    They call one another, and drivers call them, as C does: so each is compiled once, and only if
    it is needed.
    """
    number, pointer = getattr(types, dtype), types.CPointer
    cells, table, numbers = pointer(number), pointer(types.int64), pointer(number)
    if lanes > 1:
        cells = pointer(Vector(number, lanes))
    if function is multiply:
        kinds = (cells, table, *[types.int64] * 5)
    else:
        files = numbers, numbers, table, numbers, numbers
        kinds = (cells, numbers, table, types.int64, types.float64, *files)
    return c_function(function, kinds)


@functools.cache
def drivers() -> Kernels:
    """Loops over blocks of models: `(functions, table, size, lanes, blocks, tolerance, files)`.

    `functions` are the addresses of `forward` and, or 0, `backward`, `table` that of the table,
    `size` the bytes of the cells of a block, `files` the addresses of those. One such loop serves
    all kernels, and links none of their code.
    """
    return Kernels(_make_driver(False), _make_driver(True), GRAIN)


def _make_driver(parallel: bool) -> Any:
    line = VECTOR_BYTES

    @kernel(parallel=parallel)
    def run_blocks(functions, table, size, lanes, blocks, tolerance, files):
        for block in prange(blocks):
            memory = np.zeros(size + 8 * END + line, np.uint8)
            cells = (memory.ctypes.data + line - 1) & -line
            t, source = pointer_to(cells + size, np.int64(0)), pointer_to(table, np.int64(0))
            for i in range(END):
                t[i] = source[i]
            arguments = (cells, cells, cells + size, block * lanes, tolerance)
            call_at(functions[0], arguments + files)
            if functions[1] != 0:
                call_at(functions[1], arguments + files)
            memory[0] = 0  # keeps it alive until now: an address does not

    return run_blocks
