"""Inputs of which few numbers say all: choices and boards.

`Embedding` takes numbers of choices and adds up the rows of its weights that belong to them.
`Ones` are inputs that are zeros but for a few ones: a `Dense` first layer adds up the rows of its
weights that belong to the ones, in the place of multiplying all of them, and the backward pass adds
to the gradients of these rows. The caller of the passes does both, and says so with `is_summed`.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.network.passes.Work`). Slopes
are derivatives of the loss with respect to a layer's inputs or outputs, gradients those with
respect to its parameters.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import inline, prefer_small_code
from rlcpu.kernels.machine.matmul import MANY_ONES, add_to_rows, sum_of_rows
from rlcpu.kernels.machine.memory import address, part, shifted
from rlcpu.nn.layers.kind import (
    BY_PARAMETERS,
    OVERWRITTEN,
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
    wants_inputs,
)
from rlcpu.nn.layers.rows import add_to, as_matrix, fill, repeated, row_at

# ---------------------------------------------------------------- numbers of choices


@inline
def chosen_row(inputs, step, i, k, weights):
    """Return the row of the weights, or of their gradients, that choice k of sample i names.

    Each input has a row for each of its `Embedding.choices`; a number that is none counts as 0.
    """
    choices, number = step.option, inputs[i * step.width_in + k]
    inside = number >= 0 and number < choices
    row = k * choices + (np.int64(number) if inside else 0)
    return row_at(weights, row, step.width_out)


def forward(step, work):
    """Write for each sample the sum of the rows of weights that its choices name; see `Kind`."""
    prefer_small_code()
    inputs, outputs = inputs_of(step, work), outputs_of(step, work)
    weights = parameters_of(step, work)
    fill(outputs, 0.0)
    for i in range(work.samples):
        out = row_at(outputs, i, step.width_out)
        for k in range(step.size_in):
            add_to(out, chosen_row(inputs, step, i, k, weights))


def backward(step, work):
    """Add slopes to the gradients of the rows that choices name; slopes of choices are 0."""
    prefer_small_code()
    inputs, slopes = inputs_of(step, work), output_slopes(step, work)
    if work.mode & BY_PARAMETERS:
        gradients = gradients_of(step, work)
        if work.mode & OVERWRITTEN:
            fill(gradients, 0.0)
        for i in range(work.samples):
            slope = row_at(slopes, i, step.width_out)
            for k in range(step.size_in):
                add_to(chosen_row(inputs, step, i, k, gradients), slope)
    if wants_inputs(step, work) and step.adds_to_slopes == 0:
        fill(input_slopes(step, work), 0.0)


EMBEDDING = Kind("embedding", forward, backward)


@dataclasses.dataclass(frozen=True, eq=False)
class Embedding(Layer):
    """The sum of a learnt row for each choice.

    Attributes:
        size: numbers of a row.
        choices: its inputs are whole numbers from 0 to choices - 1; each has rows of its own. A
            number that is none of these counts as 0.
    """

    size: int
    choices: int
    kind = EMBEDDING

    def __post_init__(self) -> None:
        check_count("size", self.size)
        check_count("choices", self.choices)

    def __repr__(self) -> str:
        return f"Embedding({self.size}, choices={self.choices})"

    @property
    def option(self) -> int:  # type: ignore[override]
        """Return the number of choices, the option of its `LayerStep`."""
        return self.choices

    def output_size(self, inputs: int) -> int:
        """Return the number of outputs; see `Layer`."""
        return self.size

    def parameters(self, sizes: LayerSizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        shape = sizes.inputs * self.choices, self.size
        deviation = 1.0 / math.sqrt(sizes.inputs)
        initial = functools.partial(_normal, shape=shape, deviation=deviation)
        return [ParameterArray("weights", shape, initial, (shape[0], padded(self.size)))]


def _normal(rng: np.random.Generator, shape: tuple[int, int], deviation: float) -> Array:
    return deviation * rng.standard_normal(shape)


# ---------------------------------------------------------------- ones among zeros


def most_ones(samples: int, size: int) -> int:
    """Return up to how many ones of so many samples adding up rows is faster than a product."""
    return int(MANY_ONES * samples * size)


class Ones(NamedTuple):
    """Inputs of S samples that are zeros but for a few ones, such as boards and choices."""

    starts: npt.NDArray[np.int64]  # (S + 1,): those of sample i are columns[starts[i]:starts[i+1]]
    columns: npt.NDArray[np.int32]  # (any,), which inputs are one
    size: int  # how many inputs a sample has

    @classmethod
    def of(cls, inputs: npt.NDArray[Any]) -> Ones:
        """Return the ones of an array (S, size) of zeros and ones, of uint8 or bool.

        Raises:
            TypeError: it is of another dtype, or has other axes.
        """
        if inputs.dtype not in (np.uint8, np.bool_) or inputs.ndim != 2:
            shape = f"shape {inputs.shape} and dtype {inputs.dtype}"
            raise TypeError(f"inputs have {shape}: expected (S, size) of uint8 or bool")
        count, size = inputs.shape
        places = np.flatnonzero(inputs.reshape(-1).view(np.bool_))
        starts = np.searchsorted(places, np.arange(count + 1) * size)
        return cls(starts, (places % size).astype(np.int32), size)

    def check(self, size: int) -> None:
        """Raise ValueError unless these are inputs of a network that takes `size` numbers."""
        starts, columns = np.asarray(self.starts), np.asarray(self.columns)
        has_kinds = starts.dtype == np.int64 and columns.dtype == np.int32
        has_axes = starts.ndim == 1 and columns.ndim == 1
        if not (has_kinds and has_axes) or self.size != size or len(starts) < 2:
            raise ValueError(
                f"inputs have starts {starts.shape} {starts.dtype}, columns {columns.shape} "
                f"{columns.dtype}, size {self.size}: expected (S + 1,) int64, (any,) int32, {size}"
            )
        if starts[0] != 0 or starts[-1] != len(columns) or (np.diff(starts) < 0).any():
            raise ValueError(f"starts of inputs: expected to grow from 0 to {len(columns)}")
        if len(columns) and not 0 <= columns.min() <= columns.max() < size:
            raise ValueError(f"columns of inputs: expected 0 to {size - 1}")

    def expand(self) -> npt.NDArray[np.float32]:
        """Return all inputs, (S, size) float32."""
        inputs = np.zeros((len(self.starts) - 1, self.size), np.float32)
        inputs[np.repeat(np.arange(len(inputs)), np.diff(self.starts)), self.columns] = 1.0
        return inputs

    def are_few(self) -> bool:
        """Tell whether they are so few that adding up rows of weights is faster than a product."""
        return len(self.columns) <= most_ones(len(self.starts) - 1, self.size)


@inline
def sum_ones(units, network, samples, i, bounds, columns):
    """Write the outputs of a network's first layer for one sample, whose inputs are ones.

    Args:
        units: of the network, see `rlcpu.nn.network.passes`; a forward pass with `is_summed` goes
            on from these.
        network: a `Packed`, whose `table[0]` is the first layer's step.
        samples: how many samples `units` has.
        i: the sample.
        bounds: its ones are columns[bounds[0]:bounds[1]].
        columns: int32, places of ones.
    """
    step, width = network.table[0], network.table[0].width_out
    # Rows of weights, one for each input, as wide as an output with its padding; then the biases.
    weights = part(network.parameters, step.parameters, step.end - step.parameters)
    biases = part(weights, step.rows * step.columns, width)
    real = weights.dtype.type
    sum_of_rows(
        address(columns),
        bounds,
        left=None,  # all ones
        right=as_matrix(weights, width),
        start=repeated(biases),
        out=repeated(part(units, samples * step.outputs + i * width, width)),
        size=width,
        floor=real(0) if step.fuses_relu != 0 else real(-np.inf),
    )


@inline
def add_slopes(gradients, units, network, samples, i, bounds, columns):
    """Add what one sample contributes to the gradient of the first layer's weights.

    The inputs are ones: the slopes of the layer's outputs, which are in `units`, are added to the
    rows of the gradients that belong to them. For the other arguments see `sum_ones`.
    """
    step, width = network.table[0], network.table[0].width_out
    add_to_rows(
        address(columns),
        bounds,
        left=None,  # all ones
        row=repeated(part(units, samples * step.outputs + i * width, width)),
        out=as_matrix(shifted(gradients, step.parameters), width),
        size=width,
    )
