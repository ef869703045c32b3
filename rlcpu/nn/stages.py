"""Updates in stages: networks that learn from transitions, and from targets made of themselves.

An update of DQN is one stage, an update of an actor and its critics two. Each stage takes three
phases, which workers share (see `rlcpu.nn.workers`):

    gradient    items are parts of the minibatch, each with a gradient of its own
    sum         items are slices of the networks: parts are added in order, squares too
    step        the same slices: Adam, the transposed copies, and the targets

What a part or a slice computes does not depend on who does it: results do not depend on the number
of threads. A stage is one function `gradient(part)` of a `Part`, which overwrites its gradients;
the rules of the paper are scalar functions that it calls, see `rlcpu.train.dqn`. The kernel of an
update is the same for all algorithms, and calls what stages bring by address.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.calls import View, function_of, kind_of, make_call, view
from rlcpu.kernels.compile import compact, inline, inline_exact, kernel, merge, outline
from rlcpu.kernels.memory import aligned_zeros
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
from rlcpu.nn.passes import Passes, passes_of
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
        gradients: (num_parts, P); the first becomes the sum of all.
        sums: (num_parts, SUMS) float64.
        squares: (num_slices,) float64.
        cells: (num_workers, most networks at a time, any), units of the networks.
        slopes: (num_workers, any).
        rows: (num_workers, any, PART), numbers of the samples of a part.
        claims, done: see `rlcpu.nn.workers.Board`.
        report: (num_stages, SUMS + 3) float64: sums over the updates of means over the samples,
            the norm of the gradient, gradient steps, and whether one was refused.
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
        coefficients: (any,) of the algorithm's.
        key_low, key_high: uint32, of the random stream.
        patience: see `rlcpu.nn.workers.wait`.
        gradients, finishes: (num_stages,) int64, addresses of the functions of `Stage`, or 0.
        passes: see `rlcpu.nn.passes.passes_of`.
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
    gradients: Any
    finishes: Any
    passes: Passes


class Frame(NamedTuple):
    """All that an update works on."""

    learnt: Any
    layout: Layout
    batch: Transitions
    space: Space
    settings: Settings


class Part(NamedTuple):
    """What a stage's functions are given.

    Attributes:
        worker: who runs it, and so which scratch memory it may use.
        chunk: its samples.
        gradients: (P,), of which those of the stage's networks are overwritten.
        sums: (SUMS,) float64, zeros to which it adds its statistics.
        frame: the rest.
    """

    worker: int
    chunk: Chunk
    gradients: Any
    sums: Any
    frame: Frame


class Stage(NamedTuple):
    """What one stage learns, and how.

    Attributes:
        gradient: dtype -> `gradient(part)`, plain Python for a kernel.
        networks: numbers of the networks that it steps.
        statistics: names of the first of its sums; the very first is a loss.
        finish: dtype -> `finish(part)`, called once after the gradient, with the sums over all
            samples; or None.
    """

    gradient: Callable[[type], Callable[..., None]]
    networks: tuple[int, ...]
    statistics: tuple[str, ...]
    finish: Callable[[type], Callable[..., None]] | None = None


# ---------------------------------------------------------------- one slice


@functools.cache
def _make_step(dtype: type) -> Callable[..., None]:
    """`step(item, factor, rates, follow, frame)`: one slice."""
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
    def step(item, factor, rates, follow, frame):
        learnt, layout, space = frame.learnt, frame.layout, frame.space
        k, layer, first, last, begin, end = layout.slices[item]
        parameters = learnt.parameters[begin:end]
        moments = learnt.first[begin:end], learnt.second[begin:end]
        apply(parameters, space.gradients[0, begin:end], moments[0], moments[1], factor, rates)
        copy(k, layer, first, last, learnt, layout, True)
        target = layout.targets[k]
        if follow and target >= 0:
            shift = layout.begins[target] - layout.begins[k]
            tau = frame.settings.tau
            approach(learnt.parameters[begin + shift : end + shift], parameters, tau)
            copy(target, layer, first, last, learnt, layout, False)

    return step


# ---------------------------------------------------------------- the whole update


class Turn(NamedTuple):
    """Where a worker is: in a stage of an update, whose phases are numbered after `phase`."""

    worker: int
    workers: int
    update: int
    stage: int
    phase: int


@functools.cache
def _function(make: Callable[[type], Callable[..., None]] | None, dtype: type, kind: Any) -> int:
    """Address of what a stage makes for a dtype, given a `Part` of a type; 0 for None."""
    return function_of(make(dtype), kind) if make else 0


@functools.cache
def make_update(dtype: type, kind: Any) -> Callable[..., None]:
    """Kernel (worker, workers, Learnt, Layout, Transitions, Space, Settings): a worker's share.

    `kind` is the type of a `Part` of these. There are one or two stages; the second one follows
    every `settings.delay` updates.
    """
    call, step, rates_of = make_call(kind), _make_step(dtype), make_rates(dtype)
    add, squares = make_sums(dtype)
    one = dtype(1)

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
    def part_of(turn, number, frame):
        """Part `number` of the minibatch of an update."""
        space, settings = frame.space, frame.settings
        first = number * settings.part
        size = min(settings.part, settings.size - first)
        begin = (turn.update - settings.before - 1) * settings.size + first
        chunk = Chunk(begin, size, one / dtype(settings.size), turn.update)
        return Part(turn.worker, chunk, space.gradients[number], space.sums[number], frame)

    @merge
    def add_parts(turn, parts, frame):
        board = Board(frame.space.claims, frame.space.done)
        for shift in range(parts):
            item = item_of((turn.worker, turn.workers), parts, shift)
            if claim(board, item, turn.phase + 1):
                fill(frame.space.sums[item], 0.0)
                call(frame.settings.gradients[turn.stage], part_of(turn, item, frame))
                finish(board)

    @merge
    def sum_slices(turn, first, slices, parts, frame):
        layout, space = frame.layout, frame.space
        board = Board(space.claims, space.done)
        for shift in range(slices):
            item = item_of((turn.worker, turn.workers), slices, shift)
            if claim(board, item, turn.phase + 2):
                begin, end = layout.slices[first + item, 4], layout.slices[first + item, 5]
                total = space.gradients[0, begin:end]
                for part in range(1, parts):
                    add_to(total, space.gradients[part, begin:end])
                space.squares[first + item] = square_sum(total)
                finish(board)

    @merge
    def report(turn, parts, norm, frame):
        """Add the sums over all samples to the report, and finish the stage with them."""
        space, settings = frame.space, frame.settings
        sums, row = space.sums[0], space.report[turn.stage]
        for part in range(1, parts):
            for k in range(SUMS):
                sums[k] += space.sums[part, k]
        for k in range(SUMS):
            row[k] += sums[k] / settings.size
        row[SUMS] += norm
        row[SUMS + 1] += 1.0
        if settings.finishes[turn.stage] != 0:
            call(settings.finishes[turn.stage], part_of(turn, 0, frame))

    @merge
    def step_slices(turn, first, slices, parts, frame):
        space, settings = frame.space, frame.settings
        board = Board(space.claims, space.done)
        norm = norm_of(space.squares[first : first + slices])
        checked = norm
        for part in range(parts):
            checked += space.sums[part, 0]  # of the loss
        number = turn.update if turn.stage == 0 else turn.update // settings.delay
        rates = rates_of(number, settings.learning_rates[turn.stage], settings.epsilon)
        factor = settings.max_norm / (dtype(norm) + dtype(1e-6))
        factor = factor if factor < one else one
        follow = turn.update % settings.period == 0
        for shift in range(slices):
            item = item_of((turn.worker, turn.workers), slices, shift)
            if claim(board, item, turn.phase + 3):
                if np.isfinite(checked):
                    step(first + item, factor, rates, follow, frame)
                    if item == 0:
                        report(turn, parts, norm, frame)
                else:
                    space.report[turn.stage, SUMS + 2] = 1.0
                    stop(board)
                finish(board)

    @merge
    def run(worker, workers, frame, layout, space, settings):
        board = Board(space.claims, space.done)
        parts = (settings.size + settings.part - 1) // settings.part
        phase = done = 0
        for number in range(settings.before + 1, settings.before + settings.updates + 1):
            for stage in range(1 if number % settings.delay else layout.stages.size - 1):
                turn = Turn(worker, workers, number, stage, phase)
                first = layout.stages[stage]
                slices = layout.stages[stage + 1] - first
                add_parts(turn, parts, frame)
                done += parts
                if not wait(board, done, settings.patience):
                    return
                sum_slices(turn, first, slices, parts, frame)
                done += slices
                if not wait(board, done, settings.patience):
                    return
                step_slices(turn, first, slices, parts, frame)
                done += slices
                if not wait(board, done, settings.patience):
                    return
                phase += 3

    @kernel
    def update(worker, workers, learnt, layout, batch, space, settings):
        compact()
        frame = view(Frame(learnt, layout, batch, space, settings))
        run(worker, workers, frame, frame.layout, frame.space, frame.settings)

    return update


# ---------------------------------------------------------------- the learner


class StagedLearner(FlatLearner):
    """Networks, the targets that follow some of them, and the threads that run updates.

    Args:
        networks: what is learnt; each call of `update` overwrites their arrays.
        followed: numbers of the networks that have a target, a copy that follows slowly. Targets
            are networks too, numbered after all others, in this order.
        stages: what an update does: one or two stages.
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
        *,
        extra: Array | None = None,
        rows: int = 8,
        at_once: int = 1,
        seed: int = 0,
        num_threads: int | None = None,
    ) -> None:
        self.stages = stages
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
        self._rows, self._at_once = rows, at_once
        self._compiled: tuple[Any, ...] | None = None

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
        coefficients: Sequence[float],
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
            FloatingPointError: a loss or gradient was NaN or infinite: the step was not taken. The
                updates before it are kept and counted.
        """
        real, updates = np.float32, batch.rewards.size // size
        part = min(PART, max(32, -(-size // 32) * UNIT))
        space = self._space_for(self._make_space, size, part)
        none = np.zeros(len(self.stages), np.int64)
        settings = Settings(
            updates=updates,
            size=size,
            part=part,
            before=int(self.counters[0]),
            delay=delay,
            period=period,
            tau=real(tau),
            learning_rates=np.array(learning_rates, real),
            epsilon=real(epsilon),
            max_norm=real(max_norm),
            coefficients=np.array(coefficients, real),
            key_low=self.key[0],
            key_high=self.key[1],
            patience=self._patience(part),
            gradients=none,
            finishes=none,
            passes=passes_of(real),
        )
        if self._compiled is None:
            self._compiled = self._compile(batch, space, settings)
        kernel, gradients, finishes = self._compiled
        settings = settings._replace(gradients=gradients, finishes=finishes)
        workers = 1 if size * self.learnt.parameters.size < SHARED else self.num_workers
        try:
            self._run(kernel, workers, space, batch, space, settings)
        finally:  # of an update whose second stage is refused, the first was made
            self.counters += int(space.report[0, SUMS + 1])
        found = space.report.tolist()
        steps = [sums[SUMS + 1] for sums in found]
        refused = [sums[SUMS + 2] > 0 for sums in found]
        if any(refused):
            number = int(self.counters[0]) + refused[0]
            raise FloatingPointError(
                f"update {number} has a loss or gradient that is NaN or infinite, and was left "
                "out: smaller rewards, observations or learning_rate help"
            )
        self.write_networks(write)
        report = {"gradient_norm": found[0][SUMS] / updates, "num_gradients": updates}
        for stage, sums, count in zip(self.stages, found, steps, strict=True):
            for name, total in zip(stage.statistics, sums, strict=False):
                report[name] = total / count if count else math.nan
        return report

    def _compile(self, batch: Transitions, space: Space, settings: Settings) -> tuple[Any, ...]:
        """The kernel for arguments of these types, and addresses of what stages bring to it."""
        frame, real = Frame(self.learnt, self.layout, batch, space, settings), np.float32
        seen = View(kind_of(frame))
        kind = kind_of(Part(0, Chunk(0, 0, real(0), 0), space.gradients[0], space.sums[0], seen))
        gradients = [_function(stage.gradient, real, kind) for stage in self.stages]
        finishes = [_function(stage.finish, real, kind) for stage in self.stages]
        return make_update(real, kind), np.array(gradients), np.array(finishes)

    def __getstate__(self) -> dict[str, Any]:
        """Also without addresses, which are those of this process."""
        return {**super().__getstate__(), "_compiled": None}

    def _make_space(self, size: int, part: int) -> Space:
        """Of minibatches of a size, in parts of another."""
        layout, workers, parts = self.layout, self.num_workers, -(-size // part)
        tables = [table[:n] for table, n in zip(layout.tables, layout.layers, strict=True)]
        cells = max(map(network.cells_per_sample, tables))
        widest = int(layout.tables[:, :, network.WIDTH_IN :].max())
        slices = len(layout.slices)
        return Space(
            gradients=aligned_zeros((parts, self.learnt.parameters.size), np.float32),
            sums=np.zeros((parts, SUMS)),
            squares=np.zeros(slices),
            cells=aligned_zeros((workers, self._at_once, PART * cells), np.float32),
            slopes=aligned_zeros((workers, (PART + 1) * widest), np.float32),
            rows=aligned_zeros((workers, self._rows, PART), np.float32),
            claims=np.zeros(LINE * max(parts, slices), np.int64),
            done=np.zeros(LINE, np.int64),
            report=np.zeros((len(self.stages), SUMS + 3)),
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
