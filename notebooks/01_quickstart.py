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
# # Quickstart: an environment of one's own, trained and watched
#
# A pendulum that stands on its end falls over. We write it down as plain Python, train an agent
# that pushes it left and right so that it stays up, and watch the agent before and after.
#
# The first use of an environment compiles its kernels, which takes some seconds; the machine code
# is kept on disk for the next time.

# %%
import math
import time
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from gymnasium.spaces import Box, Discrete
from IPython.display import SVG

import rlcpu
from rlcpu.kernels.machine.threads import show_config

plt.rcParams.update({"figure.figsize": (7, 3), "axes.grid": True, "grid.alpha": 0.3})
plt.rcParams["figure.constrained_layout.use"] = True
settings = show_config()
print({k: settings[k] for k in ("cpu", "vector width", "threads", "numba", "gymnasium")})


# %% [markdown]
# ## The environment
#
# It consists of scalar functions of **one** pendulum: numbers and tuples in, tuples out. There is
# no array, no batch and no decorator in them.


# %%
class Params(NamedTuple):
    gravity: float = 9.8  # m/s^2
    length: float = 1.0  # m
    push: float = 6.0  # rad/s^2
    time_step: float = 0.02  # s


def step(state, action, params):
    angle, velocity = state
    push = params.push if action == 1 else -params.push
    acceleration = params.gravity / params.length * math.sin(angle) + push
    velocity = velocity + params.time_step * acceleration
    angle = angle + params.time_step * velocity
    return (angle, velocity), 1.0, abs(angle) > 0.5


def reset(rng, params):
    return 0.4 * rng.uniform(0) - 0.2, 0.4 * rng.uniform(1) - 0.2


balance = rlcpu.Dynamics(
    id="QuickstartBalance-v0",
    step=step,  # (state, action, params) -> (state, reward, terminated)
    reset=reset,  # (rng, params) -> state; rng.uniform(k) is a number in [0, 1)
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Discrete(2),
    max_episode_steps=500,
    reward_threshold=475.0,
)
rlcpu.register(balance)

# %% [markdown]
# The functions stay plain Python: call them, step through them in a debugger, test them.

# %%
step((0.1, 0.0), 1, Params())

# %% [markdown]
# ## Many at once
#
# `make_vec` makes a `gymnasium.vector.VectorEnv` of it. Parameters are given by name, and changing
# a number compiles nothing.

# %%
env = rlcpu.make_vec("QuickstartBalance-v0", num_envs=1024)
env.reset(seed=0)
observations, rewards, terminated, truncated, infos = env.step(env.action_space.sample())
observations.shape

# %%
for length in (0.5, 1.0, 2.0):
    pendulums = rlcpu.make_vec("QuickstartBalance-v0", num_envs=1024, length=length)
    pendulums.reset(seed=0)
    chance = rlcpu.simulate(pendulums, rlcpu.policies.Uniform(), num_steps=1000)
    print(f"{length} m: {chance.mean_length:.0f} steps until it falls, pushed at random")

# %% [markdown]
# A policy of one's own is a scalar function too. This one pushes against the fall.


# %%
def catch(observation, params, uniforms):
    angle, velocity = observation
    return (0 if angle + params[0] * velocity > 0.0 else 1), 0.0, 0.0  # action, log-prob., value


policy = rlcpu.policies.Scalar(catch, params=(0.3,))
caught = rlcpu.simulate(env, policy, num_steps=1000)
print(f"{caught.mean_length:.0f} steps of at most {env.max_episode_steps}")

# %% [markdown]
# ## Train
#
# Proximal policy optimisation with its default settings. The callback keeps the learning curve, and
# could stop the training by returning `False`.

# %%
agent = rlcpu.train.PPO("QuickstartBalance-v0", seed=0)
rlcpu.train.PPO("QuickstartBalance-v0").learn(1)  # compiles
curve = []


def keep(progress):
    curve.append((progress.steps, progress.episode_return))


history = agent.learn(300_000, target_return=475.0, callback=keep)
returns = agent.evaluate(num_episodes=100, seed=1)
print(
    f"{history.steps:,} steps in {history.time_total:.2f} s, of which collecting took "
    f"{history.time_collect:.2f} s; 100 greedy episodes return {returns.mean():.0f} on average"
)

# %%
figure, axes = plt.subplots()
steps, means = zip(*curve, strict=True)
axes.plot(steps, means, label="last 100 episodes")
axes.axhline(500, color="black", linewidth=1, label="highest possible")
axes.axhline(475, color="tab:green", linewidth=1, linestyle="--", label="target")
axes.set(xlabel="environment steps", ylabel="mean return", title="Balance, PPO, seed 0")
figure.legend(loc="outside lower center", ncols=3)
plt.show()

# %% [markdown]
# ## Watch
#
# One pendulum of the agent before and one after training, both from the same state. The picture is
# an SVG that moves by itself; falling ends an episode, and a new one begins.


# %%
def record(agent, num_steps):
    """The angles of one pendulum under an agent's greedy policy, (num_steps,) in rad."""
    one = rlcpu.make_vec("QuickstartBalance-v0", num_envs=1)
    observation, _ = one.reset(seed=3)
    angles = []
    for _ in range(num_steps):
        angles.append(float(one.state[0, 0]))
        observation, *_ = one.step(agent.predict(observation))
    return angles


def pendulum(angles, x, name):
    """An SVG group: a rod that turns through the angles, 50 of them a second."""
    turns = ";".join(f"{math.degrees(angle):.1f}" for angle in angles)
    return f"""<g transform="translate({x} 150)" fill="none" stroke="#555">
      <path d="M -90 0 H 90"/><path d="M 0 0 L -57 -105 M 0 0 L 57 -105" stroke-dasharray="4"/>
      <g><animateTransform attributeName="transform" type="rotate" values="{turns}"
           dur="{len(angles) / 50}s" repeatCount="indefinite"/>
        <path d="M 0 0 V -120" stroke="#1f77b4" stroke-width="6" stroke-linecap="round"/>
        <circle cy="-120" r="10" fill="#d62728" stroke="none"/></g>
      <text y="25" text-anchor="middle" fill="#555" stroke="none">{name}</text></g>"""


novice = rlcpu.train.PPO("QuickstartBalance-v0", seed=0)
before = pendulum(record(novice, 300), 120, "before training")
after = pendulum(record(agent, 300), 380, "after training")
SVG(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 500 190" width="500" height="190">'
    f'<rect width="500" height="190" fill="#fff"/>{before}{after}</svg>'
)

# %% [markdown]
# ## What it costs
#
# `simulate` and `collect` run all steps of all environments in one call. The policy of the agent
# consists of two networks of two layers of 64, one for the actions and one for their values, which
# take nearly all of the time. How fast that is here, the best of fifty calls:


# %%
def best_rate(run, num_steps):
    """Steps a second of 1,024 environments, after a call that compiles."""
    run()
    times = []
    for _ in range(50):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1024 * num_steps / min(times)


rollout = rlcpu.collect(env, agent.policy, 128)
for name, rate in {
    "simulate, random actions": best_rate(
        lambda: rlcpu.simulate(env, rlcpu.policies.Uniform(), 1000), 1000
    ),
    "collect, the trained policy": best_rate(
        lambda: rlcpu.collect(env, agent.policy, 128, out=rollout), 128
    ),
}.items():
    print(f"{name}: {rate / 1e6:,.0f} million steps a second")

# %% [markdown]
# From here: [collecting](02_collecting.ipynb) explains where that speed comes from,
# [replay](03_replay.ipynb) and [scan](04_scan.ipynb) are the other halves of the data path, and
# [internals](05_internals.ipynb) looks at the machine code.
