"""Numbers of a distribution from one word of 32 random bits, by inverting a distribution function.

One word makes one number, without a loop that some lanes leave before others: draws vectorise, a
larger word is no smaller a number, and what is drawn first does not move what is drawn next. Every
function is plain Python of numbers, which computes in float32 or float64 in IEEE arithmetic, so
that kernels and plain Python give the same bits.

There are 2**32 words, and nothing rarer than 2**-33 is drawn: normal numbers end at 6.2,
exponential ones at 22.2.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compiler import maths
from rlcpu.kernels.compiler.compile import define
from rlcpu.kernels.compiler.functions import rebuild

_i32, _u32 = np.int32, np.uint32
_HALF, _LARGEST = np.uint32(0x80000000), np.int32(0x7FFFFFFF)

#: Variance up to which a count is found by adding up probabilities, and the number of these.
SMALL, TERMS = 9.0, 36


def normal(word: int) -> float:
    """Return the standard normal number of a word.

    Wichura (1988), algorithm AS 241, PPND7: quotients of polynomials, 1e-7 off relatively. One for
    the centre and one for the tail, of which lanes differ in the coefficients alone.
    """
    signed = _i32(_u32(word) ^ _HALF)  # from -2**31 to 2**31 - 1: the middle word becomes 0
    is_negative = signed < _i32(0)
    distance = _i32(~signed) if is_negative else signed  # words from the median, from 0 on
    from_median = (float(distance) + 0.5) * 2.0**-32  # probability between number and median
    tail = (float(_i32(_LARGEST - distance)) + 0.5) * 2.0**-32  # and beyond the number, exactly
    is_central = from_median <= 0.425
    x = 0.180625 - from_median * from_median if is_central else math.sqrt(-math.log(tail)) - 1.6
    a, b, c, d = (
        (3.3871327179, 50.434271938, 159.29113202, 59.109374720)
        if is_central
        else (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103)
    )
    e, f, g = (
        (17.895169469, 78.757757664, 67.187563600)
        if is_central
        else (0.73700164250, 0.12021132975, 0.0)
    )
    z = (a + x * (b + x * (c + x * d))) / (1.0 + x * (e + x * (f + x * g)))
    z = z * from_median if is_central else z
    return -z if is_negative else z


def exponential(word: int) -> float:
    """Return the exponential number of mean 1 of a word."""
    return -math.log((float(_u32(~_u32(word))) + 1.0) * 2.0**-32)


def poisson(word: Any, lam: float) -> Any:
    """Return the Poisson number of mean `lam` of a word.

    Exact but for rounding up to a mean of 9. Above, one word in 30,000 gives a neighbour of its
    number; in float32 one in 2,000 at a mean of 10,000, one in 100 at 100,000.
    """
    is_small = lam <= SMALL  # both ways are computed, so that lanes vectorise
    exact = count_below(u=_uniform(word), first=math.exp(-lam), a=lam, b=0.0)
    mean = SMALL if is_small else lam  # a harmless one for the way that is not taken
    w, moments = normal(word), _Moments(mean, deviation=math.sqrt(mean), skew=1.0, excess=1.0)
    x = max(_start(w, moments), 0.02 * mean)  # positive, for the logarithm
    t, u = math.log(x / mean), (x - mean) / math.sqrt(x)
    edge = _edge(w, x, moments, _deviance(x, mean), t, u)
    approximate = max(edge - 0.0218 / (edge + 0.065 * mean), 0.0)  # Giles's last correction
    return _i32(exact if is_small else approximate)


def binomial(word: Any, n: int, p: float) -> Any:
    """Return how many of `n` trials succeed that do so with probability `p`, of a word.

    Up to a variance of 9 exact but for rounding. Above, one word in 4,000 gives a neighbour of its
    number, and fewer the larger the variance is; in float32 as for `poisson`.
    """
    is_mirrored = p > 0.5  # then failures are counted, by the mirrored word
    trials = float(n)
    p, word = (1.0 - p if is_mirrored else p), (_u32(~_u32(word)) if is_mirrored else _u32(word))
    q = 1.0 - p
    is_small = trials * p * q <= SMALL
    # log(1 - p) from the rounded 1 - p and what was lost to rounding (Kahan).
    lost = 1.0 - q
    log_q = -p if lost == 0.0 else math.log(q) * (p / lost)
    odds = p / q
    exact = count_below(u=_uniform(word), first=math.exp(trials * log_q), a=trials * odds, b=odds)
    # As in `poisson`: both ways are computed, one with harmless numbers. x stays inside of (0, n),
    # for the sake of the logarithms: no word reaches 0.02 of either mean.
    p, q = (0.5 if is_small else p), (0.5 if is_small else q)
    mean, mean_failures, skew = trials * p, trials * q, q - p
    moments = _Moments(mean, deviation=math.sqrt(mean * q), skew=skew, excess=1.0 - 6.0 * p * q)
    w = normal(word)
    x = max(_start(w, moments), 0.02 * mean)
    x = min(x, trials - 0.02 * mean_failures)
    failures = trials - x
    t = math.log(x * q / (p * failures))
    u = (x - mean) / (q * x) * math.sqrt(x * failures / trials)
    deviance = _deviance(x, mean) + _deviance(failures, mean_failures)
    edge = _edge(w, x, moments, deviance, t, u)
    # Giles's last correction of Poisson numbers, times skew / q, which is 1 where p is 0.
    approximate = max(edge - 0.0218 * skew / (q * (edge + 0.065 * mean)), 0.0)
    count = _i32(min(exact if is_small else approximate, trials))
    return _i32(_i32(n) - count) if is_mirrored else count


@functools.cache
def make_categorical(count: int | None) -> Callable[..., Any]:
    """Return the function (word, weights) -> index, each as likely as its share of all weights.

    `count` is the length of a tuple of weights; None for an array. Of a tuple the code of
    `_categorical_of_array` is written out: its items may be of several types.
    """
    if count is None:
        return _categorical_of_array
    lines = [f"sum{k} = {f'sum{k - 1} + ' if k else ''}float(weights[{k}])" for k in range(count)]
    lines += [f"level = _level(word, sum{count - 1})", "index = _i32(0)"]
    lines += [f"index += _i32(level >= sum{k})" for k in range(count - 1)]
    body = "\n    ".join([*lines, "return index"])
    return define(f"def categorical(word, weights):\n    {body}", _level=_level, _i32=_i32)


def _categorical_of_array(word: int, weights: Any) -> Any:
    """Return the index in whose share of the weights' sum a random level falls.

    It is the number of shares that end at or below the level; the last share needs no look.
    """
    total = 0.0
    for weight in weights:
        total += float(weight)
    level, total, index = _level(word, total), 0.0, _i32(0)
    for weight in weights[:-1]:
        total += float(weight)
        index += _i32(level >= total)
    return index


def _level(word: int, total: float) -> float:
    """Return a number from 0 to below `total`; in float32, of 24 bits, the word may round up."""
    return min(float(_u32(word)) * 2.0**-32, 1.0 - 2.0**-24) * total


def _uniform(word: int) -> float:
    """Return a number in (0, 1); in float32 it may round up to 1."""
    return (float(_u32(word)) + 0.5) * 2.0**-32


def _make_count_below() -> Callable[..., Any]:
    """Return `count_below`, see below, with its loop written out: LLVM keeps long loops."""
    lines = ["term = total = first", "count = 0.0"]
    for k in range(TERMS):
        lines += ["count += 1.0 if u >= total else 0.0"]
        lines += [f"term *= (a - b * {float(k)}) * {1.0 / (k + 1)}", "total += term"]
    body = "\n    ".join([*lines, "return count"])
    return define(f"def count_below(u, first, a, b):\n    {body}")


#: (u, first, a, b) -> how many of the sums of the first 1, 2, ... probabilities are at most u: the
#: count whose share of [0, 1) holds u. Probability k + 1 is (a - b k) / (k + 1) times probability k
#: (Panjer 1981), and `first` is that of 0.
count_below = _make_count_below()

# A count is at most k - 1 where its normal number is below the one of the edge k. Where variances
# are not small, Barndorff-Nielsen's r* = r + log(u / r) / r of a lattice (Daniels 1987)
# says which: with the deviance D of x, r = sign(x - mean) sqrt(2 D), t = D'(x), and K the cumulant
# function, u = (1 - exp(-t)) sqrt(K''(t)). For Poisson numbers that is the inverse of Giles (2016),
# "Algorithm 955: approximation of the inverse Poisson cumulative distribution function", whose last
# correction has the constants 0.0218 and 0.065.


class _Moments(NamedTuple):
    """A distribution, by derivatives of its cumulant function K."""

    mean: float
    deviation: float  # square root of the variance K''(0)
    skew: float  # K'''(0) / K''(0)
    excess: float  # K''''(0) / K''(0)


def _start(w: float, moments: _Moments) -> float:
    """Return where to begin `_edge`: the x of r = w, a normal number, to third order in w."""
    skew, excess = moments.skew, moments.excess
    s = w / moments.deviation
    slope = 1.0 + s * (skew / 6.0 + s * (excess / 24.0 - skew * skew / 18.0))
    return moments.mean + moments.deviation * w * slope


def _edge(w: float, x: float, moments: _Moments, deviance: float, t: float, u: float) -> float:
    """Return the edge of r* = w, a normal number, by one step of Newton's from x, which is close.

    That is x + (w - r*) dx/dr, and dx/dr = r / t: x + (w - r) r / t + log(r / u) / t. Near the
    mean, where r, t and u are 0, `slope` = r / t and `shift` = log(r / u) / t are the first terms
    of their series in t. `deviance`, t and u are those of x, see above.
    """
    mean, deviation, skew, excess = moments
    size = math.sqrt(2.0 * max(deviance, 0.0))
    r = size if x >= mean else -size
    is_near = abs(t) < 0.04
    divisor = 1.0 if is_near else t  # both ways are computed: nothing is divided by 0
    slope = deviation * (1.0 + skew * w / (3.0 * deviation)) if is_near else r / divisor
    ratio = 1.0 if is_near else r / u
    first, second = 0.5 - skew / 6.0, 1.0 / 24.0 + excess / 8.0 - skew * skew * (5.0 / 36.0)
    shift = first - t * second if is_near else math.log(ratio) / divisor
    return x + (w - r) * slope + shift


def _deviance(x: float, mean: float) -> float:
    """Return x log(x / mean) + mean - x, by a series where that would cancel (Loader 2000)."""
    v = (x - mean) / (x + mean)
    z = v * v
    series = z * (1.0 / 3.0 + z * (0.2 + z * (1.0 / 7.0 + z * (1.0 / 9.0))))
    close = (x - mean) * v + 2.0 * x * v * series
    return close if abs(v) < 0.25 else x * math.log(x / mean) + mean - x


# ---------------------------------------------------------------- plain Python


@functools.cache
def in_python(function: Any, dtype: type) -> Callable[..., Any]:
    """Return a function of this module in plain Python that computes in a dtype, as kernels do."""
    of_math: dict[str, Any] = {"sqrt": np.sqrt}  # Python's own for the rest
    if dtype is np.float32:
        of_math |= {"log": maths.log, "exp": maths.exp}
    copies: dict[Any, Any] = {}  # filled with the copy of `function` and of all that it calls

    def convert(name_in_function: str, value: Any) -> Any:
        """Return what the copy reads for a value: our mathematics, and copies of functions."""
        if getattr(value, "__module__", "") == "math":
            return of_math.get(value.__name__, value)
        is_function = isinstance(value, types.FunctionType)
        return rebuild(value, convert, stays, copies) if is_function else value

    def stays(module: Any) -> bool:
        """Tell whether the copy reads a module itself, not its converted members."""
        return module is not math

    in_dtype = rebuild(function, convert, stays, copies)
    for copy in copies.values():
        copy.__globals__["float"] = dtype

    def draw(*inputs: Any) -> Any:
        """Return a number, as Python has it, of a word and of Python's numbers."""
        with np.errstate(all="ignore"):
            drawn = in_dtype(*(dtype(x) if isinstance(x, float) else x for x in inputs))
        return int(drawn) if isinstance(drawn, np.integer | int) else float(drawn)

    return draw
