"""Forward and backward pass of an MLP over samples, in the layout in which training is fastest.

Collection keeps one environment per lane. Training keeps one sample per row and units along the
vectors, because all three products of a step (activations, weight gradients, input gradients) then
read their operands as they lie: only the weights need a transposed copy, once per gradient step.

Every layer is padded to a multiple of 16 units. Padded weights are zero; so are the units behind
them and, as every product with them is zero, their gradients: padding changes no result.

Packed parameters, layer after layer: a hidden layer holds its weights (inputs, padded outputs) and
its biases (padded outputs,); inputs are padded except the network's own. The last layer, of few
outputs, is stored transposed, (outputs, padded inputs), so that no product is padded from its few
units to 16. `copies` holds the transposed weights of all layers but the first: hidden
(padded outputs, padded inputs), last (padded inputs, padded outputs).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels import simd
from rlcpu.kernels.compile import inline, specialise
from rlcpu.kernels.mlp import RELU, TANH, product
from rlcpu.kernels.simd import Matrix

#: Layers are padded to whole vectors of the widest machine.
UNIT = 16


class Network(NamedTuple):
    """One network as the kernels see it.

    Attributes:
        sizes: (num_layers + 1,) int64, units of the input and of each layer.
        activation: TANH or RELU, of the hidden layers.
        parameters: (packed_size,) packed weights and biases.
        copies: (copies_size,) transposed weights, made by `refresh_copies`.
    """

    sizes: Any
    activation: int
    parameters: Any
    copies: Any


@inline
def padded(size: int) -> int:
    """The size of a layer with its padding."""
    return (size + UNIT - 1) // UNIT * UNIT


@inline
def rows_of(sizes: Any, layer: int) -> int:
    """Rows of a layer's packed weights."""
    if layer == sizes.size - 2:
        return sizes[layer + 1]
    return sizes[0] if layer == 0 else padded(sizes[layer])


@inline
def columns_of(sizes: Any, layer: int) -> int:
    """Columns of a layer's packed weights."""
    return padded(sizes[layer] if layer == sizes.size - 2 else sizes[layer + 1])


def packed_size(sizes: npt.NDArray[np.int64]) -> int:
    """How many numbers the packed parameters are."""
    layers = range(len(sizes) - 1)
    return sum(rows_of(sizes, k) * columns_of(sizes, k) + padded(sizes[k + 1]) for k in layers)


def copies_size(sizes: npt.NDArray[np.int64]) -> int:
    """How many numbers the transposed copies are."""
    layers = len(sizes) - 1
    return sum(padded(sizes[k]) * padded(sizes[k + 1]) for k in range(min(1, layers - 1), layers))


def packed_layers(sizes: npt.NDArray[np.int64], packed: npt.NDArray) -> list[tuple[Any, Any]]:
    """Views (weights (inputs, outputs), biases (outputs,)) of each layer of packed parameters."""
    views, begin = [], 0
    for layer, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False)):
        shape = rows_of(sizes, layer), columns_of(sizes, layer)
        bias = begin + shape[0] * shape[1]
        weights = packed[begin:bias].reshape(shape)
        weights = weights.T if layer == len(sizes) - 2 else weights
        views.append((weights[:inputs, :outputs], packed[bias : bias + outputs]))
        begin = bias + padded(outputs)
    return views


def pack(sizes: npt.NDArray[np.int64], flat: npt.NDArray, packed: npt.NDArray) -> None:
    """Write flat parameters (see `rlcpu.kernels.mlp`) to `packed`; padding is left as it is."""
    begin = 0
    for weights, biases in packed_layers(sizes, packed):
        bias = begin + weights.size
        weights[:] = flat[begin:bias].reshape(weights.shape)
        begin = bias + biases.size
        biases[:] = flat[bias:begin]


def unpack(sizes: npt.NDArray[np.int64], packed: npt.NDArray, flat: npt.NDArray) -> None:
    """Write packed parameters to the flat array `flat`."""
    begin = 0
    for weights, biases in packed_layers(sizes, packed):
        bias = begin + weights.size
        flat[begin:bias].reshape(weights.shape)[:] = weights
        begin = bias + biases.size
        flat[bias:begin] = biases


@inline
def refresh_copies(network: Network) -> None:
    """Transpose the weights of all layers but the first into `network.copies`."""
    sizes = network.sizes
    weights = simd.address(network.parameters)
    copies = simd.address(network.copies)
    width = simd.lanes(weights)
    begin = rows_of(sizes, 0) * columns_of(sizes, 0) + padded(sizes[1])
    at = 0
    layers = sizes.size - 1
    if layers == 1: begin = 0
    for layer in range(min(1, layers-1), layers):
        rows, columns, outputs = rows_of(sizes, layer), columns_of(sizes, layer), padded(sizes[layer + 1])
        if layer == layers - 1:
            for row in range(rows):
                for column in range(columns):
                    network.copies[at + column * outputs + row] = network.parameters[begin + row * columns + column]
        else:
            for row in range(0, rows, width):
                for column in range(0, columns, width):
                    simd.transpose(Matrix(weights, begin + row * columns + column, columns, 1), Matrix(copies, at + column * rows + row, rows, 1))
        begin += rows * columns + outputs
        at += padded(sizes[layer]) * outputs


@functools.cache
def make_forward(dtype: type) -> Callable[..., int]:
    """Forward pass over samples in one dtype, as a plain function that kernels inline.

    Returns:
        `forward(network, activations, samples) -> index`. `activations` holds, layer after layer,
        (samples, padded units): the input is read, the rest overwritten; the outputs begin at the
        returned index.
    """
    tanh = specialise(_tanh, dtype)
    zero, none = dtype(0), dtype(-np.inf)

    @inline
    def tanh_in_place(values):  # type: ignore[no-untyped-def]
        for i in range(values.size):
            values[i] = tanh(values[i])

    @inline
    def forward(network, activations, samples):  # type: ignore[no-untyped-def]
        sizes = network.sizes
        weights, copies = simd.address(network.parameters), simd.address(network.copies)
        cells = simd.address(activations)
        layers = sizes.size - 1
        begin = inputs = outputs = at = 0
        for layer in range(layers):
            width_in, width_out = padded(sizes[layer]), padded(sizes[layer + 1])
            hidden = layer < layers - 1
            depth = rows_of(sizes, layer) if hidden else width_in
            bias = begin + rows_of(sizes, layer) * columns_of(sizes, layer)
            outputs = inputs + samples * width_in
            product(
                Matrix(cells, inputs, width_in, 1),
                Matrix(weights, begin, width_out, 1) if hidden else Matrix(copies, at, width_out, 1),
                Matrix(weights, bias, 0, 1),
                Matrix(cells, outputs, width_out, 1),
                (samples, depth, width_out),
                zero if hidden and network.activation == RELU else none,
            )
            if hidden and network.activation == TANH:
                tanh_in_place(activations[outputs : outputs + samples * width_out])
            if layer > 0:
                at += width_in * width_out
            begin, inputs = bias + width_out, outputs
        return outputs

    return forward


@functools.cache
def make_backward(dtype: type) -> Callable[..., None]:
    """Backward pass over samples in one dtype, as a plain function that kernels inline.

    Returns:
        `backward(network, activations, scratch, gradients, samples)`: adds the gradients of the
        packed parameters to `gradients`. `activations` comes from `forward`, with the derivatives
        of the loss by the outputs in the place of the outputs (zero in the padding), and is
        overwritten. `scratch` ((samples + 1) * widest padded layer,) is overwritten.
    """
    zero, one, none = dtype(0), dtype(1), dtype(-np.inf)

    @inline
    def add_rows(sums, rows):  # type: ignore[no-untyped-def]
        width = sums.size
        for begin in range(0, rows.size, width):
            row = rows[begin : begin + width]
            for i in range(width):
                sums[i] += row[i]

    @inline
    def through_tanh(units, slopes):  # type: ignore[no-untyped-def]
        for i in range(units.size):
            units[i] = slopes[i] * (one - units[i] * units[i])

    @inline
    def through_relu(units, slopes):  # type: ignore[no-untyped-def]
        for i in range(units.size):
            units[i] = slopes[i] if units[i] > zero else zero

    @inline
    def backward(network, activations, scratch, gradients, samples):  # type: ignore[no-untyped-def]
        sizes = network.sizes
        weights, copies = simd.address(network.parameters), simd.address(network.copies)
        cells, slopes = simd.address(activations), simd.address(scratch)
        sums = simd.address(gradients)
        layers = sizes.size - 1
        end, at, outputs = gradients.size, network.copies.size, activations.size
        for back in range(layers):
            layer = layers - 1 - back
            last = back == 0
            width_in, width_out = padded(sizes[layer]), padded(sizes[layer + 1])
            rows, columns = rows_of(sizes, layer), columns_of(sizes, layer)
            outputs -= samples * width_out
            inputs = outputs - samples * width_in
            units = activations[outputs : outputs + samples * width_out]
            if not last:
                if network.activation == TANH:
                    through_tanh(units, scratch[: units.size])
                else:
                    through_relu(units, scratch[: units.size])
            add_rows(gradients[end - width_out : end], units)
            begin = end - width_out - rows * columns
            here, before = Matrix(cells, outputs, 1, width_out), Matrix(cells, inputs, 1, width_in)
            product(
                here if last else before,
                Matrix(cells, inputs, width_in, 1) if last else Matrix(cells, outputs, width_out, 1),
                Matrix(sums, begin, columns, 1),
                Matrix(sums, begin, columns, 1),
                (rows, samples, columns),
                none,
            )
            at -= width_in * width_out
            if layer > 0:
                scratch[samples * width_in : (samples + 1) * width_in] = zero
                product(
                    Matrix(cells, outputs, width_out, 1),
                    Matrix(weights, begin, width_in, 1) if last else Matrix(copies, at, width_in, 1),
                    Matrix(slopes, samples * width_in, 0, 1),
                    Matrix(slopes, 0, width_in, 1),
                    (samples, rows if last else width_out, width_in),
                    none,
                )
            end = begin

    return backward


def _tanh(x: float) -> float:
    return math.tanh(x)
