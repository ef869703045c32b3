"""The table `arrays`: states with arrays, against a loop by hand and against POPGym's package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.harness import Job
from asv_benches.peers.rows import Row, duels
from asv_benches.peers.stepping import our_simulate, our_step, step_job

NUM_ENVS, NUM_STEPS = 4096, 200
#: Environments of POPGym: the package steps each in Python.
FEW, MANY = 64, 1024
SIZE = 10
CELLS = SIZE * SIZE


def rows() -> list[Row]:
    what = f"simulate, {NUM_ENVS:,} x {NUM_STEPS}, Snake"
    table = duels(
        "snake",
        what,
        partial(simulate_snake, NUM_ENVS, NUM_STEPS),
        {"hand": ("loop by hand, numba", partial(loop_by_hand, NUM_ENVS, NUM_STEPS), 1.0)},
    )
    for task in popgym_tasks():
        peers = {"popgym": (f"SyncVectorEnv of {FEW}", partial(popgym_step, task, FEW), 100)}
        name, ours = f"popgym-{task.lower()}", partial(our_step, f"POPGym/{task}Easy-v0", MANY)
        table += duels(name, f"env.step, {MANY:,} envs, POPGym/{task}Easy", ours, peers)
    return table


# ---------------------------------------------------------------- POPGym


def popgym_tasks() -> list[str]:
    from rlcpu.envs.tasks.popgym import FAMILY

    ids = [id.removeprefix("POPGym/") for id in FAMILY.limits]
    return [id.removesuffix("Easy-v0") for id in ids if id.endswith("Easy-v0")]


def popgym_step(task: str, num_envs: int) -> Job:
    import popgym.envs
    from gymnasium.vector import SyncVectorEnv

    # Importing `popgym` itself registers ids, which newer releases of Gymnasium refuse.
    kinds = {kind.__name__: kind for kind in popgym.envs.ALL}
    env = SyncVectorEnv([kinds[f"{task}Easy"] for _ in range(num_envs)])
    env.reset(seed=0)
    return step_job(env, num_envs)


# ---------------------------------------------------------------- Snake


def make_functions(compiled: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return (reset, step) of Snake: (state, x, y) and (state, action, x) of numbers in [0, 1)."""

    @compiled
    def place_food(state, x):
        left = int(x * float(CELLS - state.length))
        for cell in range(CELLS):
            if state.grid[cell // SIZE, cell % SIZE] == 0:
                if left == 0:
                    return cell
                left -= 1
        return -1

    @compiled
    def reset(state, x, y):
        cell = int(x * float(CELLS))
        state.body[0] = cell
        state.grid[cell // SIZE, cell % SIZE] = 1
        state.head = 0
        state.length = 1
        state.food = place_food(state, y)

    @compiled
    def step(state, action, x):
        cell = state.body[state.head]
        row = cell // SIZE + (1 if action == 2 else 0) - (1 if action == 0 else 0)
        column = cell % SIZE + (1 if action == 1 else 0) - (1 if action == 3 else 0)
        if row < 0 or row >= SIZE or column < 0 or column >= SIZE:
            return -1.0, True
        eats = SIZE * row + column == state.food
        if not eats:
            tail = state.body[(state.head - state.length + 1) % CELLS]
            state.grid[tail // SIZE, tail % SIZE] = 0
        if state.grid[row, column] == 1:
            return -1.0, True
        state.head = (state.head + 1) % CELLS
        state.body[state.head] = SIZE * row + column
        state.grid[row, column] = 1
        if eats:
            state.length += 1
            state.food = place_food(state, x)
        return (1.0 if eats else 0.0), state.length == CELLS

    return reset, step


def simulate_snake(num_envs: int, num_steps: int) -> Job:
    from gymnasium.spaces import Box, Discrete

    import rlcpu
    from rlcpu.envs import Array, State

    class Snake(State):
        head: int
        length: int
        food: int

    begin, move = make_functions(lambda function: function)

    def reset(state, rng, params):
        begin(state, rng.uniform(), rng.uniform())

    def step(state, action, params, rng):
        return move(state, action, rng.uniform())

    def observe(state, params, out):
        for row in range(SIZE):
            for column in range(SIZE):
                out[row, column] = state.grid[row, column]

    snake = rlcpu.Dynamics(
        id="Snake-v0",
        state=Snake.sized(body=Array[np.int16, CELLS], grid=Array[np.uint8, SIZE, SIZE]),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Box(0.0, 1.0, (SIZE, SIZE)),
        action_space=Discrete(4),
        max_episode_steps=1000,
    )
    return our_simulate(snake, num_envs, num_steps)


def loop_by_hand(num_envs: int, num_steps: int) -> Job:
    """Steps every environment with uniform actions; episodes are reset, rewards summed."""
    import numba

    jit = numba.njit(fastmath=True)
    reset, step = make_functions(jit)
    record = np.dtype(
        [("body", np.int16, CELLS), ("grid", np.uint8, (SIZE, SIZE)), ("head", np.int64),
         ("length", np.int64), ("food", np.int64), ("elapsed", np.int64)],
        align=True,
    )  # fmt: skip

    @jit
    def mixed(word):  # Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))

    @jit
    def number(word):
        return float(word >> np.uint64(40)) * (1.0 / 16777216.0)

    @numba.njit(parallel=True, fastmath=True)
    def run(states, words, num_steps, totals):
        for i in numba.prange(len(states)):
            state, word, total = states[i], words[i], 0.0
            for _ in range(num_steps):
                word += np.uint64(0x9E3779B97F4A7C15)
                bits = mixed(word)
                reward, ended = step(state, int(bits & np.uint64(3)), number(bits))
                total += reward
                state.elapsed += 1
                if ended or state.elapsed == 1000:
                    state.grid[:] = 0
                    state.elapsed = 0
                    word += np.uint64(0x9E3779B97F4A7C15)
                    bits = mixed(word)
                    reset(state, number(bits), number(mixed(bits)))
            words[i], totals[i] = word, total

    states, totals = np.zeros(num_envs, record), np.zeros(num_envs)
    words = np.arange(num_envs, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
    states["length"] = 1
    return Job(partial(run, states, words, num_steps, totals), work=num_envs * num_steps)
