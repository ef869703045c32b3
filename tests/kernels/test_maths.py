"""Errors, special values and machine code of the float32 mathematics.

Errors are measured on every 2039th float32, with the points where such code fails added; with
RLCPU_EXHAUSTIVE=1 in the environment on all of them (minutes).
"""

import math
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit

from rlcpu.kernels.compiler import maths
from rlcpu.kernels.compiler.compile import define, kernel, specialise

STRIDE = 1 if os.environ.get("RLCPU_EXHAUSTIVE") == "1" else 2039
CHUNK = 2**23
TINY = float(np.finfo(np.float32).tiny)
HUGE = float(np.finfo(np.float32).max)


class Bound(NamedTuple):
    """On [low, high] the error is at most `ulp` units in the last place + `slope` * abs(x)."""

    low: float
    high: float
    ulp: float
    slope: float = 0.0


BOUNDS = {
    "sin": Bound(-1e5, 1e5, 1.9, 1.2e-15),
    "cos": Bound(-1e5, 1e5, 1.9, 1.2e-15),
    "exp": Bound(-87.3365, 88.7228, 1.1),
    "log": Bound(1e-45, HUGE, 1.0),
    "tanh": Bound(-HUGE, HUGE, 2.5),
}
INF, NAN = math.inf, math.nan
SPECIAL_VALUES = {
    "sin": {0.0: 0.0, INF: NAN, -INF: NAN, NAN: NAN},
    "cos": {0.0: 1.0, INF: NAN, -INF: NAN, NAN: NAN},
    "exp": {0.0: 1.0, 89.0: INF, 1e38: INF, INF: INF, -88.0: 0.0, -INF: 0.0, NAN: NAN},
    "log": {1.0: 0.0, 0.0: -INF, -1e-45: NAN, -1.0: NAN, -INF: NAN, INF: INF, NAN: NAN},
    "tanh": {1e-45: 1e-45, 9.1: 1.0, -9.1: -1.0, HUGE: 1.0, INF: 1.0, -INF: -1.0, NAN: NAN},
    "floor": {-0.5: -1.0, 2.0**31: 2.0**31, -INF: -INF, NAN: NAN},
    "ceil": {0.5: 1.0, -1.5: -1.0, 1e30: 1e30, INF: INF, NAN: NAN},
    "trunc": {1.5: 1.0, -1.5: -1.0, -1e30: -1e30, INF: INF, NAN: NAN},
}


def named(name: str) -> Callable[..., Any]:
    """The function of `math` as a user calls it."""
    return define(f"def call(x): return math.{name}(x)", math=math)


def make_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    scalar = specialise(function, np.float32)

    def loop(x, out):
        for i in range(x.shape[0]):
            out[i] = scalar(x[i])

    return loop


def evaluate(name: str, x: np.ndarray) -> np.ndarray:
    if name not in _compiled:
        _compiled[name] = kernel(make_loop(named(name)))
    out = np.empty_like(x)
    _compiled[name](x, out)
    return out


_compiled: dict[str, Callable[..., Any]] = {}


def ordinals(values: float | np.ndarray) -> np.ndarray:
    """Position of a float32 among all of them, 0 for zero."""
    words = np.asarray(values, np.float32).view(np.int32).astype(np.int64)
    return np.where(words < 0, -(words & 0x7FFFFFFF), words)


def from_ordinals(positions: np.ndarray) -> np.ndarray:
    words = np.where(positions < 0, -positions | 0x80000000, positions)
    return words.astype(np.uint32).view(np.float32)


def nasty_points() -> np.ndarray:
    """Where reductions cancel and where exponents change, with the 8 neighbours on both sides."""
    halves = np.arange(-(2**16), 2**16, dtype=np.float64)
    centres = [
        halves * (math.pi / 4),
        halves * 40.5 * (math.pi / 4),
        np.arange(-300, 300) * (math.log(2.0) / 4),
        np.ldexp(1.0, np.arange(-149, 128)),
        np.ldexp(math.sqrt(0.5), np.arange(-149, 128)),
        np.array([0.0, -87.3365402, 88.7228317, 88.376, 9.0, 9.5]),
    ]
    around = ordinals(np.concatenate(centres).astype(np.float32))[:, None] + np.arange(-8, 9)
    return from_ordinals(np.concatenate([around.ravel(), -around.ravel()]))


def points(bound: Bound) -> Iterator[np.ndarray]:
    nasty = nasty_points()
    yield nasty[(nasty >= np.float32(bound.low)) & (nasty <= np.float32(bound.high))]
    first, last = int(ordinals(bound.low)), int(ordinals(bound.high)) + 1
    for start in range(first, last, CHUNK * STRIDE):
        yield from_ordinals(np.arange(start, min(start + CHUNK * STRIDE, last), STRIDE))


def ulp(exact: np.ndarray) -> np.ndarray:
    """Distance between float32 numbers around a float64."""
    return np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 24, -149))


def excess(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Error in ulp, less the part of the bound that grows with x."""
    wide = x.astype(np.float64)
    exact = getattr(np, name)(wide)
    allowed = BOUNDS[name].slope * np.abs(wide)
    return (np.abs(y - exact) - allowed) / ulp(np.maximum(np.abs(exact), allowed))


@pytest.mark.parametrize("name", BOUNDS)
def test_error_stays_within_its_bound(name):
    worst = max(excess(name, x, evaluate(name, x)).max() for x in points(BOUNDS[name]))
    print(f"{name}: {worst:.3f} ulp")
    assert 0.5 < worst <= BOUNDS[name].ulp


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize(("reach", "limit"), [(math.pi, 1.2e-7), (2.0**22, 3e-6)])
def test_absolute_error(name, reach, limit):
    for x in points(Bound(-reach, reach, 0.0)):
        exact = getattr(np, name)(x.astype(np.float64))
        assert np.abs(evaluate(name, x) - exact).max() <= limit


@pytest.mark.parametrize("name", SPECIAL_VALUES)
def test_special_values(name):
    x, expected = np.array([*SPECIAL_VALUES[name].items()], np.float32).T.copy()
    np.testing.assert_array_equal(evaluate(name, x), expected)


def test_exp_overflows_and_underflows_where_float32_does():
    x = from_ordinals(np.arange(ordinals(88.7), ordinals(88.8)))
    assert np.array_equal(np.isinf(evaluate("exp", x)), np.exp(x.astype(float)) > HUGE)
    x = from_ordinals(np.arange(ordinals(-87.4), ordinals(-87.3)))
    y = evaluate("exp", x)
    assert np.array_equal(y == 0.0, np.exp(x.astype(float)) < TINY)
    assert y[y != 0.0].min() >= TINY


def test_tanh_is_odd_bounded_and_monotone_up_to_two_ulp():
    for x in points(Bound(0.0, 20.0, 0.0)):
        y = evaluate("tanh", x)
        assert np.array_equal(evaluate("tanh", -x), -y)
        assert ((y >= 0.0) & (y <= 1.0)).all()
    for start in (1e-3, 0.17, 0.5, 1.0, 3.1, 8.5):
        run = from_ordinals(int(ordinals(start)) + np.arange(100_000))
        y = evaluate("tanh", run).astype(np.float64)
        assert (np.diff(y) >= -2.0 * ulp(y[:-1])).all()


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_whole_numbers(name):
    for x in points(Bound(-HUGE, HUGE, 0.0)):
        assert np.array_equal(evaluate(name, x), getattr(np, name)(x))


def test_fmod_is_exact_below_its_limit():
    remainder = specialise(maths.fmod, np.float32)

    @njit(error_model="numpy")
    def loop(x, y, out):
        for i in range(x.shape[0]):
            out[i] = remainder(x[i], y[i])

    rng = np.random.default_rng(0)
    y = rng.uniform(0.1, 10.0, 10**6).astype(np.float32) * rng.choice([-1, 1], 10**6)
    x = np.ldexp(rng.uniform(-1.0, 1.0, 10**6), rng.integers(-3, 19, 10**6)).astype(np.float32)
    x[::2] = (y * np.round(x / y))[::2]  # next to a multiple
    x, y = x.astype(np.float32), y.astype(np.float32)
    out = np.empty_like(x)
    loop(x, y, out)
    np.testing.assert_array_equal(out, np.fmod(x, y))


@pytest.mark.parametrize("name", BOUNDS)
def test_plain_python_gives_the_same_bits(name):
    low, high = max(BOUNDS[name].low, -30.0), min(BOUNDS[name].high, 30.0)
    x = np.linspace(max(low, 1e-3) if name == "log" else low, high, 1001).astype(np.float32)
    plain = np.array([maths.FLOAT32[name](value) for value in x], np.float32)
    assert np.array_equal(plain, evaluate(name, x))
    of_floats = np.array([maths.FLOAT32[name](float(value)) for value in x], np.float32)
    assert excess(name, x, of_floats).max() <= BOUNDS[name].ulp


@pytest.mark.parametrize("name", BOUNDS)
def test_vector_and_remainder_give_the_same_bits(name):
    x = np.linspace(0.01, 40.0, 4 * 67).astype(np.float32)
    whole = evaluate(name, x)
    for size in (1, 3, 17, 67):
        parts = [evaluate(name, x[i : i + size]) for i in range(0, x.size, size)]
        assert np.array_equal(np.concatenate(parts), whole)


@kernel
def make_of_bits(words, results):
    for i in range(len(words)):
        results[i] = maths.from_bits(words[i])


def test_words_of_any_sign_and_width_make_the_number_of_their_low_bits() -> None:
    """Of -1.0 the word is negative as `bits` returns it, and 0xBF800000 without its sign."""
    numbers = np.array([0.0, -0.0, 1.0, -1.0, TINY, -HUGE, np.inf, -np.inf, 1e-45], np.float32)
    signed = np.array([maths.bits(float(x)) for x in numbers])
    for words in (signed, signed & 0xFFFFFFFF, signed + 2**32, signed - 2**33):
        results = np.zeros(len(words), np.float32)
        make_of_bits(words, results)
        plain = np.array([maths.from_bits(int(word)) for word in words])
        assert plain.dtype == np.float32
        for made in (results, plain):
            np.testing.assert_array_equal(made.view(np.int32), numbers.view(np.int32))
