"""Which settings a search tries: a range or choices of each, by algorithm and as users say.

A range is searched evenly, by its logarithm ("log"), or by the logarithm of its distance from 1
("log1m"), as discounts and decays are: between 0.9 and 0.999 as many trials fall on each side of
0.99. Optuna sees such a setting as "1 - gamma".
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rlcpu.translation import describe_unknown

SCALES = ("linear", "log", "log1m")
_HORIZONS = {"gamma": (0.9, 0.9999, "log1m")}
_ROLLOUTS = {
    "learning_rate": (1e-4, 1e-2, "log"),
    **_HORIZONS,
    "lambda_": (0.7, 0.99, "log1m"),
    "num_steps": (16, 256, "log"),
    "num_epochs": (2, 16, "log"),
    "minibatch_size": (64, 1024, "log"),
}
_REPLAY = {
    "learning_rate": (1e-4, 5e-3, "log"),
    **_HORIZONS,
    "batch_size": (32, 512, "log"),
    "tau": (1e-3, 0.1, "log"),
    "n_step": (1, 5),
}
#: Ways to replay that have `n_step=1` only.
_OF_ONE_STEP = ("return", "hindsight")
_NOISE = {"exploration_noise": (0.03, 0.5, "log")}
#: By the algorithm's name. The cost of a trial stays within a few times that of the defaults: sizes
#: of networks and numbers of environments are for users to add.
SPACES: dict[str, dict[str, Any]] = {
    "ppo": {
        **_ROLLOUTS,
        "entropy_coefficient": (1e-4, 0.05, "log"),
        "clip_range": (0.1, 0.4),
        "max_gradient_norm": (0.3, 5.0, "log"),
    },
    "pqn": {**_ROLLOUTS, "exploration_final": (0.01, 0.2, "log")},
    "dqn": {**_REPLAY, "exploration_final": (0.01, 0.2, "log")},
    "sac": _REPLAY,
    "td3": {**_REPLAY, **_NOISE},
    "ddpg": {**_REPLAY, **_NOISE},
}


class Dimension(NamedTuple):
    """One setting of a space."""

    name: str
    low: Any = None  # int or float, or None for choices
    high: Any = None
    scale: str = "linear"
    choices: tuple[Any, ...] = ()

    @property
    def label(self) -> str:
        """Return what Optuna calls it."""
        return f"1 - {self.name}" if self.scale == "log1m" else self.name

    def describe(self) -> list[Any]:
        """Return it as JSON takes it, and as `space=` does."""
        ends = [self.low, self.high, *([] if self.scale == "linear" else [self.scale])]
        return [*map(_listed, self.choices)] if self.choices else ends

    def ends(self) -> tuple[Any, ...]:
        """Return the values that an agent is made with to find out what it refuses."""
        return self.choices or (self.low, self.high)

    def distribution(self) -> Any:
        """Return it as Optuna has it."""
        from optuna import distributions

        if self.choices:
            return distributions.CategoricalDistribution(self._texts())
        if isinstance(self.low, int):
            return distributions.IntDistribution(self.low, self.high, log=self.scale == "log")
        low, high = self.low, self.high
        if self.scale == "log1m":
            low, high = 1.0 - high, 1.0 - low
        return distributions.FloatDistribution(low, high, log=self.scale != "linear")

    def _texts(self) -> list[Any]:
        """Return choices as Optuna keeps them: all but numbers and texts as text."""
        return [
            x if isinstance(x, bool | int | float | str | None) else str(x) for x in self.choices
        ]

    def value(self, drawn: Any) -> Any:
        """Return the setting of what Optuna has drawn, with four digits within its bounds."""
        if self.choices:
            return self.choices[self._texts().index(drawn)]
        if isinstance(self.low, int):
            return int(drawn)
        number = float(f"{drawn:.4g}")
        if self.scale == "log1m":
            number = round(1.0 - number, 12)
        return min(max(number, self.low), self.high)


Space = dict[str, Dimension]


def make_space(
    kind: Any, names: Iterable[str], fixed: Iterable[str], changes: Any, replay: str | None = None
) -> Space:
    """Return the space of an algorithm, as users have changed it.

    Args:
        kind: the class of agents; of a user's the space is that of the class of ours it is made of.
        names: of all settings.
        fixed: names of settings that have the same value in all trials.
        changes: by the name of a setting (low, high), (low, high, scale), a list of choices, or
            None to leave it out; None changes nothing.
        replay: the setting of this name, if the agent has one.

    Raises:
        TypeError, ValueError: one of the changes is none of these, or nothing is left.
    """
    if changes is not None and not isinstance(changes, Mapping):
        raise TypeError(f"space={changes!r}: expected ranges and choices by the setting's name")
    changes, names, fixed = dict(changes or {}), list(names), set(fixed)
    for name in changes:
        if name not in names:
            raise TypeError(f"space: {describe_unknown(name, names)}")
        if name in fixed and changes[name] is not None:
            raise ValueError(f"space[{name!r}]: it is fixed by settings={{{name!r}: ...}}, too")
    ours = (each.__name__.lower() for each in kind.__mro__)
    usual = next((SPACES[name] for name in ours if name in SPACES), {})
    left_out = fixed | ({"n_step"} if replay in _OF_ONE_STEP else set())
    wanted = {name: each for name, each in usual.items() if name in names and name not in left_out}
    chosen = {name: each for name, each in (wanted | changes).items() if each is not None}
    if not chosen:
        raise ValueError("space: nothing is left to search, expected one setting at least")
    return {name: _dimension(name, each) for name, each in chosen.items()}


def _dimension(name: str, value: Any) -> Dimension:
    """Return a setting's range or choices; TypeError or ValueError for anything else."""
    words = f"space[{name!r}]={value!r}"
    if isinstance(value, list):
        if len(value) < 2 or any(value.count(each) > 1 for each in value):
            raise ValueError(f"{words}: expected two choices at least, and each once")
        return Dimension(name, choices=tuple(value))
    if not isinstance(value, tuple) or not 2 <= len(value) <= 3:
        raise TypeError(f"{words}: expected (low, high), (low, high, 'log'), or a list of choices")
    low, high, scale = (*value, "linear")[:3]
    if scale not in SCALES:
        raise ValueError(f"{words}: expected one of {', '.join(SCALES)} behind the bounds")
    for each in (low, high):
        if isinstance(each, bool) or not isinstance(each, numbers.Real):
            raise TypeError(f"{words}: expected numbers as bounds")
    are_whole = isinstance(low, numbers.Integral) and isinstance(high, numbers.Integral)
    low, high = (int(low), int(high)) if are_whole else (float(low), float(high))
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{words}: expected a finite number, and a larger one")
    if (scale == "log" and low <= 0) or (scale == "log1m" and (high >= 1 or are_whole)):
        limit = "above 0" if scale == "log" else "with a point, below 1"
        raise ValueError(f"{words}: expected bounds {limit} of this scale")
    return Dimension(name, low, high, scale)


def _listed(value: Any) -> Any:
    """Return a choice as JSON has it."""
    return list(value) if isinstance(value, tuple) else value
