"""Uniform replay: transitions, items."""

from __future__ import annotations

import os
from typing import Any

from rlcpu.replay.batch import Batch
from rlcpu.replay.buffer import Buffer, as_structure, check_envs
from rlcpu.replay.checks import check_count
from rlcpu.replay.lock import complete
from rlcpu.replay.n_step import NStep
from rlcpu.replay.ring import draw_items


class ReplayBuffer(Buffer):
    """Transitions, drawn uniformly with replacement (Lin 1992, Self-improving reactive agents).

    Args:
        capacity: transitions that are kept, the newest ones; divided by `num_envs` and rounded
            down to whole steps of all environments.
        example: one transition: a dict of arrays, numbers or Gymnasium spaces, nested as you like,
            or a dataclass, NamedTuple, tuple or array. It gives dtypes and shapes, and batches are
            structured like it.
        num_envs: environments that are added side by side; None if batches have no axis for it,
            and follow each other in time.
        n_step: steps whose rewards are added up when a transition is drawn, if its episode goes
            on for so long and they are there. `reward` (a float) becomes their discounted sum,
            `next_observation`, `terminated` and `truncated` those of the last of them, and
            `Batch.discounts` gamma to the power of their number.
        gamma: discount factor of these sums, in [0, 1].
        derive_next: store no `next_observation`, but take it from the `observation` of the step
            that follows in the same environment; both need the same fields. Where they differ in
            a byte, as at the end of an episode, it is kept too, in memory even with `memmap`, and
            whatever is added, batches are what they would be otherwise. If observations are most
            of a transition and steps come in the order of time, with `num_envs` for environments
            side by side, that takes about half the memory.
        memmap: a file to be made that holds the transitions, for more than fits into memory. A
            forked process shares it: what is added there, is added here, though not counted.
        seed: of the buffer's own stream of random numbers, 0 to 2**64 - 1; None takes a new one.
        num_threads: most threads that a call may use; None for all.
        device: "cuda" for a `rlcpu.cuda.replay.ReplayBuffer`.

    Raises:
        TypeError, ValueError: an argument is of the wrong kind, or out of range.
        FileExistsError: there is something at `memmap` already.
        MemoryError: there is no room.

    Example:
        >>> buffer = ReplayBuffer(1000, {"observation": np.zeros(4, np.float32), "reward": 0.0})
        >>> buffer.add({"observation": np.ones((3, 4), np.float32), "reward": np.arange(3.0)})
        >>> buffer.sample(2)["observation"].shape
        (2, 4)
    """

    _settings: tuple[str, ...] = ("capacity", "num_envs", "n_step", "gamma", "derive_next")

    def __init__(
        self,
        capacity: int,
        example: Any,
        *,
        num_envs: int | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        derive_next: bool = False,
        memmap: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        num_envs = check_envs(num_envs)
        self.capacity = check_count("capacity", capacity, num_envs or 1)
        length, structure = self.capacity // (num_envs or 1), as_structure(example)
        self._n_step = NStep(structure, n_step, gamma)
        self.n_step, self.gamma = self._n_step.n, self._n_step.gamma
        super().__init__(structure, num_envs, length, memmap, seed, num_threads, derive_next)

    def add(self, batch: Any) -> None:
        """Store transitions; the oldest ones make room.

        Args:
            batch: structured like the example. Each leaf is (n, *shape), or (*shape) for one
                transition; with `num_envs`, (num_steps, num_envs, *shape), or (num_envs, *shape)
                for one step. Copied once, straight to its place.

        Raises:
            TypeError: a container, or a dtype that cannot be cast safely.
            ValueError: a missing or extra field, a wrong shape, a value that does not fit. Nothing
                is stored by a call that raises.
        """
        arrays = self._check(batch)
        with self.locked():
            complete(self._write, arrays, self._ring)

    def can_sample(self, batch_size: int = 1) -> bool:
        """Whether there is anything to be drawn."""
        check_count("batch_size", batch_size)
        return self._ring.added > 0

    def _refuse_empty(self) -> None:
        if not self._ring.added:
            raise ValueError("sample: the buffer is empty")

    def sample(self, batch_size: int, *, out: Batch | None = None) -> Batch:
        """Draw transitions, uniformly with replacement.

        Args:
            batch_size: how many.
            out: a batch that this buffer returned for the same size: overwritten and returned.

        Returns:
            The transitions, copied, and their indices.

        Raises:
            TypeError, ValueError: batch_size is no whole number above 0, `out` is something else,
                or the buffer is empty.
        """
        batch, indices = self._batch(batch_size, out, None)
        with self.locked():
            self._refuse_empty()
            ring = self._ring
            draw_items(self._stream, self._envs, 0, ring.filled, ring.length, indices)
            self._n_step.gather(self._storage, ring, indices, batch, self._num_threads)
        batch.indices = indices
        return batch


class ItemBuffer(ReplayBuffer):
    """Items of any kind, each added by itself, drawn uniformly with replacement.

    Arguments are those of `ReplayBuffer`, without `num_envs`, `n_step`, `gamma`, `derive_next`.
    """

    _settings: tuple[str, ...] = ("capacity",)

    def __init__(
        self,
        capacity: int,
        example: Any,
        *,
        memmap: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        num_threads: int | None = None,
    ) -> None:
        super().__init__(capacity, example, memmap=memmap, seed=seed, num_threads=num_threads)

    def add(self, batch: Any) -> None:
        """Store one item, structured and shaped like the example; see `ReplayBuffer.add`."""
        arrays, _ = self.structure.check(batch, 0)
        with self.locked():
            complete(self._write, [array[None, None] for array in arrays], self._ring)
