"""One time step of the Kalman filter backward: of its gradient, and of the smoother.

All functions take `(cells, at)`, the workspace and its table, and work on its fixed blocks; for the
letters see `update`.
"""

from __future__ import annotations

import functools
from typing import Any

from rlcpu.kernels.compile import inline
from rlcpu.scan.kalman import vectors
from rlcpu.scan.kalman.blocks import make_algebra, peek, place, stride
from rlcpu.scan.kalman.plan import (
    COV_SLOPE,
    DESIGN,
    DESIGN_SLOPE,
    FEW,
    FILTERED,
    FILTERED_COV,
    GAIN,
    INNOVATION,
    LINE,
    MEAN_SLOPE,
    OBSERVATION,
    OBSERVATION_COV_SLOPE,
    ONE,
    OTHER,
    PRECISION,
    PROJECTED,
    SCORE,
    SMALL,
    SQUARE,
    STATE,
    TRANSITION,
    TRANSITION_COV_SLOPE,
    TRANSITION_SLOPE,
    TURNED,
    ZERO,
    Layout,
)
from rlcpu.scan.kalman.vectors import fma, fnma, halved


@functools.cache
def _make_absorb(layout: Layout) -> Any:
    """D + H'Z + Z'H with Z = `SMALL` H - Y + u e', and e - H' `INNOVATION`; Y is in `FEW`.

    The term u e' is there with `scored` only.
    """
    algebra = make_algebra(layout)
    add, width = algebra.add_product, algebra.width

    @inline
    def absorb(cells, at, scored):  # type: ignore[no-untyped-def]
        m, p = peek(at, STATE), peek(at, OBSERVATION)
        add(cells, at, PROJECTED, ZERO, SMALL, DESIGN, p, p)
        if scored:
            add(cells, at, PROJECTED, PROJECTED, ~SCORE, LINE, p, ONE)
        z, y = place(at, PROJECTED), place(at, FEW)
        for k in range(0, p * stride(at, FEW), width):
            rest = vectors.load(cells, z + k) - vectors.load(cells, y + k)
            vectors.store(cells, z + k, rest)
        add(cells, at, COV_SLOPE, COV_SLOPE, ~DESIGN, PROJECTED, m, p)
        add(cells, at, COV_SLOPE, COV_SLOPE, ~PROJECTED, DESIGN, m, p)
        algebra.symmetrise(cells, at, COV_SLOPE, m)
        algebra.subtract_product(cells, at, MEAN_SLOPE, LINE, INNOVATION, DESIGN, ONE, p)

    return absorb


@functools.cache
def make_retreat(layout: Layout) -> Any:
    """`retreat(cells, at)`: reverse mode through prediction, update and log-likelihood.

    Turns the adjoint of the next step's state into this one's, adds to the slopes of the matrices,
    and leaves that of the observation in `INNOVATION`.

    With D twice the gradient with respect to P[t + 1], which is symmetric, and e that with respect
    to a[t + 1]: after the prediction D = F'DF and e = F'e; then, with w = K'e and Y = K'D,

    * R: G = (Y K - w u' - u w' - M + u u') / 2; y: w - u;
    * H: -Y cov + u (cov e)' - (w - u) mean' - K';
    * P: D + H'Z + Z'H with Z = u e' - Y + G H; a: e - H'(w - u).
    """
    algebra = make_algebra(layout)
    get, put, dot = algebra.get, algebra.put, algebra.dot
    add, subtract, width = algebra.add_product, algebra.subtract_product, algebra.width
    absorb = _make_absorb(layout)

    @inline
    def add_half(cells, at, m):  # type: ignore[no-untyped-def]
        to, source = place(at, TRANSITION_COV_SLOPE), place(at, COV_SLOPE)
        for k in range(0, m * stride(at, COV_SLOPE), width):
            half = halved(vectors.load(cells, source + k))
            vectors.store(cells, to + k, vectors.load(cells, to + k) + half)

    @inline
    def predicted(cells, at, m):  # type: ignore[no-untyped-def]
        add_half(cells, at, m)
        add(cells, at, SQUARE, ZERO, TURNED, COV_SLOPE, m, m)
        add(cells, at, TRANSITION_SLOPE, TRANSITION_SLOPE, ~SQUARE, FILTERED_COV, m, m)
        add(cells, at, TRANSITION_SLOPE, TRANSITION_SLOPE, ~MEAN_SLOPE, FILTERED, m, ONE)
        add(cells, at, COV_SLOPE, ZERO, SQUARE, TRANSITION, m, m)
        add(cells, at, LINE, ZERO, MEAN_SLOPE, TRANSITION, ONE, m)

    @inline
    def observed(cells, at, p):  # type: ignore[no-untyped-def]
        for q in range(p):
            put(cells, at, INNOVATION, 0, q, dot(cells, at, GAIN, q, LINE, 0))
        for q in range(p):
            for s in range(p):
                u, v = get(cells, at, SCORE, 0, q), get(cells, at, SCORE, 0, s)
                value = dot(cells, at, FEW, q, GAIN, s) - get(cells, at, PRECISION, q, s)
                value = fnma(get(cells, at, INNOVATION, 0, q), v, fma(u, v, value))
                value = fnma(get(cells, at, INNOVATION, 0, s), u, value)
                put(cells, at, SMALL, q, s, halved(value))
        for q in range(p):
            change = get(cells, at, INNOVATION, 0, q) - get(cells, at, SCORE, 0, q)
            put(cells, at, INNOVATION, 0, q, change)

    @inline
    def designed(cells, at, m, p):  # type: ignore[no-untyped-def]
        subtract(cells, at, DESIGN_SLOPE, DESIGN_SLOPE, FEW, FILTERED_COV, p, m)
        add(cells, at, OTHER, ZERO, LINE, FILTERED_COV, ONE, m)
        add(cells, at, DESIGN_SLOPE, DESIGN_SLOPE, ~SCORE, OTHER, p, ONE)
        subtract(cells, at, DESIGN_SLOPE, DESIGN_SLOPE, ~INNOVATION, FILTERED, p, ONE)
        to, source = place(at, DESIGN_SLOPE), place(at, GAIN)
        for k in range(0, p * stride(at, GAIN), width):
            rest = vectors.load(cells, to + k) - vectors.load(cells, source + k)
            vectors.store(cells, to + k, rest)

    @inline
    def retreat(cells, at):  # type: ignore[no-untyped-def]
        m, p = peek(at, STATE), peek(at, OBSERVATION)
        predicted(cells, at, m)
        add(cells, at, FEW, ZERO, GAIN, COV_SLOPE, p, m)
        observed(cells, at, p)
        algebra.add(cells, at, OBSERVATION_COV_SLOPE, SMALL, p)
        designed(cells, at, m, p)
        absorb(cells, at, True)

    return retreat


@functools.cache
def make_smooth(layout: Layout) -> Any:
    """`smooth(cells, at)`: fixed-interval smoothing without an inverse of a state's covariance.

    Leaves the smoothed mean in `FILTERED` and its covariance in `OTHER`.

    With r and N of the next step (Bryson and Frazier 1963; de Jong 1989), r = F'r and N = F'NF:
    mean + cov r and cov - cov N cov are smoothed; then, with w = K'r, Y = K'N and
    G = (Y K + M) / 2, r becomes r - H'(w - u) and N becomes N + H'Z + Z'H with Z = G H - Y.
    """
    algebra = make_algebra(layout)
    get, put, dot = algebra.get, algebra.put, algebra.dot
    add, subtract = algebra.add_product, algebra.subtract_product
    absorb = _make_absorb(layout)

    @inline
    def smoothed(cells, at, m):  # type: ignore[no-untyped-def]
        add(cells, at, SQUARE, ZERO, TURNED, COV_SLOPE, m, m)
        add(cells, at, COV_SLOPE, ZERO, SQUARE, TRANSITION, m, m)
        add(cells, at, LINE, ZERO, MEAN_SLOPE, TRANSITION, ONE, m)
        add(cells, at, SQUARE, ZERO, COV_SLOPE, FILTERED_COV, m, m)
        subtract(cells, at, OTHER, FILTERED_COV, FILTERED_COV, SQUARE, m, m)
        algebra.symmetrise(cells, at, OTHER, m)
        add(cells, at, FILTERED, FILTERED, LINE, FILTERED_COV, ONE, m)

    @inline
    def smooth(cells, at):  # type: ignore[no-untyped-def]
        m, p = peek(at, STATE), peek(at, OBSERVATION)
        smoothed(cells, at, m)
        add(cells, at, FEW, ZERO, GAIN, COV_SLOPE, p, m)
        for q in range(p):
            change = dot(cells, at, GAIN, q, LINE, 0) - get(cells, at, SCORE, 0, q)
            put(cells, at, INNOVATION, 0, q, change)
            for s in range(p):
                value = dot(cells, at, FEW, q, GAIN, s) + get(cells, at, PRECISION, q, s)
                put(cells, at, SMALL, q, s, halved(value))
        absorb(cells, at, False)

    return smooth
