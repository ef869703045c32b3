"""Smoother and gradient of linear-Gaussian models, as loops over time, backward.

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
recorded, then backward. Where P stands still, so does N after a while.
"""

from __future__ import annotations

from rlcpu.kernels.compile import inline
from rlcpu.scan.kalman.filter import observe, predict, read_model, update_cov, update_mean
from rlcpu.scan.kalman.matrices import (
    add,
    add_product,
    add_symmetric,
    clear,
    copy,
    is_close,
    multiply,
    numbers_of,
    of_step,
    transposed,
    write,
)


@inline
def smooth_mean(w, k, j):
    """Set smoothed mean, smoothing error and F' r of step k from r of step k + 1."""
    multiply(w.turned, transposed(w.transition), w.score)
    add_product(w.smoothed, of_step(w.filtered_mean, k), 1.0, of_step(w.filtered_cov, j), w.turned)
    add_product(w.error, of_step(w.weighted, k), -1.0, transposed(of_step(w.gain, j)), w.turned)


@inline
def smooth_cov(w, j, is_wanted):
    """Go from N of the next step to N; set `few` to Y, `small` to D and, if wanted, `work2`.

    That is the smoothed covariance.
    """
    adjoint, cov, gain = w.adjoint, of_step(w.filtered_cov, j), of_step(w.gain, j)
    multiply(w.work, adjoint, w.transition)
    multiply(adjoint, transposed(w.transition), w.work)  # N1
    if is_wanted:
        multiply(w.work, adjoint, cov)
        add_symmetric(w.work2, cov, -1.0, cov, w.work)
    multiply(w.few, transposed(gain), adjoint)  # Y
    add_symmetric(w.small, of_step(w.precision, j), 1.0, w.few, gain)  # D
    multiply(w.projected, w.small, w.design)
    add(w.projected, -1.0, w.few)
    add_product(adjoint, adjoint, -1.0, transposed(w.design), w.few)
    add_symmetric(adjoint, adjoint, 1.0, transposed(w.projected), w.design)


@inline
def add_slopes_of_mean(w):
    """Add to the gradients what r of the next step, x and s contribute."""
    add_product(w.transition_slope, w.transition_slope, 1.0, w.score, transposed(w.smoothed))
    add_product(w.transition_cov_slope, w.transition_cov_slope, 1.0, w.score, transposed(w.score))
    add_product(w.design_slope, w.design_slope, 1.0, w.error, transposed(w.smoothed))
    add_product(w.observation_cov_slope, w.observation_cov_slope, 1.0, w.error, transposed(w.error))


@inline
def add_slopes_of_cov(w, j, times):
    """Add to the gradients what N contributes, `times` as much, and go on to the next N."""
    add(w.transition_cov_slope, -times, w.adjoint)
    multiply(w.work, w.adjoint, w.transition)
    add_product(w.transition_slope, w.transition_slope, -times, w.work, of_step(w.filtered_cov, j))
    smooth_cov(w, j, False)
    add(w.observation_cov_slope, -times, w.small)
    add(w.design_slope, -times, transposed(of_step(w.gain, j)))
    add_product(w.design_slope, w.design_slope, times, w.few, of_step(w.filtered_cov, j))


@inline
def write_slopes(task, first, w, t):
    """Write the gradients of a step, the sums of all steps at the first one; begin again at 0."""
    gradients = task.gradients
    write_slope(w.transition_slope, 1.0, gradients.transition, first, t)
    write_slope(w.transition_cov_slope, 0.5, gradients.transition_cov, first, t)
    write_slope(w.design_slope, 1.0, gradients.design, first, t)
    write_slope(w.observation_cov_slope, 0.5, gradients.observation_cov, first, t)


@inline
def write_slope(slope, factor, array, first, t):
    """Write the gradient with respect to a matrix that varies, or at the first step that of one."""
    if array.shape[1] > 1 or t == 0:
        write(slope, factor, array, first, t)
        clear(slope)


def backward(task, first, w):
    """Go through all chunks in reverse, after `forward` of these models."""
    steps, length = task.inputs.observations.shape[1], task.length
    wants_gradients, has_converged = task.gradients.initial_mean.shape[0] > 0, False
    for begin in range((steps - 1) // length * length, -1, -length):
        count, number = min(length, steps - begin), begin // length
        is_steady = numbers_of(of_step(w.is_steady, number))[0] != 0.0
        has_converged = has_converged and is_steady
        observe(task, first, w, begin, count)
        copy(w.mean, of_step(w.start_mean, number))
        copy(w.cov, of_step(w.start_cov, number))
        copy(w.adjoint_before, w.adjoint)
        for k in range(count):
            j = 0 if is_steady else k
            if task.varies:
                read_model(task, first, w, begin + k)
            if k == j:
                update_cov(w, k, j, task.joseph)
            update_mean(w, k, j)
            predict(w, k, j, is_steady)
        for k in range(count - 1, -1, -1):
            j = 0 if is_steady else k
            if task.varies:
                read_model(task, first, w, begin + k)
            smooth_mean(w, k, j)
            if wants_gradients:
                add_slopes_of_mean(w)
            add_product(w.score, w.turned, 1.0, transposed(w.design), w.error)
            if not has_converged or k == count - 1:
                if wants_gradients:
                    add_slopes_of_cov(w, j, float(count if has_converged else 1))
                else:
                    smooth_cov(w, j, True)
            if wants_gradients:
                write(w.error, -1.0, task.gradients.observations, first, begin + k)
                if task.varies or begin + k == 0:
                    write_slopes(task, first, w, begin + k)
            else:
                write(w.smoothed, 1.0, task.states.mean, first, begin + k)
                write(w.work2, 1.0, task.states.cov, first, begin + k)
        has_converged = has_converged or (
            is_steady and is_close(w.adjoint, w.adjoint_before, task.tolerance)
        )
    if wants_gradients:
        write(w.score, 1.0, task.gradients.initial_mean, first, 0)
        multiply(w.work, w.score, transposed(w.score))
        add(w.work, -1.0, w.adjoint)
        write(w.work, 0.5, task.gradients.initial_cov, first, 0)
