"""Scalar functions by which policies of agents with replay act, and explore.

    act(outputs, uniforms, params, greedy) -> (action, log_prob)

has the network's outputs for one observation, random numbers in [0, 1), and the policy's `params`,
whose first ones say how much it explores: so an agent's random first steps, its learning and its
evaluation run in one kernel. The masked form takes a mask of allowed actions, too. Functions
`act_...` make one of lines of Python, in which each number of an action has lines of its own; see
`rlcpu.nn.heads` for the names that lines may use, and for the form with loops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.envs.policies import loop_uniform_allowed, uniform_allowed
from rlcpu.nn.heads import (
    define_act,
    lines_of_largest,
    log_density,
    loop_largest,
    loop_largest_allowed,
    loop_numbers,
    return_vector,
    standard_normal,
)

#: Range of the logarithm of a squashed Gaussian's deviation; stable-baselines3's.
LOWEST_LOG_STD, HIGHEST_LOG_STD = -20.0, 2.0
LOG_2 = math.log(2.0)


# ---------------------------------------------------------------- a squashed Gaussian


def squash(u: float) -> tuple[float, float]:
    """Return tanh(u), and the logarithm of its derivative 1 - tanh(u)**2.

    The latter as 2 (log 2 - u - softplus(-2u)), which stays finite where tanh rounds to 1
    (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", appendix C).
    """
    # abs(u) - u is max(-2u, 0), with the right slope at 0 beside that of the rest.
    softplus = abs(u) - u + math.log(1.0 + math.exp(-2.0 * abs(u)))
    return math.tanh(u), 2.0 * (LOG_2 - u - softplus)


def squashed_gaussian(mean: float, log_std: float, noise: float) -> tuple[float, float]:
    """Return one number of an action in (-1, 1), and its log-density.

    With u = mean + exp(log_std) * noise the action is tanh(u), and

        log pi = log Normal(u; mean, exp(log_std)) - log(1 - tanh(u)**2)

    Source: Haarnoja et al. 2018, "Soft actor-critic", equation 21 (appendix C).
    """
    action, log_slope = squash(mean + math.exp(log_std) * noise)
    return action, log_density(noise, log_std) - log_slope


def bounded_log_std(x: float) -> float:
    """Return the output of a network, clipped to the range of a squashed Gaussian's `log_std`."""
    return min(max(x, LOWEST_LOG_STD), HIGHEST_LOG_STD)


# ---------------------------------------------------------------- one of several actions


@functools.cache
def act_epsilon_greedy(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Make `act`: take the action of the largest output, the first of equals.

    With probability `params[0]`, epsilon, it is any action instead. Source: Watkins 1989, "Learning
    from delayed rewards". The lines for two actions, without a mask, are

        x0 = outputs[0]; x1 = outputs[1]; top, best = the larger of both, and its index
        drawn = i32(uniforms[1] * 2.0)
        explores = (uniforms[0] < params[0]) and not greedy
        return (drawn if explores else best), 0.0

    Args:
        size: number of actions, which have the first outputs.
        masked: whether `act` takes a mask, and chooses among the allowed actions alone.
        loops: see `rlcpu.nn.heads.act_categorical`.
    """
    if loops:
        return _loop_masked_epsilon_greedy if masked else _loop_epsilon_greedy
    drawn = f"drawn = i32(uniforms[1] * {float(size)})"
    if masked:
        drawn = "drawn, _, _ = draw(observation, draw_params, (uniforms[1],), mask)"
    lines = [
        *lines_of_largest(size, masked),
        drawn,
        "explores = (uniforms[0] < params[0]) and not greedy",
        "return (drawn if explores else best), 0.0",
    ]
    # `draw`, a scalar policy, reads neither observation nor params.
    names: dict[str, Any] = {"draw": uniform_allowed(size), "observation": (), "draw_params": ()}
    return define_act(lines, masked, **names)


def _loop_epsilon_greedy(values, uniforms, params, greedy):
    """Take the action of the largest value, or explore; see `act_epsilon_greedy`."""
    explores = uniforms[0] < params[0] and not greedy
    _, best = loop_largest(values)
    return np.int32(uniforms[1] * float(len(values))) if explores else best, 0.0


def _loop_masked_epsilon_greedy(values, uniforms, params, greedy, mask):
    """Take the allowed action of the largest value, or explore; see `act_epsilon_greedy`."""
    explores = uniforms[0] < params[0] and not greedy
    action = np.int32(0)
    if explores:  # a scalar policy, which reads neither observation nor params
        action, _, _ = loop_uniform_allowed((), (), (uniforms[1],), mask)
    else:
        _, action = loop_largest_allowed(values, mask)
    return action, 0.0


# ---------------------------------------------------------------- bounded real numbers


@functools.cache
def act_squashed(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Make `act`: draw from a squashed Gaussian, scaled to the bounds of actions.

    Of `size` outputs the first half are means, the others logarithms of deviations. `params` are
    the probability of an action drawn uniformly from the bounds instead, then centres and half
    widths of the bounds. An action of one number has the lines

        explores = (uniforms[2] < params[0]) and not greedy
        drawn = normal(uniforms[0], uniforms[1])
        z = 0.0 if greedy else drawn
        a, l0 = squashed(outputs[0], bounded(outputs[1]), z)
        a = 2.0 * uniforms[0] - 1.0 if explores else a
        a0 = params[1] + params[2] * a
        return (a0,), l0

    Args:
        size: number of outputs.
        masked: False: real numbers have no mask.
        loops: see `rlcpu.nn.heads`.
    """
    count = size // 2
    if loops:
        return loop_numbers(
            act_squashed(2),
            f"k, {count} + k",
            uniforms=f"2 * k, 2 * k + 1, {2 * count}",
            params=f"0, 1 + k, {1 + count} + k",
        )
    lines = [f"explores = (uniforms[{2 * count}] < params[0]) and not greedy"]
    for k in range(count):
        mean, log_std = f"outputs[{k}]", f"outputs[{count + k}]"
        center, half = f"params[{1 + k}]", f"params[{1 + count + k}]"
        lines += [
            f"drawn = normal(uniforms[{2 * k}], uniforms[{2 * k + 1}])",
            "z = 0.0 if greedy else drawn",
            f"a, l{k} = squashed({mean}, bounded({log_std}), z)",
            f"a = 2.0 * uniforms[{2 * k}] - 1.0 if explores else a",
            f"a{k} = {center} + {half} * a",
        ]
    names: dict[str, Any] = {"squashed": squashed_gaussian, "bounded": bounded_log_std}
    return define_act([*lines, return_vector(count)], normal=standard_normal, **names)


@functools.cache
def act_noisy(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Make `act`: take tanh of `size` outputs plus noise, scaled to the bounds of actions.

    `params` are the probability of an action drawn uniformly from the bounds instead, the deviation
    of the Gaussian noise, then centres and half widths of the bounds. Lines, and arguments, are as
    those of `act_squashed`.
    """
    if loops:
        return loop_numbers(
            act_noisy(1),
            "k",
            uniforms=f"2 * k, 2 * k + 1, {2 * size}",
            params=f"0, 1, 2 + k, {2 + size} + k",
        )
    lines = [f"explores = (uniforms[{2 * size}] < params[0]) and not greedy"]
    for k in range(size):
        center, half = f"params[{2 + k}]", f"params[{2 + size + k}]"
        lines += [
            f"drawn = normal(uniforms[{2 * k}], uniforms[{2 * k + 1}])",
            f"a = tanh(outputs[{k}]) + (0.0 if greedy else params[1] * drawn)",
            f"a = 2.0 * uniforms[{2 * k}] - 1.0 if explores else min(max(a, -1.0), 1.0)",
            f"l{k} = 0.0",
            f"a{k} = {center} + {half} * a",
        ]
    return define_act([*lines, return_vector(size)], normal=standard_normal, tanh=math.tanh)
