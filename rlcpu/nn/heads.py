"""Losses: scalar functions of one sample, and the heads that feed them from a network's outputs.

A loss is plain Python for one sample,

    loss(numbers, sample, weights) -> (loss, slopes, statistics)

where a head makes `numbers` of the outputs, `sample` has a field for each column of the minibatch,
and `weights` are coefficients of the caller's; `slopes` are the derivatives by the numbers. Heads:
outputs as they are, the output of the action taken, and the log-probability and the entropy of a
categorical or Gaussian distribution.

Networks write one row for each sample; loops that vectorise run along samples. So `rows` of a chunk
hold, each along the samples: numbers, their slopes, columns, outputs transposed, actions.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compile import define, inline, specialise

HALF_LOG_2_PI = 0.9189385332046727


class Head(NamedTuple):
    """What a loss sees of a network.

    Attributes:
        names: of the numbers.
        actions: "index" if it reads the number of the action taken, "vector" if one number for each
            output, None if none.
        make: dtype -> (forward, backward), to be inlined: `forward(outputs, place, numbers,
            slopes, heads, actions, free)` fills the rows of numbers (`slopes` is scratch),
            `backward(outputs, place, numbers, slopes, heads, actions, free, free_slopes, share)`
            writes derivatives in the place of outputs, times share, and adds those by the free
            parameters. `place` is (width of a row of outputs, first output, number of outputs).
    """

    names: tuple[str, ...]
    actions: str | None
    make: Callable[[type], tuple[Callable[..., None], Callable[..., None]]]


class Loss(NamedTuple):
    """A term of what is minimised: the mean over the samples of a scalar function.

    Attributes:
        function: (numbers, sample, weights) -> (loss, slopes, statistics); see above.
        head: what its numbers are.
        statistics: names of what it returns third, of which `Learner.update` returns means.
        network: number of the network whose outputs the head reads.
        first, size: which outputs, `size` of them from `first` on; None for all that follow.
    """

    function: Callable[..., Any]
    head: Head
    statistics: tuple[str, ...] = ()
    network: int = 0
    first: int = 0
    size: int | None = None


@inline
def fill(row, value):
    """Set a row to one number."""
    for i in range(row.size):
        row[i] = value


@inline
def take_output(row, outputs, width, column):
    """Copy a column of outputs (samples, width) to a row."""
    for i in range(row.size):
        row[i] = outputs[i * width + column]


@inline
def give_output(row, outputs, width, column):
    """Copy a row to a column of outputs (samples, width)."""
    for i in range(row.size):
        outputs[i * width + column] = row[i]


# ---------------------------------------------------------------- heads


@dataclasses.dataclass(frozen=True)
class _Outputs:
    """Makes the functions of `outputs`; equal ones are the same to a kernel, and after pickling."""

    count: int

    def __call__(self, dtype):
        count = self.count

        @inline
        def forward(outputs, place, numbers, slopes, heads, actions, free):
            for k in range(count):
                take_output(numbers[k], outputs, place[0], place[1] + k)

        @inline
        def scale(row, share):
            for i in range(row.size):
                row[i] = row[i] * share

        @inline
        def backward(outputs, place, numbers, slopes, heads, actions, free, free_slopes, share):
            for k in range(count):
                scale(slopes[k], share)
                give_output(slopes[k], outputs, place[0], place[1] + k)

        return forward, backward


def outputs(count: int = 1) -> Head:
    """The outputs themselves, so many of them."""
    return Head(tuple(f"output{k}" for k in range(count)), None, _Outputs(count))


def _make_of_action(dtype):
    zero = dtype(0)

    @inline
    def forward(outputs, place, numbers, slopes, heads, actions, free):
        row, taken = numbers[0], actions[0]
        for i in range(row.size):
            row[i] = outputs[i * place[0] + place[1] + np.int64(taken[i])]

    @inline
    def backward(outputs, place, numbers, slopes, heads, actions, free, free_slopes, share):
        row, taken = slopes[0], actions[0]
        for i in range(row.size):
            begin = i * place[0] + place[1]
            for k in range(place[2]):
                outputs[begin + k] = zero
            outputs[begin + np.int64(taken[i])] = row[i] * share

    return forward, backward


#: The output of the action taken: an action value, such as Q(s, a).
of_action = Head(("value",), "index", _make_of_action)


def categorical_slope(
    taken: float, log_prob: float, entropy: float, by_log_prob: float, by_entropy: float
) -> float:
    """Derivative by one logit of a function of log-probability and entropy.

    Args:
        taken: 1 for the action that was taken, 0 for the others.
        log_prob: of this action.
        entropy: of the distribution, -sum(p log p).
        by_log_prob: derivative by the log-probability of the action taken.
        by_entropy: derivative by the entropy.
    """
    prob = math.exp(log_prob)
    return by_log_prob * (taken - prob) - by_entropy * prob * (log_prob + entropy)


def _make_categorical(dtype):
    exp, log = specialise(_exp, dtype), specialise(_log, dtype)
    slope_of = specialise(categorical_slope, dtype)
    one, zero, lowest = dtype(1), dtype(0), dtype(-np.inf)

    @inline
    def raise_to(top, logits):
        for i in range(top.size):
            top[i] = logits[i] if logits[i] > top[i] else top[i]

    @inline
    def add_exp(total, logits, top):
        for i in range(total.size):
            total[i] += exp(logits[i] - top[i])

    @inline
    def finish_normaliser(total, top):
        for i in range(total.size):
            top[i] += log(total[i])

    @inline
    def normalise(logits, normaliser, entropy, taken, action, picked):
        for i in range(logits.size):
            log_prob = logits[i] - normaliser[i]
            entropy[i] -= exp(log_prob) * log_prob
            logits[i] = log_prob
            picked[i] = log_prob if taken[i] == action else picked[i]

    @inline
    def forward(outputs, place, numbers, slopes, heads, actions, free):
        picked, entropy, normaliser = numbers[0], numbers[1], slopes[0]
        fill(normaliser, lowest)
        for k in range(place[2]):
            take_output(heads[k], outputs, place[0], place[1] + k)
            raise_to(normaliser, heads[k])
        fill(entropy, zero)
        for k in range(place[2]):
            add_exp(entropy, heads[k], normaliser)
        finish_normaliser(entropy, normaliser)
        fill(entropy, zero)
        for k in range(place[2]):
            normalise(heads[k], normaliser, entropy, actions[0], dtype(k), picked)

    @inline
    def slopes_of(log_probs, taken, action, entropy, by_log_prob, by_entropy, share):
        for i in range(log_probs.size):
            hit = one if taken[i] == action else zero
            slope = slope_of(hit, log_probs[i], entropy[i], by_log_prob[i], by_entropy[i])
            log_probs[i] = slope * share

    @inline
    def backward(outputs, place, numbers, slopes, heads, actions, free, free_slopes, share):
        for k in range(place[2]):
            slopes_of(heads[k], actions[0], dtype(k), numbers[1], slopes[0], slopes[1], share)
            give_output(heads[k], outputs, place[0], place[1] + k)

    return forward, backward


#: Outputs are logits: log-probability of the action taken, and entropy.
categorical = Head(("log_prob", "entropy"), "index", _make_categorical)


def gaussian_coordinate(action: float, mean: float, log_std: float) -> tuple[float, float, float]:
    """Log-density of one coordinate, and its derivatives by the mean and by `log_std`."""
    inverse = math.exp(-log_std)
    z = (action - mean) * inverse
    return -0.5 * z * z - log_std - HALF_LOG_2_PI, z * inverse, z * z - 1.0


def _make_gaussian(dtype):
    coordinate = specialise(gaussian_coordinate, dtype)
    zero, entropy_of_unit = dtype(0), dtype(0.5 + HALF_LOG_2_PI)

    @inline
    def add_log_prob(means, actions, log_std, picked):
        for i in range(picked.size):
            picked[i] += coordinate(actions[i], means[i], log_std)[0]

    @inline
    def forward(outputs, place, numbers, slopes, heads, actions, free):
        entropy = zero
        fill(numbers[0], zero)
        for k in range(place[2]):
            take_output(heads[k], outputs, place[0], place[1] + k)
            add_log_prob(heads[k], actions[k], free[k], numbers[0])
            entropy += entropy_of_unit + free[k]
        fill(numbers[1], entropy)

    @inline
    def slopes_of(means, actions, log_std, by_log_prob, by_entropy, share):
        by_log_std = zero
        for i in range(means.size):
            _, by_mean, by_std = coordinate(actions[i], means[i], log_std)
            means[i] = by_log_prob[i] * by_mean * share
            by_log_std += (by_log_prob[i] * by_std + by_entropy[i]) * share
        return by_log_std

    @inline
    def backward(outputs, place, numbers, slopes, heads, actions, free, free_slopes, share):
        for k in range(place[2]):
            free_slopes[k] += slopes_of(heads[k], actions[k], free[k], slopes[0], slopes[1], share)
            give_output(heads[k], outputs, place[0], place[1] + k)

    return forward, backward


#: Outputs are means, the network's free parameters the logarithms of standard deviations.
gaussian = Head(("log_prob", "entropy"), "vector", _make_gaussian)


# ---------------------------------------------------------------- losses


class Term(NamedTuple):
    """What a loss's machine code depends on; see `Loss`."""

    function: Callable[..., Any]
    head: Head
    num_statistics: int


@functools.cache
def make_term(dtype: type, term: Term, columns: tuple[str, ...], sample: Any) -> Callable[..., Any]:
    """`apply(outputs, place, rows, most, height, free, free_slopes, share, weights, sums)`.

    Writes derivatives in the place of outputs, and adds to `sums` the loss and its statistics. Of
    `rows` the first `most` are for numbers, as many for their slopes, then come columns, `height`
    rows of outputs, and actions.

    Args:
        dtype: of all numbers.
        term: the loss.
        columns: names of the columns of a minibatch.
        sample: NamedTuple with these fields.
    """
    forward, backward = term.head.make(dtype)
    inputs = [f"n{k}" for k in range(len(term.head.names))]
    results = [f"s{k}" for k in range(len(inputs))]
    given = [f"c{k}" for k in range(len(columns))]
    totals = ["t", *(f"t{k}" for k in range(term.num_statistics))]

    def tuple_of(names: list[str], item: str = "") -> str:
        return "(" + "".join(f"{name}{item}, " for name in names) + ")"

    made = f"Sample({', '.join(f'{name}[i]' for name in given)})" if columns else "()"
    lines = [
        f"def loop({', '.join([*inputs, *results, *given, 'weights'])}):",
        *(f"    {name} = zero" for name in totals),
        "    for i in range(s0.size):",
        f"        loss, slopes, seen = function({tuple_of(inputs, '[i]')}, {made}, weights)",
        *(f"        {name}[i] = slopes[{k}]" for k, name in enumerate(results)),
        "        t += loss",
        *(f"        {name} += seen[{k}]" for k, name in enumerate(totals[1:])),
        f"    return {tuple_of(totals)}",
    ]
    loop = inline(
        define(
            "\n".join(lines),
            function=specialise(term.function, dtype),
            Sample=sample,
            zero=dtype(0),
        )
    )
    arguments = [
        *(f"numbers[{k}]" for k in range(len(inputs))),
        *(f"slopes[{k}]" for k in range(len(inputs))),
        *(f"columns[{k}]" for k in range(len(given))),
    ]
    call = inline(
        define(
            f"def call(numbers, slopes, columns, weights): "
            f"return loop({', '.join(arguments)}, weights)",
            loop=loop,
        )
    )
    size = len(columns)

    @inline
    def apply(outputs, place, rows, most, height, free, free_slopes, share, weights, sums):
        numbers, slopes, given = rows[:most], rows[most : 2 * most], rows[2 * most :]
        heads = given[size:]
        taken = heads[height:]
        forward(outputs, place, numbers, slopes, heads, taken, free)
        totals = call(numbers, slopes, given, weights)
        for k in range(len(totals)):
            sums[k] += totals[k]
        backward(outputs, place, numbers, slopes, heads, taken, free, free_slopes, share)

    return apply


def _exp(x: float) -> float:
    return math.exp(x)


def _log(x: float) -> float:
    return math.log(x)
