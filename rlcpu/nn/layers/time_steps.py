"""Time steps of layers with memory: one loop for all kinds of cells, and products of their states.

Samples are sequences: T time steps of B sequences, time step after time step, each B rows. The
memory of a sequence, its *state*, has `step.option` numbers: h, of which weights make products, and
behind it what else a cell remembers. States lie in the layer's saved units, B rows for each time
step, and B more behind the last:

    rows t    what the cell reads in time step t: zeros where an episode begins (`work.starts` above
              0), else what it has written in the step before; the caller writes rows 0
    rows T    what it has written in the last time step

The backward pass goes from the last time step to the first, and no further where an episode begins
or `starts` is below 0; rows T then hold the slopes of the states, in the end those of rows 0.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` = T B samples (`rlcpu.nn.network.passes.Work`). The
weights of states are a matrix (`step.rows`, `step.columns`), by the padded numbers of h and of all
gates; biases, if there are any, lie behind them. Slopes are derivatives of the loss with respect to
a layer's inputs, outputs or states, gradients those with respect to its parameters. `product(left,
right, start, out, shape, floor)` writes max(left @ right + start, floor) to `out`, here without a
floor; `shape` is (rows, depth, columns).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlcpu.kernels.compiler.compile import (
    inline_source,
    never_inline,
    outline,
    prefer_small_code,
)
from rlcpu.kernels.machine.matmul import product
from rlcpu.kernels.machine.memory import shifted
from rlcpu.nn.layers.kind import (
    BY_PARAMETERS,
    OVERWRITTEN,
    Kind,
    gradients_of,
    outputs_of,
    parameters_of,
    saved_of,
)
from rlcpu.nn.layers.rows import add_rows, as_matrix, fill, row_at, transposed

# ---------------------------------------------------------------- the loop


@inline_source
def num_sequences(work):
    """Return B, the sequences of a pass: rows of one time step."""
    return work.samples // work.steps


@outline
def forget(states, starts):
    """Set the states (B * step.option,) to zero of sequences of which an episode begins.

    `starts` (B,) are the time step's, above 0 for these, see `rlcpu.nn.network.passes.Time`.
    """
    never_inline()
    size, zero = states.size // starts.size, states.dtype.type(0)
    for b in range(starts.size):
        if starts[b] > zero:
            fill(row_at(states, b, size), zero)


@outline
def cut_slopes(slopes, starts):
    """Set the slopes of states (B * step.option,) to zero where they go no further back.

    That is where `starts` (B,), the time step's, are not 0.
    """
    never_inline()
    size, zero = slopes.size // starts.size, slopes.dtype.type(0)
    for b in range(starts.size):
        if starts[b] != zero:
            fill(row_at(slopes, b, size), zero)


def kind_of_cell(
    name: str,
    advance: Callable[..., None],
    go_back: Callable[..., None],
    finish: Callable[..., None],
) -> Kind:
    """Return the kind of a cell.

    Args:
        name: of its arrays of parameters.
        advance: (step, work, t, state, next_state): computes time step t of all sequences from
            `state` (B * step.option,), and writes `next_state`, of the same size, and the outputs;
            their padding is 0 already.
        go_back: (step, work, t, state, slopes): goes back through time step t. `slopes`
            (B * step.option,), those of the state that the step has written, become those of
            `state`, which it has read; gates are overwritten with theirs.
        finish: (step, work): adds gradients, of all time steps at once.
    """

    def forward(step: Any, work: Any) -> None:
        """Run the cell through all time steps, and leave all states in the saved units."""
        prefer_small_code()
        fill(outputs_of(step, work), 0.0)  # the padding behind the units stays so
        states, sequences = saved_of(step, work), num_sequences(work)
        size = sequences * step.option  # numbers of the states of one time step
        for t in range(work.steps):
            state = row_at(states, t, size)
            forget(state, row_at(work.starts, t, sequences))  # the backward pass reads zeros too
            advance(step, work, t, state, row_at(states, t + 1, size))

    def backward(step: Any, work: Any) -> None:
        """Go back through all time steps, then add gradients."""
        prefer_small_code()
        states, sequences = saved_of(step, work), num_sequences(work)
        size = sequences * step.option  # numbers of the states of one time step
        slopes = row_at(states, work.steps, size)  # rows T: no step reads these states
        fill(slopes, 0.0)
        for t in range(work.steps - 1, -1, -1):
            go_back(step, work, t, row_at(states, t, size), slopes)
            cut_slopes(slopes, row_at(work.starts, t, sequences))
        finish(step, work)

    return Kind(name, forward, backward, overwrites_inputs=True)


# ---------------------------------------------------------------- products of states and weights


def add_gradients(step, work, slopes, has_biases):
    """Add states.T @ slopes to the weights' gradients, and slopes to those of biases.

    `slopes` (samples * step.columns,) are those of the products of states and weights;
    `has_biases` says whether biases were added to the products.
    """
    if work.mode & BY_PARAMETERS == 0:
        return
    gradients = gradients_of(step, work)
    if work.mode & OVERWRITTEN:
        fill(gradients, 0.0)
    if has_biases:
        add_rows(gradients[step.rows * step.columns :], slopes)
    states = transposed(saved_of(step, work), step.option)  # rows 0 to T - 1 are factors
    total = as_matrix(gradients, step.columns)  # which the product starts from
    shape = step.rows, work.samples, step.columns
    product(states, as_matrix(slopes, step.columns), total, total, shape, -math.inf)


def multiply_states(step, work, state, start, products):
    """Write states @ weights + start, a matrix, to `products`, (B * step.columns,).

    `state` (B * step.option,) are those of one time step.
    """
    weights = as_matrix(parameters_of(step, work), step.columns)
    out = as_matrix(products, step.columns)
    shape = num_sequences(work), step.rows, step.columns
    product(as_matrix(state, step.option), weights, start, out, shape, -math.inf)


def add_state_slopes(step, work, slopes, state_slopes):
    """Add slopes @ weights.T to `state_slopes`: from slopes of products to those of states.

    Of one time step: `slopes` (B * step.columns,) are read, `state_slopes` (B * step.option,)
    added to, of each state the numbers of h.
    """
    weights = as_matrix(shifted(work.network.copies, step.copies), step.rows)  # transposed
    out = as_matrix(state_slopes, step.option)
    shape = num_sequences(work), step.columns, step.rows
    product(as_matrix(slopes, step.columns), weights, out, out, shape, -math.inf)
