"""One new return, then 256 indices without repetition, in proportion to the shifted returns.

The code of the post "8h to gain 26h": with m = min(min(B), 0) and w = B + |m|, an item of return b
is drawn with probability w / sum(w). Its first version recomputes everything with NumPy, its second
one keeps the minimum and draws with torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asv_benches.peers.replay_calls import Arguments, Calls

DRAWS = 256
MEAN, DEVIATION = 50.0, 120.0  # of the returns: a third of them is negative


def returns(rng: np.random.Generator, count: int) -> np.ndarray:
    """Random returns of episodes."""
    return rng.normal(MEAN, DEVIATION, count)


@dataclass
class PostCalls(Calls):
    """A new return takes an old one's place, then `DRAWS` indices are drawn: `size` items.

    Operations: "draw" does both, "weigh" the first with all that follows from it, "choose" the
    second alone.
    """

    def inputs(self, rng: np.random.Generator, count: int) -> list[Arguments]:
        """New returns."""
        return [(value,) for value in returns(rng, count).tolist()]


@dataclass
class NumpyPost(PostCalls):
    """The post's first version, with NumPy's newer generator."""

    def setup(self) -> None:
        """Fills the buffer of returns."""
        self._rng = np.random.default_rng(0)
        self._values = returns(self._rng, self.size)
        self._position = 0
        self._weights = self.probabilities()
        self.choose(draw=self.draw, weigh=self.weigh, choose=self.pick)

    def draw(self, value: float) -> np.ndarray:
        """One step."""
        self._weights = self.weigh(value)
        return self.pick(value)

    def weigh(self, value: float) -> np.ndarray:
        """The probabilities, after a new return."""
        self._values[self._position] = value
        self._position = (self._position + 1) % self.size
        return self.probabilities()

    def probabilities(self) -> np.ndarray:
        """Of the returns as they are."""
        weights = self._values + abs(min(self._values.min(), 0.0))
        return weights / weights.sum()

    def pick(self, value: float) -> np.ndarray:
        """The draw by those probabilities."""
        return self._rng.choice(self.size, DRAWS, replace=False, p=self._weights)


@dataclass
class TorchPost(PostCalls):
    """The post's second version: the minimum is kept, and never rises again."""

    def setup(self) -> None:
        """Fills the buffer of returns, float32."""
        import torch

        self._multinomial = torch.multinomial
        self._values = torch.from_numpy(returns(np.random.default_rng(0), self.size)).float()
        self._lowest = self._values.min().item()
        self._position = 0
        self._weights = self.probabilities()
        self.choose(draw=self.draw, weigh=self.weigh, choose=self.pick)

    def draw(self, value: float) -> object:
        """One step."""
        self._weights = self.weigh(value)
        return self.pick(value)

    def weigh(self, value: float) -> Any:
        """The probabilities, after a new return."""
        self._values[self._position] = value
        self._position = (self._position + 1) % self.size
        self._lowest = min(self._lowest, value)
        return self.probabilities()

    def probabilities(self) -> Any:
        """Of the returns as they are."""
        weights = self._values + abs(min(self._lowest, 0.0))
        return weights / weights.sum()

    def pick(self, value: float) -> object:
        """The draw by those probabilities."""
        return self._multinomial(self._weights, DRAWS, replacement=False)
