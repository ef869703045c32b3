"""Updates in stages: networks that learn from transitions, and from targets made of themselves.

An update of DQN is one stage, an update of an actor and its critics two. Each stage takes three
phases, which workers share (see `rlcpu.nn.workers`):

    gradient    items are parts of the minibatch, each with a gradient of its own
    sum         items are slices of the networks: parts are added in order, squares too
    step        the same slices: Adam, the transposed copies, and the targets

What a part or a slice computes does not depend on who does it: results do not depend on the number
of threads. A stage is one function, which computes the gradient of a part and overwrites that of
the part before,

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

from rlcpu.kernels.compile import compact, inline, inline_exact, kernel, merge, outline
from rlcpu.kernels.mlp import NORMALIZED
from rlcpu.nn import flat, network
from rlcpu.nn.adam import make_adam, make_rates, make_sums
from rlcpu.nn.flat import FlatLearner
from rlcpu.nn.heads import fill
from rlcpu.nn.network import (
    COLUMNS,
    ROWS,
    UNIT,
    WEIGHTS,
    WIDTH_OUT,
    Network,
    copy_last,
    copy_square,
)
from rlcpu.nn.transitions import Chunk, Transitions
from rlcpu.nn.update import PART
from rlcpu.nn.workers import LINE, Board, claim, finish, item_of, stop, wait

Array = npt.NDArray[Any]
#: Rows of a layer's weights that one worker steps.
SLICE = 64
#: Numbers that a stage adds up over the samples.
SUMS = 4
#: Products of weights and samples of a minibatch from which on a second thread pays for its start.
SHARED = 4_000_000


class Layout(NamedTuple):
    """Where networks and their slices are; the first fields are those of `rlcpu.nn.flat.Layout`.

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
    targets: Any
    slices: Any
    stages: Any


class Space(NamedTuple):
    """Scratch memory, overwritten.

    Attributes:
        gradients: (num_parts, P).
        sums: (num_parts, SUMS) float64.
        squares: (num_slices,) float64.
        cells: (num_workers, most networks at a time, any), units of the networks.
        slopes: (num_workers, any).
        rows: (num_workers, any, PART), numbers of the samples of a part.
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


# ---------------------------------------------------------------- one slice


@functools.cache
def _make_step(dtype: type) -> Callable[..., None]:
    """`step(item, factor, rates, follow, learnt, layout, space, settings)`: one slice."""
    adam = make_adam(dtype)

    @outline
    def apply(parameters, gradients, first, second, factor, rates):
        adam(parameters, gradients, first, second, factor, rates)

    @outline
    def approach(targets, parameters, tau):
        for i in range(targets.size):
            targets[i] += tau * (parameters[i] - targets[i])

    @outline
    def transpose_last(weights, copies, first, end, columns, width):
        copy_last(weights, copies, first, end, columns, width)

    @inline
    def copy(k, layer, first, end, learnt, layout, hidden):
        rows, columns, begin, _, place, _, _, width, _ = layout.tables[k, layer]
        begin, place = begin + layout.begins[k] + layout.free[k], place + layout.copies_begins[k]
        weights, copies = learnt.parameters[begin:], learnt.copies[place:]
        if layer == layout.layers[k] - 1:
            transpose_last(weights, copies, first, end, columns, width)
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


# ---------------------------------------------------------------- the whole update


def _make_gradient(dtype: type, stages: tuple[Stage, ...]) -> Callable[..., None]:
    """The gradient of stage `number`, which is its first argument."""
    functions = [stage.gradient(dtype) for stage in stages]
    first, second = functions[0], functions[-1]
    alone = len(stages) == 1

    @merge
    def gradient(number, worker, chunk, gradients, sums, learnt, layout, batch, space, settings):
        if alone or number == 0:
            first(worker, chunk, gradients, sums, learnt, layout, batch, space, settings)
        else:
            second(worker, chunk, gradients, sums, learnt, layout, batch, space, settings)

    return gradient


def _make_conclude(dtype: type, stages: tuple[Stage, ...]) -> Callable[..., None]:
    """`conclude(number, sums, learnt, settings)`: what follows the gradient of stage `number`."""
    finishes = [(k, stage.finish(dtype)) for k, stage in enumerate(stages) if stage.finish]

    @merge
    def nothing(number, sums, learnt, settings):
        pass

    @merge
    def conclude(number, sums, learnt, settings):
        if number == place:
            last(sums, learnt, settings)

    if not finishes:
        return nothing
    place, last = finishes[0]
    return conclude


@functools.cache
def make_update(dtype: type, stages: tuple[Stage, ...]) -> Callable[..., None]:
    """Kernel (worker, workers, Learnt, Layout, Transitions, Space, Settings): a worker's share.

    There are one or two stages; the second one follows every `settings.delay` updates. All stages
    share one copy of the code but for their gradients.
    """
    gradient, conclude = _make_gradient(dtype, stages), _make_conclude(dtype, stages)
    step, rates_of = _make_step(dtype), make_rates(dtype)
    add, squares = make_sums(dtype)
    one, count = dtype(1), len(stages)

    @outline
    def add_to(total, part):
        add(total, part)

    @outline
    def square_sum(values):
        return squares(values)

    @inline_exact
    def norm_of(squares):
        total = 0.0
        for square in squares:
            total += square
        return np.sqrt(total)

    @merge
    def run_part(number, worker, part, update, learnt, layout, batch, space, settings):
        gradients, sums = space.gradients[part], space.sums[part]
        fill(sums, 0.0)
        first = part * settings.part
        size = min(settings.part, settings.size - first)
        begin = (update - settings.before - 1) * settings.size + first
        chunk = Chunk(begin, size, one / dtype(settings.size), update)
        gradient(number, worker, chunk, gradients, sums, learnt, layout, batch, space, settings)

    @merge
    def add_parts(item, parts, layout, space):
        begin, end = layout.slices[item, 4], layout.slices[item, 5]
        total = space.gradients[0, begin:end]
        for part in range(1, parts):
            add_to(total, space.gradients[part, begin:end])
        space.squares[item] = square_sum(total)

    @merge
    def add_sums(number, parts, norm, learnt, space, settings):
        for part in range(1, parts):
            for k in range(SUMS):
                space.sums[0, k] += space.sums[part, k]
        for k in range(SUMS):
            space.report[number, k] += space.sums[0, k] / settings.size
        space.report[number, SUMS] += norm
        space.report[number, SUMS + 1] += 1.0
        conclude(number, space.sums[0], learnt, settings)

    @kernel
    def update(worker, workers, learnt, layout, batch, space, settings):
        compact()
        crew, board = (worker, workers), Board(space.claims, space.done)
        parts = (settings.size + settings.part - 1) // settings.part
        phase = done = 0
        for number in range(settings.before + 1, settings.before + settings.updates + 1):
            follow = number % settings.period == 0
            for stage in range(1 if number % settings.delay else count):
                first = layout.stages[stage]
                slices = layout.stages[stage + 1] - first
                for shift in range(parts):
                    part = item_of(crew, parts, shift)
                    if claim(board, part, phase + 1):
                        run_part(
                            stage, worker, part, number, learnt, layout, batch, space, settings
                        )
                        finish(board)
                done += parts
                if not wait(board, done, settings.patience):
                    return
                for shift in range(slices):
                    item = item_of(crew, slices, shift)
                    if claim(board, item, phase + 2):
                        add_parts(first + item, parts, layout, space)
                        finish(board)
                done += slices
                if not wait(board, done, settings.patience):
                    return
                norm = norm_of(space.squares[first : first + slices])
                checked = norm
                for part in range(parts):
                    checked += space.sums[part, 0]  # of the loss
                steps = number if stage == 0 else number // settings.delay
                rates = rates_of(steps, settings.learning_rates[stage], settings.epsilon)
                factor = settings.max_norm / (dtype(norm) + dtype(1e-6))
                factor = factor if factor < one else one
                for shift in range(slices):
                    item = item_of(crew, slices, shift)
                    if claim(board, item, phase + 3):
                        if np.isfinite(checked):
                            step(
                                first + item, factor, rates, follow, learnt, layout, space, settings
                            )
                            if item == 0:
                                add_sums(stage, parts, norm, learnt, space, settings)
                        else:
                            space.report[stage, SUMS + 1] = -1.0
                            stop(board)
                        finish(board)
                done += slices
                if not wait(board, done, settings.patience):
                    return
                phase += 3

    return update


# ---------------------------------------------------------------- the learner


class StagedLearner(FlatLearner):
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
        networks: those given, then the targets.
        learnt: parameters and moments of Adam, targets too.
        counters: (1,) int64, updates so far.
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
        self.stages, self.actions = stages, actions
        targets = [_copy_of(networks[k]) for k in followed]
        layout = self._lay_out(networks, targets, followed)
        super().__init__(
            [*networks, *targets],
            layout,
            counters=1,
            seed=seed,
            num_threads=num_threads,
            dtype=np.float32,
        )
        numbers = np.zeros(1) if extra is None else extra
        self.learnt = StagedLearnt._make([*self.learnt, numbers])
        self._coefficients, self._rows, self._at_once = coefficients, rows, at_once
        # Which networks a stage steps is in the layout: it decides no machine code.
        self._code = tuple(stage._replace(networks=()) for stage in stages)

    def _lay_out(
        self, networks: Sequence[Network], targets: list[Network], followed: Sequence[int]
    ) -> Layout:
        plain = flat.Layout.of([*networks, *targets])
        numbers = np.full(len(networks) + len(targets), -1)
        numbers[list(followed)] = len(networks) + np.arange(len(followed))
        slices, bounds = [], [0]
        for stage in self.stages:
            for k in stage.networks:
                slices += _slices_of(plain, k)
            bounds.append(len(slices))
        return Layout(*plain, numbers, np.array(slices), np.array(bounds))

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
        space = self._space_for(self._make_space, size, part)
        settings = Settings(
            *(updates, size, part, int(self.counters[0]), delay, period, real(tau)),
            tuple(map(real, learning_rates)),
            *(real(epsilon), real(max_norm), type(coefficients)(*map(real, coefficients))),
            *(self.key[0], self.key[1], self._patience(part)),
        )
        workers = 1 if size * self.learnt.parameters.size < SHARED else self.num_workers
        self._run(make_update(np.float32, self._code), workers, space, batch, space, settings)
        found = space.report.tolist()
        steps = [sums[SUMS + 1] for sums in found]
        if min(steps) < 0:
            raise FloatingPointError(
                f"update {int(self.counters[0]) + 1} or one of the {updates - 1} after it has a "
                "loss or gradient that is NaN or infinite, and was left out: smaller rewards, "
                "observations or learning_rate help"
            )
        self.counters += updates
        self.write_networks(write)
        report = {"gradient_norm": found[0][SUMS] / updates, "num_gradients": updates}
        for stage, sums, count in zip(self.stages, found, steps, strict=True):
            for name, total in zip(stage.statistics, sums, strict=False):
                report[name] = total / count if count else math.nan
        return report

    def _make_space(self, size: int, part: int) -> Space:
        """Of minibatches of a size, in parts of another."""
        layout, workers, parts = self.layout, self.num_workers, -(-size // part)
        tables = [table[:n] for table, n in zip(layout.tables, layout.layers, strict=True)]
        cells = max(map(network.cells_per_sample, tables))
        widest = int(layout.tables[:, :, network.WIDTH_IN :].max())
        slices = len(layout.slices)
        return Space(
            gradients=np.zeros((parts, self.learnt.parameters.size), np.float32),
            sums=np.zeros((parts, SUMS)),
            squares=np.zeros(slices),
            cells=np.zeros((workers, self._at_once, PART * cells), np.float32),
            slopes=np.zeros((workers, (PART + 1) * widest), np.float32),
            rows=np.zeros((workers, self._rows, PART), np.float32),
            claims=np.zeros(LINE * max(parts, slices), np.int64),
            done=np.zeros(LINE, np.int64),
            report=np.zeros((len(self.stages), SUMS + 2)),
        )


class StagedLearnt(NamedTuple):
    """`rlcpu.nn.flat.Learnt`, and `extra` float64 numbers that stages learn."""

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
