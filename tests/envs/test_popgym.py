"""POPGym's tasks, as plain Python and as kernels, against the package popgym."""

from __future__ import annotations

import collections
import copy
import warnings
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest

from rlcpu.envs.contract.registry import lookup
from rlcpu.envs.tasks.popgym import FAMILY
from rlcpu.kernels.machine.random import RESET_GROUP, STEP_GROUP, Rng
from tests.envs.trials import try_kernels

pytest.importorskip("popgym", reason="the package popgym is not installed")
pytest.importorskip("mazelib", reason="the package mazelib is not installed")

IDS = list(FAMILY.limits)


class Numbers:
    """Stands in the place of NumPy's generator, and gives the numbers that it is told."""

    def __init__(self) -> None:
        self.orders: list[Any] = []
        self.values: list[Any] = []
        self.generator = np.random.default_rng(0)

    def shuffle(self, array: npt.NDArray[Any]) -> None:
        array[:] = self.orders.pop(0)

    def choice(self, items: Any, size: int, replace: bool) -> Any:
        return self.orders.pop(0)

    def integers(self, high: int, size: int) -> Any:
        return self.generator.integers(high, size=size)

    def normal(self, mean: float, deviation: Any) -> Any:
        return np.array([self.values.pop(0) for _ in deviation])

    def random(self, size: int | None = None, dtype: Any = None) -> Any:
        return self.values.pop(0)

    def uniform(self, low: Any, high: Any, size: Any = None) -> Any:
        return np.zeros(np.shape(high) if size is None else size)


def order_of(kinds: npt.NDArray[Any], kind_of_card: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return cards of these kinds, each card once."""
    cards = {kind: list(np.flatnonzero(kind_of_card == kind)) for kind in set(kinds.tolist())}
    return np.array([cards[kind].pop() for kind in kinds.tolist()])


def original(dynamics: Any) -> Any:
    name = dynamics.id.removeprefix("POPGym/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(f"popgym-{name}", disable_env_checker=True).unwrapped


def put(env: Any, state: Any) -> Any:
    """Bring the package's environment into a new state of ours, and return what it shows."""
    env._np_random = numbers = Numbers()
    if hasattr(state, "deck"):
        kinds = {2: "colors_idx", 4: "suits_idx", 13: "ranks_idx"}[int(max(state.deck)) + 1]
        numbers.orders = [order_of(np.asarray(state.deck), getattr(env.deck, kinds))]
    elif hasattr(state, "queries"):
        numbers.orders = [
            order_of(np.asarray(deck), env.deck_idx_type) for deck in (state.values, state.queries)
        ]
    elif hasattr(state, "cells"):
        numbers.orders = [np.flatnonzero(np.asarray(state.cells) == 1)]
    elif hasattr(state, "chances"):
        numbers.values = [np.asarray(state.chances)]
    elif hasattr(state, "_fields"):
        numbers.values = [*state.noise]
    seen, _ = env.reset()
    if hasattr(state, "ships"):
        env.board = np.asarray(state.ships).astype(np.int8)
    elif hasattr(state, "grid"):
        env.maze.grid, env.position = np.array(state.grid), (state.row, state.column)
        env.explored = np.array(state.visited, np.int8)
        env.pos_reward_scale = 1 / (env.maze.grid == 0).sum()
        seen = env.get_obs(4)
    elif hasattr(state, "_fields"):
        physics, _ = state
        env.state = np.array(physics) if len(physics) == 2 else physics
        numbers.values = [*state.noise]
        seen = env._get_obs()[:2] if len(physics) == 2 else np.array([physics[0], physics[2]])
        seen = env.add_noise_to_obs(seen) if hasattr(env, "add_noise_to_obs") else seen
    return seen


def shown(dynamics: Any, state: Any) -> Any:
    if not dynamics.writes_observation:
        return dynamics.observe(state, dynamics.params)
    out = np.zeros(dynamics.observation_space.shape, np.float32)
    dynamics.observe(state, dynamics.params, out)
    return out


def assert_shows(dynamics: Any, env: Any, state: Any, expected: Any) -> None:
    seen = shown(dynamics, state)
    if isinstance(state, tuple):  # popgym rounds what it sees to float32
        np.testing.assert_allclose(seen, expected, rtol=0, atol=2e-7)
        return
    if isinstance(env.observation_space, gymnasium.spaces.Discrete):
        assert seen == expected
        return
    np.testing.assert_array_equal(seen, gymnasium.spaces.flatten(env.observation_space, expected))


def reset(dynamics: Any, rng: Rng) -> Any:
    if not dynamics.has_arrays:
        return dynamics.reset(rng, dynamics.params)
    state = dynamics.state.value_class()
    dynamics.reset(state, rng, dynamics.params)
    return state


def step(dynamics: Any, state: Any, action: Any, rng: Rng) -> tuple[Any, float, list[bool]]:
    """Return the state after a step, the reward and the flags."""
    noise = (rng,) if dynamics.takes_rng("step") else ()
    result = dynamics.step(state, action, dynamics.params, *noise)
    after, reward, *flags = (state, *result) if dynamics.has_arrays else result
    return after, reward, flags


def choose(state: Any, space: Any, rng: np.random.Generator) -> Any:
    """Return an action that often is the right one, so that rewards of both kinds come."""
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return tuple(int(rng.integers(n)) for n in space.nvec)
    if isinstance(space, gymnasium.spaces.Box):
        return (float(np.float32(rng.uniform(-2.5, 2.5))),)
    if hasattr(state, "queries") and rng.random() < 0.5:
        return int(state.counts[state.queries[state.left]])
    if hasattr(state, "first") and state.waiting >= 0 and rng.random() < 0.5:
        same = np.flatnonzero(np.asarray(state.deck) == state.deck[state.waiting])
        return int(rng.choice(same))
    return int(rng.integers(space.n))


@pytest.mark.parametrize("id", IDS)
def test_steps_are_those_of_the_package(id: str) -> None:
    dynamics, env = lookup(id), original(lookup(id))
    rng, rewards, ends = np.random.default_rng(3), collections.Counter[float](), 0
    assert dynamics.action_space == env.action_space
    spaces = dynamics.observation_space, env.observation_space
    assert len(set(map(gymnasium.spaces.flatdim, spaces))) == 1
    for _ in range(3):
        a, b = (int(word) for word in rng.integers(1, 2**32, 2))
        state = reset(dynamics, Rng(a | 1, b, RESET_GROUP))
        assert_shows(dynamics, env, state, put(env, copy.deepcopy(state)))
        for elapsed in range(1, 900):
            action = choose(state, dynamics.action_space, rng)
            turn = Rng(a | 1, b ^ elapsed, STEP_GROUP)
            env._np_random.values = [turn.again().uniform()]
            state, reward, flags = step(dynamics, state, action, turn)
            if isinstance(state, tuple):
                env._np_random.values = [*state.noise]
            is_number = isinstance(action, int)
            theirs = action if is_number else np.array(action, env.action_space.dtype)
            seen, expected, terminated, truncated, _ = env.step(theirs)
            assert reward == pytest.approx(expected, rel=1e-12, abs=1e-15)
            limit = dynamics.max_episode_steps
            cut = flags[1] if len(flags) == 2 else limit is not None and elapsed >= limit
            assert (flags[0], cut) == (bool(terminated), bool(truncated)), elapsed
            assert_shows(dynamics, env, state, seen)
            rewards[reward] += 1
            if terminated or truncated:
                ends += 1
                break
    assert ends == 3 or "Labyrinth" in id
    assert len(rewards) > 1 or "CartPole" in id or "EscapeHard" in id


#: One of each source file.
COMPARED = ("Autoencode", "Battleship", "Concentration", "CountRecall", "HigherLower")
COMPARED += ("LabyrinthExplore", "MineSweeper", "MultiarmedBandit", "RepeatPrevious")
COMPARED += ("NoisyPositionOnlyCartPole",)


@pytest.mark.parametrize("id", [f"POPGym/{name}Easy-v0" for name in COMPARED])
def test_kernels_take_the_steps_of_plain_python(id: str) -> None:
    try_kernels(lookup(id))


def test_ships_lie_as_those_of_the_package() -> None:
    dynamics = lookup("POPGym/BattleshipEasy-v0")
    env, count = original(dynamics), 1000
    ours = np.mean([reset(dynamics, Rng.of_seed(7, k)).ships for k in range(count)], axis=0)
    env.reset(seed=1)
    theirs = []
    for _ in range(count):
        env.reset()
        theirs.append(env.board)
    error = np.sqrt(2 * ours * (1 - ours) / count)
    assert np.abs((ours - np.mean(theirs, axis=0)) / error).max() < 4.0  # of 64 cells


def test_mazes_are_dug_as_those_of_the_package() -> None:
    dynamics = lookup("POPGym/LabyrinthExploreEasy-v0")
    env, count = original(dynamics), 250
    ours = [reset(dynamics, Rng.of_seed(5, k)) for k in range(count)]
    env.reset(seed=2)
    theirs = []
    for _ in range(count):
        env.reset()
        theirs.append(env.maze.grid.copy())
    mazes = [[np.asarray(state.grid) for state in ours], theirs]
    for measure in (_dead_ends, _crossings, _long_corridors, _starts_above):
        a, b = (np.array([measure(maze) for maze in each], float) for each in mazes)
        error = np.sqrt((a.var() + b.var()) / count)
        assert abs(a.mean() - b.mean()) < 3.5 * error, measure.__name__


def _ways(maze: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return how many ways lead out of each cell that is dug."""
    free = (maze == 0).astype(int)
    around = free[:-2, 1:-1] + free[2:, 1:-1] + free[1:-1, :-2] + free[1:-1, 2:]
    return around[::2, ::2] * free[1:-1, 1:-1][::2, ::2]


def _dead_ends(maze: npt.NDArray[Any]) -> float:
    return float((_ways(maze) == 1).sum())


def _crossings(maze: npt.NDArray[Any]) -> float:
    return float((_ways(maze) > 2).sum())


def _long_corridors(maze: npt.NDArray[Any]) -> float:
    free = maze[1:-1:2, 1:-1] == 0
    return float((free[:, :-4] & free[:, 1:-3] & free[:, 2:-2] & free[:, 3:-1]).sum())


def _starts_above(maze: npt.NDArray[Any]) -> float:
    return float((maze[0] == 2).any())
