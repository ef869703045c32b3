"""What all buffers have in common: the ring, the lock, the stream of random numbers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.threads import check_num_threads
from rlcpu.replay.batch import Batch
from rlcpu.replay.checks import check_count, check_flag
from rlcpu.replay.derive import DerivingStorage
from rlcpu.replay.device import Placed
from rlcpu.replay.ring import Ring
from rlcpu.replay.saved import Saved
from rlcpu.replay.storage import Storage
from rlcpu.replay.stream import make_stream
from rlcpu.replay.structure import Structure

Array = npt.NDArray[Any]


class Buffer(Placed, Saved):
    """A ring of transitions of one or many environments, from which batches are drawn.

    Any thread may call any method: calls wait for each other, and let Python run while they copy.
    What a call returns was complete when it was drawn: never half of an old and half of a new item.
    An add that Ctrl-C interrupts is done wholly all the same, or was not begun. A signal's handler
    that calls a buffer in the middle of another call of its thread gets a RuntimeError, and a fork
    waits for calls of other threads. Copies (`copy`, `pickle`) are whole and independent.

    Args:
        structure: of one transition.
        num_envs: environments that are added side by side; None for one whose batches have no
            axis for it.
        length: steps that are kept of each.
        memmap: a file to be made that holds the transitions, for more than fits into memory.
        seed: of the buffer's own stream of random numbers; None takes a new one.
        num_threads: most threads that a call may use; None for all.
        derive_next: take next observations from the observations that follow.
    """

    def __init__(
        self,
        structure: Structure,
        num_envs: int | None,
        length: int,
        memmap: str | os.PathLike[str] | None,
        seed: int | None,
        num_threads: int | None,
        derive_next: bool = False,
    ) -> None:
        self.derive_next = check_flag("derive_next", derive_next)
        self._stream = make_stream(seed)
        self._num_threads = check_num_threads(num_threads)
        self.structure, self.num_envs = structure, num_envs
        self._envs = 1 if num_envs is None else num_envs
        self._ring = Ring(length, 0)
        self._make_lock()
        self._prepare()
        self._storage = self._make_storage(memmap)  # last: its file stays when this is done

    def _make_storage(self, memmap: str | os.PathLike[str] | None) -> Storage:
        kind = DerivingStorage if self.derive_next else Storage
        return kind(self.structure, self._envs, self._ring.length, memmap)

    def _prepare(self) -> None:
        """Make what a kind of buffer keeps beside its transitions."""

    # ------------------------------------------------------------ copies, pickled ones too

    def __getstate__(self) -> dict[str, Any]:
        if self._storage.in_file:
            raise TypeError(
                f"this {type(self).__name__} is in a file (memmap), which is not copied: "
                "save() it, and load() it as another one"
            )
        with self.locked():
            rows = self._storage.copy_rows(self._ring.filled)
            return {**self._copied("_storage"), "_rows": rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = state.pop("_rows")
        vars(self).update(state)
        self._make_lock()
        self._storage = self._make_storage(None)
        self._storage.take_rows(rows)

    # ------------------------------------------------------------ adding

    @property
    def num_bytes(self) -> int:
        """Bytes of the transitions, if the buffer is full.

        With `derive_next`, those of the next observations that are kept too, so far.
        """
        return self._storage.num_bytes

    def _check(self, batch: Any) -> list[Array]:
        """The arrays of a batch as (num_steps, num_envs, *field.shape)."""
        plain = self.num_envs is None
        arrays, lead = self.structure.check(batch, 1 if plain else 2)
        if plain:
            return [array[:, None] if lead else array[None, None] for array in arrays]
        if not lead or lead[-1] != self.num_envs:
            raise ValueError(
                f"batch has leading axes {lead}: expected ({self.num_envs},) for one step, or "
                f"(num_steps, {self.num_envs})"
            )
        return arrays if len(lead) == 2 else [array[None] for array in arrays]

    def _write(self, arrays: list[Array], before: Ring, *more: Array) -> None:
        """Store checked arrays behind what the ring held `before`; for `complete`."""
        self._storage.write(arrays, before.slot)
        self._ring = after = Ring(before.length, before.added + len(arrays[0]))
        self._added(before, after, *more)

    def _added(self, before: Ring, after: Ring, *more: Array) -> None:
        """Bring what is kept beside the steps up to date; the same when it is called again."""

    # ------------------------------------------------------------ sampling

    def _batch(
        self, batch_size: Any, out: Batch | None, steps: int | None
    ) -> tuple[Batch, npt.NDArray[np.int64]]:
        """Room for a batch, and for its indices: new memory, which nobody else writes to."""
        size = check_count("batch_size", batch_size)
        if out is None:
            rows = self._storage.make_batch(size, steps)
            out = Batch(self.structure.unflatten(rows.leaves), rows, np.empty(0, np.int64), self)
        elif not (isinstance(out, Batch) and out.owner is self and out.rows.size == size):
            raise ValueError(
                f"out={type(out).__name__}: expected a Batch that this buffer returned for "
                f"batch_size={size}"
            )
        return out, np.empty(size, np.int64)


def as_structure(example: Any) -> Structure:
    """The structure of an example, or the example itself if it is one."""
    return example if isinstance(example, Structure) else Structure(example)


def check_envs(num_envs: int | None) -> int | None:
    """None, or a number of environments."""
    return None if num_envs is None else check_count("num_envs", num_envs)
