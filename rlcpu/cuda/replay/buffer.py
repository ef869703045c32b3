"""What all buffers on the device have in common: the ring, the lock, the stream, the memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.cuda import arrays, provider
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.replay.storage import Storage
from rlcpu.replay.checks import check_count
from rlcpu.replay.ring import Ring
from rlcpu.replay.saved import Saved
from rlcpu.replay.storage import make_stream
from rlcpu.replay.structure import Structure


class Buffer(Saved):
    """A ring of transitions of one or many environments in the memory of a CUDA device.

    Saved are the files of the CPU's buffers, by way of the host's memory.

    Args:
        structure: of one transition.
        num_envs: environments that are added side by side; None for one whose batches have no
            axis for it.
        length: steps that are kept of each.
        seed: of the buffer's own stream of random numbers; None takes a new one.
    """

    #: Where the memory is: "cuda".
    device = "cuda"
    #: Next observations are stored like all else.
    derive_next = False

    def __init__(
        self, structure: Structure, num_envs: int | None, length: int, seed: int | None
    ) -> None:
        self.structure, self.num_envs = structure, num_envs
        self._stream = make_stream(seed)
        provider.require_device()
        self._envs = 1 if num_envs is None else num_envs
        self._ring = Ring(length, 0)
        self._make_lock()
        self._storage = Storage(structure, self._envs, length)

    @property
    def num_bytes(self) -> int:
        """Bytes of the transitions, if the buffer is full."""
        return self._storage.num_bytes

    def _write(self, fields: list[DeviceArray], steps: int) -> tuple[Ring, Ring]:
        """Store what `Storage.check` returned, with the lock held; the ring before and after."""
        before = self._ring
        self._storage.write(fields, steps, before.slot)
        self._ring = Ring(before.length, before.added + steps)
        return before, self._ring

    def _room(self, batch_size: Any) -> DeviceArray:
        """Room for the indices of a batch."""
        return arrays.empty(check_count("batch_size", batch_size), np.int64)


#: Arguments that only the CPU's buffers have, and what asks for nothing.
_IDLE = {"derive_next": False, "memmap": None, "num_threads": None}


def refuse_others(others: dict[str, Any]) -> None:
    """Arguments that only the CPU's buffers have.

    Raises:
        NotImplementedError: one is given, and asks for something.
        TypeError: it is none of theirs.
    """
    for name, value in others.items():
        if name not in _IDLE:
            raise TypeError(f"{name}={value!r}: no such argument")
        if name != "num_threads" and value != _IDLE[name]:
            raise NotImplementedError(f"{name}={value!r}: not on the device, but on the CPU")
