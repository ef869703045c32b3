"""One model of a scalar observation and at most two states, in the registers of the machine.

A step takes 16 ns, where the passes over matrices in memory take 100, and 5 where the covariance
stands still. For the letters see `passes`; here S and M = 1 / S are numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import kernel, specialise
from rlcpu.scan.kalman.passes import SETTLED, grow

CHUNK = 64  # steps whose squares are added up before they join the rest: less rounding in float32


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


class Gain(NamedTuple):
    """F P H', S and M."""

    w0: Any
    w1: Any
    spread: Any
    inverse: Any


def gain_of(state: State, model: Model) -> Gain:
    """What an observation is worth."""
    _, _, p00, p01, p11 = state
    g0, g1 = p00 * model.h0 + p01 * model.h1, p01 * model.h0 + p11 * model.h1
    spread = model.r + (model.h0 * g0 + model.h1 * g1)
    inverse = 1.0 / spread if 0.0 < spread < math.inf else math.nan
    return Gain(model.f00 * g0 + model.f01 * g1, model.f10 * g0 + model.f11 * g1, spread, inverse)


def step(state: State, model: Model, y: Any) -> tuple[State, Any, Any]:
    """The state before the next observation, v' M v and S; 0 and 1 where y is NaN, missing.

    F P H' takes part in the covariance, F P F' + Q - (F P H') M (F P H')', so that little is left
    to do when the division is done: it is half of what the next step waits for.
    """
    a0, a1, p00, p01, p11 = state
    f00, f01, f10, f11, q00, q01, q11, h0, h1, _ = model
    w0, w1, spread, inverse = gain_of(state, model)
    v = y - (h0 * a0 + h1 * a1)
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


def glide(state: State, model: Model, gain: Gain, y: Any) -> tuple[State, Any]:
    """The same where the covariance stands still: the state, and v."""
    a0, a1, p00, p01, p11 = state
    k0, k1 = gain.w0 * gain.inverse, gain.w1 * gain.inverse
    f00, f01 = model.f00 - k0 * model.h0, model.f01 - k0 * model.h1
    f10, f11 = model.f10 - k1 * model.h0, model.f11 - k1 * model.h1
    v = y - (model.h0 * a0 + model.h1 * a1)
    return State(f00 * a0 + f01 * a1 + k0 * y, f10 * a0 + f11 * a1 + k1 * y, p00, p01, p11), v


def is_settled(state: State, before: State, tolerance: Any) -> bool:
    """Whether no number of the covariance has changed in proportion to the standard deviations."""
    _, _, p00, p01, p11 = state
    c00, c01, c11 = p00 - before.p00, p01 - before.p01, p11 - before.p11
    return (
        c00 * c00 <= tolerance * (p00 * p00)
        and c01 * c01 <= tolerance * (p00 * p11)
        and c11 * c11 <= tolerance * (p11 * p11)
    )


@functools.cache
def make_small(dtype: str) -> Any:
    """Kernel: the log-likelihood of one model; `matrices` as `pad` leaves them."""
    kind = np.dtype(dtype).type
    advance, drift, weigh = (specialise(f, kind) for f in (step, glide, gain_of))
    multiply, settled = specialise(grow, kind), specialise(is_settled, kind)
    zero, one, half, log_two_pi = kind(0.0), kind(1.0), kind(0.5), kind(math.log(2.0 * math.pi))
    tolerance = kind((SETTLED * np.finfo(kind).eps) ** 2)

    @kernel(scalars=(advance, drift, weigh, multiply, settled) if kind is np.float32 else ())
    def filter_small(observations, matrices, loglik):
        m = matrices
        model = Model(m[0], m[1], m[2], m[3], m[4], m[5], m[7], m[8], m[9], m[10])
        state, total, still = State(m[11], m[12], m[13], m[14], m[16]), zero, False
        product = one
        for begin in range(0, observations.size, CHUNK):
            chunk = observations[begin : begin + CHUNK]
            squares, volume, before, seen = zero, zero, state, 0
            for y in chunk:
                seen += y == y
            gaps = seen < chunk.size
            if still and not gaps:
                gain = weigh(state, model)
                for y in chunk:
                    state, v = drift(state, model, gain, y)
                    squares += v * v
                squares *= gain.inverse
                volume = math.log(gain.spread) * kind(seen)
            else:
                for y in chunk:
                    state, square, spread = advance(state, model, y)
                    product, volume = multiply(product, volume, spread)
                    squares += square
                still = not gaps and settled(state, before, tolerance)
            total += squares + volume + log_two_pi * kind(seen)
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
        more = zip(flat, (3, 3, 1, 0, 1, 3), strict=True)
        flat = [np.append(x, np.zeros(n, x.dtype)) for x, n in more]
    return np.concatenate(flat)
