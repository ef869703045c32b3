"""First in, first out, on the device: steps of many environments, each handed out once."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.replay.batch import Batch
from rlcpu.cuda.replay.buffer import Buffer, refuse_others
from rlcpu.replay.buffer import as_structure
from rlcpu.replay.checks import check_count
from rlcpu.replay.queue import Waiting


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
