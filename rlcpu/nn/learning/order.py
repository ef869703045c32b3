"""A random order of the samples of an epoch."""

from __future__ import annotations

import numpy as np

from rlcpu.kernels.compiler.compile import inline

#: Orders of four rounds pass the tests of evenness, those of two do not; two more for safety.
ROUNDS = 6

u32 = np.uint32


@inline
def shuffled(position, count, bits, a, b):
    """Return the number at `position` of a random order of range(count), without storing the order.

    A Feistel network of `ROUNDS` rounds permutes the numbers of `bits` bits: each round changes one
    half of the bits by a hash of the other half. Numbers of `count` and more are permuted again
    until they are below.

    Args:
        position: from 0 to count - 1.
        count: how many numbers are ordered.
        bits: see `bits_of`.
        a: uint32; together with b it is the key of the order.
        b: uint32.
    """
    low_bits, low_mask = u32(bits // 2), u32((1 << (bits // 2)) - 1)
    high_mask = u32((1 << (bits - bits // 2)) - 1)
    x = u32(position)
    while True:
        high, low, key = u32(x >> low_bits), u32(x & low_mask), u32(a)
        for _ in range(ROUNDS // 2):
            high = u32(high ^ (_scramble(u32(low + key)) & high_mask))
            key = u32(key + b)
            low = u32(low ^ (_scramble(u32(high + key)) & low_mask))
            key = u32(key + b)
        x = u32((high << low_bits) | low)
        if x < count:
            return x


@inline
def _scramble(x):
    """Return a hash of a uint32 whose low bits depend on all bits of x."""
    x = u32(u32(x ^ (x >> u32(16))) * u32(0x7FEB352D))
    return u32(x ^ (x >> u32(15)))


@inline
def bits_of(count):
    """Return the bits of the numbers that `shuffled` permutes; with fewer than 8 it is not even."""
    bits = 8
    while (1 << bits) < count:
        bits += 1
    return bits
