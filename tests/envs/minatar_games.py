"""States of the package minatar as states of ours, and its random numbers taken from ours."""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.tasks.minatar import asterix, breakout, freeway, seaquest, space_invaders
from rlcpu.envs.tasks.minatar.common import NONE, ROW, cell
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

GAMES: dict[str, ModuleType] = {
    "asterix": asterix,
    "breakout": breakout,
    "freeway": freeway,
    "seaquest": seaquest,
    "space_invaders": space_invaders,
}


class Answers:
    """Stands for a `RandomState`: gives back a list of numbers, one call after the other."""

    def __init__(self, *numbers: Any) -> None:
        self.left = list(numbers)

    def rand(self, *shape: int) -> Any:
        return self.left.pop(0)

    def randint(self, *bounds: int, **named: int) -> Any:
        return self.left.pop(0)


def make(name: str, **options: Any) -> Any:
    """The package's environment, which complains that it cannot draw."""
    logging.disable(logging.WARNING)
    try:
        from minatar import Environment
    finally:
        logging.disable(logging.NOTSET)
    env = Environment(name, **options)
    env.actions = env.minimal_action_set()
    return env


def board(cells: npt.NDArray[Any]) -> Board:
    """The board of a (10, 10) array."""
    return Board(sum(1 << int(k) for k in np.flatnonzero(cells)))


def array(cells: Board) -> npt.NDArray[np.float64]:
    """The (10, 10) array of a board."""
    return np.array([[float(cells.test(10 * y + x)) for x in range(10)] for y in range(10)])


def observed(state: Any, module: ModuleType) -> npt.NDArray[np.bool_]:
    """Our observation as the package gives it: (10, 10, planes)."""
    planes = module.observe(state, module.DYNAMICS.params)
    assert all(0 <= plane < 1 << 100 for plane in planes)
    return np.stack([array(plane) for plane in planes], axis=-1).astype(bool)


def union(boards: Any) -> Board:
    total = NONE
    for each in boards:
        total = total | each
    return total


def cells(entities: Any) -> Board:
    """The board of a list of [x, y, ...]."""
    return union(cell(e[1], e[0]) for e in entities)


def rows(entities: Any) -> Board:
    return union(ROW << 10 * e[1] for e in entities)


# ---------------------------------------------------------------- from the package's states to ours


def state_of(env: Any) -> Any:
    """The state of the package's environment as ours."""
    last = env.actions.index(env.last_action) if env.last_action in env.actions else 0
    return globals()[f"_{env.env_name}"](env.env, last)


def _breakout(g: Any, last: int) -> breakout.State:
    dx, dy = [(-1, -1), (1, -1), (1, 1), (-1, 1)][g.ball_dir]
    at = (g.ball_x, g.ball_y, g.last_x, g.last_y, dx, dy, g.pos, g.strike)
    return breakout.State(*at, board(g.brick_map), last)


def _asterix(g: Any, last: int) -> asterix.State:
    there = [e for e in g.entities if e is not None]
    assert g.spawn_speed == 10 - g.ramp_index
    assert g.move_speed == 5 - g.ramp_index // 2
    return asterix.State(
        g.player_x,
        g.player_y,
        cells(e for e in there if not e[3]),
        cells(e for e in there if e[3]),
        rows(e for e in there if e[2]),
        g.spawn_timer,
        g.move_timer,
        g.ramp_timer,
        g.ramp_index,
        last,
    )


def _freeway(g: Any, last: int) -> freeway.State:
    def bits(values: Any) -> tuple[Board, ...]:
        return tuple(
            union(ROW << 10 * (i + 1) for i in range(8) if values[i] >> bit & 1) for bit in range(3)
        )

    return freeway.State(
        g.pos,
        g.move_timer,
        g.terminate_timer,
        cells(g.cars),
        rows(c for c in g.cars if c[3] > 0),
        bits([int(c[2]) for c in g.cars]),
        bits([abs(int(c[3])) for c in g.cars]),
        last,
    )


def _space_invaders(g: Any, last: int) -> space_invaders.State:
    assert g.enemy_move_interval == 12 - g.ramp_index
    return space_invaders.State(
        g.pos,
        board(g.f_bullet_map),
        board(g.e_bullet_map),
        board(g.alien_map),
        g.alien_dir,
        int(g.shot_timer),
        g.alien_move_timer,
        g.alien_shot_timer,
        g.ramp_index,
        last,
    )


def _seaquest(g: Any, last: int) -> seaquest.State:
    assert g.e_spawn_speed == 20 - g.ramp_index
    assert g.move_speed == max(5 - g.ramp_index // 2, 2)
    enemies = g.e_fish + g.e_subs
    for kind in (g.e_fish, g.e_subs):  # what our boards rely on
        assert len({(e[0], e[1], e[3]) for e in kind}) == len(kind)
    phases: dict[tuple[int, int], int] = {}
    for x, y, _, wait, shot in g.e_subs:
        assert phases.setdefault((x, y), (shot - wait) % 11) == (shot - wait) % 11
    assert all(d[3] == (d_wait(g.d_spawn_timer)) for d in g.divers)
    return seaquest.State(
        g.sub_x,
        g.sub_y,
        bool(g.sub_or),
        _sides(g.f_bullets),
        _sides(g.e_bullets),
        _sides(g.divers),
        tuple(cells(e for e in g.e_fish if e[3] == k) for k in range(6)),
        tuple(cells(e for e in g.e_subs if e[3] == k) for k in range(6)),
        tuple(union(cell(y, x) for (x, y), p in phases.items() if p >> k & 1) for k in range(4)),
        rows(e for e in enemies if e[2]),
        g.oxygen,
        g.diver_count,
        g.surface,
        int(g.e_spawn_timer),
        int(g.d_spawn_timer),
        int(g.shot_timer),
        g.ramp_index,
        last,
    )


def d_wait(timer: int) -> int:
    """Steps until all divers move, from the steps until the next one comes."""
    return (timer - 1) % 6


def _sides(things: Any) -> tuple[Board, Board]:
    return cells(t for t in things if not t[2]), cells(t for t in things if t[2])


def without_traces(state: Any) -> Any:
    """A state of ours without what nothing reads any more, such as directions of empty rows."""
    if isinstance(state, asterix.State):
        return state._replace(right=_where(state.right, state.enemies | state.gold))
    if isinstance(state, seaquest.State):
        subs = union(state.subs)
        return state._replace(
            right=_where(state.right, subs | union(state.fish)),
            phase=tuple(p & subs for p in state.phase),
        )
    return state


def _where(rows_: Board, there: Board) -> Board:
    return union(ROW << 10 * y for y in range(10) if there & (ROW << 10 * y) & rows_)


# ---------------------------------------------------------------- random numbers


def answer(env: Any, rng: Rng) -> None:
    """Let the package's next step draw what ours does with `rng`."""
    game, half = env.env, lambda k: 0.25 if rng.integers(k, 2) == 0 else 0.75
    third = 0.25 if rng.integers(2, 3) == 0 else 0.75
    env.random = Answers(rng.uniform(0))
    if env.env_name == "asterix":
        free = sum(e is None for e in game.entities)
        game.random = Answers(half(1), third, rng.integers(3, max(free, 1)))
    elif env.env_name == "freeway":
        game.random = Answers(*traffic(rng))
    elif env.env_name == "seaquest":
        enemy = (half(1), third, 1 + rng.integers(3, 8)) if game.e_spawn_timer == 0 else ()
        diver = (half(4), 1 + rng.integers(5, 8)) if game.d_spawn_timer == 0 else ()
        game.random = Answers(*enemy, *diver)
    elif env.env_name == "breakout":
        game.random = Answers(rng.integers(0, 2))


def traffic(rng: Rng) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Speeds and what directions are made of, for all eight cars."""
    drawn = np.array([rng.integers(y, 10) for y in range(1, 9)])
    return 1 + drawn // 2, np.where(drawn % 2 == 1, 0.75, 0.25)


# ---------------------------------------------------------------- random states


def shuffle(env: Any, rng: np.random.Generator) -> None:
    """Put the package's game into a random state, or Seaquest's player into one."""
    game, below = env.env, lambda n: int(rng.integers(n))
    env.last_action = env.actions[below(len(env.actions))]
    if env.env_name == "breakout":
        game.ball_x, game.ball_y, game.last_x, game.last_y = (below(10) for _ in range(4))
        game.ball_y = min(game.ball_y, 8)
        game.ball_dir, game.pos, game.strike = below(4), below(10), bool(below(2))
        game.brick_map[1:4] = rng.random((3, 10)) < rng.choice([0.0, 0.1, 0.9])
    elif env.env_name == "asterix":
        game.player_x, game.player_y, game.ramp_index = below(10), 1 + below(8), below(10)
        game.spawn_speed, game.move_speed = 10 - game.ramp_index, 5 - game.ramp_index // 2
        game.spawn_timer, game.move_timer = below(game.spawn_speed + 1), below(game.move_speed + 1)
        game.ramp_timer = below(102) - 1
        for i in range(8):
            here = [below(10), i + 1, bool(below(2)), bool(below(2))]
            game.entities[i] = here if rng.random() < 0.7 else None
    elif env.env_name == "freeway":
        game.pos, game.move_timer, game.terminate_timer = below(10), below(4), below(2501)
        for i in range(8):
            speed = 1 + below(5)
            game.cars[i] = [below(10), i + 1, below(6), speed * (1 - 2 * below(2))]
    elif env.env_name == "space_invaders":
        game.pos, game.alien_dir, game.ramp_index = below(10), 1 - 2 * below(2), below(7)
        game.enemy_move_interval = 12 - game.ramp_index
        game.alien_map = (rng.random((10, 10)) < rng.choice([0.02, 0.1, 0.5])).astype(float)
        game.alien_map[below(10), below(10)] = 1
        game.f_bullet_map = (rng.random((10, 10)) < 0.1).astype(float)
        game.e_bullet_map = (rng.random((10, 10)) < 0.1).astype(float)
        game.shot_timer, game.alien_shot_timer = below(5), below(10)
        game.alien_move_timer = below(game.enemy_move_interval)
    else:
        game.sub_x, game.sub_y, game.f_bullets = 1 + below(8), below(9), []
        game.sub_or, game.surface = bool(below(2)), bool(below(2))
        game.oxygen, game.diver_count, game.shot_timer = below(201), below(8) - 1, below(5)
