"""Writes what the package craftax does, as a program: `python -m tests.envs.record_craftax`.

It wants `pip install craftax`, which the tests do not: they read craftax.npz. Steps begin in worlds
of the package into which all that a game has is strewn, near the player and at the edges, so that
every rule is met in few steps. Beside each step stand the random numbers that the package drew for
it, in the order of `rlcpu.envs.tasks.craftax.mobs`: those in [0, 1) as bytes of 1 / 256, on the
right side of the number that they are compared with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).with_name("craftax.npz")
EPISODES, STEPS, WORLDS, COUNTED = 100, 40, 10, 300
PLAYED, LONGEST = 500, 300
MOBS = ("zombies", "cows", "skeletons", "arrows")
INTS = ("health", "food", "drink", "energy", "direction")
BODY = ("recover", "hunger", "thirst", "fatigue")
#: Blocks that are strewn, and actions, the frequent ones more than once.
STREWN = (2, 2, 3, 4, 5, 7, 7, 8, 9, 9, 9, 10, 11, 11, 11, 11, 12, 12, 12, 13, 14, 16)
ACTIONS = (*range(17), *range(11, 17), *[5] * 10, *[1, 2, 3, 4] * 4, 6, 6, 9)
SQUARE = np.array([(i, j) for i in range(-5, 6) for j in range(-5, 6)])


# ---------------------------------------------------------------- states


def strew(world: Any, rng: np.random.Generator, episode: int) -> Any:
    """Return a state in a world, with everything near the player."""
    import jax.numpy as jnp
    from craftax.craftax_classic.game_logic import calculate_light_level

    grid = np.array(world.map)
    row, column = rng.integers(0, 64, 2)
    if episode % 3 == 0:  # at an edge, with lava at the opposite one
        row = rng.choice((0, 63))
        grid[63 - row, column] = 14
        grid[rng.integers(64), 0], grid[rng.integers(64), 63] = 11, 12
    near = np.clip(SQUARE + np.array((row, column)), 0, 63)
    for i, j in near[rng.random(len(near)) < 0.3]:
        grid[i, j] = rng.choice(STREWN)
    equipped = episode % 2 == 0
    if equipped:
        grid[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = 2
        grid[min(row + 1, 62), max(column - 1, 0)] = 11
        grid[max(row - 1, 1), max(column - 1, 0)] = 12
    grid[row, column] = 2
    taken = np.zeros((64, 64), bool)

    def place() -> Any:
        return near[rng.integers(len(near))]

    mobs: dict[str, Any] = {}
    for name in MOBS:
        old = getattr(world, name)
        positions, health, alive = (np.array(x) for x in (old.position, old.health, old.mask))
        for k in range(len(alive)):
            positions[k] = place()
            alive[k] = rng.random() < 0.7 and tuple(positions[k]) != (row, column)
            health[k] = rng.integers(1, 6) if alive[k] else rng.integers(-1, 4)
            if name != "arrows":
                alive[k] = alive[k] and not taken[tuple(positions[k])]
                taken[tuple(positions[k])] |= alive[k]
        cooldown = rng.integers(-3, 5, len(alive)) * (name in ("zombies", "skeletons"))
        health = health * (name != "arrows")
        mobs[name] = old.replace(
            position=jnp.array(positions, jnp.int32),
            health=jnp.array(health, jnp.int32),
            mask=jnp.array(alive),
            attack_cooldown=jnp.array(cooldown, jnp.int32),
        )
    moves = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)])[rng.integers(0, 4, 3)]
    places, ages, grown = np.zeros((10, 2), int), np.zeros(10, int), np.zeros(10, bool)
    for k in range(rng.integers(0, 11)):
        places[k], grown[k] = place(), True
        ages[k] = rng.choice((0, 570, 590, 599, 605))
        if tuple(places[k]) != (row, column):
            grid[tuple(places[k])] = 16 if ages[k] >= 600 else 15
    timestep = int(rng.integers(0, 9000))
    names = vars(world.inventory)
    most = {name: rng.choice((1, 9)) if k < 6 else 3 for k, name in enumerate(names)}
    inventory = {
        k: jnp.int32(rng.integers(0, n + 1) * (rng.random() < 0.7)) for k, n in most.items()
    }
    if equipped:
        inventory |= {k: jnp.int32(2) for k in list(names)[:6]}
    ints = {f"player_{name}": jnp.int32(rng.integers(2, 10)) for name in INTS[:4]}
    ints["player_direction"] = jnp.int32(rng.integers(1, 5))
    body = {
        f"player_{name}": jnp.float32(rng.integers(2 * low, 2 * high + 1) / 2)
        for name, low, high in zip(BODY, (-15, 0, 0, -10), (25, 25, 20, 30), strict=True)
    }
    return world.replace(
        map=jnp.array(grid, world.map.dtype),
        mob_map=jnp.array(taken),
        player_position=jnp.array((row, column), jnp.int32),
        is_sleeping=jnp.array(rng.random() < 0.2),
        inventory=world.inventory.replace(**inventory),
        arrow_directions=jnp.array(moves, jnp.int32),
        growing_plants_positions=jnp.array(places, jnp.int32),
        growing_plants_age=jnp.array(ages, jnp.int32),
        growing_plants_mask=jnp.array(grown),
        achievements=jnp.array(rng.random(22) < 0.1),
        timestep=jnp.int32(timestep),
        light_level=calculate_light_level(timestep, default_params()),
        **ints,
        **body,
        **mobs,
    )


def default_params() -> Any:
    from craftax.craftax_classic.envs.craftax_state import EnvParams

    return EnvParams()


def fields_of(state: Any) -> dict[str, Any]:
    """Return the fields of our state, without the map and the memory for noise."""
    names = {name: int(getattr(state, f"player_{name}")) for name in INTS}
    row, column = (int(n) for n in state.player_position)
    mobs = {}
    for name in MOBS[:3]:
        each = getattr(state, name)
        numbers = each.position, each.mask[:, None], each.health[:, None]
        mobs[name] = np.concatenate([*numbers, each.attack_cooldown[:, None]], axis=1)
    arrows = state.arrows
    mobs["arrows"] = np.concatenate(
        [arrows.position, arrows.mask[:, None], state.arrow_directions], axis=1
    )
    plants = (
        state.growing_plants_positions,
        state.growing_plants_mask[:, None],
        state.growing_plants_age[:, None],
    )
    return {
        **names,
        **{name: float(getattr(state, f"player_{name}")) for name in BODY},
        **{name: each.astype(np.int16) for name, each in mobs.items()},
        "row": row,
        "column": column,
        "is_sleeping": bool(state.is_sleeping),
        "inventory": np.array(list(vars(state.inventory).values()), np.int16),
        "plants": np.concatenate(plants, axis=1).astype(np.int16),
        "achievements": np.asarray(state.achievements),
        "light": np.float32(state.light_level),
        "timestep": int(state.timestep),
    }


# ---------------------------------------------------------------- random numbers


def draws_of(key: Any) -> Any:
    """Return the random numbers of a step, as the package splits its key; cells are left out."""
    import jax
    from jax.random import choice, split, uniform

    numbers: list[Any] = [0] * 25
    key, inner = split(key)
    numbers[0] = uniform(split(inner)[1])
    key, inner = split(key)
    inner = split(inner)[0]
    for k in range(3):
        for n in range(3):
            inner, own = split(inner)
            numbers[1 + 3 * k + n] = choice(own, jax.numpy.arange(4)) if n == 0 else uniform(own)
        inner = split(inner)[1]
    inner = split(inner)[0]
    for k in range(3):
        inner, own = split(inner)
        numbers[10 + k] = choice(own, jax.numpy.arange(8))
    inner = split(inner)[0]
    for k in range(2):
        for n in range(3):
            inner, own = split(inner)
            numbers[13 + 3 * k + n] = choice(own, jax.numpy.arange(4)) if n == 0 else uniform(own)
    inner = split(key)[1]
    for k in range(3):
        inner, own = split(inner)
        numbers[19 + 2 * k] = uniform(own)
        inner = split(inner)[0]
    return numbers


def as_bytes(numbers: list[Any], zombie_chance: float) -> list[int]:
    """Return what is in [0, 1) as bytes, on the same side of what it is compared with."""
    bounds = {0: 0.1, 19: 0.1, 21: zombie_chance, 23: 0.05}
    bounds |= dict.fromkeys((2, 5, 8, 14, 17), 0.5) | dict.fromkeys((3, 6, 9), 0.75)
    bounds |= dict.fromkeys((15, 18), 0.85)
    whole = [int(number) for number in numbers]
    for place, bound in bounds.items():
        number = float(numbers[place])
        whole[place] = int(number * 256)
        if (number < bound) != (whole[place] / 256 < bound):
            whole[place] += 1
    return whole


def before_mobs_appear(key: Any, state: Any, action: Any) -> Any:
    """Return the state in the middle of a step."""
    import jax
    from craftax.craftax_classic import game_logic as rules
    from craftax.craftax_classic.envs.craftax_state import StaticEnvParams

    sizes, params = StaticEnvParams(), default_params()
    action = jax.lax.select(state.is_sleeping, 0, action)
    state = rules.do_crafting(state, action)
    key, own = jax.random.split(key)
    state = rules.do_action(own, state, action, sizes)
    state = rules.place_block(state, action, sizes)
    state = rules.move_player(state, action)
    return rules.update_mobs(jax.random.split(key)[1], state, params, sizes)


def cells_of(state: Any, after: Any) -> list[int]:
    """Return the number of the cell in which each kind appeared, among those where it might."""
    blocks, taken = np.asarray(state.map), np.array(state.mob_map)
    rows, columns = np.indices(blocks.shape)
    row, column = (int(n) for n in state.player_position)
    away, chosen = abs(rows - row) + abs(columns - column), []
    for name, kinds, nearest in (
        ("cows", (2,), 4),
        ("zombies", (2, 7), 10),
        ("skeletons", (7,), 10),
    ):
        old, new = getattr(state, name), getattr(after, name)
        fresh = np.flatnonzero(np.asarray(new.mask) & ~np.asarray(old.mask))
        chosen.append(0)
        if len(fresh):
            may = np.isin(blocks, kinds) & (away >= nearest) & (away < 14) & ~taken
            place = tuple(int(n) for n in new.position[fresh[0]])
            assert may[place]
            chosen[-1] = int(may.ravel()[: place[0] * 64 + place[1]].sum())
            taken[place] = True
    return chosen


# ---------------------------------------------------------------- the recording


def measure(blocks: Any) -> Any:
    """Return how often each block is on a map, in its middle, beside its like and below it."""
    middle, beside = blocks[24:40, 24:40], blocks[:, 1:][blocks[:, 1:] == blocks[:, :-1]]
    below = blocks[1:][blocks[1:] == blocks[:-1]]
    parts = (part.ravel() for part in (blocks, middle, beside, below))
    return np.array([np.bincount(part, minlength=17) for part in parts])


def play(make: Any, step: Any) -> tuple[Any, Any]:
    """Return the lengths and returns of episodes with random actions, cut after LONGEST steps."""
    import jax
    import jax.numpy as jnp
    from craftax.craftax_classic.game_logic import is_game_over

    params = default_params()

    def turn(carry: Any, key: Any) -> Any:
        states, lives, lengths, returns = carry
        first, second = jax.random.split(key)
        actions = jax.random.randint(first, (PLAYED,), 0, 17)
        keys = jax.random.split(second, PLAYED)
        states, rewards = jax.vmap(step)(keys, states, actions)
        lengths, returns = lengths + lives, returns + rewards * lives
        ended = jax.vmap(is_game_over, (0, None))(states, params)
        return (states, lives & ~ended, lengths, returns), None

    worlds = jax.vmap(make)(jax.random.split(jax.random.key(7), PLAYED))
    start = worlds, jnp.ones(PLAYED, bool), jnp.zeros(PLAYED, int), jnp.zeros(PLAYED)
    keys = jax.random.split(jax.random.key(8), LONGEST)
    _, _, lengths, returns = jax.lax.scan(turn, start, keys)[0]
    return np.asarray(lengths), np.asarray(returns)


def main() -> None:
    """Record steps and episodes, and count the blocks of worlds."""
    import jax
    from craftax.craftax_classic import game_logic as rules
    from craftax.craftax_classic.envs.craftax_state import StaticEnvParams
    from craftax.craftax_classic.renderer import render_craftax_symbolic
    from craftax.craftax_classic.world_gen import generate_world

    sizes, params = StaticEnvParams(), default_params()
    make = jax.jit(lambda key: generate_world(key, params, sizes))
    step = jax.jit(lambda key, state, action: rules.craftax_step(key, state, action, params, sizes))
    middle, draw, render = map(jax.jit, (before_mobs_appear, draws_of, render_craftax_symbolic))
    worlds = [make(jax.random.key(k)) for k in range(WORLDS)]
    rng = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {}
    changes: list[tuple[int, ...]] = []

    def note(before: Any, after: Any, **numbers: Any) -> None:
        """Keep a state, and what of the map differs from the one before."""
        number = len(rows.get("row", ()))
        for name, old, new in (
            (0, before.map, after.map),
            (1, before.mob_map, after.mob_map),
        ):
            old, new = np.asarray(old, int), np.asarray(new, int)
            cells = np.flatnonzero(old != new)
            changes.extend((number, name, int(cell), int(new.ravel()[cell])) for cell in cells)
        for key, value in {**fields_of(after), **numbers}.items():
            rows.setdefault(key, []).append(value)

    blank = {"action": 0, "draws": [0] * 25, "reward": 0.0, "ended": False}
    for episode in range(EPISODES):
        world = worlds[episode % WORLDS]
        state = strew(world, rng, episode)
        note(world, state, episode=episode, begins=True, **blank)
        for k in range(STEPS):
            action, key = int(rng.choice(ACTIONS)), jax.random.key(1000 * episode + k)
            action = (7 + episode // 2) % 17 if k == 0 and episode % 2 == 0 else action
            chance = 0.02 + 0.1 * (1.0 - float(state.light_level)) ** 2
            numbers = as_bytes(draw(key), chance)
            before, (state, reward) = state, step(key, state, action)
            numbers[20::2] = cells_of(middle(key, before, action), state)
            ended = bool(rules.is_game_over(state, params))
            note(
                before, state, episode=episode, begins=False, action=action, draws=numbers,
                reward=np.float32(reward), ended=ended,
            )  # fmt: skip
            if k % 5 == 0:
                rows.setdefault("observed", []).append(len(rows["row"]) - 1)
                rows.setdefault("observations", []).append(np.asarray(render(state)))
            if ended:
                break
    save(worlds, rows, changes, make, play(make, step))


def save(
    worlds: list[Any], rows: dict[str, list[Any]], changes: list[Any], make: Any, played: Any
) -> None:
    """Write arrays of the smallest dtypes; cells of an observation as bits."""
    import jax

    seen = np.array(rows.pop("observations"))
    cells = seen[:, :1323]
    assert ((cells == 0.0) | (cells == 1.0)).all()
    arrays = {name: np.array(values) for name, values in rows.items()}
    for name, values in arrays.items():
        if values.dtype == np.int64:
            arrays[name] = values.astype(np.int16)
        elif name in BODY:
            arrays[name] = values.astype(np.float16)
    fresh = (np.asarray(make(jax.random.key(10**6 + k)).map) for k in range(COUNTED))
    measured = [measure(blocks) for blocks in fresh]
    maps = np.array([np.asarray(world.map) for world in worlds], np.uint8)
    np.savez_compressed(
        PATH,
        worlds=maps,
        changes=np.array(changes, np.int16),
        cells=np.packbits(cells.astype(bool), axis=1),
        numbers=seen[:, 1323:].astype(np.float32),
        measured=np.array(measured, np.int16),
        lengths=played[0].astype(np.int16),
        returns=played[1].astype(np.float32),
        **arrays,
    )


if __name__ == "__main__":
    main()
