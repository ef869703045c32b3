"""Layer normalisation (Ba et al. 2016, "Layer normalization", equation 4).

With the mean and the variance of the n units of one sample,

    y = gain * (x - mean) / sqrt(variance + 1e-5) + shift

A forward pass leaves z = (x - mean) / sqrt(...) in the place of x, and 1 / sqrt(...) in the saved
units: the backward pass needs both.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.passes.Work`). Slopes are
derivatives of the loss with respect to a layer's inputs or outputs, gradients those with respect to
its parameters.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from rlcpu.kernels.compile import inline, outline
from rlcpu.nn.layers.graph import LayerOutput
from rlcpu.nn.layers.kind import (
    OVERWRITTEN,
    Kind,
    Layer,
    ParameterArray,
    Sizes,
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


@inline
def group_of(step):
    """Return how many numbers are normalised together: all of a sample, or those of a pixel."""
    return step.channels if step.channels > 0 else step.size_in


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
        size, parameters = group_of(step), parameters_of(step, work)
        gains, shifts = parameters[:size], parameters[parameters.size // 2 :]
        groups = step.size_in // size  # of a sample
        inverses = saved_of(step, work)[: work.samples * groups]
        fill(outputs, zero)
        for i in range(inverses.size):
            # Outputs lie as inputs do, `width_in` numbers a sample.
            begin = i // groups * step.width_in + i % groups * size
            row, out = inputs[begin : begin + size], outputs[begin : begin + size]
            center(row)
            inverses[i] = one / np.sqrt(variance(row) + epsilon)
            scale(out, row, inverses[i], gains, shifts, floor)

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
        inputs, slopes, size = inputs_of(step, work), output_slopes(step, work), group_of(step)
        parameters, gradients = parameters_of(step, work), gradients_of(step, work)
        gains, shifts = parameters[:size], parameters.size // 2  # where shifts begin
        groups = step.size_in // size  # of a sample
        inverses = saved_of(step, work)[: work.samples * groups]
        if wants_parameters(work) and work.mode & OVERWRITTEN:
            fill(gradients, zero)
        for i in range(inverses.size):
            # Outputs lie as inputs do, `width_in` numbers a sample.
            begin = i // groups * step.width_in + i % groups * size
            z, slope = inputs[begin : begin + size], slopes[begin : begin + size]
            if wants_parameters(work):
                add_products(gradients[:size], slope, z)
                add_to(gradients[shifts : shifts + size], slope)
            to_input_slopes(z, slope, inverses[i], gains)

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

    def _size(self, sizes: Sizes) -> int:
        return sizes.image_in.channels if self.each_pixel else sizes.outputs

    def num_saved(self, sizes: Sizes) -> int:
        """Return how many saved units a sample has; see `Layer`."""
        return padded(sizes.outputs // self._size(sizes))

    def parameters(self, sizes: Sizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        size = self._size(sizes)
        return [vector("gains", size, 1.0), vector("shifts", size, 0.0)]
