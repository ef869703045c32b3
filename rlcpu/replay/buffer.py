"""The base of all buffers, which is composed of a storage, items and a sampler.

The storage keeps the last steps of all environments in a ring of slots. Items are what is drawn:
single transitions, or sequences of steps. The sampler chooses among them. A backend
(`rlcpu.replay.backend`) has the classes and functions of the device.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.machine.threads import check_num_threads
from rlcpu.replay import checkpoint
from rlcpu.replay.backend import find
from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.checks import check_count, check_flag
from rlcpu.replay.fields import Shown, TransitionField, show_bytes
from rlcpu.replay.items import Batch, Items, NStep, Ring
from rlcpu.replay.lock import Locked, complete
from rlcpu.replay.samplers import UniformSampler
from rlcpu.replay.storage import make_stream
from rlcpu.replay.structure import TransitionStructure

Array = npt.NDArray[Any]
Path = str | os.PathLike[str]
Self = TypeVar("Self", bound="Buffer")

_DEFAULTS = ("None", "False", "cpu")  # settings that a repr leaves out
#: Arguments of constructors that are not saved.
_NOT_SAVED = ("example", "memmap", "seed", "num_threads", "device")


@dataclass(eq=False, repr=False, kw_only=True)
class Buffer(Locked, Shown):
    """A ring of transitions of one or many environments, from which batches are drawn.

    Any thread may call any method: calls wait for each other, and let Python run while they copy.
    What a call returns was complete when it was drawn: never half of an old and half of a new item.
    An add that Ctrl-C interrupts is done wholly all the same, or was not begun. A signal's handler
    that calls a buffer in the middle of another call of its thread gets a RuntimeError, and a fork
    waits for calls of other threads. Copies (`copy`, `pickle`) are whole and independent.

    Fields are the arguments of constructors: a class declares those that it adds, `example` among
    them, and those with `init=False` that it does not have.

    Attributes:
        structure: the `rlcpu.replay.structure.TransitionStructure` of one transition.
    """

    num_envs: int | None = field(init=False)
    derive_next: bool = field(init=False, default=False)
    memmap: Path | None = None
    seed: int | None = None
    num_threads: int | None = None
    device: str = "cpu"
    _n_step: NStep | None = field(init=False, default=None)
    #: Token of the last save, and the steps that were added before it.
    _saved: tuple[str, int] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # The example is no attribute afterwards: its arrays are not kept.
        self.structure = TransitionStructure(vars(self).pop("example"))
        self._items = self._make_items()
        self.backend = find(self.device)
        self.derive_next = check_flag("derive_next", self.derive_next)
        self.num_threads = check_num_threads(self.num_threads)
        self._stream = make_stream(self.seed)
        self._envs = self._items.num_envs
        self._ring = Ring(length=self._items.per_env * self._items.period, added=0)
        self._make_lock()
        self._sampler: Any = self._make_sampler()
        self._storage = self._make_storage(self.memmap)  # last: its file stays when this is done

    def _make_items(self) -> Items:
        """Return the items that are drawn, after checks of the arguments that a class adds."""
        raise NotImplementedError

    @classmethod
    def _settings(cls) -> list[str]:
        """Return names of the constructor's arguments that are saved."""
        return [each.name for each in fields(cls) if each.init and each.name not in _NOT_SAVED]

    def _make_sampler(self) -> UniformSampler:
        return UniformSampler(self._items, self.backend)

    def _make_storage(self, memmap: Path | None) -> Any:
        length = self._ring.length
        make = self.backend.storage
        return make(self.structure, self._envs, length, memmap, self.derive_next)

    def __len__(self) -> int:
        """Return the number of transitions held."""
        return self._ring.filled * self._envs

    @property
    def num_added(self) -> int:
        """Return how many steps were added so far, those that were overwritten since too."""
        return self._ring.added

    def total_weight(self) -> float:
        """Return the sum of the weights by which items are drawn, 1 each where there are none."""
        with self.locked():
            return float(self._sampler.total_weight(self._ring))

    @property
    def num_bytes(self) -> int:
        """Return the bytes of the transitions of a full buffer, and of next observations so far."""
        return int(self._storage.num_bytes)

    def _facts(self) -> list[str]:
        count = f"{len(self):,} of {self._ring.length * self._envs:,} transitions"
        names = (*self._settings(), "device")
        redundant = ("capacity", "truncated")  # in the count, and among the fields
        settings = {name: getattr(self, name) for name in names if name not in redundant}
        texts = [f"{name}={x}" for name, x in settings.items() if str(x) not in _DEFAULTS]
        return [count, show_bytes(self.num_bytes), *texts]

    def _fields(self) -> Iterable[TransitionField]:
        return self.structure.fields

    # ------------------------------------------------------------ adding

    def add(self, batch: Any) -> None:
        """Store transitions; the oldest ones make room.

        Args:
            batch: structured like the example. With `num_envs`, each leaf is (num_steps, num_envs,
                *shape), or (num_envs, *shape) for one step; without, (n, *shape), or (*shape) for
                one transition. Leaves may be on a CUDA buffer's device, of the example's dtype.

        Raises:
            TypeError: a container, or a dtype that cannot be cast safely.
            ValueError: a missing or extra field, a wrong shape, a value that does not fit. Nothing
                is stored by a call that raises.
        """
        arrays = self._check(batch)
        with self.locked():  # Ctrl-C on the way: `complete` stores all of it, and raises then
            complete(self._write, arrays, self._ring)

    def _check(self, batch: Any) -> list[Array]:
        """Return the arrays of a batch as (num_steps, num_envs, *field.shape), after checks."""
        has_no_env_axis = self.num_envs is None
        arrays, lead = self._storage.check(batch, max_axes=1 if has_no_env_axis else 2)
        if has_no_env_axis:
            return [array[:, None] if lead else array[None, None] for array in arrays]
        if not lead or lead[-1] != self.num_envs:
            raise ValueError(
                f"batch has leading axes {lead}: expected ({self.num_envs},) for one step, or "
                f"(num_steps, {self.num_envs})"
            )
        return arrays if len(lead) == 2 else [array[None] for array in arrays]

    def _write(self, arrays: list[Array], before: Ring, *weights: Array) -> None:
        """Store checked arrays as the next steps; of more than fit, the last ones.

        Args:
            arrays: one for each field, (num_steps, num_envs, *field.shape).
            before: the ring before the call, which may begin again with the same arguments after it
                was interrupted (`rlcpu.replay.lock.complete`).
            *weights: (num_steps,) of a class that draws by them.
        """
        num_steps = len(arrays[0])
        skipped = max(num_steps - before.length, 0)
        stored = [array[skipped:] for array in arrays] if skipped else arrays
        self._storage.write(stored, (before.added + skipped) % before.length)
        self._ring = after = before._replace(added=before.added + num_steps)
        self._sampler.add(before, after, *weights)

    # ------------------------------------------------------------ sampling

    def can_sample(self, batch_size: int = 1) -> bool:
        """Tell whether `sample` could draw so many; where it could not, it raises ValueError."""
        count = check_count("batch_size", batch_size)
        with self.locked():
            return bool(self._sampler.can_draw(self._ring, count))

    def sample(self, batch_size: int, *, out: Batch | None = None) -> Batch:
        """Draw transitions or sequences; the class says which, and with which probabilities.

        Args:
            batch_size: how many.
            out: a batch that this buffer returned for the same size: overwritten and returned.

        Returns:
            Their copies, leaves (batch_size, *shape), or (sequence_length, batch_size, *shape), and
            their indices.

        Raises:
            TypeError, ValueError: batch_size is no whole number above 0, `out` is something else,
                or there are too few to be drawn.
        """
        return self._sample(batch_size, out)

    def peek(self, batch_size: int, seed: int = 0) -> Batch:
        """Draw items uniformly, whatever their weights, by random numbers of this call alone.

        The buffer stays as it is: what `sample` draws next is what it would have drawn.

        Args:
            batch_size: how many, with replacement.
            seed: of the random numbers.

        Returns:
            See `sample`; there are no weights.

        Raises:
            TypeError, ValueError: a bad argument, or there is nothing to be drawn.
        """
        uniform = UniformSampler(self._items, self.backend)
        return self._sample(batch_size, None, sampler=uniform, stream=make_stream(seed))

    def _sample(
        self,
        batch_size: Any,
        out: Batch | None,
        *options: Any,
        sampler: Any = None,
        stream: Array | None = None,
    ) -> Batch:
        """Draw a batch into new memory, or into `out`; `options` are those of the sampler's `draw`.

        Indices are always new memory: users give those of earlier batches to other methods. The
        buffer's sampler and its stream of random numbers draw, unless there are others.
        """
        sampler = self._sampler if sampler is None else sampler
        stream = self._stream if stream is None else stream
        size = check_count("batch_size", batch_size)
        indices = self.backend.empty(size, np.int64)
        if out is None:
            rows = self._storage.make_batch(size, self._items.steps)
            out = Batch(self.structure.unflatten(rows.leaves), rows, indices, self)
        elif not (isinstance(out, Batch) and out.owner is self and len(out) == size):
            raise ValueError(
                f"out={type(out).__name__}: expected a Batch that this buffer returned for "
                f"batch_size={size}"
            )
        with self.locked():
            sampler.draw(stream, self._ring, indices, out, *options)
            # An item begins at step `number * period` of its environment, whose length is a
            # multiple of that.
            period = self._items.period
            self._gather(indices if period == 1 else indices * period, out)
            sampler.finish_draw()  # where items are taken once, they are gone only now
        out.indices = indices
        return out

    def _gather(self, first_rows: Array, batch: Batch) -> None:
        """Copy the items that begin at rows of the storage, (batch_size,) int64, to a batch."""
        if self._n_step is not None and self._n_step.n > 1:
            self._n_step.gather(self._storage, self._ring, first_rows, batch, self.num_threads)
        else:
            num_steps = self._items.steps or 1  # of each item
            self._storage.gather(first_rows, batch.rows, num_steps, self.num_threads)

    # ------------------------------------------------------------ copies

    def __getstate__(self) -> dict[str, Any]:
        if self._storage.in_file:
            raise TypeError(
                f"this {type(self).__name__} is in a file (memmap), which is not copied: "
                "save() it, and load() it as another one"
            )
        with self.locked():
            rows = self._storage.copy_rows(self._ring.filled)
            return {**self._copy_attributes_without("_storage"), "_rows": rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = state.pop("_rows")
        vars(self).update(state)
        self._make_lock()
        self._storage = self._make_storage(memmap=None)
        self._storage.take_rows(rows)

    # ------------------------------------------------------------ saving

    def save(self, path: Path) -> None:
        """Write everything to a folder, or what has changed since it was last saved there.

        A process killed at any moment leaves the old checkpoint or the new one. Other calls wait
        meanwhile. The folder is made if it is not there; see `rlcpu.replay.checkpoint.save` for
        errors.
        """
        with self.locked():
            last_token, added = self._saved or (None, 0)
            token = checkpoint.save(path, self.describe(), self.sections(added), last_token)
            self._saved = token, self._ring.added

    def forget_folder(self) -> None:
        """Let the next save be a whole one: the folder of the last one is gone, or was a copy."""
        self._saved = None

    def sections(self, added: int, prefix: str = "") -> list[Section]:
        """Return the arrays of a checkpoint; the first `added` steps are in an earlier one."""
        parts = self._storage, self._sampler
        sections = [section for part in parts for section in part.sections(added, self._ring)]
        return [section._replace(name=prefix + section.name) for section in sections]

    def describe(self) -> dict[str, Any]:
        """Return settings, counters and the structure as JSON has them: all but arrays."""
        return {
            "buffer": type(self).__name__,
            "structure": self.structure.describe(),
            "settings": {name: getattr(self, name) for name in self._settings()},
            "added": self._ring.added,
            "stream": [int(word) for word in self._stream],
            "state": self._sampler.state(),
        }

    # ------------------------------------------------------------ loading

    @classmethod
    def load(
        cls: type[Self],
        path: Path,
        *,
        example: Any = None,
        memmap: Path | None = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> Self:
        """Return the buffer in a checkpoint; it goes on bit for bit as the saved one would have.

        The checkpoint may be anybody's: nothing is written, no link followed and no code run, and
        memory is taken for what the files hold.

        `example` is needed only for dataclasses and NamedTuples, as it was given when the buffer
        was made; other arguments are those of `ReplayBuffer`, wherever the saved buffer was.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: it is damaged, of another kind of buffer, or needs the example.
        """
        options = {"memmap": memmap, "num_threads": num_threads, "device": device}
        with checkpoint.reading(path, cls.__name__) as reader:
            buffer = cls.restored(reader.header, reader, example, options)
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
        """Return the buffer of a checkpoint that nobody vouches for.

        `header` is what `describe` returned, `options` are arguments of the constructor that are
        not saved. Where header or sections are nonsense, any exception is raised.
        """
        settings = header["settings"]
        if unknown := settings.keys() - set(cls._settings()):
            raise ValueError(f"settings: {unknown}, expected {', '.join(cls._settings())}")
        structure = TransitionStructure.restore(header["structure"], example)
        capacity = settings.get("capacity") or settings["num_envs"] * settings["length"]
        if capacity > source.num_bytes("rows"):  # each takes a byte at least
            raise ValueError(f"{capacity} transitions in {source.num_bytes('rows')} bytes")
        constructor: Any = cls
        buffer: Self = constructor(example=structure, **settings, **options)
        try:
            buffer._read_state(header, source)
        except BaseException:
            if options.get("memmap") is not None:
                os.unlink(options["memmap"])  # made by this call
            raise
        return buffer

    def _read_state(self, header: dict[str, Any], source: Reader) -> None:
        """Read counters, rows and the sampler's state into this new buffer; see `restored`."""
        self._stream[:] = [check_count("stream", word, 0, 2**64) for word in header["stream"]]
        self._ring = self._ring._replace(added=check_count("added", header["added"], 0, 2**48))
        count, num_bytes = self._ring.filled * self._envs, source.num_stored("rows")
        if count > num_bytes:  # a short file does not become many transitions of zeros
            raise ValueError(f"{count} transitions in {num_bytes} bytes of files")
        self._storage.restore(source, self._ring)
        self._sampler.restore(header["state"], source, self._ring)
