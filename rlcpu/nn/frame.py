"""Tuples of arrays and numbers that the workers of an update share; see `rlcpu.nn.update`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.calls import View, kind_of
from rlcpu.kernels.memory import aligned_zeros
from rlcpu.nn.flat import Learnt, LearntLayout
from rlcpu.nn.instructions.chunk import Chunk
from rlcpu.nn.plan import NetworkPlan
from rlcpu.nn.program import Program
from rlcpu.nn.settings import UpdateSettings
from rlcpu.nn.tape import Tape
from rlcpu.nn.workers import LINE_WORDS

#: Columns of a report, behind its sums: of the gradient's norms, of steps, and 1 after a fault.
NORM, STEPS, FAULT = range(3)
REPORT_COLUMNS = 3


class SampleColumns(NamedTuple):
    """Columns of the S samples of a batch."""

    size: int  #: S
    columns: Any  #: of dtype `rlcpu.nn.instructions.chunk.COLUMN_RECORD`
    per_sample: Any  #: (any, S), statistics that the algorithm writes for each sample
    #: (num_networks,) int64: of each network with memory the address of the states of sequences
    #: before their first time step, (sequences, state size) float32; 0 without memory.
    states: Any


class Space(NamedTuple):
    """Scratch memory of a call, overwritten; see `make_space`.

    Each worker has its own copies of transposed weights, which backward passes read: to write those
    of all workers would take longer, as the caches of other cores have them.
    """

    indices: Any  #: (S,) int64, the samples in the order of the epoch
    moments: Any  #: (num_minibatches, any, 2), mean and inverse deviation of standardised columns
    #: (num_parts, P): the first part's become the sum of all, then what a step subtracts from the
    #: parameters.
    gradients: Any
    sums: Any  #: (num_parts, num_sums) float64, of losses and statistics
    squares: Any  #: (num_slices,) float64, sums of the squares of gradients
    units: Any  #: (num_workers, any), numbers between the layers of networks
    network_slopes: Any  #: (num_workers, any), scratch of the networks' backward passes
    rows: Any  #: (num_workers, any), `Chunk.rows` of each worker
    slopes: Any  #: (num_workers, any), `Chunk.slopes` of each worker
    copies: Any  #: (num_workers, C), transposed weights
    stepped: Any  #: (num_networks,) int64, how often each network was stepped
    #: (num_workers, num_networks) int64: `stepped` when a worker made its copies of a network; -1
    #: for copies that are to be made anew.
    copied: Any
    claims: Any  #: see `rlcpu.nn.workers.WorkersMemory`
    done: Any  #: see `rlcpu.nn.workers.WorkersMemory`
    #: (num_updates, num_sums + REPORT_COLUMNS) float64: sums over the gradient steps of means over
    #: the samples, then `NORM`, `STEPS` and `FAULT`.
    report: Any


class Frame(NamedTuple):
    """Everything that a call works on."""

    learnt: Learnt
    layout: LearntLayout
    program: Program
    batch: SampleColumns
    space: Space
    settings: UpdateSettings


class Share(NamedTuple):
    """Arguments of a worker."""

    worker: int  #: its number
    workers: int  #: how many there are
    frame: Any  #: what they work on


class WorkerTurn(NamedTuple):
    """Position of a worker in a call: an update on a minibatch."""

    worker: int  #: its number
    workers: int  #: how many there are
    update: int  #: number of the update of the algorithm
    minibatch: int  #: its number in the epoch
    number: int  #: of the minibatch, from 1 on, over all calls
    samples: int  #: of the minibatch, how many
    parts: int  #: of the minibatch, how many
    first_slice: int  #: number of the first slice that the update learns
    slices: int  #: how many it learns
    phase: int  #: number of phases before this update


class UpdateArguments(NamedTuple):
    """Arguments of an update, which kernels may call again in the same memory."""

    workers: int  #: number of threads that pay where many updates follow each other
    columns: Any  #: the batch's by name, see `rlcpu.nn.columns`
    update: int  #: address of the function that all workers run
    frame: Frame


def make_space(
    count: int,
    settings: UpdateSettings,
    workers: int,
    learnt: Learnt,
    layout: LearntLayout,
    tape: Tape,
    plans: Sequence[NetworkPlan],
) -> Space:
    """Return scratch memory for updates of `count` samples by at most so many workers.

    Its sizes depend on `settings.minibatch`, `part` and `chunk` alone. The other arguments are what
    is learnt, and by which algorithm.
    """
    real, num_parameters = learnt.parameters.dtype.type, learnt.parameters.size
    minibatches = -(-count // settings.minibatch)
    parts, slices = -(-settings.minibatch // settings.part), len(layout.slices)
    chunk_samples = min(settings.part, settings.chunk)
    cells = chunk_samples * max(tape.heights)
    # Places of units are multiplied by the size of whole chunks, `settings.chunk`.
    units = settings.chunk * (tape.saved_units + tape.shared_units)
    # One sample more is scratch of layers, see `rlcpu.nn.passes`.
    network_slopes = (chunk_samples + 1) * max(plan.slopes for plan in plans)
    num_sums = max(map(len, tape.statistics))
    # The last moments of a minibatch are for columns that it does not standardise.
    moments = np.zeros((minibatches, len(tape.standardised) + 1, 2), real)
    moments[..., 1] = 1.0
    return Space(
        indices=np.zeros(count, np.int64),
        moments=moments,
        gradients=aligned_zeros((parts, num_parameters), real),
        sums=np.zeros((parts, num_sums)),
        squares=np.zeros(slices),
        units=aligned_zeros((workers, units), real),
        network_slopes=aligned_zeros((workers, network_slopes), real),
        rows=aligned_zeros((workers, cells), real),
        slopes=aligned_zeros((workers, cells), real),
        copies=aligned_zeros((workers, learnt.copies.size), real),
        stepped=np.zeros(len(plans), np.int64),
        copied=np.full((workers, len(plans)), -1),
        claims=np.zeros(LINE_WORDS * max(parts, slices, minibatches), np.int64),
        done=np.zeros(LINE_WORDS, np.int64),
        report=np.zeros((len(tape.statistics), num_sums + REPORT_COLUMNS)),
    )


def chunk_kind(frame: Frame) -> Any:
    """Return numba's type of a `Chunk` of a frame, of which only the types of fields matter."""
    real, samples = frame.learnt.parameters.dtype.type, frame.space.indices
    # Arrays of the same dtypes and axes as those of a chunk.
    rows, row, sums = frame.batch.per_sample, frame.learnt.parameters, frame.space.squares
    chunk = Chunk(
        worker=0,
        update=0,
        number=0,
        samples=samples,
        minibatch=0,
        share=real(0),
        is_first=False,
        rows=rows,
        slopes=rows,
        units=row,
        gradients=row,
        sums=sums,
        frame=View(kind_of(frame)),
    )
    return kind_of(chunk)


def share_kind(chunk: Any) -> Any:
    """Return numba's type of a `Share`, from that of a `Chunk`."""
    frame = chunk.types[-1].kind  # the last field is a view of a frame
    return kind_of(Share(worker=0, workers=1, frame=frame))
