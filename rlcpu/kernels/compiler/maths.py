"""Elementary functions that vectorise: of float32, and in the end exp and log of float64.

pip's numba has no vector mathematics library: `math.sin` in a kernel calls libm once a lane. The
functions here are plain Python without branches, tables or double arithmetic, which LLVM turns into
straight vector code; `rlcpu.kernels.compiler.compile.specialise` puts them in the place of `math.*`
in float32 kernels. Errors are the worst over all float32 of the domain, in units in the last place
(ulp) of the exact result; times are per lane of a loop over arrays in the first cache (one core of
Zen 5 with AVX-512), the loads and stores of 0.05 ns included.

============= ==================== ============================= ======== ============
function      domain               error                         time, ns libm's, ns
============= ==================== ============================= ======== ============
sin           abs(x) <= 1e5        1.9 ulp + 1.2e-15 * abs(x)    0.12     2.0
cos           abs(x) <= 1e5        1.9 ulp + 1.2e-15 * abs(x)    0.12     2.0
sin and cos                                                      0.14     4.0
exp           all                  1.1 ulp, subnormals become 0  0.11     1.8
log           all                  1.0 ulp                       0.16     1.8
tanh          all                  2.5 ulp                       0.11     8.3
============= ==================== ============================= ======== ============

In float64 `exp64` is off by 1.0 ulp for -708 <= x <= 709, `log64` by 1.0 ulp for normal numbers;
libm's are calls, one number at a time: 4 to 5 ns each, and these 0.5 in a loop over 256 numbers.

`RLCPU_EXHAUSTIVE=1 pytest tests/kernels/test_maths.py` measures the errors again, in minutes.

Multiplications are fused with additions where `fma` says so and nowhere else, and nothing is
reordered (see `FASTMATH`): vector code, its scalar remainder and every processor that has a fused
multiply-add give the same bits. Coefficients are minimax (Remez), for the error named above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable
from numpy import ceil, floor, trunc  # `math.floor` would bring in 64-bit integers

#: No fast-math: "reassoc" would turn the range reduction (x - k * high) - k * low into
#: x - k * (high + low), and (x + _SHIFT) - _SHIFT, which rounds to a whole number, into x.
FASTMATH = False

#: 1.5 * 2**23. x + _SHIFT holds x rounded to a whole number k in its low bits, for abs(x) < 2**22:
#: (x + _SHIFT) - _SHIFT is k as a float, and bits(x + _SHIFT) << 23 is k in the place of exponents.
_SHIFT = 12582912.0
_INFINITY = math.inf
_NAN = math.nan

# ---------------------------------------------------------------- what plain Python cannot say


def fma(a: float, b: float, c: float) -> Any:
    """Return `a * b + c` in float32, rounded once (in plain Python, once in 1e8 times twice)."""
    wide_a, wide_b, wide_c = (float(np.float32(value)) for value in (a, b, c))
    return np.float32(wide_a * wide_b + wide_c)


def bits(x: float) -> int:
    """Return the 32 bits of a float32, as a signed integer."""
    return int(np.float32(x).view(np.int32))


def from_bits(word: int) -> Any:
    """Return the float32 made of the low 32 bits of `word`."""
    return np.uint32(word & 0xFFFFFFFF).view(np.float32)


def from_int(word: int) -> Any:
    """Return the signed integer in the low 32 bits of `word`, rounded to float32."""
    return np.float32((word + 0x80000000 & 0xFFFFFFFF) - 0x80000000)


def round_to_single(x: float) -> float:
    """Return `x` rounded to float32, in the dtype of `x`, as a float32 array would keep it."""
    return x if isinstance(x, np.float32) else float(np.float32(x))


def libm_pow(x: float, y: float) -> float:
    """Return `math.pow` as libm computes it, in kernels too: LLVM makes `x * x` of a square."""
    return math.pow(x, y)


def single_square(x: float) -> float:
    """Return `x ** 2` of NumPy's float32 scalars, in x's dtype; in float32 kernels `x * x`."""
    return float(np.float32(x) ** np.float32(2.0))


def cut(values: Any) -> Any:
    """Return the values of a tuple of floats, unchanged; the compiler does not look across it.

    LLVM's vectoriser asks for the type of every number in a loop, and finds it from those that it
    was computed from, back to the last load or intrinsic: the square of the length of a step. What
    is cut costs a multiplication by one.
    """
    return values


#: Functions that compile to an instruction of their own: to be called as they are, not specialised.
OVERLOADED: set[Any] = {
    fma, bits, from_bits, from_int, round_to_single, libm_pow, single_square, cut
}  # fmt: skip
#: (name, specialised function, types of arguments) -> what is compiled in the place of a function
#: of this module for arguments that are no plain numbers, or None.
FORMS: list[Callable[[str, Any, Any], Any]] = []

_FLOAT, _WORD, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_single, _long = types.float32, types.int64


def _define_fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return signature and generator of `fma`."""
    signature = _single(_single, _single, _single)
    return signature, lambda _, builder, __, values: builder.fma(*values)


def _define_libm_pow(context, x, y):
    """Emit libm's `pow` or `powf`, whose squares are not `x * x` in the last bit of 1 in 1,000.

    LLVM is told that it is not the function that LLVM knows, and has no effect but its result.
    """
    kind, name = (types.float32, "powf") if x == types.float32 else (types.float64, "pow")

    def generate(context, builder, signature, values):
        real = context.get_value_type(kind)
        shape = ir.FunctionType(real, [real, real])
        module = builder.module
        function = cgutils.get_or_insert_function(module, shape, name)
        for attribute in ("nobuiltin", "nounwind", "readnone"):
            function.attributes.add(attribute)
        return builder.call(function, values)

    return kind(kind, kind), generate


def _unary(signature: Any, build: Callable[[Any, Any], Any]) -> Any:
    """Return the intrinsic of one argument whose code is emitted by `build(builder, value)`."""

    def define(context: Any, x: Any) -> Any:
        return signature, lambda _, builder, __, values: build(builder, values[0])

    return intrinsic(define)


_fma: Any = intrinsic(_define_fma)
_libm_pow: Any = intrinsic(_define_libm_pow)
_bits = _unary(_long(_single), lambda to, x: to.sext(to.bitcast(x, _WORD), _LONG))
_from_bits = _unary(_single(_long), lambda to, x: to.bitcast(to.trunc(x, _WORD), _FLOAT))
_from_int = _unary(_single(_long), lambda to, x: to.sitofp(to.trunc(x, _WORD), _FLOAT))

overload(fma)(lambda a, b, c: lambda a, b, c: _fma(a, b, c))
overload(bits)(lambda x: lambda x: _bits(x))
overload(from_bits)(lambda word: lambda word: _from_bits(word))
overload(from_int)(lambda word: lambda word: _from_int(word))


@overload(round_to_single)
def _round_to_single(x):
    return (lambda x: np.float64(np.float32(x))) if x == types.float64 else (lambda x: x)


def _define_cut(context, values):
    """Return signature and generator of `cut`."""
    return values(values), lambda _, builder, __, args: _cut_all(builder, *args)


def _cut_all(builder: Any, value: Any) -> Any:
    """Emit `cut` of a number or an aggregate of numbers, and return the result.

    `canonicalize` returns a float as it is, but no pass of LLVM's knows that.
    """
    if value.type in (_FLOAT, ir.DoubleType()):
        name = "llvm.canonicalize"
        function = builder.module.declare_intrinsic(name, [value.type])
        return builder.call(function, [value])
    if isinstance(value.type, ir.Aggregate):
        for k in range(len(value.type)):
            part = _cut_all(builder, builder.extract_value(value, k))
            value = builder.insert_value(value, part, k)
    return value


_cut: Any = intrinsic(_define_cut)
overload(cut)(lambda values: lambda values: _cut(values))
overload(libm_pow)(lambda x, y: lambda x, y: _libm_pow(x, y))


@overload(single_square)
def _single_square(x):
    if x == types.float32:
        return lambda x: x * x
    return lambda x: np.float64(_libm_pow(np.float32(x), np.float32(2.0)))


# ---------------------------------------------------------------- functions


def _sin_cos(x: float) -> tuple[int, float, float]:
    """Return (swap, s, c): sin(x) is c and cos(x) is -s if `swap`, else they are s and c.

    x = k * pi/2 + r. With fused multiply-add, x - k * 1.5707964 is exact below k = 2**22. What is
    missing of pi/2 after its second part, 1.7e-15, is the error proportional to x; a third part
    would cost a step of CartPole 5 %. LLVM computes this once for sine and cosine of one x.
    """
    shifted = fma(x, 0.636619747, _SHIFT)  # 2 / pi
    k = shifted - _SHIFT
    r = fma(k, 4.37113883e-08, fma(k, -1.57079637, x))  # in two parts: -pi/2 and what it lacks
    z = r * r
    sine = fma(r * z, fma(z, fma(z, -1.95139612e-04, 8.33213795e-03), -0.166666538), r)
    cosine = fma(z, fma(z, fma(z, -1.35966158e-03, 4.16561328e-02), -0.499998897), 1.0)
    quadrant = bits(shifted)  # k: an odd one swaps sine and cosine, its second bit flips both signs
    sign = quadrant << 30 & 0x80000000
    return quadrant & 1, from_bits(bits(sine) ^ sign), from_bits(bits(cosine) ^ sign)


def sin(x: float) -> float:
    """Return the sine; `sin` and `cos` of the same argument share most of their work.

    1.9 ulp + 1.2e-15 * abs(x) for abs(x) <= 1e5; 3e-6 for abs(x) <= 2**22; meaningless and
    unbounded beyond; NaN for infinities. The sign of a zero is lost.
    """
    odd, sine, cosine = _sin_cos(x)
    return cosine if odd else sine


def cos(x: float) -> float:
    """Return the cosine: 1.9 ulp + 1.2e-15 * abs(x) for abs(x) <= 1e5; see `sin`."""
    odd, sine, cosine = _sin_cos(x)
    return -sine if odd else cosine


def exp(x: float) -> float:
    """Return the exponential, 1.1 ulp; 0 below 2**-126 (x < -87.34), inf above 88.72.

    exp(x) = 2**k * exp(r) with x = k * log(2) + r; the polynomial has degree 6.
    """
    shifted = fma(x, 1.44269502, _SHIFT)  # 1 / log(2)
    k = shifted - _SHIFT
    r = fma(k, 1.90465421e-09, fma(k, -0.693147182, x))  # in two parts, as in `_sin_cos`
    z = r * r
    p = fma(z, 1.38145399e-03, fma(r, 8.36874511e-03, 4.16683908e-02))
    p = fma(z, p, fma(r, 0.166665204, 0.499999934))
    mantissa = 1.0 + fma(z, p, r)
    y = from_bits(bits(mantissa) + (bits(shifted) << 23))  # mantissa * 2**k
    y = 0.0 if x < -87.3365402 else y
    return y if x <= 88.7228317 else x + _INFINITY  # an infinity, or the NaN that x is


def log(x: float) -> float:
    """Return the natural logarithm, to 1.0 ulp, of subnormals too; -inf at 0 and NaN below.

    log(x) = k * log(2) + log(1 + f) with 1 + f = x / 2**k in [sqrt(1/2), sqrt(2)).
    """
    subnormal = x < 1.17549435e-38
    word = bits(x * 8388608.0 if subnormal else x)  # 2**23
    # The upper 9 bits of the distance from sqrt(1/2) are k, in the place of exponents.
    exponent = (word - 0x3F3504F3) & -0x800000
    k = fma(from_int(exponent), 1.1920929e-07, -23.0 if subnormal else 0.0)  # 2**-23
    f = from_bits(word - exponent) - 1.0
    z = f * f
    p = fma(z, fma(f, -7.63449796e-02, 0.127615771), fma(f, -0.13160182, 0.14201758))
    p = fma(z, p, fma(f, -0.166233574, 0.200012269))
    p = fma(z, p, fma(f, -0.25000821, 0.333333317))
    y = fma(z, fma(f, p, -0.5), fma(k, -1.90465421e-09, f))
    y = fma(k, 0.693147182, y)
    y = y if x < _INFINITY else x
    return (-_INFINITY if x == 0.0 else _NAN) if x <= 0.0 else y


def tanh(x: float) -> float:
    """Return tanh, 2.5 ulp; odd, at most 1 in absolute value, 1 from abs(x) = 9.02 on.

    x = a + r with a = k * log(2) / 2, and tanh(a + r) = (sinh(a) + cosh(a) tanh(r)) / (cosh(a) +
    sinh(a) tanh(r)). Above and below stand multiples of these, by 2 exp(-a), which are exact:
    sinh = 1 - 2**-k and cosh = 1 + 2**-k.
    """
    x = min(max(x, -9.5), 9.5)  # NaN passes
    shifted = fma(x, 2.88539004, _SHIFT)  # 2 / log(2)
    r = fma(shifted - _SHIFT, -0.346573591, x)
    z = r * r
    t = fma(r * z, fma(z, 0.13106258, -0.3333119), r)  # tanh(r)
    power = from_bits(0x3F800000 - (bits(shifted) << 23))  # 2**-k; 0x3F800000 are the bits of 1
    cosh = 1.0 + power
    sinh = 1.0 - power
    return fma(cosh, t, sinh) / fma(sinh, t, cosh)


def fmod(x: float, y: float) -> float:
    """Return the remainder of x / y with the sign of x, exact while abs(x / y) < 2**23.

    The quotient may round away from 0 to the next whole number: then the remainder has the sign
    that x has not, and one period is added.
    """
    remainder = fma(-trunc(x / y), y, x)
    period = abs(y)
    return remainder + (period if remainder < 0.0 < x else -period if x < 0.0 < remainder else 0.0)


def clip(a: float, a_min: float, a_max: float) -> float:
    """Return `np.clip` of a number, which numba knows for arrays only; NaN passes."""
    return min(max(a, a_min), a_max)


#: Name in `math` -> what takes its place in float32 kernels.
FLOAT32: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (sin, cos, exp, log, tanh, floor, ceil, trunc, fmod, clip)
}
#: The same for float64 kernels, which otherwise call libm; numba has no `math.fmod`.
FLOAT64: dict[str, Callable[..., Any]] = {"fmod": np.fmod, "pow": libm_pow, "clip": clip}


# ---------------------------------------------------------------- float64

#: "reassoc" would undo the range reductions here too.
_inlined = register_jitable(forceinline=True, error_model="numpy", fastmath={"contract"})

_SHIFT64 = 6755399441055744.0  # 1.5 * 2**52: what is added to it is rounded to a whole number
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # the first has 21 zero bits
_LEAST = -708.0
_HALF_ROOT = 0x3FE6A09E667F3BCD  # bits of sqrt(1/2)
_MANTISSA_BITS = 52
_E = tuple(1.0 / math.factorial(k) for k in range(14))  # series of exp(r)
_L = tuple(2.0 / (2 * k + 1) for k in range(11))  # series of 2 atanh(f) / f, by powers of f * f


@_inlined
def exp64(x: float) -> Any:
    """Return e**x for x up to 709; 0 below -708, and any number for NaN.

    As in `exp`: e**x = 2**k * e**r with x = k * log(2) + r, by the series up to r**13.
    """
    inside = max(x, _LEAST)
    shifted = inside * _LOG2_E + _SHIFT64
    k = shifted - _SHIFT64
    r = (inside - k * _LN2_HIGH) - k * _LN2_LOW
    low = _E[12] + r * _E[13]
    low = _E[10] + r * (_E[11] + r * low)
    low = _E[8] + r * (_E[9] + r * low)
    low = _E[6] + r * (_E[7] + r * low)
    low = _E[4] + r * (_E[5] + r * low)
    tail = r * r * (_E[2] + r * (_E[3] + r * low))
    # 1 + (r + tail), and the power of two added to the exponent.
    power = np.int64(np.float64(shifted).view(np.int64) << _MANTISSA_BITS)
    bits = np.int64(np.float64(1.0 + (r + tail)).view(np.int64) + power)
    return bits.view(np.float64) if x >= _LEAST else 0.0


@_inlined
def log64(x: float) -> Any:
    """Return the natural logarithm of a normal number above 0.

    log(x) = e * log(2) + log(1 + t) with 1 + t = x / 2**e in [sqrt(1/2), sqrt(2)).
    """
    bits = np.float64(x).view(np.int64)
    exponent = (bits - _HALF_ROOT) >> _MANTISSA_BITS
    mantissa = np.int64(bits - (exponent << _MANTISSA_BITS)).view(np.float64)
    t = mantissa - 1.0  # exact
    f = t / (2.0 + t)
    z = f * f
    # log(1 + t) = 2 atanh(f) = 2 f + f * series = t - f * (t - series): only t is not rounded.
    series = _L[9] + z * _L[10]
    series = _L[7] + z * (_L[8] + z * series)
    series = _L[5] + z * (_L[6] + z * series)
    series = _L[3] + z * (_L[4] + z * series)
    series = z * (_L[1] + z * (_L[2] + z * series))
    e = float(exponent)
    return e * _LN2_HIGH + (t - (f * (t - series) - e * _LN2_LOW))
