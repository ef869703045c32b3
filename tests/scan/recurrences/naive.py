"""Slow, obvious oracles of returns: one environment after the other, one step after the other.

Arrays are (num_steps, num_envs); all are computed in the rewards' dtype, which may be longdouble.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


def times(factor: Any, number: Any) -> Any:
    """A term of a sum, which is none if its factor is 0, whatever the number is."""
    return factor * number if factor != 0 else number.dtype.type(0.0)


class Episodes(NamedTuple):
    """Arguments that estimators share; `last_values` (num_envs,), factors one for every step."""

    rewards: Any
    terminated: Any
    truncated: Any
    last_values: Any
    final_values: Any
    gamma: Any

    def after(self, t: int, env: int, following: Any) -> Any:
        """What comes after a step, `following` if its episode goes on."""
        if self.terminated[t, env]:
            return self.rewards.dtype.type(0.0)
        return self.final_values[t, env] if self.truncated[t, env] else following

    def ended(self, t: int, env: int) -> bool:
        return bool(self.terminated[t, env] or self.truncated[t, env])

    def next_value(self, values: Any, t: int, env: int) -> Any:
        return values[t + 1, env] if t + 1 < len(values) else self.last_values[env]

    def backward(self) -> Any:
        """All steps, the last one first."""
        num_steps, num_envs = self.rewards.shape
        return ((t, env) for t in reversed(range(num_steps)) for env in range(num_envs))


def discounted_returns(e: Episodes) -> np.ndarray:
    returns = np.empty_like(e.rewards)
    for t, env in e.backward():
        following = e.next_value(returns, t, env)
        returns[t, env] = e.rewards[t, env] + times(e.gamma[t, env], e.after(t, env, following))
    return returns


def gae(e: Episodes, values: Any, lambda_: Any) -> np.ndarray:
    advantages = np.empty_like(e.rewards)
    for t, env in e.backward():
        following = e.after(t, env, e.next_value(values, t, env))
        delta = e.rewards[t, env] + times(e.gamma[t, env], following) - values[t, env]
        if e.ended(t, env) or t + 1 == len(values):
            advantages[t, env] = delta
        else:
            decay = e.gamma[t, env] * lambda_[t, env]
            advantages[t, env] = delta + times(decay, advantages[t + 1, env])
    return advantages


def lambda_returns(e: Episodes, values: Any, lambda_: Any) -> np.ndarray:
    returns = np.empty_like(e.rewards)
    for t, env in e.backward():
        weight = lambda_[t, env]
        mixed = times(1 - weight, e.next_value(values, t, env))
        mixed = mixed + times(weight, e.next_value(returns, t, env))
        returns[t, env] = e.rewards[t, env] + times(e.gamma[t, env], e.after(t, env, mixed))
    return returns


def nstep_returns(e: Episodes, values: Any, lambda_: Any, n: int) -> np.ndarray:
    found = np.concatenate([values, e.last_values[None]])
    for _ in range(n):
        shorter = found.copy()
        for t, env in e.backward():
            weight = lambda_[t, env]
            mixed = times(1 - weight, e.next_value(values, t, env))
            mixed = mixed + times(weight, shorter[t + 1, env])
            found[t, env] = e.rewards[t, env] + times(e.gamma[t, env], e.after(t, env, mixed))
    return found[:-1]


def vtrace(
    e: Episodes, values: Any, ratios: Any, lambda_: Any, clips: tuple[float, float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Targets and advantages, as equation 1 of the paper sums them up for each step."""
    targets, advantages = values.copy(), np.empty_like(values)
    rho, c, pg_rho = (np.minimum(clip, ratios) for clip in clips)
    for t, env in e.backward():
        weight = e.rewards.dtype.type(1.0)
        for k in range(t, len(values)):
            following = e.after(k, env, e.next_value(values, k, env))
            delta = e.rewards[k, env] + times(e.gamma[k, env], following) - values[k, env]
            targets[t, env] += times(weight * rho[k, env], delta)
            weight = weight * e.gamma[k, env] * lambda_[k, env] * c[k, env]
            if e.ended(k, env) or weight == 0:
                break
        value, target = (e.next_value(array, t, env) for array in (values, targets))
        following = times(1 - lambda_[t, env], value) + times(lambda_[t, env], target)
        found = e.rewards[t, env] + times(e.gamma[t, env], e.after(t, env, following))
        advantages[t, env] = times(pg_rho[t, env], found - values[t, env])
    return targets, advantages


def retrace(e: Episodes, values: Any, action_values: Any, ratios: Any, lambda_: Any) -> np.ndarray:
    targets = np.empty_like(values)
    for t, env in e.backward():
        following = e.next_value(values, t, env)
        if t + 1 < len(values):
            c = lambda_[t + 1, env] * min(1, ratios[t + 1, env])
            following = following + times(c, targets[t + 1, env] - action_values[t + 1, env])
        targets[t, env] = e.rewards[t, env] + times(e.gamma[t, env], e.after(t, env, following))
    return targets


def linear_scan(a: Any, b: Any, axis: int, initial: Any, reverse: bool) -> np.ndarray:
    """y_t = a_t * y_{t-1} + b_t in longdouble."""
    a, b = (
        np.moveaxis(x, axis, 0) for x in np.broadcast_arrays(np.longdouble(a), np.longdouble(b))
    )
    y, carried = np.empty(b.shape, np.longdouble), np.longdouble(initial)
    for t in reversed(range(len(b))) if reverse else range(len(b)):
        y[t] = carried = a[t] * carried + b[t]
    return np.moveaxis(y, 0, axis)
