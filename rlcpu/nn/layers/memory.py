"""Layers with memory: minimal GRU, GRU and LSTM.

Samples are sequences: T time steps of B sequences, time step after time step, each B rows. A cell
is plain Python for one unit (`rlcpu.nn.layers.cells`): it computes the unit's next memory from its
memory and the pre-activations of its gates. These are a product of weights and inputs, a dense
layer in front of the cell, for all time steps at once; and a product of weights and memory, for the
B rows of one time step.

The memory of a sequence, its *state*, has `step.option` numbers. States lie in the layer's saved
units, B rows for each time step, and B more behind the last:

    rows t    what the cell reads in time step t: zeros where an episode begins (`work.starts` above
              0), else what it has written in the step before; the caller writes rows 0
    rows T    what it has written in the last time step

The backward pass goes from the last time step to the first, and no further where an episode begins
or `starts` is below 0; rows T then hold the slopes of the states, in the end those of rows 0.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` = T B samples (`rlcpu.nn.passes.Work`). Slopes are
derivatives of the loss with respect to a layer's inputs, outputs or states, gradients those with
respect to its parameters. Of a sample, `x` are the pre-activations of all gates by its inputs, `p`
those by its state, and `gate(x, number, size)` those of one gate: `size` counts units, `row` the
numbers of a padded row of them. h and c are memories before a time step, h' and c' after it.
`Matrix(values, begin, row_stride, column_stride)` lies in memory; row stride 0 repeats one row.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import (
    inline,
    inline_source,
    never_inline,
    outline,
    prefer_small_code,
    specialise,
)
from rlcpu.kernels.matmul import Matrix, product
from rlcpu.kernels.memory import address
from rlcpu.nn.layers.cells import gru, gru_back, lstm, lstm_back, min_gru, min_gru_back
from rlcpu.nn.layers.dense import Dense, orthogonal
from rlcpu.nn.layers.graph import Graph, LayerOutput, Trace
from rlcpu.nn.layers.kind import (
    OVERWRITTEN,
    Array,
    Kind,
    Layer,
    ParameterArray,
    Sizes,
    gradients_of,
    inputs_of,
    output_slopes,
    outputs_of,
    padded,
    parameters_of,
    saved_of,
    vector,
    wants_parameters,
)
from rlcpu.nn.layers.rows import add_rows, fill

# ---------------------------------------------------------------- time steps


@inline
def copy(target, source):
    """Copy numbers."""
    for k in range(target.size):
        target[k] = source[k]


@inline
def add(target, source):
    """Add numbers."""
    for k in range(target.size):
        target[k] += source[k]


@inline_source
def num_sequences(work):
    """Return B, the sequences of a pass: rows of one time step."""
    return work.samples // work.steps


@inline
def at_step(array, t, size):
    """Return the numbers of time step t of an array that has `size` numbers for each."""
    return array[t * size : (t + 1) * size]


@inline
def gate(row, number, size):
    """Return the numbers of one gate, one for each of `size` units, of a row that has all gates."""
    return row[number * size : (number + 1) * size]


@outline
def forget(rows, starts, first, sequences, zero):
    """Set the states to zero of sequences of which an episode begins in this time step.

    Args:
        rows: (sequences * size,) states, a row for each sequence.
        starts: (samples,), above 0 where an episode begins.
        first: the time step's first sample.
        sequences: how many.
        zero: 0 of the dtype.
    """
    never_inline()
    size = rows.size // sequences
    for b in range(sequences):
        if starts[first + b] > zero:
            fill(rows[b * size : (b + 1) * size], zero)


@outline
def cut_slopes(slopes, starts, first, sequences, zero):
    """Set the slopes of states to zero that go no further back; for arguments see `forget`."""
    never_inline()
    size = slopes.size // sequences
    for b in range(sequences):
        if starts[first + b] != zero:
            fill(slopes[b * size : (b + 1) * size], zero)


@functools.cache
def make_forward_loop(step_of: Callable[[type], Callable[..., None]]) -> Callable[..., Any]:
    """Return a function: dtype -> `forward(step, work)`, see `Kind`.

    Args:
        step_of: dtype -> `advance(step, work, t, state, next_state, sequences)`: it computes time
            step t of all sequences from `state` (sequences * step.option,), and writes
            `next_state`, of the same size, and the outputs.
    """

    @functools.cache
    def make_forward(dtype: type) -> Callable[..., None]:
        """Make `forward(step, work)` for a dtype."""
        advance, zero = step_of(dtype), dtype(0)

        @outline
        def forward(step, work):
            """Run the cell through all time steps, and leave all states in the saved units."""
            prefer_small_code()
            fill(outputs_of(step, work), zero)  # the padding behind the units stays so
            states, sequences = saved_of(step, work), num_sequences(work)
            size = sequences * step.option  # numbers of the states of one time step
            for t in range(work.steps):
                state = at_step(states, t, size)
                # The backward pass reads the zeros, too.
                forget(state, work.starts, t * sequences, sequences, zero)
                advance(step, work, t, state, at_step(states, t + 1, size), sequences)

        return forward

    return make_forward


@functools.cache
def make_backward_loop(
    step_of: Callable[[type], Callable[..., None]], end_of: Callable[[type], Callable[..., None]]
) -> Callable[..., Any]:
    """Return a function: dtype -> `backward(step, work)`, see `Kind`.

    Args:
        step_of: dtype -> `go_back(step, work, t, state, slopes, sequences)`: it goes back through
            time step t. `slopes` (sequences * step.option,), those of the state that the step has
            written, become those of `state`, which it has read; gates are overwritten with theirs.
        end_of: dtype -> `finish(step, work)`, which adds gradients, of all time steps at once.
    """

    @functools.cache
    def make_backward(dtype: type) -> Callable[..., None]:
        """Make `backward(step, work)` for a dtype."""
        go_back, finish, zero = step_of(dtype), end_of(dtype), dtype(0)

        @outline
        def backward(step, work):
            """Go back through all time steps, then add gradients."""
            prefer_small_code()
            states, sequences = saved_of(step, work), num_sequences(work)
            size = sequences * step.option  # numbers of the states of one time step
            slopes = at_step(states, work.steps, size)
            fill(slopes, zero)
            for t in range(work.steps - 1, -1, -1):
                go_back(step, work, t, at_step(states, t, size), slopes, sequences)
                cut_slopes(slopes, work.starts, t * sequences, sequences, zero)
            finish(step, work)

        return backward

    return make_backward


@functools.cache
def make_nothing(dtype: type) -> Callable[..., None]:
    """Make `finish(step, work)` of a cell without parameters."""
    return inline(lambda step, work: None)


# ---------------------------------------------------------------- minimal gated unit


@functools.cache
def make_min_gru(dtype: type) -> Callable[..., None]:
    """Make `advance` of a minimal gated unit, see `make_forward_loop`."""
    cell = specialise(min_gru, dtype)

    @inline
    def run_cell(x_z, x_h, h, next_state, out):
        """Compute all units; z takes the place of x_z."""
        for k in range(out.size):
            x_z[k], out[k] = cell(x_z[k], x_h[k], h[k])
        for k in range(out.size):
            next_state[k] = out[k]

    @inline_source
    def advance(step, work, t, state, next_state, sequences):
        """Compute time step t of all sequences, one after the other."""
        inputs, outputs = inputs_of(step, work), outputs_of(step, work)
        size, row = step.size_out, step.width_out
        for b in range(sequences):
            x = inputs[(t * sequences + b) * step.width_in :]
            begin, out = b * row, (t * sequences + b) * row
            h, h_next = state[begin : begin + size], next_state[begin : begin + size]
            run_cell(gate(x, 0, size), gate(x, 1, size), h, h_next, outputs[out : out + size])
            fill(next_state[begin + size : begin + row], dtype(0))

    return advance


@functools.cache
def make_min_gru_back(dtype: type) -> Callable[..., None]:
    """Make `go_back` of a minimal gated unit, see `make_backward_loop`."""
    cell_back = specialise(min_gru_back, dtype)

    @inline
    def run_back(z, x_h, h, slopes, by_output):
        """Go back through all units of one sequence, from h' to h.

        Args:
            z: the gate, as `run_cell` left it; overwritten with the slopes of x_z.
            x_h: overwritten with its slopes.
            h: memory before the time step.
            slopes: of the next memory h'; overwritten with those of h.
            by_output: slopes of the outputs, which are h' too.
        """
        for k in range(h.size):
            slope = slopes[k] + by_output[k]
            z[k], x_h[k], slopes[k] = cell_back(z[k], x_h[k], h[k], slope)

    @inline_source
    def go_back(step, work, t, state, slopes, sequences):
        """Go back through time step t of all sequences, one after the other.

        A row of states, slopes or outputs has `size` numbers and padding; one of inputs the gate z,
        then x_h.
        """
        inputs, by_outputs = inputs_of(step, work), output_slopes(step, work)
        size, row = step.size_out, step.width_out
        for b in range(sequences):
            x = inputs[(t * sequences + b) * step.width_in :]
            begin, out = b * row, (t * sequences + b) * row
            h, by_h = state[begin : begin + size], slopes[begin : begin + size]
            run_back(gate(x, 0, size), gate(x, 1, size), h, by_h, by_outputs[out : out + size])

    return go_back


# ---------------------------------------------------------------- products of the memory


@inline
def memory_weights(step, work):
    """Return the matrix of weights by which states are multiplied."""
    return Matrix(address(parameters_of(step, work)), 0, step.columns, 1)


@functools.cache
def make_finish(with_biases: bool, slopes_of: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function: dtype -> `finish(step, work)`, see `make_backward_loop`.

    Args:
        with_biases: whether biases are added to the product of states and weights.
        slopes_of: (step, work) -> the slopes of these products, (samples * step.columns,).
    """

    @functools.cache
    def make(dtype: type) -> Callable[..., None]:
        """Make `finish(step, work)` for a dtype."""
        zero, no_floor = dtype(0), dtype(-np.inf)

        @inline_source
        def finish(step, work):
            """Add states.T @ slopes to the weights' gradients, and slopes to those of biases."""
            if not wants_parameters(work):
                return
            gradients, slopes = gradients_of(step, work), slopes_of(step, work)
            count = step.rows * step.columns
            if work.mode & OVERWRITTEN:
                fill(gradients, zero)
            if with_biases:
                add_rows(gradients[count : count + step.columns], slopes)
            total = Matrix(address(gradients), 0, step.columns, 1)
            product(
                Matrix(address(saved_of(step, work)), 0, 1, step.option),
                Matrix(address(slopes), 0, step.columns, 1),
                total,
                total,
                (step.rows, work.samples, step.columns),
                no_floor,
            )

        return finish

    return make


@functools.cache
def make_add_product(dtype: type) -> Callable[..., None]:
    """Make `add_product(step, work, slopes, state_slopes, sequences)`."""
    no_floor = dtype(-np.inf)

    @inline_source
    def add_product(step, work, slopes, state_slopes, sequences):
        """Add slopes @ weights.T to `state_slopes`: from slopes of products to those of states."""
        weights = Matrix(address(work.network.copies), step.copies, step.rows, 1)
        out = Matrix(address(state_slopes), 0, step.option, 1)
        left = Matrix(address(slopes), 0, step.columns, 1)
        product(left, weights, out, out, (sequences, step.columns, step.rows), no_floor)

    return add_product


# ---------------------------------------------------------------- gated recurrent unit


@inline
def products_of(step, work):
    """Return the products of states and weights, (samples * columns,), saved behind the states.

    States are (T + 1) B rows, at most 2 T B.
    """
    begin = 2 * step.option * work.samples
    return saved_of(step, work)[begin : begin + step.columns * work.samples]


@functools.cache
def make_gru(dtype: type) -> Callable[..., None]:
    """Make `advance` of a gated recurrent unit, see `make_forward_loop`."""
    cell, no_floor = specialise(gru, dtype), dtype(-np.inf)

    @inline
    def run_cell(x_r, x_z, x_n, p_r, p_z, p_n, h, out):
        """Compute all units; r, z and n take the places of x_r, x_z and x_n."""
        for k in range(out.size):
            x_r[k], x_z[k], x_n[k], out[k] = cell(
                x_r[k], x_z[k], x_n[k], p_r[k], p_z[k], p_n[k], h[k]
            )

    @inline_source
    def advance(step, work, t, state, next_state, sequences):
        """Compute time step t of all sequences."""
        inputs, outputs, columns = inputs_of(step, work), outputs_of(step, work), step.columns
        size, row = step.size_out, step.width_out
        products = at_step(products_of(step, work), t, sequences * columns)
        biases = Matrix(address(parameters_of(step, work)), step.rows * columns, 0, 1)
        out = Matrix(address(products), 0, columns, 1)
        left = Matrix(address(state), 0, row, 1)
        product(
            left, memory_weights(step, work), biases, out, (sequences, step.rows, columns), no_floor
        )
        for b in range(sequences):
            x, p = inputs[(t * sequences + b) * columns :], products[b * columns :]
            begin = (t * sequences + b) * row
            run_cell(
                gate(x, 0, size), gate(x, 1, size), gate(x, 2, size),
                gate(p, 0, size), gate(p, 1, size), gate(p, 2, size),
                state[b * row : b * row + size], outputs[begin : begin + size],
            )  # fmt: skip
        copy(next_state, at_step(outputs, t, sequences * row))

    return advance


@functools.cache
def make_gru_back(dtype: type) -> Callable[..., None]:
    """Make `go_back` of a gated recurrent unit, see `make_backward_loop`."""
    cell_back, add_product = specialise(gru_back, dtype), make_add_product(dtype)

    @inline
    def run_back(r, z, n, p_n, h, slopes):
        """Overwrite r, z, n, p_n and `slopes`, of h', with slopes of x_r, x_z, x_n, p_n and h."""
        for k in range(h.size):
            r[k], z[k], n[k], p_n[k], slopes[k] = cell_back(
                r[k], z[k], n[k], p_n[k], h[k], slopes[k]
            )

    @inline_source
    def go_back(step, work, t, state, slopes, sequences):
        """Go back through time step t of all sequences."""
        inputs, by_outputs, columns = inputs_of(step, work), output_slopes(step, work), step.columns
        size, row = step.size_out, step.width_out
        products = at_step(products_of(step, work), t, sequences * columns)
        add(slopes, at_step(by_outputs, t, sequences * row))
        for b in range(sequences):
            x, p, begin = inputs[(t * sequences + b) * columns :], products[b * columns :], b * row
            run_back(
                gate(x, 0, size), gate(x, 1, size), gate(x, 2, size), gate(p, 2, size),
                state[begin : begin + size], slopes[begin : begin + size],
            )  # fmt: skip
            copy(p[: 2 * size], x[: 2 * size])  # x_r + p_r and x_z + p_z: equal slopes
        add_product(step, work, products, slopes, sequences)

    return go_back


# ---------------------------------------------------------------- long short-term memory


@functools.cache
def make_lstm(dtype: type) -> Callable[..., None]:
    """Make `advance` of an LSTM, see `make_forward_loop`; a row of the state has h, then c."""
    cell, zero, no_floor = specialise(lstm, dtype), dtype(0), dtype(-np.inf)

    @inline
    def run_cell(x_i, x_f, x_g, x_o, c, c_next, h_next):
        """Compute all units; i, f, g and o take the places of x_i, x_f, x_g and x_o."""
        for k in range(c.size):
            x_i[k], x_f[k], x_g[k], x_o[k], h_next[k], c_next[k] = cell(
                x_i[k], x_f[k], x_g[k], x_o[k], c[k]
            )

    @inline_source
    def advance(step, work, t, state, next_state, sequences):
        """Compute time step t of all sequences."""
        columns, size, row = step.columns, step.size_out, step.width_out
        inputs = at_step(inputs_of(step, work), t, sequences * columns)
        outputs = at_step(outputs_of(step, work), t, sequences * row)
        sums = Matrix(address(inputs), 0, columns, 1)
        left = Matrix(address(state), 0, step.option, 1)
        product(
            left, memory_weights(step, work), sums, sums, (sequences, step.rows, columns), no_floor
        )
        fill(next_state, zero)
        for b in range(sequences):
            x, h = inputs[b * columns :], b * step.option
            c = h + row
            run_cell(
                gate(x, 0, size), gate(x, 1, size), gate(x, 2, size), gate(x, 3, size),
                state[c : c + size], next_state[c : c + size], outputs[b * row : b * row + size],
            )  # fmt: skip
            copy(next_state[h : h + row], outputs[b * row : (b + 1) * row])

    return advance


@functools.cache
def make_lstm_back(dtype: type) -> Callable[..., None]:
    """Make `go_back` of an LSTM, see `make_backward_loop`; a row of the state has h, then c."""
    cell_back, add_product = specialise(lstm_back, dtype), make_add_product(dtype)
    zero = dtype(0)

    @inline
    def run_back(i, f, g, o, c, by_h, by_c, by_output):
        """Overwrite gates and `by_c`, of c', with the slopes of x_i, x_f, x_g, x_o and c.

        `by_h` and `by_output` are the slopes of h', as the next state and as the output.
        """
        for k in range(c.size):
            i[k], f[k], g[k], o[k], by_c[k] = cell_back(
                i[k], f[k], g[k], o[k], c[k], by_h[k] + by_output[k], by_c[k]
            )

    @inline_source
    def go_back(step, work, t, state, slopes, sequences):
        """Go back through time step t of all sequences."""
        columns, size, row = step.columns, step.size_out, step.width_out
        inputs = at_step(inputs_of(step, work), t, sequences * columns)
        by_outputs = at_step(output_slopes(step, work), t, sequences * row)
        for b in range(sequences):
            x, h = inputs[b * columns :], b * step.option
            c = h + row
            run_back(
                gate(x, 0, size), gate(x, 1, size), gate(x, 2, size), gate(x, 3, size),
                state[c : c + size], slopes[h : h + size], slopes[c : c + size],
                by_outputs[b * row : b * row + size],
            )  # fmt: skip
            fill(slopes[h : h + row], zero)  # of h, which acts by the products alone
        add_product(step, work, inputs, slopes, sequences)

    return go_back


# ---------------------------------------------------------------- kinds and layers

#: Steps that the unit with the longest memory remembers at first.
LONGEST = 64.0

MIN_GRU = Kind(
    "min_gru",
    make_forward_loop(make_min_gru),
    make_backward_loop(make_min_gru_back, make_nothing),
    overwrites_inputs=True,
)
GRU = Kind(
    "gru",
    make_forward_loop(make_gru),
    make_backward_loop(make_gru_back, make_finish(True, products_of)),
    overwrites_inputs=True,
)
LSTM = Kind(
    "lstm",
    make_forward_loop(make_lstm),
    make_backward_loop(make_lstm_back, make_finish(False, inputs_of)),
    overwrites_inputs=True,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Cell(Layer):
    """Part of a layer with memory behind the product of the inputs.

    Attributes:
        size: units.
        gates: how many gates a unit has: numbers of it in the product of the inputs.
        parts: numbers that a unit remembers.
        has_products: whether products of states and weights are saved apart from the inputs'.
    """

    size: int
    gates: ClassVar[int]
    parts: ClassVar[int] = 1
    has_products: ClassVar[bool] = False

    @property
    def option(self) -> int:  # type: ignore[override]
        """Return the numbers of a sequence's state, padded."""
        return self.parts * padded(self.size)

    @property
    def state(self) -> int:  # type: ignore[override]
        """Return the numbers that are remembered of a sequence."""
        return self.option

    def num_saved(self, sizes: Sizes) -> int:
        """Return how many saved units a sample has: two states, and products; see `Layer`.

        Two for each sample are enough for T + 1 time steps of states.
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

    def parameters(self, sizes: Sizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        return [self._weights(), vector("biases", self.gates * self.size, 0.0)]


class LstmCell(Cell):
    """The cell of `Lstm`."""

    kind, gates, parts = LSTM, 4, 2

    def parameters(self, sizes: Sizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        return [self._weights()]


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs(Dense):
    """The product of weights and inputs, with biases that let each unit remember for another time.

    Attributes:
        forgets: for each gate the sign of its biases: 1 where an open gate remembers, -1 where it
            forgets, 0 for none.
    """

    forgets: tuple[int, ...] = ()

    def parameters(self, sizes: Sizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        weights, biases = super().parameters(sizes)
        initial = functools.partial(_time_scales, self.size // len(self.forgets), self.forgets)
        return [weights, biases._replace(initial=initial)]


def _time_scales(size: int, signs: tuple[int, ...], _: np.random.Generator) -> Array:
    """Return biases of gates with which unit k remembers for some T_k steps, log(T_k - 1).

    T goes from 2 to `LONGEST` in equal ratios. Source: Tallec & Ollivier 2018, "Can recurrent
    neural networks warp time?", section 3, where T is drawn.
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
    _forgets: ClassVar[tuple[int, ...]]

    def __init__(self, size: int) -> None:
        self.size = check_count("size", size)
        self._graph = Inputs(self._cell.gates * size, 1.0, self._forgets) >> self._cell(size)

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

    _cell, _forgets = MinGruCell, (-1, 0)


class Gru(Memory):
    """Gated recurrent units (Cho et al. 2014), as `torch.nn.GRU` computes them.

    Args:
        size: units.
    """

    _cell, _forgets = GruCell, (0, 1, 0)


class Lstm(Memory):
    """Long short-term memory (Hochreiter & Schmidhuber 1997), as `torch.nn.LSTM` computes it.

    It remembers two numbers of a unit; its biases are one vector in the place of torch's two.

    Args:
        size: units.
    """

    _cell, _forgets = LstmCell, (-1, 1, 0, 0)
