"""Simulation and collection."""

from __future__ import annotations

import numpy as np

import rlcpu


class Step:
    """`env.step` of CartPole-v1: the Python around the kernel, and the kernel."""

    version = "1"
    params = ([1, 16, 256, 4096, 2**18], ["float32", "float64"])
    param_names = ("num_envs", "dtype")

    def setup(self, num_envs: int, dtype: str) -> None:
        """Makes the environments and steps them once."""
        self.env = rlcpu.make_vec("CartPole-v1", num_envs, dtype=dtype)
        self.env.reset(seed=0)
        self.actions = np.random.default_rng(0).integers(0, 2, num_envs)
        self.env.step(self.actions)

    def time_step(self, num_envs: int, dtype: str) -> None:
        """One step of all environments."""
        self.env.step(self.actions)


class Simulate:
    """1,000 fused steps of 4,096 environments with uniform actions."""

    version = "1"
    params = (
        ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"],
        ["float32", "float64"],
    )
    param_names = ("env_id", "dtype")

    def setup(self, env_id: str, dtype: str) -> None:
        """Makes the environments and runs once: a shorter run may take another, serial kernel."""
        self.env = rlcpu.make_vec(env_id, 4096, dtype=dtype)
        self.env.reset(seed=0)
        self.policy = rlcpu.policies.Uniform()
        rlcpu.simulate(self.env, self.policy, 1000)

    def time_simulate(self, env_id: str, dtype: str) -> None:
        """The fused steps."""
        rlcpu.simulate(self.env, self.policy, 1000)


class Collect:
    """Rollouts of CartPole-v1, 1,024 environments x 128 steps, MLP 4-64-64."""

    version = "1"
    params = (["relu", "tanh"],)
    param_names = ("activation",)

    def setup(self, activation: str) -> None:
        """Makes environments and policy, and collects the rollout that is reused."""
        self.env = rlcpu.make_vec("CartPole-v1", 1024)
        self.env.reset(seed=0)
        spaces = self.env.single_observation_space, self.env.single_action_space
        self.policy = rlcpu.policies.MLP(*spaces, activation=activation, value="shared")
        self.rollout = rlcpu.collect(self.env, self.policy, 128)

    def time_collect(self, activation: str) -> None:
        """One rollout."""
        rlcpu.collect(self.env, self.policy, 128, out=self.rollout)

    def peakmem_collect(self, activation: str) -> None:
        """Memory of one rollout, interpreter and compiled kernels included."""
        rlcpu.collect(self.env, self.policy, 128, out=self.rollout)


class Reference:
    """What the memory figures are to be compared with."""

    version = "1"

    def peakmem_reference(self) -> None:
        """The interpreter with rlcpu imported, nothing compiled."""
