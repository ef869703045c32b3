"""Observations as users get them, from the rows of float32 numbers that kernels write.

The kinds of observations, and what their rows hold:

- "floats": the numbers themselves, which users get as a view.
- "choice", "choices": the int32 bits of the value of a `Discrete`, or of each one of a
  `MultiDiscrete`.
- "planes": boards, sets of up to 128 cells: four rows with 32 bits each, `WORDS`, for a plane.
- "numbers": an array of another dtype, its bytes.
- "group": the parts of a `Dict` one after the other, see `rlcpu.envs.layout.groups`.

Behind them are the bits of the action mask, see `rlcpu.envs.engine.masks`. A buffer stores less
than rows, in the form that `ObservationView.to_stored` returns; networks get float32 "inputs", in
which a choice among n is n zeros and ones, and a plane a zero or one for each cell.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space
from numba import prange

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.engine.masks import mask_rows, masks_of
from rlcpu.envs.layout.groups import byte_places
from rlcpu.kernels.compiler.compile import inline, kernel
from rlcpu.kernels.machine.boards import append_cells, make_store_bits
from rlcpu.kernels.machine.threads import Kernels, launch

if TYPE_CHECKING:
    from rlcpu.nn.layers.embedding import Ones

Array = npt.NDArray[Any]
#: How users can get planes: a number for each cell, or four words of bits for each plane.
PLANES = ("uint8", "float32", "bits")
#: Words of 32 cells in a plane.
WORDS = 4


class GroupPart(NamedTuple):
    """One part of a group."""

    #: Its key in the `Dict`.
    name: str
    #: Its first byte in the rows of an observation.
    begin: int
    #: How it is decoded.
    view: ObservationView


class ObservationView(NamedTuple):
    """Layout by which rows of observations are decoded, stored and given to networks."""

    #: See the module; "floats", "choice", "choices", "planes", "numbers" or "group".
    kind: str
    #: Shape of floats and of numbers, (n,) of a choice among n, (n, m, ...) of several choices,
    #: (planes, rows, columns) of planes, (rows of float32,) of a group.
    size: tuple[int, ...]
    #: Of planes, one of `PLANES`; else the name of the dtype in which users get them.
    form: str
    #: Actions of the mask behind the observation; 0 without one.
    num_masked: int = 0
    #: Threads that expand bits of planes, see `launch`.
    num_threads: int | None = None
    #: The smallest value of each choice.
    start: tuple[int, ...] = ()
    #: Of a group, in the order of its space.
    parts: tuple[GroupPart, ...] = ()

    @classmethod
    def of(cls, dynamics: Dynamics, planes: str, dtype: np.dtype[Any]) -> ObservationView:
        """Return the view of an environment's observations.

        Args:
            dynamics: the environment.
            planes: one of `PLANES`.
            dtype: of the environment's floats.

        Raises:
            ValueError: `planes` is none of `PLANES`.
        """
        if not isinstance(planes, str) or planes not in PLANES:
            *others, last = (f'"{name}"' for name in PLANES)
            raise ValueError(f"planes={planes!r}: expected {', '.join(others)} or {last}")
        space: Any = dynamics.observed_as(dtype)
        layout = dynamics.observation if dynamics.runs_in_kernels else None
        view = cls.of_space(space, planes if layout is not None else "")
        if isinstance(space, Dict) and layout is not None:
            first_bytes = byte_places(layout)
            part_planes = "" if layout.is_record else planes  # boards of a record are bytes
            parts = (
                GroupPart(name, first_bytes[name], cls.of_space(part, part_planes))
                for name, part in space.items()
            )
            view = view._replace(parts=tuple(parts), size=(layout.rows(np.float32),))
        return view._replace(num_masked=dynamics.num_masked)

    @classmethod
    def of_space(cls, space: Any, planes: str = "") -> ObservationView:
        """Return the view of a space; the parts of a group follow each other in its order.

        Args:
            space: of observations, or of a part.
            planes: one of `PLANES`, of spaces whose `MultiBinary` is kept as bits; "" if it is an
                array.
        """
        if isinstance(space, Dict):
            parts: list[GroupPart] = []
            end = 0
            for name, each in space.items():
                parts.append(GroupPart(name, end, cls.of_space(each, planes)))
                end += 4 * parts[-1].view.rows
            return cls("group", (end // 4,), "", parts=tuple(parts))
        if isinstance(space, Discrete):
            return cls("choice", (int(space.n),), "int64", start=(int(space.start),))
        if isinstance(space, MultiDiscrete):
            nvec, start = tuple(space.nvec.tolist()), tuple(space.start.tolist())
            return cls("choices", nvec, "int64", start=start)
        if isinstance(space, MultiBinary) and planes:
            return cls("planes", space.shape, planes)
        if space.dtype.kind == "f":
            return cls("floats", space.shape, space.dtype.name)
        return cls("numbers", tuple(space.shape), space.dtype.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one observation as users get it; of any kind but a group."""
        if self.kind == "choice":
            return ()
        if self.kind == "choices":
            return (len(self.size),)
        return (self.size[0], WORDS) if self.is_packed else self.size

    @property
    def rows(self) -> int:
        """Return how many rows hold an observation and its action mask."""
        return self._observation_rows + mask_rows(self.num_masked)

    @property
    def _observation_rows(self) -> int:
        """Return how many rows hold an observation without its action mask."""
        if self.kind == "choice":
            return 1
        if self.kind == "choices":
            return len(self.size)
        if self.kind == "planes":
            return self.size[0] * WORDS
        if self.kind == "group":
            return self.size[0]
        if self.kind == "numbers":
            return -(-math.prod(self.size) * np.dtype(self.form).itemsize // 4)  # rounded up
        return math.prod(self.size)

    @property
    def is_packed(self) -> bool:
        """Tell whether users get planes as words of bits."""
        return self.form == "bits"

    @property
    def row_dtype(self) -> Any:
        """Return the NumPy type of rows: float64 if users get such floats, else float32."""
        return np.float64 if self.form == "float64" else np.float32

    def space(self, single_space: Any) -> Space[Any]:
        """Return the space of the observations that users get, a new object.

        Args:
            single_space: the space of one environment's observations, as its `Dynamics` has it.
        """
        if self.kind == "group":
            return Dict(
                {part.name: part.view.space(single_space[part.name]) for part in self.parts}
            )
        if self.kind != "planes":
            return copy.deepcopy(single_space)
        if self.is_packed:
            return Box(0, 2**32 - 1, self.shape, np.uint32)
        return Box(0, 1, self.shape, np.dtype(self.form).type)

    def show(self, rows: Any) -> Any:
        """Return observations (n, ...) of rows (rows, n) float32, as engines have them."""
        return self.decode(rows.T)

    def masks(self, rows: Any) -> Any:
        """Return action masks (..., num_masked) bool of rows (..., rows) float32."""
        return masks_of(rows[..., -mask_rows(self.num_masked) :], self.num_masked)

    # ------------------------------------------------------------ from rows to observations

    def decode(self, rows: Any) -> Any:
        """Return observations (..., *shape) of rows (..., rows) float32, in any memory order.

        Observations of a group are a dict of arrays. Floats are a view of `rows`, and so are the
        parts of a group if `rows` is contiguous; all else is a new array.
        """
        if self.num_masked:
            rows = rows[..., : -mask_rows(self.num_masked)]
        if self.kind == "floats":
            return rows if len(self.size) == 1 else rows.reshape(*rows.shape[:-1], *self.size)
        if self.kind == "choice":
            return rows[..., 0].view(np.int32).astype(np.int64)
        if self.kind == "choices":
            return np.ascontiguousarray(rows).view(np.int32).astype(np.int64)
        leading = rows.shape[:-1]
        if self.kind == "group":
            return self._each_part_of(rows, ObservationView.decode)
        if self.kind == "numbers":
            is_contiguous = rows.strides[-1] == rows.itemsize
            data = (rows if is_contiguous else np.ascontiguousarray(rows)).view(np.uint8)
            count = math.prod(self.size) * np.dtype(self.form).itemsize
            return data[..., :count].view(self.form).reshape(*leading, *self.size)
        if self.is_packed:
            return rows.copy(order="C").view(np.uint32).reshape(*leading, *self.shape)
        cells = math.prod(self.size[1:])
        expanded = np.empty((math.prod(leading), self.size[0], cells), self.form)
        kernels, words = _expand_kernels(cells), _words_of(rows)
        launch(kernels, expanded.size, self.num_threads, *words, expanded)
        return expanded.reshape(*leading, *self.size)

    def _each_part_of(
        self, rows: Any, convert: Callable[[ObservationView, Any], Any]
    ) -> dict[str, Any]:
        """Return `convert(view of a part, its rows)` for each part of a group, by name.

        `rows`, (..., rows) float32, are those of the whole group.
        """
        rows_as_bytes = np.ascontiguousarray(rows).view(np.uint8)
        return {
            name: convert(view, rows_as_bytes[..., begin : begin + 4 * view.rows].view(np.float32))
            for name, begin, view in self.parts
        }

    def pack(self, observations: Any) -> Any:
        """Return rows (n, rows) float32, without masks, of observations (n, ...) of no planes."""
        if self.kind == "group":
            parts = {part.name: part.view.pack(observations[part.name]) for part in self.parts}
            rows = np.zeros((len(next(iter(parts.values()))), self.size[0]), np.float32)
            for name, begin, view in self.parts:
                rows[:, begin // 4 : begin // 4 + view.rows] = parts[name]
            return rows
        n = len(observations)
        dtypes = {"floats": "float32", "numbers": self.form, "choice": "int32", "choices": "int32"}
        # Some are transposed: the vectorised CartPole of Gymnasium.
        array = np.asarray(observations).astype(dtypes[self.kind], order="C").reshape(n, -1)
        rows = np.zeros((n, self._observation_rows), np.float32)
        rows.view(np.uint8)[:, : array.shape[1] * array.itemsize] = array.view(np.uint8)
        return rows

    def float_numbers(self, rows: Any) -> Any:
        """Return the floats in rows (..., rows) of floats or of a group.

        Those of floats have their own shape, those of all parts of a group are (..., count).
        """
        if self.kind == "floats":
            return self.decode(rows)
        floats = [np.zeros((*rows.shape[:-1], 0), np.float32)]
        for part in self.parts:
            if part.view.kind == "floats":
                first = part.begin // 4
                floats.append(rows[..., first : first + part.view.rows])
        return np.concatenate(floats, axis=-1)

    def float_names(self) -> list[str]:
        """Return the names of the numbers in `float_numbers` of a group, such as "speed[1]"."""
        return [
            f"{part.name}{list(index) or ''}"
            for part in self.parts
            if part.view.kind == "floats"
            for index in np.ndindex(part.view.size)
        ]

    # ------------------------------------------------------------ inputs of networks

    @property
    def num_inputs(self) -> int:
        """Return how many numbers a network gets for an observation."""
        if self.kind == "group":
            return sum(part.view.num_inputs for part in self.parts)
        return sum(self.size) if self.kind in ("choice", "choices") else math.prod(self.size)

    def flatten(self, observations: Any) -> Any:
        """Return the inputs of networks, (n, num_inputs) float32, of observations (n, ...)."""
        if self.kind == "group":
            parts = (part.view.flatten(observations[part.name]) for part in self.parts)
            return np.concatenate(list(parts), axis=1)
        n = len(observations)
        if self.kind not in ("choice", "choices"):
            with np.errstate(over="ignore"):
                return np.asarray(observations).astype(np.float32, copy=False).reshape(n, -1)
        ones = np.zeros((n, sum(self.size)), np.float32)
        firsts = np.cumsum((0, *self.size[:-1])) - np.array(self.start)
        columns = np.asarray(observations).reshape(n, -1) + firsts
        np.put_along_axis(ones, columns.astype(np.int64), np.float32(1), axis=1)
        return ones

    def inputs(self, rows: Any) -> Any:
        """Return inputs of networks, (n, num_inputs) float32, of rows (n, rows)."""
        if self.kind == "floats":
            return self.decode(rows).astype(np.float32, copy=False).reshape(len(rows), -1)
        if self.kind == "planes":
            return self._replace(form="float32").decode(rows).reshape(len(rows), -1)
        if self.kind == "group":
            parts = self._each_part_of(self._without_masks(rows), ObservationView.inputs)
            return np.concatenate(list(parts.values()), axis=1)
        return self.flatten(self.decode(rows))

    def _without_masks(self, rows: Any) -> Any:
        """Return a view of the rows of observations, without those of action masks."""
        return rows[..., : self._observation_rows]

    def ones(self, rows: Any) -> Ones | None:
        """Return which `inputs` of rows (n, rows) are one; None unless a choice or planes."""
        if self.kind not in ("choice", "planes"):
            return None
        from rlcpu.nn.layers.embedding import Ones  # not with `import rlcpu`

        if self.kind == "choice":
            chosen = (self.decode(rows) - self.start[0]).astype(np.int32)
            # Of each choice one input is one.
            return Ones(starts=np.arange(len(chosen) + 1), columns=chosen, size=self.size[0])
        words, stride, word_stride = _words_of(rows)
        planes, cells = self.size[0], math.prod(self.size[1:])
        starts = np.empty(len(rows) + 1, np.int64)
        columns = np.empty(int(np.bitwise_count(words).sum()), np.int32)
        count = _find_ones(words, stride, word_stride, planes, cells, starts, columns)
        return Ones(starts, columns[:count], size=planes * cells)

    def ones_of_stored(self, stored: Any) -> Ones | None:
        """Return which inputs of n stored observations are one; None unless a choice or planes."""
        if self.kind not in ("choice", "planes"):
            return None
        rows = stored.reshape(len(stored), -1).view(np.float32)
        return self._replace(num_masked=0).ones(rows)

    # ------------------------------------------------------------ what buffers store

    @property
    def stored_example(self) -> Any:
        """Return zeros in the shape and dtype in which a buffer stores one observation.

        That is float32 of floats, one int32 of each choice, (planes, 4) uint32 of planes: the bits,
        a 25th of a network's inputs for ten by ten cells; other numbers in their own dtype, and a
        dict of these for a group.
        """
        if self.kind == "group":
            return {part.name: part.view.stored_example for part in self.parts}
        if self.kind == "choice":
            return np.int32(0)
        if self.kind == "choices":
            return np.zeros(len(self.size), np.int32)
        if self.kind == "planes":
            return np.zeros((self.size[0], WORDS), np.uint32)
        if self.kind == "numbers":
            return np.zeros(self.size, self.form)
        return np.zeros(math.prod(self.size), np.float32)

    def to_stored(self, rows: Any) -> Any:
        """Return observations (n, ...) in the form of `stored_example`, of rows (n, rows)."""
        if self.kind == "group":
            return self._each_part_of(self._without_masks(rows), ObservationView.to_stored)
        if self.kind == "choice":
            return rows[:, 0].copy().view(np.int32)
        if self.kind == "choices":
            return np.ascontiguousarray(self._without_masks(rows)).view(np.int32)
        if self.kind == "numbers":
            return self.decode(rows)
        if self.kind == "planes":
            return self._replace(form="bits").decode(rows)
        return self.inputs(rows)

    def inputs_of_stored(self, stored: Any) -> Any:
        """Return the inputs of networks, (n, num_inputs) float32, of n stored observations."""
        if self.kind == "floats":
            return stored
        if self.kind == "group":
            parts = (part.view.inputs_of_stored(stored[part.name]) for part in self.parts)
            return np.concatenate([each.reshape(len(each), -1) for each in parts], axis=1)
        if self.kind != "planes":
            return self.flatten(stored)
        rows = stored.reshape(len(stored), -1).view(np.float32)
        return self._replace(num_masked=0).inputs(rows)


def each_part(function: Callable[..., Any], *observations: Any) -> Any:
    """Return `function(*observations)`; of groups, a dict of its results for each part.

    Args:
        function: of as many arrays as there are observations.
        *observations: arrays, or dicts of arrays with the same names.
    """
    first = observations[0]
    if not isinstance(first, dict):
        return function(*observations)
    return {name: function(*(each[name] for each in observations)) for name in first}


def _words_of(rows: Array) -> tuple[Array, int, int]:
    """Return the words of rows (..., rows) of planes as flat uint32, and two distances in it.

    Returns:
        `words`; the distance of one observation to the next; and that of one word of an observation
        to its next: word w of observation i is words[i * stride + w * word_stride]. A copy if the
        rows are contiguous in no order.
    """
    flat = rows if rows.ndim == 2 else rows.reshape(-1, rows.shape[-1])
    if not (flat.flags.c_contiguous or flat.flags.f_contiguous):
        flat = flat.copy()
    in_order = flat if flat.flags.c_contiguous else flat.T
    stride, word_stride = flat.strides
    return in_order.reshape(-1).view(np.uint32), stride // 4, word_stride // 4


@kernel(subject="observations")
def _find_ones(words, stride, word_stride, planes, cells, starts, columns):
    """Write which cells of planes are set, in the form of `Ones`, and return how many they are.

    The first three arguments are those that `_words_of` returns for n observations, of `planes`
    planes with `cells` cells each. `starts`, (n + 1,) int64, is overwritten by where each
    observation begins in `columns`, int32, and that by the inputs that are one.
    """
    count = 0
    for i in range(starts.size - 1):
        starts[i] = count
        count = append_cells(words, i * stride, word_stride, planes, cells, columns, count)
    starts[starts.size - 1] = count
    return count


#: Observations that are expanded together, plane by plane: their words share a cache line. With
#: 4,096 environments all lines of one observation fall into one set of the cache, which holds
#: eight.
SIDE_BY_SIDE = 16
#: Numbers that are written, from which on all cores are faster than one.
EXPANDED_BY_ONE = 2**20


@functools.cache
def _expand_kernels(cells: int) -> Kernels:
    """Return kernels (words, stride, word_stride, numbers), which write planes as zeros and ones.

    `words`, `stride` and `word_stride` are those of `_words_of`; `numbers`, (n, planes, cells)
    uint8 or float32, is overwritten.
    """
    # They write the bits of a uint64 as so many numbers.
    store_low, store_high = make_store_bits(min(cells, 64)), make_store_bits(max(cells - 64, 0))
    high = cells > 64

    @inline
    def pair_at(words, at, word_stride):
        """Return the word at a place and the next one of the observation, as 64 bits."""
        return np.uint64(words[at]) | np.uint64(words[at + word_stride]) << np.uint64(32)

    def make(parallel: bool) -> Any:
        """Compile the expansion for one core or for all."""

        @kernel(parallel=parallel, subject="observations")
        def expand(words, stride, word_stride, numbers):
            """Write the bits of all boards as numbers, block by block of observations."""
            n, planes, size = numbers.shape
            flat = numbers.reshape(-1)
            for block in prange((n + SIDE_BY_SIDE - 1) // SIDE_BY_SIDE):
                begin = block * SIDE_BY_SIDE
                for p in range(planes):
                    for i in range(begin, min(begin + SIDE_BY_SIDE, n)):
                        at, place = i * stride + WORDS * p * word_stride, (i * planes + p) * size
                        store_low(flat, place, pair_at(words, at, word_stride))
                        if high:
                            at += 2 * word_stride
                            store_high(flat, place + 64, pair_at(words, at, word_stride))

        return expand

    return Kernels(make(False), make(True), EXPANDED_BY_ONE)
