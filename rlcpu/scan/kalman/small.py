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


def gain_of(state: State, model: Model) -> tuple[Any, Any, Any, Any]:
    """What an observation is worth: F P H' (two numbers), S and M."""
    _, _, p00, p01, p11 = state
    g0, g1 = p00 * model.h0 + p01 * model.h1, p01 * model.h0 + p11 * model.h1
    spread = model.r + (model.h0 * g0 + model.h1 * g1)
    inverse = 1.0 / spread if 0.0 < spread < math.inf else math.nan
    return model.f00 * g0 + model.f01 * g1, model.f10 * g0 + model.f11 * g1, spread, inverse


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


def glide(state: State, model: Model, gain: tuple[Any, ...], y: Any) -> tuple[State, Any]:
    """The same where the covariance stands still: the state, and v."""
    a0, a1, p00, p01, p11 = state
    f00, f01, f10, f11, _, _, _, h0, h1, _ = model
    w0, w1, _, inverse = gain
    k0, k1, v = w0 * inverse, w1 * inverse, y - (h0 * a0 + h1 * a1)
    a0, a1 = (
        (f00 - k0 * h0) * a0 + (f01 - k0 * h1) * a1 + k0 * y,
        (f10 - k1 * h0) * a0 + (f11 - k1 * h1) * a1 + k1 * y,
    )
    return State(a0, a1, p00, p01, p11), v


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
    """Kernel: the log-likelihood of one model; `numbers` are those of `pad`."""
    kind = np.dtype(dtype).type
    scalars = tuple(specialise(f, kind) for f in (step, glide, gain_of, grow, is_settled))
    advance, drift, weigh, multiply, settled = scalars
    zero, one, half, log_two_pi = kind(0.0), kind(1.0), kind(0.5), kind(math.log(2.0 * math.pi))
    tolerance = kind((SETTLED * np.finfo(kind).eps) ** 2)

    @kernel(scalars=scalars if kind is np.float32 else ())
    def filter_small(observations, numbers, loglik):
        n = numbers
        model = Model(n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9])
        state, total, still = State(n[10], n[11], n[12], n[13], n[14]), zero, False
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
                squares *= gain[3]
                volume = math.log(gain[2]) * kind(seen)
            else:
                for y in chunk:
                    state, square, spread = advance(state, model, y)
                    product, volume = multiply(product, volume, spread)
                    squares += square
                still = not gaps and settled(state, before, tolerance)
            total += squares + volume + log_two_pi * kind(seen)
        loglik[0] = -half * (total + math.log(product))

    return filter_small


def pad(matrices: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The numbers of `Model` and `State`, of one model.

    Args:
        matrices: F, Q, H, R, mean and covariance, of shapes that end in (m, m), (m, m), (1, m),
            (1, 1), (m,) and (m, m); a state that is lacking stands still at 0.
    """
    wide = [np.zeros(n, matrices[0].dtype) for n in (4, 4, 2, 1, 2, 4)]
    for padded, matrix in zip(wide, matrices, strict=True):
        padded[: matrix.size] = matrix.ravel()
    f, q, h, r, mean, cov = wide
    return np.concatenate([f, q[[0, 1, 3]], h, r, mean, cov[[0, 1, 3]]])
