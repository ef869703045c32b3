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
from rlcpu.nn.network.packed import (
    copy_rows,
    input_place,
    output_place,
    packed_at,
    state_size_of,
    write_state,
)
from rlcpu.nn.network.passes import ADDED, BY_INPUTS, OVERWRITTEN, Time
from rlcpu.nn.network.scaling import scaled
from rlcpu.nn.tape.program import FROM_COLUMN, FROM_ROWS


def apply(chunk: Any, instruction: Any) -> None:
    """Gather a network's inputs from columns and rows, and write its outputs to rows."""
    application = chunk.frame.program.applications[instruction.index]
    network, units = network_at(chunk, application), units_of(chunk, application)
    for k in range(application.inputs):
        gather(chunk, chunk.frame.program.inputs[application.first + k], network, units)
    run_forward(chunk, instruction, application, network, units, is_summed=False)


def apply_to_ones(chunk: Any, instruction: Any) -> None:
    """Add up a network's weights for the ones of a column, and write its outputs to rows."""
    application = chunk.frame.program.applications[instruction.index]
    network, units = network_at(chunk, application), units_of(chunk, application)
    sum_all_ones(chunk, chunk.frame.program.inputs[application.first], network, units)
    run_forward(chunk, instruction, application, network, units, is_summed=True)


def run_forward(
    chunk: Any, instruction: Any, application: Any, network: Any, units: Any, is_summed: bool
) -> None:
    """Write a network's outputs to rows; with `is_summed`, units have those of its first layer."""
    prepare_memory(chunk, application, network, units)
    time = time_of(chunk, application)
    passes.forward(network, units, chunk.samples.size, is_summed, time)
    read_outputs(chunk, instruction.out, network, units)


def through_network(chunk: Any, instruction: Any) -> None:
    """Compute a network's gradients from the slopes of its outputs, and add those of its inputs."""
    application = chunk.frame.program.applications[instruction.index]
    network, units = network_backward_at(chunk, application), units_of(chunk, application)
    run_backward(chunk, instruction, application, network, units, is_summed=False)
    if application.by_inputs != 0:
        for k in range(application.inputs):
            operand = chunk.frame.program.inputs[application.first + k]
            if operand.kind == FROM_ROWS:
                add_input_slopes(chunk, operand, network, units)


def through_network_of_ones(chunk: Any, instruction: Any) -> None:
    """Compute a network's gradients from the slopes of its outputs; its inputs are constants."""
    application = chunk.frame.program.applications[instruction.index]
    network, units = network_backward_at(chunk, application), units_of(chunk, application)
    run_backward(chunk, instruction, application, network, units, is_summed=True)
    if application.by_parameters != 0:
        first = chunk.frame.program.inputs[application.first]
        add_all_slopes(chunk, first, network, units, gradients_of(chunk, application))


def run_backward(
    chunk: Any, instruction: Any, application: Any, network: Any, units: Any, is_summed: bool
) -> None:
    """Compute what `mode_of` says from the slopes of a network's outputs; see `run_forward`."""
    write_slopes(chunk, instruction.out, network, units)
    gradients, time = gradients_of(chunk, application), time_of(chunk, application)
    space, mode, count = chunk.frame.space, mode_of(chunk, application), chunk.samples.size
    scratch = part(space.network_slopes, chunk.worker * space.num_slopes, space.num_slopes)
    passes.backward(network, units, scratch, gradients, count, is_summed, time, mode)


# ---------------------------------------------------------------- an application


def network_at(chunk: Any, application: Any) -> Any:
    """Return the network of an application, as forward passes have it."""
    return packed_at(chunk.frame.space.networks[application.network], chunk.units)


def network_backward_at(chunk: Any, application: Any) -> Any:
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


def units_of(chunk: Any, application: Any) -> Any:
    """Return the units of an application: its own, or those that all without slopes share.

    Places are those of one sample, and a chunk has `settings.chunk` samples at most.
    """
    place = application.units if application.units >= 0 else chunk.frame.program.saved_units
    return shifted(chunk.units, place * chunk.frame.settings.chunk)


def gradients_of(chunk: Any, application: Any) -> Any:
    """Return the gradients of an application's network, without its free parameters in front."""
    layout, number = chunk.frame.layout, application.network
    return shifted(chunk.gradients, layout.begins[number] + layout.free[number])


def mode_of(chunk: Any, application: Any) -> int:
    """Return what a backward pass computes, a mode of `rlcpu.nn.network.passes`."""
    mode = 0
    if application.by_parameters != 0:
        mode = OVERWRITTEN if application.is_first != 0 and chunk.is_first else ADDED
    return mode | BY_INPUTS if application.by_inputs != 0 else mode


def read_outputs(chunk: Any, out: int, network: Any, units: Any) -> None:
    """Copy a network's outputs in units to rows, from row `out` on."""
    for k in range(network.outputs.shape[0]):
        place = output_place(network, k)
        outputs = shifted(units, place.offset * chunk.samples.size)
        for j in range(place.size):
            from_units(chunk.rows[out + j], outputs, place.width, j)
        out += place.size


def write_slopes(chunk: Any, out: int, network: Any, units: Any) -> None:
    """Overwrite a network's outputs in units with their slopes, those from row `out` on."""
    count = chunk.samples.size
    for k in range(network.outputs.shape[0]):
        place = output_place(network, k)
        outputs = part(units, place.offset * count, place.width * count)
        fill(outputs, 0.0)
        for j in range(place.size):
            to_units(outputs, place.width, j, chunk.slopes[out + j])
        out += place.size


# ---------------------------------------------------------------- memory


@inline
def time_of(chunk, application):
    """Return the order of the samples in sequences, and where episodes begin, as a `Time`.

    Without memory `starts` is -1, and any row will do: nobody reads it.
    """
    return Time(chunk.frame.settings.steps, chunk.rows[max(application.starts, 0)])


def prepare_memory(chunk: Any, application: Any, network: Any, units: Any) -> None:
    """Write the state of each sequence before its first time step; nothing without memory.

    The batch has states (sequences, size) for each network with memory. Its sequences lie in groups
    of `abreast`, a group step after step: sample (group * steps + step) * abreast + k is of
    sequence group * abreast + k.
    """
    if application.starts < 0:  # a network without memory
        return
    batch, count, size = chunk.frame.batch, chunk.samples.size, state_size_of(network)
    steps, abreast = chunk.frame.settings.steps, chunk.frame.settings.abreast
    states = floats_at(batch.states[application.network], batch.size // steps * size)
    for b in range(count // steps):
        first_sample = chunk.samples[b]  # of sequence b of the chunk
        sequence = first_sample // (abreast * steps) * abreast + first_sample % abreast
        write_state(network, units, count, b, part(states, sequence * size, size))


# ---------------------------------------------------------------- inputs


def gather(chunk: Any, operand: Any, network: Any, units: Any) -> None:
    """Write an operand, numbers of a column or of rows, to an input of a network in units."""
    place = input_place(network, operand.input)
    count, begin, width = chunk.samples.size, operand.begin, place.width
    inputs = part(units, place.offset * count, width * count)
    if begin == 0:  # the first operand of the input, which clears the padding
        fill(inputs, 0.0)
    if operand.kind == FROM_COLUMN:
        write_column(inputs, begin, width, chunk, chunk.frame.batch.columns[operand.source])
    else:
        for j in range(operand.width):
            to_units(inputs, width, begin + j, chunk.rows[operand.source + j])


def add_input_slopes(chunk: Any, operand: Any, network: Any, units: Any) -> None:
    """Add the slopes of a network's input in units to those of the rows that an operand read."""
    place = input_place(network, operand.input)
    inputs = shifted(units, place.offset * chunk.samples.size)
    for j in range(operand.width):
        slopes = chunk.slopes[operand.source + j]
        add_from_units(slopes, inputs, place.width, operand.begin + j)


def write_column(units: Any, begin: int, width: int, chunk: Any, column: Any) -> None:
    """Write a column's numbers of the chunk's samples to units, scaled if it has a mean.

    Args:
        units: rows of `width` numbers, one for each sample.
        begin: position in a row from which numbers are written.
        width: numbers of a row.
        chunk: of which samples.
        column: record of dtype `COLUMN_RECORD`.
    """
    samples, size = chunk.samples, column.width
    values = floats_at(column.values, chunk.frame.batch.size * size)
    mean, scale, limit = values, values, np.float32(0)  # of plain numbers they are not read
    if column.mean != 0:
        mean, scale = floats_at(column.mean, size), floats_at(column.scale, size)
        limit = floats_at(column.limit, 1)[0]
    for i in range(samples.size):
        first, out = samples[i] * size, i * width + begin
        if column.mean == 0:
            copy(part(units, out, size), part(values, first, size))
        else:
            scale_row(part(units, out, size), part(values, first, size), mean, scale, limit)


@inline
def scale_row(out, row, mean, scale, limit):
    """Write the numbers of a row, scaled."""
    for k in range(out.size):
        out[k] = scaled(row[k], mean[k], scale[k], limit)


def to_units(units: Any, width: int, place: int, row: Any) -> None:
    """Copy a row to column `place` of units, whose rows have `width` numbers."""
    for i in range(row.size):
        units[i * width + place] = row[i]


def from_units(row: Any, units: Any, width: int, place: int) -> None:
    """Copy column `place` of units to a row."""
    for i in range(row.size):
        row[i] = units[i * width + place]


def add_from_units(row: Any, units: Any, width: int, place: int) -> None:
    """Add column `place` of units to a row."""
    for i in range(row.size):
        row[i] += units[i * width + place]


# ---------------------------------------------------------------- ones among zeros


@inline
def ones_of(column, count):
    """Return a column's `Ones.starts` (count + 1,) and `Ones.columns`, for `count` samples."""
    starts = array_at(column.values, (count + 1,), np.int64(0))
    return starts, array_at(column.ones, (starts[count],), np.int32(0))


def sum_all_ones(chunk: Any, operand: Any, network: Any, units: Any) -> None:
    """Write the outputs of a network's first layer, whose inputs are a column of ones."""
    batch, count = chunk.frame.batch, chunk.samples.size
    starts, columns = ones_of(batch.columns[operand.source], batch.size)
    for i in range(count):
        sample = chunk.samples[i]
        sum_ones(units, network, count, i, (starts[sample], starts[sample + 1]), columns)


def add_all_slopes(chunk: Any, operand: Any, network: Any, units: Any, gradients: Any) -> None:
    """Add the gradients of the first layer's weights, whose inputs are a column of ones."""
    batch, count = chunk.frame.batch, chunk.samples.size
    starts, columns = ones_of(batch.columns[operand.source], batch.size)
    for i in range(count):
        bounds = starts[chunk.samples[i]], starts[chunk.samples[i] + 1]
        add_slopes(gradients, units, network, count, i, bounds, columns)
