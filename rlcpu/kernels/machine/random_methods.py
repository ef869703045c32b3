"""`Rng` in kernels: what numba is taught of its methods.

`make_rng` makes it in a kernel, a NamedTuple of the same fields as in Python. Its `calls` is a
pointer there. Each method draws the 32 bits of a number, and makes of them what the function of the
same name in `rlcpu.kernels.machine.distributions` does in plain Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, type_callable

from rlcpu.kernels.compiler import maths
from rlcpu.kernels.compiler.compile import INLINE, define, inline, inline_source, specialise
from rlcpu.kernels.compiler.hooks import overload_method_of
from rlcpu.kernels.machine import distributions
from rlcpu.kernels.machine.random import (
    PART_GROUPS,
    UNNUMBERED,
    Rng,
    make_to_number,
    mix,
    u32,
    u64,
    word_addends,
)
from rlcpu.kernels.machine.tuples import swapped

_GROUP_BITS = u32(3)  # a group has 2 ** 3 numbers


@functools.cache
def make_rng(first: int, dtype: type) -> Callable[..., Any]:
    """Make a function for kernels: (a, b) -> the `Rng` of two words; `first` is its group."""
    group: Any = u32(first)
    # Written into its caller: the count of calls is in the caller's memory, until LLVM has it in a
    # register; where each call is run once, the count is a constant there.
    return inline_source(lambda a, b: Rng(a, b, group, dtype, _no_calls()))


_CALLS = types.CPointer(types.uint32)


def _no_calls() -> list[int]:
    """Return a count of calls, which is 0: a list in Python, a pointer in kernels."""
    return [0]


@lower_builtin(_no_calls)
def _count_from_zero(context, builder, signature, args):
    """Emit memory on the kernel's stack that holds 0, and return the pointer to it."""
    zero = context.get_constant(types.uint32, 0)
    pointer = cgutils.alloca_once(builder, zero.type)
    builder.store(zero, pointer)  # in a loop the memory is that of the turn before
    return pointer


type_callable(_no_calls)(lambda context: lambda: _CALLS)
maths.OVERLOADED.add(_no_calls)


@intrinsic
def _count_call(typing, calls):
    """Return how many calls came before, and count one more."""

    def generate(context, builder, signature, args):
        count = builder.load(args[0])
        builder.store(builder.add(count, count.type(1)), args[0])
        return count

    return types.uint32(calls), generate


@inline
def _draw_word(rng, k):
    """Return the 32 bits of number k: see `Rng.word`."""
    return _word_of(rng.a, rng.b, rng.first, k)


@inline
def _word_of(a, b, first, k):
    """Return the 32 bits of number k of two words, whose number 0 is in the group `first`."""
    number = u32(k)
    a, b = mix(a, b, u32(first + u32(number >> _GROUP_BITS)))
    to_a, to_b = word_addends(number)
    return u32(u32(a + to_a) * u32(b + to_b))


@inline
def _next_word(rng):
    """Return the 32 bits of the next number that has no index."""
    return _draw_word(rng, u32(_count_call(rng.calls) + u32(UNNUMBERED)))


# ---------------------------------------------------------------- methods in kernels


def _teach(name: str, *inputs: str) -> Callable[[Callable[..., Any]], None]:
    """Return a decorator that teaches numba the method `name([k,] *inputs)` of `Rng`.

    It decorates a function `make(dtype, *types of inputs)`, which returns `draw(b, word, *inputs)`,
    of the second word of the `Rng` and of the random bits drawn, or None where the types do not
    fit. Without k, the method draws the next bits in turn.
    """
    names = ("k", *inputs)

    def choose(make: Callable[..., Any], rng: Any, *kinds: Any) -> Any:
        """Return the method for types of arguments; None where they do not fit."""
        if rng.instance_class is not Rng:
            return None
        # Without k all inputs stand one place further to the left, and the last is missing.
        has_k = not isinstance(kinds[-1], types.Omitted | types.NoneType | None)
        word = "_draw_word(rng, k)" if has_k else "_next_word(rng)"
        places = slice(1, None) if has_k else slice(0, -1)
        field_types = dict(zip(Rng._fields, rng, strict=True))
        # The field holds a class, np.float32 or np.float64, and its type says which.
        dtype = np.float32 if field_types["dtype"].dtype == types.float32 else np.float64
        draw = make(dtype, *kinds[places])
        source = f"def method({signature}): return draw(rng.b, {', '.join((word, *names[places]))})"
        words = {"_next_word": _next_word, "_draw_word": _draw_word}
        return draw and define(source, draw=draw, **words)

    # Written as source, because numba compares the names of arguments.
    signature = f"rng, {', '.join((*names[:-1], f'{names[-1]}=None'))}"

    def teach(make: Callable[..., Any]) -> None:
        """Teach numba the method whose draws `make` returns."""
        source = f"def method({signature}): return choose(make, rng, {', '.join(names)})"
        overload_method_of(Rng, name, define(source, choose=choose, make=make), INLINE)

    return teach


def _part(rng, k):
    """Return `Rng.part` for types of arguments; None where they do not fit."""

    def part(rng, k):
        first: Any = u32(rng.first + u32(k) * u32(PART_GROUPS))
        return Rng(rng.a, rng.b, first, rng.dtype, rng.calls)

    return part if rng.instance_class is Rng else None


overload_method_of(Rng, "part", _part, INLINE)


@_teach("uniform")
def _uniform(dtype):
    """Make `Rng.uniform`."""
    to_number = make_to_number(dtype)
    return inline(lambda b, word: to_number(word))


@_teach("integers", "n")
def _integers(dtype, n):
    """Make `Rng.integers`."""
    return inline(lambda b, word, n: _scaled(word, n))


@inline
def _scaled(word, n):
    """Return a whole number from 0 to n - 1: the upper word of a random word times n."""
    return np.int64(u64(u64(word) * u64(n)) >> u64(32))


@_teach("normal")
def _normal(dtype):
    """Make `Rng.normal`."""
    draw = specialise(distributions.normal, dtype, exact=True)
    return inline(lambda b, word: draw(word))


@_teach("exponential")
def _exponential(dtype):
    """Make `Rng.exponential`."""
    draw = specialise(distributions.exponential, dtype, exact=True)
    return inline(lambda b, word: draw(word))


@_teach("poisson", "lam")
def _poisson(dtype, lam):
    """Make `Rng.poisson`."""
    draw = specialise(distributions.poisson, dtype, exact=True)
    return inline(lambda b, word, lam: draw(word, dtype(lam)))


@_teach("binomial", "n", "p")
def _binomial(dtype, n, p):
    """Make `Rng.binomial`."""
    draw = specialise(distributions.binomial, dtype, exact=True)
    return inline(lambda b, word, n, p: draw(word, n, dtype(p)))


@_teach("categorical", "weights")
def _categorical(dtype, weights):
    """Make `Rng.categorical`, of an array or a tuple of weights."""
    if isinstance(weights, types.Array) and weights.ndim == 1:
        count = None
    elif isinstance(weights, types.BaseTuple) and len(weights):
        count = len(weights)
    else:
        return None
    draw = specialise(distributions.make_categorical(count), dtype, exact=True)
    return inline(lambda b, word, weights: draw(word, weights))


@inline
def _place(b, word, i):
    """Return the place from 0 to i that item i changes places with, drawn from word i of a number.

    See `Rng.words` and `permutation`; `word` is the number's, `b` the second word of the `Rng`.
    """
    return _scaled(_word_of(word, b, u32(0), i), i + 1)


@_teach("permutation", "items")
def _permutation(dtype, items):
    """Make `Rng.permutation`, of a constant number of items or a tuple of them."""
    if isinstance(items, types.IntegerLiteral):
        numbers = tuple(range(items.literal_value))
        order = _make_order(len(numbers))
        return inline(lambda b, word, items: order(numbers, b, word))
    if isinstance(items, types.UniTuple):
        order = _make_order(len(items))
        return inline(lambda b, word, items: order(items, b, word))
    return None


@functools.cache
def _make_order(count: int) -> Callable[..., Any]:
    """Make a function (items, b, word) -> the items, a tuple, in random order.

    Item i changes places with one of items 0 to i, from the last one down.
    """
    swaps = [f"items = swapped(items, {i}, place(b, word, {i}))" for i in range(count - 1, 0, -1)]
    body = "\n    ".join([*swaps, "return items"])
    source = f"def order(items, b, word):\n    {body}"
    return inline(define(source, swapped=swapped, place=_place))


@_teach("shuffle", "array")
def _shuffle(dtype, array):
    """Make `Rng.shuffle` of an array: Fisher and Yates' algorithm."""
    if not isinstance(array, types.Array) or array.ndim != 1:
        return None

    def shuffle(b, word, array):
        for i in range(len(array) - 1, 0, -1):
            j = _place(b, word, i)
            array[i], array[j] = array[j], array[i]

    return inline(shuffle)
