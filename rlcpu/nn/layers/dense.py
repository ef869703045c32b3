"""Dense layers: y = x W + b.

A hidden layer's weights are packed (inputs, padded outputs), inputs padded too unless they are the
network's own. A last layer, of few outputs, is stored transposed, (outputs, padded inputs), so that
only its forward pass, which multiplies by the copy, pays for padding some units to 16, and of
`FEW_COLUMNS` none does. All three products of a step (outputs, gradients of weights, derivatives by
inputs) then read rows as they lie: only the weights need a transposed copy, once per gradient step.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import inline, merge, outline
from rlcpu.kernels.matmul import FEW_COLUMNS, Matrix, product, product_of_few
from rlcpu.kernels.memory import address
from rlcpu.nn.layers.kind import (
    OVERWRITTEN,
    Array,
    Kind,
    Layer,
    ParameterArray,
    Sizes,
    gradients_of,
    input_slopes,
    inputs_of,
    output_slopes,
    outputs_of,
    padded,
    parameters_of,
    vector,
    wants_inputs,
    wants_parameters,
)
from rlcpu.nn.layers.rows import add_rows, fill


@functools.cache
def make_forward(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)` of a dense layer, see `Kind`.

    Outputs are max(biases + inputs @ weights, floor). Weights of few columns lie transposed, and a
    copy of them, which `product` reads, does not.
    """
    zero, no_floor = dtype(0), dtype(-np.inf)

    @outline
    def forward(step, work):
        """Write max(inputs @ weights + biases, floor) of all samples."""
        parameters, copies = address(parameters_of(step, work)), address(work.network.copies)
        is_turned, width = step.turned != 0, step.width_out
        inputs = Matrix(address(inputs_of(step, work)), 0, step.width_in, 1)
        biases = Matrix(parameters, step.rows * step.columns, 0, 1)
        outputs = Matrix(address(outputs_of(step, work)), 0, width, 1)
        floor = zero if step.floor != 0 else no_floor
        if is_turned and step.size_out <= FEW_COLUMNS:
            fill(outputs_of(step, work), zero)  # the padding
            weights = Matrix(parameters, 0, step.columns, 1)
            shape = work.samples, step.width_in, step.size_out
            product_of_few(inputs, weights, biases, outputs, shape, floor)
        else:
            weights = Matrix(parameters, 0, width, 1)
            if is_turned:
                weights = Matrix(copies, step.copies, width, 1)
            depth = step.width_in if is_turned else step.rows
            product(inputs, weights, biases, outputs, (work.samples, depth, width), floor)

    return forward


@functools.cache
def make_backward(dtype: type) -> Callable[..., None]:
    """Make `backward(step, work)` of a dense layer, see `Kind`."""
    zero, no_floor = dtype(0), dtype(-np.inf)

    @inline
    def dot(row, other):
        """Return the dot product of two rows."""
        total = zero
        for i in range(row.size):
            total += row[i] * other[i]
        return total

    @inline
    def to_network_inputs(inputs, width, weights, slopes, columns):
        """Write derivatives by inputs of the network, for which weights have no transposed copy."""
        for i in range(slopes.size // columns):
            slope = slopes[i * columns : (i + 1) * columns]
            for k in range(weights.size // columns):
                inputs[i * width + k] = dot(weights[k * columns : (k + 1) * columns], slope)

    @merge
    def add_products(step, work, slopes, start):
        """Write gradients of the weights, or add them: transposed inputs @ slopes.

        Where the weights lie transposed it is transposed slopes @ inputs.
        """
        inputs, slopes = address(inputs_of(step, work)), address(slopes)
        width_in, width_out, is_turned = step.width_in, step.width_out, step.turned != 0
        total = Matrix(address(gradients_of(step, work)), 0, step.columns, 1)
        product(
            Matrix(slopes, 0, 1, width_out) if is_turned else Matrix(inputs, 0, 1, width_in),
            Matrix(inputs, 0, width_in, 1) if is_turned else Matrix(slopes, 0, width_out, 1),
            start if work.mode & OVERWRITTEN else total,
            total,
            (step.rows, work.samples, step.columns),
            no_floor,
        )

    @merge
    def to_inputs(step, work, slopes, start):
        """Write derivatives by inputs, or add them: slopes @ transposed weights."""
        weights, copies = address(parameters_of(step, work)), address(work.network.copies)
        is_turned, width = step.turned != 0, step.width_in
        out = Matrix(address(input_slopes(step, work)), 0, width, 1)
        product(
            Matrix(address(slopes), 0, step.width_out, 1),
            Matrix(weights, 0, width, 1) if is_turned else Matrix(copies, step.copies, width, 1),
            out if step.adds != 0 else start,
            out,
            (work.samples, step.rows if is_turned else step.width_out, width),
            no_floor,
        )

    @outline
    def backward(step, work):
        """Write gradients of weights and biases, then derivatives by inputs.

        Gradients are added to those of the minibatch's chunks before, but OVERWRITTEN in its first
        chunk, and left out (`wants_parameters`) where nothing but the inputs is asked for.
        """
        slopes, gradients = output_slopes(step, work), gradients_of(step, work)
        # A row of zeros behind all others, which products start from.
        zeros = work.slopes[work.slopes.size - max(step.width_in, step.width_out) :]
        fill(zeros, zero)
        start, count = Matrix(address(zeros), 0, 0, 1), step.rows * step.columns
        if wants_parameters(work):
            # Of a first layer behind boards, whoever calls adds up the rows of the weights.
            is_summed = work.is_summed and step.inputs == 0
            if work.mode & OVERWRITTEN:
                fill(gradients[0 if is_summed else count :], zero)
            add_rows(gradients[count:], slopes)
            if not is_summed:
                add_products(step, work, slopes, start)
        if wants_inputs(step, work):
            if step.copies < 0:
                weights = parameters_of(step, work)[:count]
                inputs = input_slopes(step, work)
                to_network_inputs(inputs, step.width_in, weights, slopes, step.columns)
            else:
                to_inputs(step, work, slopes, start)

    return backward


DENSE = Kind("dense", make_forward, make_backward, takes_floor=True)


@dataclasses.dataclass(frozen=True, eq=False)
class Dense(Layer):
    """A dense layer.

    Attributes:
        size: numbers that it makes.
        gain: of the orthogonal weights it begins with; None for sqrt(2), and 1 where it makes an
            output of the network. Biases begin with 0.
    """

    size: int
    gain: float | None = None
    kind = DENSE

    def __post_init__(self) -> None:
        check_count("size", self.size)

    def __repr__(self) -> str:
        return f"Dense({self.size})"

    def output_size(self, inputs: int) -> int:
        """Return the number of outputs; see `Layer`."""
        return self.size

    def parameters(self, sizes: Sizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        shape, width = (sizes.inputs, sizes.outputs), padded(sizes.outputs)
        gain = self.gain
        if gain is None:
            gain = 1.0 if sizes.is_last else math.sqrt(2.0)
        initial = functools.partial(orthogonal, shape=shape, gain=gain)
        if sizes.is_last:
            packed = sizes.outputs, padded(sizes.inputs)
        else:
            packed = sizes.inputs if sizes.is_first else padded(sizes.inputs), width
        copied = sizes.is_last or not sizes.is_first
        weights = ParameterArray("weights", shape, initial, packed, sizes.is_last, copied)
        return [weights, vector("biases", sizes.outputs, 0.0)]


def orthogonal(rng: np.random.Generator, shape: tuple[int, int], gain: float) -> Array:
    """Return orthogonal weights (inputs, outputs) of a gain (Saxe et al. 2014)."""
    inputs, outputs = shape
    tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return gain * (q if inputs >= outputs else q.T)
