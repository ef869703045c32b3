"""Twenty environments that nobody tunes for, by which default settings are judged.

Users' environments have odd scales and habits: observations of 1e-3 and of 1e4, bounds that are far
too loose, rewards of hundredths and of thousands, rare or late ones, episodes of one step and
without an end, actions from 0 to 3,000 or one that does nothing. Each module here has one of them,
and `act`, a policy in plain sight that does well. No agent has settings of its own for them.

`python -m asv_benches.untuned` lists them. Agents are scored by the share of the way from chance to
that policy: (return - chance) / (good - chance).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from rlcpu import Dynamics

#: Names of the modules, in the order of tables; those of `HELD_OUT` decide nothing.
NAMES = (
    "altitude",
    "arm",
    "bets",
    "chain",
    "dials",
    "dose",
    "greenhouse",
    "idle_joint",
    "inventory",
    "keys",
    "late",
    "loose",
    "microvolts",
    "mine",
    "notebook",
    "packing",
    "pond",
    "prices",
    "pump",
    "trim",
)
#: No default is chosen by these: they say whether what was chosen by the others carries over.
HELD_OUT = frozenset(
    ("altitude", "arm", "dials", "dose", "idle_joint", "keys", "late", "packing", "prices", "pump")
)


class Task(NamedTuple):
    """An environment, and between which returns an agent is scored.

    Attributes:
        dynamics: the environment.
        act: a policy that does well, as `rlcpu.policies.Scalar` takes it.
        chance: mean return of uniformly random actions.
        good: mean return of `act`.
        steps: environment steps that every agent learns.
    """

    dynamics: Dynamics
    act: Callable[..., Any]
    chance: float
    good: float
    steps: int

    def share(self, mean_return: float) -> float:
        """Return the share of the way from chance to the good policy: 0 by chance, 1 as good."""
        return (mean_return - self.chance) / (self.good - self.chance)


def task(name: str) -> Task:
    """Return the task of a module of `NAMES`."""
    found: Task = importlib.import_module(f"{__name__}.{name}").TASK
    return found


def describe(name: str) -> str:
    """Return what a module of `NAMES` says of its environment, one sentence without its stop."""
    module = importlib.import_module(f"{__name__}.{name}")
    return str(module.__doc__).strip().removesuffix(".")
