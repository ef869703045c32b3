"""Craftax-Classic-Symbolic-v1: survive, gather and craft in a world that is new in each episode.

Each of 22 achievements gives 1 when it is first reached, each point of health 0.1, or costs it.
An episode ends in lava or without health, and is cut after 10,000 steps.
Source: Matthews et al. (2024), "Craftax: A lightning-fast benchmark for open-ended reinforcement
learning", ICML, whose package calls this game Craftax-Classic: its rules are those of Crafter
(Hafner 2022). All of them are here. The larger game of that paper, Craftax itself with its nine
floors, is not, and neither are observations in pixels.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.craftax.mobs import appear_all, move_all
from rlcpu.envs.tasks.craftax.picture import picture
from rlcpu.envs.tasks.craftax.player import (
    craft,
    fall_asleep_or_wake,
    grow,
    interact,
    live,
    place,
    walk,
)
from rlcpu.envs.tasks.craftax.state import MOST, Action, Block, Params, World, block_at
from rlcpu.envs.tasks.craftax.view import NUMBERS, observe
from rlcpu.envs.tasks.craftax.world import light_at, reset
from rlcpu.kernels.machine.random import Rng


def count_achievements(s: Any) -> int:
    """Return how many achievements were reached."""
    reached = 0
    for k in range(len(s.achievements)):
        reached += 1 if s.achievements[k] else 0
    return reached


def act(s: Any, action: int, rng: Rng) -> None:
    """Let the player do an action: use what is in front, walk, place a block or craft a tool."""
    if action == Action.DO:
        interact(s, rng)
    elif Action.LEFT <= action <= Action.DOWN:
        walk(s, action)
    elif Action.PLACE_STONE <= action <= Action.PLACE_PLANT:
        place(s, action)
    elif action >= Action.WOOD_PICKAXE:
        craft(s, action)


def step(s: Any, action: int, params: Params, rng: Rng) -> tuple[float, bool]:
    """Let the player do an `Action`, by its number; one that sleeps does nothing.

    Then mobs move and appear, plants grow, and time takes its toll. Returns the reward and whether
    the episode ends.
    """
    achievements, health = count_achievements(s), s.health
    wanted = Action.NOOP if s.is_sleeping else action
    act(s, wanted, rng)
    move_all(s, rng, params)
    appear_all(s, rng, params)
    grow(s)
    fall_asleep_or_wake(s, wanted)
    live(s)
    for k in range(len(s.inventory)):
        s.inventory[k] = min(s.inventory[k], MOST)
    in_lava = block_at(s, s.row, s.column) == Block.LAVA
    s.health = 0 if in_lava else max(s.health, 0)
    s.timestep += 1
    s.light = light_at(s.timestep, params)
    reward = float(count_achievements(s) - achievements) + 0.1 * float(s.health - health)
    return reward, s.health == 0


DYNAMICS = Dynamics(
    id="Craftax-Classic-Symbolic-v1",
    state=World,
    step=step,
    reset=reset,
    observe=observe,
    picture=picture,
    observation_space=Box(0.0, 1.0, (NUMBERS,), np.float32),
    action_space=Discrete(len(Action)),
    params=Params(),
    max_episode_steps=10_000,
)
