"""What all buffers have in common: the ring, the lock, the stream of random numbers, files."""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.threads import check_num_threads
from rlcpu.replay import checkpoint
from rlcpu.replay.batch import Batch
from rlcpu.replay.checkpoint import Reader
from rlcpu.replay.checks import check_count
from rlcpu.replay.derive import DerivingStorage, check_derive
from rlcpu.replay.ring import Ring
from rlcpu.replay.sections import Section
from rlcpu.replay.storage import Source as Source
from rlcpu.replay.storage import Storage
from rlcpu.replay.stream import make_stream
from rlcpu.replay.structure import Structure

Array = npt.NDArray[Any]
Self = TypeVar("Self", bound="Buffer")


class Buffer:
    """A ring of transitions of one or many environments, from which batches are drawn.

    Any thread may call any method: calls wait for each other, and let Python run while they copy.
    What a call returns was complete when it was drawn: never half of an old and half of a new item.

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

    #: Arguments of the constructor that are kept in files, beside those of every buffer.
    _settings: tuple[str, ...] = ()

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
        self.derive_next = check_derive(derive_next)
        self._stream = make_stream(seed)
        self._num_threads = check_num_threads(num_threads)
        self.structure, self.num_envs = structure, num_envs
        self._envs = 1 if num_envs is None else num_envs
        self._ring = Ring(length, 0)
        self._lock = threading.Lock()
        self._saved: tuple[str, int] | None = None
        storage = DerivingStorage if self.derive_next else Storage
        self._storage = storage(structure, self._envs, length, memmap)

    def locked(self) -> threading.Lock:
        """The lock that every call holds, a context manager."""
        return self._lock

    # ------------------------------------------------------------ adding

    def __len__(self) -> int:
        """Number of transitions held."""
        return self._ring.filled * self._envs

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

    def _write(self, arrays: list[Array]) -> tuple[Ring, Ring]:
        """Store checked arrays, with the lock held; returns the ring before and after."""
        before = self._ring
        self._storage.write(arrays, before.slot)
        self._ring = Ring(before.length, before.added + len(arrays[0]))
        return before, self._ring

    # ------------------------------------------------------------ sampling

    def _batch(self, batch_size: Any, out: Batch | None, steps: int | None) -> Batch:
        """Room for a batch."""
        size = check_count("batch_size", batch_size)
        if out is None:
            rows = self._storage.make_batch(size, steps)
            indices = np.empty(size, np.int64)
            return Batch(self.structure.unflatten(rows.leaves), rows, indices, self)
        known = isinstance(out, Batch) and out.owner is self and out.rows.size == size
        if not known or out.indices.shape != (size,) or out.indices.dtype != np.int64:
            raise ValueError(
                f"out={type(out).__name__}: expected a Batch that this buffer returned for "
                f"batch_size={size}"
            )
        return out

    # ------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a folder, or what has changed since it was last saved there.

        A process killed at any moment leaves the old checkpoint or the new one. Other calls wait
        meanwhile.

        Args:
            path: a folder, made if it is not there; what contains it has to be.

        Raises:
            FileNotFoundError, ValueError, OSError: see `rlcpu.replay.checkpoint.save`.
        """
        with self._lock:
            since, added = self._saved or (None, 0)
            sections = self.sections(added)
            token = checkpoint.save(path, self.describe(), sections, since)
            self._saved = token, self._ring.added

    def sections(self, added: int, prefix: str = "") -> list[Section]:
        """What a checkpoint holds beside `describe()`; `added` steps were saved before."""
        parts = (*self._storage.sections(added, self._ring.added), *self._arrays())
        return [part._replace(name=prefix + part.name) for part in parts]

    def _arrays(self) -> list[Section]:
        """What is to be saved beside the transitions."""
        return []

    def describe(self) -> dict[str, Any]:
        """All that is no array, as JSON has it."""
        settings = {name: getattr(self, name) for name in self._settings}
        return {
            "buffer": type(self).__name__,
            "structure": self.structure.describe(),
            "settings": settings,
            "added": self._ring.added,
            "stream": [int(word) for word in self._stream],
            "state": self._state(),
            "storage": self._storage.describe(),
        }

    def _state(self) -> dict[str, Any]:
        """Numbers to be saved, beside those of every buffer."""
        return {}

    def _restore(self, state: dict[str, Any], reader: Source) -> None:
        """Take over what `_state` and `_arrays` saved."""

    @classmethod
    def load(
        cls: type[Self],
        path: str | os.PathLike[str],
        *,
        example: Any = None,
        memmap: str | os.PathLike[str] | None = None,
        num_threads: int | None = None,
    ) -> Self:
        """The buffer in a checkpoint; it goes on bit for bit as the saved one would have.

        Args:
            path: the folder given to `save`.
            example: as given when the buffer was made; needed only for dataclasses and
                NamedTuples.
            memmap: a file to be made that holds the transitions.
            num_threads: most threads that a call may use; None for all.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: it is damaged, of another kind of buffer, or needs the example.
        """
        with Reader(path) as reader:
            found = reader.header.get("buffer")
            if found != cls.__name__:
                raise ValueError(f"{os.fspath(path)}: holds a {found}, expected a {cls.__name__}")
            options = {"memmap": memmap, "num_threads": num_threads}
            try:
                buffer = cls.restored(reader.header, reader, example, options)
            except (KeyError, TypeError, OverflowError) as error:
                raise ValueError(f"{os.fspath(path)}: does not fit: {error!r}") from error
            buffer._saved = reader.token, buffer._ring.added
        return buffer

    @classmethod
    def restored(
        cls: type[Self],
        header: dict[str, Any],
        source: Source,
        example: Any,
        options: dict[str, Any],
    ) -> Self:
        """The buffer of a `describe()` and its sections; any error where they are nonsense."""
        structure = Structure.restore(header["structure"], example)
        buffer = cls._remake(structure, {**header["settings"], **options})
        try:
            buffer._take_over(header, source)
        except BaseException:
            if options.get("memmap") is not None:
                os.unlink(options["memmap"])  # made by this call
            raise
        return buffer

    def _take_over(self, header: dict[str, Any], source: Source) -> None:
        added = check_count("added", header["added"], 0)
        self._stream[:] = np.array([int(word) for word in header["stream"]], np.uint64)
        self._ring = Ring(self._ring.length, added)
        self._storage.restore(source, header.get("storage", {}), self._ring)
        self._restore(header["state"], source)

    @classmethod
    def _remake(cls: type[Self], structure: Structure, settings: dict[str, Any]) -> Self:
        make: Any = cls
        return make(example=structure, **settings)


def as_structure(example: Any) -> Structure:
    """The structure of an example, or the example itself if it is one."""
    return example if isinstance(example, Structure) else Structure(example)


def check_envs(num_envs: int | None) -> int | None:
    """None, or a number of environments."""
    return None if num_envs is None else check_count("num_envs", num_envs)
