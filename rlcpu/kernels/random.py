"""Counter-based random numbers: a pure function of (key, counter, index), the same everywhere.

Every environment has a 64-bit key, made from its seed by a bijection, and a 32-bit counter that
advances once a step. `mix` turns the two into 64 well-mixed bits (a, b) with multiplications,
additions and shifts of 32-bit words only, so that it vectorises and is cheap on a GPU; number
`index` of that step is the linear hash a * odd(index) + b, of which the upper bits are used. For
given a and b the numbers of one step are pairwise independent.

The generator passes dieharder's battery on the streams that kernels draw, see
`tests/kernels/test_random.py`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import define, inline

u32 = np.uint32

GOLDEN = u32(0x9E3779B9)
_M1 = u32(0x7FEB352D)
_M2 = u32(0x846CA68B)
_M3 = u32(0x85EBCA6B)
_M4 = u32(0xC2B2AE35)
_HIGH = u32(16)
_MIDDLE = u32(15)


@inline
def mix(key_low, key_high, counter):  # type: ignore[no-untyped-def]
    """64 bits, as two uint32, from a 64-bit key and a 32-bit counter.

    Four rounds of a generalised Feistel network (add, xor-shift, multiply): each input bit
    reaches each output bit.
    """
    a = u32(key_low + u32(counter * GOLDEN))
    a = u32(u32(a ^ (a >> _HIGH)) * _M1)
    b = u32(key_high + a)
    b = u32(u32(b ^ (b >> _MIDDLE)) * _M2)
    a = u32(a + b)
    a = u32(u32(a ^ (a >> _HIGH)) * _M3)
    b = u32(b + a)
    b = u32(u32(b ^ (b >> _MIDDLE)) * _M4)
    return u32(a ^ (b >> _HIGH)), b


@functools.cache
def uniforms(count: int, first: int, dtype: type) -> Callable[..., Any]:
    """Inlinable function (a, b) -> tuple of `count` numbers in [0, 1), from index `first` on.

    float32 numbers have 24 random bits, float64 numbers 32.
    """
    shift, scale = (u32(8), dtype(2.0**-24)) if dtype is np.float32 else (u32(0), dtype(2.0**-32))
    integer = np.int32 if dtype is np.float32 else np.int64
    names = {f"k{i}": u32(_multiplier(first + i)) for i in range(count)}
    words = [f"real(integer(u32(u32(a * {name}) + b) >> shift)) * scale, " for name in names]
    return inline(
        define(
            f"def draw(a, b): return ({''.join(words)})",
            u32=u32,
            integer=integer,
            real=dtype,
            shift=shift,
            scale=scale,
            **names,
        )
    )


def _multiplier(index: int) -> int:
    """Odd multiplier of the linear hash for one index."""
    return int(splitmix64(np.uint64(index)) >> np.uint64(32)) | 1


def splitmix64(x: Any) -> Any:
    """Bijective mixing of uint64 values (Steele, Lea & Flood 2014, the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def keys(seeds: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Keys of independent streams.

    Args:
        seeds: (n,) uint64, one per stream; different seeds give different keys.

    Returns:
        (2, n) uint32, the low and the high word of each key.
    """
    mixed = splitmix64(seeds)
    return np.stack((mixed & np.uint64(0xFFFFFFFF), mixed >> np.uint64(32))).astype(np.uint32)


def stream_seeds(seed: int | Sequence[int], count: int) -> npt.NDArray[np.uint64]:
    """One uint64 seed per stream: `seed`, `seed + 1`, ... of an int, or the sequence itself.

    Raises:
        TypeError: a seed is no whole number.
        ValueError: a seed is negative or above 2**64 - 1, or the sequence has another length.
    """
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
        first = np.uint64(_check_seed(seed))
        with np.errstate(over="ignore"):
            return first + np.arange(count, dtype=np.uint64)
    if isinstance(seed, str | bool) or not hasattr(seed, "__len__"):
        raise TypeError(f"seed={seed!r}: expected an int or a list of {count} ints")
    if len(seed) != count:
        raise ValueError(f"seed has {len(seed)} entries: expected one int or a list of {count}")
    return np.array([_check_seed(item) for item in seed], dtype=np.uint64)


def _check_seed(seed: Any) -> int:
    try:
        value = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed={seed!r}: expected an int") from None
    if not 0 <= value < 2**64:
        raise ValueError(f"seed={value}: expected 0 to 2**64 - 1")
    return value
