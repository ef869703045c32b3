"""First in, first out: steps of many environments, each handed out once."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from rlcpu.replay.batch import Batch
from rlcpu.replay.buffer import Buffer, as_structure
from rlcpu.replay.checks import check_count
from rlcpu.replay.lock import complete
from rlcpu.replay.ring import Ring
from rlcpu.replay.storage import Source


class Waiting:
    """Which steps wait to be handed out, wherever their memory is.

    Attributes:
        length: steps of each environment that may wait.
        sequence_length: steps that are handed out at a time.
    """

    _settings: tuple[str, ...] = ("num_envs", "length", "sequence_length")
    length: int
    sequence_length: int
    _ring: Ring
    _envs: int
    _taken = 0  # steps ever handed out

    def _waiting(self) -> int:
        return self._ring.added - self._taken

    def __len__(self) -> int:
        """Number of transitions that wait."""
        return self._waiting() * self._envs

    def can_add(self, num_steps: int = 1) -> bool:
        """Whether there is room for so many steps of all environments."""
        return check_count("num_steps", num_steps) <= self.length - self._waiting()

    def can_sample(self, batch_size: int = 1) -> bool:
        """Whether so many sequences wait, one after the other."""
        return check_count("batch_size", batch_size) * self.sequence_length <= self._waiting()

    def _refuse_short(self) -> None:
        if self._waiting() < self.sequence_length:
            raise ValueError(
                f"sample: {self._waiting()} steps wait, expected {self.sequence_length}"
            )

    def _state(self) -> dict[str, Any]:
        return {"taken": self._taken}

    def _restore(self, state: dict[str, Any], reader: Source) -> None:
        self._taken = check_count("taken", state["taken"], 0)
        if not 0 <= self._waiting() <= self.length:
            raise ValueError(f"taken={self._taken}: expected at most {self._ring.added}")


class TrajectoryQueue(Waiting, Buffer):
    """Steps of many environments side by side, handed out in order, and once.

    For algorithms that learn from what was just collected, such as IMPALA (Espeholt et al. 2018),
    while other threads collect.

    Args:
        num_envs: number of environments.
        length: steps of each that may wait.
        example: one transition, see `ReplayBuffer`.
        sequence_length: steps that `sample` hands out at a time, at most `length`.
        memmap: see `ReplayBuffer`, as the arguments after it.
        seed: see `ReplayBuffer`; nothing is drawn here.
        num_threads: see `ReplayBuffer`.
        device: "cuda" for a `rlcpu.cuda.replay.TrajectoryQueue`.

    Raises:
        TypeError, ValueError, FileExistsError, MemoryError: see `ReplayBuffer`.

    Example:
        >>> queue = TrajectoryQueue(2, 100, {"reward": 0.0}, sequence_length=3)
        >>> queue.add({"reward": np.arange(8.0).reshape(4, 2)})
        >>> queue.sample()["reward"].tolist(), len(queue)
        ([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], 2)
    """

    def __init__(
        self,
        num_envs: int,
        length: int,
        example: Any,
        sequence_length: int,
        *,
        memmap: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.sequence_length = check_count("sequence_length", sequence_length)
        self.length = check_count("length", length, self.sequence_length)
        num_envs = check_count("num_envs", num_envs)
        structure = as_structure(example)
        super().__init__(structure, num_envs, self.length, memmap, seed, num_threads)

    def add(self, batch: Any) -> None:
        """Store steps of all environments, behind those that wait.

        Args:
            batch: structured like the example, each leaf (num_steps, num_envs, *shape), or
                (num_envs, *shape) for one step.

        Raises:
            TypeError: see `ReplayBuffer.add`.
            ValueError: likewise, or there is no room. Nothing is stored by a call that raises.
        """
        arrays = self._check(batch)
        with self.locked():
            room = self.length - self._waiting()
            if len(arrays[0]) > room:
                raise ValueError(f"batch has {len(arrays[0])} steps: expected at most {room}")
            complete(self._write, arrays, self._ring)

    def sample(self, *, out: Batch | None = None) -> Batch:
        """Take the oldest steps.

        Args:
            out: a batch that this queue returned: overwritten and returned.

        Returns:
            Steps of all environments, copied, leaves (sequence_length, num_envs, *shape).

        Raises:
            ValueError: fewer steps wait, or `out` is something else.
        """
        batch, indices = self._batch(self._envs, out, self.sequence_length)
        with self.locked():
            self._refuse_short()
            slot = self._taken % self.length
            indices[:] = np.arange(self._envs) * self.length + slot
            self._storage.gather(indices, batch.rows, self.sequence_length, self._num_threads)
            self._taken += self.sequence_length
        batch.indices = indices
        return batch
