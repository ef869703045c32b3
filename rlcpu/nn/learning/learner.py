"""The learner: networks, the algorithm that they learn by, and the threads that run it."""

from __future__ import annotations

import copy
import ctypes
import math
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.machine.memory import array_address
from rlcpu.kernels.machine.random import keys, stream_seeds
from rlcpu.kernels.machine.threads import default_num_threads
from rlcpu.nn.learning import machine_code
from rlcpu.nn.learning.columns import BatchColumns, Columns, read_states
from rlcpu.nn.learning.frame import (
    STEPS,
    Frame,
    SampleColumns,
    Share,
    Space,
    UpdateArguments,
    make_space,
    read_report,
)
from rlcpu.nn.learning.settings import LearnerSettings, SettingsPacking, UpdateSettings
from rlcpu.nn.learning.workers import IMPATIENT, Helpers
from rlcpu.nn.network import flat
from rlcpu.nn.network.graph import Network
from rlcpu.nn.network.plan import NetworkPlan
from rlcpu.nn.tape.program import STARTS, NetworkSizes, columns_of_ones, kinds_of, program_of
from rlcpu.nn.tape.tracing import Tape

Array = npt.NDArray[Any]
#: Parameters times samples from which a second thread pays: of a minibatch, as threads wait for
#: each other, and of all minibatches of a call, as threads are started.
LEAST_OF_MINIBATCH, LEAST_OF_CALL = 1_000_000, 4_000_000
#: C's type of the function that the workers of an update run: (address of a `Share`), see
#: `rlcpu.nn.learning.update`.
_UPDATE = ctypes.CFUNCTYPE(None, ctypes.c_int64)
#: Updates that one thread makes alone after a helper has lost its core to another process.
UPDATES_ALONE = 8


class Update(NamedTuple):
    """A loss of an algorithm, and what learns from it.

    Attributes:
        function: (batch, nets, settings) -> (mean, statistics), see `rlcpu.nn.tape.tracing`.
        learns: names of the networks and arrays that it changes; None for all that its loss depends
            on.
        every: minibatches from one of its gradient steps to the next; 1 of the first update.
    """

    function: Callable[..., Any]
    learns: tuple[str, ...] | None = None
    every: int = 1


class Learner:
    """Learns by an algorithm that is plain Python, wholly in kernels.

    Args:
        networks: what is learnt, by name; and float32 arrays that belong to no network, such as the
            logarithms of standard deviations. Each call of `update` overwrites them. What no update
            learns, such as a fixed network, or running moments that you write to `value_of(name)`,
            stays as it is, and is read and saved with the rest.
        algorithm: a function (batch, nets, settings) -> (mean, statistics) that learns all that its
            mean depends on, or `Update`s, which follow each other on each minibatch.
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
            `rlcpu.train.running.precompile`.
        columns, settings, targets: see above.
        updates: a list of `Update`.
        names: of networks, then of targets.
        networks: in the order of `names`.
        arrays: float32 vectors that belong to no network, by name.
        tape: the algorithm as it was traced last.
        learnt, layout: vectors of all that is learnt, and where each network is in them; see
            `rlcpu.nn.network.flat`.
        key: (2,) uint32 of the random stream.
        num_workers: threads at most.
        helpers: all threads but the calling one.
        space: scratch memory of the last update, see `rlcpu.nn.learning.frame.Space`, or None.
        last_call: `UpdateArguments` of the last update, or None.

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
    last_call: UpdateArguments | None = None
    _space_sizes: tuple[Any, ...] = ()
    _code: int = 0  #: address of the function that the workers of an update run
    _call: Any = None  #: calls it

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
        self.columns, self.settings = dict(columns), _kept(settings or {})
        self._sources = {name: x for name, x in networks.items() if isinstance(x, Network)}
        if any(network.state_size for network in self._sources.values()):
            self.columns.setdefault(STARTS, 1)
        self.arrays = {name: x for name, x in networks.items() if name not in self._sources}
        updates = [Update(algorithm)] if callable(algorithm) else algorithm
        self.updates = list(updates)
        self._learns = [each.learns for each in updates]  # as they were given
        if self.updates and self.updates[0].every != 1:
            raise ValueError(
                f"every={self.updates[0].every!r} of the first update: expected 1, as its gradient "
                "steps count the minibatches"
            )
        for each in self.updates:
            check_count("every", each.every)
        learns = [tuple(networks) if names is None else names for names in self._learns]
        flat.check_names(self._sources, self.arrays, self.targets, learns)
        copies = {name: _copy_of(self._sources[source]) for name, source in self.targets.items()}
        named = {**self._sources, **copies}
        self.names, self.networks, self.dtype = list(named), list(named.values()), dtype
        self._per_sample_names = tuple(per_sample)
        self.per_sample: dict[str, Array] = {}
        _, self._places = flat.lay_out(named, self.arrays, self.targets, learns)
        learns = self._trace(self.settings)
        self.updates = [x._replace(learns=y) for x, y in zip(self.updates, learns, strict=True)]
        self.layout, _ = flat.lay_out(named, self.arrays, self.targets, learns)
        self.learnt = flat.make_learnt(self.layout, dtype)
        self._tables = [plan.table.copy() for plan in self._plans]  # `_link` writes addresses
        self.counters = np.zeros(2, np.int64)
        self.key = keys(stream_seeds(seed, count=1))[:, 0]  # of the only stream
        every = [each.every for each in self.updates]
        self._packing = SettingsPacking(every, self.learnt.parameters.size, self.key, dtype)
        self.num_workers = num_threads or default_num_threads()
        self.helpers, self._updates_alone = Helpers(), 0
        self.read_networks()

    # ------------------------------------------------------------ what is learnt

    def _pair_arrays(self) -> dict[str, list[tuple[Array, Array]]]:
        """Return by name of each network and array pairs (view of `learnt`, user's array)."""
        views = flat.pair_views(self.networks, self.learnt, self.layout)
        pairs = dict(zip(self.names, views, strict=True))
        return pairs | {name: [(self.value_of(name), x)] for name, x in self.arrays.items()}

    def read_networks(self, names: Iterable[str] | None = None) -> None:
        """Read the parameters of networks and arrays, given by their names; None for all.

        The arrays of a network may have been replaced by others.
        """
        self._pairs = self._pair_arrays()
        for name in self._pairs if names is None else names:
            for view, array in self._pairs[name]:
                view[...] = array
        self.write_copies()

    def write_networks(self, names: Iterable[str] | None = None) -> None:
        """Write learnt parameters to networks and arrays, given by their names; None for all."""
        for name in self._pairs if names is None else names:
            for view, array in self._pairs[name]:
                array[...] = view

    def write_copies(self) -> None:
        """Write the transposed weights of all networks from their parameters."""
        flat.write_copies(self.networks, self.learnt, self.layout)
        if self.space is not None:
            self.space.copied[...] = -1  # workers make theirs anew

    def state(self) -> dict[str, Array]:
        """Return every array that an update changes, by name, for checkpoints."""
        learnt = {name: getattr(self.learnt, name) for name in self.learnt.fields}
        return {**learnt, "counters": self.counters, "key": self.key}

    def discard(self) -> None:
        """Make new arrays after an interrupted update: its threads may still write to the old."""
        self.learnt = copy.deepcopy(self.learnt)
        self.counters = self.counters.copy()
        self._pairs = self._pair_arrays()
        self.space = None

    def value_of(self, name: str) -> Array:
        """Return a view of the present numbers of one of `arrays`."""
        begin, size = self._places[name]
        values: Array = self.learnt.parameters[begin : begin + size]
        return values

    # ------------------------------------------------------------ the tape

    def _trace(self, settings: Mapping[str, Any]) -> list[tuple[str, ...]]:
        """Trace the algorithm with settings; those that are no floats become constants.

        It sets `tape` and what follows from it: `_program` (instructions and numbers for kernels)
        and `_columns` (checks and reads a batch). All of them stay if it raises. It returns what
        each update learns.

        Raises:
            TypeError, ValueError: the algorithm cannot be traced.
        """
        sizes = {
            name: NetworkSizes(
                inputs=network.input_sizes,
                outputs=network.output_sizes,
                are_named=network.names_outputs,
                units=network.plan.units,
                state=network.state_size,
            )
            for name, network in zip(self.names, self.networks, strict=True)
        }
        tape = Tape(self.columns, sizes, self._places)
        everything, learns = (*self._sources, *self.arrays), []
        for each, names in zip(self.updates, self._learns, strict=True):
            is_named = names is not None
            wanted = names if names is not None else everything
            learnt = tape.trace(
                each.function, wanted, settings, self._per_sample_names, needs_all=is_named
            )
            if each.learns is not None and set(learnt) != set(each.learns):
                raise ValueError(
                    f"settings: {each.function.__name__} learns {', '.join(learnt)} with these: "
                    f"expected a loss that depends on {', '.join(each.learns)}, as before"
                )
            learns.append(learnt)
        for name in self._per_sample_names:
            if name not in tape.per_sample:
                raise ValueError(
                    f"per_sample={name!r}: the algorithm returns no such statistic of each sample, "
                    f"as {{{name!r}: value - target}}"
                )
        columns = Columns(
            self.columns, limits=tape.limits, takes_ones=columns_of_ones(tape, self._plans)
        )
        program = program_of(tape, self.dtype)  # the last that may raise
        self.tape, self._program, self._columns = tape, program, columns
        self._is_linked = False  # `_link` has to write addresses to the new program
        return learns

    @property
    def _plans(self) -> list[NetworkPlan]:
        return [network.plan for network in self.networks]

    def _read_settings(self, settings: Mapping[str, Any] | None) -> None:
        """Take new settings, and trace the algorithm again if one that is no float changed.

        If that raises, no setting is taken: a later call with these settings traces again.
        """
        is_changed, settings = False, _kept(settings or {})
        for name, value in settings.items():
            if name not in self.settings:
                raise ValueError(f"settings: {name!r} is none of {', '.join(self.settings)}")
            before = self.settings[name]
            is_changed |= type(value) is not type(before)
            is_changed |= type(value) is not float and not np.array_equal(value, before)
        if is_changed:  # branches of the algorithm may depend on it
            self._trace({**self.settings, **settings})
        self.settings.update(settings)
        for k, name in enumerate(self.tape.settings):
            self._program.numbers[k] = self.settings[name]

    def takes_ones(self, name: str) -> bool:
        """Tell whether networks add up rows of weights for the ones of a column, by its name.

        They do where the column is the only input of each network that reads it, and nothing else
        reads it.
        """
        return name in self._columns.takes_ones

    # ------------------------------------------------------------ updates

    def update(
        self,
        batch: Mapping[str, Any],
        *,
        normalise: Mapping[str, tuple[Array, ...]] | None = None,
        settings: Mapping[str, Any] | None = None,
        write: Sequence[str] | None = None,
        states: Mapping[str, npt.ArrayLike] | None = None,
        **steps: Any,
    ) -> dict[str, float]:
        """Learn from S samples, and write the networks.

        Args:
            batch: arrays (S,) or (S, width) for each column; or `nn.Ones`, for the input of
                networks that is zeros but for a few ones.
            normalise: by name of a column, mean and scale (width,), and perhaps a limit (): the
                networks see (numbers - mean) * scale, within +-limit.
            settings: those that have changed.
            write: names of networks and arrays that are written; None for all but targets.
            states: by name of a network with memory its states before the first time step,
                (sequences, state_size); targets have those of their networks. Such networks read
                the column `starts` too. Above 0, an episode begins there, from a state of zeros.
                Below 0, no derivative goes further back: the steps before only make the state.
            **steps: fields of `rlcpu.nn.learning.settings.LearnerSettings`, `learning_rate` at
                least.

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
        for name in write or ():
            if name not in self._pairs:
                raise ValueError(f"write={name!r}: expected one of {', '.join(self._pairs)}")
        self._read_settings(settings)
        frame, columns, alive = self._frame_of(batch, normalise, states, options, rates)
        # Rounds repeat the call many times, see `rlcpu.train.rounds`.
        workers = self._workers_for(frame.settings, num_steps=math.inf)
        self.last_call = UpdateArguments(workers, columns.by_name, self._code, frame)
        self._run(frame, alive)
        return self.finish(write)

    def gradients(
        self,
        batch: Mapping[str, Any],
        *,
        normalise: Mapping[str, tuple[Array, ...]] | None = None,
        settings: Mapping[str, Any] | None = None,
        states: Mapping[str, npt.ArrayLike] | None = None,
        sequence_length: int = 1,
        abreast: int | None = None,
    ) -> dict[str, dict[str, Array]]:
        """Return the derivatives of each update's loss, a mean over all samples, without a step.

        Nothing changes: neither parameters, moments and counters, nor settings and random streams.
        Noise is drawn as by the next gradient step, and all updates see the present parameters.
        Parameters that were written to a network since the last update count after
        `read_networks()`.

        Args:
            batch: see `update`, for this and the other arguments.
            normalise: scalings of columns.
            settings: those that are others in this call.
            states: of networks with memory, before the first time step.
            sequence_length: see `LearnerSettings`.
            abreast: see `LearnerSettings`.

        Returns:
            By the name of each update's function, and by the names of what it learns: an array like
            `Network.parameters`, or like the one of `networks`, of the learner's dtype.

        Raises:
            KeyError, TypeError, ValueError: see `update`.
        """
        steps = {"sequence_length": sequence_length, "abreast": abreast}
        return self._measure(batch, normalise, settings, states, steps)[0]

    def losses(
        self,
        batch: Mapping[str, Any],
        *,
        normalise: Mapping[str, tuple[Array, ...]] | None = None,
        settings: Mapping[str, Any] | None = None,
        states: Mapping[str, npt.ArrayLike] | None = None,
        sequence_length: int = 1,
        abreast: int | None = None,
    ) -> tuple[dict[str, float], dict[str, Array]]:
        """Return losses and statistics for the present parameters, without a step.

        Nothing changes, and noise is drawn, as of `gradients`.

        Args:
            batch: see `update`, for this and the other arguments.
            normalise: scalings of columns.
            settings: those that are others in this call.
            states: of networks with memory, before the first time step.
            sequence_length: see `LearnerSettings`.
            abreast: see `LearnerSettings`.

        Returns:
            Means over all samples: the loss of each update by the name of its function, and
            statistics by their names; and (S,) numbers of each sample of the learner's `per_sample`
            statistics, by name.

        Raises:
            KeyError, TypeError, ValueError: see `update`.
        """
        steps = {"sequence_length": sequence_length, "abreast": abreast}
        return self._measure(batch, normalise, settings, states, steps)[1:]

    def _measure(
        self,
        batch: Mapping[str, Any],
        normalise: Mapping[str, tuple[Array, ...]] | None,
        settings: Mapping[str, Any] | None,
        states: Mapping[str, npt.ArrayLike] | None,
        steps: dict[str, Any],
    ) -> tuple[dict[str, dict[str, Array]], dict[str, float], dict[str, Array]]:
        """Return what `gradients` and `losses` return; `steps` are fields of `LearnerSettings`."""
        # One minibatch has all samples, in whole sequences.
        whole = int(check_count("sequence_length", steps["sequence_length"])) << 32
        options = LearnerSettings.of({"learning_rate": 0.0, "minibatch_size": whole, **steps})
        changed = (
            "settings", "tape", "_program", "_columns", "_is_linked", "space", "_space_sizes",
            "_packing", "_updates_alone", "counters", "per_sample",
        )  # fmt: skip
        before = {name: getattr(self, name) for name in changed}
        self.settings, self.counters = dict(self.settings), self.counters.copy()
        self.space, self._packing = None, copy.copy(self._packing)
        rates = options.rates(len(self.updates), self.dtype)
        gradients: dict[str, dict[str, Array]] = {}
        means: dict[str, float] = {}
        try:
            self._read_settings(settings)
            frame, _, alive = self._frame_of(batch, normalise, states, options, rates)
            for k, names in enumerate(self.tape.statistics):
                frame.settings.measured = k
                self._clear_space()
                self._run(frame, alive)
                self.counters[...] = before["counters"]
                means |= zip(names, self.space.report[k].tolist(), strict=False)
                by_name = gradients.setdefault(names[0], {})
                for name in self.updates[k].learns or ():
                    by_name[name] = self._unpacked(self.space.gradients[0], name)
            per_sample = self.per_sample
        finally:
            self.__dict__.update(before)
            self._read_settings(None)  # numbers that the program reads
        return gradients, means, per_sample

    def _unpacked(self, gradients: Array, name: str) -> Array:
        """Return the part of a flat vector that belongs to a network or an array, in its form."""
        if name in self.arrays:
            begin, size = self._places[name]
            return gradients[begin : begin + size].copy()
        k = self.names.index(name)
        return self._plans[k].unpack(
            gradients[self.layout.begins[k] + self.layout.free[k] :], self.dtype
        )

    def _frame_of(
        self,
        batch: Mapping[str, Any],
        normalise: Mapping[str, tuple[Array, ...]] | None,
        states: Mapping[str, npt.ArrayLike] | None,
        options: LearnerSettings,
        rates: Array,
    ) -> tuple[Frame, BatchColumns, Any]:
        """Return what kernels work on, after checks, its columns, and what to keep alive.

        `rates` are the learning rates of all updates; for the others see `update`. Kernels are
        compiled or loaded, and `per_sample` gets new arrays.
        """
        ones_before = self._columns.ones
        columns = self._columns.read(batch, normalise or {})
        # Columns of ones need other instructions than plain ones.
        self._is_linked &= ones_before == self._columns.ones
        count = columns.samples
        kernel_settings = self._packing.pack(options, rates, count, self.tape, self.counters)
        sizes = [
            (self.targets.get(name, name), network.state_size)
            for name, network in zip(self.names, self.networks, strict=True)
        ]
        arrays = read_states(states or {}, sizes, count // options.sequence_length)
        self._link()
        outputs: Array = np.zeros((max(len(self.tape.per_sample), 1), count), self.dtype)
        self.per_sample = dict(zip(self.tape.per_sample, outputs, strict=False))
        addresses = np.array([0 if array is None else array_address(array) for array in arrays])
        real = self.dtype
        frame = Frame.of(real=real)(
            learnt=self.learnt,
            layout=self.layout,
            program=self._program,
            batch=SampleColumns.of(real=real)(
                columns=columns.records, per_sample=outputs, states=addresses
            ),
            space=self._space_for(count, kernel_settings),
            settings=kernel_settings,
        )
        return frame, columns, (columns, arrays)

    def _run(self, frame: Frame, alive: Any) -> None:
        """Run the kernel on as many threads as pay, and count its steps.

        The kernel has addresses of the arrays that `alive` holds. A thread holds them too, for
        after an interrupt nobody waits for its end.
        """
        update, settings = self._call, frame.settings
        num_steps = settings.epochs * -(-frame.batch.size // settings.minibatch)
        workers = 1 if self._updates_alone else self._workers_for(settings, num_steps)

        def run(worker: int, alive: Any = alive) -> None:
            share = Share.of(real=self.dtype)(worker=worker, workers=workers, frame=frame)
            update(share.address)

        try:
            self.helpers.run(workers, run)
        finally:
            self.counters[0] += int(frame.space.report[0, frame.space.sums.shape[1] + STEPS])
            self.counters[1] += settings.epochs
        if frame.space.done[IMPATIENT] > 0:
            self._updates_alone = UPDATES_ALONE
        else:
            self._updates_alone = max(0, self._updates_alone - 1)

    def _workers_for(self, settings: UpdateSettings, num_steps: float) -> int:
        """Return how many threads pay for an update of so many gradient steps.

        Each needs a part of the minibatch to work on.
        """
        work = settings.minibatch * self.learnt.parameters.size
        if work < LEAST_OF_MINIBATCH or work * num_steps < LEAST_OF_CALL:
            return 1
        return min(self.num_workers, -(-settings.minibatch // settings.part))

    def finish(self, write: Sequence[str] | None) -> dict[str, float]:
        """Write learnt parameters to networks and arrays, and return means; see `update`.

        Raises:
            FloatingPointError: a loss or a gradient was not finite; parameters of the steps before
                are written.
        """
        self.write_networks([*self._sources, *self.arrays] if write is None else write)
        return read_report(self.space, self.tape.statistics, int(self.counters[0]))

    # ------------------------------------------------------------ what kernels are given

    def _space_for(self, count: int, settings: UpdateSettings) -> Space:
        """Return the scratch memory of an update of `count` samples, its counters and report 0.

        It is that of the last update if its sizes and the tape are the same.
        """
        sizes = count, settings.minibatch, settings.part, settings.chunk, self.tape
        if self.space is None or self._space_sizes != sizes:
            facts = self.learnt, self.layout, self.tape, self._plans, self._tables
            self.space = make_space(count, settings, self.num_workers, *facts)
            self._space_sizes = sizes
        self._clear_space()
        space: Space = self.space
        return space

    def _clear_space(self) -> None:
        """Set counters and report to 0, as a call expects them."""
        for array in (self.space.claims, self.space.done, self.space.report):
            array[...] = 0

    # ------------------------------------------------------------ machine code

    def _link(self) -> None:
        """Compile or load all that an update calls, and write the addresses to its tables."""
        if self._is_linked:
            return
        has_helper, self.compiling_process = self.compiling_process is not None, None
        kinds = kinds_of(self.tape, self._columns.ones)
        self._code = machine_code.link(
            self._program, self._tables, self.tape, kinds, self._plans, self.dtype, has_helper
        )
        self._call, self._is_linked = _UPDATE(self._code), True

    def compile(self) -> None:
        """Compile or load the functions that an update calls, without an update."""
        self._link()

    def is_uncompiled(self) -> bool:
        """Tell whether the function of the workers is neither in memory nor in the cache."""
        return machine_code.is_uncompiled(self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out scratch memory, and what belongs to this process: addresses, a child."""
        left_out = "compiling_process", "_call", "last_call", "space"
        return {**self.__dict__, **dict.fromkeys(left_out), "_pairs": {}, "_is_linked": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pairs = self._pair_arrays()


def _kept(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with copies of arrays, so that one that changes in place is noticed."""
    arrays = {name: x.copy() for name, x in settings.items() if isinstance(x, np.ndarray)}
    return {**settings, **arrays}


def _copy_of(network: Network) -> Network:
    """Return a target of a network: a network with copies of its parameters, without free ones."""
    target = copy.copy(network)
    target.parameters, target.free = network.parameters.copy(), np.zeros(0, np.float32)
    return target
