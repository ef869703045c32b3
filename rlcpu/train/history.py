"""What `learn` tells while it runs, and what it returns."""

from __future__ import annotations

import dataclasses

from rlcpu.train.updater import Losses


@dataclasses.dataclass
class Progress:
    """How far a call of `learn` has come.

    Attributes:
        steps: environment steps in this call.
        episodes: episodes that ended in this call.
        episode_return: mean return of the last 100 training episodes (NaN before the first ends).
        time_collect, time_update, time_total: seconds in this call: simulating and inferring,
            updating the networks, everything.
        losses: of the last update.
    """

    steps: int = 0
    episodes: int = 0
    episode_return: float = float("nan")
    time_collect: float = 0.0
    time_update: float = 0.0
    time_total: float = 0.0
    losses: Losses = dataclasses.field(default_factory=Losses)


@dataclasses.dataclass
class History(Progress):
    """What `learn` returns: the last progress, and how it came there.

    Attributes:
        solved: whether the target was reached.
        curve: (steps, episode_return) after each rollout.
    """

    solved: bool = False
    curve: list[tuple[int, float]] = dataclasses.field(default_factory=list)
