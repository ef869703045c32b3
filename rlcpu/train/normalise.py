"""Running statistics that observations and rewards are normalised by."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.collect import Rollout

Array = npt.NDArray[Any]
#: Normalised rewards are clipped to +- this, as stable-baselines3's and CleanRL's are.
CLIP = 10.0


class Normalizer:
    """Mean and variance of all rows added so far.

    Source: Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing
    sample variances".
    """

    def __init__(self, size: int) -> None:
        self.count = np.zeros(1, np.int64)  # rows so far
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)  # sums of squared deviations from the mean

    def state(self) -> dict[str, Array]:
        """Return its arrays, by name."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def add(self, rows: Array) -> None:
        """Add rows (n, size)."""
        before = int(self.count[0])
        count = before + len(rows)
        mean = rows.mean(axis=0, dtype=np.float64)
        squares = ((rows - mean) ** 2).sum(axis=0)
        delta = mean - self.mean
        self.mean += delta * (len(rows) / count)
        self.squares += squares + delta**2 * (before * len(rows) / count)
        self.count[0] = count

    def scale(self) -> Array:
        """Return one over the standard deviation, (size,) float64."""
        return 1.0 / np.sqrt(self.squares / max(int(self.count[0]), 1) + 1e-8)

    def normalise(self, policy: Any, observations: Array) -> None:
        """Add observations (..., size), and let a policy normalise by all so far from now on."""
        self.add(observations.reshape(-1, observations.shape[-1]))
        policy.observation_mean[:] = self.mean
        policy.observation_scale[:] = self.scale()


class RewardNormalizer:
    """Deviation of the discounted returns so far, by which rewards are divided.

    The return of an environment, discount * return + reward after each step, begins anew with each
    episode. Source: stable-baselines3's `VecNormalize`.
    """

    def __init__(self, num_envs: int) -> None:
        self.returns = np.zeros(num_envs)  # of the running episodes
        self.statistics = Normalizer(1)  # of the returns after all steps

    def state(self) -> dict[str, Array]:
        """Return its arrays, by name."""
        return {"returns": self.returns, **self.statistics.state()}

    def add(self, rollout: Rollout, gamma: float) -> None:
        """Add the rewards of a rollout of N environments."""
        returns = np.empty(rollout.rewards.shape)
        continues = ~(rollout.terminated | rollout.truncated)
        for t, rewards in enumerate(rollout.rewards):
            returns[t] = gamma * self.returns + rewards
            np.multiply(returns[t], continues[t], out=self.returns)
        self.statistics.add(returns.reshape(-1, 1))

    def divide(self, rewards: Array, n_step: int = 1) -> Array:
        """Return rewards, or sums of `n_step`, over the deviation, within +-10 n_step, float32."""
        most = np.float32(CLIP * n_step)
        scaled: Array = np.clip(rewards * self.statistics.scale(), -most, most).astype(np.float32)
        return scaled
