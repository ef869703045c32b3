"""`env.step`: one step of N environments per call, actions from outside, in any `VectorEnv`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.duel import Best

ACTIONS_PER_RUN = 2**16  # int64: half the second-level cache; a policy hands its actions over warm


@dataclass
class Step:
    """Steps a vector environment with random actions drawn beforehand.

    Attributes:
        name: of the peer.
        make: picklable; called with the number of environments, returns them after `reset`.
        num_envs: number of environments.
    """

    name: str
    make: Callable[[int], Any]
    num_envs: int
    _env: Any = field(default=None, repr=False)

    @property
    def work(self) -> float:
        """Environment steps per call."""
        return self.num_envs

    def setup(self) -> None:
        """Makes and resets the environments."""
        self._env = self.make(self.num_envs)

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[np.ndarray]:
        """Action arrays (num_envs,) int64; as many as the cache holds, then the first again."""
        distinct = min(count, max(2, ACTIONS_PER_RUN // self.num_envs))
        actions = rng.integers(0, 2, (distinct, self.num_envs))
        return itertools.islice(itertools.cycle(list(actions)), count)

    def run(self, inputs: Iterable[np.ndarray]) -> None:
        """One `env.step` per action array."""
        step = self._env.step
        for actions in inputs:
            step(actions)


@dataclass
class SingleStep(Step):
    """Steps one environment of `gymnasium.make`, which is reset after each end."""

    def run(self, inputs: Iterable[np.ndarray]) -> None:
        """One `env.step` per action."""
        step, reset = self._env.step, self._env.reset
        for actions in inputs:
            _, _, terminated, truncated, _ = step(actions[0])
            if terminated or truncated:
                reset()


def make_single(num_envs: int, name: str) -> Any:
    """What `gymnasium.make` makes, with its wrappers, reset."""
    import gymnasium

    import rlcpu  # noqa: F401 (registers ours)

    env = gymnasium.make(name)
    env.reset(seed=0)
    return env


def make_rlcpu(num_envs: int, dtype: str = "float32") -> Any:
    """Our CartPole, reset."""
    import rlcpu

    env = rlcpu.make_vec("CartPole-v1", num_envs, dtype=dtype)
    env.reset(seed=0)
    return env


def make_gymnasium(num_envs: int, vectorization_mode: str) -> Any:
    """Gymnasium's CartPoleVectorEnv ("vector_entry_point") or SyncVectorEnv ("sync"), reset."""
    import gymnasium

    env = gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode=vectorization_mode)
    env.reset(seed=0)
    return env


def make_envpool(num_envs: int, num_threads: int) -> Any:
    """envpool's CartPole in its synchronous mode, reset."""
    import envpool

    env = envpool.make(
        "CartPole-v1", env_type="gymnasium", num_envs=num_envs, num_threads=num_threads, seed=0
    )
    env.reset()
    return env


def rlcpu_step(num_envs: int, dtype: str = "float32") -> Step:
    """Ours."""
    return Step("rlcpu", partial(make_rlcpu, dtype=dtype), num_envs)


def single(name: str, environment: str) -> SingleStep:
    """One environment under `gymnasium.make`."""
    return SingleStep(name, partial(make_single, name=environment), 1)


def gymnasium_vector(num_envs: int) -> Step:
    """Gymnasium's NumPy CartPole."""
    make = partial(make_gymnasium, vectorization_mode="vector_entry_point")
    return Step("CartPoleVectorEnv", make, num_envs)


def gymnasium_sync(num_envs: int) -> Step:
    """Gymnasium's loop over scalar environments."""
    return Step("SyncVectorEnv", partial(make_gymnasium, vectorization_mode="sync"), num_envs)


def envpool_sync(num_envs: int) -> Best:
    """envpool with the number of threads that suits it here."""
    variants = [
        Step(f"{threads} threads", partial(make_envpool, num_threads=threads), num_envs)
        for threads in (1, 2)
    ]
    return Best("envpool", variants)
