"""PyTorch, eager: CartPole as tensor operations, every step a dozen calls from Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asv_benches.peers.jax_simulate import Lanes, physics
from asv_benches.peers.torch_collect import TorchCollect


@dataclass
class TorchSimulate:
    """One step per call of `num_envs` CartPoles, actions and resets drawn by torch.

    Attributes:
        num_envs: number of environments.
    """

    num_envs: int
    name: str = "torch eager"
    _lanes: Any = field(default=None, repr=False)

    @property
    def work(self) -> float:
        """Environment steps per call."""
        return self.num_envs

    def setup(self) -> None:
        """Random initial states."""
        import torch

        self._torch = torch
        torch.manual_seed(0)
        steps = torch.zeros(self.num_envs, dtype=torch.int32)
        self._lanes = Lanes(*(0.1 * torch.rand(4, self.num_envs) - 0.05), steps, None, None)

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[int]:
        """Nothing but the number of calls."""
        return range(count)

    def run(self, inputs: Iterable[int]) -> None:
        """One step for each input."""
        with self._torch.inference_mode():
            for _ in inputs:
                self._lanes = self.advance(self._lanes)

    def advance(self, lanes: Lanes) -> Lanes:
        """One step and automatic reset."""
        torch = self._torch
        force = 20.0 * (torch.rand(self.num_envs) < 0.5) - 10.0
        state = physics(lanes, force, lambda x: (torch.sin(x), torch.cos(x)))
        steps = lanes.steps + 1
        done = (abs(state[0]) > 2.4) | (abs(state[2]) > 0.20943951) | (steps >= 500)
        fresh = 0.1 * torch.rand(4, self.num_envs) - 0.05
        rows = (torch.where(done, new, old) for new, old in zip(fresh, state, strict=True))
        return Lanes(*rows, torch.where(done, 0, steps), None, None)


@dataclass
class GymCollect(TorchCollect):
    """The usual loop: Gymnasium's scalar environments one after the other, inference by torch."""

    vectorization: str = "sync"

    def setup(self) -> None:
        """The same, other environments."""
        import gymnasium

        super().setup()
        self._env = gymnasium.make_vec(
            "CartPole-v1", self.num_envs, vectorization_mode=self.vectorization
        )
        self._observations, _ = self._env.reset(seed=0)
