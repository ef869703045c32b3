"""PPO in one file: PyTorch learns, rlcpu collects and adds up (Schulman et al. 2017).

The module's parameters are the policy's memory: `rlcpu.collect` acts with what the optimiser's last
step made of them, and nothing is copied.

    python examples/ppo_torch.py
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import nn
from torch.distributions import Categorical, Independent, Normal

import rlcpu
from rlcpu.adapters.torch import ActorCritic, TensorRollout, as_tensors, to_torch


@dataclasses.dataclass
class Args:
    """Settings; each is an option of the command line."""

    env_id: str = "CartPole-v1"
    total_steps: int = 200_000
    seed: int = 0
    num_envs: int = 64
    num_steps: int = 64
    epochs: int = 8
    minibatches: int = 8
    learning_rate: float = 2e-3
    gamma: float = 0.98
    gae_lambda: float = 0.9
    clip: float = 0.2
    entropy_weight: float = 0.005
    value_weight: float = 0.5
    max_gradient_norm: float = 0.5


def distribution(
    module: ActorCritic, outputs: torch.Tensor, is_discrete: bool
) -> torch.distributions.Distribution:
    """What the policy draws actions from."""
    if is_discrete:
        return Categorical(logits=outputs)
    return Independent(Normal(outputs, module.log_std.exp()), 1)


def update(
    module: ActorCritic,
    optimizer: torch.optim.Adam,
    rollout: TensorRollout,
    args: Args,
    is_discrete: bool,
) -> float:
    """Several epochs over a rollout; the mean entropy of the last minibatch."""
    advantages, returns = rlcpu.scan.gae(
        rollout.rewards.numpy(),
        rollout.values.numpy(),
        rollout.terminated.numpy(),
        rollout.truncated.numpy(),
        rollout.last_values.numpy(),
        gamma=args.gamma,
        lambda_=args.gae_lambda,
        final_values=rollout.final_values.numpy(),
    )
    columns = (
        rollout.observations,
        rollout.actions,
        rollout.log_probs,
        *map(torch.from_numpy, (advantages, returns)),
    )
    flat = [column.flatten(0, 1) for column in columns]
    count = len(flat[0])
    entropy = torch.zeros(())
    for _ in range(args.epochs):
        for rows in torch.randperm(count).chunk(args.minibatches):
            seen, action, old, advantage, target = (column[rows] for column in flat)
            outputs, value = module(seen)
            choice = distribution(module, outputs, is_discrete)
            ratio = (choice.log_prob(action) - old).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
            gain = torch.min(ratio * advantage, clipped * advantage).mean()
            entropy = choice.entropy().mean()
            error = (value - target).square().mean()
            loss = args.value_weight * error - gain - args.entropy_weight * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), args.max_gradient_norm)
            optimizer.step()
    return float(entropy.detach())


def main(argv: list[str] | None = None) -> float:
    """Learn, and return the mean return of 64 environments' greedy episodes."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for field in dataclasses.fields(Args):
        kind = type(field.default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    args = Args(**vars(parser.parse_args(argv)))
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # networks this small gain nothing from more

    env = rlcpu.make_vec(args.env_id, args.num_envs)
    env.reset(seed=args.seed)
    space = env.single_action_space
    policy = rlcpu.policies.MLP(env.single_observation_space, space, seed=args.seed)
    module = to_torch(policy)
    optimizer = torch.optim.Adam(module.parameters(), args.learning_rate, eps=1e-5)

    finished: list[float] = []
    per_round = args.num_envs * args.num_steps
    rounds = max(args.total_steps // per_round, 1)
    rollout = None
    for number in range(1, rounds + 1):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - (number - 1) / rounds)
        rollout = rlcpu.collect(env, policy, args.num_steps, out=rollout)
        finished += rollout.episode_returns.tolist()
        entropy = update(module, optimizer, as_tensors(rollout), args, isinstance(space, Discrete))
        if number % 10 == 0 or number == rounds:
            mean = np.mean(finished[-100:]) if finished else float("nan")
            print(f"{number * per_round:>9,} steps: mean return {mean:.1f}, entropy {entropy:.3f}")

    policy.deterministic = True
    test = rlcpu.make_vec(args.env_id, args.num_envs)
    test.reset(seed=args.seed + 1_000_000)
    score = rlcpu.simulate(test, policy, 2 * (test.max_episode_steps or 1000)).mean_return
    print(f"greedy: {score:.1f}")
    return score


if __name__ == "__main__":
    main()
