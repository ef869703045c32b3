"""Counter-based random numbers: a pure function of (key, counter, index), the same everywhere.

Every environment has a 64-bit key, made from its seed by a bijection, and a 32-bit counter advances
once a step. `mix` turns the two into two words (a, b) with multiplications, additions and shifts of
32-bit words only, so that it vectorises and is cheap on a GPU. Number `index` of that step is the
product (a + K[index]) * (b + L[index]) of 32-bit words, of which the upper bits are used; the first
factor is odd, so that the product is exactly uniform.

A linear hash a * K[index] + b would cost as much, and make sum(c[i] * number[i]) a whole number for
all steps with a vector c as short as 198 for five numbers of a step. Here the shortest such c is
20,000 long for five numbers, and 400 for the eight that share a pair of words.

No test of dieharder fails on the streams that kernels draw: see
`tests/kernels/dieharder.txt`, written by `tests/kernels/dieharder.py`.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload_method

from rlcpu.kernels.checks import check_seed
from rlcpu.kernels.compile import INLINE, define, inline, source_of_tuple

#: Numbers that one pair of words gives; those after them come from a pair of their own.
GROUP = 8

u32, u64 = np.uint32, np.uint64
GOLDEN = u32(0x9E3779B9)
_GOLDEN64 = u64(0x9E3779B97F4A7C15)


@inline
def mix(key_low: Any, key_high: Any, counter: Any) -> tuple[Any, Any]:
    """Two uint32 words, the first of them odd, from a 64-bit key and a 32-bit counter.

    Four rounds of a generalised Feistel network (add, xor-shift, multiply): each bit of the inputs
    flips each bit of each number drawn with a probability of 0.5 +- 0.005. The constants are those
    of splitmix, lowbias32 (Wellons 2018) and murmur3 (Appleby 2011).
    """
    a = u32(key_low + u32(counter * GOLDEN))
    a = u32(u32(a ^ (a >> u32(16))) * u32(0x7FEB352D))
    b = u32(key_high + a)
    b = u32(u32(b ^ (b >> u32(15))) * u32(0x846CA68B))
    a = u32(a + b)
    a = u32(u32(a ^ (a >> u32(16))) * u32(0x85EBCA6B))
    b = u32(b + a)
    b = u32(u32(b ^ (b >> u32(15))) * u32(0xC2B2AE35))
    return u32(a | u32(1)), b


@functools.cache
def uniforms(count: int, first: int, dtype: type) -> Callable[..., Any]:
    """Inlinable function (a, b) -> tuple of `count` numbers in [0, 1), from index `first` on.

    float32 numbers have 24 random bits. float64 numbers have 32: these 24, and 8 more to which the
    highest 8 are added: the lowest bits of the products of one step are alike, and fail dieharder.
    """
    single = dtype is np.float32
    finish = "real(i32(w{0} >> u32(8)))" if single else "real(i64(w{0} ^ (w{0} >> u32(24))))"
    constants: dict[str, Any] = {"u32": u32, "i32": np.int32, "i64": np.int64, "mix": mix}
    constants |= {"real": dtype, "scale": dtype(2.0**-24 if single else 2.0**-32)}
    lines, group = [], 0
    for index in range(first, first + count):
        if index // GROUP != group:
            group = index // GROUP
            lines.append(f"a{group}, b{group} = mix(a0, b0, u32({group}))")
        k, el = _addends(index % GROUP)
        lines.append(f"w{index} = u32(u32(a{group} + u32({k})) * u32(b{group} + u32({el})))")
    numbers = source_of_tuple(f"{finish.format(i)} * scale" for i in range(first, first + count))
    body = "".join(f"\n    {line}" for line in [*lines, f"return {numbers}"])
    return inline(define(f"def draw(a0, b0):{body}", **constants))


def _addends(index: int) -> tuple[int, int]:
    """K (even, so that a + K is odd) and L of one index."""
    word = int(splitmix64(np.uint64(index)))
    return word & 0xFFFFFFFE, word >> 32


def splitmix64(x: Any) -> Any:
    """Bijective mixing of uint64 values (Steele, Lea & Flood 2014, the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        return _mix64.py_func(u64(x) + _GOLDEN64)


@inline
def _mix64(z):
    z = u64(u64(z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9))
    z = u64(u64(z ^ (z >> u64(27))) * u64(0x94D049BB133111EB))
    return u64(z ^ (z >> u64(31)))


# ---------------------------------------------------------------- numbers asked for one by one

#: Groups of numbers that begin here are those of `Rng`: of steps, of resets, and of `randomize`.
#: Those below belong to functions that take `uniforms`, and to policies.
STEP_GROUP, RESET_GROUP, RANDOMIZE_GROUP = 1 << 28, 2 << 28, 3 << 28


class Rng(NamedTuple):
    """The random numbers of one step or reset of one environment: as many as it asks for.

    Number k is the same however often it is asked for, and independent of every other: give each
    use a k of its own. A k that is a constant costs least.

    Attributes:
        a, b: two 32-bit words, from `mix`; `Rng.of_seed` makes them.
        first: the group of number 0.
        dtype: of `uniform`: np.float32 has 24 random bits, np.float64 has 32.

    Example:
        >>> rng = Rng.of_seed(0)
        >>> rng.integers(0, 6), rng.integers(1, 6), rng.integers(0, 6)
        (3, 4, 3)
    """

    a: int
    b: int
    first: int = STEP_GROUP
    dtype: type = np.float64

    @classmethod
    def of_seed(cls, seed: int, step: int = 0) -> Rng:
        """Return the numbers of one step of the stream of a seed."""
        low, high = keys(stream_seeds(seed, 1))
        with np.errstate(over="ignore"):
            a, b = mix.py_func(low[0], high[0], u32(step))
        return cls(int(a), int(b))

    def uniform(self, k: int) -> float:
        """Return number k of this step in [0, 1)."""
        word = _draw(self, k)
        if self.dtype is np.float32:
            return (word >> 8) * 2.0**-24
        return (word ^ word >> 24) * 2.0**-32

    def integers(self, k: int, n: int) -> int:
        """Return number k of this step in 0, ..., n - 1, for n from 1 to 2**32."""
        return _draw(self, k) * n >> 32


def _draw(rng: Rng, k: int) -> int:
    """Return the 32 bits of number k; in plain Python."""
    if k < 0:
        raise ValueError(f"k={k}: random numbers of a step are counted from 0")
    with np.errstate(over="ignore"):
        a, b = mix.py_func(u32(rng.a), u32(rng.b), u32(rng.first + k // GROUP))
        first, second = _addends(k % GROUP)
        return int(u32(a + u32(first)) * u32(b + u32(second)))


@functools.cache
def make_rng(first: int, dtype: type) -> Callable[..., Any]:
    """Inlinable function (a, b) -> the `Rng` of two words, in kernels."""
    group: Any = u32(first)
    return inline(lambda a, b: Rng(a, b, group, dtype))


@inline
def _draw_word(rng, k):
    """Return the 32 bits of number k: see `_draw`."""
    a, b = mix(rng.a, rng.b, u32(rng.first + u32(u32(k) >> u32(3))))
    z = _mix64(u64(u64(u32(k) & u32(7)) + _GOLDEN64))
    return u32(u32(a + (u32(z) & u32(0xFFFFFFFE))) * u32(b + u32(z >> u64(32))))


@overload_method(types.NamedTuple, "uniform", jit_options=INLINE)
def _uniform(rng, k):
    if rng.instance_class is not Rng:
        return None
    if rng[3].dtype == types.float32:
        return lambda rng, k: (
            np.float32(np.int32(_draw_word(rng, k) >> u32(8))) * np.float32(2.0**-24)
        )

    def draw(rng, k):
        word = _draw_word(rng, k)
        return np.float64(np.int64(u32(word ^ (word >> u32(24))))) * 2.0**-32

    return draw


@overload_method(types.NamedTuple, "integers", jit_options=INLINE)
def _integers(rng, k, n):
    if rng.instance_class is not Rng:
        return None
    return lambda rng, k, n: np.int64(u64(u64(_draw_word(rng, k)) * u64(n)) >> u64(32))


@inline
def uniform53(key: Any, counter: Any) -> Any:
    """Return number `counter` of the stream `key` (both uint64) in [0, 1), with 53 random bits.

    SplitMix64 (Steele, Lea & Flood 2014), of which any number can be had without those before.
    """
    z = _mix64(u64(key + u64(counter + u64(1)) * _GOLDEN64))
    return np.float64(z >> u64(11)) * 2.0**-53


def keys(seeds: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Keys of independent streams.

    Args:
        seeds: (n,) uint64, one per stream; different seeds give different keys.

    Returns:
        (2, n) uint32, the low and the high word of each key.
    """
    mixed = splitmix64(seeds)
    return np.stack((mixed & np.uint64(0xFFFFFFFF), mixed >> np.uint64(32))).astype(np.uint32)


def new_seeds(count: int) -> npt.NDArray[np.uint64]:
    """Return seeds that nobody has chosen, (count,), from the operating system's entropy."""
    fresh = np.random.SeedSequence(secrets.randbits(128))
    seeds = fresh.generate_state(count, np.uint64)
    return np.asarray(seeds, np.uint64)


def stream_seeds(seed: int | Sequence[int], count: int) -> npt.NDArray[np.uint64]:
    """Return one uint64 seed per stream: `seed`, `seed + 1`, ... of an int, or the sequence itself.

    Seeds of 2**64 and more are hashed to one below it.

    Raises:
        TypeError: a seed is no whole number.
        ValueError: a seed is negative or above 2**128 - 1, or the sequence has another length.
    """
    if isinstance(seed, int | np.integer):
        first = np.uint64(_to_64_bits(seed))
        return first + np.arange(count, dtype=np.uint64)  # wraps around at 2**64
    listed = isinstance(seed, Sequence) and not isinstance(seed, str | bytes)
    kind: Any = type(seed)
    if not listed and not (kind is np.ndarray and np.ndim(seed) == 1):
        raise TypeError(f"seed={seed!r}: expected an int or a list of {count} ints")
    if len(seed) != count:
        raise ValueError(f"seed has {len(seed)} entries: expected one int or a list of {count}")
    return np.array([_to_64_bits(item) for item in seed], dtype=np.uint64)


def _to_64_bits(seed: Any) -> int:
    value = check_seed(seed)
    if value < 2**64:
        return value
    return int(np.random.SeedSequence(value).generate_state(1, np.uint64)[0])
