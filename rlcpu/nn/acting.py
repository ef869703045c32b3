"""Networks as policies run them: for some environments at a time, by the passes of learning.

Environments lie along lanes, the numbers of a vector register: a *tile* has a row of `lanes`
numbers, one for each environment, for each number of an observation. A run transposes the tile to
units, a row for each environment, makes the forward pass of `rlcpu.nn.passes`, and transposes the
outputs to such a tile again. Inputs may lie in a row for each environment already. Kernels know of
a network one number, the address of its `Job`: a new network compiles nothing.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import carray, from_dtype, types

from rlcpu.kernels.calls import function_of, kind_of, make_call, make_view
from rlcpu.kernels.compile import inline, kernel
from rlcpu.kernels.matmul import Matrix, transpose
from rlcpu.kernels.memory import address, aligned_zeros, shifted
from rlcpu.kernels.vectors import width
from rlcpu.nn.layers.embedding import sum_ones
from rlcpu.nn.layers.kind import STEP, UNIT, padded
from rlcpu.nn.packed import Packed, input_place, output_place, read_state, write_state
from rlcpu.nn.passes import Time, forward, link
from rlcpu.nn.plan import NetworkPlan, TensorPlace

Array = npt.NDArray[Any]
#: Numbers of a row of a plan's inputs, outputs and states.
FIELDS = len(TensorPlace._fields)
#: Samples that pass a network at a time outside of rollouts.
BATCH = 1024


class Job(NamedTuple):
    """A network for kernels, in memory that Python writes as eight bytes for each field.

    Attributes:
        run: address of the compiled `run_tile`.
        table, steps, inputs, outputs, num_outputs, states, num_states: addresses and lengths of
            arrays of its `NetworkPlan`; the table is linked, see `rlcpu.nn.passes`.
        parameters, num_parameters, copies, num_copies: those of its `Packed`.
        units: numbers of a sample in the pass.
        size: numbers of an observation.
        output_size: numbers of all outputs together.
        takes_ones: 1 where a first layer may add up rows of weights in the place of a product.
        state_size: numbers that it remembers of an environment.
    """

    run: Any
    table: Any
    steps: Any
    inputs: Any
    outputs: Any
    num_outputs: Any
    states: Any
    num_states: Any
    parameters: Any
    num_parameters: Any
    copies: Any
    num_copies: Any
    units: Any
    size: Any
    output_size: Any
    takes_ones: Any
    state_size: Any


class Tile(NamedTuple):
    """Arrays that one run reads and writes.

    Attributes:
        job: address of the network's `Job`.
        inputs: (padded size * lanes,) float32, a row for each number of an observation, and zeros;
            or (samples, row), one for each environment.
        row: numbers of a row of inputs that have one for each environment; else 0.
        outputs: ((padded output_size + UNIT) * lanes,) float32, a row for each output, of all
            outputs one after the other. Outputs are transposed in squares of at most UNIT rows, the
            last of which may hang over.
        units: (job.units * lanes,) float32, scratch.
        lanes: 1, or a multiple of 16.
        samples: environments, which have the first lanes; other lanes are filler.
        few: whether inputs are zeros but for a few ones, and `inputs` is not read; the ones of lane
            i are columns[starts[i]:starts[i + 1]].
        starts, columns: int32.
        memory: (lanes, stride) float32, what the network remembers of each environment, in the
            first state_size numbers of a row; overwritten.
        stride: numbers of a row of `memory`.
        begins: (lanes,) float32, not 0 where an episode begins; not read without memory.
    """

    job: Any
    inputs: Any
    row: Any
    outputs: Any
    units: Any
    lanes: Any
    samples: Any
    few: Any
    starts: Any
    columns: Any
    memory: Any
    stride: Any
    begins: Any


_single, _int32, _int64 = map(types.CPointer, (types.float32, types.int32, types.int64))
_table: Any = types.CPointer(from_dtype(STEP))
_size: Any = types.int64
_JOB = kind_of(
    Job(
        *(_size, _table, _size, _int64, _int64, _size, _int64, _size),
        *(_single, _size, _single, *(_size,) * 6),
    )
)
_TILE = kind_of(
    Tile(
        *(_size, _single, _size, _single, _single, _size, _size, types.boolean, _int32, _int32),
        *(_single, _size, _single),
    )
)


#: (address) -> the view of the `Job` there, in kernels.
job_at = make_view(_JOB)
_call = make_call(_TILE)


@inline
def run_network(tile):
    """Run the network of a `Tile`, in a kernel."""
    _call(job_at(tile.job).run, tile)


@inline
def to_rows(tile, units, begin, lanes, row_width):
    """Write the transpose of a tile of inputs to units: a row for each environment.

    Args:
        tile: pointer to `Tile.inputs`, a row of `lanes` numbers for each number of a sample; zeros
            behind the last.
        units: overwritten from `begin` on with `lanes` rows.
        begin: position of the first row.
        lanes: a multiple of 16.
        row_width: numbers of a row of units, a multiple of 16.
    """
    target = address(units)
    block = width(
        target, 1
    )  # numbers of a register: so many lanes and numbers are transposed there
    for lane in range(0, lanes, block):
        for k in range(0, row_width, block):
            row = Matrix(target, begin + lane * row_width + k, row_width, 1)
            transpose(Matrix(tile, k * lanes + lane, lanes, 1), row)


@inline
def to_lanes(units, begin, tile, first, lanes, size, row_width):
    """Write the transpose of rows of units to a tile of outputs: a row for each output.

    Args:
        units: from `begin` on `lanes` rows of `row_width` numbers.
        begin: position of the first row.
        tile: pointer to `Tile.outputs`; its rows `first` to `first + size` are overwritten, and
            up to 15 rows behind these.
        first: row of the first output.
        lanes: 1, or a multiple of 16.
        size: number of outputs.
        row_width: numbers of a row of units, a multiple of 16.
    """
    if lanes == 1:
        for k in range(size):
            tile[first + k] = units[begin + k]
        return
    source = address(units)
    block = width(source, 1)
    for lane in range(0, lanes, block):
        for k in range(0, size, block):
            target = Matrix(tile, (first + k) * lanes + lane, lanes, 1)
            transpose(Matrix(source, begin + lane * row_width + k, row_width, 1), target)


@inline
def network_of_job(job):
    """Return the network of a `Job`, which has one input, as a `Packed`."""
    return Packed(
        carray(job.table, (job.steps,)),
        carray(job.inputs, (1, FIELDS)),
        carray(job.outputs, (job.num_outputs, FIELDS)),
        carray(job.states, (job.num_states, FIELDS)),
        carray(job.parameters, (job.num_parameters,)),
        carray(job.copies, (job.num_copies,)),
    )


@inline
def write_inputs(tile, network, units):
    """Write the inputs of a tile to units, or the outputs of the first layer if they are ones."""
    samples = tile.samples
    if tile.few:
        for i in range(samples):
            bounds = np.int64(tile.starts[i]), np.int64(tile.starts[i + 1])
            sum_ones(units, network, samples, i, bounds, carray(tile.columns, (bounds[1],)))
    else:
        place = input_place(network, 0)
        begin = place.offset * samples
        if tile.row > 0:
            for i in range(samples):
                row = units[begin + i * place.width : begin + (i + 1) * place.width]
                inputs = carray(shifted(tile.inputs, i * tile.row), (place.size,))
                row[: place.size] = inputs
                row[place.size :] = np.float32(0)
        else:
            to_rows(tile.inputs, units, begin, tile.lanes, place.width)


@inline
def read_outputs(tile, network, units):
    """Write all outputs in units to the tile, one after the other."""
    row, lanes = 0, tile.lanes
    for k in range(network.outputs.shape[0]):
        place = output_place(network, k)
        begin = place.offset * tile.samples
        to_lanes(units, begin, tile.outputs, row, lanes, place.size, place.width)
        row += place.size


def run_tile(tile):
    """Run a network on the first `samples` lanes of a `Tile`, and write their outputs.

    All `lanes` are transposed, whatever `samples` is: rows behind the samples lie in room of later
    layers, which overwrite it, and outputs of such lanes are read by nobody.
    """
    job, samples = job_at(tile.job), tile.samples
    units, network = carray(tile.units, (job.units * tile.lanes,)), network_of_job(job)
    write_inputs(tile, network, units)
    memory, size = carray(tile.memory, (samples * tile.stride,)), job.state_size
    if size > 0:
        for i in range(samples):
            begin = i * tile.stride
            write_state(network, units, samples, i, memory[begin : begin + size])
    time = Time(1, carray(tile.begins, (samples,)))
    forward(network, units, samples, tile.few, time)
    if size > 0:
        for i in range(samples):
            begin = i * tile.stride
            next_row = samples + i  # states after the one time step
            read_state(network, units, samples, next_row, memory[begin : begin + size])
    read_outputs(tile, network, units)


@functools.cache
def _address() -> int:
    return function_of(run_tile, _TILE)


@kernel
def _run_once(job, inputs, outputs, lanes, samples, memory, begins):
    """Run a network outside of a rollout.

    Args:
        job: address of its `Job`.
        inputs: (samples, size) float32.
        outputs: ((padded output_size + UNIT), lanes) float32, overwritten.
        lanes: 1, or a multiple of 16.
        samples: environments, which have the first lanes.
        memory: (samples, state_size) float32, overwritten.
        begins: (samples,) float32, not 0 where an episode begins.
    """
    units = np.empty(job_at(job).units * lanes, np.float32)
    no_ones = np.zeros(1, np.int32)
    tile = Tile(
        job, address(inputs), inputs.shape[1], address(outputs), address(units), lanes, samples,
        False, address(no_ones), address(no_ones), address(memory), memory.shape[1],
        address(begins),
    )  # fmt: skip
    run_network(tile)
    units[0], no_ones[0] = np.float32(0), 0  # keeps them alive until now: an address does not


class Acting:
    """A network that acts: its parameters as kernels read them, and a `Job` that says where.

    Args:
        plan: of a network with one input.
        parameters: (plan.flat,) float32, which are read anew by `refresh`.

    Attributes:
        plan, parameters: see above.
        place: address of the job, for kernels; the object keeps its memory alive.
        output_size: numbers of all outputs.
    """

    def __init__(self, plan: NetworkPlan, parameters: npt.NDArray[np.float32]) -> None:
        self.parameters, self.plan = parameters, plan
        self.output_size = int(plan.outputs[:, 2].sum())
        self._flat = plan.flat_views(parameters)
        self._packed = aligned_zeros((plan.parameters,), np.float32)
        self._views = plan.packed_views(self._packed)
        self._copies = aligned_zeros((max(plan.copies, 1),), np.float32)
        self._pairs = plan.copied_views(self._packed, self._copies, False)
        self._table = link(plan, np.float32, is_learnt=False)
        job = Job(
            run=_address(),
            table=self._table.ctypes.data,
            steps=len(self._table),
            inputs=plan.inputs.ctypes.data,
            outputs=plan.outputs.ctypes.data,
            num_outputs=len(plan.outputs),
            states=plan.states.ctypes.data,
            num_states=len(plan.states),
            parameters=self._packed.ctypes.data,
            num_parameters=self._packed.size,
            copies=self._copies.ctypes.data,
            num_copies=self._copies.size,
            units=plan.units,
            size=int(plan.inputs[0, 2]),
            output_size=self.output_size,
            takes_ones=int(plan.takes_ones),
            state_size=plan.state_size,
        )
        self._job = np.array(job, np.int64)
        self.place = self._job.ctypes.data
        self.refresh()

    def job_at(self, parameters: Array, copies: Array) -> npt.NDArray[np.int64]:
        """Return a `Job` of the same network whose parameters lie elsewhere.

        Args:
            parameters: (plan.parameters,) float32, packed; the job has their address.
            copies: (plan.copies,) float32, transposed matrices; the job has their address.
        """
        job = Job(*self._job.tolist())
        places = {"parameters": parameters.ctypes.data, "copies": copies.ctypes.data}
        return np.array(job._replace(**places), np.int64)

    def refresh(self) -> None:
        """Read the present parameters."""
        for packed, flat in zip(self._views, self._flat, strict=True):
            packed[...] = flat
        for copy, weights in self._pairs:
            copy[...] = weights

    def outputs(
        self,
        inputs: npt.NDArray[np.float32],
        memory: npt.NDArray[np.float32] | None = None,
        begins: Array | None = None,
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


class Actings:
    """Cache of a policy's networks, ready to act, by name; its copies begin empty."""

    def __init__(self) -> None:
        self._cache: dict[str, Acting] = {}

    def __reduce__(self) -> Any:
        return Actings, ()

    def of(self, name: str, plan: NetworkPlan, parameters: npt.NDArray[np.float32]) -> Acting:
        """Return the network of a name, with the present parameters."""
        acting = self._cache.get(name)
        if acting is None or acting.plan is not plan or acting.parameters is not parameters:
            acting = self._cache[name] = Acting(plan, parameters)
        else:
            acting.refresh()
        return acting
