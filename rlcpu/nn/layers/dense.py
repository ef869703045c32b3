"""Dense layers: y = x W + b.

A hidden layer's weights are packed (inputs, padded outputs), inputs padded too unless they are the
network's own. A last layer, of few outputs, is stored transposed, (outputs, padded inputs), so that
only its forward pass, which multiplies by the copy, pays for padding some units to 16, and of
`FEW_COLUMNS` none does. All three products of a step (outputs, gradients of weights, derivatives by
inputs) then read rows as they lie: only the weights need a transposed copy, once per gradient step.

Wide inputs are searched for zeros, of which symbols as zeros and ones mostly consist. Where all
samples of a chunk have few other numbers, both products with the inputs go over these alone, and
the results have the same bits.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import inline, merge, outline
from rlcpu.kernels.matmul import (
    FEW_COLUMNS,
    Matrix,
    add_to_rows,
    product,
    product_of_few,
    sum_of_rows,
)
from rlcpu.kernels.memory import address, load, shifted
from rlcpu.kernels.vectors import lowest_bit, nonzero_bits, width
from rlcpu.nn.layers.kind import (
    OVERWRITTEN,
    UNIT,
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
    saved_of,
    vector,
    wants_inputs,
    wants_parameters,
)
from rlcpu.nn.layers.rows import add_rows, fill

# ---------------------------------------------------------------- few numbers among zeros

#: Numbers of an input from which on zeros are looked for.
WIDE = 64
_NONE, _ONE = np.uint64(0), np.uint64(1)


@inline
def room_for(inputs):
    """Return the room for the places of a sample's numbers that are not 0, and their count.

    It is a quarter of the inputs: a product takes as long as sums over so many.
    """
    return inputs // (4 * UNIT) * UNIT if inputs >= WIDE else 0


@inline
def find_numbers(row, size, places, room):
    """Write how many of the numbers of a row are not 0, then which; tell whether there is room."""
    count, step = 1, width(row, 4)
    for begin in range(0, size, step):
        bits = nonzero_bits(load(row, begin, 4, min(step, size - begin), 0.0))
        while bits != _NONE:
            if count == room:
                return False
            places[count] = begin + lowest_bit(bits)
            bits &= bits - _ONE
            count += 1
    places[0] = count - 1
    return True


@functools.cache
def make_places(dtype: type) -> Callable[..., Any]:
    """Make `places(step, work)`: places of all samples, and the room for those of each.

    The first place is negative where a sample has too many.
    """
    whole = np.int32 if dtype == np.float32 else np.int64

    @inline
    def places(step, work):
        room = 0 if step.turned != 0 else room_for(step.width_in)
        return saved_of(step, work)[: room * work.samples].view(whole), room

    return places


@inline
def find_all(step, work, places, room):
    """Find the inputs that are not 0, and tell whether every sample has few of them."""
    inputs = address(inputs_of(step, work))
    for i in range(work.samples if room > 0 else 0):
        row = shifted(inputs, i * step.width_in)
        if not find_numbers(row, step.width_in, shifted(address(places), i * room), room):
            places[0] = -1
            return False
    return room > 0


@functools.cache
def make_forward(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)` of a dense layer, see `Kind`.

    Outputs are max(biases + inputs @ weights, floor). Weights of few columns lie transposed, and a
    copy of them, which `product` reads, does not.
    """
    zero, no_floor, places_of = dtype(0), dtype(-np.inf), make_places(dtype)

    @outline
    def forward(step, work):
        """Write max(inputs @ weights + biases, floor) of all samples."""
        parameters, copies = address(parameters_of(step, work)), address(work.network.copies)
        is_turned, width = step.turned != 0, step.width_out
        inputs = Matrix(address(inputs_of(step, work)), 0, step.width_in, 1)
        biases = Matrix(parameters, step.rows * step.columns, 0, 1)
        outputs = Matrix(address(outputs_of(step, work)), 0, width, 1)
        floor = zero if step.floor != 0 else no_floor
        places, room = places_of(step, work)
        if find_all(step, work, places, room):
            weights = Matrix(parameters, 0, width, 1)
            for i in range(work.samples):
                bounds = i * room + 1, i * room + 1 + places[i * room]
                row = shifted(inputs.values, i * step.width_in)
                out = Matrix(outputs.values, i * width, width, 1)
                sum_of_rows(address(places), bounds, row, weights, biases, out, width, floor)
        elif is_turned and step.size_out <= FEW_COLUMNS:
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
    zero, no_floor, places_of = dtype(0), dtype(-np.inf), make_places(dtype)

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
        places, room = places_of(step, work)
        if room > 0 and places[0] >= 0:  # forward has found few numbers that are not 0
            if work.mode & OVERWRITTEN:
                fill(gradients_of(step, work)[: step.rows * step.columns], zero)
            for i in range(work.samples):
                bounds = i * room + 1, i * room + 1 + places[i * room]
                slope = Matrix(slopes, i * width_out, width_out, 1)
                row = shifted(inputs, i * width_in)
                add_to_rows(address(places), bounds, row, slope, total, width_out)
            return
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
        is_first, has_copy = step.inputs == 0, step.copies >= 0
        # A row of zeros behind all others, which products start from.
        zeros = work.slopes[work.slopes.size - max(step.width_in, step.width_out) :]
        fill(zeros, zero)
        start, count = Matrix(address(zeros), 0, 0, 1), step.rows * step.columns
        if wants_parameters(work):
            # The inputs of a first layer may be lists of ones: `sum_ones` reads them, and who calls
            # adds the weights' gradients. They begin at zero, as those of the biases do.
            is_summed = work.is_summed and is_first
            if work.mode & OVERWRITTEN:
                fill(gradients[0 if is_summed else count :], zero)
            add_rows(gradients[count:], slopes)
            if not is_summed:
                add_products(step, work, slopes, start)
        if wants_inputs(step, work):
            if not has_copy:
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

    def saved_of(self, sizes: Sizes) -> int:
        """Return how many further units a sample has; see `Layer`."""
        return 0 if sizes.is_last else room_for.py_func(padded(sizes.inputs))

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
