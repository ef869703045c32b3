"""States of linear-Gaussian state-space models: Kalman filter and smoother."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.scan.kalman.model import Inputs, check_observations, make_problem, run
from rlcpu.scan.kalman.workspace import SMOOTH, STATES


class KalmanStates(NamedTuple):
    """What `kalman_filter` returns.

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
    """What `kalman_smooth` returns.

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
    """States given the observations so far, before and after each one.

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
    matrices = (transition, transition_cov, design, observation_cov)
    inputs = Inputs(observations, *matrices, initial_mean, initial_cov)
    problem = make_problem(inputs, time_varying, form, num_threads)
    check_observations(problem)
    total, m = problem.models * problem.steps, problem.state
    flat = np.empty(2 * total * (m + m * m), problem.inputs.observations.dtype)
    loglik = run(STATES, problem, flat).reshape(problem.batch)
    line, square = (problem.steps, m), (problem.steps, m, m)
    return KalmanStates(
        flat[: total * m].reshape(*problem.batch, *line),
        flat[2 * total * m : total * m * (m + 2)].reshape(*problem.batch, *square),
        flat[total * m : 2 * total * m].reshape(*problem.batch, *line),
        flat[total * m * (m + 2) :].reshape(*problem.batch, *square),
        loglik,
    )


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
    """States given all observations: what Rauch, Tung and Striebel's smoother gives.

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
    matrices = (transition, transition_cov, design, observation_cov)
    inputs = Inputs(observations, *matrices, initial_mean, initial_cov)
    problem = make_problem(inputs, time_varying, form, num_threads)
    check_observations(problem)
    total, m = problem.models * problem.steps, problem.state
    flat = np.empty(total * (m + m * m), problem.inputs.observations.dtype)
    loglik = run(SMOOTH, problem, flat).reshape(problem.batch)
    mean = flat[: total * m].reshape(*problem.batch, problem.steps, m)
    cov = flat[total * m :].reshape(*problem.batch, problem.steps, m, m)
    return SmoothedStates(mean, cov, loglik)
