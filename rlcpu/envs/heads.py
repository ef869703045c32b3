"""From network outputs to actions: scalar functions, one distribution each.

Source: Williams (1992) for the stochastic policies; the Gaussian is drawn by Box & Muller (1958).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.kernels.compile import define, inline, specialise

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
TWO_PI = 2.0 * math.pi


def exponential(x: float) -> float:
    """e**x."""
    return math.exp(x)


def logarithm(x: float) -> float:
    """Natural logarithm."""
    return math.log(x)


def standard_normal(uniform: float, angle: float) -> float:
    """A standard normal number from two numbers in [0, 1)."""
    return math.sqrt(-2.0 * math.log(1.0 - uniform)) * math.cos(TWO_PI * (angle - 0.5))


def normal_log_density(noise: float, log_std: float) -> float:
    """Log-density of mean + exp(log_std) * noise under Normal(mean, exp(log_std))."""
    return -0.5 * noise * noise - log_std - HALF_LOG_TWO_PI


@functools.cache
def categorical(num_actions: int) -> Callable[..., Any]:
    """Inlinable function (logits, uniform, greedy) -> (action, log-probability).

    The action is drawn from softmax(logits) by inverting the cumulative distribution; greedy takes
    the largest logit, the first of equals. The loop over actions is unrolled.
    """
    lines = ["top = logits[0]", "best = zero"]
    for k in range(1, num_actions):
        lines += [f"best = i32({k}) if logits[{k}] > top else best", f"top = max(top, logits[{k}])"]
    lines += [f"e{k} = exp(logits[{k}] - top)" for k in range(num_actions)]
    lines += ["c0 = e0"] + [f"c{k} = c{k - 1} + e{k}" for k in range(1, num_actions)]
    lines += [f"mass = uniform * c{num_actions - 1}", "action = zero"]
    lines += [f"action = i32({k + 1}) if mass >= c{k} else action" for k in range(num_actions - 1)]
    lines += ["action = best if greedy else action", "logit = logits[0]"]
    lines += [
        f"logit = logits[{k}] if action == i32({k}) else logit" for k in range(1, num_actions)
    ]
    lines += [f"return action, logit - top - log(c{num_actions - 1})"]
    body = "".join(f"\n    {line}" for line in lines)
    names = {"exp": specialise(exponential, np.float32), "log": specialise(logarithm, np.float32)}
    source = f"def choose(logits, uniform, greedy):{body}"
    return inline(define(source, i32=np.int32, zero=np.int32(0), **names))


@functools.cache
def gaussian(action_size: int) -> Callable[..., Any]:
    """Inlinable function (means, log_stds, uniforms, greedy) -> (action, log-probability).

    Coordinates are independent, Normal(mean, exp(log_std)); greedy takes the means. `uniforms` are
    2 * action_size numbers.
    """
    lines = []
    for k in range(action_size):
        lines += [
            f"drawn = normal(uniforms[{2 * k}], uniforms[{2 * k + 1}])",
            f"z{k} = nothing if greedy else drawn",
            f"a{k} = means[{k}] + exp(log_stds[{k}]) * z{k}",
        ]
    lines += [f"l{k} = density(z{k}, log_stds[{k}])" for k in range(action_size)]
    actions = "".join(f"a{k}, " for k in range(action_size))
    lines += [f"return ({actions}), {' + '.join(f'l{k}' for k in range(action_size))}"]
    body = "".join(f"\n    {line}" for line in lines)
    return inline(
        define(
            f"def choose(means, log_stds, uniforms, greedy):{body}",
            normal=specialise(standard_normal, np.float32),
            density=specialise(normal_log_density, np.float32),
            exp=specialise(exponential, np.float32),
            nothing=np.float32(0),
        )
    )
