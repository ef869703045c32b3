"""Layer normalisation (Ba et al. 2016, "Layer normalization", equation 4).

With the mean and the variance of the n units of one sample,

    y = gain * (x - mean) / sqrt(variance + 1e-5) + shift

A forward pass leaves (x - mean) / sqrt(...) in the place of x, and what x was divided by: the way
back needs both.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from rlcpu.kernels.compile import inline, outline
from rlcpu.nn.layers.kind import (
    OVERWRITTEN,
    UNIT,
    Kind,
    Layer,
    Parameters,
    Sizes,
    gradients_of,
    inputs_of,
    output_slopes,
    outputs_of,
    parameters_of,
    saved_of,
    vector,
    wants_parameters,
)
from rlcpu.nn.layers.rows import add_rows, fill

#: Added to the variance of a layer; torch's.
NORM_EPSILON = 1e-5


@functools.cache
def make_forward(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)`, see `Kind`."""
    zero, one, none = dtype(0), dtype(1), dtype(-np.inf)
    epsilon = dtype(NORM_EPSILON)

    @inline
    def center(row):
        total = zero
        for k in range(row.size):
            total += row[k]
        mean = total / dtype(row.size)
        for k in range(row.size):
            row[k] -= mean

    @inline
    def variance(row):
        total = zero
        for k in range(row.size):
            total += row[k] * row[k]
        return total / dtype(row.size)

    @inline
    def scale(units, row, inverse, gains, shifts, floor):
        for k in range(row.size):
            row[k] *= inverse
            units[k] = max(row[k] * gains[k] + shifts[k], floor)

    @inline
    def normalise(units, rows, inverses, parameters, size, floor):
        width = parameters.size // 2
        gains, shifts = parameters[:size], parameters[width : width + size]
        fill(units, zero)
        for i in range(inverses.size):
            row = rows[i * width : i * width + size]
            center(row)
            inverses[i] = one / np.sqrt(variance(row) + epsilon)
            scale(units[i * width : i * width + size], row, inverses[i], gains, shifts, floor)

    @outline
    def forward(step, work):
        normalise(
            outputs_of(step, work),
            inputs_of(step, work),
            saved_of(step, work)[: work.samples],
            parameters_of(step, work),
            step.size_in,
            zero if step.floor != 0 else none,
        )

    return forward


@functools.cache
def make_backward(dtype: type) -> Callable[..., None]:
    """Make `backward(step, work)`, see `Kind`."""
    zero = dtype(0)

    @inline
    def add_products(sums, rows, others):
        width = sums.size
        for begin in range(0, rows.size, width):
            row, other = rows[begin : begin + width], others[begin : begin + width]
            for i in range(width):
                sums[i] += row[i] * other[i]

    @inline
    def through_one(row, slopes, inverse, gains):
        mean = product_mean = zero
        for k in range(row.size):
            slopes[k] *= gains[k]
            mean += slopes[k]
            product_mean += slopes[k] * row[k]
        mean, product_mean = mean / dtype(row.size), product_mean / dtype(row.size)
        for k in range(row.size):
            row[k] = inverse * (slopes[k] - mean - row[k] * product_mean)

    @inline
    def through_all(rows, slopes, inverses, gains, size):
        width = gains.size
        for i in range(inverses.size):
            begin, end = i * width, i * width + size
            through_one(rows[begin:end], slopes[begin:end], inverses[i], gains[:size])

    @outline
    def backward(step, work):
        rows, slopes, width = inputs_of(step, work), output_slopes(step, work), step.width_in
        if wants_parameters(work):
            gradients = gradients_of(step, work)
            if work.mode & OVERWRITTEN:
                fill(gradients, zero)
            add_products(gradients[:width], slopes, rows)
            add_rows(gradients[width:], slopes)
        gains, inverses = parameters_of(step, work)[:width], saved_of(step, work)[: work.samples]
        through_all(rows, slopes, inverses, gains, step.size_in)

    return backward


LAYER_NORM = Kind("layer_norm", make_forward, make_backward, is_private=True, takes_floor=True)


@dataclasses.dataclass(frozen=True, eq=False)
class LayerNorm(Layer):
    """Bring each sample's numbers to mean 0 and variance 1, then scale and shift them.

    As `torch.nn.LayerNorm` does (Ba et al. 2016); gains begin with 1, shifts with 0.
    """

    kind = LAYER_NORM
    saved = UNIT

    def parameters(self, sizes: Sizes) -> list[Parameters]:
        """Return its arrays; see `Layer`."""
        return [vector("gains", sizes.outputs, 1.0), vector("shifts", sizes.outputs, 0.0)]
