"""Settings of an update: as users give them, and as kernels take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count

Array = npt.NDArray[Any]
#: Samples that pass the networks together, and at most so many parts has a minibatch.
CHUNK, MOST_PARTS = 128, 32
#: Samples times parameters from which a part of half a chunk takes 1 % longer, to add its gradients
#: to the others; below it is 5 %.
LEAST_OF_PART = 4_000_000
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

    def rates(self, count: int, dtype: type) -> Array:
        """Return the learning rate of each of `count` updates, after a check."""
        rate = self.learning_rate
        if isinstance(rate, float):
            return np.array([rate] * count, dtype)
        if np.shape(rate) not in ((), (count,)):
            expected = f"a number, or {count} for as many updates"
            raise ValueError(f"learning_rate={rate!r}: expected {expected}")
        return np.full(count, rate, dtype)

    def watched(self, statistics: list[str]) -> tuple[int, float]:
        """Return the number of the statistic that may end a call, -1 for none, and its bound."""
        if self.stop_above is None:
            return -1, math.inf
        name, most = self.stop_above
        if name not in statistics:
            expected = f"expected one of {', '.join(statistics)}"
            raise ValueError(f"stop_above={self.stop_above!r}: {expected}")
        return statistics.index(name), float(most)

    def sequences_abreast(self, count: int) -> int:
        """Return how many sequences lie side by side in a batch of `count` samples."""
        length, abreast = self.sequence_length, self.abreast
        if count % length:
            raise ValueError(f"sequence_length={length}: the batch has {count} samples")
        sequences = count // length
        if abreast is not None and sequences % check_count("abreast", abreast):
            raise ValueError(f"abreast={abreast}: the batch has {sequences} sequences of {length}")
        return abreast or sequences

    def for_kernels(self, count: int, parameters: int, dtype: Any, **others: Any) -> UpdateSettings:
        """Return the settings of a call for kernels.

        Args:
            count: samples of the batch.
            parameters: of the learner, how many.
            dtype: of the learner.
            **others: fields of `UpdateSettings` that do not follow from these settings.
        """
        minibatch = min(self.minibatch_size, count)
        part, chunk = parts_of(minibatch, parameters, self.sequence_length)
        return UpdateSettings(
            epochs=self.epochs,
            minibatch=minibatch,
            part=part,
            chunk=chunk,
            steps=self.sequence_length,
            abreast=self.sequences_abreast(count),
            is_shuffled=bool(self.shuffle),
            period=self.target_period,
            tau=dtype(self.tau),
            epsilon=dtype(self.epsilon),
            decay=dtype(self.weight_decay),
            is_rectified=bool(self.rectified),
            max_norm=dtype(self.max_gradient_norm),
            **others,
        )


class UpdateSettings(NamedTuple):
    """Settings of a call; reals are of the learner's dtype.

    Attributes:
        epochs, minibatch: how often a call goes through all samples, and how many at a time.
        part, chunk: samples of a part and of a chunk, see `parts_of`.
        steps: time steps of a sequence; all sizes above are of whole sequences.
        abreast: sequences that lie side by side in the batch, see `LearnerSettings`.
        is_shuffled: whether each epoch shuffles the samples.
        standardised: (any,) int64, columns that minibatches standardise.
        counters: (2,) int64, minibatches and epochs before this call.
        every: (num_updates,) int64: an update follows every so many minibatches.
        period, tau: every so many minibatches, targets go this part of the way.
        learning_rates: (num_updates,).
        epsilon, decay, is_rectified: of Adam; see `rlcpu.nn.adam`.
        max_norm: gradients of an update are scaled down to the norm.
        watched, most: the call ends at a minibatch whose mean of this sum is above `most`.
        key_low, key_high: uint32, of the random stream.
        patience: see `rlcpu.nn.workers.wait`.
    """

    epochs: int
    minibatch: int
    part: int
    chunk: int
    steps: int
    abreast: int
    is_shuffled: bool
    standardised: Any
    counters: Any
    every: Any
    period: int
    tau: Any
    learning_rates: Any
    epsilon: Any
    decay: Any
    is_rectified: bool
    max_norm: Any
    watched: int
    most: float
    key_low: Any
    key_high: Any
    patience: int


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
        if minibatch <= CHUNK:
            half = _ceil(minibatch, 32) * 16  # in whole vectors
            return max(32, half), CHUNK
        if minibatch < 4 * CHUNK and CHUNK // 2 * parameters >= LEAST_OF_PART:
            return CHUNK // 2, CHUNK
        return CHUNK * _ceil(minibatch, CHUNK * MOST_PARTS), CHUNK
    sequences = minibatch // steps
    in_chunk = min(max(TOGETHER, 4 * CHUNK // steps), _ceil(sequences, 2))
    chunks_in_part = _ceil(_ceil(sequences, in_chunk), MOST_PARTS)
    return in_chunk * steps * chunks_in_part, in_chunk * steps


def _ceil(number: int, divisor: int) -> int:
    """Return number / divisor, rounded up."""
    return -(-number // divisor)
