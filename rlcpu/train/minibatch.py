"""Minibatches: a random order of the samples, and their way into the networks' layout."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from rlcpu.kernels.compile import inline
from rlcpu.kernels.random import mix
from rlcpu.train.objective import ADVANTAGE, HEADS, OLD_LOG_PROB, TARGET, fill

#: Policies clip what they see to this many standard deviations.
CLIP_OBSERVATION = np.float32(10)

#: Four pass the tests of evenness, two do not; two more for safety.
ROUNDS = 6

u32 = np.uint32


@inline
def shuffled(position, count, bits, a, b):  # type: ignore[no-untyped-def]
    """Image of `position` under a random permutation of range(count), chosen by uint32 a and b.

    A Feistel network of `ROUNDS` rounds permutes the numbers of `bits` bits: each round changes one
    half by a hash of the other. Numbers outside of the range are sent on until they come back.
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
def _scramble(x):  # type: ignore[no-untyped-def]
    """Hash of a uint32 whose low bits depend on all bits of x."""
    x = u32(u32(x ^ (x >> u32(16))) * u32(0x7FEB352D))
    return u32(x ^ (x >> u32(15)))


@inline
def bits_of(count):  # type: ignore[no-untyped-def]
    """Bits of the network that permutes range(count); with fewer than 8 it is not even."""
    bits = 8
    while (1 << bits) < count:
        bits += 1
    return bits


@functools.cache
def make_shuffle(dtype: type) -> Callable[..., None]:
    """`shuffle(batch, space, settings, epoch, minibatch)`: draw its samples, and their moments."""
    zero, one = dtype(0), dtype(1)

    @inline
    def shuffle(batch, space, settings, epoch, minibatch):  # type: ignore[no-untyped-def]
        count = space.indices.size
        bits = bits_of(count)
        begin = minibatch * settings.minibatch_size
        end = min(begin + settings.minibatch_size, count)
        a, b = mix(settings.key_low, settings.key_high, u32(settings.shuffles + epoch))
        total = 0.0
        for i in range(begin, end):
            sample = np.int64(shuffled(i, count, bits, a, b))
            space.indices[i] = sample
            total += batch.advantages[sample]
        size = end - begin
        mean = total / size
        squares = 0.0
        for i in range(begin, end):
            squares += (batch.advantages[space.indices[i]] - mean) ** 2
        normal = settings.normalize != 0 and size > 1
        space.moments[minibatch, 0] = dtype(mean) if normal else zero
        deviation = np.sqrt(squares / max(size - 1, 1)) + 1e-8
        space.moments[minibatch, 1] = dtype(1.0 / deviation) if normal else one

    return shuffle


@functools.cache
def make_gather(dtype: type, discrete: bool) -> Callable[..., None]:
    """`gather(batch, samples, inputs, lanes, moments, actions)`: one chunk of the batch.

    Fills the networks' inputs (samples, padded observation_size) and the rows of `lanes` that the
    loss reads, see `rlcpu.train.objective`.
    """
    zero = dtype(0)

    @inline
    def see(inputs, observations, batch, samples):  # type: ignore[no-untyped-def]
        size, width = batch.mean.size, inputs.size // samples.size
        fill(inputs, zero)
        for i in range(samples.size):
            begin = samples[i] * size
            for k in range(size):
                x = (observations[begin + k] - batch.mean[k]) * batch.scale[k]
                x = -CLIP_OBSERVATION if x < -CLIP_OBSERVATION else x
                inputs[i * width + k] = CLIP_OBSERVATION if x > CLIP_OBSERVATION else x

    @inline
    def pick(row, source, samples, stride, offset):  # type: ignore[no-untyped-def]
        for i in range(samples.size):
            row[i] = source[samples[i] * stride + offset]

    @inline
    def gather(batch, samples, inputs, lanes, moments, actions):  # type: ignore[no-untyped-def]
        see(inputs, batch.observations, batch, samples)
        advantages = lanes[ADVANTAGE]
        pick(lanes[OLD_LOG_PROB], batch.log_probs, samples, 1, 0)
        pick(advantages, batch.advantages, samples, 1, 0)
        pick(lanes[TARGET], batch.targets, samples, 1, 0)
        for i in range(advantages.size):
            advantages[i] = (advantages[i] - moments[0]) * moments[1]
        numbers = 1 if discrete else actions
        for k in range(numbers):
            pick(lanes[HEADS + actions + k], batch.actions, samples, numbers, k)

    return gather
