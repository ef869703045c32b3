"""Simulation and collection."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ._common import benchmark, require

ENVS = [1, 16, 256, 4096, 2**16, 2**18]
IDS = ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"]
THREADS = [1, 2]
DTYPES = ["float32", "float64"]


def make(num_envs: int, env_id: str = "CartPole-v1", **options: Any) -> Any:
    """Environments, reset."""
    env = require("rlcpu.make_vec")(env_id, num_envs, **options)
    env.reset(seed=0)
    return env


def simulated(env: Any) -> Any:
    """100 fused steps with uniform actions."""
    return partial(require("rlcpu.simulate"), env, require("rlcpu.policies").Uniform(), 100)


@benchmark("step", num_envs=ENVS, dtype=DTYPES, threads=THREADS)
def Step(num_envs, dtype, threads):
    """`env.step` of CartPole-v1: the Python around the kernel, and the kernel."""
    actions = np.random.default_rng(0).integers(0, 2, num_envs)
    return partial(make(num_envs, dtype=dtype, num_threads=threads).step, actions)


@benchmark("simulate", num_envs=ENVS, threads=THREADS)
def Simulate(num_envs, threads):
    """Fused steps of CartPole-v1."""
    return simulated(make(num_envs, num_threads=threads))


@benchmark("simulate", env_id=IDS, dtype=DTYPES)
def Environments(env_id, dtype):
    """Fused steps of 4,096 environments of every kind."""
    return simulated(make(4096, env_id, dtype=dtype))


@benchmark("collect", num_envs=[16, 1024, 2**14], activation=["relu", "tanh"], threads=THREADS)
def Collect(num_envs, activation, threads):
    """Rollouts of CartPole-v1, 64 steps, MLP 4-64-64, into the same rollout again."""
    env, collect = make(num_envs, num_threads=threads), require("rlcpu.collect")
    spaces = env.single_observation_space, env.single_action_space
    policy = require("rlcpu.policies").MLP(*spaces, activation=activation, value="shared")
    return partial(collect, env, policy, 64, out=collect(env, policy, 64))
