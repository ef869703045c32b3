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
# # Memory, resume, export: the life of an agent
#
# `CartPoleNoVel-v1` is CartPole whose velocities cannot be seen: one observation does not say which
# way the pole is falling. An agent with memory learns it all the same. Its run is interrupted and
# goes on bit for bit, and its policy becomes a file of C that needs nothing of this library.

# %%
import subprocess
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import rlcpu
from rlcpu.kernels.machine.threads import show_config

plt.rcParams.update({"figure.figsize": (7, 3), "axes.grid": True, "grid.alpha": 0.3})
plt.rcParams["figure.constrained_layout.use"] = True
settings = show_config()
print({k: settings[k] for k in ("cpu", "vector width", "threads", "numba", "gymnasium")})
folder = Path(tempfile.mkdtemp())
TASK = "CartPoleNoVel-v1"

# %% [markdown]
# ## With memory and without
#
# `network=` says what the last hidden layer is: "mlp" has no memory, "gru" and "mingru" have.

# %%
agents = {name: rlcpu.train.PPO(TASK, network=name, seed=0) for name in ("mlp", "gru")}
figure, axes = plt.subplots()
for name, agent in agents.items():
    start = time.perf_counter()
    history = agent.learn(100_000)
    took = time.perf_counter() - start
    steps, returns = np.array(history.curve).T
    axes.plot(steps / 1000, returns, label=f"{name}, {took:.0f} s, compiling included")
axes.axhline(500, color="black", linewidth=1, linestyle="--", label="highest possible")
axes.set(xlabel="thousand steps", ylabel="mean return", title=f"{TASK}, PPO, seed 0")
figure.legend(loc="outside lower center", ncols=3)
plt.show()
for name, agent in agents.items():
    print(f"{name}: {agent.evaluate(100, seed=1).mean():.0f} on average of 100 greedy episodes")

# %% [markdown]
# ## What it remembers
#
# A loop of one's own passes the memory on, and says where episodes have begun. Do the numbers in it
# know what cannot be seen? A linear fit to the cart's and the pole's true velocities, of half of
# the environments, judged on the other half:

# %%
agent = agents["gru"]
env = rlcpu.make_vec(TASK, num_envs=64)
observations, _ = env.reset(seed=0)
memory, starts = agent.initial_state(64), np.ones(64, bool)
remembered, velocities, visible = [], [], []
for _ in range(200):
    actions, memory = agent.predict(observations, state=memory, starts=starts, deterministic=False)
    remembered.append(memory.copy())
    visible.append(observations.copy())
    velocities.append(env.state[:, [1, 3]])
    observations, _, terminated, truncated, _ = env.step(actions)
    starts = terminated | truncated


def fit(inputs, outputs):
    """Share of the variance that a linear fit explains, and its outputs, on the second half."""
    half = inputs.shape[1] // 2
    first, second = (
        np.concatenate([part.reshape(-1, part.shape[-1]), np.ones((part[..., 0].size, 1))], axis=1)
        for part in (inputs[:, :half], inputs[:, half:])
    )
    weights = np.linalg.lstsq(first, outputs[:, :half].reshape(-1, 2), rcond=None)[0]
    found, true = second @ weights, outputs[:, half:].reshape(-1, 2)
    shares = 1 - ((found - true) ** 2).sum(axis=0) / ((true - true.mean(axis=0)) ** 2).sum(axis=0)
    return shares, found, true


inputs = {"the observation": np.array(visible), "the memory": np.array(remembered)}
figure, panels = plt.subplots(1, 2, figsize=(7, 3.2), sharex=True, sharey=True)
for axes, (name, values) in zip(panels, inputs.items(), strict=True):
    shares, found, true = fit(values, np.array(velocities))
    axes.plot(true[::7, 1], found[::7, 1], ".", markersize=2)
    axes.plot([-2, 2], [-2, 2], color="black", linewidth=1)
    axes.set(
        xlabel="velocity of the pole (rad/s)", title=f"from {name}", xlim=(-2, 2), ylim=(-2, 2)
    )
    print(f"from {name}: {shares[0]:.0%} of the cart's velocity, {shares[1]:.0%} of the pole's")
panels[0].set_ylabel("as fitted")
plt.show()

# %% [markdown]
# ## Interrupt a run, and go on
#
# `save` writes all that decides how a run goes on: networks, optimiser, environments, random
# streams, what is remembered. The agent that is loaded learns on as the other one would have.

# %%
agent.save(folder / "half.npz")
agent.learn(20_000)
resumed = rlcpu.train.PPO.load(folder / "half.npz")
resumed.learn(20_000)
print("the same parameters, bit for bit:", np.array_equal(
    agent.policy.parameters, resumed.policy.parameters
))  # fmt: skip

# %% [markdown]
# Killed runs go on as well: `learn(..., save_to="agent.npz", save_every=100_000)` writes the file
# on the way, whole at any moment.
#
# ## Export
#
# The policy alone, with whatever normalises observations and scales actions, as C, ONNX, JSON or
# NumPy arrays. The first lines of the file say what it declares:

# %%
agent.export(folder / "policy.c")
source = (folder / "policy.c").read_text("utf-8")
print(source.partition("#include")[0])
print(f"{len(source) / 1024:.0f} KB")

# %% [markdown]
# Compiled as a program it reads observations, with a 1 in front where an episode begins, and prints
# actions. It acts as the agent does:

# %%
one = rlcpu.make_vec(TASK, num_envs=1)
observation, _ = one.reset(seed=3)
memory, starts, seen, chosen = agent.initial_state(1), np.ones(1, bool), [], []
for _ in range(200):
    action, memory = agent.predict(observation, state=memory, starts=starts)
    seen.append(observation[0])
    chosen.append(int(action[0]))
    observation, _, terminated, truncated, _ = one.step(action)
    starts = terminated | truncated
    if starts[0]:
        break

command = ["cc", "-std=c99", "-O3", "-DPOLICY_MAIN", "policy.c", "-lm", "-o", "policy"]
try:
    subprocess.run(command, cwd=folder, check=True)
except FileNotFoundError:
    print("there is no C compiler here")
else:
    rows = [(float(k == 0), *observation) for k, observation in enumerate(seen)]
    lines = "\n".join(" ".join(f"{x:.9g}" for x in row) for row in rows)
    printed = subprocess.run(
        ["./policy"], cwd=folder, input=lines, capture_output=True, text=True, check=True
    ).stdout
    print(f"{len(chosen)} steps, the same actions:", [*map(int, printed.split())] == chosen)

# %% [markdown]
# The documentation's page on memory compares the layers and says how sequences are learnt; the one
# on deployment has the files for microcontrollers, web pages, ONNX Runtime and PyTorch.
