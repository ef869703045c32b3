"""Observations as users get them, from the rows of numbers that kernels write.

Floats are shown as they are, in transposed memory. A choice and a plane of cells are kept by their
bits, see `rlcpu.envs.engine.layout`, and written out here, when somebody looks at them.
"""

from __future__ import annotations

import copy
import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiBinary, Space
from numba import prange

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.masks import mask_rows, masks_of
from rlcpu.kernels.boards import append_cells, make_store_bits
from rlcpu.kernels.compile import kernel
from rlcpu.kernels.threads import Kernels, launch

if TYPE_CHECKING:
    from rlcpu.nn.layers.embedding import Ones

Array = npt.NDArray[Any]
#: How planes can be delivered.
PLANES = ("uint8", "float32", "bits")
#: Words of 32 cells in a plane.
WORDS = 4


class ObservationView(NamedTuple):
    """Form in which observations of one environment are delivered.

    Attributes:
        kind: "floats", "choice" or "planes".
        size: (size,) of floats, (choices,), or (planes, rows, columns).
        form: of planes, one of `PLANES`; else the name of the dtype.
        num_masked: actions whose mask follows the observation in its rows; 0 without one.
        num_threads: threads that write planes out, see `launch`.
    """

    kind: str
    size: tuple[int, ...]
    form: str
    num_masked: int = 0
    num_threads: int | None = None

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
        masked = dynamics.num_masked
        if isinstance(space, Discrete):
            return cls("choice", (int(space.n),), "int64", masked)
        if isinstance(space, MultiBinary):
            return cls("planes", space.shape, planes, masked)
        return cls("floats", space.shape, space.dtype.name, masked)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one observation."""
        if self.kind == "choice":
            return ()
        return (self.size[0], WORDS) if self.is_packed else self.size

    @property
    def rows(self) -> int:
        """Rows of numbers that hold an observation and its action mask."""
        counts = {"choice": 1, "planes": self.size[0] * WORDS}
        return counts.get(self.kind, math.prod(self.size)) + mask_rows(self.num_masked)

    @property
    def is_packed(self) -> bool:
        """Tell whether planes are delivered as bits."""
        return self.form == "bits"

    @property
    def row_dtype(self) -> Any:
        """NumPy type of the rows: float64 of floats that are delivered so."""
        return np.float64 if self.form == "float64" else np.float32

    def space(self, own: Space[Any]) -> Space[Any]:
        """Return the space of one environment's observations, of its own space; a new object."""
        if self.kind != "planes":
            return copy.deepcopy(own)
        if self.is_packed:
            return Box(0, 2**32 - 1, self.shape, np.uint32)
        return Box(0, 1, self.shape, np.dtype(self.form).type)

    def show(self, rows: Any) -> Any:
        """Observations (n, ...) of rows (shown rows, n) float32."""
        return self.decode(rows.T)

    def masks(self, rows: Any) -> Any:
        """Action masks (..., num_masked) bool of rows (..., shown rows) float32."""
        return masks_of(rows[..., -mask_rows(self.num_masked) :], self.num_masked)

    def decode(self, rows: Any) -> Any:
        """Observations (..., shape) of rows (..., shown rows) float32, in any memory order.

        Floats are the rows themselves; all else is a new array.
        """
        if self.num_masked:
            rows = rows[..., : -mask_rows(self.num_masked)]
        if self.kind == "floats":
            return rows if len(self.size) == 1 else rows.reshape(*rows.shape[:-1], *self.size)
        if self.kind == "choice":
            return rows[..., 0].view(np.int32).astype(np.int64)
        before = rows.shape[:-1]
        if self.is_packed:
            return rows.copy(order="C").view(np.uint32).reshape(*before, *self.shape)
        cells = math.prod(self.size[1:])
        found = np.empty((math.prod(before), self.size[0], cells), self.form)
        launch(_expand_kernels(cells), found.size, self.num_threads, *_words_of(rows), found)
        return found.reshape(*before, *self.size)

    def inputs(self, rows: Any) -> Any:
        """Return rows (n, observation rows) for networks: (n, observation_size) float32."""
        if self.kind == "floats":
            return self.decode(rows).astype(np.float32, copy=False).reshape(len(rows), -1)
        if self.kind == "choice":
            return np.eye(self.size[0], dtype=np.float32)[self.decode(rows)]
        return self._replace(form="float32").decode(rows).reshape(len(rows), -1)

    def ones(self, rows: Any) -> Ones | None:
        """Return the positions of `inputs` that are one; None for floats."""
        if self.kind == "floats":
            return None
        from rlcpu.nn.layers.embedding import Ones  # not with `import rlcpu`

        if self.kind == "choice":
            chosen = self.decode(rows).astype(np.int32)
            return Ones(np.arange(len(chosen) + 1), chosen, self.size[0])
        words, stride, word_stride = _words_of(rows)
        planes, cells = self.size[0], math.prod(self.size[1:])
        starts = np.empty(len(rows) + 1, np.int64)
        columns = np.empty(int(np.bitwise_count(words).sum()), np.int32)
        count = _find_ones(words, stride, word_stride, planes, cells, starts, columns)
        return Ones(starts, columns[:count], planes * cells)

    def ones_of(self, kept: Any) -> Ones | None:
        """Return the positions of inputs that are one, of observations that `keep` stored."""
        rows = kept.reshape(len(kept), -1).view(np.float32)
        return self._replace(num_masked=0).ones(rows)

    @property
    def kept(self) -> Any:
        """An observation as a buffer keeps it: zeros.

        float32 of floats, one int32 of a choice, and (planes, 4) uint32 of planes: the bits, a 25th
        of what a network sees of ten by ten cells.
        """
        if self.kind == "choice":
            return np.int32(0)
        if self.kind == "planes":
            return np.zeros((self.size[0], WORDS), np.uint32)
        return np.zeros(math.prod(self.size), np.float32)

    def keep(self, rows: Any) -> Any:
        """Observations (n, ...) as `kept` has one, of rows (n, shown rows)."""
        if self.kind == "choice":
            return rows[:, 0].copy().view(np.int32)
        return (
            self._replace(form="bits").decode(rows) if self.kind == "planes" else self.inputs(rows)
        )

    def inputs_of(self, kept: Any) -> Any:
        """Return n stored observations as networks read them: (n, observation_size) float32."""
        if self.kind == "floats":
            return kept
        rows = kept.reshape(len(kept), -1).view(np.float32)
        return self._replace(num_masked=0).inputs(rows)


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
    """Kernels (words, stride, word_stride, numbers), which write zeros and ones.

    Word w of plane p of observation i is words[i * stride + (4 * p + w) * word_stride], uint32; the
    output is (n, planes, cells), uint8 or float32.
    """
    store_low, store_high = make_store_bits(min(cells, 64)), make_store_bits(max(cells - 64, 0))
    half, high = np.uint64(32), cells > 64

    def make(parallel: bool) -> Any:
        @kernel(parallel=parallel, subject="observations")
        def expand(words, stride, word_stride, numbers):
            n, planes, size = numbers.shape
            flat = numbers.reshape(-1)
            for block in prange((n + SIDE_BY_SIDE - 1) // SIDE_BY_SIDE):
                begin = block * SIDE_BY_SIDE
                for p in range(planes):
                    for i in range(begin, min(begin + SIDE_BY_SIDE, n)):
                        at, place = i * stride + WORDS * p * word_stride, (i * planes + p) * size
                        low = np.uint64(words[at]) | np.uint64(words[at + word_stride]) << half
                        store_low(flat, place, low)
                        if high:
                            at += 2 * word_stride
                            low = np.uint64(words[at]) | np.uint64(words[at + word_stride]) << half
                            store_high(flat, place + 64, low)
            return 0

        return expand

    return Kernels(make(False), make(True), 1 << 20)
