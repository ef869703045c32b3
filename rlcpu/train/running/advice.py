"""Advice on settings that an agent gives by itself: on the scale of what its networks get."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.scales import LEAST_ROWS, find_misfits, names_of_numbers
from rlcpu.envs.rollout.results import Rollout
from rlcpu.nn.network.scaling import Scaling
from rlcpu.train.settings.tuned import entry_of

Array = npt.NDArray[Any]
#: Observations of a rollout that are enough.
MOST_ROWS = 2 * LEAST_ROWS
#: Settings that decide how observations are scaled.
SCALING = ("normalize_observations", "clip_observations", "scale_observations")


class InputWatch:
    """Looks once, after the first steps, at the numbers that an agent's networks get.

    Where their scale does not fit networks, it warns. Whatever it says, settings stay as they are.
    """

    def __init__(self, space: Any) -> None:
        #: Names of the numbers of an observation, by their places; none once they were looked at.
        self._names = names_of_numbers(space)
        self._rows: list[Array] = []

    def add(self, rollout: Rollout) -> None:
        """Keep the observations of a rollout that is learnt from until `look`."""
        if self._names:
            self._add(rollout.inputs.reshape(rollout.rewards.size, -1))

    def _add(self, inputs: Array) -> None:
        if len(inputs) > MOST_ROWS:
            inputs = inputs[np.random.default_rng(0).choice(len(inputs), MOST_ROWS, replace=False)]
        self._rows.append(inputs[:, list(self._names)])

    def look(self, agent: Any, replayed: Callable[[int], Array | None]) -> None:
        """Look if that is due, and warn, at the user's call of `learn`, of what does not fit.

        Args:
            agent: whose observations they are: those of rollouts so far, or of its replay.
            replayed: count -> about so many observations (n, observation_size) of the replay, or
                None without one.
        """
        if not self._names or agent.steps < LEAST_ROWS:
            return
        if is_tuned(agent, SCALING):
            self._names, self._rows = {}, []
            return
        if (inputs := replayed(LEAST_ROWS)) is not None:
            self._add(inputs)
        if sum(map(len, self._rows)) < LEAST_ROWS:
            return
        rows, places = np.concatenate(self._rows), list(self._names)
        names = list(self._names.values())
        self._names, self._rows = {}, []
        mean, scale, limit = agent.policy.scaling
        misfits = find_misfits(rows, Scaling(mean[places], scale[places], limit), names)
        if misfits:
            what = "; ".join(each.message for each in misfits)
            change = _describe_changes(agent.config, {each.kind for each in misfits})
            message = f"{agent.env.dynamics.id}: as the networks get it, {what}: try {change}"
            warnings.warn(message, stacklevel=4)  # behind `answered`


def is_tuned(agent: Any, names: tuple[str, ...]) -> bool:
    """Tell whether some settings are those that were tuned for the environment."""
    tuned = entry_of(agent.env.dynamics.id, agent.defaults)
    return tuned is not None and all(
        getattr(agent.config, name, None) == getattr(tuned, name, None) for name in names
    )


def changes_of_inputs(config: Any, kinds: set[str]) -> list[dict[str, Any]]:
    """Return settings that answer some kinds of misfits, the best first."""
    changes: list[dict[str, Any]] = []
    if not config.normalize_observations:
        changes.append({"normalize_observations": True})
    if "small" in kinds and getattr(config, "scale_observations", False):
        changes.append({"scale_observations": False})
    if "clipped" in kinds:
        changes.append({"clip_observations": math.inf})
    return changes


def _describe_changes(config: Any, kinds: set[str]) -> str:
    """Return the settings to change, and what else there is, for some kinds of misfits."""
    changes = [f"{k}={v!r}" for each in changes_of_inputs(config, kinds) for k, v in each.items()]
    return " or ".join([*changes, "other units in the environment"])
