"""Structs that the workers of an update share; see `rlcpu.nn.learning.update`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.machine.memory import aligned_zeros
from rlcpu.kernels.machine.structs import Array, Reference, References, Struct, Whole
from rlcpu.nn.learning.settings import UpdateSettings
from rlcpu.nn.learning.workers import LINE_WORDS
from rlcpu.nn.network.flat import Learnt, LearntLayout, networks_of
from rlcpu.nn.network.plan import NetworkPlan
from rlcpu.nn.tape.program import Program
from rlcpu.nn.tape.tracing import Tape

#: Columns of a report, behind its sums: of the gradient's norms, of steps, and 1 after a fault.
NORM, STEPS, FAULT = range(3)
REPORT_COLUMNS = 3


class ColumnRecord(NamedTuple):
    """A column of a batch: addresses of its numbers, 0 for none, and their count.

    Networks read scaled numbers, see `rlcpu.nn.network.scaling`, or plain ones where there is no
    mean.
    """

    values: int  #: address of its numbers; of a column of `Ones` that of their starts
    width: int  #: numbers of a sample
    ones: int = 0  #: address of the places of `Ones`
    mean: int = 0  #: address of `width` numbers
    scale: int = 0  #: address of `width` numbers
    limit: int = 0  #: address of one number


COLUMN_RECORD = np.dtype([(name, np.int64) for name in ColumnRecord._fields])


class SampleColumns(Struct):
    """Columns of the S samples of a batch."""

    size = Whole()  #: S
    num_columns = Whole()
    columns = Array(COLUMN_RECORD, "num_columns")
    num_statistics = Whole()
    #: Statistics that the algorithm writes for each sample.
    per_sample = Array("real", "num_statistics", "size")
    #: Of each network with memory the address of the states of sequences before their first time
    #: step, (sequences, state size) float32; 0 without memory.
    states = Array(np.int64)


class Space(Struct):
    """Scratch memory of a call, overwritten; see `make_space`.

    Each worker has its own copies of transposed weights, which backward passes read: to write those
    of all workers would take longer, as the caches of other cores have them.
    """

    size = Whole()
    indices = Array(np.int64, "size")  #: the samples in the order of the epoch
    num_minibatches = Whole()
    num_moments = Whole()
    #: Mean and inverse deviation of standardised columns.
    moments = Array("real", "num_minibatches", "num_moments", 2)
    num_parts = Whole()
    num_parameters = Whole()
    #: The first part's become the sum of all, then what a step subtracts from the parameters.
    gradients = Array("real", "num_parts", "num_parameters")
    num_sums = Whole()
    sums = Array(np.float64, "num_parts", "num_sums")  #: of losses and statistics
    squares = Array(np.float64)  #: (num_slices,), sums of the squares of gradients
    num_workers = Whole()
    num_units = Whole()
    units = Array("real", "num_workers", "num_units")  #: numbers between the layers of networks
    num_slopes = Whole()
    network_slopes = Array("real", "num_workers", "num_slopes")  #: scratch of backward passes
    num_cells = Whole()
    rows = Array("real", "num_workers", "num_cells")  #: `Chunk.rows` of each worker
    slopes = Array("real", "num_workers", "num_cells")  #: `Chunk.slopes` of each worker
    networks = References()  #: a `Packed` of each network, for forward passes
    worker_networks = References()  #: of each worker those with its own copies, one after another
    num_networks = Whole()
    stepped = Array(np.int64, "num_networks")  #: how often each network was stepped
    #: `stepped` when a worker made its copies of a network; -1 for copies that are to be made anew.
    copied = Array(np.int64, "num_workers", "num_networks")
    num_claims = Whole()
    claims = Array(np.int64, "num_claims")  #: see `rlcpu.nn.learning.workers.WorkersMemory`
    done = Array(np.int64, LINE_WORDS)  #: see `rlcpu.nn.learning.workers.WorkersMemory`
    num_updates = Whole()
    num_reported = Whole()
    #: Sums over the gradient steps of means over the samples, of each update, then `NORM`, `STEPS`
    #: and `FAULT`.
    report = Array(np.float64, "num_updates", "num_reported")


class Frame(Struct):
    """Everything that a call works on."""

    learnt = Reference(Learnt)
    layout = Reference(LearntLayout)
    program = Reference(Program)
    batch = Reference(SampleColumns)
    space = Reference(Space)
    settings = Reference(UpdateSettings)


class Share(Struct):
    """Argument of a worker."""

    worker = Whole()  #: its number
    workers = Whole()  #: how many there are
    frame = Reference(Frame)  #: what they work on


class UpdateArguments(NamedTuple):
    """Arguments of an update, which kernels may call again in the same memory."""

    workers: int  #: number of threads that pay where many updates follow each other
    columns: Any  #: the batch's by name, see `rlcpu.nn.learning.columns`
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
    tables: Sequence[npt.NDArray[Any]],
) -> Space:
    """Return scratch memory for updates of `count` samples by at most so many workers.

    Its sizes depend on `settings.minibatch`, `part` and `chunk` alone. The other arguments are what
    is learnt, and by which algorithm; `tables` are those of the networks, linked.
    """
    real, num_parameters = learnt.parameters.dtype.type, learnt.parameters.size
    minibatches = -(-count // settings.minibatch)
    parts, slices = -(-settings.minibatch // settings.part), layout.num_slices
    chunk_samples = min(settings.part, settings.chunk)
    cells = chunk_samples * max(tape.heights)
    # Places of units are multiplied by the size of whole chunks, `settings.chunk`.
    units = settings.chunk * (tape.saved_units + tape.shared_units)
    # One sample more is scratch of layers, see `rlcpu.nn.network.passes`.
    network_slopes = (chunk_samples + 1) * max(plan.slopes for plan in plans)
    num_sums = max(map(len, tape.statistics))
    # The last moments of a minibatch are for columns that it does not standardise.
    moments = np.zeros((minibatches, len(tape.standardised) + 1, 2), real)
    moments[..., 1] = 1.0
    facts = plans, tables, learnt, layout
    copies = aligned_zeros((workers, learnt.copies.size), real)
    return Space.of(real=real)(
        indices=np.zeros(count, np.int64),
        moments=moments,
        gradients=aligned_zeros((parts, num_parameters), real),
        sums=np.zeros((parts, num_sums)),
        squares=np.zeros(slices),
        units=aligned_zeros((workers, units), real),
        network_slopes=aligned_zeros((workers, network_slopes), real),
        rows=aligned_zeros((workers, cells), real),
        slopes=aligned_zeros((workers, cells), real),
        networks=networks_of(*facts, learnt.copies),
        worker_networks=[each for row in copies for each in networks_of(*facts, row)],
        stepped=np.zeros(len(plans), np.int64),
        copied=np.full((workers, len(plans)), -1),
        claims=np.zeros(LINE_WORDS * max(parts, slices, minibatches), np.int64),
        done=np.zeros(LINE_WORDS, np.int64),
        report=np.zeros((len(tape.statistics), num_sums + REPORT_COLUMNS)),
    )


def read_report(
    space: Space, statistics: Sequence[Sequence[str]], num_steps: int
) -> dict[str, float]:
    """Return the means of a call from its report, see `rlcpu.nn.learning.learner.Learner.update`.

    Args:
        space: of the call.
        statistics: of each update the names of its loss and statistics.
        num_steps: gradient steps of the first update, over all calls.

    Raises:
        FloatingPointError: a loss or a gradient was not finite.
    """
    num_sums, rows = space.num_sums, space.report.tolist()
    report: dict[str, float] = {}
    for k, (names, row) in enumerate(zip(statistics, rows, strict=True)):
        if row[num_sums + FAULT]:
            totals = space.sums.sum(axis=0)  # of all parts of the minibatch
            pairs = zip(names, totals, strict=False)
            bad = [name for name, total in pairs if not math.isfinite(total)]
            # The first update counts the steps: its own was left out, and is not among them.
            raise FloatingPointError(
                f"gradient step {num_steps + (k == 0)}: {', '.join(bad) or 'a gradient'} of "
                f"{names[0]} became NaN or infinite, and the step was left out: smaller rewards, "
                "observations or learning_rate help"
            )
        steps = row[num_sums + STEPS]
        for name, total in zip(names, row, strict=False):
            report[name] = total / steps if steps else math.nan
    steps = rows[0][num_sums + STEPS]
    report["gradient_norm"] = rows[0][num_sums + NORM] / steps if steps else math.nan
    return {**report, "num_gradients": int(steps)}
