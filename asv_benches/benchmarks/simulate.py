"""Simulation and collection."""

from __future__ import annotations

import numpy as np

from ._common import Quick, require, timed

ENVS = [1, 16, 256, 4096, 2**16, 2**18]
IDS = ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"]
THREADS = [1, 2]
DTYPES = ["float32", "float64"]


class Step(Quick):
    """`env.step` of CartPole-v1: the Python around the kernel, and the kernel."""

    params = (ENVS, DTYPES, THREADS)
    param_names = ("num_envs", "dtype", "threads")

    def setup(self, num_envs: int, dtype: str, threads: int) -> None:
        """Makes the environments and resets them."""
        make_vec = require("rlcpu.make_vec")
        self.env = make_vec("CartPole-v1", num_envs, dtype=dtype, num_threads=threads)
        self.env.reset(seed=0)
        self.actions = np.random.default_rng(0).integers(0, 2, num_envs)

    @timed
    def track_step(self, num_envs: int, dtype: str, threads: int) -> None:
        """One step of all environments."""
        self.env.step(self.actions)


class Reset(Quick):
    """`env.reset` of CartPole-v1."""

    params = ([1, 4096],)
    param_names = ("num_envs",)

    def setup(self, num_envs: int) -> None:
        """Makes the environments and resets them."""
        self.env = require("rlcpu.make_vec")("CartPole-v1", num_envs)
        self.env.reset(seed=0)

    @timed
    def track_reset(self, num_envs: int) -> None:
        """All of them."""
        self.env.reset()


class Simulate(Quick):
    """100 fused steps of CartPole-v1 with uniform actions."""

    params = (ENVS, THREADS)
    param_names = ("num_envs", "threads")

    def setup(self, num_envs: int, threads: int) -> None:
        """Makes the environments and resets them."""
        self.env = require("rlcpu.make_vec")("CartPole-v1", num_envs, num_threads=threads)
        self.env.reset(seed=0)
        self.simulate = require("rlcpu.simulate")
        self.policy = require("rlcpu.policies").Uniform()

    @timed
    def track_simulate(self, num_envs: int, threads: int) -> None:
        """The fused steps."""
        self.simulate(self.env, self.policy, 100)


class Environments(Quick):
    """100 fused steps of 4,096 environments of every kind."""

    params = (IDS, DTYPES)
    param_names = ("env_id", "dtype")

    def setup(self, env_id: str, dtype: str) -> None:
        """Makes the environments and resets them."""
        self.env = require("rlcpu.make_vec")(env_id, 4096, dtype=dtype)
        self.env.reset(seed=0)
        self.simulate = require("rlcpu.simulate")
        self.policy = require("rlcpu.policies").Uniform()

    @timed
    def track_simulate(self, env_id: str, dtype: str) -> None:
        """The fused steps."""
        self.simulate(self.env, self.policy, 100)


class Collect(Quick):
    """Rollouts of CartPole-v1, 64 steps, MLP 4-64-64."""

    params = ([16, 1024, 2**14], ["relu", "tanh"], THREADS)
    param_names = ("num_envs", "activation", "threads")

    def setup(self, num_envs: int, activation: str, threads: int) -> None:
        """Makes environments and policy, and collects the rollout that is reused."""
        self.env = require("rlcpu.make_vec")("CartPole-v1", num_envs, num_threads=threads)
        self.env.reset(seed=0)
        self.collect = require("rlcpu.collect")
        spaces = self.env.single_observation_space, self.env.single_action_space
        make = require("rlcpu.policies").MLP
        self.policy = make(*spaces, activation=activation, value="shared")
        self.rollout = self.collect(self.env, self.policy, 64)

    @timed
    def track_collect(self, num_envs: int, activation: str, threads: int) -> None:
        """One rollout."""
        self.collect(self.env, self.policy, 64, out=self.rollout)
