"""What buffers and trees ask of a CUDA device: memory of transitions, checks, draws."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlcpu.backends import cpu_only, device_of
from rlcpu.cuda import device
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import asarray, cuda, empty, launch, to_host, xp
from rlcpu.cuda.trees import DeviceTree
from rlcpu.kernels.machine.random import u64, uniform53
from rlcpu.replay import fields, storage
from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.fields import label
from rlcpu.replay.items import ReturnSettings, Ring, pick_item, sum_ahead
from rlcpu.replay.storage import Rows
from rlcpu.replay.structure import TransitionStructure

# ---------------------------------------------------------------- kernels


@kernel(exact=True)
def draw_items_kernel(key, counter, num_envs, first, count, length, out):
    """Draw items, a thread for each; see `rlcpu.replay.items.draw_items`."""
    k = cuda.grid(1)
    if k < out.size:
        out[k] = pick_item(uniform53(key, u64(counter + u64(k))), num_envs, first, count, length)


@kernel(exact=True)
def follow_kernel(rows, length, out):
    """Write rows, (n,), and those after them, round their rings of `length`, to `out`, (S * n,)."""
    k = cuda.grid(1)
    if k < out.size:
        step, row = k // rows.size, rows[k % rows.size]
        begin = row // length * length  # the first row of its environment
        out[k] = begin + (row - begin + step) % length


@kernel(exact=True)
def look_ahead_kernel(columns, rows, settings, sums, discounts, last):
    """Sum rewards ahead; columns are of reward, terminated and truncated."""
    k = cuda.grid(1)
    if k < rows.size:
        rewards, terminated, truncated = columns
        total = sum_ahead(rewards, terminated, truncated, rows[k], settings)
        sums[k], discounts[k], last[k] = total


# ---------------------------------------------------------------- memory of transitions


class DeviceStorage(storage.Storage):
    """Rows of transitions on the device, one array per field.

    Attributes:
        fields: one array per field, (num_envs, length, *field.shape), on the device.

    Raises:
        CudaMemoryError: there is not enough memory.
        TypeError: a field is of numbers that the device does not know.
    """

    in_file = False

    def __init__(self, structure: TransitionStructure, num_envs: int, length: int) -> None:
        self.structure, self.num_envs, self.length = structure, num_envs, length
        for field in structure.fields:
            if field.dtype.kind not in "biuf" or field.dtype.itemsize > 8:
                raise TypeError(
                    f"{label(field.name, 'example')} has dtype {field.dtype}: expected bool, "
                    "integers or real numbers of at most 64 bits on the device"
                )
        lead, self.stored = (num_envs, length), list(range(len(structure.fields)))
        self.fields = [device.zeros((*lead, *f.shape), f.dtype) for f in structure.fields]

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes of the rows."""
        return sum(field.nbytes for field in self.fields)

    def check(self, batch: Any, max_axes: int) -> tuple[list[Any], tuple[int, ...]]:
        """Return the arrays of a batch on the device, and the shape of the leading axes.

        Arrays that are on the device already are checked by stand-ins of their shape: zeros of the
        host that take no memory.

        Raises:
            TypeError, ValueError: see `TransitionStructure.check`; a leaf on the device has another
                dtype than the field.
        """
        leaves, stand_ins = list(self.structure.collect(batch)), []
        for number, (leaf, field) in enumerate(zip(leaves, self.structure.fields, strict=True)):
            if device_of(leaf) == "cpu":
                stand_ins.append(leaf)
                continue
            leaves[number] = array = asarray(leaf)
            if array.dtype != field.dtype:
                description = f"{label(field.name)} has dtype {array.dtype}"
                raise TypeError(f"{description}: expected {field.dtype}, as it is on the device")
            stand_ins.append(np.broadcast_to(np.zeros((), field.dtype), array.shape))
        checked, lead = self.structure.check(self.structure.unflatten(stand_ins), max_axes)
        pairs = zip(leaves, checked, strict=True)
        arrays = [leaf if device_of(leaf) == "cuda" else asarray(host) for leaf, host in pairs]
        return arrays, lead

    def write(self, arrays: Sequence[Any], slot: int) -> None:
        """Copy (num_steps, num_envs, *field.shape) arrays to slots, going round."""
        until_end = min(len(arrays[0]), self.length - slot)
        for field, array in zip(self.fields, arrays, strict=True):
            by_env = array.swapaxes(0, 1)
            field[:, slot : slot + until_end] = by_env[:, :until_end]
            if by_env.shape[1] > until_end:
                field[:, : by_env.shape[1] - until_end] = by_env[:, until_end:]

    def make_batch(self, batch_size: int, steps: int | None) -> Rows:
        """Return new arrays for a batch: (batch_size, ...), or (steps, batch_size, ...)."""
        lead = (batch_size,) if steps is None else (steps, batch_size)
        leaves = [empty((*lead, *field.shape), field.dtype) for field in self.structure.fields]
        return Rows(block=None, table=None, leaves=leaves)

    def gather(
        self,
        rows: Any,
        batch: Rows,
        steps: int,
        num_threads: int | None,
        fields: list[int] | None = None,
    ) -> None:
        """Copy rows, and the `steps - 1` after each of them, to a batch: a launch for each field.

        Rows that follow are one more.
        """
        following = rows
        if steps > 1:
            following = empty(steps * rows.size, np.int64)
            launch(follow_kernel, following.size, rows, self.length, following)
        for number in range(len(self.fields)) if fields is None else fields:
            leaf, shape = batch.leaves[number], self.structure.fields[number].shape
            column = self.fields[number].reshape(-1, *shape)
            xp.take(column, following, axis=0, out=leaf.reshape(following.size, *shape))

    def look_ahead(
        self, fields: list[int], rows: Any, settings: ReturnSettings
    ) -> tuple[Any, Any, Any]:
        """Return sums of rewards ahead of rows, discounts, and last rows; see `items.look_ahead`.

        `fields` are the numbers of reward, terminated and truncated.
        """
        rewards, *flags = (self.fields[number].reshape(-1) for number in fields)
        columns = (rewards, *(flag.view(np.uint8) for flag in flags))
        dtypes = np.float64, np.float32, np.int64
        sums, discounts, last = (empty(rows.size, dtype) for dtype in dtypes)
        out = sums, discounts, last
        launch(look_ahead_kernel, rows.size, columns, rows, settings, *out)
        return out

    # ------------------------------------------------------------ files

    def _on_host(self) -> storage.Storage:
        """Return an empty storage of the CPU for the same rows."""
        return storage.Storage(self.structure, self.num_envs, self.length)

    def sections(self, added: int, ring: Ring) -> list[Section]:
        """Return the arrays of a checkpoint, see `Storage.sections`; all are copied to the host."""
        host = self._on_host()
        for column, field in zip(host.fields, self.fields, strict=True):
            column[...] = to_host(field)
        return host.sections(added, ring)

    def restore(self, source: Reader, ring: Ring) -> None:
        """Read the rows of a checkpoint."""
        host = self._on_host()
        host.restore(source, ring)
        for field, column in zip(self.fields, host.fields, strict=True):
            field[...] = asarray(column)


# ---------------------------------------------------------------- the backend


class Backend:
    """The device's answers; see `rlcpu.replay.backend.Cpu`, whose names these are."""

    device = "cuda"
    tree = DeviceTree
    empty = staticmethod(empty)
    asarray = staticmethod(asarray)
    to_host = staticmethod(to_host)

    @staticmethod
    def storage(
        structure: TransitionStructure,
        num_envs: int,
        length: int,
        memmap: str | os.PathLike[str] | None,
        derive_next: bool,
    ) -> DeviceStorage:
        """Return a new storage; NotImplementedError for options that only the CPU has."""
        for name, value in (("memmap", memmap), ("derive_next", derive_next or None)):
            if value is not None:
                raise cpu_only(f"{name}={value!r}")
        return DeviceStorage(structure, num_envs, length)

    @staticmethod
    def concatenate(arrays: Any, axis: int) -> Any:
        """Return arrays one after the other."""
        return xp.concatenate(list(arrays), axis)

    @staticmethod
    def to_array(numbers: Any, name: str) -> Any:
        """Return an array, of the host or the device."""
        on_host = device_of(numbers) == "cpu"
        return fields.to_array(numbers, name) if on_host else asarray(numbers)

    @staticmethod
    def draw_items(
        stream: Any, num_envs: int, first: int, count: int, length: int, out: Any
    ) -> None:
        """Fill `out` with uniform items, with replacement; `stream` is moved on."""
        key, counter = stream
        launch(draw_items_kernel, out.size, key, counter, num_envs, first, count, length, out)
        stream[1] += np.uint64(out.size)
