"""States of linear-Gaussian state-space models: Kalman filter and smoother."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy.typing as npt

from rlcpu.scan.kalman.model import KalmanProblem, check_observations, make_problem
from rlcpu.scan.kalman.run import run


class KalmanStates(NamedTuple):
    """Means and covariances that `kalman_filter` returns.

    Attributes:
        predicted_mean: (..., T, m), of each state given the observations before its own.
        predicted_cov: (..., T, m, m).
        filtered_mean: (..., T, m), given its own observation too.
        filtered_cov: (..., T, m, m).
        loglik: (...), as from `kalman_loglik`.
    """

    predicted_mean: Any
    predicted_cov: Any
    filtered_mean: Any
    filtered_cov: Any
    loglik: Any


class SmoothedStates(NamedTuple):
    """Means and covariances that `kalman_smooth` returns.

    Attributes:
        mean: (..., T, m), of each state given all observations.
        cov: (..., T, m, m).
        loglik: (...), as from `kalman_loglik`.
    """

    mean: Any
    cov: Any
    loglik: Any


def kalman_filter(
    observations: npt.ArrayLike,
    transition: npt.ArrayLike,
    transition_cov: npt.ArrayLike,
    design: npt.ArrayLike,
    observation_cov: npt.ArrayLike,
    *,
    initial_mean: npt.ArrayLike | None = None,
    initial_cov: npt.ArrayLike | None = None,
    time_varying: Collection[str] = (),
    form: str = "plain",
    num_threads: int | None = None,
) -> KalmanStates:
    """Return the states given the observations so far, before and after each one.

    Arguments are those of `kalman_loglik`, without `out`.

    Returns:
        Means and covariances of all steps, new arrays, and the log-likelihoods.

    Raises:
        TypeError, ValueError: see `kalman_loglik`.

    Example:
        >>> y, one = np.full((1, 1), 2.0), np.eye(1)
        >>> kalman_filter(y, one, one, one, one).filtered_mean
        array([[1.]])
    """
    return KalmanStates(*_states(make_problem(locals()), "states"))


def kalman_smooth(
    observations: npt.ArrayLike,
    transition: npt.ArrayLike,
    transition_cov: npt.ArrayLike,
    design: npt.ArrayLike,
    observation_cov: npt.ArrayLike,
    *,
    initial_mean: npt.ArrayLike | None = None,
    initial_cov: npt.ArrayLike | None = None,
    time_varying: Collection[str] = (),
    form: str = "plain",
    num_threads: int | None = None,
) -> SmoothedStates:
    """Return the states given all observations: what Rauch, Tung and Striebel's smoother gives.

    Computed by the recursion of Bryson and Frazier (1963; de Jong 1989, Smoothing and interpolation
    with the state-space model), which inverts no covariance of a state: those may be singular.

    Arguments are those of `kalman_loglik`, without `out`.

    Returns:
        Means and covariances of all steps, new arrays, and the log-likelihoods.

    Raises:
        TypeError, ValueError: see `kalman_loglik`.

    Example:
        >>> y, one = np.array([[np.nan], [3.0]]), np.eye(1)
        >>> kalman_smooth(y, one, one, one, one).mean.ravel()
        array([1., 2.])
    """
    return SmoothedStates(*_states(make_problem(locals()), "smoothed"))


def _states(problem: KalmanProblem, outputs: str) -> tuple[Any, ...]:
    """Return means and covariances, those that `run` returns for `outputs`, and log-likelihoods."""
    check_observations(problem)
    loglik, states = run(problem, outputs)
    return (*states, loglik)
