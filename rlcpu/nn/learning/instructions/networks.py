"""The instructions that apply a network to some samples.

A network whose input is a column of `Ones` has an instruction of its own, "network_of_ones": it
gets the first layer's outputs in the place of the input.

An instruction runs for a `chunk` of samples (`rlcpu.nn.learning.instructions.chunk.Chunk`). Outside
of networks, `chunk.rows[k]` has number k of each sample, and `chunk.slopes[k]` the derivatives of
the loss with respect to it; a network works in `units`, where a sample is a row
(`rlcpu.nn.network.passes`). `application` is one use of a network, `operand` some numbers of a
sample that go into it (see `rlcpu.nn.tape.program`). Of an application `inputs` counts the
operands, and `first` is the number of the first; `by_parameters` and `by_inputs` tell whether
derivatives by either are wanted. A `place` of an input or output is a `TensorPlace`: for S samples
it begins in units at S * offset, and has rows of `width` numbers, of which the first `size` count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.memory import array_at, part, shifted
from rlcpu.nn.layers.embedding import add_slopes, sum_ones
from rlcpu.nn.layers.rows import copy, fill
from rlcpu.nn.learning.instructions.chunk import floats_at
from rlcpu.nn.network import passes
from rlcpu.nn.network.packed import copy_rows, packed_at, read_place, write_state
from rlcpu.nn.network.passes import ADDED, BY_INPUTS, OVERWRITTEN, Time
from rlcpu.nn.network.scaling import scaled
from rlcpu.nn.tape.program import FROM_COLUMN, FROM_ROWS

# ---------------------------------------------------------------- forward


def apply(chunk: Any, instruction: Any) -> None:
    """Gather a network's inputs from columns and rows, and write its outputs to rows."""
    program, space = chunk.frame.program, chunk.frame.space
    application = program.applications[instruction.index]
    network = packed_at(space.networks[application.network], chunk.units)
    units = units_of(chunk, application)
    for k in range(application.inputs):
        gather(chunk, program.inputs[application.first + k], network, units)
    run_forward(chunk, instruction.out, application, network, units, is_summed=False)


def apply_to_ones(chunk: Any, instruction: Any) -> None:
    """Add up a network's weights for the ones of a column, and write its outputs to rows."""
    program, space = chunk.frame.program, chunk.frame.space
    application = program.applications[instruction.index]
    network = packed_at(space.networks[application.network], chunk.units)
    units, count = units_of(chunk, application), chunk.samples.size
    starts, columns = ones_of(chunk, program.inputs[application.first])
    for i in range(count):
        sample = chunk.samples[i]
        sum_ones(units, network, count, i, (starts[sample], starts[sample + 1]), columns)
    run_forward(chunk, instruction.out, application, network, units, is_summed=True)


def units_of(chunk: Any, application: Any) -> Any:
    """Return the units of an application: its own, or those that all without slopes share.

    Places are those of one sample, and a chunk has `settings.chunk` samples at most.
    """
    place = application.units if application.units >= 0 else chunk.frame.program.saved_units
    return shifted(chunk.units, place * chunk.frame.settings.chunk)


def gather(chunk: Any, operand: Any, network: Any, units: Any) -> None:
    """Write an operand, numbers of a column or of rows, to an input of a network in units.

    Numbers of a column are scaled if it has a mean.
    """
    batch, samples = chunk.frame.batch, chunk.samples
    place = read_place(network.inputs[operand.input])
    count, begin, width = samples.size, operand.begin, place.width
    inputs = part(units, place.offset * count, width * count)
    if begin == 0:  # the first operand of the input, which clears the padding
        fill(inputs, 0.0)
    if operand.kind != FROM_COLUMN:
        for j in range(operand.width):
            to_units(inputs, width, begin + j, chunk.rows[operand.source + j])
        return
    column = batch.columns[operand.source]
    size = column.width
    values = floats_at(column.values, batch.size * size)
    for i in range(count):
        copy(part(inputs, i * width + begin, size), part(values, samples[i] * size, size))
    if column.mean != 0:
        mean, scale = floats_at(column.mean, size), floats_at(column.scale, size)
        limit = floats_at(column.limit, 1)[0]
        for i in range(count):
            row = part(inputs, i * width + begin, size)
            for k in range(size):
                row[k] = scaled(row[k], mean[k], scale[k], limit)


def to_units(units: Any, width: int, place: int, row: Any) -> None:
    """Copy a row to column `place` of units, whose rows have `width` numbers."""
    for i in range(row.size):
        units[i * width + place] = row[i]


def run_forward(
    chunk: Any, out: int, application: Any, network: Any, units: Any, is_summed: bool
) -> None:
    """Write a network's outputs to rows, from row `out` on.

    With `is_summed` its units have the outputs of its first layer. A network with memory begins
    with the states (sequences, size) that the batch has for it. The batch's sequences lie in groups
    of `abreast`, a group step after step: sample (group * steps + step) * abreast + k is of
    sequence group * abreast + k.
    """
    batch, count = chunk.frame.batch, chunk.samples.size
    if application.starts >= 0:
        steps, abreast, size = chunk.frame.settings.steps, chunk.frame.settings.abreast, 0
        for k in range(network.states.shape[0]):
            size += read_place(network.states[k]).width
        states = floats_at(batch.states[application.network], batch.size // steps * size)
        for b in range(count // steps):
            first_sample = chunk.samples[b]  # of sequence b of the chunk
            sequence = first_sample // (abreast * steps) * abreast + first_sample % abreast
            write_state(network, units, count, b, part(states, sequence * size, size))
    passes.forward(network, units, count, is_summed, time_of(chunk, application))
    for k in range(network.outputs.shape[0]):
        place = read_place(network.outputs[k])
        outputs = shifted(units, place.offset * count)
        for j in range(place.size):
            row = chunk.rows[out + j]
            for i in range(row.size):
                row[i] = outputs[i * place.width + j]
        out += place.size


@inline
def time_of(chunk, application):
    """Return the order of the samples in sequences, and where episodes begin, as a `Time`.

    Without memory `starts` is -1, and any row will do: nobody reads it.
    """
    return Time(chunk.frame.settings.steps, chunk.rows[max(application.starts, 0)])


# ---------------------------------------------------------------- backward


def through_network(chunk: Any, instruction: Any) -> None:
    """Compute a network's gradients from the slopes of its outputs, and add those of its inputs."""
    program, count = chunk.frame.program, chunk.samples.size
    application = program.applications[instruction.index]
    network, units = worker_network_of(chunk, application), units_of(chunk, application)
    run_backward(chunk, instruction.out, application, network, units, is_summed=False)
    if application.by_inputs == 0:
        return
    for k in range(application.inputs):
        operand = program.inputs[application.first + k]
        if operand.kind != FROM_ROWS:
            continue
        place = read_place(network.inputs[operand.input])
        inputs = shifted(units, place.offset * count)
        for j in range(operand.width):
            slopes = chunk.slopes[operand.source + j]
            for i in range(slopes.size):
                slopes[i] += inputs[i * place.width + operand.begin + j]


def through_network_of_ones(chunk: Any, instruction: Any) -> None:
    """Compute a network's gradients from the slopes of its outputs; its inputs are constants."""
    program, count = chunk.frame.program, chunk.samples.size
    application = program.applications[instruction.index]
    network, units = worker_network_of(chunk, application), units_of(chunk, application)
    run_backward(chunk, instruction.out, application, network, units, is_summed=True)
    if application.by_parameters != 0:
        gradients = gradients_of(chunk, application)
        starts, columns = ones_of(chunk, program.inputs[application.first])
        for i in range(count):
            bounds = starts[chunk.samples[i]], starts[chunk.samples[i] + 1]
            add_slopes(gradients, units, network, count, i, bounds, columns)


def worker_network_of(chunk: Any, application: Any) -> Any:
    """Return the network of an application, with transposed weights of the worker's own.

    They are made anew where the network was stepped since the worker made them: `stepped` counts
    its steps, `copied` those up to then.
    """
    space, worker, k = chunk.frame.space, chunk.worker, application.network
    place = space.worker_networks[worker * space.num_networks + k]
    network = packed_at(place, chunk.units)
    if space.copied[worker, k] != space.stepped[k]:
        for step in network.table:
            if step.is_transposed == 0:  # copies of the others are read by forward passes alone
                copy_rows(step, network, first=0, last=step.rows)
        space.copied[worker, k] = space.stepped[k]
    return network


def gradients_of(chunk: Any, application: Any) -> Any:
    """Return the gradients of an application's network, without its free parameters in front."""
    layout, number = chunk.frame.layout, application.network
    return shifted(chunk.gradients, layout.begins[number] + layout.free[number])


def run_backward(
    chunk: Any, out: int, application: Any, network: Any, units: Any, is_summed: bool
) -> None:
    """Compute what is wanted from the slopes of a network's outputs, those from row `out` on.

    The slopes overwrite the outputs in units; for `is_summed` see `run_forward`.
    """
    space, count = chunk.frame.space, chunk.samples.size
    for k in range(network.outputs.shape[0]):
        place = read_place(network.outputs[k])
        outputs = part(units, place.offset * count, place.width * count)
        fill(outputs, 0.0)
        for j in range(place.size):
            to_units(outputs, place.width, j, chunk.slopes[out + j])
        out += place.size
    mode = BY_INPUTS if application.by_inputs != 0 else 0
    if application.by_parameters != 0:
        overwrites = application.is_first != 0 and chunk.is_first
        mode |= OVERWRITTEN if overwrites else ADDED
    scratch = part(space.network_slopes, chunk.worker * space.num_slopes, space.num_slopes)
    gradients, time = gradients_of(chunk, application), time_of(chunk, application)
    passes.backward(network, units, scratch, gradients, count, is_summed, time, mode)


# ---------------------------------------------------------------- ones among zeros


def ones_of(chunk: Any, operand: Any) -> Any:
    """Return `Ones.starts` (samples + 1,) and `Ones.columns` of an operand's column."""
    batch = chunk.frame.batch
    column = batch.columns[operand.source]
    starts = array_at(column.values, (batch.size + 1,), np.int64(0))
    return starts, array_at(column.ones, (starts[batch.size],), np.int32(0))
