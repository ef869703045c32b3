"""The learner: networks, the algorithm that they learn by, and the threads that run it."""

from __future__ import annotations

import copy
import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rlcpu.kernels import hooks
from rlcpu.kernels.calls import View, kind_of
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.memory import aligned_zeros
from rlcpu.nn import flat, instructions, passes
from rlcpu.nn.columns import Columns, address_of, as_writable
from rlcpu.nn.flat import FlatLearner
from rlcpu.nn.instructions.chunk import COLUMN_RECORD, Chunk
from rlcpu.nn.layers.kind import LayerStep, padded
from rlcpu.nn.network import Network
from rlcpu.nn.program import FROM_COLUMN, STARTS, NetworkSizes
from rlcpu.nn.tape import Tape
from rlcpu.nn.update import (
    CHUNK,
    FAULT,
    MOST_PARTS,
    NORM,
    SLICE,
    SLICE_RECORD,
    STEPS,
    Frame,
    LearntLayout,
    SampleColumns,
    Space,
    UpdateSettings,
    make_kernel,
    make_update,
    share_kind,
)
from rlcpu.nn.workers import LINE

Array = npt.NDArray[Any]
#: Products of parameters and samples from which a second thread pays: of a minibatch, for what
#: threads wait for each other, and of a call, for its start.
LEAST, SHARED = 1_000_000, 4_000_000
#: Sequences that pass networks together at least: rows of the products of a time step.
TOGETHER = 16


class Update(NamedTuple):
    """A loss of an algorithm, and what learns from it.

    Attributes:
        function: (batch, nets, settings) -> (mean, statistics), see `rlcpu.nn.tape`.
        learns: names of the networks and arrays that it changes; None for all.
        every: it follows every so many minibatches.
    """

    function: Callable[..., Any]
    learns: tuple[str, ...] | None = None
    every: int = 1


class LearnerSettings(NamedTuple):
    """Settings of a call of `Learner.update`.

    Attributes:
        learning_rate: of Adam; or one for each update.
        minibatch_size: samples of a gradient step.
        epochs: how often it goes through all samples.
        shuffle: whether each epoch shuffles the samples; else minibatches take them as they lie.
        max_gradient_norm: gradients of an update are scaled down to it, all networks' together.
        epsilon: of Adam.
        weight_decay: of AdamW (Loshchilov & Hutter 2019): parameters shrink by this times the
            learning rate in each step.
        rectified: step by RAdam (Liu et al. 2020), whose first thousand steps are shorter.
        stop_above: the name of a statistic of the first update, and the mean over a minibatch above
            which the call ends before that step.
        target_period, tau: every so many minibatches, targets go this part of the way.
        sequence_length: T, where samples are sequences for networks with memory: a batch has all
            sequences of the first time step, then those of the second, and so on. Minibatches are
            of whole sequences, and derivatives go through all time steps.
        abreast: N, sequences that lie side by side: a batch of more than T * N samples has T time
            steps of N sequences, then T of the next N, as a long rollout of N environments that is
            cut into shorter sequences. None for all sequences.
    """

    learning_rate: float | Sequence[float]
    minibatch_size: int = 256
    epochs: int = 1
    shuffle: bool = False
    max_gradient_norm: float = math.inf
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    rectified: bool = False
    stop_above: tuple[str, float] | None = None
    target_period: int = 1
    tau: float = 1.0
    sequence_length: int = 1
    abreast: int | None = None


class Learner(FlatLearner):
    """Learns by an algorithm that is plain Python, wholly in kernels.

    Args:
        networks: what is learnt, by name; and float32 arrays that belong to no network, such as the
            logarithms of standard deviations. Each call of `update` overwrites them.
        algorithm: a function (batch, nets, settings) -> (mean, statistics) that learns all of them,
            or `Update`s, which follow each other on each minibatch.
        columns: names of what a batch has, and how many numbers of a sample each.
        targets: names of copies that follow networks slowly: {"target": "online"}.
        settings: what the algorithm reads; where one that is no float changes, the algorithm is
            traced again.
        per_sample: names of statistics of which `update` leaves the numbers of all samples in
            `per_sample`, such as the errors that priorities are made of.
        seed: of the random stream that shuffles and draws noise.
        num_threads: threads at most; None for one on each CPU that the process may use. The result
            does not depend on it.
        dtype: in which gradients and moments are computed.

    Attributes:
        learnt: parameters and moments of Adam.
        counters: (2,) int64, minibatches and epochs so far.
        per_sample: by name, (S,) numbers of the last batch.
        awaited: a process that compiles the same, or None; see `rlcpu.train.precompile`.
        num_sums: statistics of the update with most, its loss among them.
        columns, settings, targets: see above.
        updates: a list of `Update`.
        names: of networks, then of targets.
        arrays: float32 vectors that belong to no network, by name.
        tape: the algorithm as it was traced last.
        last_call: arguments of the last update, or None.

    Raises:
        TypeError, ValueError: a bad argument, or an algorithm that cannot be traced.

    Example:
        >>> from rlcpu import nn
        >>> def error(y, target):
        ...     return (y - target) ** 2
        >>> def regression(batch, nets, settings):
        ...     return nn.mean(nn.each(error, nets.line(batch.x), batch.target)), {}
        >>> line = nn.Network((1, 1))
        >>> learner = nn.Learner({"line": line}, regression, columns={"x": 1, "target": 1})
        >>> x = np.linspace(-1, 1, 256, dtype=np.float32)
        >>> batch = {"x": x, "target": 3 * x}
        >>> means = learner.update(batch, learning_rate=0.1, epochs=100)
        >>> round(float(line.outputs([[2.0]])[0, 0]), 1)
        6.0
    """

    awaited: subprocess.Popen[bytes] | None = None
    last_call: UpdateArguments | None = None
    _compiled: Any = None

    def __init__(
        self,
        networks: Mapping[str, Any],
        algorithm: Callable[..., Any] | Sequence[Update],
        *,
        columns: Mapping[str, int],
        targets: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        per_sample: Sequence[str] = (),
        seed: int = 0,
        num_threads: int | None = None,
        dtype: type = np.float32,
    ) -> None:
        self.targets = dict(targets or {})
        self.columns, self.settings = dict(columns), dict(settings or {})
        self._named = {name: x for name, x in networks.items() if isinstance(x, Network)}
        if any(each.state_size for each in self._named.values()):
            self.columns.setdefault(STARTS, 1)
        self.arrays = {name: x for name, x in networks.items() if name not in self._named}
        for name, array in self.arrays.items():
            _check_array(name, array)
        if callable(algorithm):
            algorithm = [Update(algorithm)]
        everything = tuple(networks)
        self.updates = [
            each._replace(learns=everything) if each.learns is None else each for each in algorithm
        ]
        self._check_names()
        copies = {name: _copy_of(self._named[source]) for name, source in self.targets.items()}
        self.names = [*self._named, *copies]
        self._wanted = tuple(per_sample)
        self.per_sample: dict[str, Array] = {}
        layout = self._lay_out([*self._named.values(), *copies.values()])
        super().__init__(
            [*self._named.values(), *copies.values()],
            layout,
            counters=2,
            seed=seed,
            num_threads=num_threads,
            dtype=dtype,
        )
        self._trace()

    def _check_names(self) -> None:
        """Raise ValueError for names of networks, targets and updates that do not fit."""
        names: dict[int, str] = {}
        for name, network in self._named.items():
            first = names.setdefault(id(network), name)
            if first != name:
                raise ValueError(
                    f"networks[{name!r}] is networks[{first!r}]: expected another network, or "
                    f"targets={{{name!r}: {first!r}}} for a copy"
                )
        for name, source in self.targets.items():
            if source not in self._named or name in self._named:
                raise ValueError(
                    f"targets={{{name!r}: {source!r}}}: expected a new name of a network"
                )
        known = [*self._named, *self.arrays]
        for each in self.updates:
            check_count("every", each.every)
            for name in each.learns or ():
                if name not in known:
                    raise ValueError(f"learns={name!r}: expected one of {', '.join(known)}")

    # ------------------------------------------------------------ what is learnt

    def _lay_out(self, networks: Sequence[Network]) -> LearntLayout:
        """Lay out networks, targets, then arrays, and cut what updates learn into slices."""
        plain = flat.FlatLayout.of(networks)
        count, end = len(networks), int(plain.begins[-1])
        self._places: dict[str, tuple[int, int]] = {}
        for name, array in self.arrays.items():
            self._places[name] = end, array.size
            end += padded(array.size)
        begins = np.append(plain.begins[:-1], [plain.begins[-1], end])
        numbers = np.full(count, -1)
        for name, source in self.targets.items():
            numbers[self.names.index(source)] = self.names.index(name)
        slices: list[tuple[int, ...]] = []
        bounds = [0]
        for each in self.updates:
            for name in each.learns or ():
                if name in self._places:
                    place, size = self._places[name]
                    slices.append((-1, 0, 0, 0, place, place + size))
                else:
                    slices += _slices_of(plain, self.names.index(name))
            bounds.append(len(slices))
        return LearntLayout(
            **{**plain._asdict(), "begins": begins},
            targets=numbers,
            parameters=int(plain.begins[-1]),
            slices=np.array(slices, SLICE_RECORD),
            updates=np.array(bounds),
        )

    def _pair_views(self) -> list[list[tuple[Array, Array]]]:
        views = super()._pair_views()
        for name, (place, size) in self._places.items():
            ours = self.learnt.parameters[place : place + size]
            views.append([(ours, self.arrays[name])])
        return views

    def read_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Read the parameters of networks and arrays, be they new arrays."""
        chosen = range(len(self.networks) + len(self.arrays)) if numbers is None else numbers
        super().read_networks(chosen)

    def write_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Write learnt parameters to networks and arrays."""
        chosen = range(len(self.networks) + len(self.arrays)) if numbers is None else numbers
        super().write_networks(chosen)

    def value_of(self, name: str) -> Array:
        """Return the present numbers of an array that is learnt."""
        place, size = self._places[name]
        values: Array = self.learnt.parameters[place : place + size]
        return values

    # ------------------------------------------------------------ the tape

    def _trace(self) -> None:
        """Trace the algorithm; a setting that is no float is read here, and stays."""
        sizes = {
            name: NetworkSizes(
                each.input_sizes,
                each.output_sizes,
                each.names_outputs,
                each.plan.units,
                each.state_size,
            )
            for name, each in zip(self.names, self.networks, strict=True)
        }
        tape = Tape(self.columns, sizes, self._places)
        for each in self.updates:
            tape.trace(each.function, each.learns or (), self.settings, self._wanted)
        self.tape = tape
        missing = [name for name in self._wanted if name not in tape.per_sample]
        if missing:
            raise ValueError(
                f"per_sample={missing[0]!r}: the algorithm returns no such statistic of each sample"
                f", as {{{missing[0]!r}: value - target}}"
            )
        self._program = tape.program(self.dtype)
        self._standardised = np.array(tape.standardised, np.int64)
        self._every = np.array([each.every for each in self.updates])
        takes_ones = frozenset(filter(self._find_takes_ones, self.columns))
        self._columns = Columns(self.columns, tape.limits, takes_ones)
        self._is_ready = False

    def _prepare(self) -> None:
        """Compile scalar functions and the kernel of all tapes, unless they are compiled."""
        if self._is_ready:
            return
        kind = self._kind()
        is_awaited, self.awaited = self.awaited is not None, None
        if is_awaited:  # the process goes the other way, until both meet
            self._compile_update(kind)
        for table, each in zip(self.layout.tables, self.networks, strict=True):
            table[: len(each.plan.table)] = passes.link(each.plan, self.dtype)
        kinds = [self._kind_of(each) for each in self.tape.instructions]
        rows = list(zip(self._program.instructions, kinds, strict=True))
        rows = rows if is_awaited else rows[::-1]
        instructions.link(rows, self.tape.functions, self.dtype, kind)
        self._compiled = _Compiled(make_kernel(share_kind(kind)), self._compile_update(kind))
        self._is_ready = True

    def _kind_of(self, instruction: Mapping[str, Any]) -> str:
        """Return the kind of an instruction, for batches like the last one."""
        kind: str = instruction["kind"]
        if kind != "network":
            return kind
        first = self.tape.inputs[self.tape.applications[instruction["index"]].first]
        names, ones = list(self.columns), self._columns.ones
        is_of_ones = first.kind == FROM_COLUMN and names[first.source] in ones
        return "network_of_ones" if is_of_ones else kind

    def _compile_update(self, kind: Any) -> int:
        """Return the address of the function that all workers run; see `make_update`."""
        update: Any = make_update(self.dtype, kind)
        update.compile((View(share_kind(kind)),))
        return hooks.address_of(update)

    @property
    def num_sums(self) -> int:
        """Return the number of statistics of the update with most, its loss among them."""
        return max(map(len, self.tape.statistics))

    # ------------------------------------------------------------ updates

    def update(
        self,
        batch: Mapping[str, Any],
        *,
        normalise: Mapping[str, tuple[Array, Array]] | None = None,
        settings: Mapping[str, Any] | None = None,
        write: Sequence[str] | None = None,
        states: Mapping[str, npt.ArrayLike] | None = None,
        **steps: Any,
    ) -> dict[str, float]:
        """Learn from S samples, and write the networks.

        Args:
            batch: arrays (S,) or (S, width) for each column; or `nn.Ones`, for the input of
                networks that is zeros but for a few ones.
            normalise: by name of a column, mean and scale (width,): networks see (numbers - mean) *
                scale, clipped to +-10.
            settings: those that have changed.
            write: names of what is to be written; None for everything but targets.
            states: by name of a network with memory what it remembers before the first time step,
                (sequences, state_size); targets have those of their networks. Such networks read
                the column `starts` too: above 0 where an episode begins and nothing is remembered,
                below 0 where no derivative goes further back, for what is there to be remembered.
            **steps: fields of `rlcpu.nn.learner.LearnerSettings`, `learning_rate` at least.

        Returns:
            Means over the gradient steps: of each update's loss, by the name of its function, of
            its statistics, and of `gradient_norm` of the first; `num_gradients`, steps taken.

        Raises:
            KeyError: a column is missing.
            TypeError, ValueError: an argument is unknown or out of its range, or an array of
                another shape.
            FloatingPointError: a loss or a gradient was NaN or infinite: that step was not taken,
                earlier steps stay.
        """
        chosen = self._check_steps(steps)
        rates = self._rates_of(chosen.learning_rate)
        epochs, minibatch = chosen.epochs, chosen.minibatch_size
        self._read_settings(settings)
        ones = self._columns.ones
        columns, references, count = self._columns.read(batch, normalise or {})
        self._is_ready &= ones == self._columns.ones
        watched, most = self._find_watched(chosen.stop_above)
        length = chosen.sequence_length
        abreast = _find_abreast(count, length, chosen.abreast)
        remembered = self._make_states(states or {}, count, length)
        self._prepare()
        minibatch = min(minibatch, count)
        part, chunk = parts_of(minibatch, length)
        space = self._space_for(self._make_space, count, minibatch, part, chunk)
        real = self.dtype
        values = UpdateSettings(
            epochs=epochs,
            minibatch=minibatch,
            part=part,
            chunk=chunk,
            steps=length,
            abreast=abreast,
            is_shuffled=bool(chosen.shuffle),
            standardised=self._standardised,
            counters=self.counters,
            every=self._every,
            period=chosen.target_period,
            tau=real(chosen.tau),
            learning_rates=rates,
            epsilon=real(chosen.epsilon),
            decay=real(chosen.weight_decay),
            is_rectified=bool(chosen.rectified),
            max_norm=real(chosen.max_gradient_norm),
            watched=watched,
            most=most,
            key_low=self.key[0],
            key_high=self.key[1],
            patience=self._patience(part),
        )
        outputs: Array = np.zeros((max(len(self.tape.per_sample), 1), count), real)
        self.per_sample = dict(zip(self.tape.per_sample, outputs, strict=False))
        places = np.array([0 if array is None else address_of(array) for array in remembered])
        samples, kernel = SampleColumns(count, columns, outputs, places), self._compiled.kernel
        update = self._compiled.update
        alive = references, remembered
        workers = self._workers_for(minibatch, part, epochs * -(-count // minibatch))

        def run(*arguments: Any, alive: Any = alive) -> None:
            """Hold arrays whose addresses the kernel has, also where nobody waits for its end."""
            kernel(update, *arguments)

        frame = Frame(self.learnt, self.layout, self._program, samples, space, values)
        self.last_call = UpdateArguments(workers, references, update, frame)
        try:
            self._run(run, workers, space, self._program, samples, space, values)
        finally:
            self.counters[0] += int(space.report[0, self.num_sums + STEPS])
            self.counters[1] += epochs
        return self.finish(write)

    def _workers_for(self, minibatch: int, part: int, steps: int) -> int:
        """Return how many threads are worth their start, and the waiting in each step."""
        work = minibatch * self.learnt.parameters.size
        if work < LEAST or work * steps < SHARED:
            return 1
        return min(self.num_workers, -(-minibatch // part))

    def finish(self, write: Sequence[str] | None) -> dict[str, float]:
        """Write learnt parameters to networks and arrays; returns the report of `update`.

        Raises:
            FloatingPointError: a loss or a gradient was not finite; what was learnt before it is
                written.
        """
        rows, sums = self.space.report.tolist(), self.num_sums
        names = [*self._named, *self.arrays] if write is None else write
        order = [*self.names, *self.arrays]
        self.write_networks([order.index(name) for name in names])
        for k, row in enumerate(rows):
            if row[sums + FAULT]:
                raise FloatingPointError(self._describe_fault(k))
        report: dict[str, float] = {}
        for names, row in zip(self.tape.statistics, rows, strict=True):
            steps = row[sums + STEPS]
            for name, total in zip(names, row, strict=False):
                report[name] = total / steps if steps else math.nan
        steps = rows[0][sums + STEPS]
        report["gradient_norm"] = rows[0][sums + NORM] / steps if steps else math.nan
        return {**report, "num_gradients": int(steps)}

    def _describe_fault(self, update: int) -> str:
        """Return the message for a loss or gradient of an update that is not finite."""
        names = self.tape.statistics[update]
        totals = self.space.sums.sum(axis=0)
        bad = [name for name, total in zip(names, totals, strict=False) if not math.isfinite(total)]
        step = int(self.counters[0]) + (update == 0)
        return (
            f"gradient step {step}: {', '.join(bad) or 'a gradient'} of {names[0]} became NaN or "
            "infinite, and the step was left out: smaller rewards, observations or learning_rate "
            "help"
        )

    def _check_steps(self, steps: dict[str, Any]) -> LearnerSettings:
        """Return the settings of a call, after checks."""
        if "learning_rate" not in steps:
            raise TypeError("learning_rate: expected a number")
        chosen = LearnerSettings(**steps)
        for name in ("epochs", "minibatch_size", "target_period", "sequence_length"):
            check_count(name, getattr(chosen, name))
        if chosen.minibatch_size % chosen.sequence_length:
            length = chosen.sequence_length
            whole = f"expected a multiple of sequence_length={length}, for whole sequences"
            raise ValueError(f"minibatch_size={chosen.minibatch_size}: {whole}")
        if not 0.0 <= chosen.tau <= 1.0:
            raise ValueError(f"tau={chosen.tau!r}: expected a number from 0 to 1")
        return chosen

    def _rates_of(self, learning_rate: float | Sequence[float]) -> Array:
        """Return the learning rate of each update, after a check."""
        count = len(self.updates)
        if isinstance(learning_rate, float):
            return np.array([learning_rate] * count, self.dtype)
        if np.shape(learning_rate) not in ((), (count,)):
            expected = f"a number, or {count} for as many updates"
            raise ValueError(f"learning_rate={learning_rate!r}: expected {expected}")
        return np.full(count, learning_rate, self.dtype)

    def _find_watched(self, stop_above: tuple[str, float] | None) -> tuple[int, float]:
        if stop_above is None:
            return -1, math.inf
        known = self.tape.statistics[0]
        if stop_above[0] not in known:
            raise ValueError(f"stop_above={stop_above!r}: expected one of {', '.join(known)}")
        return known.index(stop_above[0]), float(stop_above[1])

    def _read_settings(self, settings: Mapping[str, Any] | None) -> None:
        """Take new settings, and trace the algorithm again if one that is no float changed."""
        changed = False
        for name, value in (settings or {}).items():
            if name not in self.settings:
                raise ValueError(f"settings: {name!r} is none of {', '.join(self.settings)}")
            before = self.settings[name]
            changed |= type(value) is not type(before)
            changed |= type(value) is not float and not np.array_equal(value, before)
            self.settings[name] = value
        if changed:  # of these, branches of the algorithm may depend
            self._trace()
        for k, name in enumerate(self.tape.settings):
            self._program.numbers[k] = self.settings[name]

    # ------------------------------------------------------------ batches

    def _make_states(self, states: Mapping[str, Any], count: int, length: int) -> list[Any]:
        """Return the states of each network as the kernel takes them, or None, after checks."""
        for name in states:
            if name not in self._named:
                raise ValueError(f"states has {name!r}: expected {', '.join(self._named)}")
        made: list[Any] = []
        for name, network in zip(self.names, self.networks, strict=True):
            source, size = self.targets.get(name, name), network.state_size
            if size == 0:
                made.append(None)
                continue
            shape = count // length, size
            if source not in states:
                raise KeyError(f"states has no {source!r}, a network with memory: expected {shape}")
            array = as_writable(states[source], np.float32)
            if array.shape != shape:
                raise ValueError(f"states[{source!r}] has shape {array.shape}: expected {shape}")
            made.append(array)
        return made

    def takes_ones(self, name: str) -> bool:
        """Tell whether networks add up rows of weights for the ones of a column.

        They do where the column is the only input of each network that reads it, and nothing else
        reads it.
        """
        return name in self._columns.takes_ones

    def _find_takes_ones(self, name: str) -> bool:
        """Tell from the tape whether networks add up rows of weights for the ones of a column."""
        column, tape = list(self.columns).index(name), self.tape
        if any((each["kind"], each["index"]) == ("column", column) for each in tape.instructions):
            return False
        for application in tape.applications:
            end = application.first + application.inputs
            operands = tape.inputs[application.first : end]
            reads = any((each.kind, each.source) == (FROM_COLUMN, column) for each in operands)
            plan = self.networks[application.network].plan
            if reads and not (len(operands) == 1 and plan.takes_ones):
                return False
        return True

    def _make_space(self, count: int, minibatch: int, part: int, chunk: int) -> Space:
        """Return the scratch memory of a call for so many samples."""
        layout, tape, workers, real = self.layout, self.tape, self.num_workers, self.dtype
        minibatches, parts = -(-count // minibatch), -(-minibatch // part)
        products = max(each.plan.slopes for each in self.networks)
        most, height = min(part, chunk), max(tape.heights)
        slices = len(layout.slices)
        return Space(
            indices=np.zeros(count, np.int64),
            # The last of a minibatch is that of columns as they are, and never changes.
            moments=np.tile(np.array([0, 1], real), (minibatches, len(tape.standardised) + 1, 1)),
            gradients=aligned_zeros((parts, self.learnt.parameters.size), real),
            sums=np.zeros((parts, self.num_sums)),
            squares=np.zeros(slices),
            units=aligned_zeros((workers, chunk * (tape.cells + tape.shared_cells)), real),
            products=aligned_zeros((workers, (most + 1) * products), real),
            rows=aligned_zeros((workers, most * height), real),
            slopes=aligned_zeros((workers, most * height), real),
            claims=np.zeros(LINE * max(parts, slices, minibatches), np.int64),
            done=np.zeros(LINE, np.int64),
            report=np.zeros((len(self.updates), self.num_sums + 3)),
        )

    # ------------------------------------------------------------ machine code

    def compile(self) -> None:
        """Compile or load the kernel and the functions that it calls, without an update."""
        self._prepare()
        self._compiled.kernel.compile(self._types())

    def is_uncompiled(self) -> bool:
        """Tell whether the first update would compile functions of workers, and cache them."""
        kind = self._kind()
        update: Any = make_update(self.dtype, kind)
        return not update.overloads and hooks.cache_of(update).lacks((View(share_kind(kind)),))

    def _kind(self) -> Any:
        """Return numba's type of a `Chunk`."""
        real, samples = self.dtype, np.zeros(0, np.int64)
        rows: Any = np.zeros((0, 0), real)
        row: Any = np.zeros(0, real)
        frame = View(kind_of(Frame(self.learnt, self.layout, *self._examples())))
        chunk = Chunk(0, 0, 0, samples, 0, real(0), False, rows, rows, row, row, np.zeros(0), frame)
        return kind_of(chunk)

    def _examples(self) -> tuple[Any, ...]:
        """Return values of the types of the kernel's last arguments."""
        real, numbers = self.dtype, np.zeros(1, np.int64)
        reals: Any = np.zeros(1, real)
        batch = SampleColumns(1, np.zeros(1, COLUMN_RECORD), np.zeros((1, 1), real), numbers)
        settings = UpdateSettings(
            *(1, 1, 1, 1, 1, 1, False, numbers, numbers, numbers, 1, real(0), reals, real(0)),
            *(real(0), False, real(0), -1, 0.0, self.key[0], self.key[1], 0),
        )
        return self._program, batch, self._make_space(1, 1, 32, CHUNK), settings

    def _types(self) -> tuple[Any, ...]:
        """Return numba's types of the kernel's arguments."""
        typeof: Any = numba.typeof
        return tuple(map(typeof, (0, 0, 1, self.learnt, self.layout, *self._examples())))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the process that compiles, and addresses, which no other process has."""
        return {
            **super().__getstate__(),
            "awaited": None,
            "_is_ready": False,
            "_compiled": None,
            "last_call": None,
        }


class UpdateArguments(NamedTuple):
    """Arguments of an update, which kernels may call again in the same memory.

    Attributes:
        workers: threads that made it.
        columns: of the batch by name, see `rlcpu.nn.columns`.
        update: address of the function that all workers run.
        frame: what they work on.
    """

    workers: int
    columns: Any
    update: int
    frame: Frame


class _Compiled(NamedTuple):
    """Machine code: the kernel, and the address of what it calls."""

    kernel: Any
    update: int


def parts_of(minibatch: int, steps: int = 1) -> tuple[int, int]:
    """Return the samples of a part and of a chunk, whole sequences of so many steps.

    Parts are few enough to keep two cores busy, and few in all.
    """
    if steps == 1:
        if minibatch <= CHUNK:
            return max(32, -(-minibatch // 32) * 16), CHUNK
        return CHUNK * max(1, -(-minibatch // (CHUNK * MOST_PARTS))), CHUNK
    sequences = minibatch // steps
    together = min(max(TOGETHER, 4 * CHUNK // steps), -(-sequences // 2))
    chunks = -(-sequences // together)
    return together * steps * -(-chunks // MOST_PARTS), together * steps


def _find_abreast(count: int, length: int, abreast: Any) -> int:
    """Return how many sequences lie side by side in a batch of so many samples, after checks."""
    if count % length:
        raise ValueError(f"sequence_length={length}: the batch has {count} samples")
    sequences = count // length
    if abreast is not None and sequences % check_count("abreast", abreast):
        raise ValueError(f"abreast={abreast}: the batch has {sequences} sequences of {length}")
    return abreast or sequences


def _copy_of(each: Network) -> Network:
    other = copy.copy(each)
    other.parameters, other.free = each.parameters.copy(), np.zeros(0, np.float32)
    return other


def _check_array(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 1:
        raise TypeError(f"networks[{name!r}]={array!r}: expected a Network or a float32 vector")


def _slices_of(layout: Any, k: int) -> list[tuple[int, ...]]:
    """Return the slices of one network, see `LearntLayout`."""
    slices: list[tuple[int, ...]] = []
    shift = int(layout.begins[k] + layout.free[k])
    for number, row in enumerate(layout.tables[k, : layout.steps[k]].tolist()):
        step = LayerStep(*row)
        if step.end == step.parameters:
            continue
        for first in range(0, max(step.rows, 1), SLICE):
            last = min(first + SLICE, step.rows)
            begin = step.parameters + first * step.columns
            end = step.end if last == step.rows else step.parameters + last * step.columns
            slices.append((k, number, first, last, shift + begin, shift + end))
    return slices
