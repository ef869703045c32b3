"""The learner: networks, what is minimised, and the threads that run an update."""

from __future__ import annotations

import collections
import keyword
import math
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rlcpu.kernels import announce
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.hooks import cache_of
from rlcpu.kernels.memory import aligned_zeros
from rlcpu.nn import network
from rlcpu.nn.flat import FlatLearner
from rlcpu.nn.losses import Loss, Objective, Term, losses_at
from rlcpu.nn.network import Network
from rlcpu.nn.ones import Ones
from rlcpu.nn.passes import Passes, passes_of
from rlcpu.nn.update import (
    CHUNK,
    PART,
    SLICE,
    Batch,
    Settings,
    Space,
    make_layout,
    make_update,
)
from rlcpu.nn.workers import LINE

Array = npt.NDArray[Any]


class Steps(NamedTuple):
    """How an update steps.

    Attributes:
        learning_rate: of Adam.
        epochs: how often all samples are seen.
        minibatch_size: samples of a gradient step.
        max_gradient_norm: gradients are scaled down to it, all networks' together.
        epsilon: of Adam.
        rectified: step by RAdam (Liu et al. 2020), whose first thousand steps are shorter.
        normalize: a column of which every minibatch is brought to mean 0 and deviation 1.
        stop_above: the name of a loss or statistic, and the mean over a minibatch above which the
            update ends before that step.
    """

    learning_rate: float
    epochs: int = 1
    minibatch_size: int = 256
    max_gradient_norm: float = math.inf
    epsilon: float = 1e-8
    rectified: bool = False
    normalize: str | None = None
    stop_above: tuple[str, float] | None = None


class Learner(FlatLearner):
    """Minimises a sum of losses over minibatches of named columns, with Adam, wholly in kernels.

    Args:
        networks: what is learnt; each update overwrites their arrays.
        losses: what is minimised; those of one network read all its outputs, each of them once.
        columns: names of the numbers of a sample that losses read.
        actions: dtype of the actions, int64 or float32; None where no loss reads any.
        weights: NamedTuple of coefficients that losses read, or (); `update` may be given other
            numbers.
        seed: of the stream that shuffles.
        num_threads: threads at most; None for one on each CPU that the process may use. The result
            does not depend on it.
        dtype: in which gradients and moments are computed.

    Attributes:
        learnt: parameters and moments of Adam.
        counters: (2,) int64, gradient steps and epochs so far.
        space: scratch memory of the last update, or None.
        awaited: a process that compiles the kernel, or None; see `rlcpu.train.precompile`.

    Raises:
        TypeError, ValueError: a bad argument.

    Example:
        >>> from rlcpu.nn import Loss, outputs
        >>> def squared(numbers, sample, weights):
        ...     error = numbers[0] - sample.target
        ...     return error * error, ()
        >>> line = Network((1, 1))
        >>> learner = Learner([line], [Loss(squared, outputs())], columns=["target"])
        >>> x = np.linspace(-1, 1, 256, dtype=np.float32)
        >>> means = learner.update(x[:, None], {"target": 3 * x}, learning_rate=0.1, epochs=100)
        >>> round(float(line.outputs([[2.0]])[0, 0]), 1)
        6.0
    """

    awaited: subprocess.Popen[bytes] | None = None

    def __init__(
        self,
        networks: Sequence[Network],
        losses: Sequence[Loss],
        *,
        columns: Sequence[str] = (),
        actions: npt.DTypeLike | None = None,
        weights: tuple[float, ...] = (),
        seed: int = 0,
        num_threads: int | None = None,
        dtype: type = np.float32,
    ) -> None:
        self.losses = list(losses)
        self.columns, self.weights = _check_columns(columns), weights
        self.actions = None if actions is None else np.dtype(actions)
        wanted = {each.head.actions for each in self.losses} - {None}
        expected = {"vector": np.dtype(np.float32)}
        kinds = {expected.get(str(kind), np.dtype(np.int64)) for kind in wanted}
        if kinds != ({self.actions} - {None}) or len(wanted) > 1:
            raise ValueError(f"actions={actions!r}: the losses read {sorted(map(str, wanted))}")
        layout = make_layout(list(networks), self.losses)
        super().__init__(
            networks, layout, counters=2, seed=seed, num_threads=num_threads, dtype=dtype
        )

    # ------------------------------------------------------------ updates

    def update(
        self,
        inputs: Array | Ones,
        columns: Mapping[str, Array],
        actions: Array | None = None,
        *,
        mean: Array | None = None,
        scale: Array | None = None,
        weights: tuple[float, ...] | None = None,
        scales: Sequence[float] | None = None,
        **steps: Any,
    ) -> dict[str, float]:
        """Learn from S samples, and write the networks.

        Args:
            inputs: (S, input_size) float32, of all networks; or `nn.Ones`, if they are zeros but
                for a few ones.
            columns: (S,) float32 arrays, one for each name.
            actions: (S,) or (S, action_size) of the learner's dtype of actions; with a masked head
                (S, 1 + num_actions), the index and a 1 for each action that is allowed, and with
                `categoricals` (S, number of choices).
            mean: (input_size,) float32: networks see (input - mean) * scale, clipped to +-10; None
                for 0.
            scale: (input_size,) float32; None for 1.
            weights: coefficients that losses read; None for those of the learner.
            scales: what each loss is multiplied by; None for 1.
            **steps: fields of `rlcpu.nn.learner.Steps`, `learning_rate` at least.

        Returns:
            Means over the gradient steps: of each loss, by the name of its function, and of its
            statistics; `gradient_norm`, before it is scaled down; `num_gradients`, steps taken.

        Raises:
            KeyError: a column is missing.
            TypeError, ValueError: an argument is unknown or out of its range, or an array of
                another shape.
            FloatingPointError: a loss or a parameter has become NaN or infinite; `learnt` holds
                what came of it, the networks are untouched.
        """
        given = Steps(**steps)
        epochs = check_count("epochs", given.epochs)
        minibatch_size = check_count("minibatch_size", given.minibatch_size)
        for name, named, known in (
            ("normalize", given.normalize, self.columns),
            ("stop_above", given.stop_above and given.stop_above[0], self._names()[:-1]),
        ):
            if named is not None and named not in known:
                raise ValueError(f"{name}={named!r}: expected one of {', '.join(known)}")
        if scales is not None and len(scales) != len(self.losses):
            raise ValueError(f"scales={scales!r}: expected {len(self.losses)} numbers")
        batch = self._make_batch(inputs, columns, actions, mean, scale)
        if self.awaited is not None:
            with announce.announced("rlcpu.nn", "update"):
                self.awaited.wait()
            self.awaited = None
        names = self._names()
        count = batch.columns.shape[1]
        size = 0 if self.actions is None else batch.actions.size // count
        space = self._space_for(self._make_space, count, minibatch_size, size)
        real, limit = self.dtype, given.stop_above or ("", math.inf)
        coefficients = self.weights if weights is None else weights
        objective = self._objective(coefficients)
        settings = Settings(
            epochs=epochs,
            minibatch_size=minibatch_size,
            normalized=-1 if given.normalize is None else self.columns.index(given.normalize),
            action_size=size,
            first_column=2 * objective.most_numbers,
            learning_rate=real(given.learning_rate),
            epsilon=real(given.epsilon),
            rectified=bool(given.rectified),
            scales=np.array(scales or [1.0] * len(self.losses), real),
            weights=np.array(coefficients, real),
            max_norm=real(given.max_gradient_norm),
            watched=-1 if given.stop_above is None else names.index(limit[0]),
            most=float(limit[1]),
            steps=int(self.counters[0]),
            shuffles=int(self.counters[1]),
            key_low=self.key[0],
            key_high=self.key[1],
            patience=self._patience(min(minibatch_size, PART)),
            losses=losses_at(real, objective),
            passes=passes_of(real),
        )
        # A worker without a part of its own would only wait.
        workers = min(self.num_workers, space.gradients.shape[0] * len(self.layout.tables))
        self._run(make_update(real), workers, space, batch, space, settings)
        *means, taken = space.report.tolist()
        self.counters += int(taken), epochs
        report = {name: mean / max(taken, 1.0) for name, mean in zip(names, means, strict=True)}
        # What an update may be ended by is no part of the loss: it may overflow before it is.
        self._check_finite({k: value for k, value in report.items() if k != limit[0]})
        self.write_networks()
        return {**report, "num_gradients": int(taken)}

    def _names(self) -> list[str]:
        names = []
        for loss in self.losses:
            names += [loss.function.__name__, *loss.statistics]
        return [*names, "gradient_norm"]

    def _make_batch(
        self,
        inputs: Array | Ones,
        columns: Mapping[str, Array],
        actions: Array | None,
        mean: Array | None,
        scale: Array | None,
    ) -> Batch:
        """The arguments as the kernel takes them."""
        size = int(self.networks[0].sizes[0])
        center = as_writable(np.zeros(size) if mean is None else mean, np.float32)
        factor = as_writable(np.ones(size) if scale is None else scale, np.float32)
        if not center.shape == factor.shape == (size,):
            both = f"mean has shape {center.shape}, scale {factor.shape}"
            raise ValueError(f"{both}: expected ({size},)")
        is_scaled = bool(center.any() or (factor != 1.0).any())
        seen, starts, ones = self._check_inputs(inputs, size, is_scaled)
        count = len(seen) or len(starts) - 1
        packed = np.empty((len(self.columns), count), np.float32)
        for k, name in enumerate(self.columns):
            if np.shape(columns[name]) != (count,):
                found = np.shape(columns[name])
                raise ValueError(f"columns[{name!r}] has shape {found}: expected ({count},)")
            packed[k] = columns[name]
        taken = self._check_actions(actions, count)
        return Batch(seen.ravel(), starts, ones, center, factor, taken, packed)

    def _check_inputs(
        self, inputs: Array | Ones, size: int, is_scaled: bool
    ) -> tuple[Array, Array, Array]:
        """Numbers, or starts and columns of ones; what is not there is empty."""
        if isinstance(inputs, Ones):
            inputs.check(size)
            has_hidden = min(len(each.sizes) for each in self.networks) > 2
            if has_hidden and not is_scaled and inputs.are_few():
                places = as_writable(inputs.starts, np.int64), as_writable(inputs.columns, np.int32)
                return np.zeros((0, size), np.float32), *places
            inputs = inputs.expand()
        seen = as_writable(inputs, np.float32)
        if seen.ndim != 2 or seen.shape[1] != size or len(seen) == 0:
            raise ValueError(f"inputs have shape {seen.shape}: expected (S, {size})")
        return seen, np.zeros(0, np.int64), np.zeros(0, np.int32)

    def _check_actions(self, actions: Array | None, count: int) -> Array:
        """Actions as the kernel takes them, all as float32: heads use whole ones as positions."""
        if (actions is None) != (self.actions is None):
            raise ValueError(f"actions={actions!r}: the learner has actions={self.actions}")
        if actions is None:
            return np.zeros(0, np.float32)
        taken: Any = np.asarray(actions)
        if taken.dtype != self.actions:
            raise ValueError(f"actions are {taken.dtype}: expected {self.actions}")
        sizes = self.layout.places[[loss.head.actions is not None for loss in self.losses], 2]
        size = int(sizes.min())
        vectors = self.actions == np.float32
        shape = (count, size) if vectors else (count,)
        if any(loss.head.actions == "masked" for loss in self.losses):
            return _check_masked(taken, count, size)
        for loss in self.losses:
            if loss.head.actions == "indices":
                return _check_indices(taken, count, loss.head.learn.choices)  # type: ignore[attr-defined]
        if taken.shape != shape and not (vectors and size == 1 and taken.shape == (count,)):
            raise ValueError(f"actions have shape {taken.shape}: expected {shape}")
        if taken.dtype == np.int64 and not 0 <= taken.min() <= taken.max() < size:
            wrong = taken[(taken < 0) | (taken >= size)][0]
            raise ValueError(f"actions: expected 0 to {size - 1}, got {wrong}")
        return as_writable(taken, np.float32).ravel()

    def _check_finite(self, report: dict[str, float]) -> None:
        bad = [name for name, mean in report.items() if not math.isfinite(mean)]
        for name in ("parameters", "first", "second"):
            if not np.isfinite(getattr(self.learnt, name)).all():
                bad.append(name)
        if bad:
            raise FloatingPointError(
                f"update {int(self.counters[0])} made {', '.join(bad)} NaN or infinite: "
                "smaller rewards, observations or learning_rate help"
            )

    def _make_space(self, count: int, minibatch_size: int, action_size: int) -> Space:
        layout, objective, dtype = self.layout, self._objective(self.weights), self.dtype
        minibatch = min(minibatch_size, count)
        num_minibatches, parts = -(-count // minibatch), -(-minibatch // PART)
        networks, workers = len(layout.tables), self.num_workers
        tables = [table[:n] for table, n in zip(layout.tables, layout.layers, strict=True)]
        cells = max(map(network.cells_per_sample, tables))
        widest = layout.tables[:, :, network.WIDTH_IN :].max()
        height = int(layout.places[:, 2].max()) + action_size
        height += len(self.columns) + 2 * objective.most_numbers
        size = layout.begins[-1]
        slices = -(-size // SLICE)
        return Space(
            indices=np.zeros(count, np.int64),
            moments=np.zeros((num_minibatches, 2), dtype),
            gradients=aligned_zeros((parts, size), dtype),
            sums=np.zeros((parts, networks, objective.num_sums)),
            squares=np.zeros(slices),
            cells=aligned_zeros((workers, CHUNK * cells), dtype),
            slopes=aligned_zeros((workers, (CHUNK + 1) * widest), dtype),
            rows=aligned_zeros((workers, CHUNK * height), dtype),
            claims=np.zeros(LINE * max(parts * networks, num_minibatches, slices), np.int64),
            done=np.zeros(LINE, np.int64),
            report=np.zeros(objective.num_sums + 2),
        )

    # ------------------------------------------------------------ machine code

    def _objective(self, weights: tuple[float, ...]) -> Objective:
        """What the losses' code depends on, with weights of this type."""
        terms = [
            Term(each.function, each.head, len(each.statistics), each.slopes)
            for each in self.losses
        ]
        kind = type(weights), len(weights)
        return Objective(tuple(terms), self.columns, _sample_type(self.columns), kind)

    def compile(self) -> None:
        """Make the kernel and what it calls ready, without an update."""
        losses_at(self.dtype, self._objective(self.weights))
        passes_of(self.dtype)
        kernel: Any = make_update(self.dtype)
        kernel.compile(self._types())

    def is_uncompiled(self) -> bool:
        """Whether the kernel would be compiled by the first update, and kept in a cache."""
        # It has one set of types: where there is code, it is the right one.
        kernel: Any = make_update(self.dtype)
        return not kernel.overloads and cache_of(kernel).lacks(self._types())

    def _types(self) -> tuple[Any, ...]:
        """Numba's types of the kernel's arguments."""
        real, numbers = self.dtype, np.zeros(1, np.float32)
        reals: Any = np.zeros(1, real)
        starts, ones = np.zeros(1, np.int64), np.zeros(1, np.int32)
        columns = np.zeros((1, 1), np.float32)
        batch = Batch(numbers, starts, ones, numbers, numbers, numbers, columns)
        settings = Settings(
            *(0, 0, 0, 0, 0, real(0), real(0), False, reals, reals, real(0), 0, 0.0, 0, 0),
            *(self.key[0], self.key[1], 0, 0, Passes(0, 0)),
        )
        args = (0, 1, self.learnt, self.layout, batch, self._make_space(1, 1, 1), settings)
        typeof: Any = numba.typeof
        return tuple(map(typeof, args))

    def __getstate__(self) -> dict[str, Any]:
        """Also without the process that compiles."""
        return {**super().__getstate__(), "awaited": None}


_sample_types: dict[tuple[str, ...], Any] = {}


def _sample_type(columns: tuple[str, ...]) -> Any:
    """One NamedTuple for equal names: machine code is kept by it."""
    if columns not in _sample_types:
        _sample_types[columns] = collections.namedtuple("Sample", columns)
    return _sample_types[columns]


def as_writable(values: Any, dtype: type) -> Array:
    """Numbers as a contiguous array of a type that kernels were compiled for.

    Numba has another type for arrays that cannot be written to, such as views of JAX's.
    """
    return np.require(values, dtype, ("C", "W"))


def _check_masked(actions: Array, count: int, size: int) -> Array:
    """Indices and masks (S, 1 + size) as the kernel takes them."""
    if actions.shape != (count, 1 + size):
        raise ValueError(f"actions have shape {actions.shape}: expected {(count, 1 + size)}")
    taken, masks = actions[:, :1], actions[:, 1:]
    if not 0 <= taken.min() <= taken.max() < size:
        wrong = taken[(taken < 0) | (taken >= size)][0]
        raise ValueError(f"actions: expected 0 to {size - 1}, got {wrong}")
    forbidden = np.flatnonzero(np.take_along_axis(masks, taken, axis=1) == 0)
    if forbidden.size:
        wrong = actions[forbidden[0]].tolist()
        raise ValueError(f"actions[{forbidden[0]}]={wrong}: action {wrong[0]} is not allowed")
    return as_writable(actions, np.float32).ravel()


def _check_indices(actions: Array, count: int, choices: tuple[int, ...]) -> Array:
    """Indices (S, number of choices) as the kernel takes them."""
    if actions.shape != (count, len(choices)):
        raise ValueError(f"actions have shape {actions.shape}: expected {(count, len(choices))}")
    wrong = np.flatnonzero(((actions < 0) | (actions >= choices)).any(axis=1))
    if wrong.size:
        found = actions[wrong[0]].tolist()
        raise ValueError(f"actions[{wrong[0]}]={found}: expected 0 or more, below {choices}")
    return as_writable(actions, np.float32).ravel()


def _check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    for name in columns:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"columns={columns!r}: expected names")
    if isinstance(columns, str) or len(set(columns)) < len(columns):
        raise ValueError(f"columns={columns!r}: expected different names")
    return tuple(columns)
