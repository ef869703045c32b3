"""Draws docs/games.png, which shows a moment of every game: `python docs/draw_games.py`."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

import rlcpu

#: Steps with random actions before the picture is taken.
STEPS = {
    "MinAtar/Breakout-v1": 7,
    "MinAtar/Asterix-v1": 60,
    "MinAtar/Freeway-v1": 20,
    "MinAtar/Seaquest-v1": 60,
    "MinAtar/SpaceInvaders-v1": 30,
    "FrozenLake-v1": 0,
    "CliffWalking-v1": 12,
    "Taxi-v4": 0,
    "Blackjack-v1": 0,
    "MiniGrid-Empty-8x8-v0": 9,
    "MiniGrid-DoorKey-8x8-v0": 0,
    "MiniGrid-FourRooms-v0": 0,
    "LunarLander-v3": 40,
}
ROWS, COLUMNS = 3, 5


def main() -> None:
    """Draw and save."""
    figure, axes = plt.subplots(ROWS, COLUMNS, figsize=(10, 6), layout="constrained")
    for place in axes.flat:
        place.axis("off")
    for place, (name, steps) in zip(axes.flat, STEPS.items(), strict=False):
        env = rlcpu.make_vec(name, num_envs=1, render_mode="rgb_array")
        env.reset(seed=3)
        env.action_space.seed(3)
        for _ in range(steps):
            env.step(env.action_space.sample())
        place.imshow(env.render()[0], interpolation="nearest")
        place.set_title(name.removesuffix("-v1").removeprefix("MinAtar/"), fontsize=8)
    figure.savefig(Path(__file__).with_name("games.png"), dpi=100)


if __name__ == "__main__":
    main()
