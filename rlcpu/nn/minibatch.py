"""Minibatches: a random order of the samples, and their way into the networks' layout."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import inline
from rlcpu.kernels.random import mix
from rlcpu.nn.heads import fill
from rlcpu.nn.network import BIASES, CLIP, WEIGHTS, WIDTH_IN, WIDTH_OUT

#: Four pass the tests of evenness, two do not; two more for safety.
ROUNDS = 6

u32 = np.uint32


class Ones(NamedTuple):
    """Inputs of S samples that are zeros but for a few ones, such as boards and choices.

    A first layer adds up the rows of its weights that belong to the ones, in the place of
    multiplying all of them.

    Attributes:
        starts: (S + 1,) int64: those of sample i are `columns[starts[i]:starts[i + 1]]`.
        columns: (any,) int32, which inputs are one.
        size: how many inputs a sample has.
    """

    starts: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int32]
    size: int

    @classmethod
    def of(cls, inputs: npt.NDArray[Any]) -> Ones:
        """Of an array (S, size) of zeros and ones, of uint8 or bool.

        Raises:
            TypeError: it is of another dtype, or has other axes.
        """
        if inputs.dtype not in (np.uint8, np.bool_) or inputs.ndim != 2:
            shape = f"shape {inputs.shape} and dtype {inputs.dtype}"
            raise TypeError(f"inputs have {shape}: expected (S, size) of uint8 or bool")
        count, size = inputs.shape
        places = np.flatnonzero(inputs.reshape(-1).view(np.bool_))
        starts = np.searchsorted(places, np.arange(count + 1) * size)
        return cls(starts, (places % size).astype(np.int32), size)

    def check(self, size: int) -> None:
        """Raise ValueError unless they are inputs of networks of so many."""
        starts, columns = np.asarray(self.starts), np.asarray(self.columns)
        kinds = f"{starts.dtype} {starts.ndim} {columns.dtype} {columns.ndim}"
        if kinds != "int64 1 int32 1" or self.size != size or len(starts) < 2:
            raise ValueError(
                f"inputs have starts {starts.shape} {starts.dtype}, columns {columns.shape} "
                f"{columns.dtype}, size {self.size}: expected (S + 1,) int64, (any,) int32, {size}"
            )
        if starts[0] != 0 or starts[-1] != len(columns) or (np.diff(starts) < 0).any():
            raise ValueError(f"starts of inputs: expected to grow from 0 to {len(columns)}")
        if len(columns) and not 0 <= columns.min() <= columns.max() < size:
            raise ValueError(f"columns of inputs: expected 0 to {size - 1}")

    def expand(self) -> npt.NDArray[np.float32]:
        """All inputs, (S, size) float32."""
        inputs = np.zeros((len(self.starts) - 1, self.size), np.float32)
        inputs[np.repeat(np.arange(len(inputs)), np.diff(self.starts)), self.columns] = 1.0
        return inputs


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
def add_rows_of_ones(cells, network, batch, samples):
    """What the first layer makes of ones, in front of its activation."""
    begin, biases = network.table[0, WEIGHTS], network.table[0, BIASES]
    width, place = network.table[0, WIDTH_OUT], samples.size * network.table[0, WIDTH_IN]
    for i in range(samples.size):
        out = cells[place + i * width : place + (i + 1) * width]
        for j in range(width):
            out[j] = network.parameters[biases + j]
        for k in range(batch.starts[samples[i]], batch.starts[samples[i] + 1]):
            at = begin + batch.ones[k] * width
            row = network.parameters[at : at + width]
            for j in range(width):
                out[j] += row[j]


@inline
def add_to_rows_of_ones(gradients, cells, network, batch, samples):
    """The gradient of that by the weights; cells are what `backward` leaves."""
    begin, width = network.table[0, WEIGHTS], network.table[0, WIDTH_OUT]
    place = samples.size * network.table[0, WIDTH_IN]
    for i in range(samples.size):
        slopes = cells[place + i * width : place + (i + 1) * width]
        for k in range(batch.starts[samples[i]], batch.starts[samples[i] + 1]):
            at = begin + batch.ones[k] * width
            row = gradients[at : at + width]
            for j in range(width):
                row[j] += slopes[j]


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
