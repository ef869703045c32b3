"""Peers that filter: a `lax.scan` in JAX with its gradient, and statsmodels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asv_benches.peers.replay_calls import Arguments
from asv_benches.peers.scan_jax import Jax
from asv_benches.peers.scan_problems import Solver


def loglik(transition: Any, noise: Any, design: Any, variance: Any, observations: Any) -> Any:
    """Log-likelihood of one model, which starts at mean 0 and covariance 1."""
    import jax
    import jax.numpy as jnp

    def step(state: Any, observation: Any) -> Any:
        mean, cov = state
        projected = cov @ design
        spread = design @ projected + variance
        innovation = observation - design @ mean
        mean = mean + projected * innovation / spread
        cov = cov - jnp.outer(projected, projected) / spread
        state = transition @ mean, transition @ cov @ transition.T + noise
        return state, -0.5 * (jnp.log(2 * jnp.pi * spread) + innovation**2 / spread)

    size = transition.shape[0]
    return jax.lax.scan(step, (jnp.zeros(size), jnp.eye(size)), observations)[1].sum()


def logliks(*arrays: Any) -> Any:
    """Of all models."""
    return mapped(loglik, arrays)


def gradients(*arrays: Any) -> Any:
    """Log-likelihoods, and their gradients with respect to F, Q, H and R."""
    import jax

    return mapped(jax.value_and_grad(loglik, argnums=(0, 1, 2, 3)), arrays)


def mapped(function: Callable[..., Any], arrays: Arguments) -> Any:
    """Of every model; a single one goes without `vmap`, which would cost it time."""
    import jax

    if len(arrays[0]) > 1:
        return jax.vmap(function)(*arrays)
    return jax.tree.map(lambda x: x[None], function(*(array[0] for array in arrays)))


@dataclass
class JaxKalman(Jax):
    """One of the functions above, jitted."""

    function: Callable[..., Any] = logliks


@dataclass
class Statsmodels(Solver):
    """statsmodels' compiled filter, one model after the other.

    Its default settings: once the covariance has converged it is no longer updated.
    """

    def make(self) -> Callable[..., Any]:
        """The log-likelihoods of prepared filters."""
        return lambda *filters: np.array([each.loglike() for each in filters])

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """One filter for every model, its observations bound."""
        return tuple(self.filter(*model) for model in zip(*arrays, strict=True))

    def filter(
        self,
        transition: np.ndarray,
        noise: np.ndarray,
        design: np.ndarray,
        variance: np.float64,
        observations: np.ndarray,
    ) -> Any:
        """A filter that starts at mean 0 and covariance 1."""
        from statsmodels.tsa.statespace.kalman_filter import KalmanFilter

        size = len(transition)
        kalman = KalmanFilter(k_endog=1, k_states=size, loglikelihood_burn=0)
        kalman.bind(observations[:, None].copy())
        kalman["design"] = design[None]
        kalman["transition"] = transition
        kalman["selection"] = np.eye(size)
        kalman["state_cov"] = noise
        kalman["obs_cov"] = np.array([[variance]])
        kalman.initialize_known(np.zeros(size), np.eye(size))
        return kalman
