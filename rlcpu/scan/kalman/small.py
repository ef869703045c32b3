"""One model of a scalar observation and at most two states, in the registers of the machine.

For the letters see `update`. A step takes 16 ns; in blocks in memory 90 with gaps, 21 without.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import kernel, specialise

CHUNK = 64  # steps whose squares are added up before they join the rest: less rounding in float32
SAFE = 1e15  # the product of two numbers between 1 / SAFE and SAFE never overflows, nor its square


class Model(NamedTuple):
    """F, Q (symmetric), H and R."""

    f00: Any
    f01: Any
    f10: Any
    f11: Any
    q00: Any
    q01: Any
    q11: Any
    h0: Any
    h1: Any
    r: Any


class State(NamedTuple):
    """Mean and covariance (symmetric)."""

    a0: Any
    a1: Any
    p00: Any
    p01: Any
    p11: Any


def step(state: State, model: Model, y: Any) -> tuple[State, Any, Any]:
    """The state before the next observation, v' M v and S; 0 and 1 where y is NaN, missing.

    F g with g = P H' takes part in the covariance, F P F' + Q - (F g) M (F g)', so that little is
    left to do when the division is done: it is half of what the next step waits for.
    """
    a0, a1, p00, p01, p11 = state
    f00, f01, f10, f11, q00, q01, q11, h0, h1, r = model
    g0, g1 = p00 * h0 + p01 * h1, p01 * h0 + p11 * h1
    w0, w1 = f00 * g0 + f01 * g1, f10 * g0 + f11 * g1
    spread, v = r + (h0 * g0 + h1 * g1), y - (h0 * a0 + h1 * a1)
    inverse = 1.0 / spread if 0.0 < spread < math.inf else math.nan
    if y != y:
        spread, v, inverse = 1.0, 0.0, 0.0
    k0, k1 = w0 * inverse, w1 * inverse
    n00, n01 = f00 * p00 + f01 * p01, f00 * p01 + f01 * p11
    n10, n11 = f10 * p00 + f11 * p01, f10 * p01 + f11 * p11
    after = State(
        f00 * a0 + f01 * a1 + k0 * v,
        f10 * a0 + f11 * a1 + k1 * v,
        q00 + n00 * f00 + n01 * f01 - w0 * k0,
        q01 + n00 * f10 + n01 * f11 - w0 * k1,
        q11 + n10 * f10 + n11 * f11 - w1 * k1,
    )
    return after, v * (v * inverse), spread


def grow(product: Any, volume: Any, spread: Any) -> tuple[Any, Any]:
    """Product of S, and sum of logarithms of what would take it out of range."""
    if not 1.0 / SAFE < spread < SAFE:
        return product, volume + math.log(spread)
    product *= spread
    if 1.0 / SAFE < product < SAFE:
        return product, volume
    return 1.0, volume + math.log(product)


@functools.cache
def make_small(dtype: str) -> Any:
    """Kernel: the log-likelihood of one model; `matrices` as `pad` leaves them."""
    kind = np.dtype(dtype).type
    advance, multiply = specialise(step, kind), specialise(grow, kind)
    zero, one, half, log_two_pi = kind(0.0), kind(1.0), kind(0.5), kind(math.log(2.0 * math.pi))

    @kernel(scalars=(advance, multiply) if kind is np.float32 else ())
    def filter_small(observations, matrices, loglik):  # type: ignore[no-untyped-def]
        m = matrices
        model = Model(m[0], m[1], m[2], m[3], m[4], m[5], m[7], m[8], m[9], m[10])
        state, total = State(m[11], m[12], m[13], m[14], m[16]), zero
        product, volume = one, zero
        for begin in range(0, observations.size, CHUNK):
            squares, seen = zero, 0
            for y in observations[begin : begin + CHUNK]:
                state, square, spread = advance(state, model, y)
                product, volume = multiply(product, volume, spread)
                squares += square
                seen += y == y
            total += squares + volume + log_two_pi * kind(seen)
            volume = zero
        loglik[0] = -half * (total + math.log(product))

    return filter_small


def pad(matrices: Sequence[npt.NDArray[Any]], size: int) -> npt.NDArray[Any]:
    """F, Q, H, R, mean and covariance of one model of at most two states, flat, as if of two.

    Args:
        matrices: of shapes that end in (m, m), (m, m), (1, m), (1, 1), (m,) and (m, m).
        size: m; a state that is lacking stands still at 0.
    """
    flat = [np.ravel(matrix) for matrix in matrices]
    if size == 1:
        flat = [
            np.append(x, np.zeros(n, x.dtype))
            for x, n in zip(flat, (3, 3, 1, 0, 1, 3), strict=True)
        ]
    return np.concatenate(flat)
