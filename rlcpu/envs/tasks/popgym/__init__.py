"""POPGym: fifteen tasks that need memory, each at three levels: "POPGym/RepeatFirstEasy-v0".

Source: Morad, Kortvelesy, Bettini, Liwicki & Prorok (2023), "POPGym: Benchmarking partially
observable reinforcement learning", ICLR, and its package, version 1.0.7: from the same state, the
same actions give the same rewards and observations there. An observation of several whole numbers
is shown as one number of 0 or 1 for each of their values, as `gymnasium.spaces.flatten` does.
"""

from rlcpu.envs.contract.registry import Limits, add_modules

#: Steps after which an episode is cut, at the three levels; None where the task itself ends it.
_LIMITS: dict[str, dict[str, tuple[int | None, int | None, int | None]]] = {
    "autoencode": {"Autoencode": (None, None, None)},
    "battleship": {"Battleship": (64, 100, 144)},
    "concentration": {"Concentration": (104, 208, 104)},
    "count_recall": {"CountRecall": (None, None, None)},
    "higher_lower": {"HigherLower": (None, None, None)},
    "labyrinth": {"LabyrinthEscape": (1023, 1023, 1023), "LabyrinthExplore": (1023, 1023, 1023)},
    "mine_sweeper": {"MineSweeper": (None, None, None)},
    "multiarmed_bandit": {"MultiarmedBandit": (200, 400, 600)},
    "position_only": {
        "NoisyPositionOnlyCartPole": (200, 200, 200),
        "NoisyPositionOnlyPendulum": (200, 200, 200),
        "PositionOnlyCartPole": (200, 400, 600),
        "PositionOnlyPendulum": (200, 150, 100),
    },
    "repeat": {"RepeatFirst": (None, None, None), "RepeatPrevious": (None, None, None)},
}
FAMILY = add_modules(
    __name__,
    {
        module: {
            f"POPGym/{task}{level}-v0": Limits(limit)
            for task, limits in tasks.items()
            for level, limit in zip(("Easy", "Medium", "Hard"), limits, strict=True)
        }
        for module, tasks in _LIMITS.items()
    },
)
