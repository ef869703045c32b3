"""Pictures of games on a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.envs.tasks.minatar import asterix, breakout, freeway, seaquest, space_invaders
from rlcpu.envs.tasks.minigrid import door_key, empty, four_rooms
from rlcpu.envs.tasks.pictures import COLOURS, PIXELS, draw, draw_arrow, grid_of
from rlcpu.envs.tasks.toy_text import blackjack, cliff_walking, frozen_lake, taxi
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

MINATAR = dict.fromkeys((asterix, breakout, freeway, seaquest, space_invaders), (10, 10))
MINIGRID = {door_key: (8, 8), empty: (8, 8), four_rooms: (19, 19)}
TOY_TEXT = {blackjack: (5, 23), cliff_walking: (4, 12), frozen_lake: (4, 4), taxi: (11, 11)}
SHAPES = MINATAR | MINIGRID | TOY_TEXT


WAYS = [(0, 0, 1), (1, 1, 0), (2, 0, -1), (3, -1, 0)]


def test_the_last_board_is_on_top() -> None:
    grid = grid_of((Board(0b011), Board(0b110)), 2, 3)
    np.testing.assert_array_equal(grid, [[1, 2, 2], [0, 0, 0]])
    picture = draw(grid, pixels=2)
    assert (picture.shape, picture.dtype) == ((4, 6, 3), np.uint8)
    np.testing.assert_array_equal(picture[::2, ::2], COLOURS[grid])
    np.testing.assert_array_equal(picture[1::2, 1::2], COLOURS[grid])


@pytest.mark.parametrize(("direction", "row", "column"), WAYS)
def test_arrows_point_ahead(direction: int, row: int, column: int) -> None:
    picture = draw_arrow(draw(np.zeros((3, 3), np.int64)), 1, 1, direction)
    red = (picture == COLOURS[5]).all(axis=-1)
    assert red.sum() == red[PIXELS : 2 * PIXELS, PIXELS : 2 * PIXELS].sum() > 0
    place = np.argwhere(red).mean(axis=0) - (1.5 * PIXELS - 0.5)  # the base has more of it
    assert tuple(np.sign(np.round(place, 6)).astype(int)) == (-row, -column)


@pytest.mark.parametrize("module", SHAPES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_game_is_drawn(module: Any) -> None:
    dynamics = module.DYNAMICS
    rows, columns = SHAPES[module]
    state, seen = dynamics.reset(Rng.of_seed(0), dynamics.params), set()
    for t in range(30):
        picture = dynamics.picture(state, dynamics.params)
        assert (picture.shape, picture.dtype) == ((rows * PIXELS, columns * PIXELS, 3), np.uint8)
        seen.add(picture.tobytes())
        action = t % int(dynamics.action_space.n)
        state, _, terminated = dynamics.step(state, action, dynamics.params, Rng.of_seed(1, t))
        if terminated:
            state = dynamics.reset(Rng.of_seed(2, t), dynamics.params)
    assert len(seen) > 2
