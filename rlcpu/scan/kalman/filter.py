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

Time is cut into chunks. With constant matrices P converges. Where no number of it has changed over
a chunk by more than what rounding does to a sum of m products, m units, it is no longer computed in
the following chunks without missing observations. If the distance to the limit shrinks by a factor
d a step, what is left of it is at most m / (32 (1 - d)) units, below the 1 / (1 - d) that the
recursion's own rounding adds up to, times m.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

from rlcpu.kernels.compile import inline
from rlcpu.scan.kalman.matrices import (
    add_product,
    add_symmetric,
    copy,
    invert,
    is_close,
    lanes_of,
    multiply,
    numbers_of,
    of_step,
    read,
    set_identity,
    take,
    transposed,
    write,
)

CONVERGED = 2.0  # units of rounding, of correlations, that a covariance may change by; m if more


class ModelArrays(NamedTuple):
    """An array (parts, T or 1, numbers) for each input, or for the gradient with respect to it."""

    observations: Any
    transition: Any
    transition_cov: Any
    design: Any
    observation_cov: Any
    initial_mean: Any
    initial_cov: Any


class StateArrays(NamedTuple):
    """Arrays (models, T, numbers) that filter and smoother write; of no models if unwanted."""

    predicted_mean: Any
    predicted_cov: Any
    mean: Any
    cov: Any


class KalmanTask(NamedTuple):
    """A call of one of the Kalman functions.

    Attributes:
        inputs: of all models.
        parts: (7, lanes of all blocks) the part of each input that each lane's model takes.
        loglik: (lanes of all blocks,) float64, overwritten.
        states: results, overwritten.
        gradients: of the log-likelihoods, overwritten; of no models if unwanted.
        m: numbers of a state.
        p: numbers of an observation.
        length: time steps of a chunk.
        chunks: number of chunks of which it is kept how they begin, 1 if there is no way back.
        wants_states: whether the filter writes states.
        varies: whether a matrix varies with time.
        joseph: whether to update in Joseph's form.
        tolerance: change of a covariance, in units of standard deviations, that counts as rounding.
    """

    inputs: Any
    parts: Any
    loglik: Any
    states: Any
    gradients: Any
    m: Any
    p: Any
    length: Any
    chunks: Any
    wants_states: Any
    varies: Any
    joseph: Any
    tolerance: Any


#: The matrices of a block of models, see `lay_out`.
Workspace: Any = namedtuple(
    "Workspace",
    "transition transition_cov design observation_cov mean cov projected innovation log_det square "
    "observed missing weighted filtered_mean filtered_cov gain precision start_mean start_cov "
    "is_steady identity work work2 few small score turned smoothed error adjoint adjoint_before "
    "transition_slope transition_cov_slope design_slope observation_cov_slope",
)


@inline
def lay_out(arena, m, p, length, chunks):
    """Return the matrices of a block of models, in memory that is zero."""
    return Workspace(
        # The model at the current step, and what is known of its state before y is seen.
        transition=take(arena, m, m),  # F
        transition_cov=take(arena, m, m),  # Q
        design=take(arena, p, m),  # H
        observation_cov=take(arena, p, p),  # R
        mean=take(arena, m, 1),  # a
        cov=take(arena, m, m),  # P
        projected=take(arena, p, m),  # H P
        innovation=take(arena, p, 1),  # v
        log_det=take(arena, 1, 1),  # log(det(2 pi S))
        square=take(arena, 1, 1),  # v' u
        # Of each step of a chunk; the last three of its first one alone where P stands still.
        observed=take(arena, p, 1, length),  # y, 0 where it is missing
        missing=take(arena, p, 1, length),  # 1 where y is missing, else 0
        weighted=take(arena, p, 1, length),  # u
        filtered_mean=take(arena, m, 1, length),  # given y
        filtered_cov=take(arena, m, m, length),
        gain=take(arena, m, p, length),  # K
        precision=take(arena, p, p, length),  # S^-1
        # At the beginning of each chunk.
        start_mean=take(arena, m, 1, chunks),  # a
        start_cov=take(arena, m, m, chunks),  # P
        is_steady=take(arena, 1, 1, chunks),  # 1 where P stands still in the chunk, else 0
        # For in between.
        identity=take(arena, m, m),
        work=take(arena, m, m),
        work2=take(arena, m, m),
        few=take(arena, p, m),
        small=take(arena, p, p),
        # On the way back, see `smoother`.
        score=take(arena, m, 1),  # r
        turned=take(arena, m, 1),  # F' r
        smoothed=take(arena, m, 1),  # mean given all observations
        error=take(arena, p, 1),  # s
        adjoint=take(arena, m, m),  # N
        adjoint_before=take(arena, m, m),  # N at the end of the chunk
        transition_slope=take(arena, m, m),  # gradient with respect to F; so the next three
        transition_cov_slope=take(arena, m, m),
        design_slope=take(arena, p, m),
        observation_cov_slope=take(arena, p, p),
    )


# ---------------------------------------------------------------- a step


@inline
def read_model(task, first, w, t):
    """Read F, Q, H and R of a time step: at the first one all, later those that vary."""
    parts, inputs = task.parts, task.inputs
    read(w.transition, inputs.transition, parts[1], first, t)
    read(w.transition_cov, inputs.transition_cov, parts[2], first, t)
    read(w.design, inputs.design, parts[3], first, t)
    read(w.observation_cov, inputs.observation_cov, parts[4], first, t)


@inline
def observe(task, first, w, begin, count):
    """Read the observations of a chunk, and return whether none is missing."""
    array, lanes, p = task.inputs.observations, lanes_of(w.observed), w.observed.rows
    observed, missing, gaps = numbers_of(w.observed), numbers_of(w.missing), 0
    for lane in range(lanes):
        part = task.parts[0, first + lane]
        for k in range(count):
            for i in range(p):
                y = array[part, begin + k, i]
                is_missing = y != y
                gaps += is_missing
                observed[(k * p + i) * lanes + lane] = 0.0 if is_missing else y
                missing[(k * p + i) * lanes + lane] = 1.0 if is_missing else 0.0
    return gaps == 0


@inline
def update_cov(w, k, j, joseph):
    """Go from P of step k to the covariance given y[k]; results are record j."""
    gain, precision, cov = of_step(w.gain, j), of_step(w.precision, j), of_step(w.filtered_cov, j)
    multiply(w.projected, w.design, w.cov)
    add_symmetric(precision, w.observation_cov, 1.0, w.projected, transposed(w.design))
    invert(precision, of_step(w.missing, k), w.log_det)
    multiply(gain, transposed(w.projected), precision)
    if joseph:
        add_product(w.work, w.identity, -1.0, gain, w.design)
        multiply(w.work2, w.cov, transposed(w.work))
        multiply(w.few, w.observation_cov, transposed(gain))
        multiply(cov, gain, w.few)
        add_symmetric(cov, cov, 1.0, w.work, w.work2)
    else:
        add_symmetric(cov, w.cov, -1.0, gain, w.projected)


@inline
def update_mean(w, k, j):
    """Go from a of step k to the mean given y[k]."""
    add_product(w.innovation, of_step(w.observed, k), -1.0, w.design, w.mean)
    multiply(of_step(w.weighted, k), of_step(w.precision, j), w.innovation)
    add_product(
        of_step(w.filtered_mean, k), w.mean, 1.0, transposed(w.projected), of_step(w.weighted, k)
    )


@inline
def predict(w, k, j, is_steady):
    """Go on to a and, unless it stands still, P of the next step."""
    multiply(w.mean, w.transition, of_step(w.filtered_mean, k))
    if not is_steady:
        multiply(w.work, of_step(w.filtered_cov, j), transposed(w.transition))
        add_symmetric(w.cov, w.transition_cov, 1.0, w.transition, w.work)


@inline
def add_log_density(task, first, w, k):
    """Add the log-density of an observation to the log-likelihoods."""
    multiply(w.square, transposed(w.innovation), of_step(w.weighted, k))
    squares, log_dets = numbers_of(w.square), numbers_of(w.log_det)
    for lane in range(lanes_of(w.square)):
        task.loglik[first + lane] -= 0.5 * (squares[lane] + log_dets[lane])


# ---------------------------------------------------------------- all steps


def forward(task, first, w):
    """Go through all time steps; keep how each chunk begins, for the way back if there is one."""
    steps, states = task.inputs.observations.shape[1], task.states
    length, chunks, wants_states = task.length, task.chunks, task.wants_states
    read(w.mean, task.inputs.initial_mean, task.parts[5], first, 0)
    read(w.cov, task.inputs.initial_cov, task.parts[6], first, 0)
    set_identity(w.identity)
    has_converged = False
    for begin in range(0, steps, length):
        count, number = min(length, steps - begin), min(begin // length, chunks - 1)
        is_complete = observe(task, first, w, begin, count)
        is_steady = has_converged and is_complete
        copy(of_step(w.start_mean, number), w.mean)
        copy(of_step(w.start_cov, number), w.cov)
        numbers_of(of_step(w.is_steady, number))[0] = 1.0 if is_steady else 0.0
        for k in range(count):
            t = begin + k
            if task.varies or t == 0:
                read_model(task, first, w, t)
            if wants_states:
                write(w.mean, 1.0, states.predicted_mean, first, t)
                write(w.cov, 1.0, states.predicted_cov, first, t)
            if k == 0 or not is_steady:
                update_cov(w, k, 0, task.joseph)
            update_mean(w, k, 0)
            add_log_density(task, first, w, k)
            if wants_states:
                write(of_step(w.filtered_mean, k), 1.0, states.mean, first, t)
                write(of_step(w.filtered_cov, 0), 1.0, states.cov, first, t)
            predict(w, k, 0, is_steady)
        has_converged = is_steady or (
            is_complete
            and not task.varies
            and is_close(w.cov, of_step(w.start_cov, number), task.tolerance)
        )
