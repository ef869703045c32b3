"""Running statistics that observations and rewards are normalised by.

Rounds in Python and those of a kernel add to them, and normalise, by the same compiled functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.rollout.collect import Rollout
from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.stages import LastMade, Stage
from rlcpu.kernels.machine.structs import Array, Flag, Real, Struct, Whole

Numbers = npt.NDArray[Any]
f32 = np.float32
#: Normalised rewards are clipped to +- this, as stable-baselines3's and CleanRL's are.
CLIP = 10.0


# ---------------------------------------------------------------- compiled functions


@inline(exact=True)
def _add_number(number, share, mean, squares, k):
    """Add a number to entry k of `mean` and `squares`; `share` is one over how many it has then.

    Source: Welford 1962, "Note on a method for calculating corrected sums of squares and products".
    """
    before = number - mean[k]
    mean[k] += before * share
    squares[k] += before * (number - mean[k])


@inline(exact=True)
def _scale_of(squares, count):
    """Return one over the standard deviation."""
    return 1.0 / np.sqrt(squares / max(count, 1) + 1e-8)


class ObservedRows(Struct):
    """Argument of `add_observations`."""

    num_rows = Whole()
    stride = Whole()  #: numbers from one row to the next
    rows = Array(np.float32)
    size = Whole()  #: numbers of a row that are added, the first ones
    count = Array(np.int64, 1)  #: statistics, see `Normalizer`
    mean = Array(np.float64, "size")
    squares = Array(np.float64, "size")
    shift = Array(np.float32, "size")  #: by which networks see observations: (row - shift) * scale
    scale = Array(np.float32, "size")


def add_observations(observed):
    """Add rows to their statistics, and write the shift and the scale of all rows so far."""
    count, mean, squares = observed.count, observed.mean, observed.squares
    size, rows, shift, scale = observed.size, observed.rows, observed.shift, observed.scale
    for i in range(observed.num_rows):
        count[0] += 1
        share, begin = 1.0 / count[0], i * observed.stride
        for k in range(size):
            _add_number(np.float64(rows[begin + k]), share, mean, squares, k)
    for k in range(size):
        shift[k] = mean[k]
        scale[k] = _scale_of(squares[k], count[0])


class RewardSteps(Struct):
    """Argument of `add_rewards`: T steps of N environments."""

    num_steps = Whole()
    num_envs = Whole()
    rewards = Array(np.float32, "num_steps", "num_envs")
    terminated = Array(np.bool_, "num_steps", "num_envs")
    truncated = Array(np.bool_, "num_steps", "num_envs")
    gamma = Real()
    returns = Array(np.float64, "num_envs")  #: discounted, of the running episodes
    count = Array(np.int64, 1)  #: statistics of the returns after all steps
    mean = Array(np.float64, 1)
    squares = Array(np.float64, 1)


def add_rewards(steps):
    """Add rewards to the returns of the running episodes, and these to their statistics."""
    count, returns, gamma = steps.count, steps.returns, steps.gamma
    for t in range(steps.num_steps):
        for i in range(steps.num_envs):
            total = gamma * returns[i] + steps.rewards[t, i]
            count[0] += 1
            _add_number(total, 1.0 / count[0], steps.mean, steps.squares, 0)
            returns[i] = 0.0 if steps.terminated[t, i] or steps.truncated[t, i] else total


class LearntRewards(Struct):
    """Argument of `scale_rewards`."""

    size = Whole()
    rewards = Array(np.float32, "size")
    learnt = Array(np.float32, "size")  #: overwritten
    is_normalised = Flag()
    count = Array(np.int64, 1)  #: statistics of discounted returns
    squares = Array(np.float64, 1)
    limit = Real()  #: of the absolute value of a normalised reward
    factor = Real()  #: by which rewards are multiplied at last


def scale_rewards(scaled):
    """Write rewards as they are learnt: over the deviation of returns and clipped, and scaled."""
    rewards, learnt, factor = scaled.rewards, scaled.learnt, f32(scaled.factor)
    if scaled.is_normalised:
        scale, limit = _scale_of(scaled.squares[0], scaled.count[0]), scaled.limit
        for i in range(scaled.size):
            reward = rewards[i] * scale
            reward = limit if reward > limit else -limit if reward < -limit else reward
            learnt[i] = f32(reward) * factor
    else:
        for i in range(scaled.size):
            learnt[i] = rewards[i] * factor


# ---------------------------------------------------------------- what agents have


class Normalizer:
    """Mean and variance of all rows added so far."""

    def __init__(self, size: int) -> None:
        self._last = LastMade()
        self.count = np.zeros(1, np.int64)  # rows so far
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)  # sums of squared deviations from the mean

    def state(self) -> dict[str, Numbers]:
        """Return its arrays, by name."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def adding(self, policy: Any, rows: Numbers) -> Stage:
        """Return what adds rows (n, size), and lets a policy normalise by all so far.

        They are float32, and may be columns of wider rows; later calls of the stage read them
        again.
        """
        observed = ObservedRows(
            num_rows=len(rows),
            stride=rows.strides[0] // rows.itemsize,
            rows=rows.ctypes.data,
            size=rows.shape[1],
            shift=policy.observation_mean,
            scale=policy.observation_scale,
            **self.state(),
        )
        return Stage(add_observations, observed, alive=rows)

    def normalise(self, policy: Any, observations: Numbers) -> None:
        """Add observations (..., size), and let a policy normalise by all so far from now on."""
        rows = observations.reshape(-1, observations.shape[-1])
        is_read_in_place = rows.dtype == np.float32 and rows.strides[1] == rows.itemsize
        rows = rows if is_read_in_place else np.ascontiguousarray(rows, np.float32)
        written = id(policy.observation_mean), id(policy.observation_scale)
        place = rows.__array_interface__["data"][0], rows.shape, rows.strides
        self._last.of("rows", (*written, *place), self.adding, policy, rows)()


class RewardNormalizer:
    """Deviation of the discounted returns so far, by which rewards are divided.

    The return of an environment, discount * return + reward after each step, begins anew with each
    episode. Source: stable-baselines3's `VecNormalize`.
    """

    def __init__(self, num_envs: int) -> None:
        self._last = LastMade()
        self.returns = np.zeros(num_envs)  # of the running episodes
        self.statistics = Normalizer(1)  # of the returns after all steps

    def state(self) -> dict[str, Numbers]:
        """Return its arrays, by name."""
        return {"returns": self.returns, **self.statistics.state()}

    def adding(
        self, rewards: Numbers, terminated: Numbers, truncated: Numbers, gamma: float
    ) -> Stage:
        """Return what adds rewards (T, N), float32, of N environments; flags are (T, N) bool."""
        num_steps, num_envs = rewards.shape
        steps = RewardSteps(
            num_steps=num_steps,
            num_envs=num_envs,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            gamma=gamma,
            **self.state(),
        )
        return Stage(add_rewards, steps)

    def add(self, rollout: Rollout, gamma: float) -> None:
        """Add the rewards of a rollout of N environments."""
        arrays = (
            np.ascontiguousarray(rollout.rewards, np.float32),
            np.ascontiguousarray(rollout.terminated),
            np.ascontiguousarray(rollout.truncated),
        )
        self._last.of("rewards", (*map(id, arrays), gamma), self.adding, *arrays, gamma)()

    def scaling(
        self, rewards: Numbers, is_normalised: bool, n_step: int, factor: float
    ) -> tuple[Stage, Numbers]:
        """Return what writes rewards, float32 sums of `n_step`, as they are learnt; and its array.

        Args:
            rewards: contiguous; later calls of the stage read them again.
            is_normalised: whether they are divided by the deviation, and within +-10 n_step then.
            n_step: how many rewards each is the sum of.
            factor: by which they are multiplied at last.
        """
        learnt = np.empty_like(rewards)
        scaled = LearntRewards(
            size=rewards.size,
            rewards=rewards.reshape(-1),
            learnt=learnt.reshape(-1),
            is_normalised=is_normalised,
            count=self.statistics.count,
            squares=self.statistics.squares,
            limit=CLIP * n_step,
            factor=factor,
        )
        return Stage(scale_rewards, scaled), learnt
