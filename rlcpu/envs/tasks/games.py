"""The games of this library by id, made when the first of them is asked for."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from rlcpu.envs.dynamics import Dynamics


class Limits(NamedTuple):
    """What Gymnasium wants to know of an environment before it is made."""

    max_episode_steps: int | None = None
    reward_threshold: float | None = None


GAMES = {
    "MinAtar/Asterix-v1": Limits(),
    "MinAtar/Breakout-v1": Limits(),
    "MinAtar/Freeway-v1": Limits(),
    "MinAtar/Seaquest-v1": Limits(),
    "MinAtar/SpaceInvaders-v1": Limits(),
    "FrozenLake-v1": Limits(100, 0.7),
    "FrozenLake8x8-v1": Limits(200, 0.85),
    "CliffWalking-v1": Limits(),
    "Taxi-v4": Limits(200, 8.0),
    "Blackjack-v1": Limits(),
    "MiniGrid-Empty-8x8-v0": Limits(256),
    "MiniGrid-DoorKey-8x8-v0": Limits(640),
    "MiniGrid-FourRooms-v0": Limits(100),
    "LunarLander-v3": Limits(1000, 200.0),
    "LunarLanderContinuous-v3": Limits(1000, 200.0),
    "BipedalWalker-v3": Limits(1600, 300.0),
    "BipedalWalkerHardcore-v3": Limits(2000, 300.0),
}


@functools.cache
def games() -> Mapping[str, Dynamics]:
    """All of them, by id."""
    from rlcpu.envs.tasks.box2d import bipedal_walker, lunar_lander
    from rlcpu.envs.tasks.minatar import asterix, breakout, freeway, seaquest, space_invaders
    from rlcpu.envs.tasks.minigrid import door_key, empty, four_rooms
    from rlcpu.envs.tasks.toy_text import blackjack, cliff_walking, frozen_lake, taxi

    minatar = (asterix, breakout, freeway, seaquest, space_invaders)
    others = (door_key, empty, four_rooms, blackjack, cliff_walking, frozen_lake, taxi)
    made = [module.DYNAMICS for module in (*minatar, *others, lunar_lander, bipedal_walker)]
    made += [frozen_lake.DYNAMICS_8X8, lunar_lander.CONTINUOUS, bipedal_walker.HARDCORE]
    return {dynamics.id: dynamics for dynamics in made}
