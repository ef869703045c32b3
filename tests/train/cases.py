"""Policies and batches to learn from, without an environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from rlcpu.policies import MLP
from rlcpu.train import PPO, PPOConfig
from rlcpu.train.on_policy import networks_of


class Batch(NamedTuple):
    """S samples of a rollout."""

    observations: Any
    actions: Any
    log_probs: Any
    advantages: Any
    targets: Any
    masks: Any = None

    @property
    def columns(self) -> dict[str, Any]:
        names = "observation", "action", "old_log_prob", "advantage", "target", "action_mask"
        pairs = zip(names, self, strict=True)
        return {name: array for name, array in pairs if array is not None}


def make_policy(
    discrete: bool = True,
    inputs: int = 4,
    actions: int = 3,
    seed: int = 0,
    choices: tuple[int, ...] = (),
    **options: Any,
) -> MLP:
    """A policy whose weights are all of order 1, so that every gradient is too."""
    seen = Box(-np.inf, np.inf, (inputs,), np.float32)
    done: Space[Any] = Discrete(actions) if discrete else Box(-1.0, 1.0, (actions,), np.float32)
    done = MultiDiscrete(list(choices)) if choices else done
    policy = MLP(seen, done, seed=seed, **options)
    rng = np.random.default_rng(seed)
    for array in (policy.parameters, policy.value_parameters):
        array[:] = rng.normal(0.0, 0.4, array.size)
    policy.log_std[:] = rng.normal(-0.3, 0.3, policy.log_std.size)
    policy.observation_mean[:] = rng.normal(0.0, 0.3, inputs)
    policy.observation_scale[:] = rng.uniform(0.5, 2.0, inputs)
    policy.observation_limit = 1.5
    return policy


def make_batch(
    policy: MLP,
    samples: int,
    seed: int = 0,
    masked: bool = False,
    choices: tuple[int, ...] = (),
) -> Batch:
    """Samples of which some ratios are within the clip range and some are not.

    With masks, some allow one action alone, the one that was taken.
    """
    rng = np.random.default_rng(seed)
    inputs, outputs = policy.sizes[0], policy.sizes[-1] - (policy.value == "shared")
    discrete = policy.log_std.size == 0
    actions = (
        rng.integers(0, outputs, samples)
        if discrete
        else rng.normal(0.0, 1.0, (samples, outputs)).astype(np.float32)
    )
    masks = None
    if masked:
        masks = rng.random((samples, outputs)) < rng.uniform(0.0, 1.0, (samples, 1))
        masks[np.arange(samples), actions] = True
    if choices:
        actions = rng.integers(0, choices, (samples, len(choices)))
    spread = 0.2 if discrete else 0.5
    center = -np.log(choices or outputs).sum() if discrete else -1.3 * outputs
    return Batch(
        rng.normal(0.0, 1.0, (samples, inputs)).astype(np.float32),
        actions,
        rng.normal(center, spread, samples).astype(np.float32),
        rng.normal(0.5, 2.0, samples).astype(np.float32),
        rng.normal(0.0, 1.0, samples).astype(np.float32),
        masks,
    )


def make_agent(
    policy: MLP,
    config: PPOConfig,
    seed: int = 0,
    num_threads: int | None = 1,
    masked: bool = False,
    choices: tuple[int, ...] = (),
) -> Any:
    """An agent without environments, which learns from batches by `improve`."""
    agent: Any = PPO.__new__(PPO)
    outputs = policy.num_outputs - (policy.value == "shared")
    is_continuous = policy.log_std.size > 0
    dynamics = SimpleNamespace(
        num_masked=outputs if masked else 0,
        num_actions=0 if is_continuous else outputs,
        choices=choices,
        is_discrete=not is_continuous,
        action_size=outputs if is_continuous else len(choices),
        observation_size=policy.num_inputs,
    )
    agent.env = SimpleNamespace(dynamics=dynamics)
    agent.policy, agent.config = policy, config
    agent.learner = agent._make_learner(networks_of(policy), seed, num_threads)
    return agent


def improve(agent: Any, batch: Batch, learning_rate: float, clip: float = 0.2) -> Any:
    """Losses of an update from a batch."""
    agent.config = agent.config.replace({"learning_rate": learning_rate, "clip_range": clip})
    return agent._losses_of(agent._improve(batch.columns, remaining=1.0))
