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
instructions of the tape. A `frame` (`rlcpu.nn.frame.Frame`) has all arrays and settings of a call,
and a `turn` (`WorkerTurn`) says which worker is at which minibatch, update and phase.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.kernels.calls import make_call, make_numbered_call, view
from rlcpu.kernels.compile import inline, inline_source, kernel, outline
from rlcpu.kernels.random import mix
from rlcpu.nn.adam import make_adam, make_rates, square_sum
from rlcpu.nn.frame import FAULT, NORM, STEPS, Frame, Share, WorkerTurn
from rlcpu.nn.instructions.chunk import Chunk, floats_at
from rlcpu.nn.layers.rows import add_to, fill
from rlcpu.nn.order import bits_of, shuffled
from rlcpu.nn.packed import copy_rows, network_of
from rlcpu.nn.workers import claim, finish, item_of, stop, wait

u32 = np.uint32

# ---------------------------------------------------------------- minibatches


@outline
def choose_minibatches(share, minibatches, epoch, phase, frame):
    """Choose the samples of all minibatches of an epoch; the items are minibatches.

    Positions in the batch are written to `space.indices`, and moments of the columns that
    minibatches standardise to `space.moments`.
    """
    settings, indices = frame.settings, frame.space.indices
    for shift in range(minibatches):
        item = item_of(share, minibatches, shift)
        if claim(frame.space, item, phase):
            begin = item * settings.minibatch
            samples = indices[begin : min(begin + settings.minibatch, indices.size)]
            choose_sequences(settings, epoch, indices.size, begin // settings.steps, samples)
            write_moments(frame, item, samples)
            finish(frame.space)


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
    steps, abreast = settings.steps, settings.abreast
    num_sequences, in_minibatch = count // steps, samples.size // steps
    bits, key_low, key_high = 0, u32(0), u32(0)  # of the random order
    if settings.is_shuffled:
        bits = bits_of(num_sequences)
        epochs = settings.counters[1] + epoch  # over all calls
        key_low, key_high = mix(settings.key_low, settings.key_high, u32(epochs))
    in_chunk = settings.chunk // steps  # sequences of a chunk; the last may have fewer
    for k in range(in_minibatch):
        sequence = first + k
        if settings.is_shuffled:
            position = shuffled(sequence, num_sequences, bits, key_low, key_high)
            sequence = np.int64(position)
        chunk_first = k // in_chunk * in_chunk  # first sequence of its chunk
        stride = min(in_chunk, in_minibatch - chunk_first)
        out = chunk_first * steps + k - chunk_first
        # A batch has rows of `abreast` samples, and each group of sequences `steps` rows.
        row, column = sequence // abreast * steps, sequence % abreast
        for t in range(steps):
            samples[out + t * stride] = (row + t) * abreast + column


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


# ---------------------------------------------------------------- first phase: gradients


@functools.cache
def make_compute_gradients(kind: Any) -> Callable[..., None]:
    """Make `compute_gradients(turn, frame)`; `kind` is numba's type of a `Chunk`."""
    call = make_numbered_call(lambda view: kind)

    @outline
    def compute_gradients(turn, frame):
        """Overwrite gradients and sums of the parts of a minibatch; the items are parts.

        For each, the instructions of the update run forward, and backward in the opposite order, on
        a chunk of samples at a time.
        """
        space, settings, program = frame.space, frame.settings, frame.program
        worker, real = turn.worker, space.gradients.dtype.type
        height = program.heights[turn.update]
        first, last = program.bounds[turn.update], program.bounds[turn.update + 1]
        first_sample = turn.minibatch * settings.minibatch
        for shift in range(turn.parts):
            part = item_of(turn, turn.parts, shift)
            if not claim(space, part, turn.phase + 1):
                continue
            begin = first_sample + part * settings.part
            end = min(begin + settings.part, first_sample + turn.samples)
            # Gradients of arrays; networks overwrite theirs in the first chunk.
            fill(space.gradients[part, frame.layout.parameters :], real(0))
            fill(space.sums[part], 0.0)
            for start in range(begin, end, settings.chunk):
                samples = space.indices[start : min(start + settings.chunk, end)]
                shape, cells = (height, samples.size), height * samples.size
                slopes = space.slopes[worker, :cells]
                values = Chunk(
                    worker=worker,
                    update=turn.update,
                    number=turn.number,
                    samples=samples,
                    minibatch=turn.minibatch,
                    share=real(1) / real(turn.samples),
                    is_first=start == begin,
                    rows=space.rows[worker, :cells].reshape(shape),
                    slopes=slopes.reshape(shape),
                    units=space.units[worker],
                    gradients=space.gradients[part],
                    sums=space.sums[part],
                    frame=frame,
                )
                chunk = view(values)
                for number in range(first, last):
                    call(program.instructions[number].forward, chunk, number)
                fill(slopes, real(0))
                for number in range(last - 1, first - 1, -1):
                    if program.instructions[number].backward != 0:
                        call(program.instructions[number].backward, chunk, number)
            finish(space)

    return compute_gradients


# ---------------------------------------------------------------- second phase: sums


@outline
def sum_slices(turn, frame):
    """Sum the gradients of all parts, and the squares of the sums; the items are slices."""
    space = frame.space
    for shift in range(turn.slices):
        item = item_of(turn, turn.slices, shift)
        if claim(space, item, turn.phase + 2):
            number = turn.first_slice + item
            begin, end = frame.layout.slices[number].begin, frame.layout.slices[number].end
            total = space.gradients[0, begin:end]
            for part in range(1, turn.parts):
                add_to(total, space.gradients[part, begin:end])
            space.squares[number] = square_sum(total)
            finish(space)


# ---------------------------------------------------------------- third phase: steps


@functools.cache
def make_step_slices(dtype: type) -> Callable[..., None]:
    """Make `step_slices(turn, frame)`."""
    step_slice, rates_of = make_step_slice(dtype), make_rates(dtype)
    one, tiny = dtype(1), dtype(1e-6)

    @inline
    def rates_of_turn(turn, settings):
        """Return the `Rates` of a gradient step."""
        number = turn.number // settings.every[turn.update]
        rate = settings.learning_rates[turn.update]
        rectified, decay = settings.is_rectified, settings.decay
        return rates_of(number, rate, settings.epsilon, rectified, decay)

    @outline
    def step_slices(turn, frame):
        """Step the parameters of the update, or stop all workers; the items are slices.

        They stop before a step whose loss or gradient is not finite, and where the statistic of
        `stop_above` is too large.
        """
        space, settings, first = frame.space, frame.settings, turn.first_slice
        norm = norm_of(space.squares[first : first + turn.slices])
        is_finite = are_finite(norm, total_of(space.sums, turn.parts, 0))
        is_over = exceeds_limit(turn, frame)
        rates = rates_of_turn(turn, settings)
        factor = settings.max_norm / (dtype(norm) + tiny)  # as torch.nn.utils.clip_grad_norm_
        factor = factor if factor < one else one
        moves_targets = turn.number % settings.period == 0
        for shift in range(turn.slices):
            item = item_of(turn, turn.slices, shift)
            if claim(space, item, turn.phase + 3):
                if is_over:
                    stop(space)
                elif not is_finite:
                    space.report[turn.update, space.sums.shape[1] + FAULT] = 1.0
                    stop(space)
                else:
                    step_slice(first + item, factor, rates, moves_targets, frame)
                    if item == 0:  # whoever steps the first slice reports for all
                        report(turn, norm, frame)
                finish(space)

    return step_slices


@functools.cache
def make_step_slice(dtype: type) -> Callable[..., None]:
    """Make `step_slice(number, factor, rates, moves_targets, frame)`."""
    adam = make_adam(dtype)

    @outline
    def step_slice(number, factor, rates, moves_targets, frame):
        """Step one slice by Adam, write its transposed copies, and move its target's slice.

        Args:
            number: of the slice.
            factor: of its gradients, 1 or less.
            rates: see `rlcpu.nn.adam.Rates`.
            moves_targets: whether targets move at this minibatch.
            frame: of the call. Of its layout, here.network is -1 in a slice of an array, and
                targets[k] is -1 for a network without a target; its packed parameters lie behind
                free[k] others.
        """
        learnt, layout, space = frame.learnt, frame.layout, frame.space
        here = layout.slices[number]
        k, begin, end = here.network, here.begin, here.end
        parameters, gradients = learnt.parameters[begin:end], space.gradients[0, begin:end]
        adam(
            parameters, gradients, learnt.first[begin:end], learnt.second[begin:end], factor, rates
        )
        if k < 0:  # of an array, which has neither copies nor a target
            return
        layer = layout.tables[k, here.step]
        if begin == layout.begins[k] + layout.free[k]:  # the first slice of a network
            space.stepped[k] += 1
        if layer.is_transposed != 0:  # the only copies that a forward pass reads
            network = network_of(learnt.parameters, learnt.copies, layout, k)
            copy_rows(layer, network, here.first_row, here.end_row)
        target = layout.targets[k]
        if moves_targets and target >= 0:
            shift = layout.begins[target] - layout.begins[k]
            targets = learnt.parameters[begin + shift : end + shift]
            approach(targets, parameters, frame.settings.tau)
            if layer.is_transposed != 0:
                network = network_of(learnt.parameters, learnt.copies, layout, target)
                copy_rows(layer, network, here.first_row, here.end_row)

    return step_slice


@outline
def approach(targets, parameters, tau):
    """Move targets a share tau of the way to parameters."""
    for i in range(targets.size):
        targets[i] += tau * (parameters[i] - targets[i])


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


@inline
def exceeds_limit(turn, frame):
    """Tell whether the mean of the statistic of `stop_above` is above its limit.

    It is number `settings.watched` of the first update; -1 for none.
    """
    settings = frame.settings
    if settings.watched < 0 or turn.update != 0:
        return False
    total = total_of(frame.space.sums, turn.parts, settings.watched)
    return total / turn.samples > settings.limit


@outline
def report(turn, norm, frame):
    """Add a minibatch's means of loss and statistics, and the norm, to the report."""
    sums, row = frame.space.sums, frame.space.report[turn.update]
    count = sums.shape[1]
    for k in range(count):
        row[k] += total_of(sums, turn.parts, k) / turn.samples
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
    compute_gradients, step_slices = make_compute_gradients(kind), make_step_slices(dtype)

    def update(share):
        """Run all epochs, minibatches and updates as one of the workers, phase after phase.

        It waits after each phase until the items of all phases so far, `done`, are done.
        """
        frame = share.frame
        layout, space, settings = frame.layout, frame.space, frame.settings
        count, size, patience = space.indices.size, settings.minibatch, settings.patience
        minibatches = (count + size - 1) // size
        phase = done = 0
        number = settings.counters[0]  # of the minibatch, over all calls
        for epoch in range(settings.epochs):
            phase += 1
            choose_minibatches(share, minibatches, epoch, phase, frame)
            done += minibatches
            if not wait(space, done, patience):
                return
            for minibatch in range(minibatches):
                number += 1
                samples = min(size, count - minibatch * size)
                parts = (samples + settings.part - 1) // settings.part
                for k in range(settings.every.size):
                    if number % settings.every[k] != 0:
                        continue
                    first, slices = layout.updates[k], layout.updates[k + 1] - layout.updates[k]
                    turn = WorkerTurn(
                        share.worker, share.workers, k, minibatch, number, samples, parts, first,
                        slices, phase,
                    )  # fmt: skip
                    compute_gradients(turn, frame)
                    done += parts
                    if not wait(space, done, patience):
                        return
                    sum_slices(turn, frame)
                    done += slices
                    if not wait(space, done, patience):
                        return
                    step_slices(turn, frame)
                    done += slices
                    if not wait(space, done, patience):
                        return
                    phase += 3

    return kernel(update, by_address=True)


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
