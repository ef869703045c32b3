"""POPGym: fifteen tasks that need memory, each at three levels: "POPGym/RepeatFirstEasy-v0".

Source: Morad, Kortvelesy, Bettini, Liwicki & Prorok (2023), "POPGym: Benchmarking partially
observable reinforcement learning", ICLR, and its package, version 1.0.7: from the same state, the
same actions give the same rewards and observations there. An observation of several whole numbers
is shown as one number of 0 or 1 for each of their values, as `gymnasium.spaces.flatten` does.
"""

import importlib
from typing import Any

from rlcpu.envs.registry import Family, Limits, add_family

#: Steps after which an episode is cut, at the three levels; None where the task itself ends it.
_LIMITS: dict[str, tuple[int | None, int | None, int | None]] = {
    "Autoencode": (None, None, None),
    "Battleship": (64, 100, 144),
    "Concentration": (104, 208, 104),
    "CountRecall": (None, None, None),
    "HigherLower": (None, None, None),
    "LabyrinthEscape": (1023, 1023, 1023),
    "LabyrinthExplore": (1023, 1023, 1023),
    "MineSweeper": (None, None, None),
    "MultiarmedBandit": (200, 400, 600),
    "NoisyPositionOnlyCartPole": (200, 200, 200),
    "NoisyPositionOnlyPendulum": (200, 200, 200),
    "PositionOnlyCartPole": (200, 400, 600),
    "PositionOnlyPendulum": (200, 150, 100),
    "RepeatFirst": (None, None, None),
    "RepeatPrevious": (None, None, None),
}
_MODULES = {
    "Labyrinth": "labyrinth",
    "Noisy": "position_only",
    "PositionOnly": "position_only",
    "Repeat": "repeat",
    "Autoencode": "autoencode",
    "Battleship": "battleship",
    "Concentration": "concentration",
    "CountRecall": "count_recall",
    "HigherLower": "higher_lower",
    "MineSweeper": "mine_sweeper",
    "MultiarmedBandit": "multiarmed_bandit",
}


def _make(id: str) -> Any:
    name = id.removeprefix("POPGym/")
    module = next(module for start, module in _MODULES.items() if name.startswith(start))
    levels = importlib.import_module(f"{__name__}.{module}").LEVELS
    return {dynamics.id: dynamics for dynamics in levels}[id]


FAMILY = add_family(
    Family(
        {
            f"POPGym/{task}{level}-v0": Limits(limit)
            for task, limits in _LIMITS.items()
            for level, limit in zip(("Easy", "Medium", "Hard"), limits, strict=True)
        },
        _make,
    )
)
