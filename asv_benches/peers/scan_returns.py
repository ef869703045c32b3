"""Peers that estimate advantages: the usual loop in NumPy and in torch, scans in JAX, and rlax.

All of them return the advantages and, as we do, the advantages plus the values. They take the ends
of episodes as numbers, 1.0 after the last step, which is what such code keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asv_benches.peers.replay_calls import Arguments
from asv_benches.peers.scan_jax import Jax
from asv_benches.peers.scan_problems import Solver

GAMMA, LAMBDA = 0.99, 0.95


@dataclass
class NumpyGae(Solver):
    """The loop of single-file PPO implementations, its rows written into prepared arrays."""

    def make(self) -> Callable[..., Any]:
        """The loop, along the axis of the time."""
        advantages = np.zeros(self.problem.shape, np.float32)
        return lambda *arrays: loop(arrays, advantages, self.problem.axis, np.zeros_like)

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """Ends as numbers."""
        rewards, values, terminated, last_values = arrays
        return rewards, values, terminated.astype(np.float32), last_values


@dataclass
class TorchGae(Solver):
    """The same loop, of torch's tensors."""

    def make(self) -> Callable[..., Any]:
        """The loop, along the axis of the time."""
        import torch

        advantages = torch.zeros(self.problem.shape)
        return lambda *arrays: loop(arrays, advantages, self.problem.axis, torch.zeros_like)

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """Tensors, ends as numbers."""
        import torch

        return tuple(torch.from_numpy(array.astype(np.float32)) for array in arrays)


def loop(arrays: Arguments, out: Any, axis: int, zeros: Callable[[Any], Any]) -> Any:
    """Advantages and returns, step by step backwards; the code is the same in NumPy and torch."""
    rewards, values, ends, last_values = arrays
    if axis == 1:
        rewards, values, ends, advantages = rewards.T, values.T, ends.T, out.T
    else:
        advantages = out
    next_values, advantage = last_values, zeros(last_values)
    for t in range(len(rewards) - 1, -1, -1):
        going = 1.0 - ends[t]
        delta = rewards[t] + GAMMA * next_values * going - values[t]
        advantage = delta + GAMMA * LAMBDA * going * advantage
        advantages[t] = advantage
        next_values = values[t]
    return out, out + arrays[1]


def differences(rewards: Any, values: Any, ends: Any, last_values: Any) -> tuple[Any, Any]:
    """Temporal differences, and what later ones count for, in JAX; time-major."""
    import jax.numpy as jnp

    going = 1.0 - ends
    next_values = jnp.concatenate([values[1:], last_values[None]])
    return rewards + GAMMA * next_values * going - values, GAMMA * LAMBDA * going


def gae_by_scan(rewards: Any, values: Any, ends: Any, last_values: Any) -> Any:
    """One `lax.scan`, all of a step in its body."""
    import jax
    import jax.numpy as jnp

    def step(carry: Any, row: Any) -> Any:
        next_values, advantage = carry
        reward, value, end = row
        going = 1.0 - end
        delta = reward + GAMMA * next_values * going - value
        advantage = delta + GAMMA * LAMBDA * going * advantage
        return (value, advantage), advantage

    start = last_values, jnp.zeros_like(last_values)
    _, advantages = jax.lax.scan(step, start, (rewards, values, ends), reverse=True)
    return advantages, advantages + values


def gae_by_associative_scan(rewards: Any, values: Any, ends: Any, last_values: Any) -> Any:
    """`lax.associative_scan` of the pairs (decay, difference)."""
    import jax

    def combine(later: Any, earlier: Any) -> Any:
        return later[0] * earlier[0], earlier[1] + earlier[0] * later[1]

    delta, decay = differences(rewards, values, ends, last_values)
    _, advantages = jax.lax.associative_scan(combine, (decay, delta), reverse=True)
    return advantages, advantages + values


def gae_by_rlax(rewards: Any, values: Any, ends: Any, last_values: Any) -> Any:
    """rlax's function of one environment, mapped over the environments."""
    import jax
    import jax.numpy as jnp
    import rlax

    def one(rewards: Any, discounts: Any, values: Any) -> Any:
        return rlax.truncated_generalized_advantage_estimation(rewards, discounts, LAMBDA, values)

    everything = jnp.concatenate([values, last_values[None]])
    mapped = jax.vmap(one, in_axes=1, out_axes=1)
    advantages = mapped(rewards, GAMMA * (1.0 - ends), everything)
    return advantages, advantages + values


@dataclass
class JaxGae(Jax):
    """One of the functions above, jitted."""

    function: Callable[..., Any] = gae_by_scan

    def make(self) -> Callable[..., Any]:
        """Batch-major arrays are transposed within the jitted function, where XLA can fuse it."""
        if self.problem.axis == 1:
            self.function = Turned(self.function)
        return super().make()

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """JAX's arrays, ends as numbers."""
        return super().convert(*(array.astype(np.float32) for array in arrays))


@dataclass(frozen=True)
class Turned:
    """A function of time-major arrays, of batch-major ones.

    Attributes:
        function: of rewards, values, ends and last values.
    """

    function: Callable[..., Any]

    def __call__(self, rewards: Any, values: Any, ends: Any, last_values: Any) -> Any:
        """Transposes what comes in and what goes out."""
        advantages, returns = self.function(rewards.T, values.T, ends.T, last_values)
        return advantages.T, returns.T
