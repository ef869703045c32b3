"""Machine code of the float32 mathematics, and the building blocks that it is made of."""

import math
import platform
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit

from rlcpu.kernels.compiler import maths
from rlcpu.kernels.compiler.compile import FAST, kernel, specialise
from rlcpu.kernels.machine.vectors import VECTOR_BYTES
from tests.kernels.test_maths import (
    BOUNDS,
    HUGE,
    INF,
    evaluate,
    make_loop,
    named,
)

# ---------------------------------------------------------------- machine code

x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or VECTOR_BYTES == 16,
    reason="reads x86 code with AVX",
)
LIBM = re.compile(r"\b(?:sin|cos|exp|exp2|ldexp|log|tanh|floor|ceil|trunc|fma|fmod)f?\b")
DOUBLE = re.compile(r"\bv?(?:add|sub|mul|div|sqrt|max|min|cvt\w*|round|fn?m(?:add|sub)\d+)[sp]d\b")


def assembly(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    compiled = njit(error_model="numpy", fastmath=FAST, nogil=True)(function)
    compiled(*arguments)
    return next(iter(compiled.inspect_asm().values()))


@x86
@pytest.mark.parametrize("name", [*BOUNDS, "floor", "ceil", "trunc"])
def test_loops_are_vector_code(name):
    x = np.ones(64, np.float32)
    code = assembly(make_loop(named(name)), (x, x.copy()))
    assert len(re.findall(r"%[yz]mm\d", code)) >= 8
    assert LIBM.findall(code) == []
    assert DOUBLE.findall(code) == []


@x86
def test_the_search_for_libm_and_double_finds_them():
    def loop(x, out):
        for i in range(x.shape[0]):
            out[i] = math.tanh(x[i]) * 0.1

    x = np.ones(64, np.float32)
    code = assembly(loop, (x, x.copy()))
    assert set(LIBM.findall(code)) == {"tanhf"}
    assert DOUBLE.search(code)


@x86
def test_sin_and_cos_of_one_argument_share_their_work():
    sine, cosine = specialise(maths.sin, np.float32), specialise(maths.cos, np.float32)

    def both(x):
        return sine(x), cosine(x)

    def alone(x):
        return sine(x)

    x = (np.float32(1.0),)
    fused = [len(re.findall(r"\bvfn?m\w+", assembly(f, x))) for f in (both, alone)]
    assert fused[0] == fused[1] > 0


# ---------------------------------------------------------------- building blocks


def test_replaces_math_in_a_specialised_function():
    def user(x):
        return math.tanh(x) + 2.0 * math.floor(x)

    x = np.linspace(-3.0, 3.0, 100, dtype=np.float32)
    out = np.empty_like(x)
    kernel(make_loop(user), fastmath=False)(x, out)
    np.testing.assert_array_equal(out, evaluate("tanh", x) + np.float32(2.0) * np.floor(x))


def test_fma_rounds_once():
    @njit
    def compiled(a, b, c):
        return maths.fma(a, b, c)

    rng = np.random.default_rng(0)
    for a, b, c in rng.normal(size=(300, 3)).astype(np.float32):
        c = -a * b + c * np.float32(1e-7)  # the product cancels
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        assert compiled(a, b, c) == np.float32(float(exact)) == maths.fma(a, b, c)


@pytest.mark.parametrize("x", [0.0, 1.0, -2.5, 1e-45, HUGE, -INF])
def test_bits_and_back(x):
    @njit
    def back(x):
        return maths.from_bits(maths.bits(x)), maths.bits(x)

    single = np.float32(x)
    assert back(single) == (single, int(single.view(np.int32)))
    assert maths.from_bits(maths.bits(single)) == single


@pytest.mark.parametrize("word", [0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**33 + 5])
def test_from_int_takes_the_low_word(word):
    @njit
    def compiled(word):
        return maths.from_int(word)

    signed = (word + 2**31) % 2**32 - 2**31
    assert compiled(word) == np.float32(signed) == maths.from_int(word)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_to_single_rounds_and_keeps_the_dtype(dtype):
    @njit(fastmath=FAST)
    def loop(x, out):
        for i in range(x.shape[0]):
            out[i] = maths.round_to_single(x[i] * x[i])

    x = np.random.default_rng(0).normal(size=1000).astype(dtype)
    out = np.empty_like(x)
    loop(x, out)
    np.testing.assert_array_equal(out, (x * x).astype(np.float32).astype(dtype))
    plain = maths.round_to_single(x[0] * x[0])
    assert plain == out[0]
    assert isinstance(plain, np.float32) == (dtype is np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_are_those_of_libm_and_numpy(dtype):
    @njit(fastmath=FAST)
    def loop(x, powers, squares):
        for i in range(x.shape[0]):
            powers[i] = maths.libm_pow(x[i], x.dtype.type(2.0))
            squares[i] = maths.single_square(x[i])

    x = np.random.default_rng(0).normal(size=20_000).astype(dtype)
    powers, squares = np.empty_like(x), np.empty_like(x)
    loop(x, powers, squares)
    if dtype is np.float64:
        assert powers.tolist() == [maths.libm_pow(value, 2.0) for value in x.tolist()]
        assert squares.tolist() == [maths.single_square(value) for value in x.tolist()]
    else:
        np.testing.assert_array_equal(squares, x * x)
        np.testing.assert_array_max_ulp(powers, x * x, 1)


class Pair(NamedTuple):
    first: float
    rest: tuple[float, float]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_cut_leaves_numbers_as_they_are_and_stays_in_the_code(dtype):
    @njit(fastmath=FAST)
    def loop(x, out):
        for i in range(x.shape[0]):
            pair, (low, _) = maths.cut((Pair(x[i], (x[i] * x[i], x[i] + x[i])), (-x[i], 3)))
            out[i] = pair.first + pair.rest[0] + pair.rest[1] + low

    x = np.array([0.0, 1.0, -3.0, 0.1, 1e-30, math.nan], dtype)
    out = np.empty_like(x)
    loop(x, out)
    np.testing.assert_array_equal(out, x * x + (x + x))
    code = next(iter(loop.inspect_llvm().values()))
    assert len(re.findall(r"call.*@llvm.canonicalize\.", code)) >= 4
    assert maths.cut(pair := Pair(1.0, (2.0, 3.0))) is pair
