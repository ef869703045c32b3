"""Multi-layer perceptrons on a block of lanes: one compiled kernel serves every architecture.

Parameters are one flat array, layer after layer: the weights (inputs, outputs), row-major, then the
biases (outputs,). A block of lanes (environments) passes all layers while its activations stay in
cache: 64 lanes of 4-64-64-3 are 35 KB beside 19 KB of parameters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from rlcpu.kernels.compile import inline, specialise
from rlcpu.kernels.matmul import Matrix, product_from_column
from rlcpu.kernels.memory import address

#: Codes of the hidden layers' activation.
TANH, RELU = 0, 1


@functools.cache
def make_forward(dtype: type) -> Callable[..., int]:
    """The forward pass in one dtype, as a plain function that kernels inline.

    Returns:
        `forward(parameters, sizes, activation, activations, lanes) -> index`: runs all layers on
        one block. `parameters` (P,) flat; `sizes` (L + 1,) int64; `activation` TANH or RELU, of the
        hidden layers; `activations` (sum(sizes) * lanes,) flat, layer after layer with one row of
        `lanes` numbers per unit: the first `sizes[0]` rows are the input, all others are
        overwritten; `lanes` a multiple of 16 (best of 32; 64 fit in the first-level cache). The
        last layer has no activation: its rows begin at the returned index.
    """
    tanh = specialise(hyperbolic_tangent, dtype)
    zero, none = dtype(0), dtype(-np.inf)

    @inline
    def tanh_in_place(values):
        for i in range(values.size):
            values[i] = tanh(values[i])

    @inline
    def forward(parameters, sizes, activation, activations, lanes):
        pointer, cells = address(parameters), address(activations)
        weights = inputs = outputs = 0
        layers = sizes.size - 1
        for layer in range(layers):
            fan_in, fan_out = sizes[layer], sizes[layer + 1]
            biases, outputs = weights + fan_in * fan_out, inputs + fan_in * lanes
            hidden = layer < layers - 1
            product_from_column(
                Matrix(pointer, weights, 1, fan_out),
                Matrix(cells, inputs, lanes, 1),
                Matrix(pointer, biases, 1, 0),
                Matrix(cells, outputs, lanes, 1),
                (fan_out, fan_in, lanes),
                zero if hidden and activation == RELU else none,
            )
            if hidden and activation == TANH:
                tanh_in_place(activations[outputs : outputs + fan_out * lanes])
            weights, inputs = biases + fan_out, outputs
        return outputs

    return forward


def hyperbolic_tangent(x: float) -> float:
    """tanh(x)."""
    return math.tanh(x)


#: The forward pass of float32 networks.
forward = make_forward(np.float32)
