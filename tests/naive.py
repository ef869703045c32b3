"""Slow, obvious oracles: plain Python loops that say what the kernels compute."""

from __future__ import annotations

from typing import Any

import numpy as np


def discounted_returns(
    rewards: Any, terminated: Any, truncated: Any, last_values: Any, final_values: Any, gamma: Any
) -> np.ndarray:
    """Return of every step, one environment after the other."""
    returns = np.empty_like(rewards)
    for env in range(rewards.shape[1]):
        following = last_values[env]
        for t in reversed(range(rewards.shape[0])):
            if terminated[t, env]:
                following = rewards.dtype.type(0.0)
            elif truncated[t, env]:
                following = final_values[t, env]
            following = returns[t, env] = rewards[t, env] + gamma * following
    return returns


def gae(
    rewards: Any,
    values: Any,
    terminated: Any,
    truncated: Any,
    last_values: Any,
    final_values: Any,
    gamma: Any,
    decay: Any,
) -> np.ndarray:
    """Advantage of every step, one environment after the other; `decay` is gamma * lambda."""
    advantages = np.empty_like(rewards)
    for env in range(rewards.shape[1]):
        next_value = last_values[env]
        next_advantage = rewards.dtype.type(0.0)
        for t in reversed(range(rewards.shape[0])):
            if terminated[t, env]:
                next_value = rewards.dtype.type(0.0)
            elif truncated[t, env]:
                next_value = final_values[t, env]
            delta = rewards[t, env] + gamma * next_value - values[t, env]
            if terminated[t, env] or truncated[t, env]:
                advantages[t, env] = delta
            else:
                advantages[t, env] = delta + decay * next_advantage
            next_value, next_advantage = values[t, env], advantages[t, env]
    return advantages
