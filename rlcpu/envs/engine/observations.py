"""Observations as users get them, from the rows of numbers that kernels write.

Floats are shown as they are, in transposed memory. A choice and a plane of cells are kept by their
bits, see `rlcpu.envs.engine.layout`, and written out here, when somebody looks at them. A group of
parts is a dict of views of one row, see `rlcpu.envs.engine.groups`.
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

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.groups import byte_places
from rlcpu.envs.engine.masks import mask_rows, masks_of
from rlcpu.kernels.boards import append_cells, make_store_bits
from rlcpu.kernels.compile import inline, kernel
from rlcpu.kernels.threads import Kernels, launch

if TYPE_CHECKING:
    from rlcpu.nn.layers.embedding import Ones

Array = npt.NDArray[Any]
#: How planes can be delivered.
PLANES = ("uint8", "float32", "bits")
#: Words of 32 cells in a plane.
WORDS = 4


class GroupPart(NamedTuple):
    """One part of a group.

    Attributes:
        name: its key in the `Dict`.
        begin: its first byte in the row.
        view: how it is delivered.
    """

    name: str
    begin: int
    view: ObservationView


class ObservationView(NamedTuple):
    """Form in which observations of one environment are delivered.

    Attributes:
        kind: "floats", "choice", "choices", "planes", "numbers" of another dtype, or "group".
        size: (size,) of floats and of numbers, (choices,) of each choice, (planes, rows, columns),
            or of a group the rows of memory.
        form: of planes, one of `PLANES`; else the name of the dtype.
        num_masked: actions whose mask follows the observation in its rows; 0 without one.
        num_threads: threads that write planes out, see `launch`.
        start: the smallest number of each choice.
        parts: of a group, in the order of its space.
    """

    kind: str
    size: tuple[int, ...]
    form: str
    num_masked: int = 0
    num_threads: int | None = None
    start: tuple[int, ...] = ()
    parts: tuple[GroupPart, ...] = ()

    @classmethod
    def of(cls, dynamics: Dynamics, planes: str, dtype: np.dtype[Any]) -> ObservationView:
        """Return the view of an environment's observations.

        Raises:
            ValueError: planes is none of the ways to deliver them.
        """
        if not isinstance(planes, str) or planes not in PLANES:
            *others, last = (f'"{name}"' for name in PLANES)
            raise ValueError(f"planes={planes!r}: expected {', '.join(others)} or {last}")
        space: Any = dynamics.observed_as(dtype)
        layout = dynamics.observation if dynamics.runs_in_kernels else None
        view = cls.of_space(space, planes if layout is not None else "")
        if isinstance(space, Dict) and layout is not None:
            is_written = layout.is_record  # then boards are arrays of bytes
            places = byte_places(layout)
            part_planes = "" if is_written else planes
            parts = (
                GroupPart(k, places[k], cls.of_space(x, part_planes)) for k, x in space.items()
            )
            view = view._replace(parts=tuple(parts), size=(layout.rows(np.float32),))
        return view._replace(num_masked=dynamics.num_masked)

    @classmethod
    def of_space(cls, space: Any, planes: str = "") -> ObservationView:
        """Return the view of a space, whose boards are bits only if `planes` says how to show them.

        The parts of a group follow each other.
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
        """Return the shape of one observation, which is no group."""
        if self.kind == "choice":
            return ()
        if self.kind == "choices":
            return (len(self.size),)
        return (self.size[0], WORDS) if self.is_packed else self.size

    @property
    def rows(self) -> int:
        """Return how many rows hold an observation and its action mask."""
        return self._own_rows + mask_rows(self.num_masked)

    @property
    def _own_rows(self) -> int:
        if self.kind == "numbers":
            return -(-math.prod(self.size) * np.dtype(self.form).itemsize // 4)
        counts = {"choice": 1, "planes": self.size[0] * WORDS if self.size else 0}
        counts |= {"choices": len(self.size), "group": self.size[0] if self.size else 0}
        return counts.get(self.kind, math.prod(self.size))

    @property
    def is_packed(self) -> bool:
        """Tell whether planes are delivered as bits."""
        return self.form == "bits"

    @property
    def row_dtype(self) -> Any:
        """Return the NumPy type of the rows: float64 of floats that are delivered so."""
        return np.float64 if self.form == "float64" else np.float32

    def space(self, single_space: Any) -> Space[Any]:
        """Return the space of one environment's observations, of its own space; a new object."""
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
        """Return observations (n, ...) of rows (shown rows, n) float32."""
        return self.decode(rows.T)

    def masks(self, rows: Any) -> Any:
        """Return action masks (..., num_masked) bool of rows (..., shown rows) float32."""
        return masks_of(rows[..., -mask_rows(self.num_masked) :], self.num_masked)

    # ------------------------------------------------------------ from rows to observations

    def decode(self, rows: Any) -> Any:
        """Return observations (..., shape) of rows (..., shown rows) float32, in any memory order.

        Those of a group are a dict of them. Floats are the rows themselves, parts of a group views
        of rows that are contiguous; all else is a new array.
        """
        if self.num_masked:
            rows = rows[..., : -mask_rows(self.num_masked)]
        if self.kind == "floats":
            return rows if len(self.size) == 1 else rows.reshape(*rows.shape[:-1], *self.size)
        if self.kind == "choice":
            return rows[..., 0].view(np.int32).astype(np.int64)
        if self.kind == "choices":
            return np.ascontiguousarray(rows).view(np.int32).astype(np.int64)
        before = rows.shape[:-1]
        if self.kind == "group":
            return self._cut(rows, ObservationView.decode)
        if self.kind == "numbers":
            is_contiguous = rows.strides[-1] == rows.itemsize
            data = (rows if is_contiguous else np.ascontiguousarray(rows)).view(np.uint8)
            count = math.prod(self.size) * np.dtype(self.form).itemsize
            return data[..., :count].view(self.form).reshape(*before, *self.size)
        if self.is_packed:
            return rows.copy(order="C").view(np.uint32).reshape(*before, *self.shape)
        cells = math.prod(self.size[1:])
        expanded = np.empty((math.prod(before), self.size[0], cells), self.form)
        kernels, words = _expand_kernels(cells), _words_of(rows)
        launch(kernels, expanded.size, self.num_threads, *words, expanded)
        return expanded.reshape(*before, *self.size)

    def _cut(self, rows: Any, take: Callable[[ObservationView, Any], Any]) -> dict[str, Any]:
        """Return what `take` makes of each part's rows, by name."""
        contiguous = np.ascontiguousarray(rows).view(np.uint8)
        return {
            name: take(view, contiguous[..., begin : begin + 4 * view.rows].view(np.float32))
            for name, begin, view in self.parts
        }

    def pack(self, observations: Any) -> Any:
        """Return rows (n, rows) float32 of observations (n, ...), without masks; of no planes."""
        if self.kind == "group":
            parts = {part.name: part.view.pack(observations[part.name]) for part in self.parts}
            rows = np.zeros((len(next(iter(parts.values()))), self.size[0]), np.float32)
            for name, begin, view in self.parts:
                rows[:, begin // 4 : begin // 4 + view.rows] = parts[name]
            return rows
        n = len(observations)
        kinds = {"floats": "float32", "numbers": self.form}
        array = np.asarray(observations).astype(kinds.get(self.kind, "int32")).reshape(n, -1)
        rows = np.zeros((n, self._own_rows), np.float32)
        rows.view(np.uint8)[:, : array.shape[1] * array.itemsize] = array.view(np.uint8)
        return rows

    def reals(self, rows: Any) -> Any:
        """Return the floats of floats or of a group, (..., any) or in their shape."""
        if self.kind == "floats":
            return self.decode(rows)
        parts = [part for part in self.parts if part.view.kind == "floats"]
        contiguous = np.ascontiguousarray(rows)
        places = [slice(p.begin // 4, p.begin // 4 + p.view.rows) for p in parts]
        floats = [contiguous[..., place] for place in places] or [np.zeros((*rows.shape[:-1], 0))]
        return np.concatenate(floats, axis=-1)

    def real_names(self) -> list[str]:
        """Return names of the numbers that `reals` gives of a group, such as "speed[1]"."""
        return [
            f"{part.name}{list(place) or ''}"
            for part in self.parts
            if part.view.kind == "floats"
            for place in np.ndindex(part.view.size)
        ]

    # ------------------------------------------------------------ what networks see

    @property
    def num_inputs(self) -> int:
        """Return how many numbers a network sees."""
        if self.kind == "group":
            return sum(part.view.num_inputs for part in self.parts)
        return sum(self.size) if self.kind in ("choice", "choices") else math.prod(self.size)

    def flatten(self, observations: Any) -> Any:
        """Return what networks see, (n, num_inputs) float32, of observations (n, ...) as shown."""
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
        """Return rows (n, observation rows) for networks: (n, num_inputs) float32."""
        if self.kind == "floats":
            return self.decode(rows).astype(np.float32, copy=False).reshape(len(rows), -1)
        if self.kind == "planes":
            return self._replace(form="float32").decode(rows).reshape(len(rows), -1)
        if self.kind == "group":
            shown_rows = self._without_masks(rows)
            return np.concatenate(
                list(self._cut(shown_rows, ObservationView.inputs).values()), axis=1
            )
        return self.flatten(self.decode(rows))

    def _without_masks(self, rows: Any) -> Any:
        return rows[..., : self._own_rows]

    def ones(self, rows: Any) -> Ones | None:
        """Return the positions of `inputs` that are one; None of others than a choice or planes."""
        if self.kind not in ("choice", "planes"):
            return None
        from rlcpu.nn.layers.embedding import Ones  # not with `import rlcpu`

        if self.kind == "choice":
            chosen = (self.decode(rows) - self.start[0]).astype(np.int32)
            return Ones(np.arange(len(chosen) + 1), chosen, self.size[0])
        words, stride, word_stride = _words_of(rows)
        planes, cells = self.size[0], math.prod(self.size[1:])
        starts = np.empty(len(rows) + 1, np.int64)
        columns = np.empty(int(np.bitwise_count(words).sum()), np.int32)
        count = _find_ones(words, stride, word_stride, planes, cells, starts, columns)
        return Ones(starts, columns[:count], planes * cells)

    def ones_of(self, stored: Any) -> Ones | None:
        """Return the positions of inputs that are one, of observations that `keep` stored."""
        if self.kind not in ("choice", "planes"):
            return None
        rows = stored.reshape(len(stored), -1).view(np.float32)
        return self._replace(num_masked=0).ones(rows)

    # ------------------------------------------------------------ what buffers keep

    @property
    def kept(self) -> Any:
        """Return zeros, of the form in which a buffer keeps an observation.

        float32 of floats, one int32 of each choice, (planes, 4) uint32 of planes: the bits, a 25th
        of what a network sees of ten by ten cells; other numbers in their own dtype, and a dict of
        these for a group.
        """
        if self.kind == "group":
            return {part.name: part.view.kept for part in self.parts}
        if self.kind == "choice":
            return np.int32(0)
        if self.kind == "choices":
            return np.zeros(len(self.size), np.int32)
        if self.kind == "planes":
            return np.zeros((self.size[0], WORDS), np.uint32)
        if self.kind == "numbers":
            return np.zeros(self.size, self.form)
        return np.zeros(math.prod(self.size), np.float32)

    def keep(self, rows: Any) -> Any:
        """Return observations (n, ...) as `kept` has one, of rows (n, shown rows)."""
        if self.kind == "group":
            return self._cut(self._without_masks(rows), ObservationView.keep)
        if self.kind == "choice":
            return rows[:, 0].copy().view(np.int32)
        if self.kind == "choices":
            return np.ascontiguousarray(self._without_masks(rows)).view(np.int32)
        if self.kind == "numbers":
            return self.decode(rows)
        return (
            self._replace(form="bits").decode(rows) if self.kind == "planes" else self.inputs(rows)
        )

    def inputs_of(self, stored: Any) -> Any:
        """Return n stored observations as networks read them: (n, num_inputs) float32."""
        if self.kind == "floats":
            return stored
        if self.kind == "group":
            parts = (part.view.inputs_of(stored[part.name]) for part in self.parts)
            return np.concatenate([each.reshape(len(each), -1) for each in parts], axis=1)
        if self.kind != "planes":
            return self.flatten(stored)
        rows = stored.reshape(len(stored), -1).view(np.float32)
        return self._replace(num_masked=0).inputs(rows)


def each_part(take: Callable[[Any], Any], *observations: Any) -> Any:
    """Return what a function makes of observations, or of each part of a group, by name."""
    first = observations[0]
    if not isinstance(first, dict):
        return take(*observations)
    return {name: take(*(each[name] for each in observations)) for name in first}


def _words_of(rows: Array) -> tuple[Array, int, int]:
    """Return rows as flat uint32, and the distances of two observations and of two rows."""
    flat = rows if rows.ndim == 2 else rows.reshape(-1, rows.shape[-1])
    if not (flat.flags.c_contiguous or flat.flags.f_contiguous):
        flat = flat.copy()
    in_order = flat if flat.flags.c_contiguous else flat.T
    stride, word_stride = flat.strides
    return in_order.reshape(-1).view(np.uint32), stride // 4, word_stride // 4


@kernel(subject="observations")
def _find_ones(words, stride, word_stride, planes, cells, starts, columns):
    """Write which cells are set, as `Ones` have them; returns how many they are."""
    count = 0
    for i in range(starts.size - 1):
        starts[i] = count
        count = append_cells(words, i * stride, word_stride, planes, cells, columns, count)
    starts[starts.size - 1] = count
    return count


#: Observations whose words share a cache line. Plane by plane, they read four lines at a time: with
#: 4,096 environments all lines of an observation fall into one set of the cache, which has eight.
SIDE_BY_SIDE = 16


@functools.cache
def _expand_kernels(cells: int) -> Kernels:
    """Return kernels (words, stride, word_stride, numbers), which write zeros and ones.

    Word w of plane p of observation i is words[i * stride + (4 * p + w) * word_stride], uint32; the
    output is (n, planes, cells), uint8 or float32.
    """
    store_low, store_high = make_store_bits(min(cells, 64)), make_store_bits(max(cells - 64, 0))
    high = cells > 64

    @inline
    def pair_at(words, at, word_stride):
        """Return two words, the first 64 bits from there on."""
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
            return 0

        return expand

    return Kernels(make(False), make(True), 1 << 20)
