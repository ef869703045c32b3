"""The kernel of updates: minibatches, gradients, clipping, Adam, and targets that follow.

One call learns from minibatches one after the other, of samples in a new order for each epoch or of
samples as they lie. On each, the updates of an algorithm follow each other (critics, then the
actor), and each takes three phases. The *items* of a phase are shared among workers, threads that
each run `update` (see `rlcpu.nn.learning.workers`):

    gradient    items are *parts* of the minibatch, each with a gradient of its own
    sum         items are *slices* of what is learnt (`rlcpu.nn.network.flat`): the gradients of all
    parts
                are added in order, and their squares
    step        the same slices: Adam, and the targets

The result of an item does not depend on the worker that computes it, so that an update does not
depend on the number of threads. The kernel is the same for all algorithms and networks: it runs the
instructions of the tape. A `frame` (`rlcpu.nn.learning.frame.Frame`) has all arrays and settings of
a call, and a `turn` (`WorkerTurn`) says which worker is at which minibatch, update and phase.
"""

from __future__ import annotations

import numpy as np

from rlcpu.kernels.compiler.compile import inline, inline_source, outline, prefer_small_code
from rlcpu.kernels.machine.memory import call_at, part
from rlcpu.kernels.machine.random import mix
from rlcpu.kernels.machine.structs import Struct, Whole
from rlcpu.nn.layers.rows import add_to, fill
from rlcpu.nn.learning.adam import rates_of, step_parameters
from rlcpu.nn.learning.frame import FAULT, NORM, STEPS
from rlcpu.nn.learning.instructions.chunk import Chunk, floats_at
from rlcpu.nn.learning.order import bits_of, shuffled
from rlcpu.nn.learning.workers import claim, finish, item_of, stop, wait
from rlcpu.nn.network.packed import copy_rows, packed_at

u32 = np.uint32


class WorkerTurn(Struct):
    """Position of a worker in a call: an update on a minibatch."""

    worker = Whole()  #: its number
    workers = Whole()  #: how many there are
    update = Whole()  #: number of the update of the algorithm
    minibatch = Whole()  #: its number in the epoch
    number = Whole()  #: of the minibatch, from 1 on, over all calls
    samples = Whole()  #: of the minibatch, how many
    parts = Whole()  #: of the minibatch, how many
    first_slice = Whole()  #: number of the first slice that the update learns
    slices = Whole()  #: how many it learns
    phase = Whole()  #: number of phases before this update


# ---------------------------------------------------------------- minibatches


@outline
def choose_minibatches(share, minibatches, epoch, phase, frame):
    """Choose the samples of all minibatches of an epoch; the items are minibatches.

    Positions in the batch are written to `space.indices`, and moments of the columns that
    minibatches standardise to `space.moments`.
    """
    prefer_small_code()
    settings, indices = frame.settings, frame.space.indices
    for shift in range(minibatches):
        item = item_of(share, minibatches, shift)
        if claim(frame.space, item, phase):
            begin = item * settings.minibatch
            samples = part(indices, begin, min(settings.minibatch, indices.size - begin))
            choose_sequences(settings, epoch, indices.size, begin // settings.steps, samples)
            write_moments(frame, item, samples)
            finish(frame.space)


@inline_source
def choose_sequences(settings, epoch, count, first, samples):
    """Write the samples of whole sequences of a minibatch; single samples are sequences of one.

    The samples of a chunk lie time step after time step, as networks with memory read them. In the
    batch, `abreast` sequences lie side by side (see `rlcpu.nn.learning.settings.LearnerSettings`).

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
        key_low, key_high = mix(u32(settings.key_low), u32(settings.key_high), u32(epochs))
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


@inline_source
def write_moments(frame, minibatch, samples):
    """Write mean and inverse deviation of standardised columns over a minibatch's samples.

    The deviation is a little above 0. Of a single sample they are 0 and 1.
    """
    moments, count = frame.space.moments, samples.size
    for k in range(frame.settings.standardised.size):
        moments[minibatch, k, 0], moments[minibatch, k, 1] = 0.0, 1.0
        if count > 1:
            values = frame.batch.columns[frame.settings.standardised[k]].values
            column = floats_at(values, frame.space.indices.size)
            total, squares = 0.0, 0.0
            for i in range(count):
                total += column[samples[i]]
            mean = total / count
            for i in range(count):
                squares += (column[samples[i]] - mean) ** 2
            moments[minibatch, k, 0] = mean
            moments[minibatch, k, 1] = 1.0 / (np.sqrt(squares / (count - 1)) + 1e-8)


# ---------------------------------------------------------------- first phase: gradients


@outline
def compute_gradients(turn, frame):
    """Overwrite gradients and sums of the parts of a minibatch; the items are parts.

    For each, the instructions of the update run forward, and backward in the opposite order, on a
    chunk of samples at a time.
    """
    prefer_small_code()
    space, settings, program = frame.space, frame.settings, frame.program
    worker, real, instructions = turn.worker, space.gradients.dtype.type, program.instructions
    height, num_parameters = program.heights[turn.update], space.num_parameters
    first, last = program.bounds[turn.update], program.bounds[turn.update + 1]
    first_sample = turn.minibatch * settings.minibatch
    for shift in range(turn.parts):
        item = item_of(turn, turn.parts, shift)
        if not claim(space, item, turn.phase + 1):
            continue
        begin = first_sample + item * settings.part
        end = min(begin + settings.part, first_sample + turn.samples)
        # Gradients of arrays; networks overwrite theirs in the first chunk.
        gradients = part(space.gradients, item * num_parameters, num_parameters)
        place = frame.layout.parameters
        fill(part(gradients, place, num_parameters - place), real(0))
        sums = part(space.sums, item * space.num_sums, space.num_sums)
        fill(sums, 0.0)
        for start in range(begin, end, settings.chunk):
            count = min(settings.chunk, end - start)
            slopes = part(space.slopes, worker * space.num_cells, height * count)
            chunk = Chunk(
                worker=worker,
                update=turn.update,
                number=turn.number,
                count=count,
                samples=part(space.indices, start, count),
                minibatch=turn.minibatch,
                share=real(1) / real(turn.samples),
                is_first=start == begin,
                height=height,
                rows=part(space.rows, worker * space.num_cells, height * count),
                slopes=slopes,
                units=part(space.units, worker * space.num_units, space.num_units),
                gradients=gradients,
                sums=sums,
                frame=frame,
            )
            for number in range(first, last):
                call_at(instructions[number].forward, (chunk, instructions[number]))
            fill(slopes, real(0))
            for number in range(last - 1, first - 1, -1):
                if instructions[number].backward != 0:
                    call_at(instructions[number].backward, (chunk, instructions[number]))
        finish(space)


# ---------------------------------------------------------------- second phase: sums


@outline
def sum_slices(turn, frame):
    """Sum the gradients of all parts, and the squares of the sums; the items are slices."""
    space = frame.space
    for shift in range(turn.slices):
        item = item_of(turn, turn.slices, shift)
        if claim(space, item, turn.phase + 2):
            number = turn.first_slice + item
            begin = frame.layout.slices[number].begin
            size = frame.layout.slices[number].end - begin
            total = part(space.gradients, begin, size)
            for k in range(1, turn.parts):
                add_to(total, part(space.gradients, k * space.num_parameters + begin, size))
            squares = total.dtype.type(0)
            for i in range(size):
                squares += total[i] * total[i]
            space.squares[number] = squares
            finish(space)


# ---------------------------------------------------------------- third phase: steps


def step_slices(turn, frame):
    """Step the parameters of the update, or stop all workers; the items are slices.

    An update that is measured is only reported. They stop before a step whose loss or gradient is
    not finite, and where the statistic of `stop_above` is too large.
    """
    prefer_small_code()
    space, settings, learnt = frame.space, frame.settings, frame.learnt
    squares = part(space.squares, turn.first_slice, turn.slices)
    norm, is_finite = norm_of(squares, total_of(space.sums, turn.parts, 0))
    is_over = False  # whether the statistic of `stop_above` is above its limit
    if settings.watched >= 0 and turn.update == 0:
        mean = total_of(space.sums, turn.parts, settings.watched) / turn.samples
        is_over = mean > settings.limit
    rates = rates_of(
        turn.number // settings.every[turn.update],
        settings.learning_rates[turn.update],
        float(settings.epsilon),
        settings.is_rectified,
        float(settings.decay),
        space.gradients.dtype.type,
    )
    # As torch.nn.utils.clip_grad_norm_.
    factor = min(float(settings.max_norm) / (float(norm) + 1e-6), 1.0)
    moves_targets = turn.number % settings.period == 0
    for shift in range(turn.slices):
        item = item_of(turn, turn.slices, shift)
        if claim(space, item, turn.phase + 3):
            if settings.measured >= 0:
                if item == 0:
                    report(turn, norm, frame)
            elif is_over:
                stop(space)
            elif not is_finite:
                space.report[turn.update, space.num_sums + FAULT] = 1.0
                stop(space)
            else:
                number = turn.first_slice + item
                begin = frame.layout.slices[number].begin
                size = frame.layout.slices[number].end - begin
                step_parameters(
                    part(learnt.parameters, begin, size),
                    part(space.gradients, begin, size),
                    part(learnt.first, begin, size),
                    part(learnt.second, begin, size),
                    factor,
                    rates,
                )
                write_slice(number, moves_targets, frame)
                if item == 0:  # whoever steps the first slice reports for all
                    report(turn, norm, frame)
            finish(space)


@outline
def write_slice(number, moves_targets, frame):
    """Write the transposed copies of a slice, and move its target's slice.

    Args:
        number: of the slice.
        moves_targets: whether targets move at this minibatch.
        frame: of the call. Of its layout, here.network is -1 in a slice of an array, which has
            neither copies nor a target, and targets[k] is -1 for a network without a target; its
            packed parameters lie behind free[k] others.
    """
    prefer_small_code()
    layout, space, parameters = frame.layout, frame.space, frame.learnt.parameters
    here = layout.slices[number]
    k, begin, size = here.network, here.begin, here.end - here.begin
    if k < 0:
        return
    if begin == layout.begins[k] + layout.free[k]:  # the first slice of a network
        space.stepped[k] += 1
    write_copies(packed_at(space.networks[k], parameters), here)
    target = layout.targets[k]
    if moves_targets and target >= 0:
        shift = layout.begins[target] - layout.begins[k]
        targets = part(parameters, begin + shift, size)
        approach(targets, part(parameters, begin, size), frame.settings.tau)
        write_copies(packed_at(space.networks[target], parameters), here)


@inline
def write_copies(network, here):
    """Write the copies of a slice's weights that are the only ones that a forward pass reads."""
    step = network.table[here.step]
    if step.is_transposed != 0:
        copy_rows(step, network, here.first_row, here.end_row)


@outline
def approach(targets, parameters, tau):
    """Move targets a share tau of the way to parameters."""
    share = targets.dtype.type(tau)
    for i in range(targets.size):
        targets[i] += share * (parameters[i] - targets[i])


@inline(exact=True)
def norm_of(squares, loss):
    """Return the norm of a gradient, from sums of squares of its slices, and whether all is finite.

    All is the norm and the loss; in reassociated arithmetic, isfinite would always be True.
    """
    total = 0.0
    for square in squares:
        total += square
    norm = np.sqrt(total)
    return norm, np.isfinite(norm) and np.isfinite(loss)


@inline(exact=True)
def total_of(sums, parts, k):
    """Return the sum of statistic k over the parts of a minibatch."""
    total = 0.0
    for number in range(parts):
        total += sums[number, k]
    return total


@outline
def report(turn, norm, frame):
    """Add a minibatch's means of loss and statistics, and the norm, to the report."""
    prefer_small_code()
    space, row, count = frame.space, turn.update, frame.space.num_sums
    for k in range(count):
        space.report[row, k] += total_of(space.sums, turn.parts, k) / turn.samples
    space.report[row, count + NORM] += norm
    space.report[row, count + STEPS] += 1.0


# ---------------------------------------------------------------- the whole call


def update(share):
    """Run all epochs, minibatches and updates as one of the workers, phase after phase.

    `share` is a `Share`. It is compiled in the dtype of gradients and moments, to be called by
    address. It waits after each phase until the items of all phases so far, `done`, are done.
    """
    prefer_small_code()
    frame = share.frame
    layout, space, settings = frame.layout, frame.space, frame.settings
    count, size, patience = space.size, settings.minibatch, settings.patience
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
            for k in range(settings.num_updates):
                is_next = number % settings.every[k] == 0
                if settings.measured >= 0:
                    is_next = k == settings.measured
                if not is_next:
                    continue
                turn = WorkerTurn(
                    worker=share.worker,
                    workers=share.workers,
                    update=k,
                    minibatch=minibatch,
                    number=number,
                    samples=samples,
                    parts=(samples + settings.part - 1) // settings.part,
                    first_slice=layout.updates[k],
                    slices=layout.updates[k + 1] - layout.updates[k],
                    phase=phase,
                )
                compute_gradients(turn, frame)
                done += turn.parts
                if not wait(space, done, patience):
                    return
                sum_slices(turn, frame)
                done += turn.slices
                if not wait(space, done, patience):
                    return
                step_slices(turn, frame)
                done += turn.slices
                if not wait(space, done, patience):
                    return
                phase += 3
