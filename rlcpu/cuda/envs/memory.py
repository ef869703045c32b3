"""The memory of a batch of environments on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.cuda.arrays import DeviceArray, empty, from_host, zeros
from rlcpu.cuda.envs.batch import finished_kernel
from rlcpu.cuda.launch import launch
from rlcpu.envs.lane import PENDING, Structure
from rlcpu.kernels.random import GOLDEN, keys


class Memory:
    """State, random streams and episode clocks of N environments.

    Attributes:
        states: two arrays ((state_size + 1) * N,), the present one first: state rows, then the
            return so far; steps write the other one.
        elapsed_steps: two arrays (N,) uint32 likewise: steps of the running episode.
        words: (2 * N,) uint32, low and high words of the keys.
        counter: of random numbers, on the host; every step advances it for all streams alike.
        limit: of an episode's steps.
    """

    def __init__(self, env: Structure, num_envs: int, dtype: type, limit: int) -> None:
        self.num_envs, self.size, self.limit, self.counter = num_envs, env.state_size, limit, 0
        self.states = [zeros((env.state_size + 1) * num_envs, dtype) for _ in range(2)]
        self.elapsed_steps = [zeros(num_envs, np.uint32) for _ in range(2)]
        self.words = zeros(2 * num_envs, np.uint32)

    @property
    def state(self) -> DeviceArray:
        """The present state rows and returns."""
        return self.states[0]

    @property
    def clock(self) -> DeviceArray:
        """The present steps of the running episodes."""
        return self.elapsed_steps[0]

    def exchange(self) -> None:
        """What the last step has written becomes the present."""
        self.states.reverse()
        self.elapsed_steps.reverse()

    def advance(self, steps: int) -> None:
        """Move the counter of random numbers on."""
        self.counter = (self.counter + steps) % 2**32

    def get_state(self) -> DeviceArray:
        """(num_envs, state_size), a copy."""
        count = self.size * self.num_envs
        copy = empty(count, self.state.dtype)
        copy.memory.copy_to_device(self.state.memory[:count])
        return copy.view((self.size, self.num_envs)).T

    def set_state(self, state: npt.NDArray[Any]) -> None:
        """Copy (num_envs, state_size) in; finished episodes become running ones."""
        elapsed = self.elapsed()
        rows = self.state.copy_to_host().reshape(self.size + 1, -1)
        rows[:-1] = state.T
        rows[-1, elapsed == PENDING] = 0.0
        elapsed[elapsed == PENDING] = 0
        self.states[0] = from_host(rows.reshape(-1))
        self.elapsed_steps[0] = from_host(elapsed)

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """(num_envs,) steps of the running episodes, on the host; `PENDING` where finished."""
        return self.clock.copy_to_host()

    def finished(self) -> tuple[int, DeviceArray]:
        """How many episodes have finished and wait for their reset, and which: (num_envs,) bool."""
        mask, count = empty(self.num_envs, np.bool_), zeros(1, np.int32)
        launch(finished_kernel(), self.num_envs, self.clock, mask, count)
        return int(count.copy_to_host()[0]), mask

    def seed(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start the streams of the masked environments anew, from one seed each."""
        if not mask.any():
            return
        fresh = keys(seeds)
        fresh[0] -= np.uint32(self.counter * int(GOLDEN) % 2**32)
        if not mask.all():
            fresh = np.where(mask, fresh, self.words.copy_to_host().reshape(2, -1))
        self.words = from_host(fresh.reshape(-1))
