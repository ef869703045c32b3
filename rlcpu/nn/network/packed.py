"""Networks as kernels have them: a table of instructions, packed parameters, transposed copies.

`units` are the numbers between layers of S samples in a pass (`rlcpu.nn.network.passes`): a
`TensorPlace` says where a tensor lies there, a row for each sample. `Matrix(values, begin,
row_stride, column_stride)` lies in memory; row stride 0 repeats one row.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype

from rlcpu.kernels.compiler.compile import inline, outline, tuple_of
from rlcpu.kernels.machine.matmul import Matrix, transpose
from rlcpu.kernels.machine.memory import shifted
from rlcpu.kernels.machine.structs import Array, Struct, Whole
from rlcpu.kernels.machine.vectors import I64, width
from rlcpu.nn.layers.kind import STEP, UNIT
from rlcpu.nn.network.plan import TensorPlace

#: Numbers of a row of a plan's inputs, outputs and states.
FIELDS = len(TensorPlace._fields)


class Packed(Struct):
    """One network: arrays of its `rlcpu.nn.network.plan.NetworkPlan`, and its numbers."""

    num_steps = Whole()
    table = Array(STEP, "num_steps")  #: of the plan, linked: see `rlcpu.nn.network.passes`
    num_inputs = Whole()
    inputs = Array(np.int64, "num_inputs", FIELDS)  #: their places
    num_outputs = Whole()
    outputs = Array(np.int64, "num_outputs", FIELDS)
    num_states = Whole()
    states = Array(np.int64, "num_states", FIELDS)
    parameters = Array("real")  #: (plan.parameters,)
    copies = Array("real")  #: (plan.copies,) transposed matrices, see `NetworkPlan.copied_views`


@intrinsic
def packed_at(typing, address, like):
    """Return the `Packed` at an address, of the dtype of `like`, an array or a pointer."""
    view = Packed.of(real=as_dtype(like.dtype)).view

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], I64.as_pointer())

    return view(types.int64, like), generate


#: (row of `inputs`, `outputs` or `states`) -> its `TensorPlace`, in kernels.
read_place = tuple_of(TensorPlace, FIELDS)

# ---------------------------------------------------------------- states of layers with memory


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
        place = read_place(network.states[k])
        first = place.offset * samples + row * place.width
        for j in range(place.width):
            units[first + j] = state[begin + j]
        begin += place.width


@inline
def read_state(network, units, samples, row, state):
    """Overwrite `state` with a state in units; for arguments see `write_state`."""
    begin = 0
    for k in range(network.states.shape[0]):
        place = read_place(network.states[k])
        first = place.offset * samples + row * place.width
        for j in range(place.width):
            state[begin + j] = units[first + j]
        begin += place.width


# ---------------------------------------------------------------- transposed copies


@outline
def copy_rows(step, network, first, last):
    """Transpose rows [first, last) of a `LayerStep`'s matrix into the copies, if it has a copy.

    Where all rows are a multiple of `UNIT`, a multiple of a register's numbers, as columns always
    are and `first` and `last` then too, it moves squares of one register's width.
    """
    if step.copies < 0:
        return
    rows, columns = step.rows, step.columns
    weights = shifted(network.parameters, step.parameters)
    copies = shifted(network.copies, step.copies)
    if rows % UNIT == 0:
        square = width(weights, 1)
        for row in range(first, last, square):
            for column in range(0, columns, square):
                transpose(
                    Matrix(weights, row * columns + column, columns, 1),
                    Matrix(copies, column * rows + row, rows, 1),
                )
        return
    padded_rows = (rows + UNIT - 1) // UNIT * UNIT  # numbers of a row of the copy
    for row in range(first, last):
        for column in range(columns):
            copies[column * padded_rows + row] = weights[row * columns + column]
