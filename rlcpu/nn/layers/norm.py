"""Layer normalisation (Ba et al. 2016, "Layer normalization", equation 4).

With the mean and the variance of the n units of one sample,

    y = gain * (x - mean) / sqrt(variance + 1e-5) + shift

A forward pass leaves z = (x - mean) / sqrt(...) in the place of x, and 1 / sqrt(...) in the saved
units: the backward pass needs both.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.network.passes.Work`). Slopes
are derivatives of the loss with respect to a layer's inputs or outputs, gradients those with
respect to its parameters.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compiler.compile import inline, outline
from rlcpu.kernels.machine.memory import part
from rlcpu.nn.layers.graph import LayerOutput
from rlcpu.nn.layers.kind import (
    OVERWRITTEN,
    Kind,
    Layer,
    LayerSizes,
    ParameterArray,
    gradients_of,
    inputs_of,
    output_slopes,
    outputs_of,
    padded,
    parameters_of,
    saved_of,
    vector,
    wants_parameters,
)
from rlcpu.nn.layers.rows import add_to, fill

#: Added to the variance of a layer; torch's.
NORM_EPSILON = 1e-5


class Groups(NamedTuple):
    """Numbers that are normalised together: all of a sample, or the channels of each pixel."""

    size: Any  # numbers of a group
    per_sample: Any  # groups of a sample
    inverses: Any  # (samples * per_sample,) saved, 1 / deviation of each group


@inline
def groups_of(step, work):
    """Return the `Groups` of a step; one of pixels has `step.channels`."""
    size = step.channels if step.channels > 0 else step.size_in
    per_sample = step.size_in // size
    return Groups(size, per_sample, part(saved_of(step, work), 0, work.samples * per_sample))


@inline
def members(rows, step, groups, number):
    """Return the numbers of group `number`, counted over all samples.

    `rows` are inputs or outputs, or slopes of these: all have `width_in` numbers a sample.
    """
    sample, group = number // groups.per_sample, number % groups.per_sample
    return part(rows, sample * step.width_in + group * groups.size, groups.size)


@inline
def gains_and_shifts(parameters, size):
    """Return both arrays (size,) of a layer's parameters, or of the gradients of these.

    Each has half of `parameters`, with padding behind its `size` numbers.
    """
    return parameters[:size], part(parameters, parameters.size // 2, size)


@functools.cache
def make_forward(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)`, see `Kind`."""
    zero, one, no_floor = dtype(0), dtype(1), dtype(-np.inf)
    epsilon = dtype(NORM_EPSILON)

    @inline
    def center(row):
        """Subtract the mean of a row."""
        total = zero
        for k in range(row.size):
            total += row[k]
        mean = total / dtype(row.size)
        for k in range(row.size):
            row[k] -= mean

    @inline
    def variance(row):
        """Return the variance of a row whose mean is 0."""
        total = zero
        for k in range(row.size):
            total += row[k] * row[k]
        return total / dtype(row.size)

    @inline
    def scale(out, row, inverse, gains, shifts, floor):
        """Divide a row by its deviation, and write it with gains and shifts to `out`.

        `floor` is 0 where a relu behind the layer is computed with it, else -inf.
        """
        for k in range(row.size):
            row[k] *= inverse
            out[k] = max(row[k] * gains[k] + shifts[k], floor)

    @outline
    def forward(step, work):
        """Normalise, scale and shift the numbers of each sample or pixel: of each group."""
        floor = zero if step.fuses_relu != 0 else no_floor
        outputs, inputs = outputs_of(step, work), inputs_of(step, work)
        groups = groups_of(step, work)
        gains, shifts = gains_and_shifts(parameters_of(step, work), groups.size)
        fill(outputs, zero)
        for number in range(groups.inverses.size):
            row = members(inputs, step, groups, number)
            center(row)
            inverse = one / np.sqrt(variance(row) + epsilon)
            groups.inverses[number] = inverse
            scale(members(outputs, step, groups, number), row, inverse, gains, shifts, floor)

    return forward


@functools.cache
def make_backward(dtype: type) -> Callable[..., None]:
    """Make `backward(step, work)`, see `Kind`."""
    zero = dtype(0)

    @inline
    def add_products(sums, row, other):
        """Add the products of two rows, number by number."""
        for k in range(row.size):
            sums[k] += row[k] * other[k]

    @inline
    def to_input_slopes(z, slopes, inverse, gains):
        """Overwrite normalised numbers z with the slopes of x.

        With d = slopes * gains, of the outputs, they are inverse * (d - mean(d) - z mean(d z)),
        where `inverse` is 1 / deviation. `slopes` are overwritten with d.
        """
        mean = product_mean = zero
        for k in range(z.size):
            slopes[k] *= gains[k]
            mean += slopes[k]
            product_mean += slopes[k] * z[k]
        mean, product_mean = mean / dtype(z.size), product_mean / dtype(z.size)
        for k in range(z.size):
            z[k] = inverse * (slopes[k] - mean - z[k] * product_mean)

    @outline
    def backward(step, work):
        """Add gradients of gains and shifts; overwrite the inputs, now z, with slopes of x."""
        groups, gradients = groups_of(step, work), gradients_of(step, work)
        inputs, slopes = inputs_of(step, work), output_slopes(step, work)
        gains, _ = gains_and_shifts(parameters_of(step, work), groups.size)
        if wants_parameters(work) and work.mode & OVERWRITTEN:
            fill(gradients, zero)
        for number in range(groups.inverses.size):
            z, slope = members(inputs, step, groups, number), members(slopes, step, groups, number)
            if wants_parameters(work):
                by_gains, by_shifts = gains_and_shifts(gradients, groups.size)
                add_products(by_gains, slope, z)
                add_to(by_shifts, slope)
            to_input_slopes(z, slope, groups.inverses[number], gains)

    return backward


LAYER_NORM = Kind(
    "layer_norm", make_forward, make_backward, overwrites_inputs=True, fuses_relu=True
)


@dataclasses.dataclass(frozen=True, eq=False)
class LayerNorm(Layer):
    """Bring each sample's numbers to mean 0 and variance 1, then scale and shift them.

    As `torch.nn.LayerNorm` does (Ba et al. 2016); gains begin with 1, shifts with 0.

    Attributes:
        each_pixel: of an image, do so with the channels of each pixel, which share gains and
            shifts, as `flax.linen.LayerNorm` does.
    """

    each_pixel: bool = False
    kind = LAYER_NORM
    keeps_image = True

    def __repr__(self) -> str:
        return f"LayerNorm({'each_pixel=True' * self.each_pixel})"

    def fields(self, source: LayerOutput) -> dict[str, int]:
        """Return fields of its `LayerStep`; see `Layer`.

        Raises:
            ValueError: it is of pixels, and there is no image in front of it.
        """
        if not self.each_pixel:
            return {}
        if source.picture is None or source.picture.are_planes:
            raise ValueError(f"{self!r} has no image in front of it, such as of nn.Convolution")
        return {"channels": source.picture.channels}

    def _group_size(self, sizes: LayerSizes) -> int:
        """Return how many numbers are normalised together."""
        return sizes.image_in.channels if self.each_pixel else sizes.outputs

    def num_saved(self, sizes: LayerSizes) -> int:
        """Return how many saved units a sample has; see `Layer`."""
        return padded(sizes.outputs // self._group_size(sizes))

    def parameters(self, sizes: LayerSizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        size = self._group_size(sizes)
        return [vector("gains", size, 1.0), vector("shifts", size, 0.0)]
