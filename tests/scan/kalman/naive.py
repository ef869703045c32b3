"""Random state-space models, and the slow way to them: one joint normal distribution.

In extended precision, but for the models.
"""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from rlcpu.scan.kalman.model import MATRICES

WIDE = np.longdouble


class Model(NamedTuple):
    """One model, every matrix with a time axis."""

    observations: Any
    transition: Any
    transition_cov: Any
    design: Any
    observation_cov: Any
    initial_mean: Any
    initial_cov: Any


def each_model(arrays: dict[str, Any], varying: Any = ()) -> list[Model]:
    """The models of a broadcast call, one by one, in extended precision."""
    steps = arrays["observations"].shape[-2]
    inner = {"observations": 2, "initial_mean": 1, "initial_cov": 2}
    inner.update(dict.fromkeys(("transition", "transition_cov", "design", "observation_cov"), 2))
    for name in varying:
        inner[name] = 3
    leading = [a.shape[: a.ndim - inner[n]] for n, a in arrays.items()]
    batch = np.broadcast_shapes(*leading)
    models = []
    for index in np.ndindex(*batch):
        parts = {}
        for name, array in arrays.items():
            own = array.shape[array.ndim - inner[name] :]
            part = np.broadcast_to(array, (*batch, *own))[index].astype(WIDE)
            timed = name in ("transition", "transition_cov", "design", "observation_cov")
            repeat = timed and name not in varying
            parts[name] = np.broadcast_to(part, (steps, *own)) if repeat else part
        models.append(Model(**parts))
    return models


def solve(matrix: Any, right: Any) -> tuple[Any, Any]:
    """Solution of a positive definite system, and the logarithm of its determinant."""
    matrix, right = matrix.copy(), right.copy()
    logarithm = matrix.dtype.type(0)
    for k in range(len(matrix)):
        logarithm += np.log(matrix[k, k])
        right[k] /= matrix[k, k]
        matrix[k] = matrix[k] / matrix[k, k]
        for i in range(len(matrix)):
            if i != k:
                right[i] = right[i] - matrix[i, k] * right[k]
                matrix[i] = matrix[i] - matrix[i, k] * matrix[k]
    return right, logarithm


class Joint:
    """The joint distribution of all states and observations of one model."""

    def __init__(self, model: Model) -> None:
        self.steps, self.p = model.observations.shape
        self.m = m = model.initial_mean.size
        size = self.steps * m
        spread, self.mean = np.zeros((size, size), WIDE), np.zeros(size, WIDE)
        link = np.eye(m, dtype=WIDE)
        shape = np.zeros((size, size), WIDE)  # x = shape @ (initial state and noise)
        for t in range(self.steps):
            rows = slice(t * m, (t + 1) * m)
            noise = model.initial_cov if t == 0 else model.transition_cov[t - 1]
            spread[rows, rows], shape[rows, rows] = noise, np.eye(m)
            if t:
                before = slice((t - 1) * m, t * m)
                shape[rows, : t * m] = model.transition[t - 1] @ shape[before, : t * m]
                link = model.transition[t - 1] @ link
            self.mean[rows] = link @ model.initial_mean
        self.cov = shape @ spread @ shape.T
        self.design = np.zeros((self.steps * self.p, size), WIDE)
        self.noise = np.zeros((self.steps * self.p,) * 2, WIDE)
        for t in range(self.steps):
            rows = slice(t * self.p, (t + 1) * self.p)
            self.design[rows, t * m : (t + 1) * m] = model.design[t]
            self.noise[rows, rows] = model.observation_cov[t]
        self.values = model.observations.ravel()

    def given(self, count: int) -> tuple[Any, Any, Any]:
        """Log-density of the first observations, and mean and covariance of all states given them.

        Missing ones among them are left out.
        """
        seen = np.flatnonzero(~np.isnan(self.values[:count]))
        if seen.size == 0:
            return WIDE(0), self.mean, self.cov
        design = self.design[seen]
        innovation = self.values[seen] - design @ self.mean
        cov = design @ self.cov @ design.T + self.noise[np.ix_(seen, seen)]
        right = np.column_stack([innovation, design @ self.cov])
        solved, logarithm = solve(cov, right)
        squares = innovation @ solved[:, 0]
        loglik = -(seen.size * np.log(2 * WIDE(np.pi)) + logarithm + squares) / 2
        gain = (design @ self.cov).T
        return loglik, self.mean + gain @ solved[:, 0], self.cov - gain @ solved[:, 1:]

    def loglik(self) -> Any:
        return self.given(self.values.size)[0]

    def states(self, counts: Any) -> tuple[Any, Any]:
        """Mean and covariance of every state, given as many observations as `counts` says."""
        means, covs = [], []
        for t, count in enumerate(counts):
            rows = slice(t * self.m, (t + 1) * self.m)
            _, mean, cov = self.given(count)
            means.append(mean[rows])
            covs.append(cov[rows, rows])
        return np.array(means), np.array(covs)


def recursion(model: Model) -> Any:
    """Log-likelihood by the textbook's recursion, which complex numbers pass through."""
    mean, cov, total = model.initial_mean, model.initial_cov, 0
    for t, y in enumerate(model.observations):
        seen = np.flatnonzero(~np.isnan(y.real))
        if seen.size:
            design, noise = model.design[t][seen], model.observation_cov[t][np.ix_(seen, seen)]
            innovation = y[seen] - design @ mean
            projected = design @ cov
            right = np.column_stack([innovation, projected])
            solved, logarithm = solve(projected @ design.T + noise, right)
            total = total - (seen.size * np.log(2 * WIDE(np.pi)) + logarithm) / 2
            total = total - innovation @ solved[:, 0] / 2
            mean, cov = mean + projected.T @ solved[:, 0], cov - projected.T @ solved[:, 1:]
        mean = model.transition[t] @ mean
        cov = model.transition[t] @ cov @ model.transition[t].T + model.transition_cov[t]
    return total


def slope(model: Model, name: str, direction: Any) -> Any:
    """Derivative of the log-likelihood along a change of one argument, by a complex step."""
    step = WIDE(1e-40)
    parts = {n: a.astype(np.clongdouble) for n, a in model._asdict().items()}
    parts[name] = parts[name] + 1j * step * direction
    return recursion(Model(**parts)).imag / step


# ---------------------------------------------------------------- models

NAMES = ("observations", *MATRICES, "initial_mean", "initial_cov")


def covariances(rng: Any, shape: tuple[int, ...], size: int) -> Any:
    root = rng.normal(size=(*shape, size, size))
    return root @ root.swapaxes(-1, -2) + 0.2 * np.eye(size)


def make_models(
    m: int,
    p: int,
    steps: int,
    *,
    batch: tuple[int, ...] = (),
    shared: Any = (),
    varying: Any = (),
    missing: float = 0.0,
    dtype: str = "float64",
    seed: int = 0,
) -> dict[str, Any]:
    """Arguments by name; those in `shared` have no axes for the models."""
    rng = np.random.default_rng(seed)

    def axes(name: str) -> tuple[int, ...]:
        own = () if name in shared else batch
        return (*own, steps) if name in varying else own

    def rotation(shape: tuple[int, ...]) -> Any:
        return 0.9 * np.linalg.qr(rng.normal(size=(*shape, m, m)))[0]

    arrays = {
        "observations": rng.normal(size=(*axes("observations"), steps, p)),
        "transition": rotation(axes("transition")),
        "transition_cov": covariances(rng, axes("transition_cov"), m),
        "design": rng.normal(size=(*axes("design"), p, m)),
        "observation_cov": covariances(rng, axes("observation_cov"), p),
        "initial_mean": rng.normal(size=(*axes("initial_mean"), m)),
        "initial_cov": covariances(rng, axes("initial_cov"), m),
    }
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    y = arrays["observations"]
    y[rng.random(y.shape) < missing] = np.nan
    return arrays


def call(function: Any, arrays: dict[str, Any], **options: Any) -> Any:
    """A Kalman function of arguments by name."""
    matrices = [arrays[name] for name in NAMES[:5]]
    rest = {name: arrays[name] for name in NAMES[5:] if name in arrays}
    return function(*matrices, **rest, **options)


#: Small models of every kind: (arguments, options).
problems = st.builds(
    lambda m, p, steps, batch, shared, varying, missing, seed, form: (
        make_models(
            m, p, steps, batch=batch, shared=shared, varying=varying, missing=missing, seed=seed
        ),
        {"time_varying": varying, "form": form},
    ),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 6),
    st.sampled_from([(), (1,), (3,), (9,), (2, 2), (0,)]),
    st.sets(st.sampled_from(NAMES)),
    st.sets(st.sampled_from(MATRICES)),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["plain", "joseph"]),
)
