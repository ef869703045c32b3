"""Distributions of actions, as algorithms see them: log-probabilities and entropies (nats).

Source: Williams 1992, "Simple statistical gradient-following algorithms".
"""

from __future__ import annotations

import math
from typing import Any

import rlcpu.nn.operations as nn
from rlcpu.nn.heads import HALF_LOG_2_PI
from rlcpu.nn.tensors import Tensor


def categorical(logits: Any, action: Any, allowed: Any = None) -> tuple[Tensor, Tensor]:
    """Return an action's log-probability and the entropy, of probabilities as e**logits.

    Args:
        logits: a number for each action.
        action: number of the one that was taken.
        allowed: not 0 for the actions that can be taken; the others have probability 0.
    """
    log_probs = nn.log_softmax(logits, allowed=allowed)
    return nn.take(log_probs, action), nn.entropy(log_probs)


def categoricals(logits: Any, actions: Any, choices: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Sum log-probabilities and entropies of categorical distributions, in order of their logits.

    Args:
        logits: of all distributions, one after the other.
        actions: the numbers that were taken.
        choices: how many each distribution has.
    """
    log_prob: Any = 0.0
    entropy: Any = 0.0
    begin = 0
    for k, count in enumerate(choices):
        added = categorical(logits[begin : begin + count], actions[k])
        log_prob, entropy, begin = log_prob + added[0], entropy + added[1], begin + count
    return log_prob, entropy


def gaussian(mean: Any, log_std: Any, action: Any) -> tuple[Tensor, Tensor]:
    """Return the log-density of an action of independent normal numbers, and their entropy."""
    log_density = nn.sum(nn.each(normal_log_density, action, mean, log_std))
    return log_density, nn.sum(log_std + (0.5 + HALF_LOG_2_PI))


def normal_log_density(x: float, mean: float, log_std: float) -> float:
    """Return the log-density of x under Normal(mean, exp(log_std))."""
    z = (x - mean) * math.exp(-log_std)
    return -0.5 * z * z - log_std - HALF_LOG_2_PI
