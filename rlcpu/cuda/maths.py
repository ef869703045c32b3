"""What the CPU's mathematics takes from the machine, as a GPU has it.

`rlcpu.kernels.compiler.maths` is built on a few operations that plain Python cannot say: LLVM
instructions on the CPU, functions of libdevice that become one PTX instruction each here. The
polynomials on top of them are the same, so that float32 sines and exponentials agree to the last
bit.
"""

from __future__ import annotations

import math
import types
from typing import Any

import numpy as np

from rlcpu.cuda.device import cuda
from rlcpu.kernels.compiler import maths
from rlcpu.kernels.machine import vectors

#: numba-cuda's; the simulator has none.
libdevice: Any = getattr(cuda, "libdevice", None)
_f32, _f64, _i32 = np.float32, np.float64, np.int32
_EXPONENT32, _LARGEST32 = np.int32(0xFF << 23), np.int32(0xFE << 23)
_EXPONENT64, _LARGEST64 = np.int64(0x7FF << 52), np.int64(0x7FE << 52)
_ONE, _TWO = np.float32(1), np.float32(2)


def tanh(x: Any) -> Any:
    """Return tanh for networks, 3e-7 off at most: five instructions; libdevice's has 30."""
    return _ONE - libdevice.fast_fdividef(_TWO, _ONE + libdevice.fast_expf(_TWO * x))


def power(x: Any, y: Any) -> Any:
    """Return `math.pow`; LLVM makes `x * x` of a square, where libdevice has 60 instructions."""
    return x * x if y == _TWO else math.pow(x, y)


#: Functions of the CPU's kernels that are something else here: see the end of this file.
OVERLOADED = maths.OVERLOADED | {vectors.fma, vectors.inverse_power}
_BY_NAME = {(f.__module__, f.__qualname__): f for f in (vectors.fma, vectors.inverse_power)}


def overloaded(function: types.FunctionType) -> Any:
    """Return the function of `OVERLOADED` that a function, or its copy or twin, is; or None."""
    if function in OVERLOADED:
        return function
    return _BY_NAME.get((function.__module__, function.__qualname__))


#: What functions read -> what they read here. numba-cuda has no `np.floor` of a number, and its
#: `math.floor` of a real number is real. The simulator has NumPy.
replaced: dict[Any, Any] = {}
if libdevice is not None:
    names = "floor", "ceil", "trunc", "fmod"
    replaced = {getattr(np, name): getattr(math, name) for name in names} | {math.pow: power}


# Each makes the device's version of the function of `rlcpu.kernels.compiler.maths` that has its
# name without the underscore; arguments are numba's types.


def _fma(a, b, c):
    return lambda a, b, c: libdevice.fmaf_rn(_f32(a), _f32(b), _f32(c))


def _fused(x, y, z):
    """Return the same of either type, for `vectors.fma`."""
    if x.bitwidth == 64:
        return lambda x, y, z: libdevice.fma_rn(x, y, z)
    return lambda x, y, z: libdevice.fmaf_rn(x, y, z)


def _bits(x):
    return lambda x: libdevice.float_as_int(_f32(x))


def _from_bits(word):
    return lambda word: libdevice.int_as_float(_i32(word))


def _from_int(word):
    return lambda word: libdevice.int2float_rn(_i32(word))


def _libm_pow(x, y):
    return lambda x, y: math.pow(x, y)  # libdevice's, within 2 ulp of libm's


def _round_to_single(x):
    return (lambda x: _f64(_f32(x))) if x.bitwidth == 64 else lambda x: x


def _single_square(x):
    return (lambda x: _f64(_f32(x) * _f32(x))) if x.bitwidth == 64 else lambda x: x * x


def _cut(values):
    return lambda values: values  # nothing is vectorised


def _inverse_power(x):
    """Return a function: x -> the power of two that brings x into [2, 4).

    Its exponent's bits are those of x, all flipped; below the smallest normal number they would be
    infinity's, and the largest power is returned. See
    `rlcpu.kernels.machine.vectors.inverse_power`.
    """
    if x.bitwidth == 64:
        return lambda x: libdevice.longlong_as_double(
            min(~libdevice.double_as_longlong(x) & _EXPONENT64, _LARGEST64)
        )
    return lambda x: libdevice.int_as_float(
        min(_i32(_i32(~libdevice.float_as_int(x)) & _EXPONENT32), _LARGEST32)
    )


if libdevice is not None:
    from numba.cuda.extending import overload

    overload(vectors.inverse_power, target="cuda")(_inverse_power)
    overload(vectors.fma, target="cuda")(_fused)
    scalars = (_fma, _bits, _from_bits, _from_int, _libm_pow, _round_to_single, _single_square)
    for define in (*scalars, _cut):
        overload(getattr(maths, define.__name__[1:]), target="cuda")(define)
