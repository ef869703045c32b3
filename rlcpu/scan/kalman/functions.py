"""Linear-Gaussian state-space models: log-likelihoods, their gradients, and states.

x[t + 1] = F x[t] + w[t], w[t] ~ N(0, Q); y[t] = H x[t] + v[t], v[t] ~ N(0, R); x[0] ~ N(a, P).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.scan.arguments import check_broadcast, check_out, check_real, sum_to_shape
from rlcpu.scan.kalman.model import KalmanProblem, check_observations, make_problem
from rlcpu.scan.kalman.run import run
from rlcpu.scan.tridiagonal.status import SingularMatrixError, Status

Array = npt.NDArray[Any]


class KalmanGradients(NamedTuple):
    """Gradients of log-likelihoods, each of its argument's shape: summed where it was repeated.

    Those of covariances are symmetric: along a symmetric change the derivative is the sum of
    gradient times change. Those of missing observations are 0.

    Attributes:
        observations: (..., T, p).
        transition: (..., m, m), or (..., T, m, m) where it varies; so the next three.
        transition_cov: (..., m, m).
        design: (..., p, m).
        observation_cov: (..., p, p).
        initial_mean: (..., m).
        initial_cov: (..., m, m).
    """

    observations: Any
    transition: Any
    transition_cov: Any
    design: Any
    observation_cov: Any
    initial_mean: Any
    initial_cov: Any


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


def kalman_loglik(
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
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Return log-likelihoods of linear-Gaussian state-space models, by the Kalman filter.

    x[t + 1] = F x[t] + w[t] with w[t] ~ N(0, Q), and y[t] = H x[t] + v[t] with v[t] ~ N(0, R).
    Anderson and Moore 1979, Optimal filtering, chapters 5 and 10. Leading axes number models and
    broadcast. Once the covariance of a model with constant matrices stands still to rounding, it is
    no longer computed; a missing observation sets it in motion again.

    Args:
        observations: y (..., T, p) float32 or float64; NaN where one is missing.
        transition: F (..., m, m); as all arrays of the observations' dtype or of integers.
        transition_cov: Q (..., m, m), symmetric positive semi-definite.
        design: H (..., p, m).
        observation_cov: R (..., p, p), symmetric positive semi-definite.
        initial_mean: (..., m), of x[0] before y[0] is seen; zeros by default.
        initial_cov: (..., m, m) of x[0], symmetric positive semi-definite; identity by default.
        time_varying: those of "transition", "transition_cov", "design" and "observation_cov" that
            have a time axis before their last two: (..., T, m, m), (..., T, p, m), (..., T, p, p).
            F[t] and Q[t] lead from x[t] to x[t + 1].
        form: of the covariance's update: "plain", P - K H P, or "joseph", (I - K H) P (I - K H)' +
            K R K', which stays positive semi-definite where P is huge beside R.
        out: (...), the shape that the leading axes broadcast to, overwritten with the result.
        num_threads: at most so many threads; all by default.

    Returns:
        (...) log-likelihoods; `out` if given.

    Raises:
        SingularMatrixError: the covariance of an innovation, S = H P H' + R, is singular to
            rounding, as that of two copies of a sensor without noise is, or exceeds the largest
            number. Its `status` says which models have none; `out` is not written then.
        TypeError: an array is of another dtype.
        ValueError: shapes do not fit or broadcast, a number is infinite (or NaN, but for missing
            observations), a covariance is not symmetric positive semi-definite, another argument is
            out of range, or `out` has another shape, is read-only or overlaps another array.

    Example:
        >>> y, one = np.zeros((2, 3, 1)), np.eye(1)
        >>> kalman_loglik(y, one, 0 * one, one, one).round(6)
        array([-3.449963, -3.449963])
    """
    problem = make_problem(locals())
    if out is not None:
        like = np.empty(problem.sizes.batch, problem.inputs.observations.dtype)
        check_out("out", out, like, problem.inputs)
    loglik, _ = _run_checked(problem, "loglik")
    if out is None:
        return loglik
    out[...] = loglik
    return out


def kalman_loglik_vjp(
    observations: npt.ArrayLike,
    transition: npt.ArrayLike,
    transition_cov: npt.ArrayLike,
    design: npt.ArrayLike,
    observation_cov: npt.ArrayLike,
    *,
    grad: npt.ArrayLike = 1.0,
    initial_mean: npt.ArrayLike | None = None,
    initial_cov: npt.ArrayLike | None = None,
    time_varying: Collection[str] = (),
    form: str = "plain",
    num_threads: int | None = None,
) -> tuple[Array, KalmanGradients]:
    """Return log-likelihoods, and gradients of a scalar with respect to the arguments.

    Reverse mode, with the state kept every 32 steps and the steps between computed again.

    Arguments are those of `kalman_loglik`, without `out`, and `grad`: the scalar's gradient with
    respect to the log-likelihoods, of a shape that broadcasts to theirs.

    Returns:
        (...) log-likelihoods, and the gradients, new arrays.

    Raises:
        SingularMatrixError, TypeError, ValueError: see `kalman_loglik`.

    Example:
        >>> y, one = np.full((1, 1), 2.0), np.eye(1)
        >>> kalman_loglik_vjp(y, one, one, one, one)[1].observations
        array([[-1.]])
    """
    problem = make_problem(locals())
    batch, shapes = problem.sizes.batch, problem.sizes.shapes
    factor = check_real("grad", grad, problem.inputs.observations.dtype)
    factor = np.broadcast_to(check_broadcast("grad", factor, batch), batch)
    loglik, gradients = _run_checked(problem, "gradients")
    if (factor != 1.0).any():
        for gradient, shape in zip(gradients, shapes, strict=True):
            weight = factor.reshape(factor.shape + (1,) * len(shape))
            np.multiply(gradient, weight, out=gradient, where=weight != 0.0)
            np.copyto(gradient, 0.0, where=weight == 0.0)  # an infinite one, too
    arrays = zip(gradients, problem.inputs, strict=True)
    return loglik, KalmanGradients(
        *(sum_to_shape(gradient, like.shape) for gradient, like in arrays)
    )


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
        SingularMatrixError, TypeError, ValueError: see `kalman_loglik`.

    Example:
        >>> y, one = np.full((1, 1), 2.0), np.eye(1)
        >>> kalman_filter(y, one, one, one, one).filtered_mean
        array([[1.]])
    """
    loglik, states = _run_checked(make_problem(locals()), "states")
    return KalmanStates._make([*states, loglik])


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
        SingularMatrixError, TypeError, ValueError: see `kalman_loglik`.

    Example:
        >>> y, one = np.array([[np.nan], [3.0]]), np.eye(1)
        >>> kalman_smooth(y, one, one, one, one).mean.ravel()
        array([1., 2.])
    """
    loglik, states = _run_checked(make_problem(locals()), "smoothed")
    return SmoothedStates._make([*states, loglik])


def _run_checked(problem: KalmanProblem, outputs: str) -> tuple[Array, Any]:
    """Return what `run` does; raise the errors that are looked for afterwards.

    To look for infinite observations before takes as long as the kernel: they leave no finite
    log-likelihood. Covariances of innovations that are singular make it NaN.
    """
    loglik, results = run(problem, outputs)
    if not np.isfinite(loglik).all():
        check_observations(problem)
    is_nan = np.isnan(loglik)
    if is_nan.any():
        status = np.where(is_nan, Status.SINGULAR, Status.SOLVED).astype(np.int8)
        reason = "have a covariance of an innovation that cannot be inverted"
        raise SingularMatrixError(status, f"models {reason}")
    return loglik, results
