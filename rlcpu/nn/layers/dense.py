"""Dense layers: y = x W + b.

A hidden layer's weights are packed (inputs, padded outputs), inputs padded too unless they are the
network's own. A last layer, of few outputs, is stored transposed, (outputs, padded inputs), so that
only its forward pass, which multiplies by the copy, pays for padding some units to 16, and of
`FEW_COLUMNS` none does. All three products of a step (outputs, gradients of weights, input slopes)
then read rows as they lie: only the weights need a transposed copy, once per gradient step.

Wide inputs are searched for zeros, of which symbols as zeros and ones mostly consist. Where all
samples of a chunk have few other numbers, both products with the inputs go over these alone, and
the results have the same bits.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.passes.Work`). Slopes are
derivatives of the loss with respect to a layer's inputs or outputs, gradients those with respect to
its parameters. Products take a floor: results below it become it, 0 for a relu, -inf for none.
`Matrix(values, begin, row_stride, column_stride)` lies in memory; row stride 0 repeats one row.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import inline, inline_source, outline
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

# ---------------------------------------------------------------- inputs that are mostly zeros
#
# A sample's list of nonzeros has `capacity` whole numbers: how many inputs are not 0, then which.
# The forward pass writes one for each sample to the saved units; the backward pass reads them.

#: Inputs of a sample from which on a layer looks for zeros.
WIDE = 64
#: Registers of inputs that are searched at once: at most 64 numbers, a bit of an uint64 for each.
REGISTERS = 4
_NONE, _ONE = np.uint64(0), np.uint64(1)


@inline
def capacity_for(inputs):
    """Return the numbers of a sample's list of nonzeros, its count included; 0 for no list.

    It is a quarter of the inputs: a product takes as long as sums over so many.
    """
    return inputs // (4 * UNIT) * UNIT if inputs >= WIDE else 0


@inline
def list_nonzeros(row, size, nonzeros, capacity):
    """Write the list of nonzeros of one sample; return False if they are too many for it.

    Args:
        row: pointer to the sample's `size` inputs.
        size: how many inputs.
        nonzeros: pointer to the list, overwritten.
        capacity: numbers of the list.
    """
    count, at_once = 1, width(row, REGISTERS)
    for begin in range(0, size, at_once):
        bits = nonzero_bits(load(row, begin, REGISTERS, min(at_once, size - begin), 0.0))
        while bits != _NONE:
            if count == capacity:
                return False
            nonzeros[count] = begin + lowest_bit(bits)
            bits &= bits - _ONE
            count += 1
    nonzeros[0] = count - 1
    return True


@functools.cache
def make_nonzeros_of(dtype: type) -> Callable[..., Any]:
    """Make `nonzeros_of(step, work)`, which returns the lists of nonzeros and their capacity.

    The lists (samples * capacity,) follow each other in the saved units, read as whole numbers of
    the same size. The first number is negative where a sample of the chunk has too many nonzeros.
    """
    whole = np.int32 if dtype == np.float32 else np.int64

    @inline
    def nonzeros_of(step, work):
        capacity = 0 if step.turned != 0 else capacity_for(step.width_in)
        return saved_of(step, work)[: capacity * work.samples].view(whole), capacity

    return nonzeros_of


@inline
def list_all_nonzeros(step, work, nonzeros, capacity):
    """Write the lists of nonzeros of all samples; return whether each has few enough."""
    inputs = address(inputs_of(step, work))
    for i in range(work.samples if capacity > 0 else 0):
        row = shifted(inputs, i * step.width_in)
        list_of_sample = shifted(address(nonzeros), i * capacity)
        if not list_nonzeros(row, step.width_in, list_of_sample, capacity):
            nonzeros[0] = -1
            return False
    return capacity > 0


# ---------------------------------------------------------------- forward


@inline_source
def sum_weights(step, work, nonzeros, capacity, floor):
    """Write the outputs as sums of the rows of weights that belong to inputs that are not 0."""
    width = step.width_out
    parameters = address(parameters_of(step, work))
    weights = Matrix(parameters, 0, width, 1)
    biases = Matrix(parameters, step.rows * step.columns, 0, 1)
    inputs, outputs = address(inputs_of(step, work)), address(outputs_of(step, work))
    for i in range(work.samples):
        first = i * capacity + 1
        bounds = first, first + nonzeros[i * capacity]
        row = shifted(inputs, i * step.width_in)
        out = Matrix(outputs, i * width, width, 1)
        sum_of_rows(address(nonzeros), bounds, row, weights, biases, out, width, floor)


@functools.cache
def make_forward(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)` of a dense layer, see `Kind`."""
    zero, no_floor, nonzeros_of = dtype(0), dtype(-np.inf), make_nonzeros_of(dtype)

    @outline
    def forward(step, work):
        """Write max(inputs @ weights + biases, floor) of all samples."""
        floor = zero if step.floor != 0 else no_floor
        nonzeros, capacity = nonzeros_of(step, work)
        if list_all_nonzeros(step, work, nonzeros, capacity):
            sum_weights(step, work, nonzeros, capacity, floor)
            return
        parameters, width = address(parameters_of(step, work)), step.width_out
        inputs = Matrix(address(inputs_of(step, work)), 0, step.width_in, 1)
        outputs = Matrix(address(outputs_of(step, work)), 0, width, 1)
        biases = Matrix(parameters, step.rows * step.columns, 0, 1)
        is_turned = step.turned != 0  # weights lie transposed: a last layer
        if is_turned and step.size_out <= FEW_COLUMNS:
            fill(outputs_of(step, work), zero)  # the padding
            weights = Matrix(parameters, 0, step.columns, 1)
            shape = work.samples, step.width_in, step.size_out
            product_of_few(inputs, weights, biases, outputs, shape, floor)
        else:
            weights = Matrix(parameters, 0, width, 1)
            if is_turned:
                weights = Matrix(address(work.network.copies), step.copies, width, 1)
            depth = step.width_in if is_turned else step.rows
            product(inputs, weights, biases, outputs, (work.samples, depth, width), floor)

    return forward


# ---------------------------------------------------------------- backward


@inline
def dot(row, other):
    """Return the dot product of two rows."""
    total = row.dtype.type(0)
    for i in range(row.size):
        total += row[i] * other[i]
    return total


@inline
def write_slopes_without_copy(step, work, slopes):
    """Write input slopes, slopes @ weights.T, of a first layer, whose weights have no copy.

    They are asked for outside of updates alone, as by `Network.gradients`: speed does not matter.
    """
    out, columns = input_slopes(step, work), step.columns
    weights = parameters_of(step, work)[: step.rows * columns]
    for i in range(slopes.size // columns):
        slope = slopes[i * columns : (i + 1) * columns]
        for k in range(weights.size // columns):
            out[i * step.width_in + k] = dot(weights[k * columns : (k + 1) * columns], slope)


@inline_source
def write_slopes(step, work, slopes, zeros, no_floor):
    """Write input slopes, slopes @ weights.T, or add them where another layer has input slopes too.

    `zeros` is a matrix of zeros, with which the product starts where nothing is added to.
    """
    weights, copies = address(parameters_of(step, work)), address(work.network.copies)
    is_turned, width = step.turned != 0, step.width_in
    out = Matrix(address(input_slopes(step, work)), 0, width, 1)
    product(
        Matrix(address(slopes), 0, step.width_out, 1),
        Matrix(weights, 0, width, 1) if is_turned else Matrix(copies, step.copies, width, 1),
        out if step.adds_to_slopes != 0 else zeros,
        out,
        (work.samples, step.rows if is_turned else step.width_out, width),
        no_floor,
    )


@inline_source
def add_nonzero_gradients(step, work, slopes, nonzeros, capacity):
    """Add the weights' gradients of inputs that are not 0; the others are 0 times a slope."""
    inputs, width = address(inputs_of(step, work)), step.width_out
    gradients = Matrix(address(gradients_of(step, work)), 0, step.columns, 1)
    for i in range(work.samples):
        first = i * capacity + 1
        bounds = first, first + nonzeros[i * capacity]
        slope = Matrix(address(slopes), i * width, width, 1)
        row = shifted(inputs, i * step.width_in)
        add_to_rows(address(nonzeros), bounds, row, slope, gradients, width)


@inline_source
def write_gradients(step, work, slopes, zeros, no_floor):
    """Add the weights' gradients, inputs.T @ slopes, or overwrite with them, by `work.mode`.

    Where the weights lie transposed it is slopes.T @ inputs. `zeros` is a matrix of zeros, with
    which the product starts where it overwrites.
    """
    inputs, slopes = address(inputs_of(step, work)), address(slopes)
    width_in, width_out, is_turned = step.width_in, step.width_out, step.turned != 0
    gradients = Matrix(address(gradients_of(step, work)), 0, step.columns, 1)
    product(
        Matrix(slopes, 0, 1, width_out) if is_turned else Matrix(inputs, 0, 1, width_in),
        Matrix(inputs, 0, width_in, 1) if is_turned else Matrix(slopes, 0, width_out, 1),
        zeros if work.mode & OVERWRITTEN else gradients,
        gradients,
        (step.rows, work.samples, step.columns),
        no_floor,
    )


@functools.cache
def make_backward(dtype: type) -> Callable[..., None]:
    """Make `backward(step, work)` of a dense layer, see `Kind`."""
    zero, no_floor, nonzeros_of = dtype(0), dtype(-np.inf), make_nonzeros_of(dtype)

    @outline
    def backward(step, work):
        """Write gradients of biases and weights, then input slopes, whichever are asked for."""
        slopes = output_slopes(step, work)
        # The last numbers of the scratch memory are a row of zeros, from which products start.
        row_of_zeros = work.slopes[work.slopes.size - max(step.width_in, step.width_out) :]
        fill(row_of_zeros, zero)
        zeros = Matrix(address(row_of_zeros), 0, 0, 1)
        if wants_parameters(work):
            gradients, num_weights = gradients_of(step, work), step.rows * step.columns
            nonzeros, capacity = nonzeros_of(step, work)
            # The caller has computed the outputs of a first layer of `Ones`, and adds the weights'
            # gradients itself: they only begin at 0 here.
            is_of_ones = work.is_summed and step.inputs == 0
            is_sparse = capacity > 0 and not is_of_ones and nonzeros[0] >= 0
            if work.mode & OVERWRITTEN:
                fill(gradients[0 if is_of_ones or is_sparse else num_weights :], zero)
            add_rows(gradients[num_weights:], slopes)
            if is_sparse:
                add_nonzero_gradients(step, work, slopes, nonzeros, capacity)
            elif not is_of_ones:
                write_gradients(step, work, slopes, zeros, no_floor)
        if wants_inputs(step, work):
            if step.copies >= 0:
                write_slopes(step, work, slopes, zeros, no_floor)
            else:
                write_slopes_without_copy(step, work, slopes)

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
        """Return how many saved units a sample has; see `Layer`."""
        return 0 if sizes.is_last else capacity_for.py_func(padded(sizes.inputs))

    def parameters(self, sizes: Sizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        shape, width = (sizes.inputs, sizes.outputs), padded(sizes.outputs)
        gain = self.gain
        if gain is None:
            gain = 1.0 if sizes.is_last else math.sqrt(2.0)
        initial = functools.partial(orthogonal, shape=shape, gain=gain)
        if sizes.is_last:  # turned, with rows as long as a vector for each output
            packed = sizes.outputs, padded(sizes.inputs)
        else:
            packed = sizes.inputs if sizes.is_first else padded(sizes.inputs), width
        weights = ParameterArray(
            "weights", shape, initial, packed,
            turned=sizes.is_last, copied=sizes.is_last or not sizes.is_first,
        )  # fmt: skip
        return [weights, vector("biases", sizes.outputs, 0.0)]


def orthogonal(rng: np.random.Generator, shape: tuple[int, int], gain: float) -> Array:
    """Return orthogonal weights (inputs, outputs) of a gain (Saxe et al. 2014)."""
    inputs, outputs = shape
    tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return gain * (q if inputs >= outputs else q.T)
