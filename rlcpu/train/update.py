"""One update of PPO in one kernel: epochs, minibatches, gradients, clipping, Adam.

Workers share the gradient of a minibatch as items (network, part): each part is at most `PART`
samples and has a gradient of its own, and parts are added in order. So the result is the same for
any number of workers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rlcpu.kernels.compile import inline, kernel
from rlcpu.train.adam import make_step
from rlcpu.train.memory import CHUNK, PART, Item, network_of
from rlcpu.train.minibatch import make_gather, make_shuffle
from rlcpu.train.network import CELLS, WIDTH_IN, WIDTH_OUT, make_backward, make_forward
from rlcpu.train.objective import (
    DIVERGENCE,
    HEADS,
    NUM_SUMS,
    TARGET,
    Weights,
    fill,
    make_categorical,
    make_gaussian,
    make_value,
)
from rlcpu.train.phases import Board, claim, finish, stop, wait


@functools.cache
def make_chunk(dtype: type, discrete: bool) -> Callable[..., None]:
    """`chunk(item, samples, weights, learner, layout, batch, space)`: adds a chunk's gradient."""
    forward, backward = make_forward(dtype), make_backward(dtype)
    gather, value_loss = make_gather(dtype, discrete), make_value(dtype)
    policy_loss = (make_categorical if discrete else make_gaussian)(dtype)

    @inline
    def chunk(item, samples, weights, learner, layout, batch, space):  # type: ignore[no-untyped-def]
        network, count = network_of(learner, layout, item.network), samples.size
        table, stds, actions = network.table, layout.begins[0], layout.actions
        width = table[-1, WIDTH_OUT]
        cells = space.cells[item.worker, : count * (table[-1, CELLS] + table[-1, WIDTH_IN] + width)]
        rows = HEADS + actions + (1 if discrete else actions)
        lanes = space.lanes[item.worker, : count * rows].reshape((rows, count))
        sums, gradients = space.sums[item.part, item.network], space.gradients[item.part]
        moments, inputs = space.moments[item.minibatch], cells[: count * table[0, WIDTH_IN]]
        gather(batch, samples, inputs, lanes, moments, actions)
        outputs = cells[forward(network, cells, count) :]
        column = layout.value_column
        if item.network == 0:
            log_std, by_log_std = learner.parameters[:stds], gradients[:stds]
            policy_loss(outputs, width, actions, lanes, log_std, by_log_std, weights, sums)
        else:
            column = 0
        if column >= 0:
            value_loss(outputs, width, column, lanes[TARGET], weights, sums)
        begin, end = layout.begins[item.network], layout.begins[item.network + 1]
        backward(network, cells, space.slopes[item.worker], gradients[begin:end], count)

    return chunk


@functools.cache
def make_gradient(dtype: type, discrete: bool) -> Callable[..., None]:
    """`gradient(item, learner, layout, batch, space, settings)`: the gradient of one part."""
    chunk = make_chunk(dtype, discrete)
    zero, one = dtype(0), dtype(1)

    @inline
    def gradient(item, learner, layout, batch, space, settings):  # type: ignore[no-untyped-def]
        first = item.minibatch * settings.minibatch_size
        last = min(first + settings.minibatch_size, space.indices.size)
        begin = first + item.part * PART
        end = min(begin + PART, last)
        share = one / dtype(last - first)
        weights = Weights(settings.clip, settings.entropy, settings.value, share)
        low = 0 if item.network == 0 else layout.begins[item.network]
        fill(space.gradients[item.part, low : layout.begins[item.network + 1]], zero)
        fill(space.sums[item.part, item.network], 0.0)
        for start in range(begin, end, CHUNK):
            samples = space.indices[start : min(start + CHUNK, end)]
            chunk(item, samples, weights, learner, layout, batch, space)

    return gradient


@inline
def add_report(report: Any, sums: Any, parts: int, samples: int, norm: float) -> None:
    """Add one minibatch to the report: means over its samples, its norm, and one step."""
    for part in range(parts):
        for network in range(sums.shape[1]):
            for k in range(NUM_SUMS):
                report[k] += sums[part, network, k] / samples
    report[NUM_SUMS] += norm
    report[NUM_SUMS + 1] += 1.0


@functools.cache
def make_phases(dtype: type, discrete: bool) -> tuple[Callable[..., None], ...]:
    """The three kinds of phases: each runs the items that this worker can claim.

    `shuffles(crew, minibatches, phase, epoch, batch, space, settings)`,
    `gradients(crew, minibatch, phase, learner, layout, batch, space, settings)` and
    `steps(crew, parts, phase, number, learner, layout, space, settings)`; `crew` is (worker,
    number of workers), and each worker begins with another item.
    """
    shuffle, gradient, step = make_shuffle(dtype), make_gradient(dtype, discrete), make_step(dtype)

    @inline
    def shuffles(crew, minibatches, phase, epoch, batch, space, settings):  # type: ignore[no-untyped-def]
        board = Board(space.claims, space.done)
        for shift in range(minibatches):
            item = (crew[0] * minibatches // crew[1] + shift) % minibatches
            if claim(board, item, phase):
                shuffle(batch, space, settings, epoch, item)
                finish(board)

    @inline
    def gradients(crew, minibatch, phase, learner, layout, batch, space, settings):  # type: ignore[no-untyped-def]
        board = Board(space.claims, space.done)
        parts = parts_of(minibatch, space, settings)
        items = parts * layout.tables.shape[0]
        for shift in range(items):
            item = (crew[0] * items // crew[1] + shift) % items
            if claim(board, item, phase):
                work = Item(crew[0], item // parts, item % parts, minibatch)
                gradient(work, learner, layout, batch, space, settings)
                finish(board)

    @inline
    def steps(crew, minibatch, phase, number, learner, layout, space, settings):  # type: ignore[no-untyped-def]
        board = Board(space.claims, space.done)
        parts, samples = (
            parts_of(minibatch, space, settings),
            samples_of(minibatch, space, settings),
        )
        divergence = 0.0
        for part in range(parts):
            divergence += space.sums[part, 0, DIVERGENCE] / samples
        networks = layout.tables.shape[0]
        for shift in range(networks):
            item = (crew[0] * networks // crew[1] + shift) % networks
            if claim(board, item, phase):
                if divergence > settings.max_divergence:
                    stop(board)
                else:
                    total = space.totals[crew[0]]
                    norm = step(item, parts, number, learner, layout, total, space, settings)
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
def make_update(dtype: type, discrete: bool) -> Callable[..., None]:
    """Kernel (worker, workers, Learner, Layout, Batch, Space, Settings): one worker's share."""
    shuffles, gradients, steps = make_phases(dtype, discrete)

    @kernel
    def update(worker, workers, learner, layout, batch, space, settings):  # type: ignore[no-untyped-def]
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
                gradients(crew, minibatch, phase, learner, layout, batch, space, settings)
                done += networks * parts_of(minibatch, space, settings)
                if not wait(board, done, settings.patience):
                    return
                phase += 1
                number += 1
                steps(crew, minibatch, phase, number, learner, layout, space, settings)
                done += networks
                if not wait(board, done, settings.patience):
                    return

    return update
