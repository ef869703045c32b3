"""Hyper-parameters of PPO, checked."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import Any

SCHEDULES = ("constant", "linear")
_INF = math.inf
#: Range of each number: (type, least, most, whether the least itself is allowed).
_RANGES: dict[str, tuple[type, float, float, bool]] = {
    "num_envs": (int, 1, 2**24, True),
    "num_steps": (int, 1, 2**24, True),
    "num_epochs": (int, 1, 2**16, True),
    "minibatch_size": (int, 1, 2**30, True),
    "learning_rate": (float, 0.0, _INF, True),
    "clip_range": (float, 0.0, _INF, False),
    "gamma": (float, 0.0, 1.0, True),
    "lambda_": (float, 0.0, 1.0, True),
    "entropy_coefficient": (float, 0.0, _INF, True),
    "value_coefficient": (float, 0.0, _INF, True),
    "max_gradient_norm": (float, 0.0, _INF, False),
    "target_kl": (float, 0.0, _INF, False),
    "adam_epsilon": (float, 0.0, _INF, False),
    "log_std_init": (float, -20.0, 20.0, True),
    "reward_scale": (float, 0.0, _INF, False),
}


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters of PPO; their meaning, and the default settings, are stable-baselines3's.

    Attributes:
        num_envs: N, environments that are stepped together.
        num_steps: T, steps of each environment between two updates; an update learns from T * N
            samples.
        num_epochs: passes over these samples per update.
        minibatch_size: samples of one gradient step; the last of an epoch may have fewer.
        learning_rate: of Adam.
        learning_rate_schedule: "constant", or "linear" down to 0 at the end of `learn`.
        clip_range: how far the probability ratio may leave 1 and still be worth a gradient.
        clip_schedule: as `learning_rate_schedule`.
        gamma: discount per step, in [0, 1].
        lambda_: decay of generalised advantage estimation, in [0, 1].
        entropy_coefficient: weight of the policy's entropy (nats) in the loss.
        value_coefficient: weight of the values' mean squared error, without a factor 1/2.
        max_gradient_norm: norm of the whole gradient above which it is scaled down to it; `inf`
            never does.
        target_kl: an update ends early at a minibatch whose estimated divergence from the policy
            that collected exceeds 1.5 times this (nats); None never does.
        normalize_advantages: each minibatch's to mean 0 and deviation 1.
        normalize_observations: by the mean and deviation of all observations so far, as they were
            when the rollout began; the policy keeps them.
        reward_scale: rewards are multiplied by it before anything is learnt from them.
        adam_epsilon: added to the root of Adam's second moment.
        hidden: units of the hidden layers.
        activation: "tanh" or "relu".
        value: "separate" network for values, or "shared" with the policy.
        log_std_init: logarithm of the standard deviation of a continuous action at the start.

    Raises:
        TypeError, ValueError: a value of another type or outside of its range, with its name.
    """

    num_envs: int = 8
    num_steps: int = 256
    num_epochs: int = 10
    minibatch_size: int = 64
    learning_rate: float = 3e-4
    learning_rate_schedule: str = "constant"
    clip_range: float = 0.2
    clip_schedule: str = "constant"
    gamma: float = 0.99
    lambda_: float = 0.95
    entropy_coefficient: float = 0.0
    value_coefficient: float = 0.5
    max_gradient_norm: float = 0.5
    target_kl: float | None = None
    normalize_advantages: bool = True
    normalize_observations: bool = False
    reward_scale: float = 1.0
    adam_epsilon: float = 1e-5
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    value: str = "separate"
    log_std_init: float = 0.0

    def __post_init__(self) -> None:
        for name, (kind, least, most, closed) in _RANGES.items():
            value = getattr(self, name)
            if not (name == "target_kl" and value is None):
                object.__setattr__(self, name, _check(name, value, kind, least, most, closed))
        for name in ("learning_rate_schedule", "clip_schedule"):
            _check_choice(name, getattr(self, name), SCHEDULES)
        _check_choice("value", self.value, ("separate", "shared"))
        for name in ("normalize_advantages", "normalize_observations"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name}={getattr(self, name)!r}: expected True or False")
        object.__setattr__(self, "hidden", tuple(self.hidden))

    def replace(self, changes: Mapping[str, Any]) -> PPOConfig:
        """The same settings but for the given ones.

        Raises:
            TypeError: a name that is no hyper-parameter.
        """
        names = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise TypeError(f"{name}: no hyper-parameter; expected one of {', '.join(names)}")
        return dataclasses.replace(self, **changes)


def at(value: float, schedule: str, remaining: float) -> float:
    """A scheduled number when the fraction `remaining` of the steps is left."""
    return value * remaining if schedule == "linear" else value


def _check(name: str, value: Any, kind: type, least: float, most: float, closed: bool) -> Any:
    real = numbers.Integral if kind is int else numbers.Real
    if not isinstance(value, real) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: expected {'an int' if kind is int else 'a number'}")
    if not least <= kind(value) <= most or (value == least and not closed):
        sign = "of at least" if closed else "above"
        limit = "" if most == _INF else f" and at most {most:g}"
        raise ValueError(f"{name}={value}: expected a number {sign} {least:g}{limit}")
    return kind(value)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r}: expected {' or '.join(map(repr, choices))}")
