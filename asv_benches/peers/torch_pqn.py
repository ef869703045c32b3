"""PQN as one writes it in torch: a loop in Python over Gymnasium's environments.

The program that rlcpu's is compared with: the settings of CleanRL's `pqn.py`, its network
(4-120-84-2, layers normalised in front of their ReLU) and its optimiser, in code of our own.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from torch import nn


def make_network(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size, units in ((inputs, 120), (120, 84)):
        layers += [nn.Linear(size, units), nn.LayerNorm(units), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(84, outputs))
    for layer in network:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, 2**0.5)
            nn.init.zeros_(layer.bias)
    return network


class TorchPQN:
    """Learns CartPole-v1 in 4 environments; `total` steps are those of its schedules."""

    num_envs, num_steps, epochs, minibatches = 4, 128, 4, 4
    gamma, lambda_, learning_rate = 0.99, 0.65, 2.5e-4

    def __init__(self, seed: int = 0, total: int = 500_000) -> None:
        torch.manual_seed(seed)
        self.rng, self.steps, self.total = np.random.default_rng(seed), 0, total
        self.env = gymnasium.vector.SyncVectorEnv(
            [lambda: gymnasium.make("CartPole-v1")] * self.num_envs,
            autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
        )
        self.network = make_network(4, 2)
        self.optimiser = torch.optim.RAdam(self.network.parameters(), lr=self.learning_rate)
        self.seen, _ = self.env.reset(seed=seed)
        shape = self.num_steps, self.num_envs
        self.observations = torch.zeros((*shape, 4))
        self.actions = torch.zeros(shape, dtype=torch.long)
        self.rewards, self.values, self.terminated, self.ended, self.finals = (
            torch.zeros(shape) for _ in range(5)
        )

    def learn(self, steps: int) -> None:
        last = self.steps + steps
        while self.steps < last:
            self.optimiser.param_groups[0]["lr"] = self.learning_rate * max(
                1e-3, 1.0 - self.steps / self.total
            )
            self.collect()
            self.update(self.find_returns())

    @torch.no_grad()
    def collect(self) -> None:
        for t in range(self.num_steps):
            epsilon = max(0.05, 1.0 - 0.95 * self.steps / (0.5 * self.total))
            self.observations[t] = torch.from_numpy(self.seen)
            values, actions = self.network(self.observations[t]).max(dim=1)
            explores = torch.from_numpy(self.rng.random(self.num_envs) < epsilon)
            drawn = torch.from_numpy(self.rng.integers(2, size=self.num_envs))
            self.values[t], self.actions[t] = values, torch.where(explores, drawn, actions)
            self.seen, rewards, terminated, truncated, infos = self.env.step(
                self.actions[t].numpy()
            )
            self.rewards[t] = torch.from_numpy(rewards)
            self.terminated[t] = torch.from_numpy(terminated)
            self.ended[t] = torch.from_numpy(terminated | truncated)
            self.finals[t] = 0.0
            for i in np.flatnonzero(truncated & ~terminated):  # values of what they led to
                final = torch.from_numpy(infos["final_obs"][i])
                self.finals[t, i] = self.network(final[None]).max()
            self.steps += self.num_envs

    @torch.no_grad()
    def find_returns(self) -> torch.Tensor:
        after = self.network(torch.from_numpy(self.seen)).max(dim=1).values
        following, returns = after, torch.zeros_like(self.rewards)
        for t in reversed(range(self.num_steps)):
            mixed = (1.0 - self.lambda_) * after + self.lambda_ * following
            mixed = torch.where(self.ended[t] > 0, self.finals[t], mixed)
            returns[t] = self.rewards[t] + self.gamma * mixed * (1.0 - self.terminated[t])
            following, after = returns[t], self.values[t]
        return returns

    def update(self, returns: torch.Tensor) -> None:
        observations, actions = self.observations.view(-1, 4), self.actions.view(-1)
        targets, count = returns.view(-1), returns.numel()
        for _ in range(self.epochs):
            for rows in torch.randperm(count).chunk(self.minibatches):
                values = self.network(observations[rows]).gather(1, actions[rows, None])[:, 0]
                loss = nn.functional.mse_loss(values, targets[rows])
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
                self.optimiser.step()
