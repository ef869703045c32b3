"""Smoother and gradients of linear-Gaussian models, backward in time.

r is the gradient of the log-likelihood with respect to a[t + 1], and (r r' - N) / 2 that with
respect to P[t + 1]. One step leads to those of t, by Durbin and Koopman's recursion (4.44; section
4.4, with their L = F (I - K H)), which is that of Bryson and Frazier (1963) and de Jong (1989):

* r1 = F' r, N1 = F' N F;
* smoothed mean x = mean + cov r1, and covariance cov - cov N1 cov;
* smoothing error s = u - K' r1, its covariance D = S^-1 + K' N1 K (their section 4.5);
* r = r1 + H' s, N = N1 - H' Y - Y' H + H' D H with Y = K' N1.

The gradients (section 7.3.3), with the old r and N:

* F: r x' - N F cov; Q: (r r' - N) / 2;
* y: -s; H: s x' + Y cov - K'; R: (s s' - D) / 2.

The chunks are taken in reverse: each forward again from the state at its beginning, with everything
recorded, then backward. In steady chunks, where P has converged, record 0 has the covariances of
all steps, and N converges too; elsewhere step k has record j = k. Parameters are those of `filter`.
"""

from __future__ import annotations

from rlcpu.kernels.compile import inline
from rlcpu.scan.kalman.filter import predict, read_model, read_observations, update_cov, update_mean
from rlcpu.scan.kalman.matrices import (
    accumulate,
    add,
    add_product,
    add_symmetric,
    copy,
    is_close,
    matrix_at,
    multiply,
    scalars_of,
    set_zero,
    transposed,
    write_models,
)


@inline
def smooth_mean(w, k, j):
    """Set smoothed mean, smoothing error and F' r of step k from r of step k + 1."""
    multiply(w.mean_gradient, transposed(w.transition), w.score)
    add_product(
        w.smoothed_mean,
        matrix_at(w.filtered_mean, k),
        1.0,
        matrix_at(w.filtered_cov, j),
        w.mean_gradient,
    )
    add_product(
        w.smoothing_error,
        matrix_at(w.scaled_innovation, k),
        -1.0,
        transposed(matrix_at(w.gain, j)),
        w.mean_gradient,
    )


@inline
def smooth_cov(w, j, is_wanted):
    """Replace N of step k + 1 by that of step k, whose record is j, and compute Y and D.

    Also the smoothed covariance, if wanted.
    """
    adjoint, cov, gain = w.adjoint, matrix_at(w.filtered_cov, j), matrix_at(w.gain, j)
    multiply(w.work_mm, adjoint, w.transition)
    multiply(adjoint, transposed(w.transition), w.work_mm)  # N1
    if is_wanted:
        multiply(w.work_mm, adjoint, cov)
        add_symmetric(w.smoothed_cov, cov, -1.0, cov, w.work_mm)
    multiply(w.gain_adjoint, transposed(gain), adjoint)  # Y
    add_symmetric(w.error_cov, matrix_at(w.precision, j), 1.0, w.gain_adjoint, gain)  # D
    multiply(w.design_cov, w.error_cov, w.design)
    add(w.design_cov, -1.0, w.gain_adjoint)
    accumulate(adjoint, -1.0, transposed(w.design), w.gain_adjoint)
    add_symmetric(adjoint, adjoint, 1.0, transposed(w.design_cov), w.design)


@inline
def add_mean_gradients(w):
    """Add to the gradients of F, Q, H and R what r of step k + 1, x and s of step k contribute."""
    accumulate(w.transition_gradient, 1.0, w.score, transposed(w.smoothed_mean))
    accumulate(w.transition_cov_gradient, 1.0, w.score, transposed(w.score))
    accumulate(w.design_gradient, 1.0, w.smoothing_error, transposed(w.smoothed_mean))
    accumulate(w.observation_cov_gradient, 1.0, w.smoothing_error, transposed(w.smoothing_error))


@inline
def add_cov_gradients(w, j, times):
    """Add to the gradients `times` what N of step k + 1 contributes; then `smooth_cov`."""
    add(w.transition_cov_gradient, -times, w.adjoint)
    multiply(w.work_mm, w.adjoint, w.transition)
    accumulate(w.transition_gradient, -times, w.work_mm, matrix_at(w.filtered_cov, j))
    smooth_cov(w, j, False)
    add(w.observation_cov_gradient, -times, w.error_cov)
    add(w.design_gradient, -times, transposed(matrix_at(w.gain, j)))
    accumulate(w.design_gradient, times, w.gain_adjoint, matrix_at(w.filtered_cov, j))


@inline
def write_gradients(task, first, w, t):
    """Write the gradients of a step where matrices vary; at the first step the sums of others."""
    gradients = task.gradients
    write_gradient(w.transition_gradient, 1.0, gradients.transition, first, t)
    write_gradient(w.transition_cov_gradient, 0.5, gradients.transition_cov, first, t)
    write_gradient(w.design_gradient, 1.0, gradients.design, first, t)
    write_gradient(w.observation_cov_gradient, 0.5, gradients.observation_cov, first, t)


@inline
def write_gradient(gradient, factor, array, first, t):
    """Write `factor` times a gradient and set it to 0, if the matrix varies or t is 0.

    `array` is that of the gradients of all models, see `write_models`.
    """
    if array.shape[1] > 1 or t == 0:
        write_models(gradient, factor, array, first, t)
        set_zero(gradient)


@inline
def replay_chunk(task, first, w, number, begin, count, is_steady):
    """Filter a chunk again, from the state at its beginning, and keep a record of each step.

    It is chunk `number`, with `count` steps from step `begin` on.
    """
    read_observations(task, first, w, begin, count)
    copy(w.mean, matrix_at(w.start_mean, number))
    copy(w.cov, matrix_at(w.start_cov, number))
    for k in range(count):
        j = 0 if is_steady else k
        if task.varies:
            read_model(task, first, w, begin + k)
        if k == j:
            update_cov(w, k, j, task.joseph)
        update_mean(w, k, j)
        predict(w, k, j, is_steady)


def backward(task, first, w):
    """Smooth all time steps, or compute the gradients, after `forward` of the same block."""
    steps, length = task.inputs.observations.shape[1], task.length
    wants_gradients, has_converged = task.gradients.initial_mean.shape[0] > 0, False
    for begin in range((steps - 1) // length * length, -1, -length):
        count, number = min(length, steps - begin), begin // length
        is_steady = scalars_of(matrix_at(w.is_steady, number))[0] != 0.0
        has_converged = has_converged and is_steady
        copy(w.adjoint_at_end, w.adjoint)
        replay_chunk(task, first, w, number, begin, count, is_steady)
        for k in range(count - 1, -1, -1):
            j, t = 0 if is_steady else k, begin + k
            if task.varies:
                read_model(task, first, w, t)
            smooth_mean(w, k, j)
            if wants_gradients:
                add_mean_gradients(w)
            add_product(w.score, w.mean_gradient, 1.0, transposed(w.design), w.smoothing_error)
            if not has_converged or k == count - 1:  # else N is the same for the whole chunk
                if wants_gradients:
                    add_cov_gradients(w, j, float(count if has_converged else 1))
                else:
                    smooth_cov(w, j, True)
            if wants_gradients:
                write_models(w.smoothing_error, -1.0, task.gradients.observations, first, t)
                if task.varies or t == 0:
                    write_gradients(task, first, w, t)
            else:
                write_models(w.smoothed_mean, 1.0, task.states.mean, first, t)
                write_models(w.smoothed_cov, 1.0, task.states.cov, first, t)
        has_converged = has_converged or (
            is_steady and is_close(w.adjoint, w.adjoint_at_end, task.tolerance)
        )
    if wants_gradients:
        write_models(w.score, 1.0, task.gradients.initial_mean, first, 0)
        multiply(w.work_mm, w.score, transposed(w.score))
        add(w.work_mm, -1.0, w.adjoint)
        write_models(w.work_mm, 0.5, task.gradients.initial_cov, first, 0)
