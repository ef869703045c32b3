"""Craftax-Classic beside the package craftax, as `record_craftax` has it, and its rules by hand."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rlcpu
from rlcpu.envs.contract.registry import lookup
from rlcpu.envs.tasks.craftax.state import Achievement, Action, Block, Item, World
from rlcpu.kernels.machine.random import Rng
from tests.envs.record_craftax import ACTIONS, BODY, INTS, LONGEST, PATH, measure
from tests.envs.test_arrays import PlainEnvs

ID = "Craftax-Classic-Symbolic-v1"
FIELDS = (*INTS, *BODY, "zombies", "cows", "skeletons", "arrows", "row", "column", "is_sleeping")
FIELDS += ("inventory", "plants", "achievements", "timestep")
#: What a state holds while a world is made.
MEMORY = ("noise", "slopes", "edges")
COPIES = 20


class Told(Rng):
    """Random numbers that a test knows, as those of a step are recorded."""

    numbers: Any

    @classmethod
    def of(cls, numbers: Any) -> Told:
        rng = cls(1, 1)
        rng.numbers = numbers
        return rng

    def uniform(self, k: int | None = None) -> float:
        return float(self.numbers[k]) / 256.0

    def integers(self, k: int | None, n: int | None = None) -> int:
        assert 0 <= self.numbers[k] < (n or 0), (k, n)
        return int(self.numbers[k])


@pytest.fixture(scope="module")
def recorded() -> dict[str, npt.NDArray[Any]]:
    with np.load(PATH) as file:
        return dict(file)


def states_of(data: dict[str, Any]) -> Iterator[tuple[int, World | None, Any, Any]]:
    """Yield the number of each state of the recording, ours where an episode begins, its maps."""
    grids = np.zeros((2, 64, 64), np.uint8)
    firsts = np.searchsorted(data["changes"][:, 0], np.arange(len(data["row"]) + 1))
    for i in range(len(data["row"])):
        if data["begins"][i]:
            grids[0], grids[1] = data["worlds"][data["episode"][i] % len(data["worlds"])], 0
        for _, which, cell, value in data["changes"][firsts[i] : firsts[i + 1]]:
            grids[which].flat[cell] = value
        state = World() if data["begins"][i] else None
        if state is not None:
            state.map[:], state.mob_map[:] = grids[0], grids[1].astype(bool)
            state.light = float(data["light"][i])
            for name in FIELDS:
                value = data[name][i]
                if value.shape:
                    getattr(state, name)[...] = value
                else:
                    setattr(state, name, value.item())
        yield i, state, grids[0], grids[1].astype(bool)


def beginnings(data: dict[str, Any]) -> Iterator[World]:
    """Yield the states in which episodes of the recording begin."""
    return (state for _, state, *_ in states_of(data) if state is not None)


def replayed(data: dict[str, Any]) -> Iterator[tuple[int, World]]:
    """Yield the number of each state that a step led to, and ours, which steps on by itself."""
    dynamics, state = lookup(ID), World()
    for i, begin, blocks, taken in states_of(data):
        if begin is not None:
            state = begin
            continue
        rng = Told.of(data["draws"][i])
        reward, ended = dynamics.step(state, int(data["action"][i]), dynamics.params, rng)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(state, name), data[name][i], f"{i}: {name}")
        np.testing.assert_array_equal(state.map, blocks, f"{i}")
        np.testing.assert_array_equal(state.mob_map, taken, f"{i}")
        assert state.light == pytest.approx(data["light"][i], abs=1e-5)
        assert reward == pytest.approx(data["reward"][i], abs=1e-6)
        assert ended == data["ended"][i]
        yield i, state


def test_steps_and_observations_are_those_of_the_package(recorded: dict[str, Any]) -> None:
    dynamics, steps = lookup(ID), 0
    places = {int(i): k for k, i in enumerate(recorded["observed"])}
    for i, state in replayed(recorded):
        steps += 1
        if i in places:
            k, seen = places.pop(i), np.zeros(1345, np.float32)
            dynamics.observe(state, dynamics.params, seen)
            cells = np.unpackbits(recorded["cells"][k], count=1323)
            np.testing.assert_array_equal(seen[:1323], cells, f"{i}")
            np.testing.assert_allclose(seen[1323:], recorded["numbers"][k], rtol=0, atol=1e-5)
    assert steps > 1900
    assert not places
    begins = recorded["begins"].astype(bool)
    reached = np.diff(recorded["achievements"].astype(int), axis=0, prepend=0) > 0
    assert reached[~begins].any(axis=0).all()


def test_worlds_are_those_of_the_package(recorded: dict[str, Any]) -> None:
    env = rlcpu.make_vec(ID, 2000)
    env.reset(seed=11)
    assert (env.state.map[:, 32, 32] == Block.GRASS).all()
    assert not env.state.mob_map.any()
    ours = np.array([measure(blocks) for blocks in env.state.map], float)
    theirs = recorded["measured"].astype(float)
    error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs))
    assert (np.abs(ours.mean(0) - theirs.mean(0)) <= 4.5 * error).all()  # of 40 numbers


def test_random_episodes_are_those_of_the_package(recorded: dict[str, Any]) -> None:
    """Their lengths and returns hang on how often mobs appear, move and attack."""
    count = 1500
    env = rlcpu.make_vec(ID, count)
    env.reset(seed=3)
    rng, lives = np.random.default_rng(4), np.ones(count, bool)
    played = np.zeros((2, count))
    for _ in range(LONGEST):
        _, rewards, terminated, _, _ = env.step(rng.integers(0, 17, count))
        played += lives * np.stack((np.ones(count), rewards))
        lives &= ~terminated
    for ours, theirs in zip(played, (recorded["lengths"], recorded["returns"]), strict=True):
        error = theirs.std() * np.sqrt(1 / len(theirs) + 1 / count)
        assert abs(ours.mean() - theirs.mean()) < 4.0 * error
        assert ours.std() == pytest.approx(theirs.std(), rel=0.15)


def test_kernels_take_the_steps_of_plain_python(recorded: dict[str, Any]) -> None:
    """From the states in which the recording begins, and in new worlds where an episode ends."""
    env = rlcpu.make_vec(ID, COPIES)
    env.reset(seed=5)
    plain = PlainEnvs(lookup(ID), COPIES, 5)
    names = [field.name for field in env.dynamics.state.fields if field.name not in MEMORY]

    def assert_equal() -> None:
        for name in names:
            expected = np.array([np.asarray(getattr(state, name)) for state in plain.states])
            np.testing.assert_allclose(getattr(env.state, name), expected, 0, 1e-5, err_msg=name)

    assert_equal()
    starts = list(itertools.islice(beginnings(recorded), COPIES))
    for name in names:
        values = np.array([np.asarray(getattr(state, name)) for state in starts])
        setattr(env.state, name, values)
    plain.states = starts
    rng, ends = np.random.default_rng(2), 0
    for _ in range(20):
        actions = rng.choice(ACTIONS, COPIES)
        seen, rewards, terminated, truncated, _ = env.step(actions)
        results = plain.step(actions, "NextStep")
        np.testing.assert_allclose(rewards, [result[0] for result in results], 0, 1e-6)
        assert list(zip(terminated, truncated, strict=True)) == [r[1:] for r in results]
        np.testing.assert_allclose(seen, plain.observations(), 0, 1e-5)
        assert_equal()
        ends += int(terminated.sum())
    assert ends > 3


# ---------------------------------------------------------------- by hand

#: Numbers of a step with which nothing appears, nobody moves, and grass gives no sapling.
QUIET = np.full(25, 255)
QUIET[[1, 4, 7, 13, 16]], QUIET[10:13], QUIET[[20, 22, 24]] = 0, 7, 0
START: dict[str, Any] = dict.fromkeys(("health", "food", "drink", "energy"), 9)
START |= {"row": 32, "column": 32, "direction": int(Action.RIGHT), "light": 1.0}


def scene(**fields: Any) -> World:
    """Return a player in a meadow, who looks to the right."""
    state = World(**{**START, **fields})
    state.map[:] = Block.GRASS
    return state


def with_block(block: int, **items: int) -> World:
    """Return a scene with a block to the right of the player, and items."""
    state = scene()
    state.map[32, 33] = block
    for name, amount in items.items():
        state.inventory[Item[name]] = amount
    return state


def with_mob(name: str, **items: int) -> World:
    """Return a scene with a mob to the right, which is hurt."""
    state = with_block(Block.PATH, **items)
    getattr(state, name)[0] = 32, 33, 1, 2, 9
    state.mob_map[32, 33] = True
    return state


def at_table(**items: int) -> World:
    """Return a scene with a table and a furnace at corners of the player's cell."""
    state = with_block(Block.GRASS, **items)
    state.map[31, 31], state.map[33, 33] = Block.TABLE, Block.FURNACE
    return state


def with_plant() -> World:
    """Return a scene with a plant that ripens in this step."""
    state = with_block(Block.PLANT)
    state.plants[4] = 32, 33, 1, 599
    return state


ALL = {"WOOD": 1, "STONE": 1, "IRON": 1, "COAL": 1}
#: For each achievement: the scene, actions, and what the inventory holds in the end.
WAYS: dict[Achievement, tuple[World, tuple[Action, ...], dict[str, int]]] = {
    Achievement.COLLECT_WOOD: (with_block(Block.TREE), (Action.DO,), {"WOOD": 1}),
    Achievement.PLACE_TABLE: (with_block(Block.SAND, WOOD=2), (Action.PLACE_TABLE,), {}),
    Achievement.EAT_COW: (with_mob("cows"), (Action.DO,) * 2, {}),
    Achievement.COLLECT_SAPLING: (scene(), (Action.DO,), {"SAPLING": 1}),
    Achievement.COLLECT_DRINK: (with_block(Block.WATER), (Action.DO,), {}),
    Achievement.MAKE_WOOD_PICKAXE: (at_table(WOOD=1), (Action.WOOD_PICKAXE,), {"WOOD_PICKAXE": 1}),
    Achievement.MAKE_WOOD_SWORD: (at_table(WOOD=1), (Action.WOOD_SWORD,), {"WOOD_SWORD": 1}),
    Achievement.PLACE_PLANT: (with_block(Block.GRASS, SAPLING=1), (Action.PLACE_PLANT,), {}),
    Achievement.DEFEAT_ZOMBIE: (with_mob("zombies"), (Action.DO,) * 2, {}),
    Achievement.COLLECT_STONE: (
        with_block(Block.STONE, WOOD_PICKAXE=1),
        (Action.DO,),
        {"STONE": 1, "WOOD_PICKAXE": 1},
    ),
    Achievement.PLACE_STONE: (with_block(Block.WATER, STONE=1), (Action.PLACE_STONE,), {}),
    Achievement.EAT_PLANT: (with_plant(), (Action.NOOP, Action.DO), {}),
    Achievement.DEFEAT_SKELETON: (
        with_mob("skeletons", STONE_SWORD=1),
        (Action.DO,),
        {"STONE_SWORD": 1},
    ),
    Achievement.MAKE_STONE_PICKAXE: (
        at_table(WOOD=1, STONE=1),
        (Action.STONE_PICKAXE,),
        {"STONE_PICKAXE": 1},
    ),
    Achievement.MAKE_STONE_SWORD: (
        at_table(WOOD=1, STONE=1),
        (Action.STONE_SWORD,),
        {"STONE_SWORD": 1},
    ),
    Achievement.WAKE_UP: (scene(energy=8, fatigue=-9.0), (Action.SLEEP,) * 3, {}),
    Achievement.PLACE_FURNACE: (with_block(Block.PATH, STONE=1), (Action.PLACE_FURNACE,), {}),
    Achievement.COLLECT_COAL: (
        with_block(Block.COAL, WOOD_PICKAXE=1),
        (Action.DO,),
        {"COAL": 1, "WOOD_PICKAXE": 1},
    ),
    Achievement.COLLECT_IRON: (
        with_block(Block.IRON, STONE_PICKAXE=1),
        (Action.DO,),
        {"IRON": 1, "STONE_PICKAXE": 1},
    ),
    Achievement.COLLECT_DIAMOND: (
        with_block(Block.DIAMOND, IRON_PICKAXE=1),
        (Action.DO,),
        {"DIAMOND": 1, "IRON_PICKAXE": 1},
    ),
    Achievement.MAKE_IRON_PICKAXE: (at_table(**ALL), (Action.IRON_PICKAXE,), {"IRON_PICKAXE": 1}),
    Achievement.MAKE_IRON_SWORD: (at_table(**ALL), (Action.IRON_SWORD,), {"IRON_SWORD": 1}),
}


@pytest.mark.parametrize("achievement", Achievement, ids=lambda a: a.name.lower())
def test_each_achievement_is_reached_once(achievement: Achievement) -> None:
    dynamics = lookup(ID)
    state, actions, items = WAYS[achievement]
    state, numbers = copy.copy(state), QUIET.copy()
    numbers[0] = 0 if achievement == Achievement.COLLECT_SAPLING else 255
    rewards = []
    for action in actions:
        reward, ended = dynamics.step(state, int(action), dynamics.params, Told.of(numbers))
        assert not ended
        rewards.append(reward)
    assert np.flatnonzero(state.achievements).tolist() == [achievement]
    assert rewards == [*[0.0] * (len(actions) - 1), 1.0]
    assert {item.name: state.inventory[item] for item in Item if state.inventory[item]} == items


@pytest.mark.parametrize("action", [a for a in Action if a > Action.SLEEP], ids=lambda a: a.name)
def test_nothing_is_made_of_nothing(action: Action) -> None:
    dynamics, state = lookup(ID), at_table()
    before = copy.copy(state)
    assert dynamics.step(state, int(action), dynamics.params, Told.of(QUIET)) == (0.0, False)
    np.testing.assert_array_equal(state.map, before.map)
    np.testing.assert_array_equal(state.inventory, before.inventory)


def test_the_table_and_the_furnace_have_to_be_near() -> None:
    dynamics = lookup(ID)
    for missing, action in ((Block.TABLE, Action.WOOD_SWORD), (Block.FURNACE, Action.IRON_SWORD)):
        state = at_table(**ALL)
        state.map[np.asarray(state.map) == missing] = Block.GRASS
        dynamics.step(state, int(action), dynamics.params, Told.of(QUIET))
        assert not state.achievements.any()


def test_lava_and_hunger_kill() -> None:
    dynamics, state = lookup(ID), with_block(Block.LAVA)
    result = dynamics.step(state, int(Action.RIGHT), dynamics.params, Told.of(QUIET))
    assert result == (pytest.approx(-0.9), True)
    state = scene(health=1, food=0, recover=-15.0)
    result = dynamics.step(state, int(Action.NOOP), dynamics.params, Told.of(QUIET))
    assert result == (pytest.approx(-0.1), True)


def test_pictures_show_the_day_the_night_and_sleep() -> None:
    dynamics, seen = lookup(ID), set()
    for fields in ({}, {"light": 0.1}, {"is_sleeping": True}, {"health": 4}, {"direction": 1}):
        state = scene(**fields)
        for name in ("zombies", "cows", "skeletons", "arrows"):
            getattr(state, name)[0] = 30, 33, 1, -1, 0
        state.row = 62
        state.map[62:, 29:36] = np.arange(14).reshape(2, 7) + 3
        state.inventory[:] = range(1, 13)
        picture = dynamics.picture(state, dynamics.params)
        assert (picture.shape, picture.dtype) == ((288, 288, 3), np.uint8)
        seen.add(picture.tobytes())
    assert len(seen) == 5


def test_states_of_nonsense_end_no_process() -> None:
    """Kernels index the map by what a state says, which a user may set."""
    env = rlcpu.make_vec("Craftax-Classic-Symbolic-v1", num_envs=2)
    env.reset(seed=0)
    env.state.row, env.state.direction = np.array([-(10**9), 10**9]), np.array([99, -(10**9)])
    env.state.cows[:, :, 0] = 10**9
    for action in range(17):
        env.step(np.full(2, action))
    observations, _ = env.reset(seed=0)
    assert np.isfinite(observations).all()
