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
# # Simulate, collect, define an environment, train
#
# Open this file in Jupyter with jupytext, or run it as a script. The first use of an environment
# compiles its kernels, which takes some seconds; they are kept on disk.

# %%
import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

import rlcpu

# %% [markdown]
# ## Simulate
#
# `make_vec` makes a `gymnasium.vector.VectorEnv`: all environments step together.

# %%
env = rlcpu.make_vec("CartPole-v1", num_envs=1024)
observations, infos = env.reset(seed=0)
observations, rewards, terminated, truncated, infos = env.step(env.action_space.sample())
observations.shape, rewards.mean()

# %% [markdown]
# ## Collect
#
# Many steps of all environments and of the policy in one call. `simulate` keeps only statistics of
# the episodes; `collect` records every step, time first: `(num_steps, num_envs, ...)`.

# %%
random = rlcpu.simulate(env, rlcpu.policies.Uniform(), num_steps=1000)
random.num_episodes, random.mean_return

# %%
policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space)
rollout = rlcpu.collect(env, policy, num_steps=128)
rollout.observations.shape, rollout.episode_returns.mean()


# %% [markdown]
# A policy can also be a function of one observation. This one pushes to where the pole falls.


# %%
def catch(observation, params, uniforms):
    angle, velocity = observation[2], observation[3]
    return (1 if angle + params[0] * velocity > 0.0 else 0), 0.0, 0.0


caught = rlcpu.simulate(env, rlcpu.policies.Scalar(catch, params=(0.3,)), num_steps=1000)
caught.mean_return

# %% [markdown]
# ## An environment of one's own
#
# It is written as scalar functions of ONE environment: numbers and tuples in, tuples out. Real
# constants are floats (`2.0 * x`). Run this cell again after an edit: it registers the new one.


# %%
class Params(NamedTuple):
    gravity: float = 9.8  # m/s^2
    length: float = 1.0  # m
    push: float = 3.0  # rad/s^2
    time_step: float = 0.02  # s


def step(state, action, params):
    angle, velocity = state
    push = params.push if action == 1 else -params.push
    velocity = velocity + params.time_step * (
        params.gravity / params.length * math.sin(angle) + push
    )
    angle = angle + params.time_step * velocity
    return (angle, velocity), 1.0, abs(angle) > 0.25


def reset(uniforms, params):
    return 0.1 * uniforms[0] - 0.05, 0.1 * uniforms[1] - 0.05


balance = rlcpu.Dynamics(
    id="BalanceInACell-v0",
    step=step,
    reset=reset,
    reset_draws=2,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Discrete(2),
    max_episode_steps=200,
    reward_threshold=190.0,
)
rlcpu.register(balance)

# %% [markdown]
# The functions stay plain Python, so that they can be called and debugged.

# %%
step((0.1, 0.0), 1, Params())

# %% [markdown]
# Numbers among the parameters are given by name, and changing them compiles nothing.

# %%
for length in (0.5, 1.0, 2.0):
    own = rlcpu.make_vec("BalanceInACell-v0", num_envs=256, length=length)
    own.reset(seed=0)
    print(length, rlcpu.simulate(own, rlcpu.policies.Uniform(), num_steps=500).mean_length)

# %% [markdown]
# ## Train

# %%
agent = rlcpu.train.PPO("BalanceInACell-v0", seed=0)
history = agent.learn(300_000, target_return=190.0)
history.steps, history.episode_return

# %%
greedy = agent.evaluate(num_episodes=100, seed=1)
greedy.mean()
