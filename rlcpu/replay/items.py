"""Which steps a ring holds, and which items can be drawn: transitions, n-step ones, or sequences.

The storage has `length` rows for each environment, side by side: step s of environment e is in row
e * length + s % length.
"""

from __future__ import annotations

import itertools
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.backends import device_of
from rlcpu.kernels.compiler.compile import EXACT, inline, kernel
from rlcpu.kernels.machine.random import u64, uniform53
from rlcpu.replay.checks import check_count, check_number
from rlcpu.replay.fields import Shown, TransitionField
from rlcpu.replay.structure import TransitionStructure, parts_of

Array = npt.NDArray[Any]


class Ring(NamedTuple):
    """State of a ring of `length` slots for each environment, to which `added` steps were added.

    Step s is in slot s % length.
    """

    length: int
    added: int

    @property
    def slot(self) -> int:
        """Return the slot of the next step."""
        return self.added % self.length

    @property
    def filled(self) -> int:
        """Return how many slots hold a step."""
        return min(self.added, self.length)


class Items(NamedTuple):
    """Units that are drawn: transitions, or sequences of steps.

    Item number i of an environment begins at its step i * period. Its index, while it is there, is
    `env * per_env + i % per_env`; it is there when all of its steps are.
    """

    num_envs: int  # number of environments
    per_env: int  # items of each that can be there
    steps: int | None = None  # of a sequence; None for transitions
    period: int = 1  # steps from the beginning of an item to that of the next

    def numbers(self, ring: Ring) -> tuple[int, int]:
        """Return the number of the first item that is there, and of the first that is not yet."""
        added, first = ring.added, max(ring.added - ring.length, 0)
        if self.steps is None:
            return first, added
        begin = -(-first // self.period)
        return begin, max((added - self.steps) // self.period + 1, begin)

    def to_draw(self, ring: Ring) -> tuple[int, int]:
        """Return `numbers`, or raise ValueError if there are no items."""
        begin, end = self.numbers(ring)
        if begin == end:
            if self.steps is None:
                raise ValueError("sample: the buffer is empty")
            raise ValueError(
                f"sample: {ring.added} steps were added, expected {self.steps} for a sequence"
            )
        return begin, end

    def refuse_unwritten(self, ring: Ring, indices: Array) -> None:
        """Raise IndexError for the index of an item that was never written.

        Indices on a CUDA device are not looked at here, see `rlcpu.replay.checks.check_pairs`.
        """
        end = self.numbers(ring)[1]
        # From item number `per_env` on, the ring has gone round: every index has been written.
        if end < self.per_env and indices.size and device_of(indices) == "cpu":
            slots = indices % self.per_env
            worst = int(slots.argmax())
            if slots[worst] >= end:
                raise IndexError(f"indices: nothing was written at {int(indices[worst])} yet")


@inline(exact=True)
def pick_item(u, num_envs, first, count, length):
    """Return the index of an item that a uniform number u in [0, 1) draws.

    Each environment has a ring of `length` slots, of which `count` can be drawn, from slot `first`,
    in [0, length), on: its item k has the index env * length + (first + k) % length.
    """
    drawn = min(np.int64(u * (num_envs * count)), num_envs * count - 1)  # among those of all
    env = drawn // count
    slot = first + (drawn - env * count)
    return env * length + (slot - length if slot >= length else slot)


def _pick_items(stream, num_envs, first, count, length, out):
    """Fill `out`, (n,) int64, with items drawn with replacement, see `pick_item`.

    `stream` is (2,) uint64, key and counter of the random numbers; the counter goes on by n.
    """
    for j in range(out.size):
        u = uniform53(stream[0], u64(stream[1] + u64(j)))
        out[j] = pick_item(u, num_envs, first, count, length)
    stream[1] += u64(out.size)


#: For kernels, and for Python.
pick_items, draw_items = inline(_pick_items, exact=True), kernel(_pick_items, fastmath=EXACT)


def spans(begin: int, end: int, length: int, num_envs: int) -> Any:
    """Return the rows of steps [begin, end) of all environments as ranges [first row, end).

    (num_ranges, 2) int64: one range of each environment, or two where its steps go round the end of
    its `length` rows. Of more than `length` steps the last ones are there.
    """
    base = np.arange(num_envs, dtype=np.int64)[:, None] * length
    count = min(max(end - begin, 0), length)
    start = (end - count) % length
    until_end, from_zero = (start, min(start + count, length)), (0, start + count - length)
    ranges = [base + np.array(each) for each in (until_end, from_zero) if each[1] > each[0]]
    return np.concatenate(ranges) if ranges else np.empty((0, 2), np.int64)


# ---------------------------------------------------------------- batches


@dataclass(eq=False, repr=False)
class Batch(Shown, Mapping[Any, Any]):
    """Transitions, or sequences of them, drawn from a buffer; arrays are where the buffer is.

    A mapping of the parts of `data` by their names, or by position where the example is a tuple or
    list: `batch["reward"]`, `dict(batch)`, `**batch`; an example of one array has none. Its length
    is not that of a mapping, but how many were drawn.

    Attributes:
        data: structured like the buffer's example, each leaf (batch_size, *shape), or
            (sequence_length, batch_size, *shape). `sample(out=)` overwrites these arrays: an entry
            that you replace by another array stays as it is.
        indices: (batch_size,) int64, for `update_priorities`.
        probabilities: (batch_size,) float64, with which each was drawn; None if all were alike, and
            of a `ReturnWeightedBuffer`, which draws none twice.
        weights: (batch_size,) float32, importance weights, at most 1; None if there are none.
        discounts: (batch_size,) float32, of the value of what follows an n-step return; None if
            there is none.
        goals: (batch_size,) int64, indices of the transitions that goals come from, -1 where a
            transition has its own; None of any buffer but a `HindsightReplayBuffer`.
        rows, owner: the data's memory, and the buffer; None in a copy.
    """

    data: Any
    rows: Any
    indices: npt.NDArray[np.int64]
    owner: Any
    probabilities: npt.NDArray[np.float64] | None = None
    weights: npt.NDArray[np.float32] | None = None
    discounts: npt.NDArray[np.float32] | None = None
    goals: npt.NDArray[np.int64] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the numbers alone: a copy is no memory of a buffer, which does not go with it."""
        return {**vars(self), "rows": None, "owner": None}

    def __getitem__(self, key: Any) -> Any:
        """Return a part of the data: `batch["reward"]` is `batch.data["reward"]`."""
        return self.data[key] if type(self.data) is dict else parts_of(self.data)[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(parts_of(self.data))

    # Views of the parts: those of `Mapping` would ask for the batch's length.

    def keys(self) -> KeysView[Any]:
        """Return the names of the parts."""
        return parts_of(self.data).keys()

    def values(self) -> ValuesView[Any]:
        """Return the parts."""
        return parts_of(self.data).values()

    def items(self) -> ItemsView[Any, Any]:
        """Return the parts with their names."""
        return parts_of(self.data).items()

    # Of arrays, which `Mapping` would compare.
    __eq__, __hash__ = object.__eq__, object.__hash__

    def __len__(self) -> int:
        """Return how many were drawn."""
        return len(self.indices)

    def _facts(self) -> list[str]:
        names = ("probabilities", "weights", "discounts", "goals", "sources")
        present = [name for name in names if getattr(self, name, None) is not None]
        return [f"{len(self):,} drawn", *(f"with {name}" for name in present)]

    def _fields(self) -> Iterable[TransitionField]:
        return TransitionStructure(self.data).fields


# ---------------------------------------------------------------- returns of n steps


class ReturnSettings(NamedTuple):
    """Numbers that an n-step return depends on, besides rewards and flags."""

    length: Any  # rows of an environment in the storage
    newest: Any  # slot of the newest step
    n: Any  # steps whose rewards are added up
    gamma: Any  # discount factor


@inline(exact=True)
def sum_ahead(rewards, terminated, truncated, row, settings):
    """Return an n-step return: the sum of discounted rewards, the next discount, and the last row.

    It begins at a row of the storage, whose columns are (num_envs * length,), and ends early where
    an episode ends or the newest step is reached; see `NStep` and `ReturnSettings`.
    """
    length, gamma = settings.length, settings.gamma
    begin = row // length * length  # the environment's first row
    steps_to_newest = (settings.newest - (row - begin)) % length
    most_ahead = min(steps_to_newest, settings.n - 1)
    total, discount = 0.0, 1.0
    for ahead in range(settings.n):
        if discount != 0.0:  # else there is no such term, whatever the reward is
            total += discount * np.float64(rewards[row])
        discount *= gamma
        if terminated[row] or truncated[row] or ahead == most_ahead:
            break
        row = row + 1 if row + 1 < begin + length else begin
    return total, discount, row


def _sums_ahead(rewards, terminated, truncated, rows, settings, returns, discounts, last):
    """Write `sum_ahead` of each of `rows` to `returns`, `discounts` and `last` (rows), all (n,)."""
    for b in range(rows.size):
        returns[b], discounts[b], last[b] = sum_ahead(
            rewards, terminated, truncated, rows[b], settings
        )


#: For kernels, and for Python.
sums_ahead, look_ahead = inline(_sums_ahead, exact=True), kernel(_sums_ahead, fastmath=EXACT)


class NStep:
    """n-step returns of a storage's transitions.

    R = sum of gamma^k r_{t+k} for k below m, where m is n, or less if an episode terminated or was
    truncated after m steps, or the newest step is reached. `reward` becomes R; fields named
    `next_...`, `terminated` and `truncated` become those of the last step summed;
    `Batch.discounts` is gamma^m, so that R + discounts * (1 - terminated) * V(next_observation) is
    the target.

    The structure has `reward` (one real number), `terminated` and `truncated` (one bool each), if n
    is above 1; no `truncated` if the user says that no episode is cut (`truncated` is False).
    """

    def __init__(
        self, structure: TransitionStructure, n: int, gamma: float, truncated: bool
    ) -> None:
        self.n, self.gamma = check_count("n_step", n), check_number("gamma", gamma, 0.0, 1.0)
        #: Positions of the fields that a batch has of the first, and of the last step summed.
        self.first_fields: list[int] = []
        self.last_fields: list[int] = []
        #: Positions of the fields `reward`, `terminated` and `truncated`, the last one `terminated`
        #: again if no episode is cut; empty, as the others, if n is 1.
        self.columns: list[int] = []
        if self.n == 1:
            return
        present = {field.name.partition(".")[0] for field in structure.fields}
        reward = _find(structure, "reward", "float32 or float64", np.float32, np.float64)
        flags = [_find(structure, "terminated", "bool", np.bool_)]
        if truncated != ("truncated" in present):
            raise ValueError(_describe_truncated(self.n, truncated))
        if truncated:
            flags.append(_find(structure, "truncated", "bool", np.bool_))
        self.columns = [reward, flags[0], flags[-1]]
        next_fields = [structure.select(name) for name in present if name.startswith("next_")]
        self.last_fields = sorted({*flags, *itertools.chain(*next_fields)})
        others, all_fields = {reward, *self.last_fields}, range(len(structure.fields))
        self.first_fields = [number for number in all_fields if number not in others]

    def gather(
        self, storage: Any, ring: Ring, indices: Array, batch: Batch, num_threads: int | None
    ) -> None:
        """Fill a batch with the n-step transitions at indices that were drawn; n is above 1."""
        newest = (ring.added - 1) % ring.length
        settings = ReturnSettings(ring.length, newest, self.n, self.gamma)
        returns, batch.discounts, last_rows = storage.look_ahead(self.columns, indices, settings)
        batch.rows.leaves[self.columns[0]][:] = returns
        storage.gather(indices, batch.rows, 1, num_threads, fields=self.first_fields)  # of 1 step
        storage.gather(last_rows, batch.rows, 1, num_threads, fields=self.last_fields)


def _describe_truncated(n: int, truncated: bool) -> str:
    """Return the message for an example and an argument `truncated` that do not agree."""
    if truncated:
        return (
            f"n_step={n}: example has no field 'truncated', without which rewards are added up "
            "across the end of an episode that is cut; add the field, or give truncated=False if "
            "no episode is cut"
        )
    return f"truncated=False, n_step={n}: example has a field 'truncated'; leave out one of them"


def _find(structure: TransitionStructure, name: str, expected: str, *dtypes: Any) -> int:
    """Return the position of a field that is one number of one of the dtypes per transition.

    `expected` names the dtypes in messages.
    """
    positions = structure.select(name)
    field = structure.fields[positions[0]]
    if len(positions) != 1 or field.shape or field.dtype not in dtypes:
        raise ValueError(
            f"n_step: the {name!r} field is {field.dtype} {field.shape}: expected one {expected} "
            "per transition"
        )
    return positions[0]
