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

The signs are such that everything is a sum. For the matrices and products see `workspace`.

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

from rlcpu.kernels.compile import c_function, compact
from rlcpu.kernels.memory import call_at, pointer_to
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import VECTOR_BYTES, Vector
from rlcpu.scan.device import for_cores
from rlcpu.scan.kalman import workspace as ws
from rlcpu.scan.kalman.workspace import (
    AT,
    DOWN,
    ROWS,
    Files,
    Workspace,
    add,
    add_row,
    add_symmetric,
    add_to_diagonal,
    called,
    cell_of,
    combine,
    copy,
    go_to,
    inlined,
    invert_precision,
    observe,
    read,
    read_matrices,
    recur,
    write,
)

SETTLED = 2.0  # units of the dtype's epsilon, of correlations
SAFE = 1e15  # the product of two numbers between 1 / SAFE and SAFE never overflows, nor its square

# ---------------------------------------------------------------- a step forward


@called
def update(w):
    """From a and P to mean and covariance after the current step's observation."""
    add(w, ws.PROJECTED, ws.ZERO, ws.DESIGN, ws.COV)
    add_row(w, ws.ERROR, ws.OBSERVED, ws.MEAN, ws.TURNED_DESIGN)
    add(w, ws.PRECISION, ws.OBSERVATION_COV, ws.PROJECTED, ws.TURNED_DESIGN)
    invert_precision(w)
    add(w, ws.GAIN, ws.ZERO, ~ws.PROJECTED, ws.PRECISION)
    add_row(w, ws.WEIGHTED, ws.ZERO, ws.ERROR, ws.PRECISION)
    add_row(w, ws.FILTERED, ws.MEAN, ws.WEIGHTED, ws.PROJECTED)
    if w.table[ws.JOSEPH]:
        combine(w, ws.FEW, ~ws.GAIN, 0.0, ws.ZERO)
        add(w, ws.SQUARE, ws.ZERO, ~ws.DESIGN, ws.FEW)
        add_to_diagonal(w, ws.SQUARE, 1.0)
        add(w, ws.OTHER, ws.ZERO, ws.COV, ws.SQUARE)
        add_symmetric(w, ws.FILTERED_COV, ws.ZERO, ~ws.SQUARE, ws.OTHER)
        add(w, ws.ALSO_FEW, ws.ZERO, ws.OBSERVATION_COV, ws.FEW)
        add_symmetric(w, ws.FILTERED_COV, ws.FILTERED_COV, ws.GAIN, ws.ALSO_FEW)
    else:
        add_symmetric(w, ws.FILTERED_COV, ws.COV, ws.GAIN, ws.PROJECTED)


@called
def predict(w):
    """The next step's a and P."""
    add_row(w, ws.NEXT_MEAN, ws.ZERO, ws.FILTERED, ws.TURNED_TRANSITION)
    add(w, ws.SQUARE, ws.ZERO, ws.FILTERED_COV, ws.TURNED_TRANSITION)
    add_symmetric(w, ws.COV, ws.TRANSITION_COV, ws.TRANSITION, ws.SQUARE)


@called
def freeze(w):
    """What `glide` needs beside the `update` of a step: (F K)' in `FEW`, and (F + F K H)'."""
    add(w, ws.FEW, ws.ZERO, ~ws.GAIN, ws.TURNED_TRANSITION)
    add(w, ws.CLOSED, ws.TURNED_TRANSITION, ~ws.DESIGN, ws.FEW)


@called
def glide(w, filtered):
    """All steps of a chunk in which P stands still; with the filtered means, or without.

    The next mean is a (F + F K H)' - y (F K)', not by way of the error: so it waits 16 cycles for
    this one instead of 60.
    """
    add(w, ws.NEXT_MEAN, ws.ZERO, ws.OBSERVED, ws.FEW)
    recur(w, ws.MEAN, ws.CLOSED)
    add(w, ws.ERROR, ws.OBSERVED, ws.MEAN, ws.TURNED_DESIGN)
    add(w, ws.WEIGHTED, ws.ZERO, ws.ERROR, ws.PRECISION)
    if filtered:
        add(w, ws.FILTERED, ws.MEAN, ws.WEIGHTED, ws.PROJECTED)


# ---------------------------------------------------------------- a step backward


@called
def retreat_mean(w, gradient):
    """The current step backward: r, x, s, and what they add to the gradients."""
    add_row(w, ws.LINE, ws.ZERO, ws.SCORE, ws.TRANSITION)
    add_row(w, ws.SMOOTHED, ws.FILTERED, ws.LINE, ws.FILTERED_COV)
    add_row(w, ws.TILT, ws.WEIGHTED, ws.LINE, ws.GAIN)
    if gradient:
        add(w, ws.TRANSITION_SLOPE, ws.TRANSITION_SLOPE, ~ws.SCORE, ws.SMOOTHED)
        add(w, ws.TRANSITION_COV_SLOPE, ws.TRANSITION_COV_SLOPE, ~ws.SCORE, ws.SCORE)
        add(w, ws.DESIGN_SLOPE, ws.DESIGN_SLOPE, ~ws.TILT, ws.SMOOTHED)
        add(w, ws.OBSERVATION_COV_SLOPE, ws.OBSERVATION_COV_SLOPE, ~ws.TILT, ws.TILT)
    add_row(w, ws.SCORE, ws.LINE, ws.TILT, ws.DESIGN)


@called
def retreat_cov(w, gradient, times):
    """The same for N, `times` as much for the gradients; smoothed covariance in `OTHER`."""
    add(w, ws.SQUARE, ws.ZERO, ws.ADJOINT, ws.TRANSITION)
    if gradient:
        add(w, ws.OTHER, ws.ZERO, ws.SQUARE, ws.FILTERED_COV)
        combine(w, ws.TRANSITION_SLOPE, ws.TRANSITION_SLOPE, times, ws.OTHER)
        combine(w, ws.TRANSITION_COV_SLOPE, ws.TRANSITION_COV_SLOPE, times, ws.ADJOINT)
    add_symmetric(w, ws.ADJOINT, ws.ZERO, ~ws.TRANSITION, ws.SQUARE)
    if not gradient:
        add(w, ws.SQUARE, ws.ZERO, ws.ADJOINT, ws.FILTERED_COV)
        add_symmetric(w, ws.OTHER, ws.FILTERED_COV, ws.FILTERED_COV, ws.SQUARE)
    add(w, ws.FEW, ws.ZERO, ~ws.GAIN, ws.ADJOINT)
    add(w, ws.SMALL, ws.PRECISION, ws.FEW, ws.GAIN)
    if gradient:
        combine(w, ws.ALSO_FEW, ~ws.GAIN, 0.0, ws.ZERO)
        add(w, ws.ALSO_FEW, ws.ALSO_FEW, ws.FEW, ws.FILTERED_COV)
        combine(w, ws.DESIGN_SLOPE, ws.DESIGN_SLOPE, times, ws.ALSO_FEW)
        combine(w, ws.OBSERVATION_COV_SLOPE, ws.OBSERVATION_COV_SLOPE, times, ws.SMALL)
    add(w, ws.ADJOINT, ws.ADJOINT, ~ws.DESIGN, ws.FEW)
    add(w, ws.FEW, ws.FEW, ws.SMALL, ws.DESIGN)
    add_symmetric(w, ws.ADJOINT, ws.ADJOINT, ~ws.FEW, ws.DESIGN)


# ---------------------------------------------------------------- chunks


@inlined
def grow(product, volume, pivot):
    """Product of pivots, and sum of logarithms of what would take it out of range."""
    grown = product * pivot
    if 1.0 / SAFE < grown < SAFE:
        return grown, volume
    logarithm = math.log(pivot) if pivot < math.inf else math.nan
    return 1.0, volume + math.log(product) + logarithm


@called
def weigh(w, count, still):
    """Add the log-likelihood of a chunk."""
    compact()
    go_to(w, 0, False)
    t, r, numbers, lanes = w.table, w.registers, w.numbers, w.table[ws.LANES]
    error, weighted = t[ws.ERROR + AT], t[ws.WEIGHTED + AT]
    total = r[error] * r[weighted]
    for i in range(1, count * t[ws.ERROR + DOWN]):
        total = r[error + i] * r[weighted + i] + total
    r[t[ws.SQUARES + AT]] = total
    for lane in range(lanes):
        product, volume, squares = 1.0, 0.0, 0.0
        for i in range(t[ws.WIDTH]):
            squares += numbers[(cell_of(w, ws.SQUARES, 0) + i) * lanes + lane]
        for k in range(1 if still else count):
            for i in range(t[ws.OBSERVATION]):
                pivot = numbers[(cell_of(w, ws.PIVOTS, k) + i) * lanes + lane]
                product, volume = grow(product, volume, pivot)
        volume = (volume + math.log(product)) * (count if still else 1)
        numbers[cell_of(w, ws.LOGLIK, 0) * lanes + lane] += 0.5 * (squares - volume)


@called
def is_settled(w, block, before, tolerance):
    """Whether a covariance stands still, in proportion to the standard deviations.

    `before` is the register where it began a chunk ago.
    """
    compact()
    lanes, numbers, settled = w.table[ws.LANES], w.numbers, True
    back = before * w.table[ws.WIDTH] - cell_of(w, block, 0)
    for i in range(w.table[block + ROWS]):
        for j in range(i + 1):
            for lane in range(lanes):
                at = (cell_of(w, block, i) + j) * lanes + lane
                change = numbers[at] - numbers[at + back * lanes]
                scale = numbers[(cell_of(w, block, i) + i) * lanes + lane]
                scale *= numbers[(cell_of(w, block, j) + j) * lanes + lane]
                settled &= change * change <= tolerance * scale
    return settled


@called
def pass_chunk(w, files, begin, count, still, frozen, recorded):
    """Forward through a chunk, from its first time step; P may stand still in it.

    It is `frozen` if it did so in the chunk before, whose gain is still there, and `recorded` if
    each step has matrices of its own, not all the same.
    """
    compact()
    t = w.table
    for block in range(ws.MEAN, ws.FILTERED_COV, 4):
        t[block + ROWS] = count
    for k in range(1 if still else count):
        go_to(w, k, recorded)
        if t[ws.VARIES]:
            read_matrices(w, files, begin + k)
        if not frozen:
            update(w)
        if t[ws.KIND] == ws.STATES:
            for step in range(begin + k, begin + (count if still else k + 1)):
                write(w, files, ws.COV, 1, step, 1.0)
                write(w, files, ws.FILTERED_COV, 3, step, 1.0)
        if not still:
            predict(w)
    if still:
        if not frozen:
            freeze(w)
        glide(w, recorded or t[ws.KIND] == ws.STATES)


def forward(
    cells, registers, numbers, table, tolerance, observations, matrices, places, out, logliks
):
    """Through all chunks; notes where each began and whether P stood still in it.

    The cells are zero before.
    """
    compact()
    w, files = (
        Workspace(cells, registers, numbers, table),
        Files(observations, matrices, places, out, logliks),
    )
    t, lanes = table, table[ws.LANES]
    read_matrices(w, files, 0)
    read(w, files, ws.MEAN, 5, 0)
    read(w, files, ws.COV, 6, 0)
    still, settled = False, False
    for begin in range(0, t[ws.STEPS], t[ws.CHUNK]):
        count = min(t[ws.CHUNK], t[ws.STEPS] - begin)
        observe(w, files, begin, count)
        before, still = still, settled and not t[ws.GAPS]
        start = start_of(w, begin)
        copy(w, start, t[ws.COV + AT], t[ws.STATE] * t[ws.COV + DOWN])
        copy(w, start + t[ws.STATE] * t[ws.COV + DOWN], t[ws.MEAN + AT], t[ws.MEAN + DOWN])
        numbers[(start + t[ws.START] - 1) * t[ws.WIDTH] * lanes] = 1.0 if still else 0.0
        pass_chunk(w, files, begin, count, still, before and still, False)
        weigh(w, count, still)
        if t[ws.KIND] == ws.STATES:
            write(w, files, ws.MEAN, 0, begin, 1.0)
            write(w, files, ws.FILTERED, 2, begin, 1.0)
        down = t[ws.MEAN + DOWN]
        copy(w, t[ws.MEAN + AT], t[ws.MEAN + AT] + count * down, down)
        settled = still
        if not (still or t[ws.GAPS] or t[ws.VARIES]):
            settled = is_settled(w, ws.COV, start, tolerance)
    for lane in range(min(lanes, t[ws.MODELS] - t[ws.FIRST])):
        files.logliks[t[ws.FIRST] + lane] = numbers[cell_of(w, ws.LOGLIK, 0) * lanes + lane]


@inlined
def start_of(w, begin):
    """Where the state at the beginning of a chunk is kept: of all chunks if they are needed."""
    t = w.table
    number = begin // t[ws.CHUNK] if t[ws.KIND] >= ws.SMOOTH else 0
    return t[ws.STARTS] + number * t[ws.START]


def backward(
    cells, registers, numbers, table, tolerance, observations, matrices, places, out, logliks
):
    """Through all chunks in reverse, each forward again first; after `forward` of these models."""
    compact()
    w, files = (
        Workspace(cells, registers, numbers, table),
        Files(observations, matrices, places, out, logliks),
    )
    t, size = table, table[ws.STATE] * table[ws.COV + DOWN]
    gradient, settled = t[ws.KIND] == ws.GRADIENT, False
    for begin in range((t[ws.STEPS] - 1) // t[ws.CHUNK] * t[ws.CHUNK], -1, -t[ws.CHUNK]):
        count = min(t[ws.CHUNK], t[ws.STEPS] - begin)
        start = start_of(w, begin)
        observe(w, files, begin, count)
        copy(w, t[ws.COV + AT], start, size)
        copy(w, t[ws.MEAN + AT], start + size, t[ws.MEAN + DOWN])
        still = numbers[(start + t[ws.START] - 1) * t[ws.WIDTH] * t[ws.LANES]] != 0.0
        settled = settled and still
        pass_chunk(w, files, begin, count, still, False, True)
        copy(w, t[ws.ADJOINT_BEFORE + AT], t[ws.ADJOINT + AT], size)
        for k in range(count - 1, -1, -1):
            go_to(w, k, not still)
            if t[ws.VARIES]:
                read_matrices(w, files, begin + k)
            retreat_mean(w, gradient)
            if not settled or k == count - 1:
                retreat_cov(w, gradient, float(count if settled else 1))
            if gradient:
                write(w, files, ws.TILT, 0, begin + k, -1.0)
                if t[ws.VARIES]:
                    write_slopes(w, files, begin + k, True)
            else:
                write(w, files, ws.SMOOTHED, 0, begin + k, 1.0)
                write(w, files, ws.OTHER, 1, begin + k, 1.0)
        if still and not settled:
            settled = is_settled(w, ws.ADJOINT, t[ws.ADJOINT_BEFORE + AT], tolerance)
    if gradient:
        write_slopes(w, files, 0, False)
        write(w, files, ws.SCORE, 5, 0, 1.0)
        add(w, ws.ADJOINT, ws.ADJOINT, ~ws.SCORE, ws.SCORE)
        write(w, files, ws.ADJOINT, 6, 0, 0.5)


@called
def write_slopes(w, files, step, varying):
    """Slopes of F, Q, H and R: of those that vary, which begin again at 0, or of the others."""
    compact()
    slopes = (
        (ws.TRANSITION_SLOPE, 1.0),
        (ws.TRANSITION_COV_SLOPE, 0.5),
        (ws.DESIGN_SLOPE, 1.0),
        (ws.OBSERVATION_COV_SLOPE, 0.5),
    )
    for i, (block, factor) in enumerate(slopes):
        if varying == (w.table[ws.PACES + i + 1] > 0):
            write(w, files, block, i + 1, step, factor)
            if varying:
                combine(w, block, ws.ZERO, 0.0, ws.ZERO)


# ---------------------------------------------------------------- kernels

#: m * m of all models and steps from which a second core is worth waking: 20 us of the smallest.
GRAIN = 2**14


@functools.cache
def address_of(function: Any, dtype: str, lanes: int) -> int:
    """Address of `forward` or `backward`, compiled for cells of so many lanes."""
    number, pointer = getattr(types, dtype), types.CPointer
    vector, numbers = pointer(Vector(number, VECTOR_BYTES * 8 // number.bitwidth)), pointer(number)
    cells, whole = vector if lanes > 1 else numbers, pointer(types.int64)
    files = numbers, numbers, whole, numbers, numbers
    return c_function(function, (cells, vector, numbers, whole, types.float64, *files))


@functools.cache
def drivers() -> Kernels:
    """Loops over blocks of models: `(functions, table, size, blocks, tolerance, files)`.

    `functions` are the addresses of `forward` and, or 0, `backward`, `table` that of the table,
    `size` the bytes of the workspace of a block, `files` the addresses of `Files`. One such loop
    serves all kernels, and links none of their code.
    """
    line = VECTOR_BYTES

    def run_blocks(functions, table, size, blocks, tolerance, files):
        for block in prange(blocks):
            memory = np.zeros(size + 8 * ws.END + line, np.uint8)
            cells = (memory.ctypes.data + line - 1) & -line
            t, source = pointer_to(cells + size, np.int64(0)), pointer_to(table, np.int64(0))
            for i in range(ws.END):
                t[i] = source[i]
            t[ws.FIRST] = block * t[ws.LANES]
            arguments = (cells, cells, cells, cells + size, tolerance)
            call_at(functions[0], arguments + files)
            if functions[1] != 0:
                call_at(functions[1], arguments + files)
            memory[0] = 0  # keeps it alive until now: an address does not

    return for_cores(run_blocks, GRAIN)
