"""One update in one kernel: epochs, minibatches, gradients, clipping, Adam.

Workers share the gradient of a minibatch as items (network, part): each part is at most `PART`
samples and has a gradient of its own, and parts are added in order. So the result is the same for
any number of workers.

The kernel is the same for all losses: those, and the passes of networks, it calls by address.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.calls import make_call, view
from rlcpu.kernels.compile import inline, inline_exact, kernel, merge
from rlcpu.nn import flat
from rlcpu.nn.adam import make_adam, make_rectified_rates, make_sums
from rlcpu.nn.heads import fill
from rlcpu.nn.losses import Loss, Outputs, outputs_kind
from rlcpu.nn.minibatch import gather, make_shuffle
from rlcpu.nn.network import (
    CELLS,
    WIDTH_IN,
    WIDTH_OUT,
    Network,
    network_of,
    refresh_copies,
)
from rlcpu.nn.ones import add_slopes, make_sum_ones
from rlcpu.nn.passes import ADDED, Passes, make_passes
from rlcpu.nn.workers import Board, claim, finish, item_of, stop, wait

#: Samples of a part of a minibatch, which one worker takes; two parts of each of two networks keep
#: four cores busy on minibatches of 256.
PART = 128
#: Samples that pass forward, loss and backward together: 64 samples of 64-64 are 50 KB beside 55 KB
#: of weights and gradients, all in the second-level cache.
CHUNK = 64
#: Numbers of the gradient that one worker adds up: parts of them stay in its first-level cache.
SLICE = 4096


class Batch(NamedTuple):
    """S samples.

    Attributes:
        inputs: (S * input_size,) float32; empty where they are ones.
        starts, ones: see `rlcpu.nn.ones.Ones`; empty where inputs are any numbers.
        mean, scale: (input_size,) float32: networks see (input - mean) * scale, clipped to +-10.
        actions: (S * action_size,) float32; empty where no loss reads any.
        columns: (C, S) float32.
    """

    inputs: Any
    starts: Any
    ones: Any
    mean: Any
    scale: Any
    actions: Any
    columns: Any


class Layout(NamedTuple):
    """Where the networks are, see `rlcpu.nn.flat.Layout`, and what losses read of them.

    Attributes:
        places: (num_losses, 3) int64, network, first output and number of outputs.
    """

    tables: Any
    layers: Any
    activations: Any
    begins: Any
    copies_begins: Any
    free: Any
    places: Any


def make_layout(networks: list[Network], losses: list[Loss]) -> Layout:
    """The flat vector of all networks.

    Raises:
        ValueError: networks have different inputs, or losses do not read each output once.
    """
    inputs = {int(each.sizes[0]) for each in networks}
    if len(inputs) != 1:
        raise ValueError(f"networks have inputs of sizes {sorted(inputs)}: expected one size")
    return Layout(*flat.Layout.of(networks), _find_outputs(networks, losses))


def _find_outputs(networks: list[Network], losses: list[Loss]) -> npt.NDArray[np.int64]:
    """Network, first output and number of outputs of each loss."""
    readers = [np.zeros(int(each.sizes[-1]), np.int64) for each in networks]
    places = []
    for loss in losses:
        if not 0 <= loss.network < len(networks):
            raise ValueError(f"network={loss.network} of a loss: there are {len(networks)}")
        size = len(readers[loss.network])
        first = loss.first % size
        count = size - first if loss.size is None else loss.size
        numbers, free = len(loss.head.names), networks[loss.network].free.size
        if not 1 <= count <= size - first or (loss.head.actions is None and count != numbers):
            read = f"{count} outputs from {first} on, {numbers} numbers of its head"
            raise ValueError(f"a loss reads {read}: network {loss.network} has {size} outputs")
        if loss.head.actions == "vector" and free != count:
            raise ValueError(f"network {loss.network} has {free} free parameters: expected {count}")
        readers[loss.network][first : first + count] += 1
        places.append((loss.network, first, count))
    for k, readings in enumerate(readers):
        if (readings != 1).any():
            wrong = int(np.flatnonzero(readings != 1)[0])
            raise ValueError(
                f"output {wrong} of network {k} is read by {readings[wrong]} losses: expected one"
            )
    return np.array(places)


class Space(NamedTuple):
    """Scratch memory, overwritten.

    Attributes:
        indices: (S,) int64, the samples in the order of the epoch.
        moments: (num_minibatches, 2), mean and inverse deviation of the normalised column.
        gradients: (num_parts, P); the first becomes the sum of all.
        sums: (num_parts, num_networks, num_sums) float64, losses and statistics over samples.
        squares: (num_slices,) float64, of the numbers of each slice of the gradient.
        cells, slopes, rows: (num_workers, any), scratch of one worker.
        claims, done: see `rlcpu.nn.workers.Board`.
        report: (num_sums + 2,) float64, means of the sums over the minibatches, then the mean norm
            of the gradient, then the number of gradient steps taken.
    """

    indices: Any
    moments: Any
    gradients: Any
    sums: Any
    squares: Any
    cells: Any
    slopes: Any
    rows: Any
    claims: Any
    done: Any
    report: Any


class Settings(NamedTuple):
    """Numbers of one update; reals are of the learner's dtype.

    Attributes:
        epochs, minibatch_size: how often all samples are seen, and how many at a time.
        normalized: the column of which minibatches are normalised, or -1.
        action_size: numbers of an action.
        first_column: row of a chunk's scratch where its columns begin, see `rlcpu.nn.heads`.
        learning_rate, epsilon: of Adam.
        rectified: whether Adam is RAdam.
        scales: (num_losses,), what each loss is multiplied by.
        weights: (num_weights,), coefficients that losses read.
        max_norm: the gradient is scaled down to this norm.
        watched, most: the update ends at a minibatch whose mean of this sum is above `most`.
        steps, shuffles: gradient steps and epochs before this update.
        key_low, key_high: uint32, of the random stream that shuffles.
        patience: see `rlcpu.nn.workers.wait`.
        losses: address, see `rlcpu.nn.losses.losses_at`.
        passes: see `rlcpu.nn.passes.passes_of`.
    """

    epochs: int
    minibatch_size: int
    normalized: int
    action_size: int
    first_column: int
    learning_rate: Any
    epsilon: Any
    rectified: bool
    scales: Any
    weights: Any
    max_norm: Any
    watched: int
    most: float
    steps: int
    shuffles: int
    key_low: Any
    key_high: Any
    patience: int
    losses: int
    passes: Passes


class Frame(NamedTuple):
    """All that an update works on."""

    learnt: Any
    layout: Layout
    batch: Batch
    space: Space
    settings: Settings


# ---------------------------------------------------------------- the gradient of one part


@inline
def samples_of(minibatch, space, settings):
    """Samples of a minibatch."""
    first = minibatch * settings.minibatch_size
    return min(settings.minibatch_size, space.indices.size - first)


@inline
def parts_of(minibatch, space, settings):
    """Parts of a minibatch."""
    return (samples_of(minibatch, space, settings) + PART - 1) // PART


@functools.cache
def make_gradient(dtype: type) -> Callable[..., None]:
    """`gradient(item, frame)`: the gradient of one part.

    `item` is (worker, network, part, minibatch): who computes it, and so which scratch memory it
    may use, of which network, and from which samples.
    """
    (forward, backward), losses = make_passes(dtype), make_call(outputs_kind(dtype))
    sum_ones, zero, one = make_sum_ones(dtype), dtype(0), dtype(1)

    @inline
    def sum_all_ones(units, network, samples, batch):
        for i in range(samples.size):
            bounds = batch.starts[samples[i]], batch.starts[samples[i] + 1]
            sum_ones(units, network, samples.size, i, bounds, batch.ones)

    @inline
    def add_all_slopes(gradients, units, network, samples, batch):
        for i in range(samples.size):
            bounds = batch.starts[samples[i]], batch.starts[samples[i] + 1]
            add_slopes(gradients, units, network, samples.size, i, bounds, batch.ones)

    @merge
    def chunk(item, samples, share, frame):
        worker, k, part, minibatch = item
        learnt, layout, batch = frame.learnt, frame.layout, frame.batch
        space, settings = frame.space, frame.settings
        network, count = network_of(learnt, layout, k), samples.size
        table, last = network.table, layout.layers[k] - 1
        width = table[last, WIDTH_OUT]
        units = space.cells[worker, : count * (table[last, CELLS] + table[last, WIDTH_IN] + width)]
        height = space.rows.shape[1] // CHUNK
        rows = space.rows[worker, : count * height].reshape((height, count))
        inputs, taken = units[: count * table[0, WIDTH_IN]], rows[height - settings.action_size :]
        columns = rows[settings.first_column :]
        gather(batch, samples, inputs, columns, taken, space.moments[minibatch], settings)
        is_ones = batch.starts.size > 0
        if is_ones:
            sum_all_ones(units, network, samples, batch)
        first = forward(settings.passes, network, units, count, is_ones)
        begin, packed, end = (
            layout.begins[k],
            layout.begins[k] + layout.free[k],
            layout.begins[k + 1],
        )
        by_free, gradients = space.gradients[part, begin:packed], space.gradients[part, packed:end]
        outputs = Outputs(
            k, units[first:], width, rows, learnt.parameters[begin:packed], by_free,
            space.sums[part, k], share,
            layout.places, settings.scales, settings.weights, settings.action_size,
        )  # fmt: skip
        losses(settings.losses, outputs)
        slopes = space.slopes[worker]
        backward(settings.passes, network, units, slopes, gradients, count, is_ones, ADDED)
        if is_ones:
            add_all_slopes(gradients, units, network, samples, batch)

    @merge
    def gradient(item, frame):
        _, k, part, minibatch = item
        layout, space, settings = frame.layout, frame.space, frame.settings
        first = minibatch * settings.minibatch_size
        last = first + samples_of(minibatch, space, settings)
        begin = first + part * PART
        end = min(begin + PART, last)
        share = one / dtype(last - first)
        fill(space.gradients[part, layout.begins[k] : layout.begins[k + 1]], zero)
        fill(space.sums[part, k], 0.0)
        for start in range(begin, end, CHUNK):
            samples = space.indices[start : min(start + CHUNK, end)]
            chunk(item, samples, share, frame)

    return gradient


# ---------------------------------------------------------------- the gradient step


@functools.cache
def make_sum(dtype: type) -> Callable[..., None]:
    """`sum_slice(item, parts, space)`: add up the parts of one slice of the gradient in the first.

    It also writes the sum of their squares, for the norm.
    """
    add_to, square_sum = make_sums(dtype)

    @merge
    def sum_slice(item, parts, space):
        begin = item * SLICE
        end = min(begin + SLICE, space.gradients.shape[1])
        total = space.gradients[0, begin:end]
        for part in range(1, parts):
            add_to(total, space.gradients[part, begin:end])
        space.squares[item] = square_sum(total)

    return sum_slice


@functools.cache
def make_step(dtype: type) -> Callable[..., None]:
    """`step(k, number, frame) -> norm`: Adam on network k, with the norm of all networks' gradient.

    `number` counts the steps of this update from 1.
    """
    apply, rates_of = make_adam(dtype), make_rectified_rates(dtype)
    one = dtype(1)

    @inline_exact
    def norm_of(squares):
        total = 0.0
        for square in squares:
            total += square
        return dtype(np.sqrt(total))

    @merge
    def step(k, number, frame):
        learnt, layout, space = frame.learnt, frame.layout, frame.space
        settings = frame.settings
        norm = norm_of(space.squares)
        factor = settings.max_norm / (norm + dtype(1e-6))
        factor = factor if factor < one else one
        begin, end = layout.begins[k], layout.begins[k + 1]
        count = settings.steps + number
        rates = rates_of(count, settings.learning_rate, settings.epsilon, settings.rectified)
        apply(
            learnt.parameters[begin:end],
            space.gradients[0, begin:end],
            learnt.first[begin:end],
            learnt.second[begin:end],
            factor,
            rates,
        )
        refresh_copies(network_of(learnt, layout, k))
        return norm

    return step


# ---------------------------------------------------------------- the whole update


@inline
def add_report(report, sums, parts, samples, norm):
    """Add one minibatch to the report: means over its samples, its norm, and one step."""
    count = sums.shape[2]
    for part in range(parts):
        for network in range(sums.shape[1]):
            for k in range(count):
                report[k] += sums[part, network, k] / samples
    report[count] += norm
    report[count + 1] += 1.0


@functools.cache
def make_update(dtype: type) -> Callable[..., None]:
    """Kernel (worker, workers, Learnt, Layout, Batch, Space, Settings): one worker's share.

    It goes through four kinds of phases, see `rlcpu.nn.workers`: in each, a worker runs the items
    that it can claim, and each worker begins with another one.
    """
    shuffle, gradient = make_shuffle(dtype), make_gradient(dtype)
    sum_slice, step = make_sum(dtype), make_step(dtype)

    @merge
    def shuffle_all(crew, minibatches, phase, epoch, frame):
        board = Board(frame.space.claims, frame.space.done)
        for shift in range(minibatches):
            item = item_of(crew, minibatches, shift)
            if claim(board, item, phase):
                shuffle(frame.batch, frame.space, frame.settings, epoch, item)
                finish(board)

    @merge
    def add_gradients(crew, minibatch, phase, frame):
        board = Board(frame.space.claims, frame.space.done)
        parts = parts_of(minibatch, frame.space, frame.settings)
        items = parts * frame.layout.tables.shape[0]
        for shift in range(items):
            item = item_of(crew, items, shift)
            if claim(board, item, phase):
                gradient((crew[0], item // parts, item % parts, minibatch), frame)
                finish(board)

    @merge
    def sum_slices(crew, minibatch, phase, frame):
        space = frame.space
        board, slices = Board(space.claims, space.done), space.squares.size
        parts = parts_of(minibatch, space, frame.settings)
        for shift in range(slices):
            item = item_of(crew, slices, shift)
            if claim(board, item, phase):
                sum_slice(item, parts, space)
                finish(board)

    @merge
    def step_all(crew, minibatch, phase, number, frame):
        space, settings = frame.space, frame.settings
        board = Board(space.claims, space.done)
        parts = parts_of(minibatch, space, settings)
        samples = samples_of(minibatch, space, settings)
        networks, watched = frame.layout.tables.shape[0], 0.0
        if settings.watched >= 0:
            for part in range(parts):
                for network in range(networks):
                    watched += space.sums[part, network, settings.watched] / samples
        for shift in range(networks):
            item = item_of(crew, networks, shift)
            if claim(board, item, phase):
                if watched > settings.most:
                    stop(board)
                else:
                    norm = step(item, number, frame)
                    if item == 0:
                        add_report(space.report, space.sums, parts, samples, norm)
                finish(board)

    @merge
    def run(crew, frame, space, settings):
        board, networks = Board(space.claims, space.done), frame.layout.tables.shape[0]
        size = settings.minibatch_size
        minibatches = (space.indices.size + size - 1) // size
        phase = done = number = 0
        for epoch in range(settings.epochs):
            phase += 1
            shuffle_all(crew, minibatches, phase, epoch, frame)
            done += minibatches
            if not wait(board, done, settings.patience):
                return
            for minibatch in range(minibatches):
                phase += 1
                add_gradients(crew, minibatch, phase, frame)
                done += networks * parts_of(minibatch, space, settings)
                if not wait(board, done, settings.patience):
                    return
                phase += 1
                sum_slices(crew, minibatch, phase, frame)
                done += space.squares.size
                if not wait(board, done, settings.patience):
                    return
                phase += 1
                number += 1
                step_all(crew, minibatch, phase, number, frame)
                done += networks
                if not wait(board, done, settings.patience):
                    return

    @kernel
    def update(worker, workers, learnt, layout, batch, space, settings):
        frame = view(Frame(learnt, layout, batch, space, settings))
        run((worker, workers), frame, frame.space, frame.settings)

    return update
