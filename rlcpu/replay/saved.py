"""What buffers write to checkpoints, and how they are made from them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rlcpu.replay import checkpoint
from rlcpu.replay.batch import Shown, show_bytes
from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.checks import check_count
from rlcpu.replay.device import find
from rlcpu.replay.fields import Field
from rlcpu.replay.lock import Locked
from rlcpu.replay.ring import Ring
from rlcpu.replay.structure import Structure

Self = TypeVar("Self", bound="Saved")

_UNSAID = ("None", "False")  # settings that are not worth a word


class Saved(Locked, Shown):
    """Saving and loading of a buffer, wherever its memory is: the files are the same.

    Attributes:
        structure: of one transition.
    """

    #: Arguments of the constructor that are kept in files, beside those of every buffer.
    _settings: tuple[str, ...] = ()

    structure: Structure
    _ring: Ring
    _envs: int
    _storage: Any
    _stream: npt.NDArray[np.uint64]
    #: Token of the last save, and the steps that were added before it.
    _saved: tuple[str, int] | None = None

    def __len__(self) -> int:
        """Number of transitions held."""
        return self._ring.filled * self._envs

    def _facts(self) -> list[str]:
        held = f"{len(self):,} of {self._ring.length * self._envs:,} transitions"
        names = (*self._settings, "device")
        settings = {name: getattr(self, name, None) for name in names if name != "capacity"}
        told = [f"{name}={value}" for name, value in settings.items() if str(value) not in _UNSAID]
        return [held, show_bytes(self._storage.num_bytes), *told]

    def _fields(self) -> Iterable[Field]:
        return self.structure.fields

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a folder, or what has changed since it was last saved there.

        A process killed at any moment leaves the old checkpoint or the new one. Other calls wait
        meanwhile.

        Args:
            path: a folder, made if it is not there; what contains it has to be.

        Raises:
            FileNotFoundError, ValueError, OSError: see `rlcpu.replay.checkpoint.save`.
        """
        with self.locked():
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

    def _restore(self, state: dict[str, Any], reader: Reader) -> None:
        """Take over what `_state` and `_arrays` saved."""

    @classmethod
    def load(
        cls: type[Self],
        path: str | os.PathLike[str],
        *,
        example: Any = None,
        memmap: str | os.PathLike[str] | None = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> Self:
        """The buffer in a checkpoint; it goes on bit for bit as the saved one would have.

        The checkpoint may be anybody's: nothing is written, no link followed and no code run, and
        memory is taken for what the files hold.

        Args:
            path: the folder given to `save`.
            example: as given when the buffer was made; needed only for dataclasses and
                NamedTuples.
            memmap: a file to be made that holds the transitions.
            num_threads: most threads that a call may use; None for all.
            device: "cuda" for a buffer in the memory of a CUDA device, wherever the saved one was.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: it is damaged, of another kind of buffer, or needs the example.
            CudaUnavailableError, CudaMemoryError, NotImplementedError: see
                `rlcpu.cuda.replay.ReplayBuffer`.
        """
        cls = find(cls, device)
        with Reader(path) as reader:
            found = reader.header.get("buffer")
            if found != cls.__name__:
                raise ValueError(f"{os.fspath(path)}: holds a {found}, expected a {cls.__name__}")
            options = {"memmap": memmap, "num_threads": num_threads}
            try:
                buffer = cls.restored(reader.header, reader, example, options)
            except (KeyError, TypeError, AttributeError, OverflowError) as error:
                raise ValueError(f"{os.fspath(path)}: does not fit: {error!r}") from error
            buffer._saved = reader.token, buffer._ring.added
        return buffer

    @classmethod
    def restored(
        cls: type[Self],
        header: dict[str, Any],
        source: Reader,
        example: Any,
        options: dict[str, Any],
    ) -> Self:
        """The buffer of a `describe()` and its sections; any error where they are nonsense."""
        settings = header["settings"]
        if unknown := settings.keys() - set(cls._settings):
            raise ValueError(f"settings: {unknown}, expected {', '.join(cls._settings)}")
        structure = Structure.restore(header["structure"], example)
        claimed = settings.get("capacity") or settings["num_envs"] * settings["length"]
        if claimed > source.num_bytes("rows"):  # each takes a byte at least
            raise ValueError(f"{claimed} transitions in {source.num_bytes('rows')} bytes")
        buffer = cls._remake(structure, {**settings, **options})
        try:
            buffer._take_over(header, source)
        except BaseException:
            if options.get("memmap") is not None:
                os.unlink(options["memmap"])  # made by this call
            raise
        return buffer

    def _take_over(self, header: dict[str, Any], source: Reader) -> None:
        self._stream[:] = [check_count("stream", word, 0, 2**64) for word in header["stream"]]
        self._ring = Ring(self._ring.length, check_count("added", header["added"], 0, 2**48))
        held, num_bytes = self._ring.filled * self._envs, source.num_held("rows")
        if held > num_bytes:  # a short file does not become many transitions of zeros
            raise ValueError(f"{held} transitions in {num_bytes} bytes of files")
        self._storage.restore(source, header["storage"], self._ring)
        self._restore(header["state"], source)

    @classmethod
    def _remake(cls: type[Self], structure: Structure, settings: dict[str, Any]) -> Self:
        make: Any = cls
        return make(example=structure, **settings)
