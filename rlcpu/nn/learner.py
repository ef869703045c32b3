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
from rlcpu.kernels.random import keys, stream_seeds
from rlcpu.kernels.threads import default_num_threads
from rlcpu.nn import flat, instructions, passes
from rlcpu.nn.columns import Columns, address_of, as_writable
from rlcpu.nn.instructions.chunk import COLUMN_RECORD, Chunk
from rlcpu.nn.network import Network
from rlcpu.nn.program import FROM_COLUMN, STARTS, NetworkSizes
from rlcpu.nn.settings import LearnerSettings, UpdateSettings
from rlcpu.nn.tape import Tape
from rlcpu.nn.update import (
    FAULT,
    NORM,
    STEPS,
    Frame,
    SampleColumns,
    Space,
    make_kernel,
    make_update,
    share_kind,
)
from rlcpu.nn.workers import LINE_WORDS, Helpers

Array = npt.NDArray[Any]
#: Parameters times samples from which a second thread pays: of a minibatch, as threads wait for
#: each other, and of all minibatches of a call, as threads are started.
LEAST_OF_MINIBATCH, LEAST_OF_CALL = 1_000_000, 4_000_000
#: Looks at another worker in a millisecond.
LOOKS_OF_MILLISECOND = 800_000
#: Updates that one thread makes alone after a helper has lost its core to another process.
UPDATES_ALONE = 8


class Update(NamedTuple):
    """A loss of an algorithm, and what learns from it.

    Attributes:
        function: (batch, nets, settings) -> (mean, statistics), see `rlcpu.nn.tape`.
        learns: names of the networks and arrays that it changes; None for all.
        every: minibatches from one of its gradient steps to the next; 1 of the first update.
    """

    function: Callable[..., Any]
    learns: tuple[str, ...] | None = None
    every: int = 1


class Learner:
    """Learns by an algorithm that is plain Python, wholly in kernels.

    Args:
        networks: what is learnt, by name; and float32 arrays that belong to no network, such as the
            logarithms of standard deviations. Each call of `update` overwrites them.
        algorithm: a function (batch, nets, settings) -> (mean, statistics) that learns all of them,
            or `Update`s, which follow each other on each minibatch.
        columns: of a batch: the width, numbers of a sample, by name.
        targets: names of copies that follow networks slowly: {"target": "online"}.
        settings: that the algorithm reads, by name; where one that is no float changes, the
            algorithm is traced again.
        per_sample: names of statistics that `update` writes for each sample to the attribute
            `per_sample`, such as the errors that priorities are made of.
        seed: of the random stream that shuffles and draws noise.
        num_threads: threads at most; None for one on each CPU that the process may use. The result
            does not depend on it.
        dtype: in which gradients and moments are computed.

    Attributes:
        counters: (2,) int64, minibatches and epochs so far.
        per_sample: by name, (S,) numbers of the last batch.
        compiling_process: a second process that compiles the same kernels ahead, or None; see
            `rlcpu.train.precompile`.
        num_sums: number of statistics of the update that has most, its loss among them.
        columns, settings, targets: see above.
        updates: a list of `Update`.
        names: of networks, then of targets.
        arrays: float32 vectors that belong to no network, by name.
        tape: the algorithm as it was traced last.
        last_call: `UpdateArguments` of the last update, or None.
        networks: in the order of `names`.
        layout, learnt: vectors of all that is learnt, and where each network is in them; see
            `rlcpu.nn.flat`.
        key: (2,) uint32 of the random stream.
        num_workers: threads at most.
        helpers: all threads but the calling one.
        space: `rlcpu.nn.update.Space` of the last update, or None.

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

    compiling_process: subprocess.Popen[bytes] | None = None
    space: Any = None
    _space_sizes: tuple[int, ...] = ()
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
        self._sources = {name: x for name, x in networks.items() if isinstance(x, Network)}
        if any(each.state_size for each in self._sources.values()):
            self.columns.setdefault(STARTS, 1)
        self.arrays = {name: x for name, x in networks.items() if name not in self._sources}
        for name, array in self.arrays.items():
            _check_array(name, array)
        if callable(algorithm):
            algorithm = [Update(algorithm)]
        everything = tuple(networks)
        self.updates = [
            each._replace(learns=everything) if each.learns is None else each for each in algorithm
        ]
        self._check_names()
        targets_by_name = {
            name: _copy_of(self._sources[source]) for name, source in self.targets.items()
        }
        named = {**self._sources, **targets_by_name}
        self.names, self.networks, self.dtype = list(named), list(named.values()), dtype
        self._per_sample_names = tuple(per_sample)
        self.per_sample: dict[str, Array] = {}
        learns = [each.learns or () for each in self.updates]
        self.layout, self._places = flat.lay_out(named, self.arrays, self.targets, learns)
        size, copied = (int(self.layout.begins[-1]),), (int(self.layout.copies_begins[-1]),)
        self.learnt: Any = flat.Learnt(
            parameters=aligned_zeros(size, dtype), first=aligned_zeros(size, dtype),
            second=aligned_zeros(size, dtype), copies=aligned_zeros(copied, dtype),
        )  # fmt: skip
        self.counters = np.zeros(2, np.int64)
        self.key = keys(stream_seeds(seed, 1))[:, 0]
        self.num_workers = num_threads or default_num_threads()
        self.helpers, self._updates_alone = Helpers(), 0
        self.read_networks()
        self._trace(self.settings)

    def _check_names(self) -> None:
        """Raise ValueError for names of networks, targets and updates that do not fit."""
        names: dict[int, str] = {}
        for name, network in self._sources.items():
            first = names.setdefault(id(network), name)
            if first != name:
                raise ValueError(
                    f"networks[{name!r}] is networks[{first!r}]: expected another network, or "
                    f"targets={{{name!r}: {first!r}}} for a copy"
                )
        for name, source in self.targets.items():
            if source not in self._sources or name in self._sources:
                raise ValueError(
                    f"targets={{{name!r}: {source!r}}}: expected a new name of a network"
                )
        known = [*self._sources, *self.arrays]
        if self.updates and self.updates[0].every != 1:
            raise ValueError(
                f"every={self.updates[0].every!r} of the first update: expected 1, as its gradient "
                "steps count the minibatches"
            )
        for each in self.updates:
            check_count("every", each.every)
            for name in each.learns or ():
                if name not in known:
                    raise ValueError(f"learns={name!r}: expected one of {', '.join(known)}")

    # ------------------------------------------------------------ what is learnt

    def _pair_arrays(self) -> list[list[tuple[Array, Array]]]:
        """Return for each network, then for each array, pairs (view of `learnt`, user's array)."""
        pairs = flat.pair_views(self.networks, self.learnt, self.layout)
        pairs += [[(self.value_of(name), array)] for name, array in self.arrays.items()]
        return pairs

    def read_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Read the parameters of networks and arrays, given by their numbers; None for all.

        The arrays of a network may have been replaced by others.
        """
        self._pairs = self._pair_arrays()
        for k in range(len(self._pairs)) if numbers is None else numbers:
            for view, array in self._pairs[k]:
                view[...] = array
        self.write_copies()

    def write_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Write learnt parameters to networks and arrays, given by their numbers; None for all."""
        for k in range(len(self._pairs)) if numbers is None else numbers:
            for view, array in self._pairs[k]:
                array[...] = view

    def write_copies(self) -> None:
        """Write the transposed weights of all networks from their parameters."""
        flat.write_copies(self.networks, self.learnt, self.layout)
        if self.space is not None:
            self.space.copied[...] = -1  # workers make theirs anew

    def state(self) -> dict[str, Array]:
        """Return every array that an update changes, by name, for checkpoints."""
        return {**self.learnt._asdict(), "counters": self.counters, "key": self.key}

    def discard(self) -> None:
        """Make new arrays after an interrupted update: its threads may still write to the old."""
        self.learnt = flat.Learnt(*(array.copy() for array in self.learnt))
        self.counters = self.counters.copy()
        self._pairs = self._pair_arrays()
        self.space = None

    def value_of(self, name: str) -> Array:
        """Return a view of the present numbers of one of `arrays`."""
        begin, size = self._places[name]
        values: Array = self.learnt.parameters[begin : begin + size]
        return values

    # ------------------------------------------------------------ the tape

    def _trace(self, settings: Mapping[str, Any]) -> None:
        """Trace the algorithm with settings; those that are no floats become constants.

        It sets `tape` and parts of it: `_program` (instructions and numbers for kernels),
        `_columns` (checks and reads a batch; `tape.limits` bounds its whole numbers),
        `_standardised` (numbers of the columns that each minibatch standardises) and `_every`
        (the gradient steps from one of an update to its next). All of them stay if it raises.

        Raises:
            TypeError, ValueError: the algorithm cannot be traced.
        """
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
            tape.trace(each.function, each.learns or (), settings, self._per_sample_names)
        missing = [name for name in self._per_sample_names if name not in tape.per_sample]
        if missing:
            raise ValueError(
                f"per_sample={missing[0]!r}: the algorithm returns no such statistic of each sample"
                f", as {{{missing[0]!r}: value - target}}"
            )
        program = tape.program(self.dtype)
        takes_ones = frozenset(name for name in self.columns if self._find_takes_ones(tape, name))
        self.tape, self._program = tape, program
        self._columns = Columns(self.columns, tape.limits, takes_ones)
        self._standardised = np.array(tape.standardised, np.int64)
        self._every = np.array([each.every for each in self.updates])
        self._is_ready = False  # `_prepare` has to link the new program

    def _prepare(self) -> None:
        """Compile or load all that an update calls, and write the addresses to its tables."""
        if self._is_ready:
            return
        chunk_type = self._kind()
        has_helper, self.compiling_process = self.compiling_process is not None, None
        kernel: Any = make_kernel(share_kind(chunk_type))
        kinds = [self._kind_of(each) for each in self.tape.instructions]
        rows = list(zip(self._program.instructions, kinds, strict=True))
        # A second process that compiles ahead begins with the update, the longest piece, and this
        # one with its kernel and the last instruction. Each finds in the cache what the other has
        # made, until they meet; what is compiled once costs nothing below.
        if has_helper:
            kernel.compile(self._types())
            instructions.link(rows[::-1], self.tape.functions, self.dtype, chunk_type)
        else:  # alone, in any order
            self._compile_update(chunk_type)
        for table, each in zip(self.layout.tables, self.networks, strict=True):
            table[: len(each.plan.table)] = passes.link(each.plan, self.dtype)
        instructions.link(rows, self.tape.functions, self.dtype, chunk_type)
        self._compiled = _Compiled(kernel, self._compile_update(chunk_type))
        self._is_ready = True

    def _kind_of(self, instruction: Mapping[str, Any]) -> str:
        """Return the kind of a tape's instruction, one of `rlcpu.nn.instructions.INSTRUCTIONS`.

        A network that reads a column of `nn.Ones` in the last batch has a kind of its own.
        """
        kind: str = instruction["kind"]
        if kind != "network":
            return kind
        first = self.tape.inputs[self.tape.applications[instruction["index"]].first]
        names, ones = list(self.columns), self._columns.ones
        is_of_ones = first.kind == FROM_COLUMN and names[first.source] in ones
        return "network_of_ones" if is_of_ones else kind

    def _compile_update(self, chunk_type: Any) -> int:
        """Return the address of the function that all workers run; see `make_update`."""
        update: Any = make_update(self.dtype, chunk_type)
        update.compile((View(share_kind(chunk_type)),))
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
            write: names of networks and arrays that are written; None for all but targets.
            states: by name of a network with memory its states before the first time step,
                (sequences, state_size); targets have those of their networks. Such networks read
                the column `starts` too. Above 0, an episode begins there, from a state of zeros.
                Below 0, no derivative goes further back: the steps before only make the state.
            **steps: fields of `rlcpu.nn.settings.LearnerSettings`, `learning_rate` at least.

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
        options = LearnerSettings.of(steps)
        rates = options.rates(len(self.updates), self.dtype)
        self._read_settings(settings)
        ones_before = self._columns.ones
        columns, references, count = self._columns.read(batch, normalise or {})
        # Columns of ones need other instructions than plain ones.
        self._is_ready &= ones_before == self._columns.ones
        kernel_settings = self._settings_of(options, rates, count)
        arrays = self._state_arrays(states or {}, count, options.sequence_length)
        self._prepare()
        outputs: Array = np.zeros((max(len(self.tape.per_sample), 1), count), self.dtype)
        self.per_sample = dict(zip(self.tape.per_sample, outputs, strict=False))
        addresses = np.array([0 if array is None else address_of(array) for array in arrays])
        samples = SampleColumns(count, columns, outputs, addresses)
        space = self._space_for(count, kernel_settings)
        frame = Frame(self.learnt, self.layout, self._program, samples, space, kernel_settings)
        # Rounds repeat the call many times, see `rlcpu.train.rounds`.
        workers = self._workers_for(kernel_settings, math.inf)
        self.last_call = UpdateArguments(workers, references, self._compiled.update, frame)
        self._run(frame, count, (references, arrays))
        return self.finish(write)

    def _run(self, frame: Frame, count: int, alive: Any) -> None:
        """Run the kernel over `count` samples on as many threads as pay, and count its steps.

        The kernel has addresses of the arrays that `alive` holds. A thread holds them too, for
        after an interrupt nobody waits for its end.
        """
        compiled, settings = self._compiled, frame.settings
        num_steps = settings.epochs * -(-count // settings.minibatch)
        workers = 1 if self._updates_alone else self._workers_for(settings, num_steps)

        def run(worker: int, alive: Any = alive) -> None:
            compiled.kernel(compiled.update, worker, workers, *frame)

        try:
            self.helpers.run(workers, run)
        finally:
            self.counters[0] += int(frame.space.report[0, self.num_sums + STEPS])
            self.counters[1] += settings.epochs
        if frame.space.done[2]:  # a worker has lost patience
            self._updates_alone = UPDATES_ALONE
        else:
            self._updates_alone = max(0, self._updates_alone - 1)

    def _settings_of(self, options: LearnerSettings, rates: Array, count: int) -> UpdateSettings:
        """Return the settings of an update of `count` samples for kernels."""
        watched, most_watched = options.watched(self.tape.statistics[0])
        values = options.for_kernels(
            count,
            self.learnt.parameters.size,
            self.dtype,
            standardised=self._standardised,
            counters=self.counters,
            every=self._every,
            learning_rates=rates,
            watched=watched,
            most=most_watched,
            key_low=self.key[0],
            key_high=self.key[1],
            patience=0,
        )
        # A look at another worker takes 1.3 ns. Workers wait about as long as one part of a
        # minibatch takes, and a millisecond: a virtual machine often takes a core away for less,
        # and without it half of PPO's updates were made by one thread. A part takes about as long
        # as a look for every 16 of its samples times parameters.
        looks_of_part = values.part * self.learnt.parameters.size // 16
        return values._replace(patience=LOOKS_OF_MILLISECOND + looks_of_part)

    def _workers_for(self, values: UpdateSettings, steps: float) -> int:
        """Return how many threads pay for an update of so many gradient steps."""
        work = values.minibatch * self.learnt.parameters.size
        if work < LEAST_OF_MINIBATCH or work * steps < LEAST_OF_CALL:
            return 1
        return min(self.num_workers, -(-values.minibatch // values.part))

    def finish(self, write: Sequence[str] | None) -> dict[str, float]:
        """Write learnt parameters to networks and arrays, and return means; see `update`.

        Raises:
            FloatingPointError: a loss or a gradient was not finite; parameters of the steps before
                are written.
        """
        rows, sums = self.space.report.tolist(), self.num_sums
        names = [*self._sources, *self.arrays] if write is None else write
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

    def _read_settings(self, settings: Mapping[str, Any] | None) -> None:
        """Take new settings, and trace the algorithm again if one that is no float changed.

        If that raises, no setting is taken: a later call with these settings traces again.
        """
        changed, settings = False, settings or {}
        for name, value in settings.items():
            if name not in self.settings:
                raise ValueError(f"settings: {name!r} is none of {', '.join(self.settings)}")
            before = self.settings[name]
            changed |= type(value) is not type(before)
            changed |= type(value) is not float and not np.array_equal(value, before)
        if changed:  # branches of the algorithm may depend on it
            self._trace({**self.settings, **settings})
        self.settings.update(settings)
        for k, name in enumerate(self.tape.settings):
            self._program.numbers[k] = self.settings[name]

    # ------------------------------------------------------------ batches

    def _state_arrays(self, states: Mapping[str, Any], count: int, length: int) -> list[Any]:
        """Return for each network None, or its states (count / length, size), after checks.

        They are float32, of `count` samples in sequences of `length`; see `update`.
        """
        for name in states:
            if name not in self._sources:
                raise ValueError(f"states has {name!r}: expected {', '.join(self._sources)}")
        arrays: list[Any] = []
        for name, network in zip(self.names, self.networks, strict=True):
            source, size = self.targets.get(name, name), network.state_size
            if size == 0:
                arrays.append(None)
                continue
            shape = count // length, size
            if source not in states:
                raise KeyError(f"states has no {source!r}, a network with memory: expected {shape}")
            array = as_writable(states[source], np.float32)
            if array.shape != shape:
                raise ValueError(f"states[{source!r}] has shape {array.shape}: expected {shape}")
            arrays.append(array)
        return arrays

    def takes_ones(self, name: str) -> bool:
        """Tell whether networks add up rows of weights for the ones of a column.

        They do where the column is the only input of each network that reads it, and nothing else
        reads it.
        """
        return name in self._columns.takes_ones

    def _find_takes_ones(self, tape: Tape, name: str) -> bool:
        """Find out from a tape what `takes_ones` tells of a column."""
        column = list(self.columns).index(name)
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

    def _space_for(self, count: int, settings: UpdateSettings) -> Space:
        """Return the scratch memory of an update of `count` samples, its counters and report 0.

        It is that of the last update if its sizes are the same.
        """
        sizes = count, settings.minibatch, settings.part, settings.chunk
        if self.space is None or self._space_sizes != sizes:
            self.space, self._space_sizes = self._make_space(*sizes), sizes
        space: Space = self.space
        for array in (space.claims, space.done, space.report):
            array[...] = 0
        return space

    def _make_space(self, count: int, minibatch: int, part: int, chunk: int) -> Space:
        """Return scratch memory for `count` samples, in minibatches, parts and chunks of a size."""
        layout, tape, workers, real = self.layout, self.tape, self.num_workers, self.dtype
        minibatches, parts = -(-count // minibatch), -(-minibatch // part)
        network_slopes = max(each.plan.slopes for each in self.networks)  # of a sample
        most, height = min(part, chunk), max(tape.heights)  # samples; numbers of one in a program
        slices = len(layout.slices)
        return Space(
            indices=np.zeros(count, np.int64),
            # The last moments of a minibatch are for columns that it does not standardise.
            moments=np.tile(np.array([0, 1], real), (minibatches, len(tape.standardised) + 1, 1)),
            gradients=aligned_zeros((parts, self.learnt.parameters.size), real),
            sums=np.zeros((parts, self.num_sums)),
            squares=np.zeros(slices),
            units=aligned_zeros((workers, chunk * (tape.saved_units + tape.shared_units)), real),
            network_slopes=aligned_zeros((workers, (most + 1) * network_slopes), real),
            rows=aligned_zeros((workers, most * height), real),
            slopes=aligned_zeros((workers, most * height), real),
            copies=aligned_zeros((workers, self.learnt.copies.size), real),
            stepped=np.zeros(len(self.networks), np.int64),
            copied=np.full((workers, len(self.networks)), -1),
            claims=np.zeros(LINE_WORDS * max(parts, slices, minibatches), np.int64),
            done=np.zeros(LINE_WORDS, np.int64),
            report=np.zeros((len(self.updates), self.num_sums + len((NORM, STEPS, FAULT)))),
        )

    # ------------------------------------------------------------ machine code

    def compile(self) -> None:
        """Compile or load the kernel and the functions that it calls, without an update."""
        self._prepare()
        self._compiled.kernel.compile(self._types())

    def is_uncompiled(self) -> bool:
        """Tell whether the function of the workers is neither in memory nor in the cache."""
        chunk_type = self._kind()
        update: Any = make_update(self.dtype, chunk_type)
        signature = (View(share_kind(chunk_type)),)
        return not update.overloads and hooks.cache_of(update).lacks(signature)

    def _kind(self) -> Any:
        """Return numba's type of a `Chunk`."""
        real, samples = self.dtype, np.zeros(0, np.int64)
        rows: Any = np.zeros((0, 0), real)
        row: Any = np.zeros(0, real)
        frame = View(kind_of(Frame(self.learnt, self.layout, *self._examples())))
        chunk = Chunk(0, 0, 0, samples, 0, real(0), False, rows, rows, row, row, np.zeros(0), frame)
        return kind_of(chunk)

    def _examples(self) -> tuple[Any, ...]:
        """Return a program, batch, space and settings of the types that a `Frame` has."""
        real, numbers = self.dtype, np.zeros(1, np.int64)
        batch = SampleColumns(1, np.zeros(1, COLUMN_RECORD), np.zeros((1, 1), real), numbers)
        options = LearnerSettings(0.0)
        settings = self._settings_of(options, options.rates(len(self.updates), real), 1)
        space = self._make_space(1, 1, settings.part, settings.chunk)
        return self._program, batch, space, settings

    def _types(self) -> tuple[Any, ...]:
        """Return numba's types of the kernel's arguments."""
        typeof: Any = numba.typeof
        return tuple(map(typeof, (0, 0, 1, self.learnt, self.layout, *self._examples())))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out scratch memory, and what belongs to this process: addresses, a child."""
        left_out = "compiling_process", "_compiled", "last_call", "space"
        return {**self.__dict__, **dict.fromkeys(left_out), "_pairs": [], "_is_ready": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pairs = self._pair_arrays()


class UpdateArguments(NamedTuple):
    """Arguments of an update, which kernels may call again in the same memory.

    Attributes:
        workers: number of threads that pay where many updates follow each other.
        columns: the batch's by name, see `rlcpu.nn.columns`.
        update: address of the function that all workers run.
        frame: of the update.
    """

    workers: int
    columns: Any
    update: int
    frame: Frame


class _Compiled(NamedTuple):
    """Machine code: the kernel of `make_kernel`, and the address of the `make_update` function."""

    kernel: Any
    update: int


def _copy_of(network: Network) -> Network:
    """Return a target of a network: a network with copies of its parameters, without free ones."""
    target = copy.copy(network)
    target.parameters, target.free = network.parameters.copy(), np.zeros(0, np.float32)
    return target


def _check_array(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 1:
        raise TypeError(f"networks[{name!r}]={array!r}: expected a Network or a float32 vector")
