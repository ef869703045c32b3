"""PyTorch beside Gymnasium's CartPoleVectorEnv: the collection loop of a good single-file PPO.

What single-file implementations leave on the table is taken here: one network with three outputs in
place of two, no `torch.distributions` objects, `inference_mode`, tensors that share memory with
NumPy's arrays, buffers allocated once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asv_benches.peers.duel import Best


@dataclass
class TorchCollect:
    """`num_steps` steps of CartPole under an MLP with shared value head, everything recorded.

    Attributes:
        name: the variant.
        num_envs: number of environments.
        num_steps: steps per call.
        activation: "relu" or "tanh".
        num_threads: PyTorch's.
    """

    name: str
    num_envs: int
    num_steps: int
    activation: str
    num_threads: int
    _buffers: Any = field(default=None, repr=False)

    @property
    def work(self) -> float:
        """Environment steps per call."""
        return self.num_envs * self.num_steps

    def setup(self) -> None:
        """Makes the environment, the network and the buffers."""
        import gymnasium
        import torch

        torch.manual_seed(0)
        activation = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}[self.activation]
        layers = [torch.nn.Linear(4, 64), activation(), torch.nn.Linear(64, 64), activation()]
        self._network = torch.nn.Sequential(*layers, torch.nn.Linear(64, 3))
        self._env = gymnasium.make_vec(
            "CartPole-v1", self.num_envs, vectorization_mode="vector_entry_point"
        )
        self._observations, _ = self._env.reset(seed=0)
        shape = (self.num_steps, self.num_envs)
        self._buffers = {
            "observations": torch.zeros((*shape, 4)),
            "actions": torch.zeros(shape, dtype=torch.int64),
            **{name: torch.zeros(shape) for name in ("log_probs", "values", "rewards")},
            **{name: torch.zeros(shape, dtype=torch.bool) for name in ("terminated", "truncated")},
        }

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[int]:
        """Nothing but the number of rollouts: the generators and the environment run on."""
        return range(count)

    def run(self, inputs: Iterable[int]) -> None:
        """One rollout for each input."""
        import torch

        torch.set_num_threads(self.num_threads)
        with torch.inference_mode():
            for _ in inputs:
                for t in range(self.num_steps):
                    self._step(t)

    def _step(self, t: int) -> None:
        import torch

        buffers = self._buffers
        observations = torch.from_numpy(self._observations)
        outputs = self._network(observations)
        log_softmax = torch.log_softmax(outputs[:, :2], 1)
        actions = torch.multinomial(log_softmax.exp(), 1)
        step = self._env.step(actions[:, 0].numpy())
        self._observations, rewards, terminated, truncated, _ = step
        buffers["observations"][t] = observations
        buffers["actions"][t] = actions[:, 0]
        buffers["log_probs"][t] = log_softmax.gather(1, actions)[:, 0]
        buffers["values"][t] = outputs[:, 2]
        buffers["rewards"][t] = torch.from_numpy(rewards)
        buffers["terminated"][t] = torch.from_numpy(terminated)
        buffers["truncated"][t] = torch.from_numpy(truncated)


def torch_collect(num_envs: int, num_steps: int, activation: str) -> Best:
    """PyTorch with the number of threads that suits it here."""
    variants = [
        TorchCollect(f"{threads} threads", num_envs, num_steps, activation, threads)
        for threads in (1, 2)
    ]
    return Best("torch + CartPoleVectorEnv", variants)
