"""Peers that add up exponentials: NumPy, torch, and the three ways there are in JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asv_benches.peers.replay_calls import Arguments
from asv_benches.peers.scan_problems import Solver


@dataclass
class NumpyLogCumSumExp(Solver):
    """NumPy's accumulated `logaddexp`."""

    def make(self) -> Callable[..., Any]:
        """Into an array that is reused, as ours."""
        out = np.zeros(self.problem.size)
        return lambda x: np.logaddexp.accumulate(x, out=out)


@dataclass
class TorchLogCumSumExp(Solver):
    """torch's own function."""

    def make(self) -> Callable[..., Any]:
        """Into a tensor that is reused, as ours."""
        import torch

        out = torch.zeros(self.problem.size, dtype=torch.float64)
        return lambda x: torch.logcumsumexp(x, 0, out=out)

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """Tensors."""
        import torch

        return tuple(map(torch.from_numpy, arrays))


def by_scan(x: Any) -> Any:
    """The report's `lax.scan`: google/jax 2491."""
    import jax
    import jax.numpy as jnp

    def add(carry: Any, number: Any) -> Any:
        out = jnp.logaddexp(carry, number)
        return out, out

    return jax.lax.scan(add, -jnp.inf, x)[1]


def by_associative_scan(x: Any) -> Any:
    """`lax.associative_scan` of `logaddexp`."""
    import jax
    import jax.numpy as jnp

    return jax.lax.associative_scan(jnp.logaddexp, x)


def by_library(x: Any) -> Any:
    """`lax.cumlogsumexp`."""
    import jax

    return jax.lax.cumlogsumexp(x)
