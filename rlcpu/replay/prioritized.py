"""Prioritised replay of transitions."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.replay.batch import Batch
from rlcpu.replay.buffers import ReplayBuffer
from rlcpu.replay.priorities import Prioritized
from rlcpu.replay.ring import Ring


class PrioritizedReplayBuffer(Prioritized, ReplayBuffer):
    """Transitions, drawn by priority with replacement (Schaul et al. 2016, Prioritized replay).

    Transition i is drawn with probability P(i) proportional to (priority + epsilon) ** alpha, and
    comes with the importance weight (N P(i)) ** -beta over the largest one of its batch. New
    transitions get the largest priority given so far, at first 1.

    Args:
        capacity: see `ReplayBuffer`.
        example: see `ReplayBuffer`.
        alpha: 0 draws uniformly, 1 in proportion; at most 2.
        beta: 0 to 1, how much of the bias importance weights correct; `sample` takes another one.
        epsilon: added to each priority, so that items of priority 0 are drawn too.
        num_envs: see `ReplayBuffer`, as the arguments after it.
        n_step: see `ReplayBuffer`.
        gamma: see `ReplayBuffer`.
        derive_next: see `ReplayBuffer`.
        memmap: see `ReplayBuffer`.
        seed: see `ReplayBuffer`.
        num_threads: see `ReplayBuffer`.
        device: "cuda" for a `rlcpu.cuda.replay.PrioritizedReplayBuffer`.

    Raises:
        TypeError, ValueError, FileExistsError, MemoryError: see `ReplayBuffer`.

    Example:
        >>> buffer = PrioritizedReplayBuffer(1000, {"reward": 0.0}, seed=0)
        >>> buffer.add({"reward": np.arange(3.0)})
        >>> batch = buffer.sample(2)
        >>> buffer.update_priorities(batch.indices, np.abs(batch["reward"]))
    """

    _settings: tuple[str, ...] = (*ReplayBuffer._settings, "alpha", "beta", "epsilon")

    def __init__(
        self,
        capacity: int,
        example: Any,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
        num_envs: int | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        derive_next: bool = False,
        memmap: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.alpha, self.beta, self.epsilon = alpha, beta, epsilon
        super().__init__(
            capacity,
            example,
            num_envs=num_envs,
            n_step=n_step,
            gamma=gamma,
            derive_next=derive_next,
            memmap=memmap,
            seed=seed,
            num_threads=num_threads,
        )

    def _added(self, before: Ring, after: Ring, *more: Any) -> None:
        self._priorities.mark(self._envs, before.added, after.added)

    def sample(
        self, batch_size: int, *, beta: float | None = None, out: Batch | None = None
    ) -> Batch:
        """Draw transitions by priority, with replacement.

        Args:
            batch_size: how many.
            beta: instead of the buffer's own.
            out: a batch that this buffer returned for the same size: overwritten and returned.

        Returns:
            The transitions, copied, with indices, probabilities and importance weights.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or the buffer is empty, or
                no item has a priority above zero.
        """
        batch, indices = self._batch(batch_size, out, None)
        with self.locked():
            self._refuse_empty()
            self._priorities.draw(self._stream, indices, batch, beta)
            self._n_step.gather(self._storage, self._ring, indices, batch, self._num_threads)
        batch.indices = indices
        return batch

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give transitions new priorities; of equal indices the last one counts.

        A transition that was overwritten since it was drawn hands its priority to its successor.

        Args:
            indices: (n,) of any integer dtype, as a batch has them.
            priorities: (n,), or one for all; finite and not negative, as the size of a temporal
                difference is.

        Raises:
            IndexError: an index is out of range, or nothing was written there yet.
            TypeError: an array is of another kind.
            ValueError: a priority is NaN, negative or above 1e100, or a shape is wrong. Nothing is
                changed by a call that raises.
        """
        array, leaves = self.check_priorities(indices, priorities)
        with self.locked():
            self._priorities.update(array, leaves)

    def check_priorities(self, indices: Any, priorities: Any) -> tuple[Any, Any]:
        """Indices and leaves for `update_priorities`, or its exception."""
        array, leaves = self._priorities.check(indices, priorities)
        refuse_unwritten(array, self._ring)  # what is written once stays so
        return array, leaves


def refuse_unwritten(indices: npt.NDArray[np.int64], ring: Ring, reach: int = 1) -> None:
    """Raise IndexError for an item from which `reach` steps are not written yet."""
    if ring.added >= ring.length or not indices.size:
        return
    slots = indices % ring.length
    worst = int(slots.argmax())
    if slots[worst] + reach > ring.added:
        raise IndexError(f"indices: nothing was written at {int(indices[worst])} yet")
