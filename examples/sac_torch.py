"""SAC in one file, with a learned temperature (Haarnoja et al. 2018).

PyTorch learns; the environments and the buffer are rlcpu's. Batches are tensors over the memory
that the buffer draws into.

    python examples/sac_torch.py
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

import rlcpu
from rlcpu.adapters.torch import as_tensors


@dataclasses.dataclass
class Args:
    """Settings; each is an option of the command line."""

    env_id: str = "Pendulum-v1"
    total_steps: int = 12_000
    seed: int = 0
    num_envs: int = 4
    updates: int = 4  # after each step of all environments
    learning_starts: int = 500
    capacity: int = 50_000
    batch_size: int = 128
    hidden: int = 64
    learning_rate: float = 2e-3
    gamma: float = 0.95
    tau: float = 0.01


def network(inputs: int, outputs: int, hidden: int) -> nn.Sequential:
    """Two hidden layers."""
    layers = (nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(hidden, outputs))


class Actor(nn.Module):
    """A Gaussian whose draws are squashed into (-1, 1)."""

    def __init__(self, inputs: int, size: int, hidden: int) -> None:
        super().__init__()
        self.network = network(inputs, 2 * size, hidden)

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Actions drawn, their log-probabilities, and the most likely actions."""
        mean, log_std = self.network(seen).chunk(2, -1)
        normal = Normal(mean, log_std.clamp(-20, 2).exp())
        drawn = normal.rsample()
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x))
        squashing = 2 * (np.log(2) - drawn - nn.functional.softplus(-2 * drawn))
        log_prob = (normal.log_prob(drawn) - squashing).sum(-1)
        return drawn.tanh(), log_prob, mean.tanh()


class Agent:
    """Actor, two critics with their targets, and the temperature."""

    def __init__(self, inputs: int, size: int, args: Args) -> None:
        self.args, self.size = args, size
        self.actor = Actor(inputs, size, args.hidden)
        self.critics = [network(inputs + size, 1, args.hidden) for _ in range(2)]
        self.targets = [network(inputs + size, 1, args.hidden) for _ in range(2)]
        for slow, fast in zip(self.targets, self.critics, strict=True):
            slow.load_state_dict(fast.state_dict())
        self.log_alpha = torch.zeros((), requires_grad=True)
        values = [tensor for critic in self.critics for tensor in critic.parameters()]
        groups = values, list(self.actor.parameters()), [self.log_alpha]
        self.optimizers = [torch.optim.Adam(group, args.learning_rate) for group in groups]
        self.values = values

    def smallest(
        self, networks: list[nn.Sequential], seen: torch.Tensor, action: torch.Tensor
    ) -> torch.Tensor:
        """The smaller of two critics' values."""
        pairs = torch.cat([seen, action], -1)
        return torch.min(*(each(pairs)[:, 0] for each in networks))

    def step(self, optimizer: torch.optim.Adam, loss: torch.Tensor) -> None:
        """Minimise a loss."""
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def update(self, data: dict[str, torch.Tensor]) -> None:
        """One step of the critics, the actor and the temperature."""
        alpha, (of_values, of_actor, of_alpha) = self.log_alpha.exp().detach(), self.optimizers
        seen, following = data["observation"], data["next_observation"]
        with torch.no_grad():
            action, log_prob, _ = self.actor(following)
            after = self.smallest(self.targets, following, action) - alpha * log_prob
            goals = data["reward"] + self.args.gamma * (~data["terminated"]).float() * after
        pairs = torch.cat([seen, data["action"]], -1)
        errors = [(critic(pairs)[:, 0] - goals).square().mean() for critic in self.critics]
        self.step(of_values, errors[0] + errors[1])

        for tensor in self.values:  # the actor's loss needs their slopes by the action alone
            tensor.requires_grad_(False)
        action, log_prob, _ = self.actor(seen)
        self.step(of_actor, (alpha * log_prob - self.smallest(self.critics, seen, action)).mean())
        for tensor in self.values:
            tensor.requires_grad_(True)
        self.step(of_alpha, -(self.log_alpha * (log_prob.detach() - self.size)).mean())

        with torch.no_grad():
            for target, critic in zip(self.targets, self.critics, strict=True):
                for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                    slow.lerp_(fast, self.args.tau)

    def act(self, observation: np.ndarray, greedy: bool = False) -> np.ndarray:
        """Actions in (-1, 1), (num_envs, action_size) float32."""
        with torch.no_grad():
            drawn, _, best = self.actor(torch.from_numpy(observation))
        return (best if greedy else drawn).numpy()


def evaluate(agent: Agent, scale: np.ndarray, args: Args) -> float:
    """Mean return of one greedy episode in each of 100 environments."""
    env = rlcpu.make_vec(args.env_id, 100)
    observation, _ = env.reset(seed=args.seed + 1_000_000)
    total, running = np.zeros(100), np.ones(100, bool)
    while running.any():
        actions = agent.act(observation, greedy=True) * scale
        observation, reward, terminated, truncated, _ = env.step(actions)
        total += reward * running
        running &= ~(terminated | truncated)
    return float(total.mean())


def main(argv: list[str] | None = None) -> float:
    """Learn, and return the mean return of 100 greedy episodes."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for field in dataclasses.fields(Args):
        kind = type(field.default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    args = Args(**vars(parser.parse_args(argv)))
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # networks this small gain nothing from more
    rng = np.random.default_rng(args.seed)

    # An episode's end and the reset are one step; what it led to is in the infos.
    env = rlcpu.make_vec(args.env_id, args.num_envs, autoreset_mode="SameStep")
    scale = env.single_action_space.high  # of a Box that is symmetric about 0
    inputs, size = env.single_observation_space.shape[0], scale.size
    agent = Agent(inputs, size, args)
    seen = np.zeros(inputs, np.float32)
    example = {
        "observation": seen,
        "action": np.zeros(size, np.float32),
        "reward": np.float32(0),
        "next_observation": seen,
        "terminated": False,
    }
    buffer = rlcpu.replay.ReplayBuffer(
        args.capacity, example, num_envs=args.num_envs, seed=args.seed
    )

    observation, _ = env.reset(seed=args.seed)
    running, finished = np.zeros(args.num_envs), []
    rounds = max(args.total_steps // args.num_envs, 1)
    for number in range(rounds):
        step = number * args.num_envs
        if step < args.learning_starts:
            actions = rng.uniform(-1, 1, (args.num_envs, size)).astype(np.float32)
        else:
            actions = agent.act(observation)
        following, reward, terminated, truncated, infos = env.step(actions * scale)
        reached, ended = following.copy(), terminated | truncated
        for i in np.flatnonzero(ended):
            reached[i] = infos["final_obs"][i]
        transition = (observation, actions, reward, reached, terminated)
        buffer.add(dict(zip(example, transition, strict=True)))
        observation = following
        running += reward
        finished += running[ended].tolist()
        running[ended] = 0

        if step >= args.learning_starts:
            for _ in range(args.updates):
                agent.update(as_tensors(buffer.sample(args.batch_size)).data)
        if finished and (number + 1) % max(rounds // 10, 1) == 0:
            print(f"{step:>9,} steps: mean return {np.mean(finished[-20:]):.1f}")

    score = evaluate(agent, scale, args)
    print(f"greedy: {score:.1f}")
    return score


if __name__ == "__main__":
    main()
