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
# # Ten seeds: a table, a verdict and a figure from one call
#
# Henderson et al. (2018, *Deep reinforcement learning that matters*) drew two curves of one
# algorithm with the same settings, each the mean of five seeds: they looked like two algorithms.
# Agarwal et al. (2021, *Deep reinforcement learning at the edge of the statistical precipice*)
# ask for intervals over seeds in the place of means alone, and for scores that one lucky seed does
# not decide. Both cost runs, and a run takes a second here.

# %%
import tempfile
from pathlib import Path

import numpy as np

import rlcpu
from rlcpu.kernels.machine.threads import show_config

settings = show_config()
print({k: settings[k] for k in ("cpu", "vector width", "threads", "numba", "gymnasium")})
folder = Path(tempfile.mkdtemp())  # of one's own choice: runs that are there are not made again

# %% [markdown]
# ## From a call to a figure
#
# A variant is a name and the settings that differ from the usual ones. Runs are made side by side
# in other processes, one thread each.

# %%
results = rlcpu.experiments.run(
    "CartPole-v1",
    {
        "ppo": {},
        "ppo, small steps": {"learning_rate": 5e-4},
        "ppo, long horizon": {"gamma": 0.995, "lambda_": 0.95},
    },
    seeds=10,
    steps=50_000,
    folder=folder / "cartpole",
)
results

# %%
results.plot()

# %% [markdown]
# The score of a run is the mean return of 100 episodes of its last policy, and the interval is
# over seeds: it says between what bounds the mean of very many seeds may lie. Bands are the same
# at each evaluation on the way.
#
# ## Which is better?
#
# Runs of one seed are a pair. A difference is claimed only where its interval excludes 0, and of
# fewer than five seeds nothing is claimed.

# %%
results.compare("ppo", "ppo, small steps")

# %%
results.compare("ppo", "ppo, long horizon", "iqm")

# %% [markdown]
# ## All numbers
#
# `results.to_csv` writes them, `to_pandas` makes a `DataFrame` of them, and the scores are a dict:

# %%
for variant in results.variants:
    (scores,) = results.scores(variant).values()
    print(f"{variant:<18}", *(f"{score:4.0f}" for score in scores.values()))

# %% [markdown]
# ## How often does one seed mislead?
#
# Two variants, one seed each: the better mean is that of the better variant in so many of all
# pairs of runs. That is the probability of improvement, and one minus it is how often a paper with
# one seed would have been wrong.

# %%
verdict = results.compare("ppo", "ppo, small steps")
print(f"{verdict.probability.value:.0%} of the pairs are right")

# %% [markdown]
# ## An environment of a notebook's own
#
# What is defined here is unknown to other processes. It runs in this one, seed after seed; in a
# file of its own, as `"module:name"`, it would run side by side.

# %%
import math
from typing import NamedTuple

from gymnasium.spaces import Box, Discrete


class Params(NamedTuple):
    push: float = 2.5  # rad/s^2: too weak for a pole that leans far


def step(state, action, params):
    angle, velocity = state
    push = params.push if action == 1 else -params.push
    velocity = velocity + 0.02 * (9.8 * math.sin(angle) + push)
    return (angle + 0.02 * velocity, velocity), 1.0, abs(angle) > 0.5


def reset(rng, params):
    return 0.2 * rng.uniform(0) - 0.1, 0.0


pole = rlcpu.Dynamics(
    id="Pole-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Discrete(2),
    max_episode_steps=500,
    reward_threshold=475.0,
)
own = rlcpu.experiments.run(
    pole,
    {
        "ppo, ten epochs": {"num_envs": 8, "num_steps": 64},
        "ppo, four epochs": {"num_envs": 8, "num_steps": 64, "num_epochs": 4},
    },
    seeds=10,
    steps=15_000,
    folder=folder / "pole",
)
own

# %%
own.plot(over="seconds")

# %% [markdown]
# The documentation has a page on ten seeds and a comparison: the same on the command line, runs
# that end at a target, and several environments.
