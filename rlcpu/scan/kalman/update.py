"""One time step of the Kalman filter.

x[t + 1] = F x[t] + w[t], y[t] = H x[t] + v[t], with w and v normal, of covariances Q and R. The
state before y[t] is seen has mean a and covariance P. With v = y - H a, S = H P H' + R, M = S^-1,
K = P H' M and u = M v:

* update: mean a + K v, covariance P - K H P or, in Joseph's form, (I - K H) P (I - K H)' + K R K'
  (Anderson and Moore 1979, Optimal filtering, chapter 5; Bucy and Joseph 1968);
* prediction: a = F mean, P = F cov F' + Q;
* log-likelihood: -(p log(2 pi) + log(det(S)) + v' u) / 2.

All functions take `(cells, at, ...)`, the workspace and its table, and work on its fixed blocks.
"""

from __future__ import annotations

import functools
from typing import Any

from rlcpu.kernels.compile import inline
from rlcpu.scan.kalman import vectors
from rlcpu.scan.kalman.blocks import make_algebra, outline, peek, place, stride
from rlcpu.scan.kalman.plan import (
    COUNT,
    COV,
    DESIGN,
    EXPONENT,
    FEW,
    FILTERED,
    FILTERED_COV,
    GAIN,
    IDENTITY,
    INNOVATION,
    JOSEPH,
    LINE,
    MANTISSA,
    MEAN,
    OBSERVATION,
    OBSERVATION_COV,
    OBSERVED,
    ONE,
    OTHER,
    PRECISION,
    PROJECTED,
    SCORE,
    SMALL,
    SQUARE,
    SQUARES,
    STATE,
    TRANSITION_COV,
    TURNED,
    ZERO,
    Layout,
)
from rlcpu.scan.kalman.vectors import fma, fnma, stay_outside

# ---------------------------------------------------------------- pieces


@functools.cache
def _make_invert(layout: Layout) -> Any:
    """M from S in place by Gauss and Jordan, NaN where S is not positive definite; log(det(S))."""
    algebra = make_algebra(layout)
    get, put = algebra.get, algebra.put

    @inline
    def grow(cells, at, pivot):  # type: ignore[no-untyped-def]
        product = get(cells, at, MANTISSA, 0, 0) * pivot
        put(cells, at, MANTISSA, 0, 0, vectors.mantissa(product))
        power = get(cells, at, EXPONENT, 0, 0) + vectors.exponent(product)
        put(cells, at, EXPONENT, 0, 0, power)

    @inline
    def eliminate(cells, at, k, i, inverse):  # type: ignore[no-untyped-def]
        factor = get(cells, at, PRECISION, i, k)
        for j in range(peek(at, OBSERVATION)):
            if j != k:
                old, above = get(cells, at, PRECISION, i, j), get(cells, at, PRECISION, k, j)
                put(cells, at, PRECISION, i, j, fnma(factor, above, old))
        put(cells, at, PRECISION, i, k, vectors.negated(factor * inverse))

    @inline
    def invert(cells, at):  # type: ignore[no-untyped-def]
        for k in range(peek(at, OBSERVATION)):
            pivot = get(cells, at, PRECISION, k, k)
            grow(cells, at, pivot)
            inverse = vectors.reciprocal(pivot)
            for j in range(peek(at, OBSERVATION)):
                if j != k:
                    scaled = get(cells, at, PRECISION, k, j) * inverse
                    put(cells, at, PRECISION, k, j, scaled)
            for i in range(peek(at, OBSERVATION)):
                if i != k:
                    eliminate(cells, at, k, i, inverse)
            put(cells, at, PRECISION, k, k, inverse)

    return invert


@functools.cache
def _make_mask(layout: Layout) -> Any:
    """Takes unseen observations out: unit variance, uncorrelated, no innovation, no projection."""
    algebra = make_algebra(layout)
    get, put, width = algebra.get, algebra.put, algebra.width

    @inline
    def mask(cells, at, k):  # type: ignore[no-untyped-def]
        p = peek(at, OBSERVATION)
        for q in range(p):
            y = get(cells, at, OBSERVED, k, q)
            seen = vectors.seen(y)
            put(cells, at, INNOVATION, 0, q, get(cells, at, INNOVATION, 0, q) * seen)
            begin = place(at, PROJECTED) + q * stride(at, PROJECTED)
            for cell in range(begin, begin + stride(at, PROJECTED), width):
                vectors.store(cells, cell, vectors.load(cells, cell) * seen)
            for s in range(p):
                put(cells, at, PRECISION, q, s, get(cells, at, PRECISION, q, s) * seen)
                put(cells, at, PRECISION, s, q, get(cells, at, PRECISION, s, q) * seen)
            one = get(cells, at, PRECISION, q, q) + vectors.unseen(y)
            put(cells, at, PRECISION, q, q, one)

    return mask


@functools.cache
def _make_weigh(layout: Layout) -> Any:
    """U = M v, and its product with v added to the sum of squares."""
    algebra = make_algebra(layout)
    get, put = algebra.get, algebra.put

    @inline
    def weigh(cells, at):  # type: ignore[no-untyped-def]
        squares = get(cells, at, SQUARES, 0, 0)
        for q in range(peek(at, OBSERVATION)):
            score = get(cells, at, PRECISION, q, 0) * get(cells, at, INNOVATION, 0, 0)
            for s in range(1, peek(at, OBSERVATION)):
                factor = get(cells, at, PRECISION, q, s)
                score = fma(factor, get(cells, at, INNOVATION, 0, s), score)
            put(cells, at, SCORE, 0, q, score)
            squares = fma(score, get(cells, at, INNOVATION, 0, q), squares)
        put(cells, at, SQUARES, 0, 0, squares)

    return weigh


# ---------------------------------------------------------------- forward


@functools.cache
def _make_innovate(layout: Layout) -> Any:
    """H P, v, M and u, and the sums of the log-likelihood."""
    algebra = make_algebra(layout)
    get, put, dot = algebra.get, algebra.put, algebra.dot
    mask, invert, weigh = (make(layout) for make in (_make_mask, _make_invert, _make_weigh))

    @inline
    def innovate(cells, at, k, gaps):  # type: ignore[no-untyped-def]
        m, p = peek(at, STATE), peek(at, OBSERVATION)
        algebra.add_rows(cells, at, PROJECTED, ZERO, DESIGN, COV, p, m)
        for q in range(p):
            y = vectors.known(get(cells, at, OBSERVED, k, q))
            put(cells, at, INNOVATION, 0, q, y - dot(cells, at, DESIGN, q, MEAN, 0))
            for s in range(p):
                noise = get(cells, at, OBSERVATION_COV, q, s)
                projected = dot(cells, at, PROJECTED, q, DESIGN, s)
                put(cells, at, PRECISION, q, s, noise + projected)
        if gaps:
            mask(cells, at, k)
        invert(cells, at)
        for q in range(p):
            seen = vectors.seen(get(cells, at, OBSERVED, k, q))
            put(cells, at, COUNT, 0, 0, get(cells, at, COUNT, 0, 0) + seen)
            put(cells, at, PRECISION, q, q, get(cells, at, PRECISION, q, q) * seen)
        weigh(cells, at)

    return innovate


@functools.cache
def make_update(layout: Layout) -> Any:
    """`update(cells, at, k, gaps)`: fills the record from the state and the chunk's observation k.

    It adds to the sums. `gaps` says whether some observation may be NaN.
    """
    algebra = make_algebra(layout)
    add, subtract = algebra.add_product, algebra.subtract_product
    innovate = _make_innovate(layout)

    @inline
    def joseph(cells, at, m, p):  # type: ignore[no-untyped-def]
        subtract(cells, at, SQUARE, IDENTITY, ~DESIGN, GAIN, m, p)
        add(cells, at, OTHER, ZERO, COV, SQUARE, m, m)
        add(cells, at, FILTERED_COV, ZERO, ~SQUARE, OTHER, m, m)
        add(cells, at, FEW, ZERO, OBSERVATION_COV, GAIN, p, p)
        add(cells, at, FILTERED_COV, FILTERED_COV, ~GAIN, FEW, m, p)

    @outline
    def update(cells, at, k, gaps):  # type: ignore[no-untyped-def]
        stay_outside()
        m, p = peek(at, STATE), peek(at, OBSERVATION)
        innovate(cells, at, k, gaps)
        algebra.add_rows(cells, at, GAIN, ZERO, PRECISION, PROJECTED, p, p)
        algebra.add_rows(cells, at, FILTERED, MEAN, SCORE, PROJECTED, ONE, p)
        if peek(at, JOSEPH):
            joseph(cells, at, m, p)
        else:
            subtract(cells, at, FILTERED_COV, COV, ~PROJECTED, GAIN, m, p)

    return update


@functools.cache
def make_glide(layout: Layout) -> Any:
    """`glide(cells, at, k, whole)`: an update without the covariances, which the record has.

    Nothing is missing; only `whole` computes the filtered mean, too.
    """
    algebra = make_algebra(layout)
    get, put, dot = algebra.get, algebra.put, algebra.dot
    weigh = _make_weigh(layout)

    @inline
    def glide(cells, at, k, whole):  # type: ignore[no-untyped-def]
        p = peek(at, OBSERVATION)
        for q in range(p):
            y = get(cells, at, OBSERVED, k, q)
            put(cells, at, INNOVATION, 0, q, y - dot(cells, at, DESIGN, q, MEAN, 0))
        weigh(cells, at)
        if whole:
            algebra.add_rows(cells, at, FILTERED, MEAN, INNOVATION, GAIN, ONE, p)

    return glide


@functools.cache
def make_drift(layout: Layout) -> tuple[Any, Any]:
    """Prediction of the mean where the gain stands still: a = (F - F K H) a + F K y.

    Not by way of the innovation: the next mean waits 16 cycles for this one instead of 60.

    Returns:
        `freeze(cells, at)` computes both matrices from the record, `drift(cells, at, k)` the mean.
    """
    algebra = make_algebra(layout)
    add = algebra.add_rows

    @outline
    def freeze(cells, at):  # type: ignore[no-untyped-def]
        stay_outside()
        m, p = peek(at, STATE), peek(at, OBSERVATION)
        add(cells, at, PROJECTED, ZERO, GAIN, TURNED, p, m)
        algebra.subtract_product(cells, at, SQUARE, TURNED, ~DESIGN, PROJECTED, m, p)

    @inline
    def drift(cells, at, k):  # type: ignore[no-untyped-def]
        for q in range(peek(at, OBSERVATION)):
            algebra.put(cells, at, SMALL, 0, q, algebra.get(cells, at, OBSERVED, k, q))
        add(cells, at, LINE, ZERO, MEAN, SQUARE, ONE, peek(at, STATE))
        add(cells, at, MEAN, LINE, SMALL, PROJECTED, ONE, peek(at, OBSERVATION))

    return freeze, drift


@functools.cache
def make_predict(layout: Layout) -> Any:
    """`predict(cells, at)`: the next step's state."""
    algebra = make_algebra(layout)
    add = algebra.add_product

    @inline
    def predict(cells, at):  # type: ignore[no-untyped-def]
        m = peek(at, STATE)
        algebra.add_rows(cells, at, MEAN, ZERO, FILTERED, TURNED, ONE, m)
        add(cells, at, SQUARE, ZERO, FILTERED_COV, TURNED, m, m)
        add(cells, at, COV, TRANSITION_COV, ~TURNED, SQUARE, m, m)
        algebra.symmetrise(cells, at, COV, m)

    return predict
