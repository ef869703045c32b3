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
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.network.passes.Work`). Slopes
are derivatives of the loss with respect to a layer's inputs or outputs, gradients those with
respect to its parameters. `product(left, right, start, out, shape, floor)` writes max(left @ right
+ start, floor) to `out`: the floor is 0 for a relu, -inf for none; `shape` is (rows, depth,
columns). Weights are (`step.rows`, `step.columns`) as packed, `step.is_transposed` says in which of
both forms; biases lie behind them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.matmul import (
    FEW_COLUMNS,
    add_to_rows,
    product,
    product_of_few,
    sum_of_rows,
)
from rlcpu.kernels.machine.memory import address, load, part, place_of, pointer_to, shifted
from rlcpu.kernels.machine.vectors import lowest_bit, nonzero_bits, width
from rlcpu.nn.layers.kind import (
    BY_PARAMETERS,
    OVERWRITTEN,
    UNIT,
    Array,
    Kind,
    Layer,
    LayerSizes,
    ParameterArray,
    gradients_of,
    input_slopes,
    inputs_of,
    output_slopes,
    outputs_of,
    padded,
    parameters_of,
    saved_of,
    spare_row,
    vector,
    wants_inputs,
)
from rlcpu.nn.layers.rows import add_rows, as_matrix, fill, repeated, row_at, transposed

# ---------------------------------------------------------------- inputs that are mostly zeros
#
# A sample's list of nonzeros has `capacity` whole numbers: how many inputs are not 0, then which.
# The forward pass writes one for each sample to the saved units; the backward pass reads them.
# Boards and choices are `Ones`, whose lists the caller has, and which are four times as fast at
# 1,024 samples; without lists of other numbers PPO on Craftax's symbols takes 2.2 times as long.

#: Inputs of a sample from which on a layer looks for zeros.
WIDE = 64
#: Registers of inputs that are searched at once: at most 64 numbers, a bit of an uint64 for each.
REGISTERS = 4
#: Stands in place of the first sample's count where a sample has more nonzeros than its list takes.
TOO_MANY = -1
_NONE, _ONE = np.uint64(0), np.uint64(1)


class NonzeroLists(NamedTuple):
    """Lists of nonzeros of all samples, one after the other."""

    numbers: Any  # pointer to (samples * capacity) whole numbers, in the memory of saved units
    capacity: Any  # numbers of a list; 0 where a layer does not look for zeros


@inline
def capacity_for(inputs):
    """Return the numbers of a sample's list of nonzeros, its count included; 0 for no list.

    It is a quarter of the inputs: a product takes as long as sums over so many.
    """
    return inputs // (4 * UNIT) * UNIT if inputs >= WIDE else 0


@inline
def nonzeros_of(step, work):
    """Return the `NonzeroLists` of a step, in its saved units."""
    # Sums are of rows of weights: transposed ones have a column for each input.
    capacity = 0 if step.is_transposed != 0 else capacity_for(step.width_in)
    return NonzeroLists(pointer_to(place_of(saved_of(step, work), 0), np.int32(0)), capacity)


@inline
def bounds_of(lists, i):
    """Return where the places of sample i's nonzeros begin and end in `lists.numbers`."""
    first = i * lists.capacity + 1
    return first, first + lists.numbers[first - 1]


def list_nonzeros(step, work, lists):
    """Write the lists of all samples; return False, and mark them, if one has too many nonzeros."""
    inputs, numbers = address(inputs_of(step, work)), part(lists.numbers, 0, 1)
    at_once = width(inputs, REGISTERS)
    for i in range(work.samples):
        nonzeros = row_at(lists.numbers, i, lists.capacity)
        count = 1  # numbers of the list so far: the first is for the count of nonzeros
        for begin in range(0, step.width_in, at_once):
            loaded = min(at_once, step.width_in - begin)  # behind them the vector has 0.0
            place = i * step.width_in + begin
            bits = nonzero_bits(load(inputs, place, REGISTERS, loaded, 0.0))
            while bits != _NONE:
                if count == nonzeros.size:
                    numbers[0] = TOO_MANY
                    return False
                nonzeros[count] = begin + lowest_bit(bits)
                bits &= bits - _ONE  # clears that bit
                count += 1
        nonzeros[0] = count - 1
    return True


# ---------------------------------------------------------------- forward


def forward(step, work):
    """Write max(inputs @ weights + biases, floor) of all samples; see `Kind`."""
    samples, width_in, width_out = work.samples, step.width_in, step.width_out
    inputs, outputs = inputs_of(step, work), outputs_of(step, work)
    parameters, num_weights = parameters_of(step, work), step.rows * step.columns
    weights = as_matrix(parameters, step.columns)
    biases = repeated(part(parameters, num_weights, parameters.size - num_weights))
    floor = 0.0 if step.fuses_relu != 0 else -math.inf
    lists = nonzeros_of(step, work)
    if lists.capacity > 0 and list_nonzeros(step, work, lists):
        for i in range(samples):
            sum_of_rows(
                lists.numbers,
                bounds_of(lists, i),
                left=address(row_at(inputs, i, width_in)),
                right=weights,
                start=biases,
                out=repeated(row_at(outputs, i, width_out)),
                size=width_out,
                floor=floor,
            )
        return
    left, out = as_matrix(inputs, width_in), as_matrix(outputs, width_out)
    if step.is_transposed == 0:
        product(left, weights, biases, out, (samples, step.rows, width_out), floor)
    elif step.size_out <= FEW_COLUMNS:
        fill(outputs, 0.0)  # the padding, which the product leaves out
        product_of_few(left, weights, biases, out, (samples, width_in, step.size_out), floor)
    else:
        copy = as_matrix(shifted(work.network.copies, step.copies), width_out)
        product(left, copy, biases, out, (samples, width_in, width_out), floor)


# ---------------------------------------------------------------- backward


def backward(step, work):
    """Write gradients of biases and weights, then input slopes, whichever are asked for."""
    slopes, row_of_zeros = output_slopes(step, work), spare_row(step, work)
    fill(row_of_zeros, 0.0)
    zeros = repeated(row_of_zeros)  # from which products start, as wide as any of them
    if work.mode & BY_PARAMETERS:
        write_gradients(step, work, slopes, zeros)
    if wants_inputs(step, work):
        write_input_slopes(step, work, slopes, zeros)


def write_gradients(step, work, slopes, zeros):
    """Add gradients of weights and biases, or overwrite with them, by `work.mode`.

    Those of weights are inputs.T @ slopes, where the weights lie transposed slopes.T @ inputs.
    `zeros` is a matrix of zeros, with which the product starts where it overwrites.
    """
    gradients, num_weights = gradients_of(step, work), step.rows * step.columns
    inputs, width_in, width_out = inputs_of(step, work), step.width_in, step.width_out
    lists = nonzeros_of(step, work)
    # Of a first layer of `Ones` (the network's inputs are at 0) the caller has computed the
    # outputs, and adds the weights' gradients itself: they only begin at 0 here.
    is_of_ones = work.is_summed and step.inputs == 0
    is_sparse = lists.capacity > 0 and not is_of_ones and lists.numbers[0] != TOO_MANY
    overwrites = work.mode & OVERWRITTEN != 0
    if overwrites:  # the product overwrites those of weights itself
        begin = 0 if is_of_ones or is_sparse else num_weights
        fill(part(gradients, begin, gradients.size - begin), 0.0)
    add_rows(part(gradients, num_weights, gradients.size - num_weights), slopes)
    out = as_matrix(gradients, step.columns)
    if is_sparse:  # those of inputs that are 0 are 0 times a slope
        for i in range(work.samples):
            row, slope = address(row_at(inputs, i, width_in)), row_at(slopes, i, width_out)
            add_to_rows(lists.numbers, bounds_of(lists, i), row, repeated(slope), out, width_out)
    elif not is_of_ones:
        left, right = transposed(inputs, width_in), as_matrix(slopes, width_out)
        if step.is_transposed != 0:
            left, right = transposed(slopes, width_out), as_matrix(inputs, width_in)
        start = zeros if overwrites else out
        product(left, right, start, out, (step.rows, work.samples, step.columns), -math.inf)


def write_input_slopes(step, work, slopes, zeros):
    """Write input slopes, slopes @ weights.T, or add them where another layer has them too.

    `zeros` is a matrix of zeros, with which the product starts where nothing is added to.
    """
    samples, width_in, width_out = work.samples, step.width_in, step.width_out
    by_inputs, network = input_slopes(step, work), work.network
    if step.copies < 0:
        # A first layer, the only one that reads the input, whose weights have no copy. Its slopes
        # are asked for outside of updates alone, as by `Network.gradients`: speed does not matter.
        weights = parameters_of(step, work)
        for i in range(samples):
            slope = row_at(slopes, i, width_out)
            by_input = part(by_inputs, i * width_in, step.rows)
            for k in range(by_input.size):
                weight, total = row_at(weights, k, width_out), 0.0
                for j in range(width_out):
                    total += slope[j] * weight[j]
                by_input[k] = total
        return
    out = as_matrix(by_inputs, width_in)
    start = out if step.adds_to_slopes != 0 else zeros
    copy, depth = shifted(network.parameters, step.parameters), step.rows
    if step.is_transposed == 0:
        copy, depth = shifted(network.copies, step.copies), width_out
    left, right = as_matrix(slopes, width_out), as_matrix(copy, width_in)
    product(left, right, start, out, (samples, depth, width_in), -math.inf)


DENSE = Kind("dense", forward, backward, fuses_relu=True)


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

    def num_saved(self, sizes: LayerSizes) -> int:
        """Return how many saved units a sample has; see `Layer`."""
        return 0 if sizes.is_last else capacity_for.py_func(padded(sizes.inputs))

    def parameters(self, sizes: LayerSizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        shape, width = (sizes.inputs, sizes.outputs), padded(sizes.outputs)
        gain = self.gain
        if gain is None:
            gain = 1.0 if sizes.is_last else math.sqrt(2.0)
        initial = functools.partial(orthogonal, shape=shape, gain=gain)
        if sizes.is_last:  # transposed
            packed = sizes.outputs, padded(sizes.inputs)
        else:
            packed = sizes.inputs if sizes.is_first else padded(sizes.inputs), width
        weights = ParameterArray(
            "weights", shape, initial, packed,
            is_transposed=sizes.is_last, copied=sizes.is_last or not sizes.is_first,
        )  # fmt: skip
        return [weights, vector("biases", sizes.outputs, 0.0)]


def orthogonal(rng: np.random.Generator, shape: tuple[int, int], gain: float) -> Array:
    """Return orthogonal weights (inputs, outputs) of a gain (Saxe et al. 2014)."""
    inputs, outputs = shape
    tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))  # else q's signs would be those that LAPACK chooses
    return gain * (q if inputs >= outputs else q.T)
