"""Batches that come from several buffers in given proportions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.replay import checkpoint
from rlcpu.replay.buffer import Buffer
from rlcpu.replay.buffers import TrajectoryQueue
from rlcpu.replay.checkpoint import Section
from rlcpu.replay.checks import check_count, check_number, take_numbers
from rlcpu.replay.items import Batch

Array = npt.NDArray[Any]


class MixedBatch(Batch):
    """A batch from several buffers, one after the other.

    Attributes:
        sources: (batch_size,) int64, position of the buffer that each came from.
        sizes: how many came from each buffer.
    """

    sources: npt.NDArray[np.int64]
    sizes: list[int]


class Mixer:
    """Draws each batch from several buffers in given proportions.

    Args:
        buffers: of the same fields; all of transitions, or all of sequences of one length; all on
            the CPU, or all on a CUDA device.
        proportions: one number above 0 per buffer; only their ratios count. A batch is divided by
            the method of largest remainders, so that all batches of a size are divided alike.

    Raises:
        TypeError, ValueError: the buffers do not fit together, or an argument is of another kind.

    Example:
        >>> demonstrations, collected = (rlcpu.replay.ReplayBuffer(100, {"x": 0}) for _ in range(2))
        >>> mixer = Mixer([demonstrations, collected], [1, 3])
        >>> mixer.add({"x": np.arange(5)}, to=0)
        >>> mixer.add({"x": np.arange(5)}, to=1)
        >>> mixer.sample(8).sources
        array([0, 0, 1, 1, 1, 1, 1, 1])
    """

    def __init__(self, buffers: Sequence[Any], proportions: Sequence[float]) -> None:
        try:
            self.buffers, shares = list[Any](buffers), list(proportions)
        except TypeError as error:
            kinds = f"{type(buffers).__name__} and {type(proportions).__name__}"
            raise TypeError(f"buffers and proportions: expected two lists, got {kinds}") from error
        if not self.buffers or len(self.buffers) != len(shares):
            raise ValueError(
                f"{len(self.buffers)} buffers and {len(shares)} proportions: expected as many "
                "of both, and at least one"
            )
        if len(set(map(id, self.buffers))) < len(self.buffers):
            raise ValueError("buffers: one is there twice, expected different ones")
        for buffer in self.buffers:
            if not isinstance(buffer, Buffer) or isinstance(buffer, TrajectoryQueue):
                raise TypeError(f"buffers: {buffer!r}, expected buffers, and no TrajectoryQueue")
            self._check_fields(buffer)
        if len({buffer.device for buffer in self.buffers}) > 1:
            raise ValueError("buffers: some are on the CPU, some on a CUDA device, expected one")
        #: Where the buffers are: "cpu" or "cuda".
        self.device: str = self.buffers[0].device
        self.proportions = [check_number("proportions", p, 1e-9, 1e9) for p in shares]
        self._saved: tuple[str, list[int]] | None = None

    def _check_fields(self, buffer: Any) -> None:
        """Raise ValueError unless a buffer has the fields and sequences of the first one."""
        first = self.buffers[0]
        steps = [getattr(b, "sequence_length", None) for b in (first, buffer)]
        if buffer.structure.fields != first.structure.fields or steps[0] != steps[1]:
            raise ValueError(
                f"buffers: {buffer.structure} of {steps[1] or 'single'} steps does not go with "
                f"{first.structure} of {steps[0] or 'single'} steps"
            )

    def __repr__(self) -> str:
        parts = zip(self.proportions, self.buffers, strict=True)
        return f"Mixer({', '.join(f'{share:g} x {buffer}' for share, buffer in parts)})"

    def __len__(self) -> int:
        """Return the number of transitions in all buffers."""
        return sum(map(len, self.buffers))

    def _sizes(self, batch_size: int) -> list[int]:
        """Return how many items of a batch come from each buffer, by largest remainders."""
        size = check_count("batch_size", batch_size)
        shares = np.array(self.proportions) / sum(self.proportions) * size
        sizes = np.floor(shares).astype(int)
        order = np.argsort(sizes - shares, kind="stable")  # the largest remainder first
        sizes[order[: size - sizes.sum()]] += 1
        return [int(n) for n in sizes]

    def add(self, batch: Any, to: int, **options: Any) -> None:
        """Add to one of the buffers, or IndexError; its `add` also gets the other arguments."""
        # Numbers below 0 pass this check, to be an IndexError like those that are too large.
        if not 0 <= check_count("to", to, -(2**48)) < len(self.buffers):
            raise IndexError(f"to={to}: expected 0 to {len(self.buffers) - 1}")
        self.buffers[to].add(batch, **options)

    def can_sample(self, batch_size: int = 1) -> bool:
        """Tell whether `sample` could draw so many: each buffer the part that it draws."""
        pairs = zip(self.buffers, self._sizes(batch_size), strict=True)
        return all(buffer.can_sample(size) for buffer, size in pairs if size)

    def sample(self, batch_size: int) -> MixedBatch:
        """Draw from each buffer as it draws, `batch_size` in all, one batch after the other.

        Where a buffer has no importance weights, 1 stands for them.

        Raises:
            TypeError, ValueError: batch_size is no whole number above 0, or a buffer cannot be
                sampled.
        """
        sizes = self._sizes(batch_size)
        pairs = zip(self.buffers, sizes, strict=True)
        parts = [buffer.sample(size) for buffer, size in pairs if size]
        structure, backend = self.buffers[0].structure, self.buffers[0].backend
        columns = list(zip(*(structure.collect(part.data) for part in parts), strict=True))
        axis = columns[0][0].ndim - len(structure.fields[0].shape) - 1  # of items: 0; 1 after steps
        leaves = [backend.concatenate(column, axis) for column in columns]
        indices = backend.concatenate([part.indices for part in parts], 0)
        batch = MixedBatch(structure.unflatten(leaves), rows=None, indices=indices, owner=self)
        batch.sources = backend.asarray(np.repeat(np.arange(len(sizes)), sizes))
        batch.sizes = sizes
        batch.weights = _join_or_ones(backend, parts, [part.weights for part in parts])
        batch.discounts = _join_or_ones(backend, parts, [part.discounts for part in parts])
        return batch

    def update_priorities(self, batch: Any, priorities: Any) -> None:
        """Set priorities of items drawn from prioritised buffers; others are passed over.

        `batch` is as `sample` returned it; see `PrioritizedReplayBuffer.update_priorities` for
        priorities and errors. All are checked before any is changed; those on a CUDA device are
        checked there, buffer by buffer.
        """
        if getattr(batch, "owner", None) is not self:
            raise TypeError(f"batch={type(batch).__name__}: expected what this mixer's sample made")
        numbers = take_numbers(self.buffers[0].backend, "priorities", priorities, len(batch))
        updates, end = [], 0
        for buffer, size in zip(self.buffers, batch.sizes, strict=True):
            begin, end = end, end + size
            if hasattr(buffer, "update_priorities"):
                indices, new_priorities = batch.indices[begin:end], numbers[begin:end]
                buffer.check_priorities(indices, new_priorities)
                updates.append((buffer, indices, new_priorities))
        for buffer, indices, new_priorities in updates:
            buffer.update_priorities(indices, new_priorities)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all buffers to one checkpoint, as of one moment; see `ReplayBuffer.save`."""
        with contextlib.ExitStack() as locks:
            for buffer in sorted(self.buffers, key=lambda buffer: buffer.order):
                locks.enter_context(buffer.locked())
            last_token, added = self._saved or (None, [0] * len(self.buffers))
            sections: list[Section] = []
            for number, buffer in enumerate(self.buffers):
                sections += buffer.sections(added[number], f"part{number}_")
            parts = [buffer.describe() for buffer in self.buffers]
            header = {"buffer": "Mixer", "proportions": self.proportions, "parts": parts}
            token = checkpoint.save(path, header, sections, last_token)
            self._saved = token, [part["added"] for part in parts]

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        example: Any = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> Mixer:
        """Return the mixer in a checkpoint, and its buffers.

        Arguments are those of `ReplayBuffer.load`; `example` is that of all buffers. The next
        `save` to this path writes what has changed since, see `save`.
        """
        with checkpoint.reading(path, "Mixer") as reader:
            options, kinds = {"num_threads": num_threads, "device": device}, _kinds(Buffer)
            parts = reader.header["parts"]
            buffers = [
                kinds[part["buffer"]].restored(part, reader.within(f"part{n}_"), example, options)
                for n, part in enumerate(parts)
            ]
            mixer = cls(buffers, reader.header["proportions"])
            mixer._saved = reader.token, [part["added"] for part in parts]
        return mixer


def _kinds(base: type[Buffer]) -> dict[str, type[Buffer]]:
    """Return all classes of buffers, the user's too, by name; of two of one name, the newer."""
    kinds: dict[str, type[Buffer]] = {}
    for kind in base.__subclasses__():
        kinds |= {kind.__name__: kind, **_kinds(kind)}
    return kinds


def _join_or_ones(backend: Any, parts: list[Batch], columns: list[Array | None]) -> Any:
    """Return a column of all parts, joined, with ones for a part that has none.

    None if no part has it.
    """
    if all(column is None for column in columns):
        return None
    pairs = zip(parts, columns, strict=True)
    arrays = [
        backend.asarray(np.ones(len(part), np.float32)) if column is None else column
        for part, column in pairs
    ]
    return backend.concatenate(arrays, 0)
