"""Kernels of the Kalman filter: filter, gradient and smoother of many models."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.compile import inline, kernel
from rlcpu.kernels.simd import address
from rlcpu.scan.kalman.adjoint import make_retreat, make_smooth
from rlcpu.scan.kalman.blocks import make_algebra, outline, peek, place
from rlcpu.scan.kalman.moves import make_moves
from rlcpu.scan.kalman.passes import make_chunk, make_forward
from rlcpu.scan.kalman.plan import (
    BATCH,
    CHUNK,
    CHUNKS,
    COV_SLOPE,
    DESIGN_SLOPE,
    END,
    FILTERED,
    FLAGS,
    HEAD,
    IN_DESIGN,
    IN_OBSERVATION_COV,
    IN_TRANSITION,
    IN_TRANSITION_COV,
    INNOVATION,
    MEAN,
    MEAN_SLOPE,
    OBSERVATION,
    OBSERVATION_COV_SLOPE,
    ONE,
    OTHER,
    PACE,
    PACES,
    RECORD,
    RECORDS,
    RESULT,
    STARTS,
    STATE,
    STEPS,
    TRANSITION_COV_SLOPE,
    TRANSITION_SLOPE,
    VARIES,
    Layout,
)
from rlcpu.scan.kalman.vectors import read, stay_outside


@functools.cache
def _make_workspace(layout: Layout) -> Any:
    """Zeros for a table's workspace that begin at a register's boundary."""
    width, kind = make_algebra(layout).width, np.dtype(layout.dtype).type

    @inline
    def workspace(size):  # type: ignore[no-untyped-def]
        memory = np.zeros(size + width, kind)
        skipped = -memory.ctypes.data % (width * memory.itemsize) // memory.itemsize
        return memory[skipped : skipped + size]

    return workspace


def _make_kernel(layout: Layout, run: Any, parallel: bool) -> Any:
    """Kernel: `run(cells, at, inputs, first, out, size)` for all models, and log-likelihoods."""
    element, workspace = make_algebra(layout).element, _make_workspace(layout)

    @kernel(parallel=parallel)
    def run_models(table, observations, matrices, places, out, logliks):  # type: ignore[no-untyped-def]
        for block in prange((logliks.size + element - 1) // element):
            first, w = block * element, workspace(table[END])
            inputs = address(observations), address(matrices), address(places)
            run(address(w), address(table), inputs, first, address(out), out.size)
            # Reading the workspace here keeps it alive until now: a pointer does not.
            for lane in range(min(element, logliks.size - first)):
                logliks[first + lane] = w[table[HEAD + 2 * RESULT] + lane]

    return run_models


@functools.cache
def make_filter(layout: Layout, parallel: bool) -> Any:
    """Kernel: log-likelihoods (batch,) and, unless `out` is empty, the states of all steps.

    `out` is flat: means before and after the observations, (batch, steps, m) each, then
    covariances (batch, steps, m, m).
    """
    forward = make_forward(layout)

    @inline
    def run(cells, at, inputs, first, out, size):  # type: ignore[no-untyped-def]
        forward(cells, at, inputs, first, out, size > 0)

    return _make_kernel(layout, run, parallel)


def _make_backward(layout: Layout, step: Any, finish: Any) -> Any:
    """Forward over all chunks, then backward step by step into `out`, flat."""
    algebra, moves = make_algebra(layout), make_moves(layout)
    forward, pass_chunk = make_forward(layout), make_chunk(layout)

    @outline
    def run(cells, at, inputs, first, out, size):  # type: ignore[no-untyped-def]
        stay_outside()
        forward(cells, at, inputs, first, out, False)
        chunk, record = peek(at, CHUNK), peek(at, RECORD)
        for c in range(peek(at, CHUNKS) - 1, -1, -1):
            begin, start = c * chunk, peek(at, STARTS) + c * peek(at, PACE)
            count = min(chunk, peek(at, STEPS) - begin)
            algebra.copy(cells, place(at, MEAN), start, peek(at, PACE))
            gaps = moves.observe(cells, at, inputs, first, begin, count)
            steady = read(cells, peek(at, FLAGS) + c) > 0.0
            pass_chunk(cells, at, inputs, first, begin, gaps, steady, out, False)
            for k in range(count - 1, -1, -1):
                algebra.copy(cells, place(at, FILTERED), peek(at, RECORDS) + k * record, record)
                if peek(at, VARIES):
                    moves.load_models(cells, at, inputs, first, begin + k, False)
                step(cells, at, first, begin + k, out)
        finish(cells, at, first, out)

    return run


@functools.cache
def make_smoother(layout: Layout, parallel: bool) -> Any:
    """Kernel: log-likelihoods (batch,), smoothed means and covariances in `out`, flat.

    Means (batch, steps, m), then covariances (batch, steps, m, m).
    """
    smooth, unpack = make_smooth(layout), make_moves(layout).unpack

    @inline
    def step(cells, at, first, t, out):  # type: ignore[no-untyped-def]
        m, rows = peek(at, STATE), peek(at, STEPS)
        smooth(cells, at)
        unpack(cells, at, FILTERED, ONE, m, out, first, t * m, rows * m)
        begin, size = peek(at, BATCH) * rows * m, m * m
        unpack(cells, at, OTHER, m, m, out, first, begin + t * size, rows * size)

    @inline
    def finish(cells, at, first, out):  # type: ignore[no-untyped-def]
        pass

    return _make_kernel(layout, _make_backward(layout, step, finish), parallel)


@functools.cache
def make_gradient(layout: Layout, parallel: bool) -> Any:
    """Kernel: log-likelihoods (batch,), and their gradients in `out`, flat.

    Observations, transition, transition_cov, design, observation_cov, initial mean and initial
    covariance follow one another, each (batch, ...), with a time axis where they vary.
    """
    algebra = make_algebra(layout)
    retreat, unpack = make_retreat(layout), make_moves(layout).unpack

    @inline
    def hand_out(cells, at, first, t, out, varying):  # type: ignore[no-untyped-def]
        m, p, rows = peek(at, STATE), peek(at, OBSERVATION), peek(at, STEPS)
        begin = peek(at, BATCH) * rows * p
        for which, block, height, breadth in (
            (IN_TRANSITION, TRANSITION_SLOPE, m, m),
            (IN_TRANSITION_COV, TRANSITION_COV_SLOPE, m, m),
            (IN_DESIGN, DESIGN_SLOPE, p, m),
            (IN_OBSERVATION_COV, OBSERVATION_COV_SLOPE, p, p),
        ):
            varies, size = peek(at, PACES + which) != 0, height * breadth
            pitch = size * rows if varies else size
            if varies == varying:
                unpack(cells, at, block, height, breadth, out, first, begin + t * size, pitch)
                algebra.scale(cells, at, block, height, 0)
            begin += peek(at, BATCH) * pitch
        return begin

    @outline
    def step(cells, at, first, t, out):  # type: ignore[no-untyped-def]
        stay_outside()
        p = peek(at, OBSERVATION)
        retreat(cells, at)
        unpack(cells, at, INNOVATION, ONE, p, out, first, t * p, peek(at, STEPS) * p)
        if peek(at, VARIES):
            hand_out(cells, at, first, t, out, True)

    @outline
    def finish(cells, at, first, out):  # type: ignore[no-untyped-def]
        stay_outside()
        m = peek(at, STATE)
        begin = hand_out(cells, at, first, 0, out, False)
        unpack(cells, at, MEAN_SLOPE, ONE, m, out, first, begin, m)
        begin += peek(at, BATCH) * m
        algebra.scale(cells, at, COV_SLOPE, m, 0.5)
        unpack(cells, at, COV_SLOPE, m, m, out, first, begin, m * m)

    return _make_kernel(layout, _make_backward(layout, step, finish), parallel)
