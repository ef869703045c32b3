"""PPO's loss, one sample at a time: values and derivatives as scalar functions.

    loss = mean(surrogate) - entropy_coefficient * mean(entropy) + value_coefficient * mean(error)

with the squared error of the value, without a factor 1/2: the conventions of stable-baselines3, so
that its published hyper-parameters mean the same here. Source: Schulman et al. 2017, "Proximal
policy optimization algorithms", equations 7 and 9.
"""

from __future__ import annotations

import math

HALF_LOG_2_PI = 0.9189385332046727


def surrogate(ratio: float, advantage: float, clip: float) -> tuple[float, float]:
    """Clipped surrogate loss and its derivative by the log-probability of the action.

    Args:
        ratio: probability of the action now over its probability when it was taken.
        advantage: how much better than expected the action was.
        clip: half-width of the range of ratios that are worth a gradient.
    """
    low, high = 1.0 - clip, 1.0 + clip
    bounded = low if ratio < low else high if ratio > high else ratio
    gain, bounded_gain = ratio * advantage, bounded * advantage
    return (-gain, -gain) if gain <= bounded_gain else (-bounded_gain, 0.0)


def divergence(ratio: float, log_ratio: float) -> float:
    """Estimate of the Kullback-Leibler divergence from one sample, never negative.

    Source: J. Schulman 2020, "Approximating KL divergence", the estimator k3.
    """
    return ratio - 1.0 - log_ratio


def squared_error(value: float, target: float) -> tuple[float, float]:
    """Loss of the value and its derivative by the value."""
    error = value - target
    return error * error, 2.0 * error


def categorical_slope(
    taken: float, log_probability: float, policy_slope: float, entropy: float, bonus: float
) -> float:
    """Derivative of policy loss and entropy bonus by one logit.

    Args:
        taken: 1 for the action that was taken, 0 for the others.
        log_probability: of this action.
        policy_slope: derivative of the loss by the log-probability of the action taken.
        entropy: of the distribution, -sum(p log p).
        bonus: coefficient of the entropy.
    """
    probability = math.exp(log_probability)
    by_policy = policy_slope * (taken - probability)
    return by_policy + bonus * probability * (log_probability + entropy)


def gaussian(action: float, mean: float, log_std: float) -> tuple[float, float, float]:
    """Log-density of one coordinate, and its derivatives by the mean and by `log_std`."""
    inverse = math.exp(-log_std)
    z = (action - mean) * inverse
    return -0.5 * z * z - log_std - HALF_LOG_2_PI, z * inverse, z * z - 1.0
