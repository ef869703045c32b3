"""Passes of networks over samples, a sample a row; see `rlcpu.nn.network` for where all lies.

Kernels call them by address: they are the largest part of an update's code, and are compiled once
for each dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.calls import function_of, kind_of, make_call
from rlcpu.kernels.compile import inline, merge, specialise
from rlcpu.kernels.matmul import Matrix, product
from rlcpu.kernels.memory import address
from rlcpu.kernels.mlp import NORM_EPSILON, NORMALIZED, RELU, TANH, hyperbolic_tangent
from rlcpu.nn.heads import fill
from rlcpu.nn.network import CELLS, WIDTH_IN, Packed

#: What a backward pass does with the gradients of the packed parameters: it adds them to
#: `gradients`, overwrites `gradients` with them, or does not compute them.
ADDED, OVERWRITTEN, LEFT_OUT = range(3)


class Forward(NamedTuple):
    """A forward pass.

    Attributes:
        network: a `Packed`.
        units: layer after layer (samples, padded units), the input first; the rest is overwritten.
        samples: how many.
        given: the first layer's product is there already, not below 0 before relu, and the input is
            not read; there are hidden layers.
    """

    network: Any
    units: Any
    samples: int
    given: bool


class Backward(NamedTuple):
    """A backward pass.

    Attributes:
        network, units, samples: those of the forward pass, with the derivatives of the loss by the
            outputs in the place of the outputs (zero in the padding). Units are overwritten: the
            derivatives by the first layer's sums stay where the forward pass is `given` them, those
            by the inputs take the place of the inputs where they are asked for.
        slopes: ((samples + 1) * widest layer,), scratch.
        gradients: of the packed parameters.
        given: gradients of the first layer's weights are left to the caller to add.
        found: ADDED, OVERWRITTEN or LEFT_OUT.
        by_inputs: whether derivatives by the inputs are wanted.
    """

    network: Any
    units: Any
    samples: int
    slopes: Any
    gradients: Any
    given: bool
    found: int
    by_inputs: bool


class Passes(NamedTuple):
    """Addresses of the passes of one dtype."""

    forward: int
    backward: int


@functools.cache
def passes_of(dtype: type) -> Passes:
    """The passes of one dtype, compiled."""
    forward, backward = _kinds(dtype)
    return Passes(
        function_of(make_forward(dtype), forward), function_of(make_backward(dtype), backward)
    )


@functools.cache
def make_passes(dtype: type) -> tuple[Callable[..., Any], Callable[..., None]]:
    """How kernels run the passes of one dtype; `passes` are `passes_of` it.

    Returns:
        `forward(passes, network, units, samples, given) -> index`, where the outputs begin, and
        `backward(passes, network, units, slopes, gradients, samples, given, found, by_inputs)`; see
        `Forward` and `Backward`.
    """
    run_forward, run_backward = map(make_call, _kinds(dtype))

    @merge
    def forward(passes, network, units, samples, given):
        run_forward(passes.forward, Forward(network, units, samples, given))
        last = network.table.shape[0] - 1
        return (network.table[last, CELLS] + network.table[last, WIDTH_IN]) * samples

    @merge
    def backward(passes, network, units, slopes, gradients, samples, given, found, by_inputs):
        work = Backward(network, units, samples, slopes, gradients, given, found, by_inputs)
        run_backward(passes.backward, work)

    return forward, backward


def _kinds(dtype: type) -> tuple[Any, Any]:
    """What the passes are given, as numba's types."""
    none: Any = np.zeros(0, dtype)
    network = Packed(np.zeros((0, 9), np.int64), 0, none, none)
    backward = Backward(network, none, 0, none, none, False, 0, False)
    return kind_of(Forward(network, none, 0, False)), kind_of(backward)


@functools.cache
def make_forward(dtype: type) -> Callable[..., None]:
    """`forward(work)`, a `Forward`."""
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

    @inline
    def multiply(work, layer, floor):
        """What a layer makes of its inputs, before it is normalised and activated."""
        network, samples = work.network, work.samples
        rows, _, begin, biases, copy, cells, width_in, width_out, _ = network.table[layer]
        weights, copies = address(network.parameters), address(network.copies)
        units, inputs = address(work.units), cells * samples
        hidden = layer < network.table.shape[0] - 1
        product(
            Matrix(units, inputs, width_in, 1),
            Matrix(weights, begin, width_out, 1) if hidden else Matrix(copies, copy, width_out, 1),
            Matrix(weights, biases, 0, 1),
            Matrix(units, inputs + width_in * samples, width_out, 1),
            (samples, rows if hidden else width_in, width_out),
            floor,
        )

    @inline
    def normalise_layer(work, layer, floor):
        """Normalise the sums of a hidden layer, which stay in front of what the next one reads."""
        network, samples, units = work.network, work.samples, work.units
        _, _, _, biases, _, cells, width_in, width_out, size = network.table[layer]
        kept, gains = (cells + width_in) * samples, biases + width_out
        inverses = kept + samples * width_out
        outputs = network.table[layer + 1, CELLS] * samples
        normalise(
            units[outputs : outputs + samples * width_out],
            units[kept:inverses],
            units[inverses : inverses + samples],
            network.parameters[gains : gains + width_out],
            network.parameters[gains + width_out : gains + 2 * width_out],
            size,
            floor,
        )

    def forward(work):
        network, samples = work.network, work.samples
        layers, activation = network.table.shape[0], network.activation
        for layer in range(layers):
            hidden = layer < layers - 1
            if not (work.given and layer == 0):
                multiply(work, layer, zero if hidden and activation == RELU else none)
            if hidden and activation >= NORMALIZED:
                normalise_layer(work, layer, zero if activation == NORMALIZED + RELU else none)
            if hidden and activation & 1 == TANH:
                begin = network.table[layer + 1, CELLS] * samples
                size = network.table[layer + 1, WIDTH_IN] * samples
                tanh_in_place(work.units[begin : begin + size])

    return forward


@functools.cache
def make_backward(dtype: type) -> Callable[..., None]:
    """`backward(work)`, a `Backward`."""
    zero, one, none = dtype(0), dtype(1), dtype(-np.inf)

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

    @inline
    def through_activation(work, here):
        """Derivatives by what a hidden layer's activation was given, in the place of its units."""
        if work.network.activation & 1 == TANH:
            through_tanh(here, work.slopes[: here.size])
        else:
            through_relu(here, work.slopes[: here.size])

    @inline
    def through_norm_of_layer(work, layer, here):
        """Derivatives by a hidden layer's sums, in the place of its normalised units."""
        network, samples, units = work.network, work.samples, work.units
        _, _, _, biases, _, cells, width_in, width_out, size = network.table[layer]
        kept, gains = (cells + width_in) * samples, biases + width_out
        shifts, end = gains + width_out, kept + here.size
        if work.found != LEFT_OUT:
            add_products(work.gradients[gains:shifts], here, units[kept:end])
            add_rows(work.gradients[shifts : shifts + width_out], here)
        through_norm(
            units[kept:end],
            here,
            units[end : end + samples],
            network.parameters[gains : gains + width_out],
            size,
        )

    @inline
    def weigh(work, layer, outputs, zeros):
        """Gradients of a layer's weights."""
        rows, columns, begin, _, _, cells, width_in, width_out, _ = work.network.table[layer]
        units, inputs, samples = address(work.units), cells * work.samples, work.samples
        last = layer == work.network.table.shape[0] - 1
        before, after = Matrix(units, inputs, width_in, 1), Matrix(units, outputs, width_out, 1)
        turned_before = Matrix(units, inputs, 1, width_in)
        turned_after = Matrix(units, outputs, 1, width_out)
        total = Matrix(address(work.gradients), begin, columns, 1)
        nothing = Matrix(address(work.slopes), zeros, 0, 1)
        product(
            turned_after if last else turned_before,
            before if last else after,
            nothing if work.found == OVERWRITTEN else total,
            total,
            (rows, samples, columns),
            none,
        )

    @inline
    def to_layer_before(work, layer, outputs, zeros):
        """Derivatives by a layer's inputs, in `slopes`."""
        network, samples = work.network, work.samples
        rows, _, begin, _, copy, _, width_in, width_out, _ = network.table[layer]
        weights, copies = address(network.parameters), address(network.copies)
        scratch, last = address(work.slopes), layer == network.table.shape[0] - 1
        product(
            Matrix(address(work.units), outputs, width_out, 1),
            Matrix(weights, begin, width_in, 1) if last else Matrix(copies, copy, width_in, 1),
            Matrix(scratch, zeros, 0, 1),
            Matrix(scratch, 0, width_in, 1),
            (samples, rows if last else width_out, width_in),
            none,
        )

    def backward(work):
        network, samples, units, gradients = work.network, work.samples, work.units, work.gradients
        layers = network.table.shape[0]
        for layer in range(layers - 1, -1, -1):
            _, columns, begin, biases, _, cells, width_in, width_out, _ = network.table[layer]
            hidden = layer < layers - 1
            normalised = hidden and network.activation >= NORMALIZED
            inputs, kept = cells * samples, (cells + width_in) * samples
            outputs = network.table[layer + 1, CELLS] * samples if hidden else kept
            here = units[outputs : outputs + samples * width_out]
            if hidden:
                through_activation(work, here)
            if work.found == OVERWRITTEN:
                fill(gradients[biases : biases + width_out * (3 if normalised else 1)], zero)
            if normalised:
                through_norm_of_layer(work, layer, here)
                outputs = kept
                here = units[outputs : outputs + samples * width_out]
            if work.found != LEFT_OUT:
                add_rows(gradients[biases : biases + width_out], here)
            # A row of zeros behind all others, which products start from.
            zeros = work.slopes.size - max(width_in, width_out)
            fill(work.slopes[zeros:], zero)
            if work.found != LEFT_OUT and not (work.given and layer == 0):
                weigh(work, layer, outputs, zeros)
            elif work.found == OVERWRITTEN:
                fill(gradients[begin:biases], zero)
            place = units[inputs : inputs + samples * width_in]
            if layer == 0 and hidden and work.by_inputs:
                to_inputs(place, width_in, network.parameters[begin:biases], here, columns)
            elif layer > 0 or work.by_inputs:
                to_layer_before(work, layer, outputs, zeros)
                if layer == 0:
                    place[:] = work.slopes[: place.size]

    return backward
