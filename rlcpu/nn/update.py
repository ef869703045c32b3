"""One update in one kernel: epochs, minibatches, gradients, clipping, Adam.

Workers share the gradient of a minibatch as items (network, part): each part is at most `PART`
samples and has a gradient of its own, and parts are added in order. So the result is the same for
any number of workers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from rlcpu.kernels.compile import inline, kernel
from rlcpu.nn.adam import make_step
from rlcpu.nn.heads import Term, fill, make_term
from rlcpu.nn.minibatch import gather, make_shuffle
from rlcpu.nn.network import CELLS, WIDTH_IN, WIDTH_OUT, make_backward, make_forward, network_of
from rlcpu.nn.phases import Board, claim, finish, stop, wait

#: Samples of a part of a minibatch, which one worker takes; two parts of each of two networks keep
#: four cores busy on minibatches of 256.
PART = 128
#: Samples that pass forward, loss and backward together: 64 samples of 64-64 are 50 KB beside 55 KB
#: of weights and gradients, all in the second-level cache.
CHUNK = 64


class Batch(NamedTuple):
    """S samples.

    Attributes:
        inputs: (S * input_size,) float32.
        mean, scale: (input_size,) float32: networks see (input - mean) * scale, clipped to +-10.
        actions: (S * action_size,) int64 or float32; empty where no loss reads any.
        columns: (C, S) float32.
    """

    inputs: Any
    mean: Any
    scale: Any
    actions: Any
    columns: Any


class Learnt(NamedTuple):
    """What an update changes and a checkpoint keeps.

    One flat vector holds, for each network, its free parameters (padded) and its packed ones; see
    `rlcpu.nn.network`.

    Attributes:
        parameters, first, second: (P,), the vector and its moments in Adam.
        copies: (C,), transposed weights of all networks.
    """

    parameters: Any
    first: Any
    second: Any
    copies: Any


class Layout(NamedTuple):
    """Where the networks are in the flat vectors, and what losses read of them.

    Attributes:
        tables: (num_networks, most layers, 8) int64; see `layer_table`.
        layers: (num_networks,) int64.
        activations: (num_networks,) int64, TANH or RELU, of the hidden layers.
        begins, copies_begins: (num_networks + 1,) int64, bounds in parameters and in copies.
        free: (num_networks,) int64, free parameters at the beginning of each, padded.
        places: (num_losses, 3) int64, network, first output and number of outputs.
    """

    tables: Any
    layers: Any
    activations: Any
    begins: Any
    copies_begins: Any
    free: Any
    places: Any


class Space(NamedTuple):
    """Scratch memory, overwritten.

    Attributes:
        indices: (S,) int64, the samples in the order of the epoch.
        moments: (num_minibatches, 2), mean and inverse deviation of the normalised column.
        gradients: (num_parts, P).
        sums: (num_parts, num_networks, num_sums) float64, losses and statistics over samples.
        cells, slopes, rows, totals: (num_workers, any), scratch of one worker.
        claims, done: see `rlcpu.nn.phases.Board`.
        report: (num_sums + 2,) float64, means of the sums over the minibatches, then the mean norm
            of the gradient, then the number of gradient steps taken.
    """

    indices: Any
    moments: Any
    gradients: Any
    sums: Any
    cells: Any
    slopes: Any
    rows: Any
    totals: Any
    claims: Any
    done: Any
    report: Any


class Settings(NamedTuple):
    """Numbers of one update; reals are of the learner's dtype.

    Attributes:
        epochs, minibatch_size: how often all samples are seen, and how many at a time.
        normalized: the column of which minibatches are normalised, or -1.
        action_size: numbers of an action.
        learning_rate, epsilon: of Adam.
        scales: (num_losses,) what each loss is multiplied by.
        weights: NamedTuple of coefficients that losses read.
        max_norm: the gradient is scaled down to this norm.
        watched, most: the update ends at a minibatch whose mean of this sum is above `most`.
        steps, shuffles: gradient steps and epochs before this update.
        key_low, key_high: uint32, of the random stream that shuffles.
        patience: see `phases.wait`.
    """

    epochs: int
    minibatch_size: int
    normalized: int
    action_size: int
    learning_rate: Any
    epsilon: Any
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


class Objective(NamedTuple):
    """All that the machine code of an update depends on.

    Attributes:
        terms: the losses.
        columns: names of the columns of a minibatch.
        sample: NamedTuple with these fields.
    """

    terms: tuple[Term, ...]
    columns: tuple[str, ...]
    sample: Any

    @property
    def num_sums(self) -> int:
        """Losses and their statistics."""
        return sum(1 + term.num_statistics for term in self.terms)

    @property
    def most_numbers(self) -> int:
        """Of a head."""
        return max(len(term.head.names) for term in self.terms)


class Item(NamedTuple):
    """One part of the gradient of a minibatch.

    Attributes:
        worker: who computes it, and so which scratch memory it may use.
        network: number of the network.
        part: which samples of the minibatch.
        minibatch: number of the minibatch in its epoch.
    """

    worker: int
    network: int
    part: int
    minibatch: int


def make_terms(dtype: type, objective: Objective) -> Callable[..., None]:
    """`apply(network, outputs, width, rows, free, free_slopes, share, layout, settings, sums)`.

    All losses of a network: one after the other, each a call of its own machine code.
    """

    @inline
    def nothing(network, outputs, width, rows, free, free_slopes, share, layout, settings, sums):
        pass

    apply: Any = nothing
    first_sum = 0
    for number, term in enumerate(objective.terms):
        apply = _append(apply, dtype, objective, number, first_sum)
        first_sum += 1 + term.num_statistics
    return apply


def _append(
    before: Any, dtype: type, objective: Objective, number: int, first_sum: int
) -> Callable[..., None]:
    """The losses before one, and this one."""
    loss = make_term(dtype, objective.terms[number], objective.columns, objective.sample)
    most, columns = objective.most_numbers, len(objective.columns)

    @inline
    def apply(network, outputs, width, rows, free, free_slopes, share, layout, settings, sums):
        before(network, outputs, width, rows, free, free_slopes, share, layout, settings, sums)
        if layout.places[number, 0] == network:
            place = width, layout.places[number, 1], layout.places[number, 2]
            height = rows.shape[0] - settings.action_size - columns - 2 * most
            scaled, weights = share * settings.scales[number], settings.weights
            own = sums[first_sum:]
            loss(outputs, place, rows, most, height, free, free_slopes, scaled, weights, own)

    return apply


@functools.cache
def make_gradient(dtype: type, objective: Objective) -> Callable[..., None]:
    """`gradient(item, learnt, layout, batch, space, settings)`: the gradient of one part."""
    forward, backward = make_forward(dtype), make_backward(dtype)
    losses, columns = make_terms(dtype, objective), 2 * objective.most_numbers
    actions = columns + len(objective.columns)
    zero, one = dtype(0), dtype(1)

    @inline
    def chunk(item, samples, share, learnt, layout, batch, space, settings):
        network, count = network_of(learnt, layout, item.network), samples.size
        table, last = network.table, layout.layers[item.network] - 1
        width = table[last, WIDTH_OUT]
        units = table[last, CELLS] + table[last, WIDTH_IN] + width
        cells = space.cells[item.worker, : count * units]
        height = space.rows.shape[1] // CHUNK
        rows = space.rows[item.worker, : count * height].reshape((height, count))
        moments, inputs = space.moments[item.minibatch], cells[: count * table[0, WIDTH_IN]]
        taken = rows[height - settings.action_size :]
        gather(batch, samples, inputs, rows[columns:actions], taken, moments, settings)
        outputs = cells[forward(network, cells, count) :]
        begin, end = layout.begins[item.network], layout.begins[item.network + 1]
        packed = begin + layout.free[item.network]
        free, gradients = learnt.parameters[begin:packed], space.gradients[item.part]
        sums = space.sums[item.part, item.network]
        by_free = gradients[begin:packed]
        losses(item.network, outputs, width, rows, free, by_free, share, layout, settings, sums)
        backward(network, cells, space.slopes[item.worker], gradients[packed:end], count)

    @inline
    def gradient(item, learnt, layout, batch, space, settings):
        first = item.minibatch * settings.minibatch_size
        last = min(first + settings.minibatch_size, space.indices.size)
        begin = first + item.part * PART
        end = min(begin + PART, last)
        share = one / dtype(last - first)
        bounds = layout.begins[item.network], layout.begins[item.network + 1]
        fill(space.gradients[item.part, bounds[0] : bounds[1]], zero)
        fill(space.sums[item.part, item.network], 0.0)
        for start in range(begin, end, CHUNK):
            samples = space.indices[start : min(start + CHUNK, end)]
            chunk(item, samples, share, learnt, layout, batch, space, settings)

    return gradient


@inline
def add_report(report: Any, sums: Any, parts: int, samples: int, norm: float) -> None:
    """Add one minibatch to the report: means over its samples, its norm, and one step."""
    count = sums.shape[2]
    for part in range(parts):
        for network in range(sums.shape[1]):
            for k in range(count):
                report[k] += sums[part, network, k] / samples
    report[count] += norm
    report[count + 1] += 1.0


@functools.cache
def make_phases(dtype: type, objective: Objective) -> tuple[Callable[..., None], ...]:
    """The three kinds of phases: each runs the items that this worker can claim.

    `shuffles(crew, minibatches, phase, epoch, batch, space, settings)`,
    `gradients(crew, minibatch, phase, learnt, layout, batch, space, settings)` and
    `steps(crew, parts, phase, number, learnt, layout, space, settings)`; `crew` is (worker,
    number of workers), and each worker begins with another item.
    """
    shuffle, step = make_shuffle(dtype), make_step(dtype)
    gradient = make_gradient(dtype, objective)

    @inline
    def shuffles(crew, minibatches, phase, epoch, batch, space, settings):
        board = Board(space.claims, space.done)
        for shift in range(minibatches):
            item = (crew[0] * minibatches // crew[1] + shift) % minibatches
            if claim(board, item, phase):
                shuffle(batch, space, settings, epoch, item)
                finish(board)

    @inline
    def gradients(crew, minibatch, phase, learnt, layout, batch, space, settings):
        board = Board(space.claims, space.done)
        parts = parts_of(minibatch, space, settings)
        items = parts * layout.tables.shape[0]
        for shift in range(items):
            item = (crew[0] * items // crew[1] + shift) % items
            if claim(board, item, phase):
                work = Item(crew[0], item // parts, item % parts, minibatch)
                gradient(work, learnt, layout, batch, space, settings)
                finish(board)

    @inline
    def steps(crew, minibatch, phase, number, learnt, layout, space, settings):
        board = Board(space.claims, space.done)
        parts = parts_of(minibatch, space, settings)
        samples = samples_of(minibatch, space, settings)
        networks, watched = layout.tables.shape[0], 0.0
        if settings.watched >= 0:
            for part in range(parts):
                for network in range(networks):
                    watched += space.sums[part, network, settings.watched] / samples
        for shift in range(networks):
            item = (crew[0] * networks // crew[1] + shift) % networks
            if claim(board, item, phase):
                if watched > settings.most:
                    stop(board)
                else:
                    total = space.totals[crew[0]]
                    norm = step(item, parts, number, learnt, layout, total, space, settings)
                    if item == 0:
                        add_report(space.report, space.sums, parts, samples, norm)
                finish(board)

    return shuffles, gradients, steps


@inline
def samples_of(minibatch: int, space: Any, settings: Any) -> int:
    """Samples of a minibatch."""
    first = minibatch * settings.minibatch_size
    return min(settings.minibatch_size, space.indices.size - first)


@inline
def parts_of(minibatch: int, space: Any, settings: Any) -> int:
    """Parts of a minibatch."""
    return (samples_of(minibatch, space, settings) + PART - 1) // PART


@functools.cache
def make_update(dtype: type, objective: Objective) -> Callable[..., None]:
    """Kernel (worker, workers, Learnt, Layout, Batch, Space, Settings): one worker's share."""
    shuffles, gradients, steps = make_phases(dtype, objective)

    @kernel
    def update(worker, workers, learnt, layout, batch, space, settings):
        crew, board = (worker, workers), Board(space.claims, space.done)
        networks = layout.tables.shape[0]
        size = settings.minibatch_size
        minibatches = (space.indices.size + size - 1) // size
        phase = done = number = 0
        for epoch in range(settings.epochs):
            phase += 1
            shuffles(crew, minibatches, phase, epoch, batch, space, settings)
            done += minibatches
            if not wait(board, done, settings.patience):
                return
            for minibatch in range(minibatches):
                phase += 1
                gradients(crew, minibatch, phase, learnt, layout, batch, space, settings)
                done += networks * parts_of(minibatch, space, settings)
                if not wait(board, done, settings.patience):
                    return
                phase += 1
                number += 1
                steps(crew, minibatch, phase, number, learnt, layout, space, settings)
                done += networks
                if not wait(board, done, settings.patience):
                    return

    return update
