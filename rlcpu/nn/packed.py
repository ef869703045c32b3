"""Networks as kernels have them: a table of instructions, packed parameters, transposed copies.

`units` are the numbers between layers of S samples in a pass (`rlcpu.nn.passes`): a `TensorPlace`
says where a tensor lies there, a row for each sample.
`Matrix(values, begin, row_stride, column_stride)` lies in memory; row stride 0 repeats one row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.compile import inline, outline, tuple_of
from rlcpu.kernels.matmul import Matrix, transpose
from rlcpu.kernels.memory import address
from rlcpu.kernels.vectors import width
from rlcpu.nn.layers.kind import UNIT
from rlcpu.nn.plan import TensorPlace


class Packed(NamedTuple):
    """One network: arrays of its `rlcpu.nn.plan.NetworkPlan`, and its numbers.

    Rows of inputs, outputs and states may be followed by others, of states by zeros.
    """

    table: Any
    inputs: Any
    outputs: Any
    states: Any
    parameters: Any  #: (plan.parameters,)
    copies: Any  #: (plan.copies,) transposed matrices, see `NetworkPlan.copied_views`


_read_place = tuple_of(TensorPlace, len(TensorPlace._fields))


@inline
def input_place(network, number):
    """Return the `TensorPlace` of an input of a network."""
    return _read_place(network.inputs[number])


@inline
def output_place(network, number):
    """Return the `TensorPlace` of an output of a network."""
    return _read_place(network.outputs[number])


@inline
def network_of(parameters, copies, layout, k):
    """Return network number k as views of the flat vectors of all networks.

    Its free parameters, which no input changes, such as logarithms of deviations, lie in front of
    the packed ones, `layout.free[k]` numbers with their padding, and are not among these.

    Args:
        parameters: of all networks, those of `rlcpu.nn.flat.Learnt`.
        copies: of all networks, those of `Learnt` or a worker's own.
        layout: see `rlcpu.nn.flat.LearntLayout`.
        k: number of the network.
    """
    begin, end = layout.begins[k] + layout.free[k], layout.begins[k + 1]
    return Packed(
        table=layout.tables[k, : layout.steps[k]],
        inputs=layout.inputs[k],
        outputs=layout.outputs[k],
        states=layout.states[k],
        parameters=parameters[begin:end],
        copies=copies[layout.copies_begins[k] : layout.copies_begins[k + 1]],
    )


# ---------------------------------------------------------------- states of layers with memory


@inline
def state_size_of(network):
    """Return how many numbers a network remembers of a sequence."""
    size = 0
    for k in range(network.states.shape[0]):
        size += _read_place(network.states[k]).width
    return size


@inline
def write_state(network, units, samples, row, state):
    """Write the state of a sequence to units, where each layer with memory reads its part.

    Args:
        network: a `Packed` with memory.
        units: of a pass over `samples` samples.
        samples: how many.
        row: number of the state: t * sequences + b is that of sequence b before time step t, or
            after all of them. A forward pass reads those before step 0.
        state: (state_size,), the parts of all layers one after the other.
    """
    begin = 0
    for k in range(network.states.shape[0]):
        place = _read_place(network.states[k])
        first = place.offset * samples + row * place.width
        for j in range(place.width):
            units[first + j] = state[begin + j]
        begin += place.width


@inline
def read_state(network, units, samples, row, state):
    """Overwrite `state` with a state in units; for arguments see `write_state`."""
    begin = 0
    for k in range(network.states.shape[0]):
        place = _read_place(network.states[k])
        first = place.offset * samples + row * place.width
        for j in range(place.width):
            state[begin + j] = units[first + j]
        begin += place.width


# ---------------------------------------------------------------- transposed copies


@inline
def _copy_squares(weights, copies, first, last, rows, columns):
    """Transpose rows [first, last) of weights into copies, a square of one register's width each.

    `weights` (rows, columns) and `copies` (columns, rows) are flat; columns, always, and rows here
    are multiples of `UNIT`, a multiple of a register's numbers, and so are `first` and `last`.
    """
    source, out = address(weights), address(copies)
    step = width(source, 1)
    for row in range(first, last, step):
        for column in range(0, columns, step):
            transpose(
                Matrix(source, row * columns + column, columns, 1),
                Matrix(out, column * rows + row, rows, 1),
            )


@outline
def copy_rows(step, network, first, last):
    """Transpose rows [first, last) of a `LayerStep`'s matrix into the copies, if it has a copy."""
    if step.copies < 0:
        return
    rows, columns = step.rows, step.columns
    weights, copies = network.parameters[step.parameters :], network.copies[step.copies :]
    if rows % UNIT == 0:
        _copy_squares(weights, copies, first, last, rows, columns)
        return
    padded_rows = (rows + UNIT - 1) // UNIT * UNIT  # numbers of a row of the copy
    for row in range(first, last):
        for column in range(columns):
            copies[column * padded_rows + row] = weights[row * columns + column]
