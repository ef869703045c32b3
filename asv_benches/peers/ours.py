"""Our contenders through the public API: `rlcpu.simulate` and `rlcpu.collect`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

USER_ID = "UserCartPole-v0"  # of user_cartpole.py


@dataclass
class Simulate:
    """`rlcpu.simulate` with uniform actions.

    Attributes:
        num_envs: number of environments.
        num_steps: steps per call.
        env_id: of the environment; `USER_ID` is the one a user defined.
    """

    num_envs: int
    num_steps: int
    env_id: str = "CartPole-v1"
    name: str = "rlcpu"
    _env: Any = field(default=None, repr=False)

    @property
    def work(self) -> float:
        """Environment steps per call."""
        return self.num_envs * self.num_steps

    def setup(self) -> None:
        """Makes and resets the environments."""
        import rlcpu

        if self.env_id == USER_ID:
            importlib.import_module("asv_benches.peers.user_cartpole")  # registers it
        self._simulate = rlcpu.simulate
        self._policy = rlcpu.policies.Uniform()
        self._env = rlcpu.make_vec(self.env_id, self.num_envs)
        self._env.reset(seed=0)

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[int]:
        """Nothing but the number of calls: states and random numbers run on, never the same."""
        return range(count)

    def run(self, inputs: Iterable[int]) -> None:
        """One call for each input."""
        for _ in inputs:
            self._simulate(self._env, self._policy, self.num_steps)


@dataclass
class Collect:
    """`rlcpu.collect` under an MLP with shared value head, into the same rollout again.

    Attributes:
        num_envs: number of environments.
        num_steps: steps per call.
        activation: "relu" or "tanh".
        operations: floating-point operations per environment step, where those are the figure.
    """

    num_envs: int
    num_steps: int
    activation: str
    operations: int = 1
    name: str = "rlcpu"
    _env: Any = field(default=None, repr=False)

    @property
    def work(self) -> float:
        """Environment steps, or floating-point operations, per call."""
        return self.num_envs * self.num_steps * self.operations

    def setup(self) -> None:
        """Makes the environments, the policy and the first rollout."""
        import rlcpu

        self._collect = rlcpu.collect
        self._env = rlcpu.make_vec("CartPole-v1", self.num_envs)
        self._env.reset(seed=0)
        self._policy = rlcpu.policies.MLP(
            self._env.single_observation_space,
            self._env.single_action_space,
            hidden=(64, 64),
            activation=self.activation,
            value="shared",
        )
        self._rollout = rlcpu.collect(self._env, self._policy, self.num_steps)

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[int]:
        """Nothing but the number of calls: states and random numbers run on, never the same."""
        return range(count)

    def run(self, inputs: Iterable[int]) -> None:
        """One call for each input."""
        for _ in inputs:
            self._rollout = self._collect(
                self._env, self._policy, self.num_steps, out=self._rollout
            )
