"""Settings, checked: the base of all dataclasses of hyper-parameters, and how numbers change."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from rlcpu.kernels.checks import check_count
from rlcpu.train.settings.presets import check_network_setting
from rlcpu.translation import describe_unknown

#: How a number changes while what remains of the steps goes from 1 to 0.
Schedule = Literal["constant", "linear", "cosine"] | Callable[[float], float]
SCHEDULES = ("constant", "linear", "cosine")
#: The settings that say how others change.
_SCHEDULED = {"learning_rate": "learning_rate_schedule", "clip_range": "clip_schedule"}


# ---------------------------------------------------------------- which values are allowed


class _Range(NamedTuple):
    """Real numbers from `least` to `most`; `least` itself only if the range has it."""

    least: float
    most: float
    has_least: bool = True


#: float32, in which the networks compute, holds ten thousand million times as much.
_MOST = 1e28
_ANY = _Range(-_MOST, _MOST)
_FROM_ZERO, _ABOVE_ZERO = _Range(0.0, _MOST), _Range(0.0, _MOST, has_least=False)
_LIMIT = _Range(0.0, math.inf, has_least=False)  # infinity: there is none
_SHARE = _Range(0.0, 1.0)
_REALS = {
    "learning_rate": _FROM_ZERO,
    "clip_range": _LIMIT,
    "clip_range_value": _LIMIT,
    "clip_observations": _LIMIT,
    "gamma": _SHARE,
    "lambda_": _SHARE,
    "entropy_coefficient": _FROM_ZERO,
    "value_coefficient": _FROM_ZERO,
    "max_gradient_norm": _LIMIT,
    "target_kl": _LIMIT,
    "adam_epsilon": _ABOVE_ZERO,
    "log_std_init": _Range(-20.0, 20.0),
    "reward_scale": _ABOVE_ZERO,
    "tau": _Range(0.0, 1.0, has_least=False),
    "exploration_initial": _SHARE,
    "exploration_final": _SHARE,
    "temperature": _ABOVE_ZERO,
    "target_entropy": _ANY,
    "exploration_noise": _FROM_ZERO,
    "target_noise": _FROM_ZERO,
    "target_noise_clip": _FROM_ZERO,
    "priority_eta": _SHARE,
    "hindsight_ratio": _SHARE,
}
_COUNTS = {
    "num_envs": range(1, 2**24 + 1),
    "num_steps": range(1, 2**24 + 1),
    "num_epochs": range(1, 2**16 + 1),
    "minibatch_size": range(1, 2**30 + 1),
    "num_updates": range(1, 2**24 + 1),
    "learning_starts": range(2**40 + 1),
    "capacity": range(1, 2**40 + 1),
    "batch_size": range(1, 2**24 + 1),
    "n_step": range(1, 2**16 + 1),
    "target_period": range(1, 2**30 + 1),
    "policy_delay": range(1, 2**16 + 1),
    "exploration_steps": range(1, 2**40 + 1),
    "sequence_length": range(1, 2**24 + 1),
    "burn_in": range(2**24 + 1),
}
_CHOICES = {
    "value": ("separate", "shared"),
    "activation": ("tanh", "relu"),
    "replay": ("uniform", "prioritized", "return", "hindsight"),
    "hindsight_goal": ("future", "final", "episode"),
}


def setting(default: Any, allowed: range | None = None, *, made_with: bool = False) -> Any:
    """Return a field of a config, and what is said of it where it is checked.

    Args:
        default: its value.
        allowed: whole numbers that it may be; None for those of its annotation.
        made_with: whether an agent reads it only when it is made.
    """
    return dataclasses.field(default=default, metadata={"allowed": allowed, "made_with": made_with})


class Settings:
    """Base of dataclasses of hyper-parameters: checks each field by its name.

    Attributes:
        num_envs: N, environments that are stepped together.
        learning_rate: of Adam.
        learning_rate_schedule: "constant"; "linear" or "cosine" down to 0 at the end of `learn`; or
            a function of what remains of it, 1 to 0, whose value multiplies. No file holds a
            function: a loaded agent says so, and goes on with "constant".
        gamma: discount per step, in [0, 1].
        normalize_observations: by the mean and deviation of all observations so far, as they were
            when the rollout began; the policy keeps them, a buffer has observations as they were.
        clip_observations: networks get larger numbers, scaled and normalised, as +- this; `inf`
            clips none. None is 10 with `normalize_observations`; without, it leaves the policy's
            limit, of which a new one has none.
        normalize_rewards: they are divided by the deviation of all discounted returns so far, and
            clipped to +-10.
        max_gradient_norm: norm of the whole gradient above which it is scaled down to it; `inf`
            never does.
        adam_epsilon: added to the root of Adam's second moment.
        exploration_initial, exploration_final: probability of a random action, first and last.
        exploration_schedule: how it gets from the one to the other; see `learning_rate_schedule`.
        exploration_steps: environment steps in which it does.
        network: "mlp"; "conv", a convolution of a board or three of an image in front of the
            hidden layers, or "impala", residual blocks; or "mingru", "gru" or "lstm", whose last
            hidden layer remembers what the environment showed before. Or a function of an
            observation space that returns layers, such as `lambda space: nn.Dense(64) >>
            nn.Gru(64)`: the agent puts its outputs behind them. No file holds a function: give it
            to `load`.
        hidden: units of the hidden layers.
        activation: "tanh" or "relu".
        sequence_length: steps of the sequences that networks with memory learn from, a divisor of
            `num_steps`: derivatives go back so far, and what was remembered before is taken as it
            was. Minibatches are rounded to whole sequences. None for whole rollouts.
    """

    def __post_init__(self) -> None:
        this: Any = self
        for field in dataclasses.fields(this):
            value, allowed = getattr(self, field.name), field.metadata.get("allowed")
            if allowed is None:
                value = _check_setting(field.name, value, str(field.type))
            else:
                value = check_count(field.name, value, allowed.start, allowed.stop)
            object.__setattr__(self, field.name, value)

    @classmethod
    @functools.cache  # asked for in every round of learning
    def names(cls) -> list[str]:
        """Return the names of the fields."""
        kind: Any = cls
        return [field.name for field in dataclasses.fields(kind)]

    def replace(self, changes: Mapping[str, Any]) -> Self:
        """Return the settings with the given ones replaced.

        Raises:
            TypeError: a name that is no hyper-parameter; the message says which one may be meant.
        """
        for name in changes:
            if name not in self.names():
                raise TypeError(describe_unknown(name, self.names()))
        this: Any = self
        changed: Self = dataclasses.replace(this, **changes)
        return changed

    def implied_by(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return by name the settings that go with changes of these, where the user says nothing.

        They are for settings that are an environment's defaults; here there are none.
        """
        return {}

    def changes_from(self, other: Settings) -> dict[str, Any]:
        """Return by name the fields whose values differ from those of other settings."""
        pairs = ((name, getattr(self, name)) for name in self.names())
        return {name: value for name, value in pairs if value != getattr(other, name)}


def _check_setting(name: str, value: Any, kind: str) -> Any:
    """Return a setting as it is kept, after checks by its name: TypeError or ValueError if bad.

    Those that only a user's config has are checked by the annotation of their field, `kind`.
    """
    if value is None and "None" in kind:
        return None
    if name in _COUNTS:
        return check_count(name, value, _COUNTS[name].start, _COUNTS[name].stop)
    if name in _REALS:
        return _check_real(name, value, _REALS[name], "None" in kind)
    if name == "hidden":
        if isinstance(value, str) or not hasattr(value, "__len__"):
            raise TypeError(f"hidden={value!r}: expected sizes of layers, such as (64, 64)")
        return tuple(check_count(f"hidden[{i}]", size) for i, size in enumerate(value))
    if name == "network":
        check_network_setting(value)
    elif name in _CHOICES:
        if not isinstance(value, str) or value not in _CHOICES[name]:
            choices = " or ".join(map(repr, _CHOICES[name]))
            raise ValueError(f"{name}={value!r}: expected {choices}")
    elif name.endswith("_schedule"):
        if not callable(value) and (not isinstance(value, str) or value not in SCHEDULES):
            names = ", ".join(map(repr, SCHEDULES))
            raise ValueError(f"{name}={value!r}: expected {names} or a function of what remains")
    elif kind in ("float", str(float)):
        return _check_real(name, value, _ANY)
    elif kind in ("bool", str(bool)) and not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: expected True or False")
    return value


def _check_real(name: str, value: Any, allowed: _Range, may_be_none: bool = False) -> float:
    """Return a number of a range as a float; TypeError or ValueError for anything else.

    `may_be_none` says whether None is allowed, too, for messages.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        hint = ", or None" if may_be_none else ""
        if (callable(value) or isinstance(value, str)) and name in _SCHEDULED:
            multiplies = "a function of what remains, 1 to 0, whose value multiplies"
            hint = f'; {_SCHEDULED[name]} is "linear", or {multiplies}'
        raise TypeError(f"{name}={value!r}: expected a number{hint}")
    least, most, has_least = allowed
    number: Any = value
    if not least <= number <= most or (number == least and not has_least):
        sign = "of at least" if has_least else "above"
        limit = "" if most == math.inf else f" and at most {most:g}"
        raise ValueError(f"{name}={reprlib.repr(value)}: expected a number {sign} {least:g}{limit}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected a number that a float holds") from None


def check_divides(sequence_length: int | None, num_steps: int) -> None:
    """Raise ValueError unless a rollout is whole sequences, if their length is given."""
    if sequence_length is not None and num_steps % sequence_length:
        expected = f"expected a divisor of num_steps={num_steps}, or None"
        raise ValueError(f"sequence_length={sequence_length}: {expected}")


# ---------------------------------------------------------------- schedules


def remaining_of(schedule: tuple[int, int], steps: int) -> float:
    """Return the share of a schedule, (first, last) steps, that remains at `steps`: 1 to 0."""
    first, last = schedule
    return min(1.0, max(0.0, 1.0 - (steps - first) / (last - first)))


def scheduled(value: float, schedule: Schedule, remaining: float) -> float:
    """Return a number by its schedule, where the fraction `remaining` of the steps is left.

    Raises:
        ValueError: a function gives no finite number of at least 0.
    """
    if schedule == "constant":
        return value
    if schedule == "linear":
        return value * remaining
    if schedule == "cosine":
        return value * 0.5 * (1.0 - math.cos(math.pi * remaining))
    factor: Any = schedule(remaining)
    if not isinstance(factor, int | float | np.number) or not 0.0 <= factor < math.inf:
        expected = "expected a finite number of at least 0"
        raise ValueError(f"schedule {schedule!r} gives {factor!r} at {remaining:g}: {expected}")
    return value * float(factor)
