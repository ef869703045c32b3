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

from rlcpu.kernels.checks import check_seed
from rlcpu.kernels.compiler.compile import define, inline, source_of_tuple
from rlcpu.kernels.machine import distributions

#: Numbers that one pair of words gives; those after them come from a pair of their own.
GROUP = 8

u32, u64 = np.uint32, np.uint64
GOLDEN = u32(0x9E3779B9)
_GOLDEN64 = u64(0x9E3779B97F4A7C15)
_LOW_WORD, _WORD_BITS = u64(0xFFFFFFFF), u64(32)


@inline
def mix(key_low: Any, key_high: Any, counter: Any) -> tuple[Any, Any]:
    """Return two uint32 words, the first of them odd, of a 64-bit key and a 32-bit counter.

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


@inline
def mix_key(key: Any, counter: Any) -> tuple[Any, Any]:
    """Return `mix` of a key and of the low word of a counter, both uint64."""
    return mix(u32(key & _LOW_WORD), u32(key >> _WORD_BITS), u32(counter & _LOW_WORD))


@functools.cache
def make_to_number(dtype: type) -> Callable[..., Any]:
    """Make `to_number(word)` for kernels and Python: a number in [0, 1) from 32 random bits.

    float32 numbers have 24 of these bits. float64 numbers have 32: these 24, and 8 more to which
    the highest 8 are added: the lowest bits of the products of one step are alike, and fail
    dieharder. Signed integers are converted: vectors of unsigned ones have no instruction for it.
    """

    def to_single(word: Any) -> Any:
        return np.float32(np.int32(word >> u32(8))) * np.float32(2.0**-24)

    def to_double(word: Any) -> Any:
        return np.float64(np.int64(u32(word ^ (word >> u32(24))))) * 2.0**-32

    return inline(to_single if dtype is np.float32 else to_double, plain=True)


@functools.cache
def uniforms(count: int, first: int, dtype: type) -> Callable[..., Any]:
    """Make `draw(a, b)`: of two words a tuple of `count` numbers in [0, 1), from `first` on."""
    lines: list[str] = []
    for index in range(first, first + count):
        group, place = divmod(index, GROUP)
        if not lines or place == 0:  # the first group has the two words themselves
            lines.append(f"a, b = mix(a0, b0, u32({group}))" if group else "a, b = a0, b0")
        to_a, to_b = _addends(place)
        word = f"u32(u32(a + u32({to_a})) * u32(b + u32({to_b})))"
        lines.append(f"number{index} = to_number({word})")
    lines.append(f"return {source_of_tuple(f'number{first + k}' for k in range(count))}")
    body = "".join(f"\n    {line}" for line in lines)
    source, to_number = f"def draw(a0, b0):{body}", make_to_number(dtype)
    return inline(define(source, u32=u32, mix=mix, to_number=to_number))


@inline
def _key_of(index):
    """Return what `uniforms_of_keys` takes of an index: group, addend of a, addend of b."""
    to_a, to_b = word_addends(index)
    return u32(index // GROUP), to_a, to_b


@functools.cache
def make_draw_keys(count: int) -> Callable[..., Any]:
    """Make `keys(first)`, for kernels: what `uniforms_of_keys` takes of `count` indices from first.

    It is a tuple of (group, addend of a, addend of b) for each.
    """
    keys = source_of_tuple(f"key(first + {k})" for k in range(count))
    return inline(define(f"def keys(first): return {keys}", key=_key_of))


@functools.cache
def _make_number_of_key(dtype: type) -> Callable[..., Any]:
    """Make `number(a, b, key)`: the number of `uniforms` whose index has the key."""
    to_number = make_to_number(dtype)

    @inline
    def number(a, b, key):
        group, to_a, to_b = key
        mixed_a, mixed_b = mix(a, b, group)  # also for the first group, so that there is no branch
        a, b = (a, b) if group == u32(0) else (mixed_a, mixed_b)
        return to_number(u32(u32(a + to_a) * u32(b + to_b)))

    return number


@functools.cache
def uniforms_of_keys(count: int, dtype: type) -> Callable[..., Any]:
    """Make `draw(a, b, keys)`: the numbers of `uniforms` whose index is known at run time only."""
    numbers = source_of_tuple(f"number(a, b, keys[{k}])" for k in range(count))
    source = f"def draw(a, b, keys): return {numbers}"
    return inline(define(source, number=_make_number_of_key(dtype)))


@functools.cache
def make_draw_many(dtype: type) -> Callable[..., Any]:
    """Make `draw(a, b, first, numbers)`: write those of `uniforms` from `first` on to an array.

    `numbers` is of a dtype. However many it has, there are no lines for each, as of `uniforms`.
    """
    number = _make_number_of_key(dtype)

    @inline
    def draw(a, b, first, numbers):
        for k in range(numbers.size):
            numbers[k] = number(a, b, _key_of(first + k))

    return draw


def _addends(place: int) -> tuple[int, int]:
    """Return what is added to a, K, and to b, L, for one place in a group of numbers.

    K is even, so that the odd a stays odd.
    """
    word = int(splitmix64(np.uint64(place)))
    return word & 0xFFFFFFFE, word >> 32


@inline
def word_addends(index):
    """Return `_addends` of number `index`, in kernels."""
    z = _mix64(u64(u64(index & (GROUP - 1)) + _GOLDEN64))
    return u32(z) & u32(0xFFFFFFFE), u32(z >> _WORD_BITS)


def splitmix64(x: Any) -> Any:
    """Mix uint64 values, one to one (the finaliser of SplitMix64; Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        return _mix64.py_func(u64(x) + _GOLDEN64)


@inline
def _mix64(z):
    """Return a uint64 each of whose bits depends on all bits of z."""
    z = u64(u64(z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9))
    z = u64(u64(z ^ (z >> u64(27))) * u64(0x94D049BB133111EB))
    return u64(z ^ (z >> u64(31)))


# ---------------------------------------------------------------- streams and seeds


@inline
def uniform53(key: Any, counter: Any) -> Any:
    """Return number `counter` of the stream `key` (both uint64) in [0, 1), with 53 random bits.

    SplitMix64 (Steele, Lea & Flood 2014), of which any number can be had without those before.
    """
    z = _mix64(u64(key + u64(counter + u64(1)) * _GOLDEN64))
    return np.float64(z >> u64(11)) * 2.0**-53


def keys(seeds: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Return the keys of independent streams.

    Args:
        seeds: (n,) uint64, one per stream; different seeds give different keys.

    Returns:
        (2, n) uint32, the low and the high word of each key.
    """
    mixed = splitmix64(seeds)
    return np.stack((mixed & _LOW_WORD, mixed >> _WORD_BITS)).astype(np.uint32)


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
    is_list = isinstance(seed, Sequence) and not isinstance(seed, str | bytes)
    kind: Any = type(seed)  # no subclass, such as a masked array
    is_array = kind is np.ndarray and np.ndim(seed) == 1
    if not is_list and not is_array:
        raise TypeError(f"seed={seed!r}: expected an int or a list of {count} ints")
    if len(seed) != count:
        raise ValueError(f"seed has {len(seed)} entries: expected one int or a list of {count}")
    return np.array([_to_64_bits(item) for item in seed], dtype=np.uint64)


def _to_64_bits(seed: Any) -> int:
    """Return a seed as it is, or the hash of one of more bits."""
    value = check_seed(seed)
    if value < 2**64:
        return value
    return int(np.random.SeedSequence(value).generate_state(1, np.uint64)[0])


# ---------------------------------------------------------------- numbers asked for one by one

#: Groups of numbers that begin here are those of `Rng`: of steps, of resets, and of `randomize`.
#: Those below belong to functions that take `uniforms`, and to policies.
STEP_GROUP, RESET_GROUP, RANDOMIZE_GROUP = 1 << 28, 2 << 28, 3 << 28
#: Index from which on numbers are counted that are asked for without an index.
UNNUMBERED = 1 << 30
#: Parts of a step that have numbers of their own, and the distance of their groups.
PARTS, PART_GROUPS = 64, 1 << 20


class Draws:
    """Methods of `Rng`: numbers of several distributions from random words.

    Each takes one number of the step, number k. Without k it is the one after those that were drawn
    without before it, and never one of those that have a k. As k stands first and may be left out,
    the other arguments stand one place further to the left then: see `_split_k`.
    """

    dtype: type

    def word(self, k: int | None) -> int:
        """Return the 32 random bits of number k, or of the next one for None."""
        raise NotImplementedError

    def words(self, k: int | None) -> Callable[[int], int]:
        """Return the function of i that gives words of number k's own, of which there are many."""
        raise NotImplementedError

    def part(self, k: int) -> Any:
        """Return an `Rng` of other numbers, those of part k of the step, for k below `PARTS`.

        Part 0 has the numbers of the step itself. Draws without an index go on in their order.
        """
        return self

    def uniform(self, k: int | None = None) -> float:
        """Return a number in [0, 1)."""
        word = self.word(k)
        if self.dtype is np.float32:  # as in `make_to_number`
            return (word >> 8) * 2.0**-24
        return (word ^ word >> 24) * 2.0**-32

    def normal(self, k: int | None = None) -> float:
        """Return a normal number of mean 0 and standard deviation 1."""
        return self._draw(distributions.normal, k)

    def exponential(self, k: int | None = None) -> float:
        """Return an exponential number of mean 1."""
        return self._draw(distributions.exponential, k)

    def integers(self, k: int | None, n: int | None = None) -> int:
        """Return a whole number from 0 to n - 1, for n from 1 to 2**32: `integers([k,] n)`."""
        k, n = _split_k(k, n)
        return self.word(k) * n >> 32

    def poisson(self, k: Any, lam: Any = None) -> int:
        """Return a Poisson number of mean lam: `poisson([k,] lam)`.

        Raises:
            ValueError: lam is negative or NaN; in plain Python.
        """
        k, lam = _split_k(k, lam)
        if not lam >= 0.0:
            raise ValueError(f"lam={lam}: expected a mean of at least 0")
        return int(self._draw(distributions.poisson, k, float(lam)))

    def binomial(self, k: Any, n: Any, p: Any = None) -> int:
        """Return how many of n trials succeed with probability p: `binomial([k,] n, p)`.

        Raises:
            ValueError: n is negative, or p is not in 0 to 1; in plain Python.
        """
        k, n, p = _split_k(k, n, p)
        if not n >= 0 or not 0.0 <= p <= 1.0:
            raise ValueError(f"n={n}, p={p}: expected n of at least 0, and p from 0 to 1")
        return int(self._draw(distributions.binomial, k, int(n), float(p)))

    def categorical(self, k: Any, weights: Any = None) -> int:
        """Return an index, as likely as its weight says: `categorical([k,] weights)`.

        Weights are a tuple of numbers, or an array of one axis; their sum need not be 1.

        Raises:
            ValueError: there is no weight, one is negative or NaN, or all are 0; in plain Python.
        """
        k, weights = _split_k(k, weights)
        numbers = tuple(map(float, weights))
        if not numbers or not min(numbers) >= 0.0 or not sum(numbers) > 0.0:
            raise ValueError(f"weights={weights}: expected numbers of at least 0, not all 0")
        return int(self._draw(distributions.make_categorical(len(numbers)), k, numbers))

    def permutation(self, k: Any, items: Any = None) -> tuple[Any, ...]:
        """Return a tuple's items in random order: `permutation([k,] items)`.

        Of a whole number, the numbers below it: a constant in kernels, where all items are of one
        type. Of 13 items and more there are more orders than words.
        """
        k, items = _split_k(k, items)
        order = list(items if isinstance(items, tuple) else range(items))
        self.shuffle(k, order)
        return tuple(order)

    def shuffle(self, k: Any, array: Any = None) -> None:
        """Bring an array of one axis into random order, in place: `shuffle([k,] array)`.

        The order is that of `permutation`.
        """
        k, array = _split_k(k, array)
        words = self.words(k)
        for i in range(len(array) - 1, 0, -1):  # Fisher & Yates, as Durstenfeld (1964) has it
            j = words(i) * (i + 1) >> 32
            array[i], array[j] = array[j], array[i]

    def _draw(self, distribution: Any, k: Any, *inputs: Any) -> Any:
        """Return number k of a function of `distributions`, of its word and inputs."""
        return distributions.in_python(distribution, self.dtype)(u32(self.word(k)), *inputs)


def _split_k(*arguments: Any) -> tuple[Any, ...]:
    """Return k, or None, and the arguments behind it: without k the last one is missing."""
    return arguments if arguments[-1] is not None else (None, *arguments[:-1])


class _Words(NamedTuple):
    """The fields of `Rng`."""

    a: int  # a and b are two 32-bit words from `mix`; `Rng.of_seed` makes them
    b: int
    first: int = STEP_GROUP  # the group of number 0
    dtype: type = np.float64  # of real numbers: np.float32 has 24 random bits, np.float64 has 32
    calls: Any = None  # how many numbers were asked for without an index: a list of one int


class Rng(Draws, _Words):
    """The random numbers of one step or reset of one environment: as many as it asks for.

    Numbers are asked for in turn, `rng.uniform()`, or by an index of their own, `rng.uniform(k)`.
    In turn, each call gives another number, and what a call gives depends on how many came before.
    Number k is the same however often it is asked for, and independent of every other: give each
    use a k of its own. Kernels draw numbers of a constant k, and those in turn that are not within
    branches, fastest.

    Example:
        >>> rng = Rng.of_seed(0)
        >>> rng.integers(0, 6), rng.integers(1, 6), rng.integers(0, 6)
        (3, 4, 3)
        >>> rng.integers(6), rng.poisson(2.5), rng.permutation(4)
        (3, 1, (3, 1, 0, 2))
    """

    __slots__ = ()

    def __new__(
        cls,
        a: int,
        b: int,
        first: int = STEP_GROUP,
        dtype: type = np.float64,
        calls: list[int] | None = None,
    ) -> Rng:
        """Return the numbers of two words."""
        return super().__new__(cls, a, b, first, dtype, [0] if calls is None else calls)

    @classmethod
    def of_seed(cls, seed: int, step: int = 0) -> Rng:
        """Return the numbers of one step of the stream of a seed."""
        low, high = keys(stream_seeds(seed, 1))
        with np.errstate(over="ignore"):
            a, b = mix.py_func(low[0], high[0], u32(step))
        return cls(int(a), int(b))

    def part(self, k: int) -> Rng:
        """Return the numbers of part k of the step; see `Draws`."""
        return Rng(self.a, self.b, self.first + k * PART_GROUPS, self.dtype, self.calls)

    def again(self) -> Rng:
        """Return the same numbers, of which none has been asked for."""
        return type(self)(*self[:-1])

    def word(self, k: int | None) -> int:
        """Return the 32 bits of number k, or of the next one."""
        if k is None:
            k = UNNUMBERED + self.calls[0]
            self.calls[0] += 1
        if k < 0:
            raise ValueError(f"k={k}: random numbers of a step are counted from 0")
        with np.errstate(over="ignore"):
            a, b = mix.py_func(u32(self.a), u32(self.b), u32(self.first + k // GROUP))
            to_a, to_b = _addends(k % GROUP)
            return int(u32(a + u32(to_a)) * u32(b + u32(to_b)))

    def words(self, k: int | None) -> Callable[[int], int]:
        """Return the function of i that gives words of number k's own."""
        return Rng(self.word(k), self.b, 0).word
