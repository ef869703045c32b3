"""Elementary functions of float32 that vectorise.

pip's numba has no vector mathematics library: `math.sin` in a kernel calls libm once a lane. The
functions here are plain Python without branches, tables or double arithmetic, which LLVM turns into
straight vector code. `rlcpu.kernels.compile.specialise` puts them in the place of `math.*` in
float32 kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

#: No fast-math: "reassoc" would turn the range reduction (x - k * high) - k * low into
#: x - k * (high + low), and (x + _SHIFT) - _SHIFT, which rounds to a whole number, into x.
FASTMATH = False

_SHIFT = 12582912.0  # 1.5 * 2**23: adding it leaves a whole number in the low bits of the sum
_INFINITY = math.inf
_NAN = math.nan

# ---------------------------------------------------------------- what plain Python cannot say


def fma(a: float, b: float, c: float) -> float:
    """`a * b + c` in float32, rounded once (in plain Python, once in 1e8 times twice)."""
    return np.float32(float(a) * float(b) + float(c))


def bits(x: float) -> int:
    """The 32 bits of a float32, as a signed integer."""
    return int(np.float32(x).view(np.int32))


def from_bits(word: int) -> float:
    """The float32 made of the low 32 bits of `word`."""
    return np.uint32(word & 0xFFFFFFFF).view(np.float32)


def from_int(word: int) -> float:
    """The signed integer in the low 32 bits of `word`, rounded to float32."""
    return np.float32((word + 0x80000000 & 0xFFFFFFFF) - 0x80000000)


def round_down(x: float) -> float:
    """The greatest whole number up to `x`, as a float32."""
    return np.floor(np.float32(x))


def round_to_single(x: float) -> float:
    """`x` rounded to float32, in the dtype of `x`: what keeping it in a float32 array costs."""
    return x if isinstance(x, np.float32) else float(np.float32(x))


#: Functions that compile to an instruction of their own: to be called as they are, not specialised.
OVERLOADED = frozenset({fma, bits, from_bits, from_int, round_down, round_to_single})


_FLOAT, _WORD, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_single, _long = types.float32, types.int64


@intrinsic
def _fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    signature = _single(_single, _single, _single)
    return signature, lambda _, builder, __, values: builder.fma(*values)


def _unary(signature: Any, build: Callable[[Any, Any], Any]) -> Any:
    def define(context: Any, x: Any) -> Any:
        return signature, lambda _, builder, __, values: build(builder, values[0])

    return intrinsic(define)


def _floor(builder: Any, x: Any) -> Any:
    return builder.call(builder.module.declare_intrinsic("llvm.floor", [_FLOAT]), [x])


_bits = _unary(_long(_single), lambda to, x: to.sext(to.bitcast(x, _WORD), _LONG))
_from_bits = _unary(_single(_long), lambda to, x: to.bitcast(to.trunc(x, _WORD), _FLOAT))
_from_int = _unary(_single(_long), lambda to, x: to.sitofp(to.trunc(x, _WORD), _FLOAT))
_round_down = _unary(_single(_single), _floor)

overload(fma)(lambda a, b, c: lambda a, b, c: _fma(a, b, c))
overload(bits)(lambda x: lambda x: _bits(x))
overload(from_bits)(lambda word: lambda word: _from_bits(word))
overload(from_int)(lambda word: lambda word: _from_int(word))
overload(round_down)(lambda x: lambda x: _round_down(x))


@overload(round_to_single)
def _round_to_single(x):  # type: ignore[no-untyped-def]
    return (lambda x: np.float64(np.float32(x))) if x == types.float64 else (lambda x: x)


# ---------------------------------------------------------------- functions


def _sin_cos(x: float) -> tuple[int, float, float]:
    """Sine and cosine of `x` but for a swap, and whether to swap them: one reduction for both."""
    shifted = fma(x, 0.63661975, _SHIFT)  # 2 / pi
    quarters = shifted - _SHIFT
    r = fma(quarters, 4.371139e-08, fma(quarters, -1.5707964, x))  # exact, then rounded once
    z = r * r
    sine = fma(r * z, fma(z, fma(z, -1.95139612e-04, 8.33213795e-03), -1.66666538e-01), r)
    cosine = fma(z, fma(z, fma(z, -1.35966158e-03, 4.16561328e-02), -4.99998897e-01), 1.0)
    word = bits(shifted)
    sign = word << 30 & 0x80000000
    return word & 1, from_bits(bits(sine) ^ sign), from_bits(bits(cosine) ^ sign)


def sin(x: float) -> float:
    odd, sine, cosine = _sin_cos(x)
    return cosine if odd else sine


def cos(x: float) -> float:
    odd, sine, cosine = _sin_cos(x)
    return -sine if odd else cosine


def exp(x: float) -> float:
    shifted = fma(x, 1.4426950, _SHIFT)
    power = shifted - _SHIFT
    r = fma(power, 1.9046543e-09, fma(power, -0.69314718, x))
    z = r * r
    low = fma(r, 1.6666520e-01, 4.9999993e-01)
    high = fma(z, 1.3814540e-03, fma(r, 8.3687451e-03, 4.1668391e-02))
    mantissa = 1.0 + fma(z, fma(z, high, low), r)
    y = from_bits(bits(mantissa) + (bits(shifted) << 23))
    y = 0.0 if x < -87.336544 else y
    return y if x <= 88.722839 else x + _INFINITY


def log(x: float) -> float:
    subnormal = x < 1.17549435e-38
    word = bits(x * 8388608.0 if subnormal else x)
    exponent = (word - 0x3F3504F3) & -0x800000  # 0x3F3504F3: sqrt(1/2)
    f = from_bits(word - exponent) - 1.0
    power = fma(from_int(exponent), 1.1920929e-07, -23.0 if subnormal else 0.0)
    z = f * f
    p = fma(z, fma(f, -0.0763449796, 0.127615771), fma(f, -0.131601820, 0.142017580))
    p = fma(z, p, fma(f, -0.166233574, 0.200012269))
    p = fma(z, p, fma(f, -0.250008210, 0.333333317))
    y = fma(z, fma(f, p, -0.5), fma(power, -1.9046543e-09, f))
    y = fma(power, 0.69314718, y)
    y = y if x < _INFINITY else x
    return (-_INFINITY if x == 0.0 else _NAN) if x <= 0.0 else y


def tanh(x: float) -> float:
    x = min(max(x, -9.5), 9.5)
    shifted = fma(x, 2.8853901, _SHIFT)  # 2 / log(2)
    r = fma(shifted - _SHIFT, -0.34657359, x)
    z = r * r
    t = fma(r * z, fma(z, 0.13106258, -0.33331190), r)
    power = from_bits(0x3F800000 - (bits(shifted) << 23))
    a = 1.0 + power
    b = 1.0 - power
    return fma(a, t, b) / fma(b, t, a)


def floor(x: float) -> float:
    """Greatest whole number up to `x`, as a float32: `math.floor` is an integer of 64 bits."""
    return round_down(x)


def ceil(x: float) -> float:
    """Smallest whole number from `x` on, as a float32."""
    return -round_down(-x)


def trunc(x: float) -> float:
    """`x` without its fraction, as a float32."""
    return -round_down(-x) if x < 0.0 else round_down(x)


def fmod(x: float, y: float) -> float:
    """Remainder of `x / y` with the sign of `x`; exact while the quotient is below 2**22."""
    return fma(-trunc(x / y), y, x)


def exact_fmod(x: float, y: float) -> float:
    """`math.fmod`, which numba does not know by that name."""
    return np.fmod(x, y)


#: Name in `math` -> function of this module that takes its place in float32 kernels.
FLOAT32: dict[str, Callable[..., float]] = {
    f.__name__: f for f in (sin, cos, exp, log, tanh, floor, ceil, trunc, fmod)
}
#: The same for float64 kernels, which otherwise call libm.
FLOAT64: dict[str, Callable[..., float]] = {"fmod": exact_fmod}
