"""DQN in one file: double, n-step, prioritised (van Hasselt et al. 2016, Schaul et al. 2016).

PyTorch learns; the environments and the buffer are rlcpu's. Batches are tensors over the memory
that the buffer draws into.

    python examples/dqn_torch.py
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np
import torch
from torch import nn

import rlcpu
from rlcpu.adapters.torch import TensorBatch, as_tensors


@dataclasses.dataclass
class Args:
    """Settings; each is an option of the command line."""

    env_id: str = "CartPole-v1"
    total_steps: int = 30_000
    seed: int = 0
    num_envs: int = 16
    train_every: int = 4  # steps of all environments
    updates: int = 32
    learning_starts: int = 1_000
    capacity: int = 50_000
    batch_size: int = 128
    learning_rate: float = 2e-3
    gamma: float = 0.99
    n_step: int = 5
    tau: float = 0.02
    alpha: float = 0.6
    beta: float = 0.4
    exploration_steps: int = 12_000
    exploration_final: float = 0.02
    max_gradient_norm: float = 10.0


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Q(s, .)."""
    layers = (nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(64, outputs))


def update(
    online: nn.Module,
    target: nn.Module,
    optimizer: torch.optim.Adam,
    batch: TensorBatch,
    args: Args,
) -> np.ndarray:
    """One step on a batch; returns the sizes of its temporal differences."""
    data = batch.data
    with torch.no_grad():
        best = online(data["next_observation"]).argmax(1, keepdim=True)
        following = target(data["next_observation"]).gather(1, best)[:, 0]
        discounts = args.gamma if batch.discounts is None else batch.discounts
        goals = data["reward"] + discounts * (~data["terminated"]).float() * following
    values = online(data["observation"]).gather(1, data["action"][:, None])[:, 0]
    loss = (batch.weights * nn.functional.smooth_l1_loss(values, goals, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), args.max_gradient_norm)
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
            slow.lerp_(fast, args.tau)
    return (goals - values.detach()).abs().numpy()


def evaluate(online: nn.Module, args: Args) -> float:
    """Mean return of one greedy episode in each of 100 environments."""
    env = rlcpu.make_vec(args.env_id, 100)
    observation, _ = env.reset(seed=args.seed + 1_000_000)
    total, running = np.zeros(100), np.ones(100, bool)
    while running.any():
        with torch.no_grad():
            actions = online(torch.from_numpy(observation)).argmax(1).numpy()
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
    inputs, outputs = env.single_observation_space.shape[0], int(env.single_action_space.n)
    online, target = network(inputs, outputs), network(inputs, outputs)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), args.learning_rate)
    seen = np.zeros(inputs, np.float32)
    buffer = rlcpu.replay.PrioritizedReplayBuffer(
        args.capacity,
        {
            "observation": seen,
            "action": 0,
            "reward": np.float32(0),
            "next_observation": seen,
            "terminated": False,
            "truncated": False,
        },
        num_envs=args.num_envs,
        n_step=args.n_step,
        gamma=args.gamma,
        alpha=args.alpha,
        seed=args.seed,
    )

    observation, _ = env.reset(seed=args.seed)
    running, finished = np.zeros(args.num_envs), []
    rounds = max(args.total_steps // args.num_envs, 1)
    for number in range(rounds):
        step = number * args.num_envs
        epsilon = max(1 - step / args.exploration_steps, 0) * (1 - args.exploration_final)
        epsilon += args.exploration_final
        with torch.no_grad():
            actions = online(torch.from_numpy(observation)).argmax(1).numpy()
        explores = rng.random(args.num_envs) < epsilon
        actions = np.where(explores, rng.integers(0, outputs, args.num_envs), actions)
        following, reward, terminated, truncated, infos = env.step(actions)
        reached, ended = following.copy(), terminated | truncated
        for i in np.flatnonzero(ended):
            reached[i] = infos["final_obs"][i]
        buffer.add(
            {
                "observation": observation,
                "action": actions,
                "reward": reward,
                "next_observation": reached,
                "terminated": terminated,
                "truncated": truncated,
            }
        )
        observation = following
        running += reward
        finished += running[ended].tolist()
        running[ended] = 0

        if step >= args.learning_starts and number % args.train_every == 0:
            beta = args.beta + (1 - args.beta) * number / rounds
            for _ in range(args.updates):
                batch = as_tensors(buffer.sample(args.batch_size, beta=beta))
                sizes = update(online, target, optimizer, batch, args)
                buffer.update_priorities(batch.indices.numpy(), sizes)
        if finished and (number + 1) % max(rounds // 10, 1) == 0:
            print(f"{step:>9,} steps: mean return {np.mean(finished[-100:]):.1f}")

    score = evaluate(online, args)
    print(f"greedy: {score:.1f}")
    return score


if __name__ == "__main__":
    main()
