"""Heads: what a network's outputs mean, to one who acts and to one who learns.

Acting is one scalar function, which rollouts compile into their kernels,

    act(outputs, uniforms, params, greedy) -> (action, log_prob)

with the outputs of one observation, random numbers in [0, 1), the network's free parameters, and
whether to take the most likely action in place of drawing one. The masked form of a head, which an
environment with action masks asks for, takes as a fifth argument which actions are allowed.

Learning works on a chunk of samples. A head makes the numbers of a loss of the outputs, and turns
the slopes of the loss by these numbers into slopes by the outputs. Networks write one row for each
sample; loops that vectorise run along samples. So `rows` of a chunk hold, each along the samples:
numbers, their slopes, columns, outputs transposed, actions; see `rlcpu.nn.losses`.

Sources: Williams (1992) for stochastic policies; the Gaussian is drawn by Box & Muller (1958).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compile import define, inline, specialise
from rlcpu.nn import duals

TWO_PI = 2.0 * math.pi
HALF_LOG_2_PI = 0.5 * math.log(TWO_PI)
#: Logit of an action that is not allowed: e**x is 0, and 0 * x is not NaN as for -inf.
FORBIDDEN = -1e30
#: Actions up to which kernels have lines for each, and so vectors of environments. Compiling these
#: takes time with the square of their number: half a minute for 250. Beyond there are loops.
UNROLLED = 32


class Head(NamedTuple):
    """What a network's outputs mean.

    Attributes:
        names: of the numbers that a loss sees.
        actions: what it reads of a sample beside outputs: "index", the number of the action taken;
            "masked", this number and, for each output, whether the action is allowed (1 or 0);
            "indices", the numbers of several actions that are taken together;
            "vector", one real number for each output; None if nothing.
        learn: dtype -> (forward, backward), to be inlined: `forward(outputs, place, numbers,
            slopes, heads, actions, free)` fills the rows of numbers (`slopes` is scratch),
            `backward(outputs, place, numbers, slopes, heads, actions, free, free_slopes, share)`
            writes derivatives in the place of outputs, times share, and adds those by the free
            parameters. `place` is (width of a row of outputs, first output, number of outputs).
        act: (number of outputs, masked=False) -> the scalar function that acts, plain Python; None
            if there is nothing to draw from. The Gaussian has no masked form.
    """

    names: tuple[str, ...]
    actions: str | None
    learn: Callable[[type], tuple[Callable[..., None], Callable[..., None]]]
    act: Callable[..., Callable[..., Any]] | None = None


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


# ---------------------------------------------------------------- outputs as they are


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


def _learn_of_action(dtype):
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
of_action = Head(("value",), "index", _learn_of_action)


# ---------------------------------------------------------------- one of several actions


def exponential(x: float) -> float:
    """e**x."""
    return math.exp(x)


def logarithm(x: float) -> float:
    """Natural logarithm."""
    return math.log(x)


@functools.cache
def act_categorical(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Scalar function that draws one of `size` actions from softmax(outputs).

    It inverts the cumulative distribution with one uniform number; greedy takes the largest logit,
    the first of equals. `masked` makes the logits of actions that are not allowed -inf: their
    probability is 0. Loops over actions are unrolled unless `loops`: outputs and mask may be arrays
    then.
    """
    if loops:
        return _loop_masked_categorical(size) if masked else _loop_categorical(size)
    if masked:
        return _act_masked_categorical(size)
    lines = ["top = logits[0]", "best = zero"]
    for k in range(1, size):
        lines += [f"best = i32({k}) if logits[{k}] > top else best", f"top = max(top, logits[{k}])"]
    lines += [f"e{k} = exp(logits[{k}] - top)" for k in range(size)]
    lines += ["c0 = e0"] + [f"c{k} = c{k - 1} + e{k}" for k in range(1, size)]
    lines += [f"mass = uniforms[0] * c{size - 1}", "action = zero"]
    lines += [f"action = i32({k + 1}) if mass >= c{k} else action" for k in range(size - 1)]
    lines += ["action = best if greedy else action", "logit = logits[0]"]
    lines += [f"logit = logits[{k}] if action == i32({k}) else logit" for k in range(1, size)]
    lines += [f"return action, logit - top - log(c{size - 1})"]
    source = "def act(logits, uniforms, params, greedy):" + "".join(f"\n    {x}" for x in lines)
    return define(source, i32=np.int32, zero=np.int32(0), exp=math.exp, log=math.log)


def _act_masked_categorical(size: int) -> Callable[..., Any]:
    """The same among allowed actions.

    Sums may be reordered and differ in the last bit, so that each choice asks for its permission.
    """
    lines = [f"m{k} = logits[{k}] if mask[{k}] else lowest" for k in range(size)]
    lines += ["top = lowest", "best = zero"]
    for k in range(size):
        lines += [f"best = i32({k}) if m{k} > top else best", f"top = max(top, m{k})"]
    lines += [f"e{k} = exp(m{k} - top) if mask[{k}] else 0.0" for k in range(size)]
    lines += ["c0 = e0"] + [f"c{k} = c{k - 1} + e{k}" for k in range(1, size)]
    lines += [f"mass = uniforms[0] * c{size - 1}", "action = best", "before = 0.0"]
    for k in range(size):
        lines += [f"action = i32({k}) if mask[{k}] and mass >= before else action"]
        lines += [f"before = c{k}"]
    lines += ["action = best if greedy else action", "logit = m0"]
    lines += [f"logit = m{k} if action == i32({k}) else logit" for k in range(1, size)]
    lines += [f"return action, logit - top - log(c{size - 1})"]
    source = "def act(logits, uniforms, params, greedy, mask):"
    source += "".join(f"\n    {line}" for line in lines)
    names = {"i32": np.int32, "zero": np.int32(0), "lowest": FORBIDDEN}
    return define(source, exp=math.exp, log=math.log, **names)


def _loop_categorical(size: int) -> Callable[..., Any]:
    """The first of these with loops."""
    i32, largest, exp, log = np.int32, loop_largest(size), exponential, logarithm

    def act(logits, uniforms, params, greedy):
        top, best = largest(logits)
        total, before, action = 0.0, 0.0, 0
        for k in range(size):
            total += exp(logits[k] - top)
        mass = uniforms[0] * total
        for k in range(size - 1):
            before += exp(logits[k] - top)
            if before > mass:
                break
            action = k + 1
        taken = best if greedy else i32(action)
        return taken, logits[taken] - top - log(total)

    return act


def _loop_masked_categorical(size: int) -> Callable[..., Any]:
    """The same among allowed actions."""
    i32, largest, lowest = np.int32, loop_largest(size, True), FORBIDDEN
    exp, log = exponential, logarithm

    def act(logits, uniforms, params, greedy, mask):
        top, best = largest(logits, mask)
        total, before, action = 0.0, 0.0, best
        for k in range(size):
            total += exp(logits[k] - top) if mask[k] else 0.0
        mass = uniforms[0] * total
        for k in range(size):
            if mask[k]:
                if before > mass:
                    break
                action = i32(k)
                before += exp(logits[k] - top)
        action = best if greedy else action
        return action, (logits[action] if mask[action] else lowest) - top - log(total)

    return act


@functools.cache
def loop_largest(size: int, masked: bool = False) -> Callable[..., Any]:
    """Scalar function: the largest of `size` numbers, and where the first of equals is."""
    i32, lowest = np.int32, FORBIDDEN

    def largest(numbers):
        top, best = numbers[0], i32(0)
        for k in range(1, size):
            best = i32(k) if numbers[k] > top else best
            top = max(top, numbers[k])
        return top, best

    def largest_allowed(numbers, mask):
        top, best = lowest, i32(0)
        for k in range(size):
            if mask[k]:
                best = i32(k) if numbers[k] > top else best
                top = max(top, numbers[k])
        return top, best

    return largest_allowed if masked else largest


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


def _make_softmax(dtype):
    """What forward and backward passes of categorical distributions consist of."""
    exp, log = specialise(exponential, dtype), specialise(logarithm, dtype)
    slope_of = specialise(categorical_slope, dtype)
    one, zero = dtype(1), dtype(0)

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
    def slopes_of(log_probs, taken, action, entropy, by_log_prob, by_entropy, share):
        for i in range(log_probs.size):
            hit = one if taken[i] == action else zero
            slope = slope_of(hit, log_probs[i], entropy[i], by_log_prob[i], by_entropy[i])
            log_probs[i] = slope * share

    return raise_to, add_exp, finish_normaliser, normalise, slopes_of


def _learn_categorical(dtype):
    raise_to, add_exp, finish_normaliser, normalise, slopes_of = _make_softmax(dtype)
    zero, lowest = dtype(0), dtype(-np.inf)

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
    def backward(outputs, place, numbers, slopes, heads, actions, free, free_slopes, share):
        for k in range(place[2]):
            slopes_of(heads[k], actions[0], dtype(k), numbers[1], slopes[0], slopes[1], share)
            give_output(heads[k], outputs, place[0], place[1] + k)

    return forward, backward


#: Outputs are logits: log-probability of the action taken, and entropy.
categorical = Head(("log_prob", "entropy"), "index", _learn_categorical, act_categorical)


def _learn_masked_categorical(dtype):
    forward_all, backward = _learn_categorical(dtype)
    nothing, lowest = dtype(0), dtype(FORBIDDEN)

    @inline
    def forbid(outputs, width, column, allowed):
        for i in range(allowed.size):
            logit = outputs[i * width + column]
            outputs[i * width + column] = logit if allowed[i] != nothing else lowest

    @inline
    def forward(outputs, place, numbers, slopes, heads, actions, free):
        for k in range(place[2]):
            forbid(outputs, place[0], place[1] + k, actions[1 + k])
        forward_all(outputs, place, numbers, slopes, heads, actions, free)

    return forward, backward


#: The same among allowed actions: the others have probability 0, and their logits no slope.
masked_categorical = Head(
    ("log_prob", "entropy"), "masked", _learn_masked_categorical, act_categorical
)


# ---------------------------------------------------------------- several whole numbers


@functools.cache
def _act_categoricals(choices: tuple[int, ...]) -> Callable[..., Any]:
    """Scalar function that draws one action from each of several categorical distributions.

    Their logits follow each other; see `act_categorical`.
    """
    lines, first = [], 0
    for j, count in enumerate(choices):
        logits = "".join(f"logits[{first + k}], " for k in range(count))
        lines.append(f"a{j}, l{j} = act{j}(({logits}), (uniforms[{j}],), params, greedy)")
        first += count
    actions, total = (sep.join(f"{x}{j}" for j in range(len(choices))) for x, sep in _JOINED)
    lines.append(f"return ({actions},), {total}")
    source = "def act(logits, uniforms, params, greedy):" + "".join(f"\n    {x}" for x in lines)
    return define(source, **{f"act{j}": act_categorical(n) for j, n in enumerate(choices)})


_JOINED = (("a", ", "), ("l", " + "))


@dataclasses.dataclass(frozen=True)
class _Act:
    """Makes the function of `categoricals` that acts."""

    choices: tuple[int, ...]

    def __call__(self, size: int, masked: bool = False) -> Callable[..., Any]:
        return _act_categoricals(self.choices)


@dataclasses.dataclass(frozen=True)
class _Learn:
    """Makes the functions of `categoricals` that learn."""

    choices: tuple[int, ...]

    def __call__(self, dtype):
        raise_to, add_exp, finish_normaliser, _, slopes_of = _make_softmax(dtype)
        exp, zero, lowest = specialise(exponential, dtype), dtype(0), dtype(-np.inf)
        choices = self.choices

        @inline
        def subtract(logits, normaliser, taken, action, picked):
            for i in range(logits.size):
                log_prob = logits[i] - normaliser[i]
                logits[i] = log_prob
                picked[i] += log_prob if taken[i] == action else zero

        @inline
        def add_entropy(entropy, log_probs):
            for i in range(entropy.size):
                entropy[i] -= exp(log_probs[i]) * log_probs[i]

        @inline
        def forward(outputs, place, numbers, slopes, heads, actions, free):
            picked, entropy, normaliser, total = numbers[0], numbers[1], slopes[0], slopes[1]
            fill(picked, zero)
            fill(entropy, zero)
            first = 0
            for j in range(len(choices)):
                fill(normaliser, lowest)
                for k in range(first, first + choices[j]):
                    take_output(heads[k], outputs, place[0], place[1] + k)
                    raise_to(normaliser, heads[k])
                fill(total, zero)
                for k in range(first, first + choices[j]):
                    add_exp(total, heads[k], normaliser)
                finish_normaliser(total, normaliser)
                for k in range(first, first + choices[j]):
                    subtract(heads[k], normaliser, actions[j], dtype(k - first), picked)
                    add_entropy(entropy, heads[k])
                first += choices[j]

        @inline
        def backward(outputs, place, numbers, slopes, heads, actions, free, free_slopes, share):
            entropy, first = numbers[1], 0
            for j in range(len(choices)):
                fill(entropy, zero)
                for k in range(first, first + choices[j]):
                    add_entropy(entropy, heads[k])
                for k in range(first, first + choices[j]):
                    action = dtype(k - first)
                    slopes_of(heads[k], actions[j], action, entropy, slopes[0], slopes[1], share)
                    give_output(heads[k], outputs, place[0], place[1] + k)
                first += choices[j]

        return forward, backward


def categoricals(choices: tuple[int, ...]) -> Head:
    """Independent categorical distributions of so many choices each; logits follow each other.

    Log-probability of the actions taken together, and entropy, are sums.
    """
    return Head(("log_prob", "entropy"), "indices", _Learn(choices), _Act(choices))


# ---------------------------------------------------------------- real numbers


def log_density(z: float, log_std: float) -> float:
    """Log-density of mean + exp(log_std) * z under Normal(mean, exp(log_std))."""
    return -0.5 * z * z - log_std - HALF_LOG_2_PI


def standard_normal(uniform: float, angle: float) -> float:
    """A standard normal number from two numbers in [0, 1)."""
    return math.sqrt(-2.0 * math.log(1.0 - uniform)) * math.cos(TWO_PI * (angle - 0.5))


@functools.cache
def act_gaussian(size: int) -> Callable[..., Any]:
    """Scalar function that draws `size` numbers, Normal(outputs[k], exp(params[k])).

    Each takes two uniform numbers; greedy takes the means.
    """
    lines = []
    for k in range(size):
        lines += [
            f"drawn = normal(uniforms[{2 * k}], uniforms[{2 * k + 1}])",
            f"z{k} = 0.0 if greedy else drawn",
            f"a{k} = means[{k}] + exp(log_stds[{k}]) * z{k}",
        ]
    lines += [f"l{k} = density(z{k}, log_stds[{k}])" for k in range(size)]
    actions = "".join(f"a{k}, " for k in range(size))
    lines += [f"return ({actions}), {' + '.join(f'l{k}' for k in range(size))}"]
    source = "def act(means, uniforms, log_stds, greedy):" + "".join(f"\n    {x}" for x in lines)
    return define(source, normal=standard_normal, density=log_density, exp=math.exp)


def gaussian_coordinate(action: float, mean: float, log_std: float) -> float:
    """Log-density of one coordinate."""
    return log_density((action - mean) * math.exp(-log_std), log_std)


def _learn_gaussian(dtype):
    coordinate = specialise(gaussian_coordinate, dtype)
    zero, entropy_of_unit = dtype(0), dtype(0.5 + HALF_LOG_2_PI)
    zeros = (zero, zero)

    @inline
    def add_log_prob(means, actions, log_std, picked):
        for i in range(picked.size):
            picked[i] += coordinate(actions[i], means[i], log_std)

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
            mean, deviation = duals.variables((means[i], log_std))
            by_mean, by_std = duals.slopes_of(coordinate(actions[i], mean, deviation), zeros)
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
gaussian = Head(("log_prob", "entropy"), "vector", _learn_gaussian, act_gaussian)
