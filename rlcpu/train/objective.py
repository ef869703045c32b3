"""PPO's loss on a chunk of samples: from the networks' outputs to their derivatives, in place.

Networks write one row per sample; the loss wants one row per action, so that its loops run along
samples and vectorise. `lanes` (rows, samples of a chunk) holds the transposed heads and the rows
named below.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rlcpu.kernels.compile import inline, specialise
from rlcpu.train import losses

#: Rows of `lanes`: three of the rollout, three of the loss, then the heads, then the actions.
OLD_LOG_PROB, ADVANTAGE, TARGET, LOG_PROB, ENTROPY, SLOPE, HEADS = range(7)
#: Entries of `sums`, added over samples.
POLICY_LOSS, VALUE_LOSS, ENTROPY_SUM, DIVERGENCE, CLIPPED, NUM_SUMS = range(6)


class Weights(NamedTuple):
    """Coefficients of the loss; see `PPOConfig`. `sample` is one over the size of the minibatch."""

    clip: float
    entropy: float
    value: float
    sample: float


@inline
def fill(row, value):  # type: ignore[no-untyped-def]
    """Set a row to one number."""
    for i in range(row.size):
        row[i] = value


@inline
def take_head(head, outputs, width, column):  # type: ignore[no-untyped-def]
    """Copy a column of outputs (samples, width) to a row."""
    for i in range(head.size):
        head[i] = outputs[i * width + column]


@inline
def give_head(head, outputs, width, column):  # type: ignore[no-untyped-def]
    """Copy a row to a column of outputs (samples, width)."""
    for i in range(head.size):
        outputs[i * width + column] = head[i]


@functools.cache
def make_surrogate(dtype: type) -> Callable[..., None]:
    """`surrogate(lanes, weights, sums)`: the row SLOPE from the rows of log-probabilities."""
    loss_of, divergence = specialise(losses.surrogate, dtype), specialise(losses.divergence, dtype)
    exp = specialise(_exp, dtype)
    one, zero = dtype(1), dtype(0)

    @inline
    def loop(log_probs, old_log_probs, advantages, slopes, clip):  # type: ignore[no-untyped-def]
        total = apart = outside = zero
        for i in range(slopes.size):
            log_ratio = log_probs[i] - old_log_probs[i]
            ratio = exp(log_ratio)
            loss, slopes[i] = loss_of(ratio, advantages[i], clip)
            total += loss
            apart += divergence(ratio, log_ratio)
            outside += one if abs(ratio - one) > clip else zero
        return total, apart, outside

    @inline
    def surrogate(lanes, weights, sums):  # type: ignore[no-untyped-def]
        total, apart, outside = loop(
            lanes[LOG_PROB], lanes[OLD_LOG_PROB], lanes[ADVANTAGE], lanes[SLOPE], weights.clip
        )
        sums[POLICY_LOSS] += total
        sums[DIVERGENCE] += apart
        sums[CLIPPED] += outside

    return surrogate


@functools.cache
def make_value(dtype: type) -> Callable[..., None]:
    """`value(outputs, width, column, targets, weights, sums)`: derivatives by one column."""
    squared_error = specialise(losses.squared_error, dtype)
    zero = dtype(0)

    @inline
    def value(outputs, width, column, targets, weights, sums):  # type: ignore[no-untyped-def]
        total = zero
        scale = weights.value * weights.sample
        for i in range(targets.size):
            error, slope = squared_error(outputs[i * width + column], targets[i])
            total += error
            outputs[i * width + column] = slope * scale
        sums[VALUE_LOSS] += total

    return value


@functools.cache
def make_categorical(dtype: type) -> Callable[..., None]:
    """`policy(outputs, width, count, lanes, log_std, log_std_gradient, weights, sums)`.

    Replaces the logits in the first `count` columns of outputs (samples, width) by the derivatives
    of the loss. The two arguments of Gaussians are not looked at.
    """
    exp, log = specialise(_exp, dtype), specialise(_log, dtype)
    slope_of, surrogate = specialise(losses.categorical_slope, dtype), make_surrogate(dtype)
    one, zero, lowest = dtype(1), dtype(0), dtype(-np.inf)

    @inline
    def raise_to(top, logits):  # type: ignore[no-untyped-def]
        for i in range(top.size):
            top[i] = logits[i] if logits[i] > top[i] else top[i]

    @inline
    def add_exp(total, logits, top):  # type: ignore[no-untyped-def]
        for i in range(total.size):
            total[i] += exp(logits[i] - top[i])

    @inline
    def finish_normaliser(total, top):  # type: ignore[no-untyped-def]
        for i in range(total.size):
            top[i] += log(total[i])

    @inline
    def normalise(logits, normaliser, entropy):  # type: ignore[no-untyped-def]
        total = zero
        for i in range(logits.size):
            log_prob = logits[i] - normaliser[i]
            part = -exp(log_prob) * log_prob
            logits[i] = log_prob
            entropy[i] += part
            total += part
        return total

    @inline
    def pick(log_probs, taken, action, picked):  # type: ignore[no-untyped-def]
        for i in range(picked.size):
            picked[i] = log_probs[i] if taken[i] == action else picked[i]

    @inline
    def slopes_of(log_probs, taken, action, slopes, entropy, weights):  # type: ignore[no-untyped-def]
        for i in range(log_probs.size):
            hit = one if taken[i] == action else zero
            slope = slope_of(hit, log_probs[i], slopes[i], entropy[i], weights.entropy)
            log_probs[i] = slope * weights.sample

    @inline
    def policy(outputs, width, count, lanes, log_std, log_std_gradient, weights, sums):  # type: ignore[no-untyped-def]
        normaliser, entropy, picked = lanes[SLOPE], lanes[ENTROPY], lanes[LOG_PROB]
        taken, slopes = lanes[HEADS + count], lanes[SLOPE]
        fill(normaliser, lowest)
        for k in range(count):
            take_head(lanes[HEADS + k], outputs, width, k)
            raise_to(normaliser, lanes[HEADS + k])
        total = entropy
        fill(total, zero)
        for k in range(count):
            add_exp(total, lanes[HEADS + k], normaliser)
        finish_normaliser(total, normaliser)
        fill(entropy, zero)
        for k in range(count):
            sums[ENTROPY_SUM] += normalise(lanes[HEADS + k], normaliser, entropy)
            pick(lanes[HEADS + k], taken, dtype(k), picked)
        surrogate(lanes, weights, sums)
        for k in range(count):
            slopes_of(lanes[HEADS + k], taken, dtype(k), slopes, entropy, weights)
            give_head(lanes[HEADS + k], outputs, width, k)

    return policy


@functools.cache
def make_gaussian(dtype: type) -> Callable[..., None]:
    """`policy(outputs, width, count, lanes, log_std, log_std_gradient, weights, sums)`.

    Replaces the means in the first `count` columns of outputs (samples, width) by the derivatives
    of the loss, and adds those by the logarithms of the standard deviations.
    """
    gaussian, surrogate = specialise(losses.gaussian, dtype), make_surrogate(dtype)
    zero = dtype(0)
    entropy_of_unit = dtype(0.5 + losses.HALF_LOG_2_PI)

    @inline
    def add_log_prob(means, actions, log_std, picked):  # type: ignore[no-untyped-def]
        for i in range(picked.size):
            picked[i] += gaussian(actions[i], means[i], log_std)[0]

    @inline
    def slopes_of(means, actions, log_std, slopes, sample):  # type: ignore[no-untyped-def]
        by_log_std = zero
        for i in range(means.size):
            _, by_mean, by_std = gaussian(actions[i], means[i], log_std)
            means[i] = slopes[i] * by_mean * sample
            by_log_std += slopes[i] * by_std * sample
        return by_log_std

    @inline
    def policy(outputs, width, count, lanes, log_std, log_std_gradient, weights, sums):  # type: ignore[no-untyped-def]
        picked, slopes = lanes[LOG_PROB], lanes[SLOPE]
        samples = dtype(picked.size)
        fill(picked, zero)
        for k in range(count):
            take_head(lanes[HEADS + k], outputs, width, k)
            add_log_prob(lanes[HEADS + k], lanes[HEADS + count + k], log_std[k], picked)
        surrogate(lanes, weights, sums)
        for k in range(count):
            means, actions = lanes[HEADS + k], lanes[HEADS + count + k]
            by_log_std = slopes_of(means, actions, log_std[k], slopes, weights.sample)
            log_std_gradient[k] += by_log_std - weights.entropy * weights.sample * samples
            sums[ENTROPY_SUM] += (entropy_of_unit + log_std[k]) * samples
            give_head(means, outputs, width, k)

    return policy


def _exp(x: float) -> float:
    return math.exp(x)


def _log(x: float) -> float:
    return math.log(x)
