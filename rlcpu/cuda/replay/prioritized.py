"""Prioritised replay of transitions on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.launch import launch
from rlcpu.cuda.replay.batch import Batch
from rlcpu.cuda.replay.buffers import ReplayBuffer
from rlcpu.cuda.replay.pairs import Pairs, check_index_array, check_real_array
from rlcpu.cuda.replay.priorities import Prioritized
from rlcpu.cuda.replay.upkeep import raise_kernel
from rlcpu.replay.buffers import PrioritizedReplayBuffer as Host
from rlcpu.replay.ring import Ring
from rlcpu.replay.samplers import MOST


class PrioritizedReplayBuffer(Prioritized, ReplayBuffer):
    """`rlcpu.replay.PrioritizedReplayBuffer` in the memory of a CUDA device.

    Args:
        capacity: see `ReplayBuffer`.
        example: see `ReplayBuffer`.
        alpha: 0 draws uniformly, 1 in proportion; at most 2.
        beta: 0 to 1, how much of the bias importance weights correct; `sample` takes another one.
        epsilon: added to each priority, so that items of priority 0 are drawn too.
        **options: of `ReplayBuffer`.

    Raises:
        CudaUnavailableError, CudaMemoryError, NotImplementedError, TypeError, ValueError: see
            `ReplayBuffer`.
    """

    _settings: tuple[str, ...] = Host._settings

    def __init__(
        self,
        capacity: int,
        example: Any,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
        **options: Any,
    ) -> None:
        super().__init__(capacity, example, **options)
        self._prioritize(self._envs * self._ring.length, alpha, beta, epsilon)

    def _added(self, before: Ring, after: Ring) -> None:
        self._priorities.tree.mark(self._envs, before.added, after.added)

    def sample(self, batch_size: int, *, beta: float | None = None) -> Batch:
        """Draw transitions by priority, with replacement; returns before they are there.

        Args:
            batch_size: how many.
            beta: instead of the buffer's own.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or the buffer is empty, or
                no item has a priority above zero.
        """
        indices, beta = self._room(batch_size), self._priorities.check_beta(beta)
        with self._lock:
            self._refuse_empty()
            weighed = self._priorities.draw(self._stream, indices, beta)
            return self._gather(indices, *weighed)

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Give transitions new priorities; of equal indices the last one counts.

        Args:
            indices: (n,), as a batch has them; int64 if on the device.
            priorities: (n,), or one for all; finite and not negative, as the size of a temporal
                difference is.

        Raises:
            IndexError: an index is out of range, or nothing was written there yet.
            TypeError: an array is of another kind.
            ValueError: a priority is NaN, negative or above 1e100, or a shape is wrong. Nothing is
                changed by a call that raises.
        """
        array = check_index_array(indices)
        numbers = check_real_array("priorities", priorities, array.size)
        leaves = arrays.empty(numbers.size, np.float64)
        launch(raise_kernel(), numbers.size, numbers, self.epsilon, self.alpha, leaves)
        with self._lock:
            ring = self._ring
            if not ring.added and array.size:
                raise IndexError(f"indices: nothing was written at {int(np.asarray(array)[0])} yet")
            pairs = Pairs(array, numbers, leaves, MOST, ring.length, ring.filled)
            self._priorities.tree.write(pairs)
