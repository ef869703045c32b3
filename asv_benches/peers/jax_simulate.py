"""JAX: the same simulation as one `lax.scan` in one `jit`, with a generator as cheap as ours.

`jax.random` (threefry) would be most of the time, so the random numbers are those of cartpole.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

# Of the five numbers of a step, as random.py makes them from splitmix64.
ADDENDS = (
    (0x7B1DCDAE, 0xE220A839),
    (0x89025CC0, 0x910A2DEC),
    (0x1C9756CE, 0x975835DE),
    (0xDB018FEC, 0x1D0B14E4),
    (0xE2338ACA, 0x6E73E372),
)

SinCos = Callable[[Any], tuple[Any, Any]]


class Lanes(NamedTuple):
    """State of every environment, each (num_envs,): float32, keys uint32, steps int32."""

    x: Any
    x_dot: Any
    theta: Any
    theta_dot: Any
    steps: Any
    key_low: Any
    key_high: Any


def start(num_envs: int, seed: int = 0) -> Lanes:
    """Random initial states."""
    import jax.numpy as jnp

    rng = np.random.default_rng(seed)
    state = rng.uniform(-0.05, 0.05, (4, num_envs)).astype(np.float32)
    keys = rng.integers(0, 2**32, (2, num_envs), dtype=np.uint32)
    rows = *state, np.zeros(num_envs, np.int32), *keys
    return Lanes(*(jnp.asarray(row) for row in rows))


def draw(lanes: Lanes, counter: Any) -> list[Any]:
    """Five numbers in [0, 1) per environment, as rlcpu/kernels/random.py makes them."""
    import jax.numpy as jnp

    u32 = jnp.uint32
    a = lanes.key_low + counter * u32(0x9E3779B9)
    a = (a ^ (a >> 16)) * u32(0x7FEB352D)
    b = lanes.key_high + a
    b = (b ^ (b >> 15)) * u32(0x846CA68B)
    a = a + b
    a = (a ^ (a >> 16)) * u32(0x85EBCA6B)
    b = b + a
    b = (b ^ (b >> 15)) * u32(0xC2B2AE35)
    words = (((a | 1) + u32(first)) * (b + u32(second)) >> 8 for first, second in ADDENDS)
    return [word.astype(jnp.int32).astype(jnp.float32) * jnp.float32(2**-24) for word in words]


def polynomials(x: Any) -> tuple[Any, Any]:
    """Sine and cosine for |x| <= pi/4, all that CartPole needs; those of cartpole.cpp."""
    z = x * x
    sin = x + x * z * (-1.6666654611e-1 + z * (8.3321608736e-3 + z * -1.9515295891e-4))
    tail = 4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5)
    return sin, 1.0 - 0.5 * z + z * z * tail


def library(x: Any) -> tuple[Any, Any]:
    """Sine and cosine as one writes them in JAX."""
    import jax.numpy as jnp

    return jnp.sin(x), jnp.cos(x)


def physics(lanes: Lanes, force: Any, sincos: SinCos) -> tuple[Any, Any, Any, Any]:
    """CartPole's new x, x_dot, theta, theta_dot."""
    x, x_dot, theta, theta_dot = lanes[:4]
    sin, cos = sincos(theta)
    temp = (force + 0.05 * theta_dot * theta_dot * sin) * (1 / 1.1)
    theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - (0.1 / 1.1) * cos * cos))
    x_acc = temp - (0.05 / 1.1) * theta_acc * cos
    return (
        x + 0.02 * x_dot,
        x_dot + 0.02 * x_acc,
        theta + 0.02 * theta_dot,
        theta_dot + 0.02 * theta_acc,
    )


def advance(
    lanes: Lanes, right: Any, fresh: list[Any], sincos: SinCos = library
) -> tuple[Lanes, Any, Any]:
    """One step and automatic reset; returns the lanes, terminated and truncated."""
    import jax.numpy as jnp

    state = physics(lanes, jnp.where(right, 10.0, -10.0).astype(jnp.float32), sincos)
    terminated = (abs(state[0]) > 2.4) | (abs(state[2]) > 0.20943951)
    steps = lanes.steps + 1
    truncated = steps >= 500
    done = terminated | truncated
    rows = (jnp.where(done, 0.1 * u - 0.05, s) for u, s in zip(fresh, state, strict=True))
    steps = jnp.where(done, 0, steps)
    new = Lanes._make((*rows, steps, lanes.key_low, lanes.key_high))
    return new, terminated, truncated


def simulate_function(num_steps: int, sincos: SinCos) -> Callable[..., Any]:
    """Compiled (lanes, totals, counter) -> (lanes, totals): steps and the actions' draws."""
    import jax
    import jax.numpy as jnp

    def step(carry: Any, counter: Any) -> Any:
        lanes, (episodes, lengths) = carry
        u, *fresh = draw(lanes, counter)
        new, terminated, truncated = advance(lanes, u >= 0.5, fresh, sincos)
        done = terminated | truncated
        episodes = episodes + done
        lengths = lengths + jnp.where(done, lanes.steps + 1, 0)
        return (new, (episodes, lengths)), None

    def simulate(lanes: Lanes, totals: Any, counter: Any) -> Any:
        counters = counter + jnp.arange(num_steps, dtype=jnp.uint32)
        carry, _ = jax.lax.scan(step, (lanes, totals), counters)
        return carry

    return jax.jit(simulate, donate_argnums=(0, 1))


@dataclass
class JaxSimulate:
    """`num_steps` fused steps of CartPole. Unrolling the scan by 2, 4 or 8 makes it slower.

    Attributes:
        num_envs: number of environments.
        num_steps: steps per call.
        sincos: `library` or `polynomials`.
    """

    num_envs: int
    num_steps: int
    sincos: SinCos = library
    name: str = "jax scan"
    _carry: Any = field(default=None, repr=False)

    @property
    def work(self) -> float:
        """Environment steps per call."""
        return self.num_envs * self.num_steps

    def setup(self) -> None:
        """Makes the initial states; the first call compiles."""
        import jax.numpy as jnp

        self._function = simulate_function(self.num_steps, self.sincos)
        totals = tuple(jnp.zeros(self.num_envs, jnp.int32) for _ in range(2))
        self._carry = (start(self.num_envs), totals)

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[np.uint32]:
        """Counters of the generator."""
        return list(rng.integers(0, 2**32, count, dtype=np.uint32))

    def run(self, inputs: Iterable[np.uint32]) -> None:
        """One call for each counter; waits for the last."""
        import jax

        for counter in inputs:
            self._carry = self._function(*self._carry, counter)
        jax.block_until_ready(self._carry)
