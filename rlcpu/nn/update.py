"""The kernel of updates: minibatches, gradients, clipping, Adam, and targets that follow.

One call learns from minibatches one after the other, of samples in a new order for each epoch or of
samples as they lie. On each, the updates of an algorithm follow each other (critics, then the
actor), and each takes three phases. The *items* of a phase are shared among workers, threads that
each run `update` (see `rlcpu.nn.workers`):

    gradient    items are *parts* of the minibatch, each with a gradient of its own
    sum         items are *slices* of what is learnt (`rlcpu.nn.flat`): the gradients of all parts
                are added in order, and their squares
    step        the same slices: Adam, and the targets

The result of an item does not depend on the worker that computes it, so that an update does not
depend on the number of threads. The kernel is the same for all algorithms and networks: it runs the
instructions of the tape. A `frame` has all arrays and settings of a call, and a `turn` says which
worker is at which minibatch, update and phase.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.calls import kind_of, make_call, make_numbered_call, view
from rlcpu.kernels.compile import inline, inline_source, kernel, outline
from rlcpu.kernels.random import mix
from rlcpu.nn.adam import make_adam, make_rates, square_sum
from rlcpu.nn.flat import LearntLayout
from rlcpu.nn.instructions.chunk import Chunk, floats_at
from rlcpu.nn.layers.rows import fill
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
        per_sample: (any, S), statistics that the algorithm writes for each sample.
        states: (num_networks,) int64, addresses of the states of sequences before their first time
            step, (sequences, state size) float32, of each network with memory.
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
        gradients: (num_parts, P); the first part's become the sum of all, then
            what a step takes off the parameters.
        sums: (num_parts, num_sums) float64, of losses and statistics.
        squares: (num_slices,) float64, sums of the squares of gradients.
        units, network_slopes: (num_workers, any), numbers between the layers of networks, and
            scratch of their backward passes, of each worker.
        rows, slopes: (num_workers, any), those of `Chunk` of each worker.
        copies: (num_workers, C), transposed weights that backward passes of a worker read. Each
            makes its own: to write those of all takes longer, as other caches have them.
        stepped: (num_networks,) int64, how often each network was stepped.
        copied: (num_workers, num_networks) int64, the number of steps after which a worker made
            its copies of a network; -1 for copies that are to be made anew.
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
    network_slopes: Any
    rows: Any
    slopes: Any
    copies: Any
    stepped: Any
    copied: Any
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
        update: number of the update of the algorithm.
        minibatch: its number in the epoch.
        number: of the minibatch, from 1 on, over all calls.
        phase: number of phases before this update.
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
    """Choose the samples of a minibatch of an epoch, both given by their numbers.

    Positions in the batch are written to the minibatch's part of `space.indices`, and moments of
    the columns that minibatches standardise to `space.moments`.
    """
    settings, count = frame.settings, frame.space.indices.size
    begin = minibatch * settings.minibatch
    samples = frame.space.indices[begin : min(begin + settings.minibatch, count)]
    # Sequences have `steps` samples each, 1 without memory.
    choose_sequences(settings, epoch, count, begin // settings.steps, samples)
    write_moments(frame, minibatch, samples)


@inline_source
def choose_sequences(settings, epoch, count, first, samples):
    """Write the samples of whole sequences of a minibatch; single samples are sequences of one.

    The samples of a chunk lie time step after time step, as networks with memory read them. In the
    batch, `abreast` sequences lie side by side (see `rlcpu.nn.settings.LearnerSettings`).

    Args:
        settings: `UpdateSettings`.
        epoch: its number in this call.
        count: samples of the batch.
        first: position of the first sequence in the order of the epoch.
        samples: int64, overwritten with positions in the batch.
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


@inline_source
def write_moments(frame, minibatch, samples):
    """Write mean and inverse deviation of standardised columns over a minibatch's samples.

    Of a single sample they are 0 and 1.
    """
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
    """Make `gradient(turn, part, frame)`; `kind` is numba's type of a `Chunk`."""
    call = make_numbered_call(lambda view: kind)

    @outline
    def gradient(turn, part, frame):
        """Overwrite the gradients and sums of a part (its number) of a minibatch.

        Runs the instructions of an update forward and backward, a chunk of samples at a time.
        """
        space, settings, worker = frame.space, frame.settings, turn.worker
        real, minibatch_size = space.gradients.dtype.type, num_samples(turn.minibatch, frame)
        first_sample = turn.minibatch * settings.minibatch
        begin = first_sample + part * settings.part
        end = min(begin + settings.part, first_sample + minibatch_size)
        program, height = frame.program, frame.program.heights[turn.update]
        # Gradients of arrays; networks overwrite theirs in the first chunk.
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
                real(1) / real(minibatch_size),
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
    """Add the gradients of a part to the total."""
    for i in range(total.size):
        total[i] += part[i]


@outline
def approach(targets, parameters, tau):
    """Move targets a share tau of the way to parameters."""
    for i in range(targets.size):
        targets[i] += tau * (parameters[i] - targets[i])


@functools.cache
def make_step(dtype: type) -> Callable[..., None]:
    """Make `step(item, factor, rates, moves_targets, frame)`."""
    adam = make_adam(dtype)

    @outline
    def step(item, factor, rates, moves_targets, frame):
        """Step one slice by Adam, and move its target's slice.

        Args:
            item: number of the slice.
            factor: of its gradients.
            rates: see `rlcpu.nn.adam.Rates`.
            moves_targets: whether targets move at this minibatch.
            frame: of the call.
        """
        learnt, layout, space = frame.learnt, frame.layout, frame.space
        cut = layout.slices[item]
        k, first, last, begin, end = cut.network, cut.first, cut.last, cut.begin, cut.end
        parameters = learnt.parameters[begin:end]
        moments = learnt.first[begin:end], learnt.second[begin:end]
        adam(parameters, space.gradients[0, begin:end], moments[0], moments[1], factor, rates)
        if k < 0:  # of an array
            return
        layer = layout.tables[k, cut.step]
        if begin == layout.begins[k] + layout.free[k]:  # the first slice of a network
            space.stepped[k] += 1
        if layer.is_transposed != 0:  # the only copies that a forward pass reads
            copy_rows(layer, network_of(learnt.parameters, learnt.copies, layout, k), first, last)
        target = layout.targets[k]
        if moves_targets and target >= 0:
            shift = layout.begins[target] - layout.begins[k]
            tau = frame.settings.tau
            approach(learnt.parameters[begin + shift : end + shift], parameters, tau)
            if layer.is_transposed != 0:
                network = network_of(learnt.parameters, learnt.copies, layout, target)
                copy_rows(layer, network, first, last)

    return step


# ---------------------------------------------------------------- phases


@outline
def choose_all(share, minibatches, phase, epoch, frame):
    """Choose the samples of all minibatches of an epoch; the items are minibatches."""
    for shift in range(minibatches):
        item = item_of(share, minibatches, shift)
        if claim(frame.space, item, phase):
            choose_samples(frame, epoch, item)
            finish(frame.space)


@outline
def sum_slices(turn, first, slices, parts, frame):
    """Sum the gradients of all parts, and the squares of the sums; the items are slices.

    Args:
        turn: of the worker.
        first: number of the update's first slice.
        slices: how many it has.
        parts: how many parts the minibatch has.
        frame: of the call.
    """
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
    """Tell whether both are finite; in reassociated arithmetic, isfinite would always be True."""
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
    """Add a minibatch's means of loss and statistics, and the norm, to the report."""
    sums, row = frame.space.sums, frame.space.report[turn.update]
    count, samples = sums.shape[1], num_samples(turn.minibatch, frame)
    for k in range(count):
        row[k] += total_of(sums, parts, k) / samples
    row[count + NORM] += norm
    row[count + STEPS] += 1.0


# ---------------------------------------------------------------- the whole call


@functools.cache
def make_update(dtype: type, kind: Any) -> Callable[..., None]:
    """Make the function of a worker, `update(share)`, compiled to be called by address.

    Args:
        dtype: in which gradients and moments are computed.
        kind: numba's type of a `Chunk`; `share` is a `View(share_kind(kind))`.
    """
    gradient, step_slices = make_gradient(kind), make_step_slices(dtype)

    @outline
    def compute_gradients(turn, parts, frame):
        """Compute the gradients of a minibatch; the items are its parts."""
        for shift in range(parts):
            item = item_of(turn, parts, shift)
            if claim(frame.space, item, turn.phase + 1):
                gradient(turn, item, frame)
                finish(frame.space)

    @outline
    def make_gradient_step(turn, done, frame):
        """Run the three phases of an update on a minibatch, and wait after each.

        Returns:
            The items of all phases that are done then, of which there were `done` before; -1 if the
            worker is to leave.
        """
        layout, space, settings = frame.layout, frame.space, frame.settings
        first = layout.updates[turn.update]
        slices = layout.updates[turn.update + 1] - first
        parts = (num_samples(turn.minibatch, frame) + settings.part - 1) // settings.part
        compute_gradients(turn, parts, frame)
        done += parts
        if not wait(space, done, settings.patience):
            return -1
        sum_slices(turn, first, slices, parts, frame)
        done += slices
        if not wait(space, done, settings.patience):
            return -1
        step_slices(turn, first, slices, parts, frame)
        done += slices
        return done if wait(space, done, settings.patience) else -1

    def update(share):
        """Run all epochs, minibatches and updates as one of the workers."""
        frame = share.frame
        space, settings = frame.space, frame.settings
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
                for k in range(settings.every.size):
                    if number % settings.every[k] != 0:
                        continue
                    turn = WorkerTurn(share.worker, share.workers, k, minibatch, number, phase)
                    done = make_gradient_step(turn, done, frame)
                    if done < 0:
                        return
                    phase += 3

    return kernel(update, by_address=True)


@functools.cache
def make_step_slices(dtype: type) -> Callable[..., None]:
    """Make `step_slices(turn, first, slices, parts, frame)`."""
    step, rates_of, one = make_step(dtype), make_rates(dtype), dtype(1)

    @inline
    def rates_of_turn(turn, settings):
        """Return the `Rates` of a gradient step."""
        number = turn.number // settings.every[turn.update]
        rate = settings.learning_rates[turn.update]
        rectified, decay = settings.is_rectified, settings.decay
        return rates_of(number, rate, settings.epsilon, rectified, decay)

    @outline
    def step_slices(turn, first, slices, parts, frame):
        """Step slices, or stop all workers; for the arguments see `sum_slices`.

        They stop before a step whose loss or gradient is not finite, and where the statistic of
        `stop_above` is too large.
        """
        space, settings = frame.space, frame.settings
        norm = norm_of(space.squares[first : first + slices])
        is_finite = are_finite(norm, total_of(space.sums, parts, 0))
        is_over = exceeds_limit(turn, parts, frame)
        rates = rates_of_turn(turn, settings)
        factor = settings.max_norm / (dtype(norm) + dtype(1e-6))
        factor = factor if factor < one else one
        moves_targets = turn.number % settings.period == 0
        for shift in range(slices):
            item = item_of(turn, slices, shift)
            if claim(space, item, turn.phase + 3):
                if is_over:
                    stop(space)
                elif not is_finite:
                    space.report[turn.update, space.sums.shape[1] + FAULT] = 1.0
                    stop(space)
                else:
                    step(first + item, factor, rates, moves_targets, frame)
                    if item == 0:
                        report(turn, parts, norm, frame)
                finish(space)

    return step_slices


@inline
def exceeds_limit(turn, parts, frame):
    """Tell whether the mean of the statistic of `stop_above` is above its limit."""
    settings = frame.settings
    if settings.watched < 0 or turn.update != 0:
        return False
    total = total_of(frame.space.sums, parts, settings.watched)
    return total / num_samples(turn.minibatch, frame) > settings.most


def share_kind(kind: Any) -> Any:
    """Return numba's type of a `Share`, from that of a `Chunk`."""
    return kind_of(Share(0, 1, kind.types[-1].kind))


@functools.cache
def make_kernel(kind: Any) -> Callable[..., None]:
    """Make the kernel `update_share(address, worker, workers, *fields of a `Frame`)`.

    It calls the function of `make_update` at the address: that is the same machine code for all
    networks and losses, and only this small kernel is compiled for their types. `kind` is numba's
    type of a `Share`.
    """
    call = make_call(kind)

    @kernel
    def update_share(address, worker, workers, learnt, layout, program, batch, space, settings):
        frame = Frame(learnt, layout, program, batch, space, settings)
        call(address, Share(worker, workers, frame))

    return update_share
