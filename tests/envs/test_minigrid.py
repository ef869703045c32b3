"""MiniGrid's worlds, as plain Python and as kernels, against the package minigrid."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rlcpu
from rlcpu.envs.tasks.minigrid import door_key, empty, four_rooms, view
from rlcpu.kernels.machine.random import Rng

minigrid = pytest.importorskip("minigrid", reason="MiniGrid's own package is not installed")

STEPS = int(os.environ.get("MINIGRID_STEPS", "800"))


def put(env: Any, state: Any, size: int) -> None:
    """Bring the package's environment into a state of ours."""
    from minigrid.core.grid import Grid
    from minigrid.core.world_object import Door, Goal, Key, Wall

    env.reset()
    grid = Grid(size, size)
    grid.wall_rect(0, 0, size, size)
    env.carrying = None
    if isinstance(state, door_key.State):
        grid.vert_wall(state.split, 0)
        grid.set(state.split, state.door_y, Door("yellow", state.door == 0, state.door == 2))
        if state.key_x == 0:
            env.carrying = Key("yellow")
        else:
            grid.set(state.key_x, state.key_y, Key("yellow"))
    if isinstance(state, four_rooms.State):
        grid.vert_wall(9, 0)
        grid.horz_wall(0, 9)
        for x, y in ((9, state.top), (9, state.bottom), (state.left, 9), (state.right, 9)):
            assert isinstance(grid.get(x, y), Wall)
            grid.set(x, y, None)
        grid.set(state.goal_x, state.goal_y, Goal())
    else:
        grid.set(size - 2, size - 2, Goal())
    env.grid, env.step_count = grid, state.steps
    env.agent_pos, env.agent_dir = (state.x, state.y), state.direction


def image(dynamics: Any, state: Any) -> npt.NDArray[np.uint8]:
    """Our observation as MiniGrid gives it."""
    boards = dynamics.observe(state, dynamics.params)
    cells = [[[b.test(7 * x + y) for y in range(7)] for x in range(7)] for b in boards]
    assert all(b < 1 << 49 for b in boards)
    assert np.sum(cells, axis=0).max() <= 1  # one kind of thing in a cell
    return view.image(np.array(cells))


def walk(dynamics: Any, env: Any, size: int, seed: int) -> Iterator[Any]:
    """Walk in both worlds from states of ours, and compare all that is seen."""
    rng, params = np.random.default_rng(seed), dynamics.params
    terminated = truncated = True
    for t in range(STEPS):
        if terminated or truncated or rng.random() < 0.02:
            state = elsewhere(dynamics.reset(Rng.of_seed(seed, t), params), size, rng)
            put(env, state, size)
            seen = env.gen_obs()["image"]
        np.testing.assert_array_equal(image(dynamics, state), seen, str(state))
        yield state
        action = int(rng.choice([0, 1, 2, 2, 2, 3, 4, 5, 5, 6]))
        if isinstance(state, door_key.State) and rng.random() < 0.3:
            action = 3 if state.key_x else 5
        state, reward, terminated = dynamics.step(state, action, params, Rng.of_seed(seed, t))
        observation, expected, ended, truncated, _ = env.step(action)
        seen = observation["image"]
        assert (reward, terminated) == (expected, ended)
        assert isinstance(reward, float)
        assert (env.agent_pos, env.agent_dir) == ((state.x, state.y), state.direction)
        assert truncated == (state.steps >= dynamics.max_episode_steps)
        if isinstance(state, door_key.State):
            assert bool(env.carrying) == (state.key_x == 0)


@pytest.mark.parametrize("name", ["Empty-8x8", "DoorKey-8x8", "FourRooms"])
def test_kernels_are_minigrids(name: str) -> None:
    """From starts of the kernel, and from others where there is a door, through ends."""
    copies, size = 8, 19 if name == "FourRooms" else 8
    make = {
        "Empty-8x8": lambda: minigrid.envs.EmptyEnv(size=8),
        "DoorKey-8x8": lambda: minigrid.envs.DoorKeyEnv(size=8),
        "FourRooms": minigrid.envs.FourRoomsEnv,
    }[name]
    ours = rlcpu.make_vec(f"MiniGrid-{name}-v0", copies, autoreset_mode="SameStep")
    theirs, rng, rewarded = [make() for _ in range(copies)], np.random.default_rng(5), 0
    for seed in range(max(1, STEPS // 100)):
        observations, _ = ours.reset(seed=seed)
        for env, state, seen in zip(theirs, states(ours), observations, strict=True):
            put(env, state, size)
            np.testing.assert_array_equal(view.image(seen), env.gen_obs()["image"])
        moved = [elsewhere(state, size, rng)._replace(steps=0) for state in states(ours)]
        ours.state = type(moved[0])(*map(np.array, zip(*moved, strict=True)))
        for env, state in zip(theirs, moved, strict=True):
            put(env, state, size)
        for _ in range(101):
            actions = rng.choice([0, 1, 2, 2, 2, 2, 3, 5, 5, 6], copies)
            observations, rewards, terminated, truncated, infos = ours.step(actions)
            ends = terminated | truncated
            reached = states(ours)
            for i, env in enumerate(theirs):
                seen, reward, ended, cut, _ = env.step(int(actions[i]))
                assert (terminated[i], truncated[i]) == (ended, cut)
                assert rewards[i] == pytest.approx(reward, rel=1e-6)  # float32
                shown = infos["final_obs"][i] if ends[i] else observations[i]
                np.testing.assert_array_equal(view.image(shown), seen["image"])
                if ends[i]:
                    put(env, reached[i], size)
            rewarded += int((rewards > 0.0).sum())
    assert rewarded > 0


def states(env: Any) -> list[Any]:
    """The states of all environments, as plain Python has them."""
    return env.dynamics.state.to_states(env.engine.get_state())


def elsewhere(state: Any, size: int, rng: np.random.Generator) -> Any:
    """A random state of a world with a door and a key, and other states as they are."""
    if not isinstance(state, door_key.State) or rng.random() < 0.3:
        return state
    inner = range(1, size - 1)
    door = (state.split, state.door_y)
    floor = [(x, y) for x in inner for y in inner if x != state.split and x * y != (size - 2) ** 2]
    key = (0, 0) if rng.random() < 0.5 else floor[rng.integers(len(floor))]
    state = state._replace(door=int(rng.integers(3)), key_x=key[0], key_y=key[1])
    free = [place for place in [*floor, door] if place != key and (place != door or not state.door)]
    x, y = free[rng.integers(len(free))]
    return state._replace(x=x, y=y, direction=int(rng.integers(4)), steps=int(rng.integers(9)))


@pytest.mark.parametrize(("size", "random_start"), [(5, True), (8, False), (16, True)])
def test_empty_is_minigrids(size: int, random_start: bool) -> None:
    start = None if random_start else (1, 1)
    env = minigrid.envs.EmptyEnv(size=size, agent_start_pos=start)
    dynamics = empty.empty(size, random_start, id="Own-v0")
    for state in walk(dynamics, env, size, size):
        assert random_start or state.steps or (state.x, state.y, state.direction) == (1, 1, 0)


@pytest.mark.parametrize("size", [5, 8, 16])
def test_door_key_is_minigrids(size: int) -> None:
    env = minigrid.envs.DoorKeyEnv(size=size)
    counts: Any = collections.Counter()
    for state in walk(door_key.door_key(size, id="Own-v0"), env, size, size):
        counts["door", state.door] += 1
        counts["right"] += state.x > state.split
        counts["carried"] += state.key_x == 0
    assert len(counts) == 5
    assert min(counts.values()) > 0


def test_four_rooms_is_minigrids() -> None:
    env = minigrid.envs.FourRoomsEnv()
    for _ in walk(four_rooms.DYNAMICS, env, 19, 0):
        pass


@pytest.mark.parametrize("name", ["door_key", "four_rooms", "empty"])
def test_starts_are_those_of_minigrid(name: str) -> None:
    """As often as the package's, and the same ones."""
    make, dynamics = {
        "door_key": (lambda: minigrid.envs.DoorKeyEnv(size=5), door_key.door_key(5, id="Own-v0")),
        "four_rooms": (minigrid.envs.FourRoomsEnv, four_rooms.DYNAMICS),
        "empty": (
            lambda: minigrid.envs.EmptyEnv(size=5, agent_start_pos=None),
            empty.empty(5, True, id="Own-v0"),
        ),
    }[name]
    env, ours, theirs = make(), collections.Counter(), collections.Counter()
    for seed in range(1500):
        state = dynamics.reset(Rng.of_seed(seed), dynamics.params)
        ours.update(start_of(state))
        env.reset(seed=seed)
        theirs.update(found_in(env, name))
    assert ours.keys() == theirs.keys()
    for key in ours:
        spread = 5 * np.sqrt(ours[key] + theirs[key])
        assert abs(ours[key] - theirs[key]) <= spread, key


def start_of(state: Any) -> list[Any]:
    """What is random in a start, one item each."""
    items: list[Any] = [item for item in state._asdict().items() if not item[0].startswith("key")]
    if hasattr(state, "key_x"):
        items.append(("key", state.key_x, state.key_y))
    return items


def found_in(env: Any, name: str) -> list[Any]:
    """The same of the package's environment."""
    items: list[Any] = [("direction", env.agent_dir), ("steps", 0)]
    items += [("x", env.agent_pos[0]), ("y", env.agent_pos[1])]
    things = {
        (x, y): cell.type
        for x in range(env.width)
        for y in range(env.height)
        if (cell := env.grid.get(x, y)) is not None
    }
    if name == "door_key":
        ((split, door_y),) = (place for place, kind in things.items() if kind == "door")
        items += [("split", split), ("door_y", door_y), ("door", 2)]
        items += [("key", *place) for place, kind in things.items() if kind == "key"]
    if name == "four_rooms":
        upright = [y for y in range(19) if things.get((9, y)) != "wall"]
        level = [x for x in range(19) if things.get((x, 9)) != "wall"]
        items += [("top", upright[0]), ("bottom", upright[1])]
        items += [("left", level[0]), ("right", level[1])]
        (goal,) = (place for place, kind in things.items() if kind == "goal")
        items += [("goal_x", goal[0]), ("goal_y", goal[1])]
    return items
