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
all steps, and N converges too; elsewhere step k has record j = k. For N the two ends of a chunk
tell: unlike P it cannot go round and meet itself there. N is a sum over the observations to come,
and 0 along directions that these never reach. Along one that they reach, which no step shrinks, it
grows with each of them; along all others it converges.

As in `filter`, `task` is the `KalmanTask`, `first` the number of the block's first lane, `w` the
`Workspace` of its matrices, which is overwritten, and k the number in its chunk of step t.
"""

from __future__ import annotations

from rlcpu.kernels.compiler.compile import inline
from rlcpu.scan.kalman.filter import predict, read_model, read_observations, update_cov, update_mean
from rlcpu.scan.kalman.matrices import (
    MINUS,
    PLUS,
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

HALF = 0.5  # gradients of covariances are halves of sums


@inline
def smooth_mean(w, k, j):
    """Set smoothed mean, smoothing error and F' r of step k from r of step k + 1."""
    mean, cov = matrix_at(w.filtered_mean, k), matrix_at(w.filtered_cov, j)
    u, gain = matrix_at(w.scaled_innovation, k), matrix_at(w.gain, j)
    multiply(w.mean_gradient, transposed(w.transition), w.score)
    add_product(w.smoothed_mean, mean, PLUS, cov, w.mean_gradient)
    add_product(w.smoothing_error, u, MINUS, transposed(gain), w.mean_gradient)


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
        add_symmetric(w.smoothed_cov, cov, MINUS, cov, w.work_mm)
    multiply(w.gain_adjoint, transposed(gain), adjoint)  # Y
    add_symmetric(w.error_cov, matrix_at(w.precision, j), PLUS, w.gain_adjoint, gain)  # D
    # N = N1 - H' Y + (D H - Y)' H
    multiply(w.work_pm, w.error_cov, w.design)
    add(w.work_pm, MINUS, w.gain_adjoint)
    accumulate(adjoint, MINUS, transposed(w.design), w.gain_adjoint)
    add_symmetric(adjoint, adjoint, PLUS, transposed(w.work_pm), w.design)


@inline
def add_mean_gradients(w):
    """Add to the gradients of F, Q, H and R what r of step k + 1, x and s of step k contribute."""
    error, x = w.smoothing_error, w.smoothed_mean
    accumulate(w.transition_gradient, PLUS, w.score, transposed(x))
    accumulate(w.transition_cov_gradient, PLUS, w.score, transposed(w.score))
    accumulate(w.design_gradient, PLUS, error, transposed(x))
    accumulate(w.observation_cov_gradient, PLUS, error, transposed(error))


@inline
def add_cov_gradients(w, j, times):
    """Add to the gradients what N of step k + 1 contributes, and replace it by that of step k.

    `times` is the number of steps whose N is the same, see `backward`.
    """
    cov, gain = matrix_at(w.filtered_cov, j), matrix_at(w.gain, j)
    add(w.transition_cov_gradient, -times, w.adjoint)
    multiply(w.work_mm, w.adjoint, w.transition)
    accumulate(w.transition_gradient, -times, w.work_mm, cov)
    smooth_cov(w, j, is_wanted=False)
    add(w.observation_cov_gradient, -times, w.error_cov)
    add(w.design_gradient, -times, transposed(gain))
    accumulate(w.design_gradient, times, w.gain_adjoint, cov)


@inline
def write_gradients(task, first, w, t):
    """Write the gradients of a step where matrices vary; at the first step the sums of others."""
    gradients = task.gradients
    write_gradient(w.transition_gradient, PLUS, gradients.transition, first, t)
    write_gradient(w.transition_cov_gradient, HALF, gradients.transition_cov, first, t)
    write_gradient(w.design_gradient, PLUS, gradients.design, first, t)
    write_gradient(w.observation_cov_gradient, HALF, gradients.observation_cov, first, t)


@inline
def write_gradient(gradient, factor, array, first, t):
    """Write `factor` times a gradient to `array`, and set it to 0, if it varies or t is 0."""
    if array.steps > 1 or t == 0:
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
            update_cov(task, w, k, j)
        update_mean(w, k, j)
        predict(w, k, j, is_steady)


def backward(task, first, w):
    """Smooth all time steps, or compute the gradients, after `forward` of the same block."""
    steps, length = task.inputs.observations.steps, task.length
    wants_gradients, has_converged = task.wants_gradients, False
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
            add_product(w.score, w.mean_gradient, PLUS, transposed(w.design), w.smoothing_error)
            # Where N has converged it is the same for the whole chunk, and computed once.
            if not has_converged or k == count - 1:
                if wants_gradients:
                    add_cov_gradients(w, j, times=float(count if has_converged else 1))
                else:
                    smooth_cov(w, j, is_wanted=True)
            if wants_gradients:
                write_models(w.smoothing_error, MINUS, task.gradients.observations, first, t)
                if task.varies or t == 0:
                    write_gradients(task, first, w, t)
            else:
                write_models(w.smoothed_mean, PLUS, task.mean, first, t)
                write_models(w.smoothed_cov, PLUS, task.cov, first, t)
        has_converged = has_converged or (
            is_steady and is_close(w.adjoint, w.adjoint_at_end, task.tolerance)
        )
    if wants_gradients:
        write_models(w.score, PLUS, task.gradients.initial_mean, first, 0)
        multiply(w.work_mm, w.score, transposed(w.score))
        add(w.work_mm, MINUS, w.adjoint)
        write_models(w.work_mm, HALF, task.gradients.initial_cov, first, 0)
