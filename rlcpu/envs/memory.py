"""The memory of a batch of environments, in blocks, and its plain views."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.lane import (
    ELAPSED,
    KEY_HIGH,
    KEY_LOW,
    LANES,
    NUM_WORDS,
    PENDING,
    Structure,
)
from rlcpu.kernels.random import GOLDEN, keys


class Memory:
    """State, random streams and episode clocks of N environments.

    The last block is padded with environments that nobody sees, so that every loop has whole
    blocks; they run like the others.

    Attributes:
        real: (blocks, (state_size + 1) * LANES), float: state rows, then the return so far.
        words: (blocks, NUM_WORDS * LANES) uint32: keys, counters and clocks.
        clock: (2,) uint32: the counter of random numbers, which every step advances for all
            streams alike (`seed` takes it off each key), and the limit of an episode's steps.
    """

    def __init__(self, env: Structure, num_envs: int, dtype: type, limit: int) -> None:
        blocks = -(-num_envs // LANES)
        self.num_envs = num_envs
        self.real = _aligned_zeros((blocks, (env.state_size + 1) * LANES), dtype)
        self.words = _aligned_zeros((blocks, NUM_WORDS * LANES), np.uint32)
        self.clock = np.array([0, limit], np.uint32)
        self._rows(self.words)[ELAPSED] = PENDING  # nobody is in an episode yet

    @property
    def state_size(self) -> int:
        """Numbers in a state."""
        return self.real.shape[1] // LANES - 1

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in ("real", "words"):  # a copied array begins anywhere
            copied = state[name]
            setattr(self, name, _aligned_zeros(copied.shape, copied.dtype.type))
            getattr(self, name)[...] = copied

    def _rows(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A (blocks, rows * LANES) array as (rows, blocks, LANES), without a copy."""
        return array.reshape(array.shape[0], -1, LANES).swapaxes(0, 1)

    def _lanes(self, row: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A (blocks, LANES) row as a new (num_envs,) array."""
        return row.reshape(-1)[: self.num_envs].copy()

    def get_state(self) -> npt.NDArray[Any]:
        """(num_envs, state_size), a copy."""
        return np.stack([self._lanes(row) for row in self._rows(self.real)[:-1]], axis=1)

    def set_state(self, state: npt.NDArray[Any]) -> None:
        """Copy (num_envs, state_size) in; finished episodes become running ones."""
        padded = self.pad(state)
        for row, values in zip(self._rows(self.real)[:-1], padded.T, strict=True):
            row[...] = values.reshape(-1, LANES)
        elapsed, returns = self._rows(self.words)[ELAPSED], self._rows(self.real)[-1]
        returns[elapsed == PENDING] = 0.0
        elapsed[elapsed == PENDING] = 0

    def get_returns(self) -> npt.NDArray[Any]:
        """(num_envs,) returns of the running episodes so far, a copy."""
        return self._lanes(self._rows(self.real)[-1])

    def finish(self, mask: npt.NDArray[np.bool_]) -> None:
        """End the episodes of the masked environments: they wait for a reset."""
        self._rows(self.words)[ELAPSED][self.pad(mask).reshape(-1, LANES)] = PENDING

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """(num_envs,) steps of the running episodes; `PENDING` where one has finished."""
        return self._lanes(self._rows(self.words)[ELAPSED])

    def seed(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start the streams of the masked environments anew, from one seed each."""
        rows = self._rows(self.words)
        low, high = keys(self.pad(seeds))
        chosen = self.pad(mask).reshape(-1, LANES)
        low -= self.clock[:1] * GOLDEN
        for index, values in ((KEY_LOW, low), (KEY_HIGH, high)):
            np.copyto(rows[index], values.reshape(-1, LANES), where=chosen)

    def pad(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(num_envs, ...) grown to (blocks * LANES, ...) by repeating the last entry."""
        padded = np.empty((self.words.shape[0] * LANES, *values.shape[1:]), values.dtype)
        padded[: self.num_envs], padded[self.num_envs :] = values, values[-1]
        return padded


def _aligned_zeros(shape: tuple[int, int], dtype: type) -> npt.NDArray[Any]:
    """Zeros that begin at a cache line: a vector across two lines takes twice as long to store."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    memory = np.zeros(size + 63, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(shape)
