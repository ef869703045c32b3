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
# # Collecting: many environments, many steps a call
#
# Gleeson et al. (2022, *Optimizing data collection in deep reinforcement learning*) take CartPole
# to a GPU and find two things that make it fast: stepping **N environments at once**, and running
# **K steps in one kernel**, so that the state of the simulation stays close to its arithmetic. The
# kernels are written in CUDA, and as future work they name the third step: **inference in the same
# kernel**.
#
# This notebook does all three on a CPU, with an environment written as a scalar Python function,
# and asks at each step what limits it. All figures are measured here, by the cells above them.

# %%
import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import rlcpu
from rlcpu.envs.tasks.classic_control import cartpole
from rlcpu.kernels.machine.threads import show_config

plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})
plt.rcParams["figure.constrained_layout.use"] = True
settings = show_config()
print({k: settings[k] for k in ("cpu", "vector width", "threads", "numba", "gymnasium")})


def seconds(call, budget=0.1):
    """The shortest of the calls that fit into `budget` seconds, after one that may compile."""
    call()
    best, end = np.inf, time.perf_counter() + budget
    while best == np.inf or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


# %% [markdown]
# ## N environments at once
#
# One step a call, with actions from outside, the way that Gymnasium's interface asks for; and 1,000
# steps a call with random actions drawn inside. `SyncVectorEnv` loops over environments in Python,
# `CartPoleVectorEnv` is Gymnasium's own vectorisation with NumPy.


# %%
def stepping(env):
    """A function that takes one step of all environments."""
    env.reset(seed=0)
    actions = env.action_space.sample()
    return lambda: env.step(actions)


def fused(num_envs, num_steps, **options):
    """A function that takes `num_steps` of all environments with random actions."""
    env = rlcpu.make_vec("CartPole-v1", num_envs, **options)
    env.reset(seed=0)
    return lambda: rlcpu.simulate(env, rlcpu.policies.Uniform(), num_steps)


sizes = 4 ** np.arange(10)  # 1 to 2^18
rates = {
    "SyncVectorEnv": {
        n: n / seconds(stepping(gymnasium.make_vec("CartPole-v1", n, vectorization_mode="sync")))
        for n in sizes[:4].tolist()
    },
    "CartPoleVectorEnv": {
        n: n / seconds(stepping(gymnasium.make_vec("CartPole-v1", n))) for n in sizes.tolist()
    },
    "rlcpu, env.step": {
        n: n / seconds(stepping(rlcpu.make_vec("CartPole-v1", n))) for n in sizes.tolist()
    },
    "rlcpu, 1,000 steps a call": {
        n: 1000 * n / seconds(fused(n, 1000)) for n in sizes[:8].tolist()
    },
}

# %% [markdown]
# Every step of `env.step` reads an action and moves the state through memory: state, random-number
# key, elapsed steps and return are read and written, observation, reward and two flags written. The
# rate at which all cores together copy arrays that fit no cache sets a limit to that; a batch that
# fits a cache may beat it.

# %%
cores = int(settings["threads"].split()[0])
source = np.zeros((cores, 2**23))
target = np.empty_like(source)
with ThreadPoolExecutor(cores) as pool:
    copying = seconds(lambda: list(pool.map(np.copyto, target, source)))
bandwidth = 2 * source.nbytes / copying  # bytes a second
moved = 2 * (4 * 4 + 2 * 4 + 4 + 4) + 8 + 4 * 4 + 4 + 2  # bytes a step
limit = bandwidth / moved
print(
    f"{bandwidth / 1e9:.0f} GB/s, {moved} bytes a step: {limit / 1e6:,.0f} million steps a second"
)

figure, axes = plt.subplots()
for name, points in rates.items():
    axes.loglog(points.keys(), points.values(), "o-", markersize=4, label=name)
axes.axhline(
    limit, color="black", linestyle="--", linewidth=1, label="memory's limit,\none step a call"
)
axes.set(xlabel="environments", ylabel="steps per second", title="CartPole-v1, float32")
figure.legend(loc="outside right upper")
plt.show()

# %%
common = {n: rates["rlcpu, env.step"][n] / rates["CartPoleVectorEnv"][n] for n in sizes.tolist()}
print("env.step against CartPoleVectorEnv:", {n: f"{r:.0f}x" for n, r in common.items()})

# %% [markdown]
# ## K steps in one kernel
#
# A call from Python costs the same whatever it does, and so does bringing the state into the
# registers. With K steps a call both are paid once; the paper shows the same for XLA, where the
# share of the CPU's overhead falls from 87 % at one step a call to next to nothing at a thousand.
# The number of calls from Python is one for K steps here, and the number of kernels is one as well:
# where XLA launches its kernels anew in every step, here the loop over steps is inside.

# %%
lengths = [1, 4, 16, 64, 256, 1024]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
for num_envs in (64, 1024, 16384):
    times = np.array([seconds(fused(num_envs, k, num_threads=1)) for k in lengths])
    left.loglog(lengths, num_envs * np.array(lengths) / times, "o-", label=f"{num_envs:,} envs")
    step = times[-1] / lengths[-1]  # of all environments, once the call is paid
    shares = np.clip(1 - step * np.array(lengths) / times, 0, 1)
    right.semilogx(lengths, 100 * shares, "o-", label=f"{num_envs:,} envs")
left.set(xlabel="steps a call, K", ylabel="steps per second", title="One core")
right.set(xlabel="steps a call, K", ylabel="% of the time", title="What is not simulation")
figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
plt.show()

# %% [markdown]
# ## How much state, how much arithmetic
#
# Whether fusing pays depends on the simulator. The paper varies CartPole's state (factor S) and its
# arithmetic (factor C). Scalar functions make that easy: `wider` keeps more systems, of which one
# takes a step and goes to the back of the queue, and `longer` takes two steps as one.


# %%
def wider(state, action, params):
    """The first of several systems takes a step; all of the state is read and written."""
    moved, reward, ended = cartpole.step(state[:4], action, params)
    return state[4:] + moved, reward, ended


def longer(step):
    """Two steps in one."""

    def twice(state, action, params):
        state, reward, ended = step(state, action, params)
        state, reward, ended_too = step(state, action, params)
        return state, reward, ended | ended_too

    return twice


def variant(name, step, size=4):
    """An environment of `size` numbers; resets all of them alike."""

    def reset(uniforms, params):
        start = cartpole.reset(uniforms, params)
        return start if size == 4 else start + start if size == 8 else start + start + start + start

    box = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
    original = cartpole.DYNAMICS
    return rlcpu.Dynamics(
        id=name,
        step=step,
        reset=reset,
        reset_draws=4,
        params=cartpole.Params(),
        observation_space=box,
        action_space=original.action_space,
        max_episode_steps=500,
    )


twice = longer(cartpole.step)
variants = {
    "S": {
        1: "CartPole-v1",
        2: variant("S2-v0", wider, 8),
        4: variant("S4-v0", wider, 16),
    },
    "C": {1: "CartPole-v1", 2: variant("C2-v0", twice), 4: variant("C4-v0", longer(twice))},
}


def gain(dynamics, num_envs=2**16, num_steps=100, repeats=15):
    """How much shorter a step is in a call of `num_steps` than in a call of its own."""
    env, uniform = rlcpu.make_vec(dynamics, num_envs, num_threads=1), rlcpu.policies.Uniform()
    env.reset(seed=0)
    actions = env.action_space.sample()
    calls = (lambda: env.step(actions)), (lambda: rlcpu.simulate(env, uniform, num_steps))
    times = [[seconds(call, 0) for call in calls] for _ in range(repeats)]
    alone, together = np.min(times, axis=0)
    return alone / (together / num_steps)


gains = {kind: {f: gain(d) for f, d in group.items()} for kind, group in variants.items()}

# %%
figure, axes = plt.subplots(figsize=(6, 3.2))
for kind, title in {"S": "S times the state", "C": "C times the arithmetic"}.items():
    axes.plot(gains[kind].keys(), gains[kind].values(), "o-", label=title)
axes.set(xscale="log", xlabel="factor", ylabel="times faster by fusing", ylim=(0, None))
axes.set(xticks=[1, 2, 4], xticklabels=["1", "2", "4"], title="65,536 environments, one core")
axes.minorticks_off()
figure.legend(loc="outside right upper")
plt.show()

# %% [markdown]
# The rule is the paper's: fusing saves movement, and its worth falls as arithmetic grows. With more
# state more movement is saved. Both effects are small beside a machine that is busy with something
# else, and the points scatter there.

# %% [markdown]
# ## Inference in the same kernel
#
# `collect` runs simulation *and* policy in one kernel and fills the arrays that a learner wants.
# The block of environments that has just been stepped is in the first cache when the network reads
# its observations. Beside it the same loop in NumPy, around the same `env.step`.

# %%
num_envs, num_steps = 1024, 128
env = rlcpu.make_vec("CartPole-v1", num_envs)
spaces = env.single_observation_space, env.single_action_space
policy = rlcpu.policies.MLP(*spaces, hidden=(64, 64), activation="relu")
env.reset(seed=0)
rollout = rlcpu.collect(env, policy, num_steps)
rng = np.random.default_rng(0)
weights = [rng.normal(0, 0.1, shape).astype(np.float32) for shape in ((4, 64), (64, 64), (64, 3))]


def with_numpy():
    """Observations, actions, rewards and values of a rollout, step by step."""
    records = []
    observations, _ = env.reset(seed=0)
    for _ in range(num_steps):
        hidden = np.maximum(observations @ weights[0], 0.0)
        hidden = np.maximum(hidden @ weights[1], 0.0)
        outputs = hidden @ weights[2]
        actions = np.argmax(outputs[:, :2] + rng.gumbel(size=(num_envs, 2)), axis=1)
        following, rewards, terminated, truncated, _ = env.step(actions)
        records.append((observations, actions, rewards, terminated, truncated, outputs[:, 2]))
        observations = following
    return [np.stack(arrays) for arrays in zip(*records, strict=True)]


work = num_envs * num_steps
times = {
    "NumPy around env.step": seconds(with_numpy, 0.3),
    "collect": seconds(lambda: rlcpu.collect(env, policy, num_steps, out=rollout), 0.3),
    "simulate: no network": seconds(
        lambda: rlcpu.simulate(env, rlcpu.policies.Uniform(), num_steps)
    ),
}
operations = 2 * sum(layer.size for layer in weights)  # a multiplication and an addition each
for name, time_taken in times.items():
    print(
        f"{name:22s} {work / time_taken / 1e6:8,.1f} M steps/s, {1e9 * time_taken / work:6.2f} ns"
    )
flops = operations * work / times["collect"]
print(f"the network: {operations:,} operations a step, {flops / 1e9:.0f} Gflop/s in collect")

# %%
figure, axes = plt.subplots(figsize=(7, 2.2))
bars = axes.barh(list(times), [1e9 * t / work for t in times.values()], color=["C1", "C0", "C2"])
axes.bar_label(bars, fmt="%.2f ns", padding=3)
axes.set(xscale="log", xlabel="ns per environment step", title="1,024 environments, 128 steps")
axes.set_xlim(0.2, 2e9 * max(times.values()) / work)
axes.invert_yaxis()
plt.show()

# %% [markdown]
# Simulation is a small part of what is left: once it is fused, inference is all there is. How close
# `collect` comes to what the machine can multiply and add is drawn in
# [internals](05_internals.ipynb).
