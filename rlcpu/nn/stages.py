"""Updates in stages: networks that learn from transitions, and from targets made of themselves.

An update of DQN is one stage, an update of an actor and its critics two. Each stage takes three
phases, which workers share (see `rlcpu.nn.workers`):

    gradient    items are parts of the minibatch, each with a gradient of its own
    sum         items are slices of the networks: parts are added in order, squares too
    step        the same slices: Adam, the transposed copies, and the targets

What a part or a slice computes does not depend on who does it: results do not depend on the number
of threads. A stage is one function, which computes the gradient of a chunk of samples,

    gradient(worker, chunk, gradients, sums, learnt, layout, batch, space, settings)

and the rules of the paper are scalar functions that it calls; see `rlcpu.train.dqn`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import inline, kernel, merge, outline
from rlcpu.kernels.mlp import NORMALIZED
from rlcpu.kernels.random import keys
from rlcpu.kernels.threads import default_num_threads
from rlcpu.nn import network
from rlcpu.nn.adam import make_adam, make_rates
from rlcpu.nn.heads import fill
from rlcpu.nn.learner import ALONE
from rlcpu.nn.network import (
    CLIP,
    COLUMNS,
    ROWS,
    UNIT,
    WEIGHTS,
    WIDTH_OUT,
    Network,
    copy_last,
    copy_square,
    make_backward,
    make_forward,
    network_of,
)
from rlcpu.nn.update import CHUNK, PART, lay_out
from rlcpu.nn.workers import LINE, Board, Helpers, claim, finish, stop, wait

Array = npt.NDArray[Any]
#: Rows of a layer's weights that one worker steps.
SLICE = 64
#: Numbers that a stage adds up over the samples.
SUMS = 4
#: Products of weights and samples of a minibatch from which on a second thread pays for its start.
SHARED = 4_000_000


class Transitions(NamedTuple):
    """S transitions, update after update; flat arrays.

    Attributes:
        observations, next_observations: (S * observation_size,) float32.
        actions: (S,) int64, or (S * action_size,) float32.
        rewards, discounts, weights: (S,) float32; discounts are of the next value, weights of the
            sample's loss.
        terminated: (S,) bool: there is no next value.
        mean, scale: (observation_size,) float32: networks see (observation - mean) *
            scale, clipped to +-10.
        center, half: (action_size,) float32 of actions: networks see (action - center) / half.
        errors: (S,) float32, overwritten: size of the temporal difference.
    """

    observations: Any
    next_observations: Any
    actions: Any
    rewards: Any
    discounts: Any
    weights: Any
    terminated: Any
    mean: Any
    scale: Any
    center: Any
    half: Any
    errors: Any


class Layout(NamedTuple):
    """Where networks and their slices are; the first seven fields are `rlcpu.nn.update.Layout`'s.

    Attributes:
        targets: (num_networks,) int64, the network that follows each slowly, or -1.
        slices: (num_slices, 6) int64: network, layer, first row and last row + 1 of its weights,
            begin and end in the flat vector; biases, gains and shifts belong to the last slice of a
            layer.
        stages: (num_stages + 1,) int64, bounds of the slices of each stage.
    """

    tables: Any
    layers: Any
    activations: Any
    begins: Any
    copies_begins: Any
    free: Any
    places: Any
    targets: Any
    slices: Any
    stages: Any


class Space(NamedTuple):
    """Scratch memory, overwritten.

    Attributes:
        gradients: (num_parts, P).
        sums: (num_parts, SUMS) float64.
        squares: (num_slices,) float64.
        cells: (num_workers, most networks at a time, any), units of a chunk's networks.
        slopes: (num_workers, any).
        rows: (num_workers, any, CHUNK), numbers of a chunk's samples.
        claims, done: see `rlcpu.nn.workers.Board`.
        report: (num_stages, SUMS + 2) float64: sums over the updates of means over the samples,
            the norm of the gradient, and gradient steps; the last is negative after a fault.
    """

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
    """Numbers of a call; reals are float32.

    Attributes:
        updates, size, part: how many updates, samples of each, and of a part.
        before: updates before this call.
        delay: later stages follow every so many updates.
        period, tau: every so many updates, targets go this part of the way.
        learning_rates: (num_stages,).
        epsilon, max_norm: of Adam; gradients of a stage are scaled down to the norm.
        coefficients: NamedTuple of the algorithm's.
        key_low, key_high: uint32, of the random stream.
        patience: see `rlcpu.nn.workers.wait`.
    """

    updates: int
    size: int
    part: int
    before: int
    delay: int
    period: int
    tau: Any
    learning_rates: Any
    epsilon: Any
    max_norm: Any
    coefficients: Any
    key_low: Any
    key_high: Any
    patience: int


class Chunk(NamedTuple):
    """Samples that pass the networks together.

    Attributes:
        begin: the first of them among all transitions.
        size: how many.
        share: 1 / samples of a minibatch.
        update: number of the update, from 1 on, over all calls.
    """

    begin: int
    size: int
    share: Any
    update: int


class Stage(NamedTuple):
    """What one stage learns, and how.

    Attributes:
        gradient: dtype -> the function above.
        networks: numbers of the networks that it steps.
        statistics: names of the first of its sums; the very first is a loss.
        finish: dtype -> function (sums, learnt, settings), called once after the gradient with the
            sums over all samples, or None.
    """

    gradient: Callable[[type], Callable[..., None]]
    networks: tuple[int, ...]
    statistics: tuple[str, ...]
    finish: Callable[[type], Callable[..., None]] | None = None


# ---------------------------------------------------------------- what gradients are made with


@functools.cache
def make_passes(dtype: type) -> tuple[Callable[..., Any], ...]:
    """`forward`, `backward` and `backward_to_inputs` of `rlcpu.nn.network`, called, not inlined.

    Gradients run them from several places.
    """
    run, back, back_to_inputs = (
        make_forward(dtype),
        make_backward(dtype),
        make_backward(dtype, "inputs"),
    )

    @outline
    def forward(network, cells, count):
        return run(network, cells, count)

    @outline
    def backward(network, cells, slopes, gradients, count):
        back(network, cells, slopes, gradients, count)

    @outline
    def backward_to_inputs(network, cells, slopes, gradients, count):
        back_to_inputs(network, cells, slopes, gradients, count)

    return forward, backward, backward_to_inputs


@inline
def see(inputs, width, observations, chunk, batch):
    """Observations of a chunk, normalised and clipped, as a network's inputs (count, width)."""
    size = batch.mean.size
    fill(inputs[: chunk.size * width], 0.0)
    for i in range(chunk.size):
        begin = (chunk.begin + i) * size
        for k in range(size):
            x = (observations[begin + k] - batch.mean[k]) * batch.scale[k]
            x = -CLIP if x < -CLIP else x
            inputs[i * width + k] = CLIP if x > CLIP else x


# ---------------------------------------------------------------- one stage


@functools.cache
def _make_step(dtype: type) -> Callable[..., None]:
    """`step(item, factor, rates, follow, learnt, layout, space, settings)`: one slice."""
    apply = make_adam(dtype)

    @inline
    def approach(targets, parameters, tau):
        for i in range(targets.size):
            targets[i] += tau * (parameters[i] - targets[i])

    @inline
    def copy(k, layer, first, end, learnt, layout, hidden):
        view = network_of(learnt, layout, k)
        rows, columns, begin, bias, place, _, _, width, _ = view.table[layer]
        weights, copies = view.parameters[begin:bias], view.copies[place:]
        if layer == layout.layers[k] - 1:
            copy_last(weights, copies, first, end, columns, width)
        elif layer > 0 and hidden:
            copy_square(weights, copies, first, end, rows, columns)

    @merge
    def step(item, factor, rates, follow, learnt, layout, space, settings):
        k, layer, first, last, begin, end = layout.slices[item]
        parameters = learnt.parameters[begin:end]
        moments = learnt.first[begin:end], learnt.second[begin:end]
        apply(parameters, space.gradients[0, begin:end], moments[0], moments[1], factor, rates)
        copy(k, layer, first, last, learnt, layout, True)
        target = layout.targets[k]
        if follow and target >= 0:
            shift = layout.begins[target] - layout.begins[k]
            approach(learnt.parameters[begin + shift : end + shift], parameters, settings.tau)
            copy(target, layer, first, last, learnt, layout, False)

    return step


def _make_stage(dtype: type, number: int, stage: Stage) -> Callable[..., Any]:
    """`run(crew, phase, done, update, learnt, layout, batch, space, settings)`.

    It returns new (phase, done, ok): `phase` and `done` count phases and items since the region
    began, and the worker leaves it unless it is `ok`.
    """
    gradient, step, rates_of = stage.gradient(dtype), _make_step(dtype), make_rates(dtype)
    zero, one = dtype(0), dtype(1)

    @inline
    def no_finish(sums, learnt, settings):
        pass

    conclude = stage.finish(dtype) if stage.finish else no_finish

    @inline
    def add_to(total, part):
        for i in range(total.size):
            total[i] += part[i]

    @inline
    def square_sum(values):
        squares = zero
        for i in range(values.size):
            squares += values[i] * values[i]
        return squares

    @merge
    def run_part(worker, part, update, learnt, layout, batch, space, settings):
        gradients, sums = space.gradients[part], space.sums[part]
        for item in range(layout.stages[number], layout.stages[number + 1]):
            fill(gradients[layout.slices[item, 4] : layout.slices[item, 5]], zero)
        fill(sums, 0.0)
        offset = (update - settings.before - 1) * settings.size
        share, last = one / dtype(settings.size), min((part + 1) * settings.part, settings.size)
        for begin in range(part * settings.part, last, CHUNK):
            chunk = Chunk(offset + begin, min(CHUNK, last - begin), share, update)
            gradient(worker, chunk, gradients, sums, learnt, layout, batch, space, settings)

    @inline
    def add_parts(item, parts, layout, space):
        begin, end = layout.slices[item, 4], layout.slices[item, 5]
        total = space.gradients[0, begin:end]
        for part in range(1, parts):
            add_to(total, space.gradients[part, begin:end])
        space.squares[item] = square_sum(total)

    @inline
    def add_sums(parts, norm, learnt, space, settings):
        for part in range(1, parts):
            for k in range(SUMS):
                space.sums[0, k] += space.sums[part, k]
        for k in range(SUMS):
            space.report[number, k] += space.sums[0, k] / settings.size
        space.report[number, SUMS] += norm
        space.report[number, SUMS + 1] += 1.0
        conclude(space.sums[0], learnt, settings)

    @merge
    def run(crew, phase, done, update, learnt, layout, batch, space, settings):
        board = Board(space.claims, space.done)
        parts = (settings.size + settings.part - 1) // settings.part
        first, slices = layout.stages[number], layout.stages[number + 1] - layout.stages[number]
        for shift in range(parts):
            item = (crew[0] * parts // crew[1] + shift) % parts
            if claim(board, item, phase + 1):
                run_part(crew[0], item, update, learnt, layout, batch, space, settings)
                finish(board)
        ok = wait(board, done + parts, settings.patience)
        if ok:
            for shift in range(slices):
                item = (crew[0] * slices // crew[1] + shift) % slices
                if claim(board, item, phase + 2):
                    add_parts(first + item, parts, layout, space)
                    finish(board)
            ok = wait(board, done + parts + slices, settings.patience)
        if ok:
            norm = np.sqrt(space.squares[first : first + slices].sum())
            checked = norm
            for part in range(parts):
                checked += space.sums[part, 0]  # of the loss
            count = update if number == 0 else update // settings.delay
            rates = rates_of(count, settings.learning_rates[number], settings.epsilon)
            factor = settings.max_norm / (dtype(norm) + dtype(1e-6))
            factor = factor if factor < one else one
            follow = update % settings.period == 0
            for shift in range(slices):
                item = (crew[0] * slices // crew[1] + shift) % slices
                if claim(board, item, phase + 3):
                    if not np.isfinite(checked):
                        space.report[number, SUMS + 1] = -1.0
                        stop(board)
                    else:
                        step(first + item, factor, rates, follow, learnt, layout, space, settings)
                        if item == 0:
                            add_sums(parts, norm, learnt, space, settings)
                    finish(board)
            ok = wait(board, done + parts + 2 * slices, settings.patience)
        return phase + 3, done + parts + 2 * slices, ok

    return run


@functools.cache
def make_update(dtype: type, stages: tuple[Stage, ...]) -> Callable[..., None]:
    """Kernel (worker, workers, Learnt, Layout, Transitions, Space, Settings): a worker's share.

    There are one or two stages; the second one follows every `settings.delay` updates.
    """
    first = _make_stage(dtype, 0, stages[0])
    second = _make_stage(dtype, 1, stages[1]) if len(stages) > 1 else None

    if second is None:

        @kernel
        def update(worker, workers, learnt, layout, batch, space, settings):
            crew, phase, done, ok, number = (worker, workers), 0, 0, True, settings.before
            last = settings.before + settings.updates
            while ok and number < last:
                number += 1
                phase, done, ok = first(
                    crew, phase, done, number, learnt, layout, batch, space, settings
                )

        return update

    @kernel
    def update_both(worker, workers, learnt, layout, batch, space, settings):
        crew, phase, done, ok, number = (worker, workers), 0, 0, True, settings.before
        last = settings.before + settings.updates
        while ok and number < last:
            number += 1
            phase, done, ok = first(
                crew, phase, done, number, learnt, layout, batch, space, settings
            )
            if ok and number % settings.delay == 0:
                phase, done, ok = second(
                    crew, phase, done, number, learnt, layout, batch, space, settings
                )

    return update_both


# ---------------------------------------------------------------- the learner


class StagedLearner:
    """Networks, the targets that follow some of them, and the threads that run updates.

    Args:
        networks: what is learnt; each call of `update` overwrites their arrays.
        followed: numbers of the networks that have a target, a copy that follows slowly. Targets
            are networks too, numbered after all others, in this order.
        stages: what an update does: one or two stages, compiled to one kernel.
        coefficients: NamedTuple of numbers that gradients read, for the type alone.
        actions: dtype of the actions, int64 or float32.
        extra: numbers that the stages learn beside the networks, such as a temperature.
        rows: numbers of a sample that gradients need scratch memory for.
        at_once: networks whose units a gradient needs at the same time.
        seed: of the random stream.
        num_threads: threads at most; None for one on each CPU. The result does not depend on it.

    Attributes:
        learnt: parameters and moments of Adam, targets too.
        counters: (1,) int64, updates so far.
        key: (2,) uint32 of the random stream.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        followed: Sequence[int],
        stages: tuple[Stage, ...],
        coefficients: Any,
        *,
        actions: type,
        extra: Array | None = None,
        rows: int = 8,
        at_once: int = 1,
        seed: int = 0,
        num_threads: int | None = None,
    ) -> None:
        self.networks, self.stages, self.actions = list(networks), stages, actions
        targets = [_copy_of(self.networks[k]) for k in followed]
        self.all = [*self.networks, *targets]
        self._coefficients, self._rows, self._at_once = coefficients, rows, at_once
        self.num_workers = num_threads or default_num_threads()
        self.layout = self._lay_out(followed)
        size, copies = int(self.layout.begins[-1]), int(self.layout.copies_begins[-1])
        vectors = [np.zeros(n, np.float32) for n in (size, size, size, copies)]
        numbers = np.zeros(1) if extra is None else extra
        self.learnt = StagedLearnt._make([*vectors, numbers])
        self.counters = np.zeros(1, np.int64)
        self.key = keys(np.array([seed], np.uint64))[:, 0]
        self._helpers, self._alone = Helpers(), 0
        self._space: Space | None = None
        self._made_for = (0, 0)
        self.read_networks()

    def _lay_out(self, followed: Sequence[int]) -> Layout:
        plain = lay_out(self.all)
        targets = np.full(len(self.all), -1)
        targets[list(followed)] = len(self.networks) + np.arange(len(followed))
        slices, bounds = [], [0]
        for stage in self.stages:
            for k in stage.networks:
                slices += _slices_of(plain, k)
            bounds.append(len(slices))
        return Layout(*plain, targets, np.array(slices), np.array(bounds))

    # ------------------------------------------------------------ parameters

    def read_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Take the present parameters of networks of these numbers over; None for all."""
        for k in range(len(self.all)) if numbers is None else numbers:
            for learnt, flat in self._pairs(k, self.all[k]):
                learnt[...] = flat
        self.write_copies()

    def write_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Write the learnt parameters to networks of these numbers; None for all."""
        for k in range(len(self.all)) if numbers is None else numbers:
            for learnt, flat in self._pairs(k, self.all[k]):
                flat[...] = learnt

    def write_copies(self) -> None:
        """Make the transposed weights of all networks anew."""
        for k in range(len(self.all)):
            network.write_copies(network.network_of.py_func(self.learnt, self.layout, k))

    def _pairs(self, k: int, each: Network) -> list[tuple[Array, Array]]:
        begin, end = self.layout.begins[k : k + 2]
        own = self.learnt.parameters[begin:end]
        packed = network.packed_layers(each.sizes, own, each.layer_norm)
        flat = network.flat_layers(each.sizes, each.parameters, each.layer_norm)
        pairs: list[tuple[Array, Array]] = []
        for ours, theirs in zip(packed, flat, strict=True):
            pairs += zip(ours, theirs, strict=True)
        return pairs

    def state(self) -> dict[str, Array]:
        """Every array that an update changes, by name: what a checkpoint keeps."""
        return {**self.learnt._asdict(), "counters": self.counters, "key": self.key}

    # ------------------------------------------------------------ updates

    def update(
        self,
        batch: Transitions,
        size: int,
        coefficients: Any,
        *,
        learning_rates: Sequence[float],
        delay: int = 1,
        period: int = 1,
        tau: float = 1.0,
        max_norm: float = math.inf,
        epsilon: float = 1e-8,
        write: Sequence[int] = (0,),
    ) -> dict[str, float]:
        """Learn from minibatches of `size` transitions, one after the other.

        Args:
            batch: as many transitions as whole minibatches have.
            size: of a minibatch.
            coefficients: what gradients read.
            learning_rates: of the stages.
            delay: see `Settings`, also for the next four.
            period: updates between two steps of the targets.
            tau: part of the way that they go.
            max_norm: of the gradients of a stage.
            epsilon: of Adam.
            write: numbers of the networks whose arrays are to be written.

        Returns:
            Means over the updates of what the stages say, by name, `gradient_norm` of the first
            stage, and `num_gradients`.

        Raises:
            FloatingPointError: a loss or gradient was NaN or infinite: the step was not taken, what
                was learnt before is kept.
        """
        real, updates = np.float32, batch.rewards.size // size
        part = min(PART, max(32, -(-size // 32) * UNIT))
        space = self._space_for(size, part)
        settings = Settings(
            *(updates, size, part, int(self.counters[0]), delay, period, real(tau)),
            tuple(map(real, learning_rates)),
            *(real(epsilon), real(max_norm), type(coefficients)(*map(real, coefficients))),
            *(self.key[0], self.key[1]),
            # A look takes 1.3 ns: about four times as long as the longest item.
            10_000 + part * self.learnt.parameters.size // 16,
        )
        small = size * self.learnt.parameters.size < SHARED
        workers = 1 if self._alone or small else self.num_workers
        args = (workers, self.learnt, self.layout, batch, space, settings)
        kernel = self._kernel
        self._helpers.run(workers, lambda number: kernel(number, *args))
        self._alone = ALONE if space.done[2] else max(0, self._alone - 1)
        steps = space.report[:, SUMS + 1]
        if (steps < 0).any():
            raise FloatingPointError(
                f"update {int(self.counters[0]) + 1} or one of the {updates - 1} after it has a "
                "loss or gradient that is NaN or infinite, and was left out: smaller rewards, "
                "observations or learning_rate help"
            )
        self.counters += updates
        self.write_networks(write)
        report = {"gradient_norm": space.report[0, SUMS] / updates, "num_gradients": updates}
        for number, stage in enumerate(self.stages):
            for k, name in enumerate(stage.statistics):
                count = steps[number]
                report[name] = space.report[number, k] / count if count else math.nan
        return report

    @property
    def _kernel(self) -> Any:
        # Which networks a stage steps is in the layout: it decides no machine code.
        return make_update(np.float32, tuple(x._replace(networks=()) for x in self.stages))

    def _space_for(self, size: int, part: int) -> Space:
        """Scratch memory, cleared where an update counts in it; kept from call to call."""
        if self._space is None or self._made_for != (size, part):
            self._space, self._made_for = self._make_space(size, part), (size, part)
        for counted in (self._space.claims, self._space.done, self._space.report):
            counted[...] = 0
        return self._space

    def _make_space(self, size: int, part: int) -> Space:
        layout, workers, parts = self.layout, self.num_workers, -(-size // part)
        tables = [table[:n] for table, n in zip(layout.tables, layout.layers, strict=True)]
        cells = max(map(network.cells_per_sample, tables))
        widest = int(layout.tables[:, :, network.WIDTH_IN :].max())
        slices = len(layout.slices)
        return Space(
            gradients=np.zeros((parts, self.learnt.parameters.size), np.float32),
            sums=np.zeros((parts, SUMS)),
            squares=np.zeros(slices),
            cells=np.zeros((workers, self._at_once, CHUNK * cells), np.float32),
            slopes=np.zeros((workers, (CHUNK + 1) * widest), np.float32),
            rows=np.zeros((workers, self._rows, CHUNK), np.float32),
            claims=np.zeros(LINE * max(parts, slices), np.int64),
            done=np.zeros(LINE, np.int64),
            report=np.zeros((len(self.stages), SUMS + 2)),
        )

    def discard(self) -> None:
        """Give up what an interrupted update works on: its threads may go on in it for a moment."""
        self.learnt = StagedLearnt._make(array.copy() for array in self.learnt)
        self._space = None

    def __getstate__(self) -> dict[str, Any]:
        """Without scratch memory."""
        return {**self.__dict__, "_space": None}


class StagedLearnt(NamedTuple):
    """`rlcpu.nn.update.Learnt`, and `extra` float64 numbers that stages learn."""

    parameters: Any
    first: Any
    second: Any
    copies: Any
    extra: Any


def _copy_of(each: Network) -> Network:
    parameters = each.parameters.copy()
    return Network(each.sizes, each.activation, parameters=parameters, layer_norm=each.layer_norm)


def _slices_of(layout: Any, k: int) -> list[tuple[int, ...]]:
    """The slices of one network, see `Layout`."""
    slices: list[tuple[int, ...]] = []
    table, normalized = layout.tables[k, : layout.layers[k]], layout.activations[k] >= NORMALIZED
    for layer, row in enumerate(table.tolist()):
        rows, columns, begin = row[ROWS], row[COLUMNS], row[WEIGHTS] + int(layout.begins[k])
        vectors = row[WIDTH_OUT] * (3 if normalized and layer < len(table) - 1 else 1)
        for first in range(0, rows, SLICE):
            last = min(first + SLICE, rows)
            end = begin + last * columns + (vectors if last == rows else 0)
            slices.append((k, layer, first, last, begin + first * columns, end))
    return slices
