"""One update of PPO in one kernel: epochs, minibatches, gradients, clipping, Adam.

Workers share the gradient of a minibatch as items (network, part): a part is at most `PART` samples
and has a gradient of its own; parts are added in order. So the result is the same for any number of
workers. Within a part, chunks of `CHUNK` samples pass forward, loss and backward while everything
is in the second-level cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compile import inline, kernel, specialise
from rlcpu.kernels.random import mix
from rlcpu.train import adam as optimiser
from rlcpu.train.network import (
    CELLS,
    WIDTH_IN,
    WIDTH_OUT,
    Network,
    make_backward,
    make_forward,
    refresh_copies,
)
from rlcpu.train.objective import (
    ADVANTAGE,
    DIVERGENCE,
    HEADS,
    NUM_SUMS,
    OLD_LOG_PROB,
    TARGET,
    Weights,
    fill,
    make_categorical,
    make_gaussian,
    make_value,
)
from rlcpu.train.phases import Board, claim, finish, stop, wait

#: Samples of a part; two parts of each network keep four cores busy on minibatches of 256.
PART = 128
#: Samples of a chunk: 64 samples of 64-64 are 50 KB beside 55 KB of weights and gradients.
CHUNK = 64
#: The networks see observations clipped to this many standard deviations.
CLIP_OBSERVATION = np.float32(10)

u32 = np.uint32


class Batch(NamedTuple):
    """S samples of a rollout.

    Attributes:
        observations: (S * observation_size,) float32.
        mean, scale: (observation_size,) float32, of the policy that collected.
        actions: (S,) int64 of `Discrete` or (S * action_size,) float32 of `Box`.
        log_probs, advantages, targets: (S,) float32; targets are returns to learn the value from.
    """

    observations: Any
    mean: Any
    scale: Any
    actions: Any
    log_probs: Any
    advantages: Any
    targets: Any


class Learner(NamedTuple):
    """What an update changes and a checkpoint keeps.

    One flat vector holds the logarithms of the standard deviations (padded) and then the packed
    parameters of each network; see `rlcpu.train.network`.

    Attributes:
        parameters, first, second: (P,), the vector and its moments in Adam.
        copies: (C,), transposed weights of all networks.
    """

    parameters: Any
    first: Any
    second: Any
    copies: Any


class Layout(NamedTuple):
    """Where the networks are in the flat vectors.

    Attributes:
        tables: (num_networks, num_layers, 8) int64; the policy's, then the value network's.
        activation: TANH or RELU.
        begins, copies_begins: (num_networks + 1,) int64, bounds in parameters and in copies.
        actions: number of actions, or of numbers in one.
        value_column: output of the policy network that is the value, or -1.
    """

    tables: Any
    activation: int
    begins: Any
    copies_begins: Any
    actions: int
    value_column: int


class Space(NamedTuple):
    """Scratch memory, overwritten.

    Attributes:
        indices: (S,) int64, the samples in the order of the epoch.
        moments: (num_minibatches, 2), mean and inverse deviation of each minibatch's advantages.
        gradients: (num_parts, P).
        sums: (num_items, NUM_SUMS) float64; see `rlcpu.train.objective`.
        cells, slopes, lanes, totals: (num_workers, any), scratch of one worker.
        claims, done: see `rlcpu.train.phases.Board`.
        report: (NUM_SUMS + 2,) float64, means of the sums over the minibatches, then the mean norm
            of the gradient, then the number of gradient steps taken.
    """

    indices: Any
    moments: Any
    gradients: Any
    sums: Any
    cells: Any
    slopes: Any
    lanes: Any
    totals: Any
    claims: Any
    done: Any
    report: Any


class Settings(NamedTuple):
    """Numbers of one update; reals are of the learner's dtype.

    Attributes:
        epochs, minibatch_size: see `PPOConfig`.
        normalize: 1 to normalise advantages.
        learning_rate, epsilon: of Adam.
        clip, entropy, value: see `Weights`.
        max_norm: the gradient is scaled down to this norm.
        max_divergence: the update ends at a minibatch that has diverged further.
        steps, shuffles: gradient steps and epochs before this update.
        key_low, key_high: uint32, of the random stream that shuffles.
        patience: see `phases.wait`.
    """

    epochs: int
    minibatch_size: int
    normalize: int
    learning_rate: Any
    epsilon: Any
    clip: Any
    entropy: Any
    value: Any
    max_norm: Any
    max_divergence: Any
    steps: int
    shuffles: int
    key_low: Any
    key_high: Any
    patience: int


@inline
def shuffled(position, count, bits, a, b):  # type: ignore[no-untyped-def]
    """Image of `position` under a random permutation of range(count), chosen by uint32 a and b.

    Rounds of odd multiplication and xor-shift permute the numbers of `bits` bits; those outside
    of the range are sent on until they come back to it.
    """
    mask, shift = u32((1 << bits) - 1), u32((bits + 1) // 2)
    x = u32(position)
    while True:
        for _ in range(2):
            x = u32(u32(x * u32(a | u32(1))) + b) & mask
            x = u32(x ^ (x >> shift))
            x = u32(u32(x * u32(b | u32(1))) + a) & mask
            x = u32(x ^ (x >> shift))
        if x < count:
            return x


@inline
def bits_of(count):  # type: ignore[no-untyped-def]
    """Bits that number range(count), at least 1."""
    bits = 1
    while (1 << bits) < count:
        bits += 1
    return bits


@inline
def network_of(learner, layout, k):  # type: ignore[no-untyped-def]
    """Network number k in the flat vectors."""
    begin, end = layout.begins[k], layout.begins[k + 1]
    first, last = layout.copies_begins[k], layout.copies_begins[k + 1]
    parameters, copies = learner.parameters[begin:end], learner.copies[first:last]
    return Network(layout.tables[k], layout.activation, parameters, copies)


@kernel
def refresh_all(learner, layout):  # type: ignore[no-untyped-def]
    """Make the transposed weights of all networks anew."""
    for k in range(layout.tables.shape[0]):
        refresh_copies(network_of(learner, layout, k))


@functools.cache
def make_shuffle(dtype: type) -> Callable[..., None]:
    """`shuffle(batch, space, settings, epoch, minibatch)`: draw its samples, and their moments."""
    zero, one = dtype(0), dtype(1)

    @inline
    def shuffle(batch, space, settings, epoch, minibatch):  # type: ignore[no-untyped-def]
        count = space.indices.size
        bits = bits_of(count)
        begin = minibatch * settings.minibatch_size
        end = min(begin + settings.minibatch_size, count)
        a, b = mix(settings.key_low, settings.key_high, u32(settings.shuffles + epoch))
        total = 0.0
        for i in range(begin, end):
            sample = np.int64(shuffled(i, count, bits, a, b))
            space.indices[i] = sample
            total += batch.advantages[sample]
        size = end - begin
        mean = total / size
        squares = 0.0
        for i in range(begin, end):
            squares += (batch.advantages[space.indices[i]] - mean) ** 2
        normal = settings.normalize != 0 and size > 1
        space.moments[minibatch, 0] = dtype(mean) if normal else zero
        deviation = np.sqrt(squares / max(size - 1, 1)) + 1e-8
        space.moments[minibatch, 1] = dtype(1.0 / deviation) if normal else one

    return shuffle


@functools.cache
def make_gather(dtype: type, discrete: bool) -> Callable[..., None]:
    """`gather(batch, samples, cells, width, lanes, moments, actions)`: one chunk of the batch."""
    zero = dtype(0)

    @inline
    def gather(batch, samples, cells, width, lanes, moments, actions):  # type: ignore[no-untyped-def]
        size = batch.mean.size
        old, advantages, targets = lanes[OLD_LOG_PROB], lanes[ADVANTAGE], lanes[TARGET]
        mean, scale = moments[0], moments[1]
        for i in range(samples.size):
            sample = samples[i]
            row = cells[i * width : (i + 1) * width]
            for k in range(size):
                x = (batch.observations[sample * size + k] - batch.mean[k]) * batch.scale[k]
                x = -CLIP_OBSERVATION if x < -CLIP_OBSERVATION else x
                row[k] = CLIP_OBSERVATION if x > CLIP_OBSERVATION else x
            for k in range(size, width):
                row[k] = zero
            old[i] = batch.log_probs[sample]
            advantages[i] = (dtype(batch.advantages[sample]) - mean) * scale
            targets[i] = batch.targets[sample]
            if discrete:
                lanes[HEADS + actions, i] = batch.actions[sample]
            else:
                for k in range(actions):
                    lanes[HEADS + actions + k, i] = batch.actions[sample * actions + k]

    return gather


@functools.cache
def make_gradient(dtype: type, discrete: bool) -> Callable[..., None]:
    """`gradient(worker, k, part, minibatch, learner, layout, batch, space, settings)`."""
    forward, backward = make_forward(dtype), make_backward(dtype)
    gather = make_gather(dtype, discrete)
    policy_loss = (make_categorical if discrete else make_gaussian)(dtype)
    value_loss = make_value(dtype)
    zero, one = dtype(0), dtype(1)

    @inline
    def gradient(worker, k, part, minibatch, learner, layout, batch, space, settings):  # type: ignore[no-untyped-def]
        network = network_of(learner, layout, k)
        table = network.table
        width = table[-1, WIDTH_OUT]
        cells_per_sample = table[-1, CELLS] + table[-1, WIDTH_IN] + width
        first = minibatch * settings.minibatch_size
        last = min(first + settings.minibatch_size, space.indices.size)
        weights = Weights(settings.clip, settings.entropy, settings.value, one / dtype(last - first))
        begin = first + part * PART
        end = min(begin + PART, last)
        num_parts = (last - first + PART - 1) // PART
        sums = space.sums[k * num_parts + part]
        fill(sums, 0.0)
        bounds = layout.begins
        gradients = space.gradients[part, bounds[k] : bounds[k + 1]]
        fill(gradients, zero)
        log_std = learner.parameters[: bounds[0]]
        log_std_gradient = space.gradients[part, : bounds[0]]
        if k == 0:
            fill(log_std_gradient, zero)
        rows = HEADS + layout.actions + (1 if discrete else layout.actions)
        for start in range(begin, end, CHUNK):
            samples = space.indices[start : min(start + CHUNK, end)]
            count = samples.size
            cells = space.cells[worker, : count * cells_per_sample]
            lanes = space.lanes[worker, : count * rows].reshape((rows, count))
            gather(batch, samples, cells, table[0, WIDTH_IN], lanes, space.moments[minibatch], layout.actions)
            outputs = cells[forward(network, cells, count) :]
            if k == 0:
                policy_loss(outputs, width, layout.actions, lanes, log_std, log_std_gradient, weights, sums)
            if k == 1:
                value_loss(outputs, width, 0, lanes[TARGET], weights, sums)
            elif layout.value_column >= 0:
                value_loss(outputs, width, layout.value_column, lanes[TARGET], weights, sums)
            backward(network, cells, space.slopes[worker], gradients, count)

    return gradient


@functools.cache
def make_step(dtype: type) -> Callable[..., None]:
    """`step(worker, k, parts, learner, layout, space, settings, step) -> norm`: Adam on a network.

    Standard deviations belong to network 0. Every item adds up the gradients of all networks,
    which costs 1 us on two of 4-64-64 and saves a phase.
    """
    adam = specialise(optimiser.adam, dtype)
    one, zero = dtype(1), dtype(0)

    @inline
    def add_to(total, part):  # type: ignore[no-untyped-def]
        for i in range(total.size):
            total[i] += part[i]

    @inline
    def square_sum(values):  # type: ignore[no-untyped-def]
        total = zero
        for i in range(values.size):
            total += values[i] * values[i]
        return total

    @inline
    def apply(parameters, gradients, first, second, factor, rates):  # type: ignore[no-untyped-def]
        for i in range(parameters.size):
            parameters[i], first[i], second[i] = adam(
                parameters[i], gradients[i] * factor, first[i], second[i], rates
            )

    @inline
    def step(worker, k, parts, learner, layout, space, settings, number):  # type: ignore[no-untyped-def]
        total = space.totals[worker]
        fill(total, zero)
        for part in range(parts):
            add_to(total, space.gradients[part])
        norm = dtype(np.sqrt(square_sum(total)))
        factor = settings.max_norm / (norm + dtype(1e-6))
        factor = factor if factor < one else one
        begin = 0 if k == 0 else layout.begins[k]
        end = layout.begins[k + 1]
        bias1, bias2 = 1.0 - 0.9**number, 1.0 - 0.999**number
        rates = optimiser.Rates(
            dtype(settings.learning_rate / bias1),
            dtype(1.0 / np.sqrt(bias2)),
            settings.epsilon,
        )
        apply(
            learner.parameters[begin:end],
            total[begin:end],
            learner.first[begin:end],
            learner.second[begin:end],
            factor,
            rates,
        )
        refresh_copies(network_of(learner, layout, k))
        return norm

    return step


@inline
def add_report(report, sums, items, samples, norm):  # type: ignore[no-untyped-def]
    """Add one minibatch to the report: means over its samples, and its norm."""
    for item in range(items):
        for k in range(NUM_SUMS):
            report[k] += sums[item, k] / samples
    report[NUM_SUMS] += norm
    report[NUM_SUMS + 1] += 1.0


@functools.cache
def make_update(dtype: type, discrete: bool) -> Callable[..., None]:
    """Kernel (worker, workers, Learner, Layout, Batch, Space, Settings): the part of one worker."""
    shuffle, gradient, step = make_shuffle(dtype), make_gradient(dtype, discrete), make_step(dtype)

    @kernel
    def update(worker, workers, learner, layout, batch, space, settings):  # type: ignore[no-untyped-def]
        board, count = Board(space.claims, space.done), space.indices.size
        networks = layout.tables.shape[0]
        minibatches = (count + settings.minibatch_size - 1) // settings.minibatch_size
        phase = done = steps = 0
        for epoch in range(settings.epochs):
            phase += 1
            for shift in range(minibatches):
                item = (worker * minibatches // workers + shift) % minibatches
                if claim(board, item, phase):
                    shuffle(batch, space, settings, epoch, item)
                    finish(board)
            done += minibatches
            if not wait(board, done, settings.patience):
                return
            for minibatch in range(minibatches):
                samples = min(settings.minibatch_size, count - minibatch * settings.minibatch_size)
                parts = (samples + PART - 1) // PART
                items = networks * parts
                phase += 1
                for shift in range(items):
                    item = (worker * items // workers + shift) % items
                    if claim(board, item, phase):
                        gradient(worker, item // parts, item % parts, minibatch, learner, layout, batch, space, settings)
                        finish(board)
                done += items
                if not wait(board, done, settings.patience):
                    return
                divergence = 0.0
                for part in range(parts):
                    divergence += space.sums[part, DIVERGENCE] / samples
                phase += 1
                steps += 1
                for shift in range(networks):
                    item = (worker * networks // workers + shift) % networks
                    if claim(board, item, phase):
                        if divergence > settings.max_divergence:
                            stop(board)
                        else:
                            norm = step(worker, item, parts, learner, layout, space, settings, settings.steps + steps)
                            if item == 0:
                                add_report(space.report, space.sums, items, samples, norm)
                        finish(board)
                done += networks
                if not wait(board, done, settings.patience):
                    return

    return update
