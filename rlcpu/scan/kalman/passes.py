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

from rlcpu.kernels.compile import c_function, compact, kernel
from rlcpu.kernels.memory import call_at, pointer_to
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import VECTOR_BYTES, Vector
from rlcpu.scan.kalman import workspace as ws
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
    copy_cells,
    inlined,
    invert,
    lanes_of,
    multiply,
    recur,
)
from rlcpu.scan.kalman.workspace import Files, go_to, observe, pack, read_matrices, unpack

SETTLED = 2.0  # units of the dtype's epsilon, of correlations
SAFE = 1e15  # the product of two numbers between 1 / SAFE and SAFE never overflows, nor its square

# ---------------------------------------------------------------- a step forward


@called
def update(c, t, gaps):
    """From a and P to mean and covariance after the current step's observation."""
    compact()
    add(c, t, ws.PROJECTED, ws.ZERO, ws.DESIGN, ws.COV)
    add_row(c, t, ws.ERROR, ws.OBSERVED, ws.MEAN, ws.TURNED_DESIGN)
    add(c, t, ws.PRECISION, ws.OBSERVATION_COV, ws.PROJECTED, ws.TURNED_DESIGN)
    if gaps:
        hide(c, t)
    invert(c, t, ws.PRECISION, ws.PIVOTS)
    if gaps:
        show(c, t)
    add(c, t, ws.GAIN, ws.ZERO, ~ws.PROJECTED, ws.PRECISION)
    add_row(c, t, ws.WEIGHTED, ws.ZERO, ws.ERROR, ws.PRECISION)
    add_row(c, t, ws.FILTERED, ws.MEAN, ws.WEIGHTED, ws.PROJECTED)
    if t[ws.JOSEPH]:
        update_joseph(c, t)
    else:
        add_symmetric(c, t, ws.FILTERED_COV, ws.COV, ws.GAIN, ws.PROJECTED)


@called
def hide(c, t):
    """Take missing observations out: no error, unit variance, uncorrelated."""
    compact()
    for i in range(t[ws.OBSERVATION]):
        gone = c[t[ws.HIDDEN] + i]
        seen = 1.0 - gone
        c[t[ws.ERROR] + i] = c[t[ws.ERROR] + i] * seen
        row = t[ws.PRECISION] + i * t[ws.PRECISION + DOWN]
        for j in range(t[ws.OBSERVATION]):
            down = t[ws.PRECISION] + j * t[ws.PRECISION + DOWN] + i
            c[row + j] = c[row + j] * seen
            c[down] = c[down] * seen
        c[row + i] = c[row + i] + gone


@called
def show(c, t):
    """Take the unit variances out again: the precision of what is missing is 0."""
    compact()
    for i in range(t[ws.OBSERVATION]):
        at = t[ws.PRECISION] + i * (t[ws.PRECISION + DOWN] + 1)
        c[at] = c[at] + c[t[ws.HIDDEN] + i]


@called
def update_joseph(c, t):
    """Covariance after the update in Joseph's form."""
    compact()
    combine(c, t, ws.FEW, ~ws.GAIN, 0.0, ws.ZERO)
    add(c, t, ws.SQUARE, ws.ZERO, ~ws.DESIGN, ws.FEW)
    add_to_diagonal(c, t, ws.SQUARE, 1.0)
    add(c, t, ws.OTHER, ws.ZERO, ws.COV, ws.SQUARE)
    add_symmetric(c, t, ws.FILTERED_COV, ws.ZERO, ~ws.SQUARE, ws.OTHER)
    add(c, t, ws.ALSO_FEW, ws.ZERO, ws.OBSERVATION_COV, ws.FEW)
    add_symmetric(c, t, ws.FILTERED_COV, ws.FILTERED_COV, ws.GAIN, ws.ALSO_FEW)


@called
def predict(c, t):
    """The next step's a and P."""
    compact()
    add_row(c, t, ws.NEXT_MEAN, ws.ZERO, ws.FILTERED, ws.TURNED_TRANSITION)
    add(c, t, ws.SQUARE, ws.ZERO, ws.FILTERED_COV, ws.TURNED_TRANSITION)
    add_symmetric(c, t, ws.COV, ws.TRANSITION_COV, ws.TRANSITION, ws.SQUARE)


@called
def freeze(c, t):
    """What `glide` needs beside the `update` of a step: (F K)' in `FEW`, and (F + F K H)'."""
    compact()
    add(c, t, ws.FEW, ws.ZERO, ~ws.GAIN, ws.TURNED_TRANSITION)
    add(c, t, ws.CLOSED, ws.TURNED_TRANSITION, ~ws.DESIGN, ws.FEW)


@called
def glide(c, t, filtered):
    """All steps of a chunk in which P stands still; with the filtered means, or without.

    The next mean is a (F + F K H)' - y (F K)', not by way of the error: so it waits 16 cycles for
    this one instead of 60.
    """
    compact()
    add(c, t, ws.NEXT_MEANS, ws.ZERO, ws.ALL_OBSERVED, ws.FEW)
    recur(c, t, ws.MEANS, ws.CLOSED)
    add(c, t, ws.ERRORS, ws.ALL_OBSERVED, ws.MEANS, ws.TURNED_DESIGN)
    add(c, t, ws.ALL_WEIGHTED, ws.ZERO, ws.ERRORS, ws.PRECISION)
    if filtered:
        add(c, t, ws.FILTERED_MEANS, ws.MEANS, ws.ALL_WEIGHTED, ws.PROJECTED)


# ---------------------------------------------------------------- a step backward


@called
def retreat_mean(c, t, gradient):
    """The current step backward: r, x, s, and what they add to the gradients."""
    compact()
    add_row(c, t, ws.LINE, ws.ZERO, ws.SCORE, ws.TRANSITION)
    add_row(c, t, ws.SMOOTHED, ws.FILTERED, ws.LINE, ws.FILTERED_COV)
    add_row(c, t, ws.TILT, ws.WEIGHTED, ws.LINE, ws.GAIN)
    if gradient:
        add(c, t, ws.TRANSITION_SLOPE, ws.TRANSITION_SLOPE, ~ws.SCORE, ws.SMOOTHED)
        add(c, t, ws.TRANSITION_COV_SLOPE, ws.TRANSITION_COV_SLOPE, ~ws.SCORE, ws.SCORE)
        add(c, t, ws.DESIGN_SLOPE, ws.DESIGN_SLOPE, ~ws.TILT, ws.SMOOTHED)
        add(c, t, ws.OBSERVATION_COV_SLOPE, ws.OBSERVATION_COV_SLOPE, ~ws.TILT, ws.TILT)
    add_row(c, t, ws.SCORE, ws.LINE, ws.TILT, ws.DESIGN)


@called
def retreat_cov(c, t, gradient, times):
    """The same for N, `times` as much for the gradients; smoothed covariance in `OTHER`."""
    compact()
    add(c, t, ws.SQUARE, ws.ZERO, ws.ADJOINT, ws.TRANSITION)
    if gradient:
        add(c, t, ws.OTHER, ws.ZERO, ws.SQUARE, ws.FILTERED_COV)
        combine(c, t, ws.TRANSITION_SLOPE, ws.TRANSITION_SLOPE, times, ws.OTHER)
        combine(c, t, ws.TRANSITION_COV_SLOPE, ws.TRANSITION_COV_SLOPE, times, ws.ADJOINT)
    add_symmetric(c, t, ws.ADJOINT, ws.ZERO, ~ws.TRANSITION, ws.SQUARE)
    if not gradient:
        add(c, t, ws.SQUARE, ws.ZERO, ws.ADJOINT, ws.FILTERED_COV)
        add_symmetric(c, t, ws.OTHER, ws.FILTERED_COV, ws.FILTERED_COV, ws.SQUARE)
    add(c, t, ws.FEW, ws.ZERO, ~ws.GAIN, ws.ADJOINT)
    add(c, t, ws.SMALL, ws.PRECISION, ws.FEW, ws.GAIN)
    if gradient:
        combine(c, t, ws.ALSO_FEW, ~ws.GAIN, 0.0, ws.ZERO)
        add(c, t, ws.ALSO_FEW, ws.ALSO_FEW, ws.FEW, ws.FILTERED_COV)
        combine(c, t, ws.DESIGN_SLOPE, ws.DESIGN_SLOPE, times, ws.ALSO_FEW)
        combine(c, t, ws.OBSERVATION_COV_SLOPE, ws.OBSERVATION_COV_SLOPE, times, ws.SMALL)
    add(c, t, ws.ADJOINT, ws.ADJOINT, ~ws.DESIGN, ws.FEW)
    add(c, t, ws.FEW, ws.FEW, ws.SMALL, ws.DESIGN)
    add_symmetric(c, t, ws.ADJOINT, ws.ADJOINT, ~ws.FEW, ws.DESIGN)


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
    p = t[ws.OBSERVATION]
    add(c, t, ws.SMALL, ws.ZERO, ~ws.ERRORS, ws.ALL_WEIGHTED)
    total = c[t[ws.SMALL]]
    for i in range(1, p):
        total = c[t[ws.SMALL] + i * (t[ws.SMALL + DOWN] + 1)] + total
    c[t[ws.SQUARES]] = total
    for lane in range(lanes):
        product, volume, missing = 1.0, 0.0, 0.0
        for k in range(1 if still else count):
            for i in range(p):
                at = k * t[ws.PIVOTS + DOWN] + i
                pivot = numbers[(t[ws.PIVOTS] + at) * lanes + lane]
                product, volume = grow(product, volume, pivot)
                if gaps:
                    missing += numbers[(t[ws.HIDDEN] + at) * lanes + lane]
        volume = (volume + math.log(product)) * (count if still else 1)
        volume += math.log(2.0 * math.pi) * (count * p - missing)
        at = t[ws.LOGLIK] * lanes + lane
        numbers[at] += 0.5 * (numbers[t[ws.SQUARES] * lanes + lane] - volume)


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
    for block in range(ws.MEANS, ws.END, 4):
        t[block + ROWS] = count
    for k in range(1 if still else count):
        go_to(t, k, recorded)
        if t[ws.VARIES]:
            read_matrices(c, numbers, lanes, t, files, first, begin + k)
        if not frozen:
            update(c, t, gaps)
        if t[ws.KIND] == ws.STATES:
            write_covs(numbers, lanes, t, files, first, begin + k, count if still else 1)
        if not still:
            predict(c, t)
    if still:
        if not frozen:
            freeze(c, t)
        glide(c, t, recorded or t[ws.KIND] == ws.STATES)
    if t[ws.KIND] == ws.STATES:
        m = t[ws.STATE]
        pitch = t[ws.STEPS] * m
        unpack(numbers, lanes, t, ws.MEANS, files.out, begin * m, pitch, first, 1.0)
        at = t[ws.BATCH] * pitch + begin * m
        unpack(numbers, lanes, t, ws.FILTERED_MEANS, files.out, at, pitch, first, 1.0)


@called
def write_covs(numbers, lanes, t, files, first, step, count):
    """Covariances before and after an update, of a time step and those that have the same."""
    compact()
    size = t[ws.STATE] * t[ws.STATE]
    pitch = t[ws.STEPS] * size
    for s in range(step, step + count):
        at = 2 * t[ws.BATCH] * t[ws.STEPS] * t[ws.STATE] + s * size
        unpack(numbers, lanes, t, ws.COV, files.out, at, pitch, first, 1.0)
        at += t[ws.BATCH] * pitch
        unpack(numbers, lanes, t, ws.FILTERED_COV, files.out, at, pitch, first, 1.0)


def forward(c, numbers, t, first, tolerance, observations, matrices, places, out, logliks):
    """Through all chunks; notes where each began and whether P stood still in it.

    The models are those from `first` on, as many as there are lanes. The cells are zero before.
    """
    compact()
    files, lanes = Files(observations, matrices, places, out, logliks), lanes_of(c)
    read_matrices(c, numbers, lanes, t, files, first, 0)
    pack(numbers, lanes, t, ws.MEAN, files, 5, first, 0)
    pack(numbers, lanes, t, ws.COV, files, 6, first, 0)
    still, settled, size = False, False, t[ws.COV + ROWS] * t[ws.COV + DOWN]
    for begin in range(0, t[ws.STEPS], t[ws.CHUNK]):
        count = min(t[ws.CHUNK], t[ws.STEPS] - begin)
        gaps = observe(numbers, lanes, t, files, first, begin, count)
        before, still = still, settled and not gaps
        start = t[ws.STARTS]
        if t[ws.KIND] >= ws.SMOOTH:
            start += begin // t[ws.CHUNK] * t[ws.START]
        copy_cells(c, start, t[ws.COV], size)
        copy_cells(c, start + size, t[ws.MEAN], t[ws.MEAN + DOWN])
        numbers[(start + t[ws.START] - 1) * lanes] = 1.0 if still else 0.0
        frozen = before and still
        pass_chunk(c, numbers, lanes, t, files, first, begin, count, still, frozen, gaps, False)
        weigh(c, numbers, lanes, t, count, still, gaps)
        copy_cells(c, t[ws.MEAN], t[ws.MEAN] + count * t[ws.MEAN + DOWN], t[ws.MEAN + DOWN])
        settled = still
        if not (still or gaps or t[ws.VARIES]):
            settled = is_settled(numbers, lanes, t, ws.COV, start, tolerance)
    for lane in range(min(lanes, t[ws.BATCH] - first)):
        files.logliks[first + lane] = numbers[t[ws.LOGLIK] * lanes + lane]


def backward(c, numbers, t, first, tolerance, observations, matrices, places, out, logliks):
    """Through all chunks in reverse, each forward again first; after `forward` of these models."""
    compact()
    files, lanes = Files(observations, matrices, places, out, logliks), lanes_of(c)
    gradient, settled, size = t[ws.KIND] == ws.GRADIENT, False, t[ws.COV + ROWS] * t[ws.COV + DOWN]
    for number in range((t[ws.STEPS] - 1) // t[ws.CHUNK], -1, -1):
        begin = number * t[ws.CHUNK]
        count = min(t[ws.CHUNK], t[ws.STEPS] - begin)
        start = t[ws.STARTS] + number * t[ws.START]
        gaps = observe(numbers, lanes, t, files, first, begin, count)
        copy_cells(c, t[ws.COV], start, size)
        copy_cells(c, t[ws.MEAN], start + size, t[ws.MEAN + DOWN])
        still = numbers[(start + t[ws.START] - 1) * lanes] != 0.0
        settled = settled and still
        pass_chunk(c, numbers, lanes, t, files, first, begin, count, still, False, gaps, True)
        copy_cells(c, t[ws.ADJOINT_BEFORE], t[ws.ADJOINT], size)
        for k in range(count - 1, -1, -1):
            go_to(t, k, not still)
            if t[ws.VARIES]:
                read_matrices(c, numbers, lanes, t, files, first, begin + k)
            retreat_mean(c, t, gradient)
            if not settled or k == count - 1:
                retreat_cov(c, t, gradient, float(count if settled else 1))
            write_step(c, numbers, lanes, t, files, first, begin + k)
        if still and not settled:
            settled = is_settled(numbers, lanes, t, ws.ADJOINT, t[ws.ADJOINT_BEFORE], tolerance)
    if gradient:
        m = t[ws.STATE]
        at = write_slopes(c, numbers, lanes, t, files, first, 0, False)
        unpack(numbers, lanes, t, ws.SCORE, files.out, at, m, first, 1.0)
        add(c, t, ws.ADJOINT, ws.ADJOINT, ~ws.SCORE, ws.SCORE)
        at += t[ws.BATCH] * m
        unpack(numbers, lanes, t, ws.ADJOINT, files.out, at, m * m, first, 0.5)


@called
def write_step(c, numbers, lanes, t, files, first, step):
    """What the backward pass finds out about a time step."""
    compact()
    m, p = t[ws.STATE], t[ws.OBSERVATION]
    if t[ws.KIND] == ws.GRADIENT:
        unpack(numbers, lanes, t, ws.TILT, files.out, step * p, t[ws.STEPS] * p, first, -1.0)
        if t[ws.VARIES]:
            write_slopes(c, numbers, lanes, t, files, first, step, True)
    else:
        pitch = t[ws.STEPS] * m
        unpack(numbers, lanes, t, ws.SMOOTHED, files.out, step * m, pitch, first, 1.0)
        at = t[ws.BATCH] * pitch + step * m * m
        unpack(numbers, lanes, t, ws.OTHER, files.out, at, pitch * m, first, 1.0)


@called
def write_slopes(c, numbers, lanes, t, files, first, step, varying):
    """Slopes of the matrices that vary, or of those that do not; where the next ones begin.

    Those of the observations, of F, Q, H and R and of the initial mean and covariance follow one
    another, each (batch, ...), with a time axis where they vary.
    """
    compact()
    begin = t[ws.BATCH] * t[ws.STEPS] * t[ws.OBSERVATION]
    for which in range(4):
        block, pace = ws.TRANSITION_SLOPE + 4 * which, t[ws.PACES + which]
        size = t[block + ROWS] * t[block + COLUMNS]
        pitch = size * t[ws.STEPS] if pace else size
        factor = 0.5 if block in (ws.TRANSITION_COV_SLOPE, ws.OBSERVATION_COV_SLOPE) else 1.0
        if varying == (pace > 0):
            unpack(numbers, lanes, t, block, files.out, begin + step * pace, pitch, first, factor)
        if varying and pace > 0:
            combine(c, t, block, ws.ZERO, 0.0, ws.ZERO)
        begin += t[ws.BATCH] * pitch
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
    line = VECTOR_BYTES

    def make(parallel: bool) -> Any:
        @kernel(parallel=parallel)
        def run_blocks(functions, table, size, lanes, blocks, tolerance, files):
            for block in prange(blocks):
                memory = np.zeros(size + 8 * ws.END + line, np.uint8)
                cells = (memory.ctypes.data + line - 1) & -line
                t, source = pointer_to(cells + size, np.int64(0)), pointer_to(table, np.int64(0))
                for i in range(ws.END):
                    t[i] = source[i]
                arguments = (cells, cells, cells + size, block * lanes, tolerance)
                call_at(functions[0], arguments + files)
                if functions[1] != 0:
                    call_at(functions[1], arguments + files)
                memory[0] = 0  # keeps it alive until now: an address does not

        return run_blocks

    return Kernels(make(False), make(True), GRAIN)
