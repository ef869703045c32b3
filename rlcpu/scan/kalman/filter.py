"""The Kalman filter, forward in time.

x[t + 1] = F x[t] + w[t] and y[t] = H x[t] + v[t], with w ~ N(0, Q) and v ~ N(0, R). The letters are
those of the public functions; Durbin and Koopman (2012, Time series analysis by state space
methods, 2nd edition, section 4.3) write T, Z, Q and H for F, H, Q and R. Before y[t] is seen, the
state has mean a and covariance P. With their recursion (4.24):

* innovation v = y - H a, its covariance S = H P H' + R, u = S^-1 v, gain K = P H' S^-1;
* update: mean a + P H' u, covariance P - K H P or, in Joseph's form,
  (I - K H) P (I - K H)' + K R K' (Anderson and Moore 1979, Optimal filtering, chapter 5; Bucy and
  Joseph 1968);
* prediction: a = F mean, P = F cov F' + Q;
* log-likelihood (section 7.2): -(log(det(2 pi S)) + v' u) / 2.

The functions below compute a block of models, one in each lane of the cells of `matrices`. They
take a `KalmanTask`, `task`; the number of the block's first lane, `first`; the block's `Workspace`,
`w`, which they overwrite; a time step t, or the number k of a step in its chunk.

Time is cut into chunks. With constant matrices P converges. Where no number of it has changed, over
a chunk and in the chunk's last step, by more than what rounding does to a sum of m products, m
units, it is no longer computed in the following chunks without missing observations, which are
called steady: what step k has computed of covariances is kept as record j, which is 0 for all steps
of a steady chunk. A P that stays as it is for a step stays so for ever, but for rounding: each step
of a steady chunk is off by as many units as the recursion's own rounding. The ends of a chunk alone
would be equal for a P whose period divides it; the last step alone, for one that moves slowly. If
the distance to the limit is multiplied by d in each step, at most m / |1 - d| units are left of it,
and m / (32 |1 - d|) where d is near 1.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.structs import Array, Flag, Nested, Real, Struct, Whole
from rlcpu.scan.kalman.matrices import (
    MINUS,
    PLUS,
    add_product,
    add_symmetric,
    allocate,
    copy,
    invert,
    is_close,
    lanes_of,
    matrix_at,
    multiply,
    read_models,
    scalars_of,
    subtract_from_identity,
    transposed,
    write_models,
)

CONVERGED = 2.0  # units of rounding, of correlations, that a covariance may change by; m if more
#: Rows of `KalmanTask.positions`, in the order of `ModelArrays`.
OBSERVATIONS, TRANSITION, TRANSITION_COV, DESIGN, OBSERVATION_COV = range(5)
INITIAL_MEAN, INITIAL_COV = 5, 6


class ModelRows(Struct):
    """Numbers of models at time steps: an input, or something that is computed of all models."""

    count = Whole()  #: of models; 0 if nothing is wanted
    steps = Whole()  #: of time, 1 of what is constant
    size = Whole()  #: numbers of a step
    numbers = Array("real", "count", "steps", "size")


class ModelInputs(Struct):
    """Something for each input, as `ModelArrays` names them."""

    observations = Nested(ModelRows)
    transition = Nested(ModelRows)
    transition_cov = Nested(ModelRows)
    design = Nested(ModelRows)
    observation_cov = Nested(ModelRows)
    initial_mean = Nested(ModelRows)
    initial_cov = Nested(ModelRows)


class KalmanTask(Struct):
    """A call of one of the Kalman functions."""

    inputs = Nested(ModelInputs)
    lanes = Whole()  #: of all blocks
    positions = Array(np.int64, 7, "lanes")  #: where each lane's model is in each input
    loglik = Array(np.float64, "lanes")  #: overwritten
    predicted_mean = Nested(ModelRows)  #: what filter and smoother write
    predicted_cov = Nested(ModelRows)
    mean = Nested(ModelRows)
    cov = Nested(ModelRows)
    gradients = Nested(ModelInputs)  #: of the log-likelihoods, overwritten
    m = Whole()  #: numbers of a state
    p = Whole()  #: numbers of an observation
    length = Whole()  #: time steps of a chunk
    chunks = Whole()  #: chunks whose first states are kept; 1 if nothing goes back in time
    wants_states = Flag()  #: whether the filter writes states
    wants_gradients = Flag()  #: whether `backward` computes gradients, not smoothed states
    varies = Flag()  #: whether one of F, Q, H and R varies with time
    joseph = Flag()  #: whether to update in Joseph's form
    tolerance = Real()  #: what counts as rounding of covariances, in standard deviations


#: Calls of a dtype, and structs of its arrays, by its type.
TASKS: dict[Any, Any] = {kind: KalmanTask.of(real=kind) for kind in (np.float32, np.float64)}


#: The matrices of a block of models, see `lay_out_workspace`.
Workspace: Any = namedtuple(
    "Workspace",
    "transition transition_cov design observation_cov mean cov design_cov innovation log_det "
    "mahalanobis variances observed missing scaled_innovation filtered_mean filtered_cov gain "
    "precision start_mean start_cov is_steady last_cov work_mm work_mm2 work_pm score "
    "mean_gradient smoothed_mean smoothed_cov smoothing_error error_cov gain_adjoint adjoint "
    "adjoint_at_end transition_gradient transition_cov_gradient design_gradient "
    "observation_cov_gradient",
)


@inline
def lay_out_workspace(arena, m, p, length, chunks):
    """Return the `Workspace` of a block, in an arena of zeros; see `KalmanTask` for the sizes."""
    return Workspace(
        # The model at the current step, and what is known of its state before y is seen.
        transition=allocate(arena, m, m),  # F
        transition_cov=allocate(arena, m, m),  # Q
        design=allocate(arena, p, m),  # H
        observation_cov=allocate(arena, p, p),  # R
        mean=allocate(arena, m, 1),  # a
        cov=allocate(arena, m, m),  # P
        design_cov=allocate(arena, p, m),  # H P
        innovation=allocate(arena, p, 1),  # v
        log_det=allocate(arena, 1, 1),  # log(det(2 pi S))
        mahalanobis=allocate(arena, 1, 1),  # v' u
        variances=allocate(arena, p, 1),  # the diagonal of S
        # Of each step of a chunk; in a steady one, the last three of its first step alone.
        observed=allocate(arena, p, 1, length),  # y, 0 where it is missing
        missing=allocate(arena, p, 1, length),  # 1 where y is missing, else 0
        scaled_innovation=allocate(arena, p, 1, length),  # u
        filtered_mean=allocate(arena, m, 1, length),  # given y
        filtered_cov=allocate(arena, m, m, length),
        gain=allocate(arena, m, p, length),  # K
        precision=allocate(arena, p, p, length),  # S^-1
        # At the beginning of each chunk.
        start_mean=allocate(arena, m, 1, chunks),  # a
        start_cov=allocate(arena, m, m, chunks),  # P
        is_steady=allocate(arena, 1, 1, chunks),  # 1 if the chunk is steady, else 0
        last_cov=allocate(arena, m, m),  # P of the last step of a chunk
        # Products on the way.
        work_mm=allocate(arena, m, m),
        work_mm2=allocate(arena, m, m),
        work_pm=allocate(arena, p, m),
        # On the way back, see `smoother`.
        score=allocate(arena, m, 1),  # r
        mean_gradient=allocate(arena, m, 1),  # F' r, with respect to the filtered mean
        smoothed_mean=allocate(arena, m, 1),  # given all observations
        smoothed_cov=allocate(arena, m, m),
        smoothing_error=allocate(arena, p, 1),  # s
        error_cov=allocate(arena, p, p),  # D
        gain_adjoint=allocate(arena, p, m),  # Y
        adjoint=allocate(arena, m, m),  # N
        adjoint_at_end=allocate(arena, m, m),  # N at the end of the chunk
        transition_gradient=allocate(arena, m, m),  # with respect to F; so the next three
        transition_cov_gradient=allocate(arena, m, m),
        design_gradient=allocate(arena, p, m),
        observation_cov_gradient=allocate(arena, p, p),
    )


# ---------------------------------------------------------------- a step


@inline
def read_model(task, first, w, t):
    """Read F, Q, H and R of a time step: at the first one all, later those that vary."""
    positions, inputs = task.positions, task.inputs
    read_models(w.transition, inputs.transition, positions[TRANSITION], first, t)
    read_models(w.transition_cov, inputs.transition_cov, positions[TRANSITION_COV], first, t)
    read_models(w.design, inputs.design, positions[DESIGN], first, t)
    read_models(w.observation_cov, inputs.observation_cov, positions[OBSERVATION_COV], first, t)


@inline
def read_observations(task, first, w, begin, count):
    """Read `count` observations from step `begin` on, and return whether none is missing."""
    array, lanes, p = task.inputs.observations.numbers, lanes_of(w.observed), w.observed.rows
    observed, missing, gaps = scalars_of(w.observed), scalars_of(w.missing), 0
    for lane in range(lanes):
        position = task.positions[OBSERVATIONS, first + lane]
        for k in range(count):
            for i in range(p):
                y = array[position, begin + k, i]
                is_missing = y != y
                gaps += is_missing
                observed[(k * p + i) * lanes + lane] = 0.0 if is_missing else y
                missing[(k * p + i) * lanes + lane] = 1.0 if is_missing else 0.0
    return gaps == 0


@inline
def update_cov(task, w, k, j):
    """Compute record j of step k: S^-1, K and the covariance given y[k], from P."""
    gain, precision = matrix_at(w.gain, j), matrix_at(w.precision, j)
    filtered_cov = matrix_at(w.filtered_cov, j)
    multiply(w.design_cov, w.design, w.cov)
    add_symmetric(precision, w.observation_cov, PLUS, w.design_cov, transposed(w.design))  # S
    invert(precision, matrix_at(w.missing, k), w.log_det, w.variances, task.tolerance)
    multiply(gain, transposed(w.design_cov), precision)
    if task.joseph:
        subtract_from_identity(w.work_mm, gain, w.design)
        multiply(w.work_mm2, w.cov, transposed(w.work_mm))
        multiply(w.work_pm, w.observation_cov, transposed(gain))
        multiply(filtered_cov, gain, w.work_pm)
        add_symmetric(filtered_cov, filtered_cov, PLUS, w.work_mm, w.work_mm2)
    else:
        add_symmetric(filtered_cov, w.cov, MINUS, gain, w.design_cov)


@inline
def update_mean(w, k, j):
    """Compute u and the mean given y[k], from a and record j."""
    u = matrix_at(w.scaled_innovation, k)
    add_product(w.innovation, matrix_at(w.observed, k), MINUS, w.design, w.mean)
    multiply(u, matrix_at(w.precision, j), w.innovation)
    add_product(matrix_at(w.filtered_mean, k), w.mean, PLUS, transposed(w.design_cov), u)


@inline
def predict(w, k, j, is_steady):
    """Replace a and, unless the chunk is steady, P of step k by those of step k + 1."""
    multiply(w.mean, w.transition, matrix_at(w.filtered_mean, k))
    if not is_steady:
        multiply(w.work_mm, matrix_at(w.filtered_cov, j), transposed(w.transition))
        add_symmetric(w.cov, w.transition_cov, PLUS, w.transition, w.work_mm)


@inline
def add_log_density(task, first, w, k):
    """Add the log-density of observation k to the log-likelihoods."""
    multiply(w.mahalanobis, transposed(w.innovation), matrix_at(w.scaled_innovation, k))
    squares, log_dets = scalars_of(w.mahalanobis), scalars_of(w.log_det)
    for lane in range(lanes_of(w.mahalanobis)):
        task.loglik[first + lane] -= 0.5 * (squares[lane] + log_dets[lane])


# ---------------------------------------------------------------- all steps


def forward(task, first, w):
    """Filter all time steps; keep the state at the beginning of each chunk for `backward`.

    All steps have record 0, one after the other.
    """
    steps = task.inputs.observations.steps
    length, chunks, wants_states = task.length, task.chunks, task.wants_states
    read_models(w.mean, task.inputs.initial_mean, task.positions[INITIAL_MEAN], first, 0)
    read_models(w.cov, task.inputs.initial_cov, task.positions[INITIAL_COV], first, 0)
    has_converged = False
    for begin in range(0, steps, length):
        # With `chunks` 1 nothing goes back: all chunks have the same place for their first state.
        count, number = min(length, steps - begin), min(begin // length, chunks - 1)
        is_complete = read_observations(task, first, w, begin, count)
        is_steady = has_converged and is_complete
        copy(matrix_at(w.start_mean, number), w.mean)
        copy(matrix_at(w.start_cov, number), w.cov)
        scalars_of(matrix_at(w.is_steady, number))[0] = 1.0 if is_steady else 0.0
        for k in range(count):
            t = begin + k
            if task.varies or t == 0:
                read_model(task, first, w, t)
            if wants_states:
                write_models(w.mean, PLUS, task.predicted_mean, first, t)
                write_models(w.cov, PLUS, task.predicted_cov, first, t)
            if k == 0 or not is_steady:
                update_cov(task, w, k, 0)
            update_mean(w, k, 0)
            add_log_density(task, first, w, k)
            if wants_states:
                write_models(matrix_at(w.filtered_mean, k), PLUS, task.mean, first, t)
                write_models(matrix_at(w.filtered_cov, 0), PLUS, task.cov, first, t)
            if k == count - 1:
                copy(w.last_cov, w.cov)
            predict(w, k, 0, is_steady)
        has_converged = is_steady or (
            is_complete
            and not task.varies
            and is_close(w.cov, w.last_cov, task.tolerance)
            and is_close(w.cov, matrix_at(w.start_cov, number), task.tolerance)
        )
