"""PyTorch beside Gymnasium's CartPoleVectorEnv: the collection loop of a single-file PPO.

One network with three outputs, `inference_mode`, tensors that share memory with NumPy's arrays and
buffers allocated once are taken for granted. The tuned variant also does without the objects of
`torch.distributions`, which single-file implementations use, and which cost a third of the time.
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
        tuned: without `torch.distributions`.
    """

    name: str
    num_envs: int
    num_steps: int
    activation: str
    num_threads: int
    tuned: bool = False
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
        sample = sample_tuned if self.tuned else sample_categorical
        actions, log_probs = sample(outputs[:, :2])
        step = self._env.step(actions.numpy())
        self._observations, rewards, terminated, truncated, _ = step
        buffers["observations"][t] = observations
        buffers["actions"][t] = actions
        buffers["log_probs"][t] = log_probs
        buffers["values"][t] = outputs[:, 2]
        buffers["rewards"][t] = torch.from_numpy(rewards)
        buffers["terminated"][t] = torch.from_numpy(terminated)
        buffers["truncated"][t] = torch.from_numpy(truncated)


def sample_categorical(logits: Any) -> tuple[Any, Any]:
    """Actions and their log-probabilities (num_envs,), as single-file implementations write it."""
    import torch

    distribution = torch.distributions.Categorical(logits=logits)
    actions = distribution.sample()
    return actions, distribution.log_prob(actions)


def sample_tuned(logits: Any) -> tuple[Any, Any]:
    """The same, without what the distribution's object checks and computes twice."""
    import torch

    log_probs = torch.log_softmax(logits, 1)
    actions = torch.multinomial(log_probs.exp(), 1)
    return actions[:, 0], log_probs.gather(1, actions)[:, 0]


def torch_collect(num_envs: int, num_steps: int, activation: str, tuned: bool = False) -> Best:
    """PyTorch with the number of threads that suits it here."""
    variants = [
        TorchCollect(f"{threads} threads", num_envs, num_steps, activation, threads, tuned)
        for threads in (1, 2)
    ]
    return Best("torch + CartPoleVectorEnv", variants)
