"""Passes of networks over samples, a sample a row; see `rlcpu.nn.network` for where all lies."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.kernels.compile import inline, specialise
from rlcpu.kernels.matmul import Matrix, product
from rlcpu.kernels.memory import address
from rlcpu.kernels.mlp import NORM_EPSILON, NORMALIZED, RELU, TANH, hyperbolic_tangent
from rlcpu.nn.heads import fill
from rlcpu.nn.network import CELLS


@functools.cache
def make_forward(dtype: type, decorate: Any = inline) -> Callable[..., int]:
    """Forward pass over samples in one dtype, for kernels to inline, or to call (`outline`).

    Returns:
        `forward(network, activations, samples, given) -> index`. `activations` holds, layer after
        layer, (samples, padded units): the input is read, the rest overwritten; the outputs begin
        at the returned index. If `given`, the first layer's product is there already, not below 0
        before relu, and the input is not read; there are hidden layers.
    """
    tanh = specialise(hyperbolic_tangent, dtype)
    zero, one, none = dtype(0), dtype(1), dtype(-np.inf)
    epsilon = dtype(NORM_EPSILON)

    @inline
    def tanh_in_place(values):
        for i in range(values.size):
            values[i] = tanh(values[i])

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
    def normalise(units, rows, inverses, gains, shifts, size, floor):
        width = gains.size
        fill(units, zero)
        for i in range(inverses.size):
            row = rows[i * width : i * width + size]
            center(row)
            inverses[i] = one / np.sqrt(variance(row) + epsilon)
            here = units[i * width : i * width + size]
            scale(here, row, inverses[i], gains[:size], shifts[:size], floor)

    @decorate
    def forward(network, activations, samples, given=False):
        weights, copies = address(network.parameters), address(network.copies)
        units = address(activations)
        layers = network.table.shape[0]
        outputs = 0
        for layer in range(layers):
            rows, _, begin, biases, copy, cells, width_in, width_out, size = network.table[layer]
            hidden = layer < layers - 1
            inputs = cells * samples
            outputs = inputs + width_in * samples
            rectified = hidden and network.activation == RELU
            if not (given and layer == 0):
                product(
                    Matrix(units, inputs, width_in, 1),
                    Matrix(weights, begin, width_out, 1)
                    if hidden
                    else Matrix(copies, copy, width_out, 1),
                    Matrix(weights, biases, 0, 1),
                    Matrix(units, outputs, width_out, 1),
                    (samples, rows if hidden else width_in, width_out),
                    zero if rectified else none,
                )
            if hidden and network.activation >= NORMALIZED:
                kept, gains = outputs, biases + width_out
                inverses = kept + samples * width_out
                outputs = network.table[layer + 1, CELLS] * samples
                normalise(
                    activations[outputs : outputs + samples * width_out],
                    activations[kept:inverses],
                    activations[inverses : inverses + samples],
                    network.parameters[gains : gains + width_out],
                    network.parameters[gains + width_out : gains + 2 * width_out],
                    size,
                    zero if network.activation == NORMALIZED + RELU else none,
                )
            if hidden and network.activation & 1 == TANH:
                tanh_in_place(activations[outputs : outputs + samples * width_out])
        return outputs

    return forward


@functools.cache
def make_backward(dtype: type, by: str = "sums", decorate: Any = inline) -> Callable[..., None]:
    """Backward pass over samples in one dtype.

    Args:
        dtype: of all numbers.
        decorate: `inline` or `outline`: whether kernels inline or call it.
        by: what is found: "sums" adds the gradients of the packed parameters to `gradients`,
            "parameters" overwrites `gradients` with them. With "inputs" `gradients` stay as they
            are, and the derivatives by the inputs take the place of the inputs in `activations`;
            there are hidden layers.

    Returns:
        `backward(network, activations, slopes, gradients, samples, given)`. `activations` comes
        from `forward`, with the derivatives of the loss by the outputs in the place of the outputs
        (zero in the padding), and is overwritten: those by the first layer's sums stay where
        `forward` is given them. `slopes` ((samples + 1) * widest layer,) is scratch. If `given`,
        gradients of the first layer's weights are left to the caller to add.
    """
    zero, one, none = dtype(0), dtype(1), dtype(-np.inf)
    by_parameters, anew = by != "inputs", by == "parameters"

    @inline
    def dot(row, other):
        total = zero
        for i in range(row.size):
            total += row[i] * other[i]
        return total

    @inline
    def to_inputs(inputs, width, weights, slopes, columns):
        for i in range(slopes.size // columns):
            slope = slopes[i * columns : (i + 1) * columns]
            for k in range(weights.size // columns):
                inputs[i * width + k] = dot(weights[k * columns : (k + 1) * columns], slope)

    @inline
    def add_rows(sums, rows):
        width = sums.size
        for begin in range(0, rows.size, width):
            row = rows[begin : begin + width]
            for i in range(width):
                sums[i] += row[i]

    @inline
    def through_tanh(units, slopes):
        for i in range(units.size):
            units[i] = slopes[i] * (one - units[i] * units[i])

    @inline
    def through_relu(units, slopes):
        for i in range(units.size):
            units[i] = slopes[i] if units[i] > zero else zero

    @inline
    def add_products(sums, rows, others):
        width = sums.size
        for begin in range(0, rows.size, width):
            row, other = rows[begin : begin + width], others[begin : begin + width]
            for i in range(width):
                sums[i] += row[i] * other[i]

    @inline
    def through_one_norm(row, slopes, inverse, gains):
        mean = product_mean = zero
        for k in range(row.size):
            slopes[k] *= gains[k]
            mean += slopes[k]
            product_mean += slopes[k] * row[k]
        mean, product_mean = mean / dtype(row.size), product_mean / dtype(row.size)
        for k in range(row.size):
            row[k] = inverse * (slopes[k] - mean - row[k] * product_mean)

    @inline
    def through_norm(rows, slopes, inverses, gains, size):
        width = gains.size
        for i in range(inverses.size):
            begin, end = i * width, i * width + size
            through_one_norm(rows[begin:end], slopes[begin:end], inverses[i], gains[:size])

    @decorate
    def backward(network, activations, slopes, gradients, samples, given=False):
        weights, copies = address(network.parameters), address(network.copies)
        units, scratch = address(activations), address(slopes)
        sums = address(gradients)
        layers = network.table.shape[0]
        for layer in range(layers - 1, -1, -1):
            rows, columns, begin, biases, copy, cells, width_in, width_out, size = network.table[
                layer
            ]
            last = layer == layers - 1
            inputs = cells * samples
            outputs = inputs + width_in * samples
            kept = outputs
            if not last:
                outputs = network.table[layer + 1, CELLS] * samples
            here = activations[outputs : outputs + samples * width_out]
            if not last and network.activation & 1 == TANH:
                through_tanh(here, slopes[: here.size])
            elif not last:
                through_relu(here, slopes[: here.size])
            normalised = not last and network.activation >= NORMALIZED
            if anew:
                fill(gradients[biases : biases + width_out * (3 if normalised else 1)], zero)
            if normalised:
                outputs, end, gains = kept, kept + here.size, biases + width_out
                if by_parameters:
                    shifts = gains + width_out
                    add_products(gradients[gains:shifts], here, activations[kept:end])
                    add_rows(gradients[shifts : shifts + width_out], here)
                through_norm(
                    activations[kept:end],
                    here,
                    activations[end : end + samples],
                    network.parameters[gains : gains + width_out],
                    size,
                )
                here = activations[kept:end]
            if by_parameters:
                add_rows(gradients[biases : biases + width_out], here)
            # A row of zeros behind all others, which products start from.
            zeros = slopes.size - max(width_in, width_out)
            fill(slopes[zeros:], zero)
            before, after = Matrix(units, inputs, width_in, 1), Matrix(units, outputs, width_out, 1)
            total = Matrix(sums, begin, columns, 1)
            left = (
                Matrix(units, outputs, 1, width_out) if last else Matrix(units, inputs, 1, width_in)
            )
            if by_parameters and not (given and layer == 0):
                right = before if last else after
                start = Matrix(scratch, zeros, 0, 1) if anew else total
                product(left, right, start, total, (rows, samples, columns), none)
            elif anew:
                fill(gradients[begin:biases], zero)
            elif layer == 0 and not by_parameters:
                place = activations[inputs : inputs + samples * width_in]
                to_inputs(place, width_in, network.parameters[begin:biases], here, columns)
            if layer > 0:
                product(
                    after,
                    Matrix(weights, begin, width_in, 1)
                    if last
                    else Matrix(copies, copy, width_in, 1),
                    Matrix(scratch, zeros, 0, 1),
                    Matrix(scratch, 0, width_in, 1),
                    (samples, rows if last else width_out, width_in),
                    none,
                )

    return backward
