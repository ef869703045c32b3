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
from rlcpu.kernels.compile import inline, kernel, merge, outline
from rlcpu.kernels.random import mix
from rlcpu.nn.adam import make_adam, make_rates, square_sum
from rlcpu.nn.flat import LearntLayout
from rlcpu.nn.instructions.chunk import Chunk, floats_at
from rlcpu.nn.layers.rows import add_to, fill
from rlcpu.nn.order import bits_of, shuffled
from rlcpu.nn.packed import copy_rows, network_of
from rlcpu.nn.program import Program
from rlcpu.nn.settings import UpdateSettings
from rlcpu.nn.workers import claim, finish, item_of, stop, wait

u32 = np.uint32
#: Columns of a report, behind its sums: of the gradient's norms, of steps, and 1 after a fault.
NORM, STEPS, FAULT = 0, 1, 2


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


@outline
def choose_samples(frame, epoch, minibatch):
    """Choose the samples of a minibatch.

    Their numbers are written to the minibatch's part of `space.indices`, and mean and inverse
    deviation of the columns that minibatches standardise to `space.moments`.
    """
    settings, count = frame.settings, frame.space.indices.size
    begin = minibatch * settings.minibatch
    samples = frame.space.indices[begin : min(begin + settings.minibatch, count)]
    choose_sequences(settings, epoch, count, begin // settings.steps, samples)
    write_moments(frame, minibatch, samples)


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
def write_moments(frame, minibatch, samples):
    """Write mean and inverse deviation of columns over a minibatch; 0 and 1 for one sample."""
    settings = frame.settings
    for k in range(settings.standardised.size):
        moments = frame.space.moments[minibatch, k]
        moments[0], moments[1] = 0.0, 1.0
        if samples.size > 1:
            values = frame.batch.columns[settings.standardised[k]].values
            column = floats_at(values, frame.space.indices.size)
            mean = mean_of(column, samples)
            moments[0], moments[1] = mean, 1.0 / deviation_of(column, samples, mean)


@inline
def num_samples(minibatch, frame):
    """Return how many samples a minibatch has; the last may have fewer."""
    first = minibatch * frame.settings.minibatch
    return min(frame.settings.minibatch, frame.space.indices.size - first)


# ---------------------------------------------------------------- a part, and a slice


@functools.cache
def make_gradient(kind: Any) -> Callable[..., None]:
    """Make `gradient(turn, part, frame)`: overwrites gradient and sums of a part of a minibatch.

    A `turn` is one minibatch of one update for one worker, and `part` the number of the part. A
    chunk of samples has a matrix of numbers, a row of it for each value that the traced algorithm
    computes per sample. `kind` is numba's type of a `Chunk`.
    """
    call = make_numbered_call(kind)

    @outline
    def gradient(turn, part, frame):
        """Run the program forward and backward, chunk by chunk; see `make_gradient`."""
        space, settings, worker = frame.space, frame.settings, turn.worker
        real, samples_of_all = space.gradients.dtype.type, num_samples(turn.minibatch, frame)
        first_sample = turn.minibatch * settings.minibatch
        begin = first_sample + part * settings.part
        end = min(begin + settings.part, first_sample + samples_of_all)
        program, height = frame.program, frame.program.heights[turn.update]
        # Of arrays alone, behind the networks' parameters: networks overwrite theirs at first.
        fill(space.gradients[part, frame.layout.parameters :], real(0))
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
                real(1) / real(samples_of_all),
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
            fill(slopes, real(0))
            for number in range(last - 1, first - 1, -1):
                if program.instructions[number].backward != 0:
                    call(program.instructions[number].backward, chunk, number)

    return gradient


@outline
def add_gradients(total, part):
    """Add a part's gradients to those of the first part."""
    add_to(total, part)


@outline
def approach(targets, parameters, tau):
    """Move targets a share tau of the way to parameters."""
    for i in range(targets.size):
        targets[i] += tau * (parameters[i] - targets[i])


@functools.cache
def make_step(dtype: type) -> Callable[..., None]:
    """Make `step(item, factor, rates, follow, frame)`, which steps one slice.

    It scales gradients by `factor`, steps parameters and moments by Adam, makes the transposed
    copies anew, and moves the targets if `follow`.
    """
    adam = make_adam(dtype)

    @outline
    def step(item, factor, rates, follow, frame):
        learnt, layout, space = frame.learnt, frame.layout, frame.space
        cut = layout.slices[item]
        k, first, last, begin, end = cut.network, cut.first, cut.last, cut.begin, cut.end
        parameters = learnt.parameters[begin:end]
        moments = learnt.first[begin:end], learnt.second[begin:end]
        adam(parameters, space.gradients[0, begin:end], moments[0], moments[1], factor, rates)
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


# ---------------------------------------------------------------- phases


@outline
def choose_all(share, minibatches, phase, epoch, frame):
    """Choose the samples of all minibatches of an epoch."""
    for shift in range(minibatches):
        item = item_of(share, minibatches, shift)
        if claim(frame.space, item, phase):
            choose_samples(frame, epoch, item)
            finish(frame.space)


@outline
def sum_slices(turn, first, slices, parts, frame):
    """Add up the parts' gradients of slices, and sum the squares of each total."""
    layout, space = frame.layout, frame.space
    for shift in range(slices):
        item = item_of(turn, slices, shift)
        if claim(space, item, turn.phase + 2):
            begin, end = layout.slices[first + item].begin, layout.slices[first + item].end
            total = space.gradients[0, begin:end]
            for part in range(1, parts):
                add_gradients(total, space.gradients[part, begin:end])
            space.squares[first + item] = square_sum(total)
            finish(space)


@inline(exact=True)
def norm_of(squares):
    """Return the norm of a gradient, from sums of squares of its slices."""
    total = 0.0
    for square in squares:
        total += square
    return np.sqrt(total)


@inline(exact=True)
def are_finite(norm, loss):
    """Tell whether both are; reassociated, isfinite(x + y) is always True: it subtracts itself."""
    return np.isfinite(norm) and np.isfinite(loss)


@inline(exact=True)
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
    count, samples = sums.shape[1], num_samples(turn.minibatch, frame)
    for k in range(count):
        row[k] += total_of(sums, parts, k) / samples
    row[count + NORM] += norm
    row[count + STEPS] += 1.0


# ---------------------------------------------------------------- the whole call


@functools.cache
def make_update(dtype: type, kind: Any) -> Callable[..., None]:
    """Make the function of a view of a `Share`, which runs the share of one worker.

    It is compiled for `View(share_kind(kind))`, and called by address.

    `kind` is numba's type of a `Chunk`.
    """
    gradient, step, rates_of = make_gradient(kind), make_step(dtype), make_rates(dtype)
    one = dtype(1)

    @outline
    def add_parts(turn, parts, frame):
        """Compute the gradients of parts of a minibatch."""
        for shift in range(parts):
            item = item_of(turn, parts, shift)
            if claim(frame.space, item, turn.phase + 1):
                gradient(turn, item, frame)
                finish(frame.space)

    @outline
    def step_slices(turn, first, slices, parts, frame):
        """Step slices, unless the loss is not finite or the call is to end before this step."""
        space, settings = frame.space, frame.settings
        norm = norm_of(space.squares[first : first + slices])
        is_finite = are_finite(norm, total_of(space.sums, parts, 0))
        is_over = False
        if settings.watched >= 0 and turn.update == 0:
            mean = total_of(space.sums, parts, settings.watched)
            is_over = mean / num_samples(turn.minibatch, frame) > settings.most
        number = turn.number // settings.every[turn.update]
        rate = settings.learning_rates[turn.update]
        rectified, decay = settings.is_rectified, settings.decay
        rates = rates_of(number, rate, settings.epsilon, rectified, decay)
        factor = settings.max_norm / (dtype(norm) + dtype(1e-6))
        factor = factor if factor < one else one
        follow = turn.number % settings.period == 0
        for shift in range(slices):
            item = item_of(turn, slices, shift)
            if claim(space, item, turn.phase + 3):
                if is_over:
                    stop(space)
                elif not is_finite:
                    space.report[turn.update, space.sums.shape[1] + FAULT] = 1.0
                    stop(space)
                else:
                    step(first + item, factor, rates, follow, frame)
                    if item == 0:
                        report(turn, parts, norm, frame)
                finish(space)

    @outline
    def run(share, frame):
        """Run epochs, minibatches, updates and their phases, and wait after each phase."""
        layout, space, settings = frame.layout, frame.space, frame.settings
        minibatches = (space.indices.size + settings.minibatch - 1) // settings.minibatch
        phase = done = 0
        number = settings.counters[0]
        for epoch in range(settings.epochs):
            phase += 1
            choose_all(share, minibatches, phase, epoch, frame)
            done += minibatches
            if not wait(space, done, settings.patience):
                return
            for minibatch in range(minibatches):
                number += 1
                for update in range(settings.every.size):
                    if number % settings.every[update] != 0:
                        continue
                    turn = WorkerTurn(share.worker, share.workers, update, minibatch, number, phase)
                    first = layout.updates[update]
                    slices = layout.updates[update + 1] - first
                    parts = (num_samples(minibatch, frame) + settings.part - 1) // settings.part
                    add_parts(turn, parts, frame)
                    done += parts
                    if not wait(space, done, settings.patience):
                        return
                    sum_slices(turn, first, slices, parts, frame)
                    done += slices
                    if not wait(space, done, settings.patience):
                        return
                    step_slices(turn, first, slices, parts, frame)
                    done += slices
                    if not wait(space, done, settings.patience):
                        return
                    phase += 3

    def update(share):
        run(share, share.frame)

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
