"""Fused simulation and inference on the device: what `rlcpu.collect` and `rlcpu.simulate` call."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.cuda.arrays import DeviceArray, empty, from_host
from rlcpu.cuda.envs.decide import network_of, pack_policy
from rlcpu.cuda.envs.rollout import BLOCK, FLUSH, Key, collect_kernel, simulate_kernel
from rlcpu.cuda.launch import launch, launch_grid
from rlcpu.cuda.provider import SIMULATED
from rlcpu.envs.policies import PolicyArrays, PolicyCode

Array = npt.NDArray[Any]
#: The simulator runs a thread of the operating system for each thread of a block.
_BLOCK = 4 if SIMULATED else BLOCK


class Rollout:
    """T steps of N environments, time-major, on the device; F is the number of finished episodes.

    The attributes are those of `rlcpu.Rollout`. What has T, N or both in its shape is a
    `DeviceArray`; the four arrays of length F, in time-major order, are computed on the host when
    they are first asked for, which copies the flags there.
    """

    def __init__(self, env: Any, num_steps: int) -> None:
        n, size = env.num_envs, env.dynamics.observation_size
        steps, width = (num_steps, n), env.single_action_space.shape
        action = np.int64 if env.dynamics.is_discrete else np.float32
        self.observations: DeviceArray = empty((*steps, size), np.float32)
        self.actions: DeviceArray = empty((*steps, *width), action)
        self.log_probs: DeviceArray = empty(steps, np.float32)
        self.values: DeviceArray = empty(steps, np.float32)
        self.rewards: DeviceArray = empty(steps, env.dtype)
        self._flags: DeviceArray = empty((2, *steps), np.bool_)
        self._finals: DeviceArray = empty((*steps, size), np.float32)
        self._totals: DeviceArray = empty(steps, env.dtype)
        self._lengths: DeviceArray = empty(steps, np.uint32)
        self.final_values: DeviceArray = empty(steps, np.float32)
        self.last_observations: DeviceArray = empty((n, size), np.float32)
        self.last_values: DeviceArray = empty(n, np.float32)

    @property
    def terminated(self) -> DeviceArray:
        """(T, N) bool, whether the episode ended with this step."""
        return self._flags.view(self._flags.shape[1:])

    @property
    def truncated(self) -> DeviceArray:
        """(T, N) bool, whether the episode was cut off with this step."""
        shape = self._flags.shape[1:]
        return self._flags.view(shape, shape[0] * shape[1])

    @functools.cached_property
    def _ends(self) -> Array:
        """(F,) int64, step * N + environment of each end."""
        flags = self._flags.copy_to_host()
        return np.flatnonzero(flags[0] | flags[1])

    @functools.cached_property
    def final_indices(self) -> Array:
        """(F, 2) int64, [step, environment] of each end."""
        return np.stack(np.unravel_index(self._ends, self._flags.shape[1:]), axis=1)

    @functools.cached_property
    def final_observations(self) -> Array:
        """(F, observation_size) float32, what the ending steps led to."""
        finals = self._finals.copy_to_host()
        return finals.reshape(-1, finals.shape[-1])[self._ends]

    @functools.cached_property
    def episode_returns(self) -> Array:
        """(F,) float64."""
        return self._totals.copy_to_host().ravel()[self._ends].astype(np.float64)

    @functools.cached_property
    def episode_lengths(self) -> Array:
        """(F,) int64, in steps."""
        return self._lengths.copy_to_host().ravel()[self._ends].astype(np.int64)

    def outputs(self) -> tuple[DeviceArray, ...]:
        """What `collect_kernel` writes, in its order; forgets what was computed of it."""
        for name in ("_ends", "final_indices", "final_observations", "episode_returns"):
            self.__dict__.pop(name, None)
        self.__dict__.pop("episode_lengths", None)
        return (
            *(self.observations, self.actions, self.log_probs, self.values, self.rewards),
            *(self._flags, self._finals, self._totals, self._lengths),
            *(self.final_values, self.last_observations, self.last_values),
        )


def collect(
    env: Any, code: PolicyCode, arrays: PolicyArrays, num_steps: int, out: Rollout | None
) -> Rollout:
    """See `rlcpu.collect`.

    Raises:
        TypeError, ValueError: `out` is no rollout of the device, or of another shape.
    """
    rollout = Rollout(env, num_steps) if out is None else out
    if not isinstance(rollout, Rollout):
        raise TypeError(f"out={type(out).__name__}: expected a Rollout of the device")
    shape = (num_steps, env.num_envs)
    size = env.dynamics.observation_size
    if rollout.rewards.shape != shape or rollout.rewards.dtype != env.dtype:
        raise ValueError(
            f"out has {rollout.rewards.shape} steps and environments of {rollout.rewards.dtype}: "
            f"expected {shape} of {env.dtype}"
        )
    if rollout.observations.shape[2:] != (size,):
        raise ValueError(f"out has other spaces than {env.dynamics.id}")
    key, inputs = _inputs(env, code, arrays)
    launch(collect_kernel(key), env.num_envs, *inputs, num_steps, *rollout.outputs(), block=_BLOCK)
    env.memory.advance(num_steps)
    return rollout


def simulate(
    env: Any, code: PolicyCode, arrays: PolicyArrays, num_steps: int
) -> tuple[int, float, float, int]:
    """Episodes that ended, the sums of their returns and of the squares, and of their lengths."""
    if code.value == "separate":  # of which nothing is seen
        code = code._replace(value="none")
        arrays = arrays._replace(
            value_weights=arrays.weights[:0], value_sizes=np.zeros(1, np.int64)
        )
    key, inputs = _inputs(env, code, arrays)
    blocks, done = -(-env.num_envs // _BLOCK), 0
    episodes = steps = 0
    total = squares = 0.0
    while done < num_steps:
        part = min(FLUSH, num_steps - done)
        returns, counts = empty((2, blocks), env.dtype), empty((2, blocks), np.uint32)
        inputs[6] = env.memory.counter
        launch_grid(simulate_kernel(key), blocks, _BLOCK, *inputs, part, returns, counts)
        env.memory.advance(part)
        sums = returns.copy_to_host().sum(axis=1, dtype=np.float64)
        ends = counts.copy_to_host().sum(axis=1, dtype=np.int64)
        total, squares = total + float(sums[0]), squares + float(sums[1])
        episodes, steps = episodes + int(ends[0]), steps + int(ends[1])
        done += part
    return episodes, total, squares, steps


def _inputs(env: Any, code: PolicyCode, arrays: PolicyArrays) -> tuple[Key, list[Any]]:
    """The key and the first arguments of the drivers."""
    network = network_of(arrays, code)
    memory = env.memory
    return Key(env.code, env.scalar_type, code, network), [
        *(memory.state, memory.words, memory.clock, env.numbers, env.bounds),
        *(from_host(pack_policy(arrays, network)), memory.counter, memory.limit),
        *(bool(arrays.settings[1]), 0),
    ]


def summary(
    num_steps: int, sums: tuple[int, float, float, int]
) -> tuple[int, int, float, float, float]:
    """The fields of `rlcpu.Statistics`."""
    episodes, total, squares, steps = sums
    if episodes == 0:
        return num_steps, 0, math.nan, math.nan, math.nan
    mean = total / episodes
    std = math.sqrt(max(squares / episodes - mean * mean, 0.0))
    return num_steps, episodes, mean, std, steps / episodes
