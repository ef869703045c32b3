"""First in, first out, on the device: steps of many environments, each handed out once."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.replay.batch import Batch
from rlcpu.cuda.replay.buffer import Buffer, refuse_others
from rlcpu.replay.buffer import as_structure
from rlcpu.replay.checkpoint import Reader
from rlcpu.replay.checks import check_count
from rlcpu.replay.ring import Ring


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

    def _restore(self, state: dict[str, Any], reader: Reader) -> None:
        self._taken = check_count("taken", state["taken"], 0)
        if not 0 <= self._waiting() <= self.length:
            raise ValueError(f"taken={self._taken}: expected at most {self._ring.added}")


class TrajectoryQueue(Waiting, Buffer):
    """`rlcpu.replay.TrajectoryQueue` in the memory of a CUDA device.

    Args:
        num_envs: number of environments.
        length: steps of each that may wait.
        example: one transition, see `ReplayBuffer`.
        sequence_length: steps that `sample` hands out at a time, at most `length`.
        seed: see `ReplayBuffer`; nothing is drawn here.
        **others: of the CPU's buffers, not to be used.

    Raises:
        CudaUnavailableError, CudaMemoryError, NotImplementedError, TypeError, ValueError: see
            `ReplayBuffer`.
    """

    def __init__(
        self,
        num_envs: int,
        length: int,
        example: Any,
        sequence_length: int,
        *,
        seed: int | None = None,
        **others: Any,
    ) -> None:
        refuse_others(others)
        self.sequence_length = check_count("sequence_length", sequence_length)
        self.length = check_count("length", length, self.sequence_length)
        num_envs = check_count("num_envs", num_envs)
        super().__init__(as_structure(example), num_envs, self.length, seed)

    def add(self, batch: Any) -> None:
        """Store steps of all environments, behind those that wait.

        Args:
            batch: structured like the example, each leaf (num_steps, num_envs, *shape), or
                (num_envs, *shape) for one step; on the host or the device, see `ReplayBuffer.add`.

        Raises:
            TypeError: see `ReplayBuffer.add`.
            ValueError: likewise, or there is no room. Nothing is stored by a call that raises.
        """
        fields, steps = self._storage.check(batch, self.num_envs)
        with self._lock:
            room = self.length - self._waiting()
            if steps > room:
                raise ValueError(f"batch has {steps} steps: expected at most {room}")
            self._write(fields, steps)

    def sample(self) -> Batch:
        """Take the oldest steps; returns before they are there.

        Returns:
            Steps of all environments, copied, leaves (sequence_length, num_envs, *shape).

        Raises:
            ValueError: fewer steps wait.
        """
        with self._lock:
            self._refuse_short()
            slot = self._taken % self.length
            indices = arrays.from_host(np.arange(self._envs) * self.length + slot)
            leaves = self._storage.gather(indices, self.sequence_length)
            self._taken += self.sequence_length
        return Batch(self.structure.unflatten(leaves), indices)
