"""One model of a scalar observation and at most two states, in the registers of the machine.

A step takes a third of the time that it takes in the loops over matrices in memory. For the letters
see `filter`; here S and M = 1 / S are numbers.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import kernel, specialise
from rlcpu.scan.kalman.filter import CONVERGED

CHUNK = 64  # steps whose squares are added up before they join the rest: less rounding in float32
SAFE = 1e15  # the product of two numbers between 1 / SAFE and SAFE never overflows, nor its square
NUMBERS = 17  # of all matrices of two states


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


class Gaussian(NamedTuple):
    """Mean and covariance (symmetric)."""

    a0: Any
    a1: Any
    p00: Any
    p01: Any
    p11: Any


class Forecast(NamedTuple):
    """Mean and variance, S, of the next observation."""

    mean: Any
    variance: Any


def forecast_of(state: Gaussian, model: Model) -> Forecast:
    """Return the observation that a state forecasts, H a, and its variance S."""
    a0, a1, p00, p01, p11 = state
    return Forecast(model.h0 * a0 + model.h1 * a1, variance_of(model, p00, p01, p11))


def variance_of(model: Model, p00: Any, p01: Any, p11: Any) -> Any:
    """Return H P H' + R."""
    h0, h1 = model.h0, model.h1
    return model.r + (h0 * (p00 * h0 + p01 * h1) + h1 * (p01 * h0 + p11 * h1))


def weight_of(state: Gaussian, model: Model) -> tuple[Any, Any]:
    """Return an observation's weight F P H', two numbers, which M makes a gain."""
    _, _, p00, p01, p11 = state
    g0, g1 = p00 * model.h0 + p01 * model.h1, p01 * model.h0 + p11 * model.h1
    return model.f00 * g0 + model.f01 * g1, model.f10 * g0 + model.f11 * g1


def step(state: Gaussian, forecast: Forecast, model: Model, y: Any) -> tuple[Any, Any, Any, Any]:
    """State and forecast of the next observation, v' M v and S; 0 and 1 where y is NaN, missing.

    With w = F P H' and c = H F, the next P is F P F' + Q - w M w', and the next S is
    c P c' + H Q H' + R - (c P H') M (c P H'), not by way of P: what the next division waits for is
    this one and little else. A square of a covariance may overflow, its product with M does not.
    """
    a0, a1, p00, p01, p11 = state
    f00, f01, f10, f11, q00, q01, q11, h0, h1, _ = model
    w0, w1 = weight_of(state, model)
    v, variance, inverse = y - forecast.mean, forecast.variance, 1.0 / forecast.variance
    if y != y:
        v, variance, inverse = 0.0, 1.0, 0.0
    k0, k1 = w0 * inverse, w1 * inverse
    n00, n01 = f00 * p00 + f01 * p01, f00 * p01 + f01 * p11
    n10, n11 = f10 * p00 + f11 * p01, f10 * p01 + f11 * p11
    after = Gaussian(
        f00 * a0 + f01 * a1 + k0 * v,
        f10 * a0 + f11 * a1 + k1 * v,
        q00 + n00 * f00 + n01 * f01 - w0 * k0,
        q01 + n00 * f10 + n01 * f11 - w0 * k1,
        q11 + n10 * f10 + n11 * f11 - w1 * k1,
    )
    c0, c1 = h0 * f00 + h1 * f10, h0 * f01 + h1 * f11
    n0, n1 = c0 * p00 + c1 * p01, c0 * p01 + c1 * p11
    w = n0 * h0 + n1 * h1
    k = w * inverse
    following = Forecast(
        c0 * a0 + c1 * a1 + k * v,
        variance_of(model, q00, q01, q11) + (n0 * c0 + n1 * c1) - w * k,
    )
    return after, following, v * (v * inverse), variance


def step_steady(
    state: Gaussian, model: Model, gain: tuple[Any, Any], y: Any
) -> tuple[Gaussian, Any]:
    """Return state and v after a step in which the covariance stands still, with the gain w M."""
    a0, a1, p00, p01, p11 = state
    f00, f01, f10, f11, _, _, _, h0, h1, _ = model
    k0, k1, v = *gain, y - (h0 * a0 + h1 * a1)
    a0, a1 = (
        (f00 - k0 * h0) * a0 + (f01 - k0 * h1) * a1 + k0 * y,
        (f10 - k1 * h0) * a0 + (f11 - k1 * h1) * a1 + k1 * y,
    )
    return Gaussian(a0, a1, p00, p01, p11), v


def has_converged(state: Gaussian, before: Gaussian, tolerance: Any) -> bool:
    """Tell whether the covariance stands still in proportion to the standard deviations."""
    _, _, p00, p01, p11 = state
    c00, c01, c11 = p00 - before.p00, p01 - before.p01, p11 - before.p11
    return (
        c00 * c00 <= tolerance * (p00 * p00)
        and c01 * c01 <= tolerance * (p00 * p11)
        and c11 * c11 <= tolerance * (p11 * p11)
    )


def multiply_pivot(product, volume, pivot):
    """Multiply a product of pivots, or add to `volume` the logarithm of what is too much for it."""
    grown = product * pivot
    if 1.0 / SAFE < grown < SAFE:
        return grown, volume
    logarithm = math.log(pivot) if pivot < math.inf else math.nan
    return 1.0, volume + math.log(product) + logarithm


@functools.cache
def make_small(dtype: str) -> Any:
    """Return a kernel: the log-likelihood of one model; `numbers` are those of `pad`."""
    kind = np.dtype(dtype).type
    rules = step, step_steady, forecast_of, weight_of, multiply_pivot, has_converged
    scalars = tuple(specialise(rule, kind) for rule in rules)
    advance, advance_steady, predict, weight, multiply, converged = scalars
    zero, one, half, log_two_pi = kind(0.0), kind(1.0), kind(0.5), kind(math.log(2.0 * math.pi))
    tolerance = kind((CONVERGED * np.finfo(kind).eps) ** 2)

    @kernel(scalars=scalars if kind is np.float32 else ())
    def filter_small(observations, numbers, loglik):
        n = numbers
        model = Model(n[0], n[1], n[2], n[3], n[4], n[5], n[7], n[8], n[9], n[10])
        state, total, is_steady = Gaussian(n[11], n[12], n[13], n[14], n[16]), zero, False
        product = one
        for begin in range(0, observations.size, CHUNK):
            chunk = observations[begin : begin + CHUNK]
            squares, volume, before, present = zero, zero, state, 0
            for y in chunk:
                present += y == y
            gaps = present < chunk.size
            forecast = predict(state, model)
            if is_steady and not gaps:
                w0, w1 = weight(state, model)
                gain = w0 / forecast.variance, w1 / forecast.variance
                for y in chunk:
                    state, v = advance_steady(state, model, gain, y)
                    squares += v * v
                squares /= forecast.variance
                volume = math.log(forecast.variance) * kind(present)
            else:
                for y in chunk:
                    state, forecast, square, variance = advance(state, forecast, model, y)
                    product, volume = multiply(product, volume, variance)
                    squares += square
                is_steady = not gaps and converged(state, before, tolerance)
            total += squares + volume + log_two_pi * kind(present)
        loglik[0] = -half * (total + math.log(product))

    return filter_small


def pad(matrices: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers of F, Q, H, R, mean and covariance of a model of two states, one by one.

    Those of a model of one state may be given, beside which another one stands still at 0.
    """
    if matrices.size == NUMBERS:
        return matrices
    numbers = np.zeros(NUMBERS, matrices.dtype)
    numbers[[0, 4, 8, 10, 11, 13]] = matrices
    return numbers
