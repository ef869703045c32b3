# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Arrays in states, and observations of several parts
#
# A few numbers are a NamedTuple, whose environments share the registers of the CPU. A grid, a queue
# or a map is an **array**, and what an agent sees of it may have **parts**: an image, a number, a
# choice. Here a robot drives over a field and cuts what has grown there. It sees a map of its
# surroundings, where it is, and how full its tank is.

# %%
import time
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

import rlcpu
from rlcpu.envs import Array, State
from rlcpu.kernels.machine.threads import show_config

plt.rcParams.update({"figure.figsize": (7, 3), "axes.grid": True, "grid.alpha": 0.3})
plt.rcParams["figure.constrained_layout.use"] = True
settings = show_config()
print({k: settings[k] for k in ("cpu", "vector width", "threads", "numba", "gymnasium")})

# %% [markdown]
# ## The state
#
# A subclass of `State` with a type hint for each field. `reset` and `step` are given the state of
# one robot and write into it; all that `reset` leaves alone is zero. There is no batch in them, and
# loops and branches cost what they cost in C.

# %%
SIZE = 12


class Params(NamedTuple):
    grown: float = 0.25  # share of the field
    tank: int = 60  # steps


class Field(State):
    crop: Array[np.uint8, SIZE, SIZE]  # 1 where something has grown
    row: int
    column: int
    fuel: int


def reset(state, rng, params):
    for row in range(SIZE):
        for column in range(SIZE):
            state.crop[row, column] = 1 if rng.uniform() < params.grown else 0
    state.row = rng.integers(SIZE)
    state.column = rng.integers(SIZE)
    state.fuel = params.tank


def step(state, action, params):  # 0 up, 1 down, 2 left, 3 right
    state.row = min(max(state.row + (action == 1) - (action == 0), 0), SIZE - 1)
    state.column = min(max(state.column + (action == 3) - (action == 2), 0), SIZE - 1)
    cut = state.crop[state.row, state.column]
    state.crop[state.row, state.column] = 0
    state.fuel -= 1
    return (1.0 if cut else 0.0), state.fuel == 0


# %% [markdown]
# They stay plain Python, which a test can call:

# %%
state = Field(row=3, column=11, fuel=60)
state.crop[3, 10] = 1
step(state, 2, Params()), state.crop.sum(), state.fuel


# %% [markdown]
# ## The observation
#
# Its space is Gymnasium's `Dict`, and `observe` writes the parts under their names, each of a dtype
# of its own. The map shows five cells in each direction, with a border of 255 around the field.

# %%
REACH = 5
WIDTH = 2 * REACH + 1


def observe(state, params, out):
    for row in range(WIDTH):
        for column in range(WIDTH):
            y, x = state.row + row - REACH, state.column + column - REACH
            if 0 <= y < SIZE and 0 <= x < SIZE:
                out.map[0, row, column] = 128 * state.crop[y, x]
            else:
                out.map[0, row, column] = 255
    out.place[0] = state.row / SIZE
    out.place[1] = state.column / SIZE
    out.tank = min(4 * state.fuel // params.tank, 3)


field = rlcpu.Dynamics(
    id="Field-v0",
    state=Field,
    step=step,
    reset=reset,
    observe=observe,
    params=Params(),
    observation_space=Dict(
        {
            "map": Box(0, 255, (1, WIDTH, WIDTH), np.uint8),
            "place": Box(0.0, 1.0, (2,)),
            "tank": Discrete(4),
        }
    ),
    action_space=Discrete(4),
    max_episode_steps=100,
)
print(rlcpu.envs.check(field))

# %% [markdown]
# `reset` and `step` of many robots return a dict of arrays. So do rollouts and replay buffers: an
# observation is one row of memory, in which a pixel takes a byte.

# %%
env = rlcpu.make_vec(field, num_envs=256)
observations, _ = env.reset(seed=0)
for name, part in observations.items():
    print(f"{name:6s} {part.dtype!s:8s} {part.shape}")
print(f"{env.state.crop.mean():.2f} of all fields have grown")

# %% [markdown]
# ## Learning
#
# `PPO` makes a network of the space: it convolves the map, sees the choice as zeros and a one, and
# joins them with the numbers. The curve is the mean return of the episodes that have ended lately.


# %%
agent = rlcpu.train.PPO(field, seed=0)
agent.learn(1)  # compiles
start = time.perf_counter()
history = agent.learn(100_000)
print(f"{history.steps:,} steps in {time.perf_counter() - start:.1f} s")
chance = rlcpu.simulate(env, rlcpu.policies.Uniform(), num_steps=600).mean_return

figure, axes = plt.subplots()
steps, returns = np.array(history.curve).T
axes.plot(steps / 1000, returns, label="PPO, seed 0")
axes.axhline(chance, color="black", linewidth=1, linestyle="--", label="at random")
axes.set(xlabel="thousand steps", ylabel="cells cut in an episode", title="A field of 12 x 12")
axes.set_ylim(0, None)
figure.legend(loc="outside lower center", ncols=2)
plt.show()


# %% [markdown]
# One robot's way over the field that it was given, by random actions and by the agent's:


# %%
def drive(choose):
    """The field at first, and the cells (60, 2) that one robot came to."""
    one = rlcpu.make_vec(field, num_envs=1)
    one.action_space.seed(0)
    observation, _ = one.reset(seed=5)
    crop, way = one.state.crop[0].copy(), []
    for _ in range(one.params.tank):
        way.append((int(one.state.row[0]), int(one.state.column[0])))
        observation, *_ = one.step(choose(one, observation))
    return crop, np.array(way)


drives = {
    "at random": drive(lambda one, _: one.action_space.sample()),
    "trained": drive(lambda _, observation: agent.predict(observation)),
}
figure, panels = plt.subplots(1, 2, figsize=(7, 3.6))
for axes, (name, (crop, way)) in zip(panels, drives.items(), strict=True):
    cut = sum(crop[row, column] for row, column in {tuple(cell) for cell in way.tolist()})
    axes.imshow(crop, cmap="Greens", vmax=1.5)
    axes.plot(way[:, 1], way[:, 0], color="C1", linewidth=2)
    axes.plot(way[0, 1], way[0, 0], "o", color="C1")
    axes.set(title=f"{name}: {cut} of {crop.sum()} cells")
    axes.set_axis_off()
plt.show()

# %% [markdown]
# ## What arrays cost
#
# Environments with arrays run one after the other, each in memory of its own. One whose state is a
# few numbers is stepped in vectors. The same walk of a robot, without its field, in both forms:


# %%
class Place(State):
    row: int
    column: int


class Numbers(NamedTuple):
    row: int
    column: int


def walk_in_place(state, action, params):
    state.row = min(max(state.row + (action == 1) - (action == 0), 0), SIZE - 1)
    state.column = min(max(state.column + (action == 3) - (action == 2), 0), SIZE - 1)
    return 0.0, False


def walk(state, action, params):
    row = min(max(state.row + (action == 1) - (action == 0), 0), SIZE - 1)
    column = min(max(state.column + (action == 3) - (action == 2), 0), SIZE - 1)
    return Numbers(row, column), 0.0, False


def see(state, params):
    return state.row / SIZE, state.column / SIZE


common = {
    "observe": see,
    "observation_space": Box(0.0, 1.0, (2,)),
    "action_space": Discrete(4),
    "max_episode_steps": 100,
}
forms = {
    "State": rlcpu.Dynamics(
        id="Place-v0", state=Place, step=walk_in_place, reset=lambda state, rng, params: None,
        **common,
    ),
    "NamedTuple": rlcpu.Dynamics(
        id="Numbers-v0", step=walk, reset=lambda rng, params: Numbers(0, 0), **common
    ),
}  # fmt: skip


def nanoseconds(env, num_steps=100):
    """The shortest time of a step of one environment, of twenty calls after one that compiles."""
    env.reset(seed=0)
    times = []
    for _ in range(21):
        start = time.perf_counter()
        rlcpu.simulate(env, rlcpu.policies.Uniform(), num_steps)
        times.append(time.perf_counter() - start)
    return 1e9 * min(times) / (num_steps * env.num_envs)


for name, form in {"Field, 12 x 12": field, **forms}.items():
    took = nanoseconds(rlcpu.make_vec(form, num_envs=4096))
    print(f"{name:15s} {took:6.1f} ns a step")

# %% [markdown]
# The documentation has the contract in full ("Arrays in states", "Observations of several parts"),
# and recipes for Snake, 2048 and inventory control. [Memory](09_memory.ipynb) is for what an
# observation does not show.
