"""gymnax: its CartPole under `vmap`, the steps as one `lax.scan`, as its users write it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class GymnaxSimulate:
    """`num_steps` fused steps with uniform actions.

    Attributes:
        num_envs: number of environments.
        num_steps: steps per call.
    """

    num_envs: int
    num_steps: int
    name: str = "gymnax scan"
    _state: Any = field(default=None, repr=False)

    @property
    def work(self) -> float:
        """Environment steps per call."""
        return self.num_envs * self.num_steps

    def setup(self) -> None:
        """Makes the initial states; the first call compiles."""
        import gymnax
        import jax

        env, parameters = gymnax.make("CartPole-v1")

        def step(state: Any, key: Any) -> Any:
            act, move = jax.random.split(key)
            actions = jax.random.randint(act, (self.num_envs,), 0, 2)
            keys = jax.random.split(move, self.num_envs)
            new = jax.vmap(env.step, (0, 0, 0, None))(keys, state, actions, parameters)
            return new[1], None

        def simulate(state: Any, key: Any) -> Any:
            return jax.lax.scan(step, state, jax.random.split(key, self.num_steps))[0]

        self._jax, self._function = jax, jax.jit(simulate, donate_argnums=0)
        keys = jax.random.split(jax.random.key(0), self.num_envs)
        self._state = jax.vmap(env.reset, (0, None))(keys, parameters)[1]

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[Any]:
        """Keys of JAX's generator."""
        return [self._jax.random.key(number) for number in rng.integers(2**32, size=count).tolist()]

    def run(self, inputs: Iterable[Any]) -> None:
        """One call for each key; waits for the last."""
        for key in inputs:
            self._state = self._function(self._state, key)
        self._jax.block_until_ready(self._state)
