"""Layers with memory: minimal GRU, GRU and LSTM.

A cell is plain Python for one unit (`rlcpu.nn.layers.cells`): it computes the unit's next memory
from its memory and the pre-activations of its gates. These are a product of weights and inputs, a
dense layer in front of the cell, for all time steps at once; and a product of weights and states,
for the sequences of one time step. `rlcpu.nn.layers.time_steps` has the loop over time steps, and
says how states lie, what `advance` and `go_back` do, and what `step` and `work` are.

Of a sample, `x` are the pre-activations of all gates by its inputs, one gate after the other, each
(size,), `p` those by its state. h and c are memories before a time step, h' and c' after it. Rows
of outputs and states are padded, `step.width_out` numbers for each part of the memory.
`step.option` is the length of a sequence's state: `step.width_out`, of an LSTM, which remembers h
and c, twice that. The weights of states are (`step.rows`, `step.columns`): numbers of h, and of the
products of all gates of a sample, both padded.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

import numpy as np

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.compiler.functions import OfNumbers
from rlcpu.kernels.machine.memory import part
from rlcpu.nn.layers.cells import gru, gru_back, lstm, lstm_back, min_gru, min_gru_back
from rlcpu.nn.layers.dense import Dense, orthogonal
from rlcpu.nn.layers.graph import Graph, LayerOutput, Trace
from rlcpu.nn.layers.kind import (
    Array,
    Layer,
    LayerSizes,
    ParameterArray,
    input_row,
    inputs_of,
    output_row,
    output_slopes,
    outputs_of,
    padded,
    parameters_of,
    saved_of,
    vector,
)
from rlcpu.nn.layers.rows import add_to, as_matrix, copy, fill, repeated, row_at
from rlcpu.nn.layers.time_steps import (
    add_gradients,
    add_state_slopes,
    kind_of_cell,
    multiply_states,
    num_sequences,
)

# Cells, inlined in the loops over units.
_min_gru, _min_gru_back = OfNumbers(min_gru), OfNumbers(min_gru_back)
_gru, _gru_back = OfNumbers(gru), OfNumbers(gru_back)
_lstm, _lstm_back = OfNumbers(lstm), OfNumbers(lstm_back)


@inline
def outputs_at(step, work, t):
    """Return the outputs of all sequences in time step t."""
    return row_at(outputs_of(step, work), t, num_sequences(work) * step.width_out)


@inline
def output_slopes_at(step, work, t):
    """Return the slopes of the outputs of all sequences in time step t."""
    return row_at(output_slopes(step, work), t, num_sequences(work) * step.width_out)


# ---------------------------------------------------------------- minimal gated unit


def run_min_gru(x_z, x_h, h, out):
    """Compute all units; z takes the place of x_z."""
    for k in range(out.size):
        x_z[k], out[k] = _min_gru(x_z[k], x_h[k], h[k])


def advance_min_gru(step, work, t, state, next_state):
    """Compute time step t of all sequences, one after the other."""
    size, state_size, sequences = step.size_out, step.option, num_sequences(work)
    for b in range(sequences):
        row = t * sequences + b
        x, out = input_row(step, work, row), output_row(step, work, row)
        h = part(state, b * state_size, size)
        run_min_gru(row_at(x, 0, size), row_at(x, 1, size), h, out[:size])
    copy(next_state, outputs_at(step, work, t))  # h' is the output too


def run_min_gru_back(z, x_h, h, slopes, by_output):
    """Overwrite z, x_h and `slopes`, of h', with slopes of x_z, x_h and h.

    `by_output` are the slopes of the outputs, which are h' too.
    """
    for k in range(h.size):
        slope = slopes[k] + by_output[k]
        z[k], x_h[k], slopes[k] = _min_gru_back(z[k], x_h[k], h[k], slope)


def go_back_min_gru(step, work, t, state, slopes):
    """Go back through time step t of all sequences, one after the other."""
    size, state_size, sequences = step.size_out, step.option, num_sequences(work)
    by_outputs = output_slopes_at(step, work, t)
    for b in range(sequences):
        x, begin = input_row(step, work, t * sequences + b), b * state_size
        h, by_h = part(state, begin, size), part(slopes, begin, size)
        by_output = part(by_outputs, begin, size)  # rows of outputs are as long as states
        run_min_gru_back(row_at(x, 0, size), row_at(x, 1, size), h, by_h, by_output)


# ---------------------------------------------------------------- gated recurrent unit


@inline
def products_of(step, work):
    """Return the products of states and weights, (samples * columns,), saved behind the states.

    The backward pass needs those of gate n, and puts the slopes of all in their place. States are
    (T + 1) B rows, at most 2 T B, which is two for each sample.
    """
    begin = 2 * step.option * work.samples
    return part(saved_of(step, work), begin, step.columns * work.samples)


def run_gru(x_r, x_z, x_n, p_r, p_z, p_n, h, out):
    """Compute all units; r, z and n take the places of x_r, x_z and x_n."""
    for k in range(out.size):
        x_r[k], x_z[k], x_n[k], out[k] = _gru(x_r[k], x_z[k], x_n[k], p_r[k], p_z[k], p_n[k], h[k])


def advance_gru(step, work, t, state, next_state):
    """Compute time step t of all sequences."""
    size, sequences, columns = step.size_out, num_sequences(work), step.columns
    state_size = step.option
    products = row_at(products_of(step, work), t, sequences * columns)
    biases = repeated(parameters_of(step, work)[step.rows * columns :])
    multiply_states(step, work, state, biases, products)
    for b in range(sequences):
        row = t * sequences + b
        x, out = input_row(step, work, row), output_row(step, work, row)
        p = row_at(products, b, columns)
        run_gru(
            row_at(x, 0, size), row_at(x, 1, size), row_at(x, 2, size),
            row_at(p, 0, size), row_at(p, 1, size), row_at(p, 2, size),
            part(state, b * state_size, size), out[:size],
        )  # fmt: skip
    copy(next_state, outputs_at(step, work, t))  # h' is the output too


def run_gru_back(r, z, n, p_n, h, slopes):
    """Overwrite r, z, n, p_n and `slopes`, of h', with slopes of x_r, x_z, x_n, p_n and h."""
    for k in range(h.size):
        r[k], z[k], n[k], p_n[k], slopes[k] = _gru_back(r[k], z[k], n[k], p_n[k], h[k], slopes[k])


def go_back_gru(step, work, t, state, slopes):
    """Go back through time step t of all sequences."""
    size, sequences, columns = step.size_out, num_sequences(work), step.columns
    state_size = step.option
    products = row_at(products_of(step, work), t, sequences * columns)
    add_to(slopes, output_slopes_at(step, work, t))  # h' is state and output, in equal rows
    for b in range(sequences):
        x, p = input_row(step, work, t * sequences + b), row_at(products, b, columns)
        begin = b * state_size
        run_gru_back(
            row_at(x, 0, size), row_at(x, 1, size), row_at(x, 2, size), row_at(p, 2, size),
            part(state, begin, size), part(slopes, begin, size),
        )  # fmt: skip
        copy(p[: 2 * size], x[: 2 * size])  # r and z are of sums x + p: their slopes are equal
    # The slopes of all products are in their place now: those of h by them are added.
    add_state_slopes(step, work, products, slopes)


def finish_gru(step, work):
    """Add gradients of the weights of states, and of biases; see `kind_of_cell`."""
    add_gradients(step, work, products_of(step, work), has_biases=True)


# ---------------------------------------------------------------- long short-term memory

# A row of the state has h, then c, each `step.width_out` numbers.


def run_lstm(x_i, x_f, x_g, x_o, c, c_next, h_next):
    """Compute all units; i, f, g and o take the places of x_i, x_f, x_g and x_o."""
    for k in range(c.size):
        x_i[k], x_f[k], x_g[k], x_o[k], h_next[k], c_next[k] = _lstm(
            x_i[k], x_f[k], x_g[k], x_o[k], c[k]
        )


def advance_lstm(step, work, t, state, next_state):
    """Compute time step t of all sequences; products of states are added to the inputs."""
    size, width, state_size = step.size_out, step.width_out, step.option
    sequences = num_sequences(work)
    inputs = row_at(inputs_of(step, work), t, sequences * step.columns)
    outputs = outputs_at(step, work, t)
    multiply_states(step, work, state, as_matrix(inputs, step.columns), inputs)
    fill(next_state, 0.0)  # the padding behind the units stays so
    for b in range(sequences):
        x, out = row_at(inputs, b, step.columns), row_at(outputs, b, width)
        begin = b * state_size
        run_lstm(
            row_at(x, 0, size), row_at(x, 1, size), row_at(x, 2, size), row_at(x, 3, size),
            part(state, begin + width, size), part(next_state, begin + width, size), out[:size],
        )  # fmt: skip
        copy(part(next_state, begin, width), out)


def run_lstm_back(i, f, g, o, c, by_h, by_c, by_output):
    """Overwrite gates and `by_c`, of c', with the slopes of x_i, x_f, x_g, x_o and c.

    `by_h` and `by_output` are the slopes of h', as the next state and as the output.
    """
    for k in range(c.size):
        i[k], f[k], g[k], o[k], by_c[k] = _lstm_back(
            i[k], f[k], g[k], o[k], c[k], by_h[k] + by_output[k], by_c[k]
        )


def go_back_lstm(step, work, t, state, slopes):
    """Go back through time step t of all sequences."""
    size, width, state_size = step.size_out, step.width_out, step.option
    sequences = num_sequences(work)
    inputs = row_at(inputs_of(step, work), t, sequences * step.columns)
    by_outputs = output_slopes_at(step, work, t)
    for b in range(sequences):
        x, begin = row_at(inputs, b, step.columns), b * state_size
        by_h = part(slopes, begin, width)
        run_lstm_back(
            row_at(x, 0, size), row_at(x, 1, size), row_at(x, 2, size), row_at(x, 3, size),
            part(state, begin + width, size), by_h, part(slopes, begin + width, size),
            part(by_outputs, b * width, size),
        )  # fmt: skip
        fill(by_h, 0.0)  # h acts by the products alone, whose slopes are added below
    # The cells have left the slopes of all products in the place of the inputs.
    add_state_slopes(step, work, inputs, slopes)


def finish_lstm(step, work):
    """Add gradients of the weights of states; see `kind_of_cell`."""
    # The cells have left the slopes of products in the place of the inputs.
    add_gradients(step, work, inputs_of(step, work), has_biases=False)


# ---------------------------------------------------------------- kinds and layers

#: Steps that the unit with the longest memory remembers at first.
LONGEST = 64.0

MIN_GRU = kind_of_cell("min_gru", advance_min_gru, go_back_min_gru, lambda step, work: None)
GRU = kind_of_cell("gru", advance_gru, go_back_gru, finish_gru)
LSTM = kind_of_cell("lstm", advance_lstm, go_back_lstm, finish_lstm)


@dataclasses.dataclass(frozen=True, eq=False)
class Cell(Layer):
    """Part of a layer with memory behind the product of the inputs."""

    #: Units.
    size: int
    #: Gates of a unit: numbers of it in the product of the inputs.
    gates: ClassVar[int]
    #: Numbers that a unit remembers.
    parts: ClassVar[int] = 1
    #: Whether products of states and weights are saved apart from the inputs'.
    has_products: ClassVar[bool] = False

    @property
    def option(self) -> int:  # type: ignore[override]
        """Return the numbers of a sequence's state, padded."""
        return self.parts * padded(self.size)

    @property
    def state(self) -> int:  # type: ignore[override]
        """Return the numbers that are remembered of a sequence."""
        return self.option

    def num_saved(self, sizes: LayerSizes) -> int:
        """Return how many saved units a sample has: two states, and products; see `Layer`.

        The (T + 1) B states of T B samples are at most two for each.
        """
        return 2 * self.option + (padded(self.gates * self.size) if self.has_products else 0)

    def output_size(self, inputs: int) -> int:
        """Return the number of outputs; see `Layer`."""
        return self.size

    def _weights(self) -> ParameterArray:
        """Return the weights by which states are multiplied."""
        shape = self.size, self.gates * self.size
        initial = functools.partial(_orthogonal_gates, shape=shape)
        packed = padded(shape[0]), padded(shape[1])
        return ParameterArray("weights", shape, initial, packed, copied=True)


class MinGruCell(Cell):
    """The cell of `MinGru`, which has no parameters."""

    kind, gates = MIN_GRU, 2


class GruCell(Cell):
    """The cell of `Gru`."""

    kind, gates, has_products = GRU, 3, True

    def parameters(self, sizes: LayerSizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        return [self._weights(), vector("biases", self.gates * self.size, 0.0)]


class LstmCell(Cell):
    """The cell of `Lstm`."""

    kind, gates, parts = LSTM, 4, 2

    def parameters(self, sizes: LayerSizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        return [self._weights()]


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs(Dense):
    """The product of weights and inputs, with biases that let units remember for other times."""

    #: For each gate the sign of its biases: 1 where an open gate remembers, -1 where it forgets, 0
    #: for none.
    bias_signs: tuple[int, ...] = ()

    def parameters(self, sizes: LayerSizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        weights, biases = super().parameters(sizes)
        initial = functools.partial(
            _time_scales, self.size // len(self.bias_signs), self.bias_signs
        )
        return [weights, biases._replace(initial=initial)]


def _time_scales(size: int, signs: tuple[int, ...], unused: np.random.Generator) -> Array:
    """Return biases of gates with which unit k remembers for some T_k steps, log(T_k - 1).

    A bias is taken with the sign of its gate, see `Inputs`, the gates one after the other. T goes
    from 2 to `LONGEST` in equal ratios. Source: Tallec & Ollivier 2018, "Can recurrent neural
    networks warp time?", section 3, where T is drawn.
    """
    times = 2.0 * (LONGEST / 2.0) ** np.linspace(0.0, 1.0, size)
    return np.concatenate([sign * np.log(times - 1.0) for sign in signs])


def _orthogonal_gates(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return a square orthogonal matrix for each gate, side by side."""
    size, columns = shape
    return np.hstack([orthogonal(rng, (size, size), 1.0) for _ in range(columns // size)])


class Memory(Graph):
    """A cell and the product of the inputs in front of it; see `MinGru`, `Gru` and `Lstm`."""

    _cell: ClassVar[type[Cell]]
    #: See `Inputs`.
    _bias_signs: ClassVar[tuple[int, ...]]

    def __init__(self, size: int) -> None:
        self.size = check_count("size", size)
        gates = Inputs(self._cell.gates * size, gain=1.0, bias_signs=self._bias_signs)
        self._graph = gates >> self._cell(size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size})"

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add its steps to a trace; see `Graph`."""
        return trace.run(self._graph, source)


class MinGru(Memory):
    """Minimal gated recurrent units (Feng et al. 2024, "Were RNNs all we needed?").

    Their gates do not see what is remembered, so that a time step has no product: the cheapest
    memory, 2 * size * (inputs + 1) parameters.

    Args:
        size: units.

    Example:
        >>> from rlcpu import nn
        >>> network = nn.Network(3, nn.MinGru(64) >> nn.Dense(2))
        >>> network.state_size
        64
    """

    _cell, _bias_signs = MinGruCell, (-1, 0)  # of z and x_h


class Gru(Memory):
    """Gated recurrent units (Cho et al. 2014), as `torch.nn.GRU` computes them.

    Args:
        size: units.
    """

    _cell, _bias_signs = GruCell, (0, 1, 0)  # of r, z and n


class Lstm(Memory):
    """Long short-term memory (Hochreiter & Schmidhuber 1997), as `torch.nn.LSTM` computes it.

    It remembers two numbers of a unit; its biases are one vector in the place of torch's two.

    Args:
        size: units.
    """

    _cell, _bias_signs = LstmCell, (-1, 1, 0, 0)  # of i, f, g and o
