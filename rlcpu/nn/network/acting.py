"""Networks as policies run them: for some environments at a time, by the passes of learning.

Environments lie along lanes, the numbers of a vector register: a *tile* has a row of `lanes`
numbers, one for each environment, for each number of an observation. A run transposes the tile to
units, a row for each environment, makes the forward pass of `rlcpu.nn.network.passes`, and
transposes the outputs to such a tile again. Inputs may lie in a row for each environment already.
Kernels know of a network one number, the address of its `Job`: a new network compiles nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compiler.compile import c_function, inline, kernel
from rlcpu.kernels.machine.matmul import Matrix, transpose
from rlcpu.kernels.machine.memory import address, call_at, part
from rlcpu.kernels.machine.structs import Array, Flag, Reference, Struct, Whole
from rlcpu.kernels.machine.vectors import width
from rlcpu.nn.layers.embedding import sum_ones
from rlcpu.nn.layers.kind import UNIT, padded
from rlcpu.nn.layers.rows import copy, fill
from rlcpu.nn.network.packed import Packed, read_place, read_state, write_state
from rlcpu.nn.network.passes import LinkedNetwork, Time, forward
from rlcpu.nn.network.plan import NetworkPlan, TensorPlace

#: Samples that pass a network at a time outside of rollouts.
BATCH = 1024


class Job(Struct):
    """A network that acts, for kernels."""

    run = Whole()  #: address of the compiled `run_tile`
    network = Reference(Packed.of(real=np.float32))  #: which has one input
    units = Whole()  #: numbers of a sample in the pass
    size = Whole()  #: numbers of an observation
    output_size = Whole()  #: numbers of all outputs together
    takes_ones = Flag()  #: whether a first layer may add up rows of weights, and multiply nothing
    state_size = Whole()  #: numbers that it remembers of an environment


class Tile(Struct):
    """Arrays that one run reads and writes."""

    job = Reference(Job)  #: the network
    #: (padded size * lanes,), a row for each number of an observation, and zeros; or
    #: (samples, row), a row for each environment.
    inputs = Array(np.float32)
    row = Whole()  #: numbers of a row of inputs, if each environment has one; else 0
    #: ((padded output_size + UNIT) * lanes,), a row for each output, of all outputs one after the
    #: other. They are transposed in squares of at most UNIT rows, the last of which may hang over.
    outputs = Array(np.float32)
    units = Array(np.float32)  #: (job.units * lanes,), scratch
    lanes = Whole()  #: 1, or a multiple of 16
    samples = Whole()  #: environments, which have the first lanes; other lanes are filler
    #: Whether inputs are zeros but for a few ones, and `inputs` is not read; the ones of lane i are
    #: columns[starts[i]:starts[i + 1]].
    few = Flag()
    starts = Array(np.int32)  #: (samples + 1,)
    columns = Array(np.int32)  #: (any,), which inputs are one
    #: (lanes, stride), what the network remembers of each environment, in the first state_size
    #: numbers of a row; overwritten.
    memory = Array(np.float32)
    stride = Whole()  #: numbers of a row of `memory`
    begins = Array(np.float32)  #: (lanes,), not 0 where an episode begins; not read without memory


#: (address) -> the view of the `Job` there, in kernels.
job_at = Job.at


@inline
def run_network(tile):
    """Run the network of a `Tile`, in a kernel."""
    call_at(tile.job.run, (tile,))


@inline
def to_rows(tile, units, begin, lanes, row_width):
    """Write the transpose of a tile of inputs to units: a row for each environment.

    `tile` and `units` are pointers, the first to `Tile.inputs`, with zeros behind the last number
    of a sample. From `begin` on, units get `lanes` rows (a multiple of 16) of `row_width` numbers.
    """
    block = width(units, 1)  # numbers of a register: so many lanes and numbers are a square
    for lane in range(0, lanes, block):
        for k in range(0, row_width, block):
            row = Matrix(units, begin + lane * row_width + k, row_width, 1)
            transpose(Matrix(tile, k * lanes + lane, lanes, 1), row)


@inline
def to_lanes(units, begin, tile, first, lanes, size, row_width):
    """Write the transpose of rows of units to a tile of outputs: a row for each output.

    Args:
        units: pointer; from `begin` on `lanes` rows of `row_width` numbers, a multiple of 16.
        begin: position of the first row.
        tile: pointer to `Tile.outputs`; its rows `first` to `first + size` are overwritten, and
            up to 15 rows behind these.
        first: row of the first output.
        lanes: 1, or a multiple of 16.
        size: number of outputs.
        row_width: see `units`.
    """
    if lanes == 1:
        for k in range(size):
            tile[first + k] = units[begin + k]
        return
    block = width(units, 1)
    for lane in range(0, lanes, block):
        for k in range(0, size, block):
            target = Matrix(tile, (first + k) * lanes + lane, lanes, 1)
            transpose(Matrix(units, begin + lane * row_width + k, row_width, 1), target)


@inline
def write_inputs(tile, network, units):
    """Write the inputs of a tile to units, or the outputs of the first layer if they are ones."""
    samples = tile.samples
    if tile.few:
        for i in range(samples):
            bounds = np.int64(tile.starts[i]), np.int64(tile.starts[i + 1])
            sum_ones(units, network, samples, i, bounds, tile.columns)
        return
    place = read_place(network.inputs[0])
    begin = place.offset * samples
    if tile.row == 0:
        to_rows(tile.inputs, units, begin, tile.lanes, place.width)
        return
    for i in range(samples):  # each environment has a row of inputs already
        first = begin + i * place.width
        copy(part(units, first, place.size), part(tile.inputs, i * tile.row, place.size))
        fill(part(units, first + place.size, place.width - place.size), np.float32(0))


@inline
def read_outputs(tile, network, units):
    """Write all outputs in units to the tile, one after the other."""
    row, lanes = 0, tile.lanes
    for k in range(network.outputs.shape[0]):
        place = read_place(network.outputs[k])
        begin = place.offset * tile.samples
        to_lanes(units, begin, tile.outputs, row, lanes, place.size, place.width)
        row += place.size


def run_tile(tile):
    """Run a network on the first `samples` lanes of a `Tile`, and write their outputs.

    All `lanes` are transposed, whatever `samples` is: rows behind the samples lie in room of later
    layers, which overwrite it, and outputs of such lanes are read by nobody.
    """
    job, samples = tile.job, tile.samples
    units, network, size = tile.units, job.network, job.state_size
    write_inputs(tile, network, units)
    if size > 0:
        for i in range(samples):
            write_state(network, units, samples, i, part(tile.memory, i * tile.stride, size))
    one_step = Time(steps=1, starts=tile.begins)
    forward(network, units, samples, is_summed=tile.few, time=one_step)
    if size > 0:
        for i in range(samples):
            after = samples + i  # row of the state after the one time step
            read_state(network, units, samples, after, part(tile.memory, i * tile.stride, size))
    read_outputs(tile, network, units)


@functools.cache
def _address() -> int:
    return c_function(run_tile, (Tile.view,))


@kernel
def _run_once(job, inputs, outputs, lanes, samples, memory, begins):
    """Run a network outside of a rollout; `job` is the address of its `Job`.

    Inputs are (samples, size) float32. Overwritten are `outputs` ((padded output_size + UNIT),
    lanes), see `Tile`, and `memory` (samples, state_size); `begins` is (samples,).
    """
    units = np.empty(job_at(job).units * lanes, np.float32)
    no_ones = np.zeros(1, np.int32)
    tile = Tile(
        job=job,
        inputs=address(inputs),
        row=inputs.shape[1],
        outputs=address(outputs),
        units=address(units),
        lanes=lanes,
        samples=samples,
        few=False,
        starts=address(no_ones),
        columns=address(no_ones),
        memory=address(memory),
        stride=memory.shape[1],
        begins=address(begins),
    )
    run_network(tile)
    units[0], no_ones[0] = np.float32(0), 0  # keeps them alive until now: an address does not


class Acting(LinkedNetwork):
    """A network that acts: its parameters as kernels read them, and a `Job` that says where.

    Args:
        plan: of a network with one input.
        parameters: (plan.flat,) float32, which are read anew by `refresh`.

    Attributes:
        place: address of the job, for kernels; the object keeps its memory alive.
        output_size: numbers of all outputs.
    """

    def __init__(self, plan: NetworkPlan, parameters: npt.NDArray[np.float32]) -> None:
        super().__init__(plan, parameters)
        outputs = [TensorPlace(*row) for row in plan.outputs.tolist()]
        self.output_size = sum(place.size for place in outputs)
        self._job = Job(
            run=_address(),
            network=self.packed,
            units=plan.units,
            size=TensorPlace(*plan.inputs[0].tolist()).size,
            output_size=self.output_size,
            takes_ones=plan.takes_ones,
            state_size=plan.state_size,
        )
        self.place = self._job.address

    def job_with(self, parameters: npt.NDArray[np.float32], copies: npt.NDArray[np.float32]) -> Job:
        """Return a `Job` of the same network whose parameters, and copies of them, lie elsewhere.

        It has the addresses of both: (plan.parameters,) and (plan.copies,) float32.
        """
        network = self.packed.replace(parameters=parameters, copies=copies)
        return self._job.replace(network=network)

    def outputs(
        self,
        inputs: npt.NDArray[np.float32],
        memory: npt.NDArray[np.float32] | None = None,
        begins: npt.NDArray[Any] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Return all outputs, one after the other, (n, output_size).

        Args:
            inputs: (n, size).
            memory: (n, state_size) float32 of a network with memory, overwritten with what it
                remembers afterwards; None only for a network without memory.
            begins: (n,), not 0 where an episode begins; None for nowhere.
        """
        if memory is None:
            memory = np.empty((len(inputs), 0), np.float32)
        flags = np.zeros(len(inputs), np.float32) if begins is None else begins.astype(np.float32)
        outputs = np.empty((len(inputs), self.output_size), np.float32)
        for begin in range(0, len(inputs), BATCH):
            count = min(BATCH, len(inputs) - begin)
            rows = slice(begin, begin + count)
            lanes = 1 if count == 1 else padded(count)  # outputs of one sample are not transposed
            row_inputs = np.ascontiguousarray(inputs[rows], np.float32)
            num_rows = padded(self.output_size) + UNIT  # see `Tile.outputs`
            output_tile = np.empty((num_rows, lanes), np.float32)
            _run_once(self.place, row_inputs, output_tile, lanes, count, memory[rows], flags[rows])
            outputs[rows] = output_tile[: self.output_size, :count].T
        return outputs
