"""What the CPU's mathematics takes from the machine, as a GPU has it.

`rlcpu.kernels.maths` is built on a few operations that plain Python cannot say: LLVM instructions
on the CPU, functions of libdevice that become one PTX instruction each here. The polynomials on top
of them are the same, so that float32 sines and exponentials agree to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.cuda.provider import libdevice

_f32, _f64, _i32 = np.float32, np.float64, np.int32


def fma(a: Any, b: Any, c: Any) -> Any:
    """`a * b + c` in float32, rounded once."""
    return libdevice.fmaf_rn(_f32(a), _f32(b), _f32(c))


def bits(x: Any) -> Any:
    """The 32 bits of a float32, as a signed integer."""
    return libdevice.float_as_int(_f32(x))


def from_bits(word: Any) -> Any:
    """The float32 made of the low 32 bits of `word`."""
    return libdevice.int_as_float(_i32(word))


def from_int(word: Any) -> Any:
    """The signed integer in the low 32 bits of `word`, rounded to float32."""
    return libdevice.int2float_rn(_i32(word))


def floor(x: Any) -> Any:
    """Greatest whole number up to `x`, as a float32."""
    return libdevice.floorf(x)


def ceil(x: Any) -> Any:
    """Smallest whole number from `x` on, as a float32."""
    return libdevice.ceilf(x)


def trunc(x: Any) -> Any:
    """`x` without its fraction, as a float32."""
    return libdevice.truncf(x)


def fmod(x: Any, y: Any) -> Any:
    """Remainder of `x / y` with the sign of `x`; see `rlcpu.kernels.maths.fmod`."""
    rest = libdevice.fmaf_rn(-libdevice.truncf(x / y), y, x)
    period = abs(y)
    return rest + (period if rest < _ZERO < x else -period if x < _ZERO < rest else _ZERO)


_ZERO = np.float32(0)


def exact_fmod(x: Any, y: Any) -> Any:
    """`math.fmod` in float64."""
    return math.fmod(x, y)


def power(x: Any, y: Any) -> Any:
    """`math.pow`: libdevice's, within 2 ulp of libm's."""
    return math.pow(x, y)


def square(x: Any, y: Any) -> Any:
    """The only power that float32 environments take."""
    return math.pow(x, y)


def same(x: Any) -> Any:
    """`x`, which is a float32 already."""
    return x


def single_square(x: Any) -> Any:
    """`x * x` in float32."""
    return x * x


def round_double(x: Any) -> Any:
    """A float64 rounded to float32, in float64."""
    return _f64(_f32(x))


def single_square_double(x: Any) -> Any:
    """A float64 rounded to float32, squared there, in float64."""
    return _f64(_f32(x) * _f32(x))


def tanh(x: Any) -> Any:
    """Hyperbolic tangent for networks, 3e-7 off at most: five instructions; libdevice's, 30."""
    return _ONE - libdevice.fast_fdividef(_TWO, _ONE + libdevice.fast_expf(_TWO * x))


_ONE, _TWO = np.float32(1), np.float32(2)

_SHARED: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (fma, bits, from_bits, from_int)
}
#: Name in `rlcpu.kernels.maths` -> what computes it on a GPU in a float32 kernel.
FLOAT32: dict[str, Callable[..., Any]] = {
    **_SHARED,
    **{function.__name__: function for function in (floor, ceil, trunc, fmod, single_square)},
    "round_to_single": same,
    "libm_pow": power,
}
#: The same for a float64 kernel.
FLOAT64: dict[str, Callable[..., Any]] = {
    **_SHARED,
    "exact_fmod": exact_fmod,
    "libm_pow": power,
    "round_to_single": round_double,
    "single_square": single_square_double,
}
