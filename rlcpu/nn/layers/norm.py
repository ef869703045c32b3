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
import math
from typing import Any, NamedTuple

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.memory import part
from rlcpu.nn.layers.graph import LayerOutput
from rlcpu.nn.layers.kind import (
    BY_PARAMETERS,
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


def forward(step, work):
    """Normalise, scale and shift the numbers of each sample or pixel: of each group; see `Kind`."""
    floor = 0.0 if step.fuses_relu != 0 else -math.inf
    outputs, inputs = outputs_of(step, work), inputs_of(step, work)
    groups = groups_of(step, work)
    gains, shifts = gains_and_shifts(parameters_of(step, work), groups.size)
    fill(outputs, 0.0)
    for number in range(groups.inverses.size):
        row = members(inputs, step, groups, number)
        inverse = normalise(row)
        groups.inverses[number] = inverse
        out = members(outputs, step, groups, number)
        for k in range(row.size):
            out[k] = max(row[k] * gains[k] + shifts[k], floor)


def normalise(row):
    """Bring a row to mean 0 and variance 1, and return 1 / deviation."""
    total, squares = 0.0, 0.0
    for k in range(row.size):
        total += row[k]
    mean = total / row.size
    for k in range(row.size):
        row[k] -= mean
    for k in range(row.size):
        squares += row[k] * row[k]
    inverse = 1.0 / math.sqrt(squares / row.size + NORM_EPSILON)
    for k in range(row.size):
        row[k] *= inverse
    return inverse


def to_input_slopes(z, slopes, inverse, gains):
    """Overwrite normalised numbers z with the slopes of x.

    With d = slopes * gains, of the outputs, they are inverse * (d - mean(d) - z mean(d z)), where
    `inverse` is 1 / deviation. `slopes` are overwritten with d.
    """
    total, product_total = 0.0, 0.0
    for k in range(z.size):
        slopes[k] *= gains[k]
        total += slopes[k]
        product_total += slopes[k] * z[k]
    mean, product_mean = total / z.size, product_total / z.size
    for k in range(z.size):
        z[k] = inverse * (slopes[k] - mean - z[k] * product_mean)


def backward(step, work):
    """Add gradients of gains and shifts; overwrite the inputs, now z, with slopes of x."""
    groups, gradients = groups_of(step, work), gradients_of(step, work)
    inputs, slopes = inputs_of(step, work), output_slopes(step, work)
    gains, _ = gains_and_shifts(parameters_of(step, work), groups.size)
    if work.mode & OVERWRITTEN:
        fill(gradients, 0.0)
    for number in range(groups.inverses.size):
        z, slope = members(inputs, step, groups, number), members(slopes, step, groups, number)
        if work.mode & BY_PARAMETERS:
            by_gains, by_shifts = gains_and_shifts(gradients, groups.size)
            for k in range(z.size):
                by_gains[k] += slope[k] * z[k]
            add_to(by_shifts, slope)
        to_input_slopes(z, slope, groups.inverses[number], gains)


LAYER_NORM = Kind("layer_norm", forward, backward, overwrites_inputs=True, fuses_relu=True)


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
