"""Settings of an update: as users give them, and as kernels take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.machine.structs import Array, Flag, Real, Struct, Whole
from rlcpu.nn.tape.tracing import Tape

#: Samples that pass the networks together, and at most so many parts has a minibatch.
CHUNK, MOST_PARTS = 128, 32
#: Numbers of the widest vector.
VECTOR = 16
#: Samples times parameters from which a part of half a chunk takes 1 % longer, to add its gradients
#: to the others; below it is 5 %.
LEAST_OF_PART = 4_000_000
#: Looks at another worker in a millisecond.
LOOKS_OF_MILLISECOND = 800_000
#: Sequences that pass networks together at least: rows of the products of a time step.
TOGETHER = 16


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
            steps of N sequences, then T of the next N, as has a long rollout of N environments
            that is cut into shorter sequences. None for all sequences.
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

    @classmethod
    def of(cls, options: dict[str, Any]) -> LearnerSettings:
        """Return the settings of a call from its keyword arguments, after checks.

        Learning rates, `stop_above` and `abreast` are checked where the program and the batch are
        known: see `rates`, `watched` and `sequences_abreast`.

        Raises:
            TypeError, ValueError: one of them is missing, unknown, or out of its range.
        """
        if "learning_rate" not in options:
            raise TypeError("learning_rate: expected a number")
        chosen = cls(**options)
        for name in ("epochs", "minibatch_size", "target_period", "sequence_length"):
            check_count(name, getattr(chosen, name))
        if chosen.minibatch_size % chosen.sequence_length:
            length = chosen.sequence_length
            whole = f"expected a multiple of sequence_length={length}, for whole sequences"
            raise ValueError(f"minibatch_size={chosen.minibatch_size}: {whole}")
        if not 0.0 <= chosen.tau <= 1.0:
            raise ValueError(f"tau={chosen.tau!r}: expected a number from 0 to 1")
        for name in ("max_gradient_norm", "epsilon"):
            if not getattr(chosen, name) > 0.0:
                raise ValueError(f"{name}={getattr(chosen, name)!r}: expected a positive number")
        if not chosen.weight_decay >= 0.0:
            raise ValueError(f"weight_decay={chosen.weight_decay!r}: expected 0 or more")
        return chosen

    def rates(self, count: int, dtype: type) -> npt.NDArray[Any]:
        """Return the learning rate of each of `count` updates, after a check."""
        rate = self.learning_rate
        if isinstance(rate, float):
            return np.array([rate] * count, dtype)
        if np.shape(rate) not in ((), (count,)):
            expected = f"a number, or {count} for as many updates"
            raise ValueError(f"learning_rate={rate!r}: expected {expected}")
        return np.full(count, rate, dtype)

    def watched(self, statistics: list[str]) -> tuple[int, float]:
        """Return number and limit of the statistic that may end a call; -1, infinity for none."""
        if self.stop_above is None:
            return -1, math.inf
        name, limit = self.stop_above
        if name not in statistics:
            expected = f"expected one of {', '.join(statistics)}"
            raise ValueError(f"stop_above={self.stop_above!r}: {expected}")
        return statistics.index(name), float(limit)

    def sequences_abreast(self, count: int) -> int:
        """Return how many sequences lie side by side in a batch of `count` samples."""
        length, abreast = self.sequence_length, self.abreast
        if count % length:
            raise ValueError(f"sequence_length={length}: the batch has {count} samples")
        sequences = count // length
        if abreast is not None and sequences % check_count("abreast", abreast):
            raise ValueError(f"abreast={abreast}: the batch has {sequences} sequences of {length}")
        return abreast or sequences


class UpdateSettings(Struct):
    """Settings of a call for kernels."""

    epochs = Whole()  #: how often a call goes through all samples
    minibatch = Whole()  #: samples of a minibatch
    part = Whole()  #: samples of a part, see `parts_of`
    chunk = Whole()  #: samples of a chunk, see `parts_of`
    steps = Whole()  #: time steps of a sequence; all sizes above are of whole sequences
    abreast = Whole()  #: sequences that lie side by side in the batch, see `LearnerSettings`
    is_shuffled = Flag()  #: whether each epoch shuffles the samples
    num_standardised = Whole()
    standardised = Array(np.int64, "num_standardised")  #: columns that minibatches standardise
    counters = Array(np.int64, 2)  #: minibatches and epochs before this call
    num_updates = Whole()
    every = Array(np.int64, "num_updates")  #: an update follows every so many minibatches
    #: Number of the update whose losses and gradients are computed alone, without a step; -1 to
    #: learn.
    measured = Whole()
    period = Whole()  #: targets move every so many minibatches
    tau = Real()  #: and go this part of the way
    learning_rates = Array("real", "num_updates")
    epsilon = Real()  #: of Adam
    decay = Real()  #: weight decay of AdamW
    is_rectified = Flag()  #: whether Adam is RAdam; see `rlcpu.nn.learning.adam`
    max_norm = Real()  #: gradients of an update are scaled down to the norm
    watched = Whole()  #: the first update's sum that may end the call; -1 for none
    limit = Real()  #: the call ends at a minibatch whose mean of the watched sum is above it
    key_low = Whole()  #: uint32, of the random stream
    key_high = Whole()  #: uint32, of the random stream
    patience = Whole()  #: see `rlcpu.nn.learning.workers.wait`


class SettingsPacking:
    """Packs the settings of updates for kernels, or returns those of the last update again.

    To pack them takes as long as to learn from a small minibatch.

    Args:
        every: of each update, after how many minibatches it follows.
        size: parameters of the learner, how many.
        key: (2,) uint32 of the random stream.
        dtype: of gradients and moments.
    """

    def __init__(
        self, every: list[int], size: int, key: npt.NDArray[np.uint32], dtype: type
    ) -> None:
        self._facts = every, size, key, dtype
        self._last_sources: Any = None
        self._last: Any = None

    def __reduce__(self) -> Any:
        return SettingsPacking, self._facts  # what was packed has addresses

    def pack(
        self,
        options: LearnerSettings,
        rates: npt.NDArray[Any],
        count: int,
        tape: Tape,
        counters: npt.NDArray[np.int64],
    ) -> UpdateSettings:
        """Return the settings of an update, those of the last one if only rates have changed.

        Args:
            options: of the call.
            rates: (updates,) learning rates.
            count: samples of the batch.
            tape: the algorithm.
            counters: (2,), minibatches and epochs so far, which are read where they are.

        Raises:
            ValueError: options do not fit the batch or the algorithm.
        """
        every, size, key, real = self._facts
        sources = options._replace(learning_rate=0.0), count, tape, *key.tolist()
        if sources == self._last_sources and self._last.counters is counters:
            self._last.learning_rates[...] = rates
            return self._last
        minibatch = min(options.minibatch_size, count)
        part, chunk = parts_of(minibatch, size, options.sequence_length)
        watched, limit = options.watched(tape.statistics[0])
        settings = UpdateSettings.of(real=real)(
            epochs=options.epochs,
            minibatch=minibatch,
            part=part,
            chunk=chunk,
            steps=options.sequence_length,
            abreast=options.sequences_abreast(count),
            is_shuffled=bool(options.shuffle),
            standardised=np.array(tape.standardised, np.int64),
            counters=counters,
            every=np.array(every),
            measured=-1,
            period=options.target_period,
            tau=real(options.tau),
            learning_rates=rates,
            epsilon=real(options.epsilon),
            decay=real(options.weight_decay),
            is_rectified=bool(options.rectified),
            max_norm=real(options.max_gradient_norm),
            watched=watched,
            limit=limit,
            key_low=int(key[0]),
            key_high=int(key[1]),
            # A look at another worker takes 1.3 ns. Workers wait about as long as one part of a
            # minibatch takes, and a millisecond: a virtual machine often takes a core away for
            # less, and without it half of PPO's updates were made by one thread. A part takes about
            # as long as a look for every 16 of its samples times parameters.
            patience=LOOKS_OF_MILLISECOND + part * size // 16,
        )
        self._last_sources, self._last = sources, settings
        return settings


def parts_of(minibatch: int, parameters: int, steps: int = 1) -> tuple[int, int]:
    """Return how many samples of a minibatch are a part, and how many of a part are a chunk.

    Workers share the parts, which are two at least for two cores, four where networks are large,
    and `MOST_PARTS` at most: each has gradients of its own. With two layers of 256, parts of 32
    samples take 10 % longer, parts of 16 a quarter. A chunk's samples pass the networks together.

    Args:
        minibatch: samples of a minibatch.
        parameters: of the learner, how many.
        steps: time steps of a sequence; parts and chunks have whole sequences.
    """
    if steps == 1:
        if minibatch <= CHUNK:  # two parts, each of two whole vectors at least
            return max(2 * VECTOR, _ceil(minibatch, 2 * VECTOR) * VECTOR), CHUNK
        if minibatch < 4 * CHUNK and CHUNK // 2 * parameters >= LEAST_OF_PART:
            return CHUNK // 2, CHUNK
        return CHUNK * _ceil(minibatch, CHUNK * MOST_PARTS), CHUNK
    sequences = minibatch // steps
    # Sequences of a chunk: up to 4 * CHUNK samples, but enough for products; half of all at most.
    in_chunk = min(max(TOGETHER, 4 * CHUNK // steps), _ceil(sequences, 2))
    chunks_in_part = _ceil(_ceil(sequences, in_chunk), MOST_PARTS)
    return in_chunk * steps * chunks_in_part, in_chunk * steps


def _ceil(number: int, divisor: int) -> int:
    """Return number / divisor, rounded up."""
    return -(-number // divisor)
