"""The kernel of updates: minibatches, gradients, clipping, Adam, and targets that follow.

One call learns from minibatches one after the other, of samples in a new order for each epoch or of
samples as they lie. On each, the updates of an algorithm follow each other (critics, then the
actor), and each takes three phases, which workers share (see `rlcpu.nn.workers`):

    gradient    items are parts of the minibatch, each with a gradient of its own
    sum         items are slices of what is learnt: parts are added in order, squares too
    step        the same slices: Adam, the transposed copies, and the targets

What a part or a slice computes does not depend on who does it: results do not depend on the number
of threads. The kernel is the same for all algorithms and networks: it runs the tape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.calls import kind_of, make_call, make_numbered_call, view
from rlcpu.kernels.compile import inline, inline_exact, kernel, merge, outline
from rlcpu.kernels.memory import array_at
from rlcpu.kernels.random import mix
from rlcpu.nn.adam import make_adam, make_rectified_rates, make_sums
from rlcpu.nn.instructions.chunk import Chunk
from rlcpu.nn.layers.rows import fill
from rlcpu.nn.order import bits_of, shuffled
from rlcpu.nn.packed import copy_rows, network_of
from rlcpu.nn.program import Program
from rlcpu.nn.workers import WorkersMemory, claim, finish, item_of, stop, wait

u32 = np.uint32
#: Samples that pass the networks together, and at most so many parts has a minibatch.
CHUNK, MOST_PARTS = 128, 32
#: Rows of a layer's weights that one worker steps.
SLICE = 64


#: A slice of what is learnt: its network (-1 for an array), a row of the network's table, the first
#: row of the matrix and the one behind the last, and bounds in the flat vector; the last slice of a
#: step has its other parameters too.
SLICE_RECORD = np.dtype(
    [(name, np.int64) for name in ("network", "step", "first", "last", "begin", "end")]
)
#: Columns of a report, behind its sums: of the gradient's norms, of steps, and 1 after a fault.
NORM, STEPS, FAULT = 0, 1, 2


class LearntLayout(NamedTuple):
    """Places of all that is learnt; the first fields are those of `rlcpu.nn.flat.FlatLayout`.

    Attributes:
        targets: (num_networks,) int64, the network that follows each slowly, or -1.
        parameters: where arrays that belong to no network begin.
        slices: (num_slices,) of dtype `SLICE_RECORD`, what is learnt, cut for the workers.
        updates: (num_updates + 1,) int64, bounds of the slices of each update.
    """

    tables: Any
    inputs: Any
    outputs: Any
    states: Any
    steps: Any
    begins: Any
    copies_begins: Any
    free: Any
    targets: Any
    parameters: int
    slices: Any
    updates: Any


class SampleColumns(NamedTuple):
    """Columns of S samples.

    Attributes:
        size: S.
        columns: of `rlcpu.nn.instructions.chunk.COLUMN_RECORD`.
        per_sample: (any, S), numbers of each sample that the algorithm writes.
        states: (num_networks,) int64, addresses of what each network with memory remembers of the
            sequences, (sequences, state size) float32.
    """

    size: int
    columns: Any
    per_sample: Any
    states: Any


class Space(NamedTuple):
    """Scratch memory of a call, overwritten.

    Attributes:
        indices: (S,) int64, the samples in the order of the epoch.
        moments: (num_minibatches, any, 2), mean and inverse deviation of standardised columns.
        gradients: (num_parts, P); the first becomes the sum of all.
        sums: (num_parts, num_sums) float64.
        squares: (num_slices,) float64.
        units, products, rows, slopes: (num_workers, any), scratch of one worker.
        claims, done: see `rlcpu.nn.workers.WorkersMemory`.
        report: (num_updates, num_sums + 3) float64: sums over the gradient steps of means over the
            samples, then `NORM`, `STEPS` and `FAULT`.
    """

    indices: Any
    moments: Any
    gradients: Any
    sums: Any
    squares: Any
    units: Any
    products: Any
    rows: Any
    slopes: Any
    claims: Any
    done: Any
    report: Any


class UpdateSettings(NamedTuple):
    """Settings of a call; reals are of the learner's dtype.

    Attributes:
        epochs, minibatch: how often a call goes through all samples, and how many at a time.
        part, chunk: samples of a part, and at most so many pass the networks together.
        steps: time steps of a sequence; all sizes above are of whole sequences.
        abreast: sequences that lie side by side in the batch; behind their steps those of as many
            others lie.
        is_shuffled: whether each epoch shuffles the samples.
        standardised: (any,) int64, columns that minibatches standardise.
        counters: (2,) int64, minibatches and epochs before this call.
        every: (num_updates,) int64: an update follows every so many minibatches.
        period, tau: every so many minibatches, targets go this part of the way.
        learning_rates: (num_updates,).
        epsilon, decay, is_rectified: of Adam; see `rlcpu.nn.adam`.
        max_norm: gradients of an update are scaled down to the norm.
        watched, most: the call ends at a minibatch whose mean of this sum is above `most`.
        key_low, key_high: uint32, of the random stream.
        patience: see `rlcpu.nn.workers.wait`.
    """

    epochs: int
    minibatch: int
    part: int
    chunk: int
    steps: int
    abreast: int
    is_shuffled: bool
    standardised: Any
    counters: Any
    every: Any
    period: int
    tau: Any
    learning_rates: Any
    epsilon: Any
    decay: Any
    is_rectified: bool
    max_norm: Any
    watched: int
    most: float
    key_low: Any
    key_high: Any
    patience: int


class Frame(NamedTuple):
    """Everything that a call works on.

    Attributes:
        learnt: parameters and moments, see `rlcpu.nn.flat.Learnt`.
        layout: where these are.
        program: the instructions of the algorithm.
        batch: the samples.
        space: scratch memory.
        settings: numbers of the call.
    """

    learnt: Any
    layout: LearntLayout
    program: Program
    batch: SampleColumns
    space: Space
    settings: UpdateSettings


class Share(NamedTuple):
    """Arguments of a worker.

    Attributes:
        worker, workers: its number, and how many there are.
        frame: what they work on.
    """

    worker: int
    workers: int
    frame: Any


class WorkerTurn(NamedTuple):
    """Position of a worker in a call.

    Attributes:
        worker, workers: its number, and how many there are.
        update: of the algorithm.
        minibatch: among those of the epoch.
        number: of the minibatch, from 1 on, over all calls.
        phase: phases before this update.
    """

    worker: int
    workers: int
    update: int
    minibatch: int
    number: int
    phase: int


# ---------------------------------------------------------------- minibatches


@functools.cache
def make_order(dtype: type) -> Callable[..., None]:
    """Make `order(frame, epoch, minibatch)`, which chooses the samples of a minibatch.

    It writes their numbers to the minibatch's part of `space.indices`, and mean and inverse
    deviation of the columns that minibatches standardise to `space.moments`.
    """
    write_moments = make_write_moments(dtype)

    @outline
    def order(frame, epoch, minibatch):
        settings, count = frame.settings, frame.space.indices.size
        begin = minibatch * settings.minibatch
        samples = frame.space.indices[begin : min(begin + settings.minibatch, count)]
        choose_sequences(settings, epoch, count, begin // settings.steps, samples)
        write_moments(frame, minibatch, samples, count)

    return order


@merge
def choose_sequences(settings, epoch, count, first, samples):
    """Write the samples of whole sequences, those from number `first` on of the epoch's order.

    The samples of a chunk lie time step after time step, as networks with memory read them.
    """
    steps, bits = settings.steps, 0
    num_sequences, a, b = count // steps, u32(0), u32(0)
    if settings.is_shuffled:
        bits = bits_of(num_sequences)
        epochs = settings.counters[1] + epoch
        a, b = mix(settings.key_low, settings.key_high, u32(epochs))
    in_chunk, abreast = settings.chunk // steps, settings.abreast
    for k in range(samples.size // steps):
        sequence = first + k
        if settings.is_shuffled:
            sequence = np.int64(shuffled(sequence, num_sequences, bits, a, b))
        chunk_first = k // in_chunk * in_chunk
        place = chunk_first * steps + k - chunk_first
        stride = min(in_chunk, samples.size // steps - chunk_first)
        row, column = sequence // abreast * steps, sequence % abreast
        for t in range(steps):
            samples[place + t * stride] = (row + t) * abreast + column


@functools.cache
def make_write_moments(dtype: type) -> Callable[..., None]:
    """Make `write_moments(frame, minibatch, samples, count)`, of the columns to standardise.

    It writes mean and inverse deviation over the samples of a minibatch; 0 and 1 for one sample.
    """
    zero, one, like = dtype(0), dtype(1), np.float32(0)

    @inline
    def mean_of(column, samples):
        """Return the mean of a column over samples."""
        total = 0.0
        for i in range(samples.size):
            total += column[samples[i]]
        return total / samples.size

    @inline
    def deviation_of(column, samples, mean):
        """Return the standard deviation of a column over samples, a little above 0."""
        total = 0.0
        for i in range(samples.size):
            total += (column[samples[i]] - mean) ** 2
        return np.sqrt(total / max(samples.size - 1, 1)) + 1e-8

    @merge
    def write_moments(frame, minibatch, samples, count):
        space, settings = frame.space, frame.settings
        for k in range(settings.standardised.size):
            moments = space.moments[minibatch, k]
            moments[0], moments[1] = zero, one
            if samples.size > 1:
                values = frame.batch.columns[settings.standardised[k]].values
                column = array_at(values, (count,), like)
                mean = mean_of(column, samples)
                moments[0] = dtype(mean)
                moments[1] = dtype(1.0 / deviation_of(column, samples, mean))

    return write_moments


# ---------------------------------------------------------------- gradients


@functools.cache
def make_gradient(dtype: type, kind: Any) -> Callable[..., None]:
    """Make `gradient(turn, part, frame)`: overwrites gradient and sums of a part of a minibatch.

    `kind` is numba's type of a `Chunk`.
    """
    call, zero, one = make_numbered_call(kind), dtype(0), dtype(1)

    @outline
    def gradient(turn, part, frame):
        """Run the program forward and backward, chunk by chunk; see `make_gradient`."""
        space, settings, worker = frame.space, frame.settings, turn.worker
        first_sample = turn.minibatch * settings.minibatch
        stop_sample = min(first_sample + settings.minibatch, space.indices.size)
        begin = first_sample + part * settings.part
        end = min(begin + settings.part, stop_sample)
        program, height = frame.program, frame.program.heights[turn.update]
        fill(space.gradients[part, frame.layout.parameters :], zero)
        fill(space.sums[part], 0.0)
        for start in range(begin, end, settings.chunk):
            samples = space.indices[start : min(start + settings.chunk, end)]
            cells = height * samples.size
            shape = height, samples.size
            slopes = space.slopes[worker, :cells]
            values = Chunk(
                worker,
                turn.update,
                turn.number,
                samples,
                turn.minibatch,
                one / dtype(stop_sample - first_sample),
                start == begin,
                space.rows[worker, :cells].reshape(shape),
                slopes.reshape(shape),
                space.units[worker],
                space.gradients[part],
                space.sums[part],
                frame,
            )
            chunk = view(values)
            first, last = program.bounds[turn.update], program.bounds[turn.update + 1]
            for number in range(first, last):
                call(program.instructions[number].forward, chunk, number)
            fill(slopes, zero)
            for number in range(last - 1, first - 1, -1):
                if program.instructions[number].backward != 0:
                    call(program.instructions[number].backward, chunk, number)

    return gradient


# ---------------------------------------------------------------- one slice


@functools.cache
def make_step(dtype: type) -> Callable[..., None]:
    """Make `step(item, factor, rates, follow, frame)`, which steps one slice.

    It scales gradients by `factor`, steps parameters and moments by Adam, makes the transposed
    copies anew, and moves the targets if `follow`.
    """
    adam = make_adam(dtype)

    @outline
    def apply(parameters, gradients, first, second, factor, rates):
        """Step parameters and moments by Adam."""
        adam(parameters, gradients, first, second, factor, rates)

    @outline
    def approach(targets, parameters, tau):
        """Move targets a share tau of the way to parameters."""
        for i in range(targets.size):
            targets[i] += tau * (parameters[i] - targets[i])

    @outline
    def step(item, factor, rates, follow, frame):
        learnt, layout, space = frame.learnt, frame.layout, frame.space
        cut = layout.slices[item]
        k, first, last, begin, end = cut.network, cut.first, cut.last, cut.begin, cut.end
        parameters = learnt.parameters[begin:end]
        moments = learnt.first[begin:end], learnt.second[begin:end]
        apply(parameters, space.gradients[0, begin:end], moments[0], moments[1], factor, rates)
        if k < 0:
            return
        row = layout.tables[k, cut.step]
        copy_rows(row, network_of(learnt, layout, k), first, last)
        target = layout.targets[k]
        if follow and target >= 0:
            shift = layout.begins[target] - layout.begins[k]
            tau = frame.settings.tau
            approach(learnt.parameters[begin + shift : end + shift], parameters, tau)
            if row.turned != 0:  # a target runs forward alone
                copy_rows(row, network_of(learnt, layout, target), first, last)

    return step


# ---------------------------------------------------------------- the whole call


@functools.cache
def make_update(dtype: type, kind: Any) -> Callable[..., None]:
    """Make the function of a view of a `Share`, which runs the share of one worker.

    It is compiled for `View(share_kind(kind))`, and called by address.

    `kind` is numba's type of a `Chunk`.
    """
    order, gradient, step = make_order(dtype), make_gradient(dtype, kind), make_step(dtype)
    rates_of = make_rectified_rates(dtype)
    add, squares = make_sums(dtype)
    one = dtype(1)

    @outline
    def add_to(total, part):
        add(total, part)

    @outline
    def square_sum(values):
        return squares(values)

    @inline_exact
    def norm_of(squares):
        """Return the norm of a gradient, from sums of squares of its slices."""
        total = 0.0
        for square in squares:
            total += square
        return np.sqrt(total)

    @inline_exact
    def are_finite(norm, loss):  # reassociated, isfinite(x + y) is always True: it subtracts itself
        return np.isfinite(norm) and np.isfinite(loss)

    @inline
    def samples_of(minibatch, frame):
        """Return how many samples a minibatch has; the last may have fewer."""
        first = minibatch * frame.settings.minibatch
        return min(frame.settings.minibatch, frame.space.indices.size - first)

    @inline
    def parts_of(minibatch, frame):
        """Return how many parts a minibatch has."""
        part = frame.settings.part
        return (samples_of(minibatch, frame) + part - 1) // part

    @outline
    def order_all(crew, minibatches, phase, epoch, frame):
        """Choose the samples of all minibatches of an epoch."""
        board = WorkersMemory(frame.space.claims, frame.space.done)
        for shift in range(minibatches):
            item = item_of(crew, minibatches, shift)
            if claim(board, item, phase):
                order(frame, epoch, item)
                finish(board)

    @outline
    def add_parts(turn, parts, frame):
        """Compute the gradients of parts of a minibatch."""
        board = WorkersMemory(frame.space.claims, frame.space.done)
        for shift in range(parts):
            item = item_of((turn.worker, turn.workers), parts, shift)
            if claim(board, item, turn.phase + 1):
                gradient(turn, item, frame)
                finish(board)

    @outline
    def sum_slices(turn, first, slices, parts, frame):
        """Add up the parts' gradients of slices, and sum the squares of each total."""
        layout, space = frame.layout, frame.space
        board = WorkersMemory(space.claims, space.done)
        for shift in range(slices):
            item = item_of((turn.worker, turn.workers), slices, shift)
            if claim(board, item, turn.phase + 2):
                begin, end = layout.slices[first + item].begin, layout.slices[first + item].end
                total = space.gradients[0, begin:end]
                for part in range(1, parts):
                    add_to(total, space.gradients[part, begin:end])
                space.squares[first + item] = square_sum(total)
                finish(board)

    @inline_exact
    def total_of(sums, parts, k):
        """Return the sum of statistic k over the parts of a minibatch."""
        total = 0.0
        for part in range(parts):
            total += sums[part, k]
        return total

    @outline
    def report(turn, parts, norm, frame):
        """Add the means over a minibatch to the report."""
        sums, row = frame.space.sums, frame.space.report[turn.update]
        count, samples = sums.shape[1], samples_of(turn.minibatch, frame)
        for k in range(count):
            row[k] += total_of(sums, parts, k) / samples
        row[count + NORM] += norm
        row[count + STEPS] += 1.0

    @outline
    def step_slices(turn, first, slices, parts, frame):
        """Step slices, unless the loss is not finite or the call is to end before this step."""
        space, settings = frame.space, frame.settings
        board = WorkersMemory(space.claims, space.done)
        norm = norm_of(space.squares[first : first + slices])
        is_finite = are_finite(norm, total_of(space.sums, parts, 0))
        is_over = False
        if settings.watched >= 0 and turn.update == 0:
            mean = total_of(space.sums, parts, settings.watched)
            is_over = mean / samples_of(turn.minibatch, frame) > settings.most
        number = turn.number // settings.every[turn.update]
        rate = settings.learning_rates[turn.update]
        rectified, decay = settings.is_rectified, settings.decay
        rates = rates_of(number, rate, settings.epsilon, rectified, decay)
        factor = settings.max_norm / (dtype(norm) + dtype(1e-6))
        factor = factor if factor < one else one
        follow = turn.number % settings.period == 0
        for shift in range(slices):
            item = item_of((turn.worker, turn.workers), slices, shift)
            if claim(board, item, turn.phase + 3):
                if is_over:
                    stop(board)
                elif not is_finite:
                    space.report[turn.update, space.sums.shape[1] + FAULT] = 1.0
                    stop(board)
                else:
                    step(first + item, factor, rates, follow, frame)
                    if item == 0:
                        report(turn, parts, norm, frame)
                finish(board)

    @outline
    def run(crew, frame):
        """Run epochs, minibatches, updates and their phases, and wait after each phase."""
        layout, space, settings = frame.layout, frame.space, frame.settings
        board = WorkersMemory(space.claims, space.done)
        minibatches = (space.indices.size + settings.minibatch - 1) // settings.minibatch
        phase = done = 0
        number = settings.counters[0]
        for epoch in range(settings.epochs):
            phase += 1
            order_all(crew, minibatches, phase, epoch, frame)
            done += minibatches
            if not wait(board, done, settings.patience):
                return
            for minibatch in range(minibatches):
                number += 1
                for update in range(settings.every.size):
                    if number % settings.every[update] != 0:
                        continue
                    turn = WorkerTurn(crew[0], crew[1], update, minibatch, number, phase)
                    first = layout.updates[update]
                    slices = layout.updates[update + 1] - first
                    parts = parts_of(minibatch, frame)
                    add_parts(turn, parts, frame)
                    done += parts
                    if not wait(board, done, settings.patience):
                        return
                    sum_slices(turn, first, slices, parts, frame)
                    done += slices
                    if not wait(board, done, settings.patience):
                        return
                    step_slices(turn, first, slices, parts, frame)
                    done += slices
                    if not wait(board, done, settings.patience):
                        return
                    phase += 3

    def update(share):
        run((share.worker, share.workers), share.frame)

    return kernel(update, by_address=True)


def share_kind(kind: Any) -> Any:
    """Return numba's type of a `Share` of that of a `Chunk`."""
    return kind_of(Share(0, 1, kind.types[-1].kind))


@functools.cache
def make_kernel(kind: Any) -> Callable[..., None]:
    """Make the kernel (address, worker, workers, *fields of a `Frame`).

    It calls the function of `make_update` at the address: the machine code of that is the same for
    all networks and losses, and this small kernel is what is compiled for their types. `kind` is
    numba's type of a `Share`.
    """
    call = make_call(kind)

    @kernel
    def update_share(address, worker, workers, learnt, layout, program, batch, space, settings):
        frame = Frame(learnt, layout, program, batch, space, settings)
        call(address, Share(worker, workers, frame))

    return update_share
