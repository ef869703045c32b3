"""Multi-layer perceptrons on a block of lanes: one compiled kernel serves every architecture.

Parameters are one flat array, layer after layer: the weights (inputs, outputs), row-major, then the
biases (outputs,). A block of lanes (environments) passes all layers while its activations stay in
cache: 64 lanes of 4-64-64-3 are 35 KB beside 19 KB of parameters.

Hidden layers may be normalised in front of their activation (Ba et al. 2016, "Layer normalization",
equation 4): with the mean and the variance of a layer's n units for one input,

    y = activation(gain * (x - mean) / sqrt(variance + 1e-5) + shift)

where gains (outputs,) and shifts (outputs,) follow the layer's biases in the parameters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, types

from rlcpu.kernels.compile import inline, kernel, specialise
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.matmul import Matrix, product_from_column, sum_of_rows, transpose
from rlcpu.kernels.memory import address, load, store
from rlcpu.kernels.vectors import fill, fma, maximum, width

#: Codes of the hidden layers' activation; the last is added to it where they are normalised.
TANH, RELU, NORMALIZED = 0, 1, 2
#: Added to the variance of a layer; torch's.
NORM_EPSILON = 1e-5


@functools.cache
def make_forward(dtype: type) -> Callable[..., int]:
    """Return the forward pass in one dtype, as a plain function that kernels inline.

    Returns:
        `forward(parameters, sizes, activation, activations, lanes, given) -> index`: runs all
        layers on one block, or if `given` those after the first, whose product `first_layer` made
        of 16 lanes or more. `parameters` (P,) flat; `sizes` (L + 1,) int64; `activation` TANH or
        RELU, plus NORMALIZED or not, of the hidden layers; `activations` (sum(sizes) * lanes,)
        flat, layer after layer with one row of `lanes` numbers per unit: the first `sizes[0]` rows
        are the input, all others are overwritten; `lanes` a multiple of 16 (best of 32; 64 fit in
        the first-level cache), or 1 where layers are not normalised: one input of 4-256-256-2 takes
        a third of the time of 16. The last layer has no activation: its rows begin at the returned
        index.
    """
    tanh = specialise(hyperbolic_tangent, dtype)
    zero, one, none = dtype(0), dtype(1), dtype(-np.inf)
    epsilon, forward_one = dtype(NORM_EPSILON), make_forward_one(dtype)

    @inline
    def tanh_in_place(values):
        for i in range(values.size):
            values[i] = tanh(values[i])

    @inline
    def invert_roots(squares, share):
        for i in range(squares.size):
            squares[i] = one / np.sqrt(squares[i] * share + epsilon)

    @inline
    def normalise(rows, gains, shifts, scratch, floor):
        lanes, units, share = scratch.size, gains.size, one / dtype(gains.size)
        cells, scratch_cells = address(rows), address(scratch)
        step = width(cells, 1)
        for lane in range(0, lanes, step):
            total, squares = fill(zero, 1), fill(zero, 1)
            for k in range(units):
                total = total + load(cells, k * lanes + lane, 1)
            mean = total * fill(share, 1)
            for k in range(units):
                x = load(cells, k * lanes + lane, 1) - mean
                store(x, cells, k * lanes + lane)
                squares = fma(x, x, squares)
            store(squares, scratch_cells, lane)
        invert_roots(scratch, share)
        for lane in range(0, lanes, step):
            factor = load(scratch_cells, lane, 1)
            for k in range(units):
                x = load(cells, k * lanes + lane, 1) * factor
                y = fma(x, fill(gains[k], 1), fill(shifts[k], 1))
                store(maximum(fill(floor, 1), y), cells, k * lanes + lane)

    @inline
    def forward(parameters, sizes, activation, activations, lanes, given=False):
        if lanes == 1:
            return forward_one(parameters, sizes, activation, activations)
        pointer, cells = address(parameters), address(activations)
        weights = inputs = outputs = 0
        layers = sizes.size - 1
        for layer in range(layers):
            fan_in, fan_out = sizes[layer], sizes[layer + 1]
            biases, outputs = weights + fan_in * fan_out, inputs + fan_in * lanes
            hidden = layer < layers - 1
            if not (given and layer == 0):
                product_from_column(
                    Matrix(pointer, weights, 1, fan_out),
                    Matrix(cells, inputs, lanes, 1),
                    Matrix(pointer, biases, 1, 0),
                    Matrix(cells, outputs, lanes, 1),
                    (fan_out, fan_in, lanes),
                    zero if hidden and activation == RELU else none,
                )
            weights, inputs = biases + fan_out, outputs
            end = outputs + fan_out * lanes
            if hidden and activation >= NORMALIZED:
                normalise(
                    activations[outputs:end],
                    parameters[weights : weights + fan_out],
                    parameters[weights + fan_out : weights + 2 * fan_out],
                    activations[end : end + lanes],  # the next layer's, not yet written
                    zero if activation == NORMALIZED + RELU else none,
                )
                weights += 2 * fan_out
            if hidden and (activation == TANH or activation == NORMALIZED + TANH):
                tanh_in_place(activations[outputs:end])
        return outputs

    return forward


@functools.cache
def make_forward_one(dtype: type) -> Callable[..., int]:
    """`forward_one(parameters, sizes, activation, activations) -> index`: that of one lane.

    Vectors hold units, and layers are not normalised.
    """
    tanh, zero = specialise(hyperbolic_tangent, dtype), dtype(0)

    @inline
    def add_scaled(units, row, factor):
        for k in range(units.size):
            units[k] += row[k] * factor

    @inline
    def activate(units, activation):
        if activation == TANH:
            for k in range(units.size):
                units[k] = tanh(units[k])
        else:
            for k in range(units.size):
                units[k] = zero if units[k] < zero else units[k]

    @inline
    def forward_one(parameters, sizes, activation, activations):
        weights = inputs = outputs = 0
        layers = sizes.size - 1
        for layer in range(layers):
            fan_in, fan_out = sizes[layer], sizes[layer + 1]
            biases, outputs = weights + fan_in * fan_out, inputs + fan_in
            units = activations[outputs : outputs + fan_out]
            for k in range(fan_out):
                units[k] = parameters[biases + k]
            for k in range(fan_in):
                begin = weights + k * fan_out
                add_scaled(units, parameters[begin : begin + fan_out], activations[inputs + k])
            if layer < layers - 1:
                activate(units, activation)
            weights, inputs = biases + fan_out, outputs
        return outputs

    return forward_one


@inline
def lanes_for(count, activation):
    """Lanes of a pass for so many inputs; see `make_forward`."""
    return 1 if count == 1 and activation < NORMALIZED else (count + 15) // 16 * 16


@inline
def first_layer(parameters, sizes, activation, activations, lanes, starts, columns, tile):
    """Return the sums of a hidden first layer whose inputs are zeros but for a few ones.

    Those of lane i are columns[starts[i]:starts[i + 1]]. Each lane adds up rows of the weights; the
    rows of 16 lanes are then transposed. `tile` (16 * (sizes[1] + 15),) is scratch, float32.
    """
    pointer, cells, rows = address(parameters), address(activations), address(tile)
    ones, step = address(columns), width(cells, 1)
    fan_in, fan_out = sizes[0], sizes[1]
    across = (fan_out + step - 1) // step * step
    whole = fan_out - fan_out % step
    biases = Matrix(pointer, fan_in * fan_out, 0, 1)
    floor = np.float32(0) if activation == RELU else np.float32(-np.inf)
    for lane in range(0, lanes, step):
        place = fan_in * lanes + lane
        for i in range(step):
            bounds = starts[lane + i], starts[lane + i + 1]
            out = Matrix(rows, i * across, across, 1)
            sum_of_rows(ones, bounds, Matrix(pointer, 0, fan_out, 1), biases, out, fan_out, floor)
        for unit in range(0, whole, step):
            out = Matrix(cells, place + unit * lanes, lanes, 1)
            transpose(Matrix(rows, unit, across, 1), out)
        for unit in range(whole, fan_out):
            for i in range(step):
                activations[place + unit * lanes + i] = tile[i * across + unit]


def hyperbolic_tangent(x: float) -> float:
    """tanh(x)."""
    return math.tanh(x)


#: The forward passes of float32 networks.
forward, forward_one = make_forward(np.float32), make_forward_one(np.float32)


@functools.cache
def layers_function() -> Any:
    """`run_layers`, compiled for C: once for the networks of all environments and policies."""
    numbers, words = types.CPointer(types.float32), types.CPointer(types.int32)
    sizes, whole = types.CPointer(types.int64), types.int64
    compiled = kernel(run_layers)
    compiled.compile(
        (numbers, whole, sizes, whole, whole, numbers, whole, whole, words, words, numbers, whole)
    )
    return compiled


@functools.cache
def layers_address() -> int:
    """Address of the same, which every call of `collect` asks for."""
    return address_of(layers_function())


def run_layers(
    parameters, num_parameters, sizes, num_sizes, activation, activations, room, lanes,
    starts, columns, tile, few,
):  # fmt: skip
    """`forward`, as kernels of rollouts call it: compiled once for all of them.

    Pointers in the place of arrays, with the sizes of some; `few` is 1 where the first layer is
    that of `first_layer`, else 0, and the three pointers before it are not looked at.
    """
    parameters = carray(parameters, (num_parameters,))
    activations = carray(activations, (room,))
    sizes = carray(sizes, (num_sizes,))
    if few != 0:
        first_layer(parameters, sizes, activation, activations, lanes, starts, columns, tile)
    forward(parameters, sizes, activation, activations, lanes, few != 0)
