"""Minibatches: a random order of the samples, and their way into the networks' layout."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from rlcpu.kernels.compile import inline
from rlcpu.kernels.random import mix
from rlcpu.nn.heads import fill
from rlcpu.nn.network import CLIP

#: Four pass the tests of evenness, two do not; two more for safety.
ROUNDS = 6

u32 = np.uint32


@inline
def shuffled(position, count, bits, a, b):
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
def _scramble(x):
    """Hash of a uint32 whose low bits depend on all bits of x."""
    x = u32(u32(x ^ (x >> u32(16))) * u32(0x7FEB352D))
    return u32(x ^ (x >> u32(15)))


@inline
def bits_of(count):
    """Bits of the network that permutes range(count); with fewer than 8 it is not even."""
    bits = 8
    while (1 << bits) < count:
        bits += 1
    return bits


@functools.cache
def make_shuffle(dtype: type) -> Callable[..., None]:
    """`shuffle(batch, space, settings, epoch, minibatch)`: draw its samples.

    It also writes by what mean and deviation the column to be normalised is.
    """
    zero, one = dtype(0), dtype(1)

    @inline
    def mean_of(column, samples):
        total = 0.0
        for i in range(samples.size):
            total += column[samples[i]]
        return total / samples.size

    @inline
    def deviation_of(column, samples, mean):
        total = 0.0
        for i in range(samples.size):
            total += (column[samples[i]] - mean) ** 2
        return np.sqrt(total / max(samples.size - 1, 1)) + 1e-8

    @inline
    def shuffle(batch, space, settings, epoch, minibatch):
        count = space.indices.size
        bits = bits_of(count)
        begin = minibatch * settings.minibatch_size
        samples = space.indices[begin : min(begin + settings.minibatch_size, count)]
        a, b = mix(settings.key_low, settings.key_high, u32(settings.shuffles + epoch))
        for i in range(samples.size):
            samples[i] = np.int64(shuffled(begin + i, count, bits, a, b))
        space.moments[minibatch, 0], space.moments[minibatch, 1] = zero, one
        if settings.normalized >= 0 and samples.size > 1:
            column = batch.columns[settings.normalized]
            mean = mean_of(column, samples)
            space.moments[minibatch, 0] = dtype(mean)
            space.moments[minibatch, 1] = dtype(1.0 / deviation_of(column, samples, mean))

    return shuffle


@inline
def see(inputs, batch, samples):
    """The networks' inputs (samples, padded size), normalised and clipped."""
    size, width = batch.mean.size, inputs.size // samples.size
    fill(inputs, 0.0)
    for i in range(samples.size):
        begin = samples[i] * size
        for k in range(size):
            x = (batch.inputs[begin + k] - batch.mean[k]) * batch.scale[k]
            x = -CLIP if x < -CLIP else x
            inputs[i * width + k] = CLIP if x > CLIP else x


@inline
def pick(row, source, samples, stride, offset):
    """One number of each sample."""
    for i in range(samples.size):
        row[i] = source[samples[i] * stride + offset]


@inline
def normalize(row, mean, inverse):
    """Subtract a mean, divide by a deviation."""
    for i in range(row.size):
        row[i] = (row[i] - mean) * inverse


@inline
def gather(batch, samples, inputs, columns, actions, moments, settings):
    """Fill the networks' inputs, and the rows of columns and actions that losses read."""
    if batch.starts.size == 0:
        see(inputs, batch, samples)
    for k in range(batch.columns.shape[0]):
        pick(columns[k], batch.columns[k], samples, 1, 0)
    if settings.normalized >= 0:
        normalize(columns[settings.normalized], moments[0], moments[1])
    for k in range(settings.action_size):
        pick(actions[k], batch.actions, samples, settings.action_size, k)
