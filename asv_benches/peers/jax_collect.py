"""JAX: simulation, inference and rollout buffers as one `lax.scan` in one `jit`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asv_benches.peers.jax_simulate import Lanes, advance, draw, start


def forward(parameters: list[tuple[Any, Any]], activation: Callable[[Any], Any], x: Any) -> Any:
    """MLP: (num_envs, sizes[0]) -> (num_envs, sizes[-1])."""
    *hidden, (weight, bias) = parameters
    for w, b in hidden:
        x = activation(x @ w + b)
    return x @ weight + bias


def collect_function(num_steps: int, activation: str) -> Callable[..., Any]:
    """Compiled (parameters, lanes, buffers, counter) -> (lanes, buffers) of one rollout.

    The old buffers are donated, so that XLA may write the new ones over them.
    """
    import jax
    import jax.numpy as jnp

    function = {"relu": jax.nn.relu, "tanh": jnp.tanh}[activation]

    def collect(parameters: Any, lanes: Lanes, buffers: Any, counter: Any) -> Any:
        def step(lanes: Lanes, counter: Any) -> Any:
            observations = jnp.stack(lanes[:4], axis=1)
            outputs = forward(parameters, function, observations)
            u, *fresh = draw(lanes, counter)
            difference = outputs[:, 1] - outputs[:, 0]
            right = u < jax.nn.sigmoid(difference)
            log_probs = jax.nn.log_sigmoid(jnp.where(right, difference, -difference))
            new, terminated, truncated = advance(lanes, right, fresh)
            rewards = jnp.ones_like(u)
            values = outputs[:, 2]
            return new, (observations, right, log_probs, values, rewards, terminated, truncated)

        counters = counter + jnp.arange(num_steps, dtype=jnp.uint32)
        return jax.lax.scan(step, lanes, counters)

    return jax.jit(collect, donate_argnums=(1, 2))


def parameters(sizes: tuple[int, ...], seed: int = 0) -> list[tuple[Any, Any]]:
    """Weights (in, out) and biases (out,) of every layer."""
    import jax.numpy as jnp

    rng = np.random.default_rng(seed)
    return [
        (
            jnp.asarray(rng.normal(0, n_in**-0.5, (n_in, n_out)), jnp.float32),
            jnp.zeros(n_out, jnp.float32),
        )
        for n_in, n_out in itertools.pairwise(sizes)
    ]


@dataclass
class JaxCollect:
    """`num_steps` steps of CartPole under an MLP with shared value head, everything recorded.

    Attributes:
        num_envs: number of environments.
        num_steps: steps per call.
        activation: "relu" or "tanh".
    """

    num_envs: int
    num_steps: int
    activation: str
    name: str = "jax scan"
    _lanes: Any = field(default=None, repr=False)
    _buffers: Any = field(default=None, repr=False)

    @property
    def work(self) -> float:
        """Environment steps per call."""
        return self.num_envs * self.num_steps

    def setup(self) -> None:
        """Compiles, and fills the first buffers."""
        self._function = collect_function(self.num_steps, self.activation)
        self._parameters = parameters((4, 64, 64, 3))
        self._lanes = start(self.num_envs)
        self.run([np.uint32(0)])

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[np.uint32]:
        """Counters of the generator."""
        return list(rng.integers(0, 2**32, count, dtype=np.uint32))

    def run(self, inputs: Iterable[np.uint32]) -> None:
        """One rollout for each counter; waits for the last."""
        import jax

        for counter in inputs:
            self._lanes, self._buffers = self._function(
                self._parameters, self._lanes, self._buffers, counter
            )
        jax.block_until_ready(self._buffers)
