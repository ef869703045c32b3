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

from rlcpu.scan.kalman.filter import (
    GRADIENT,
    has_converged,
    observe,
    pass_chunk,
    read_matrices,
    write,
)
from rlcpu.scan.kalman.matrices import (
    add,
    add_product,
    add_symmetric,
    apply,
    apply_to,
    called,
    clear,
    copy,
    multiply,
    numbers_of,
)


@called
def smooth_mean(w, k, j):
    """Go from r of step k + 1 to the smoothed mean, the smoothing error and r of step k."""
    apply(w.turned[k], w.transition.T, w.scores[k + 1])
    apply_to(w.smoothed[k], w.filtered[k], 1.0, w.filtered_covs[j], w.turned[k])
    apply_to(w.errors[k], w.weighted[k], -1.0, w.gains[j].T, w.turned[k])
    apply_to(w.scores[k], w.turned[k], 1.0, w.design.T, w.errors[k])


@called
def smooth_cov(w, j, smoothed):
    """Go from N of the next step to N; set `few` to Y, `small` to D and, if `smoothed`, `square2`.

    That is the smoothed covariance.
    """
    adjoint, cov, gain = w.adjoint, w.filtered_covs[j], w.gains[j]
    multiply(w.square, adjoint, w.transition)
    clear(adjoint)
    add_symmetric(adjoint, 1.0, w.transition.T, w.square)  # N1
    if smoothed:
        multiply(w.square, adjoint, cov)
        copy(w.square2, cov)
        add_symmetric(w.square2, -1.0, cov, w.square)
    multiply(w.few, gain.T, adjoint)  # Y
    copy(w.small, w.precisions[j])
    add_symmetric(w.small, 1.0, w.few, gain)  # D
    multiply(w.projected, w.small, w.design)
    add(w.projected, -1.0, w.few)
    add_product(adjoint, -1.0, w.design.T, w.few)
    add_symmetric(adjoint, 1.0, w.projected.T, w.design)


@called
def add_slopes_of_means(w, first, last):
    """Add to the gradients what r, x and s of steps [first, last) contribute."""
    scores, states, errors = (
        w.scores[first + 1 : last + 1],
        w.smoothed[first:last],
        w.errors[first:last],
    )
    add_product(w.transition_slope, 1.0, scores.T, states)
    add_product(w.transition_cov_slope, 1.0, scores.T, scores)
    add_product(w.design_slope, 1.0, errors.T, states)
    add_product(w.observation_cov_slope, 1.0, errors.T, errors)


@called
def add_slopes_of_covs(w, j, times):
    """Add to the gradients what N contributes, `times` as much, and go on to the next N."""
    cov, gain = w.filtered_covs[j], w.gains[j]
    add(w.transition_cov_slope, -times, w.adjoint)
    multiply(w.square, w.adjoint, w.transition)
    add_product(w.transition_slope, -times, w.square, cov)
    smooth_cov(w, j, False)
    add(w.observation_cov_slope, -times, w.small)
    add(w.design_slope, -times, gain.T)
    add_product(w.design_slope, times, w.few, cov)


@called
def write_slopes(call, w, step, varying):
    """Write the gradients of F, Q, H and R that vary with time, which begin again at 0; or not."""
    if varying == (call.paces[1] > 0):
        write(call, w.transition_slope, 1, step)
    if varying == (call.paces[2] > 0):
        write(call, w.transition_cov_slope, 2, step)
    if varying == (call.paces[3] > 0):
        write(call, w.design_slope, 3, step)
    if varying == (call.paces[4] > 0):
        write(call, w.observation_cov_slope, 4, step)
    if varying:
        if call.paces[1]:
            clear(w.transition_slope)
        if call.paces[2]:
            clear(w.transition_cov_slope)
        if call.paces[3]:
            clear(w.design_slope)
        if call.paces[4]:
            clear(w.observation_cov_slope)


def backward(call, w):
    """Go through all chunks in reverse, after `forward` of these models."""
    m, converged, gradient = call.state, False, call.kind == GRADIENT
    for begin in range((call.steps - 1) // call.chunk * call.chunk, -1, -call.chunk):
        count = min(call.chunk, call.steps - begin)
        number = begin // call.chunk
        start = w.starts[number]
        observe(call, w, begin, count)
        copy(w.cov, start[:m])
        copy(w.means[0:1], start[m:])
        is_steady = numbers_of(w.flags)[number, 0] != 0.0
        converged = converged and is_steady
        pass_chunk(call, w, begin, count, is_steady, True)
        copy(w.scores[count : count + 1], w.scores[0:1])
        copy(w.adjoint_before, w.adjoint)
        for k in range(count - 1, -1, -1):
            j = 0 if is_steady else k
            if call.varies:
                read_matrices(call, w, begin + k)
            smooth_mean(w, k, j)
            if not converged or k == count - 1:
                if gradient:
                    add_slopes_of_covs(w, j, float(count if converged else 1))
                else:
                    smooth_cov(w, j, True)
            if not gradient:
                write(call, w.square2, 1, begin + k)
            elif call.varies:
                add_slopes_of_means(w, k, k + 1)
                write_slopes(call, w, begin + k, True)
        if gradient:
            if not call.varies:
                add_slopes_of_means(w, 0, count)
            clear(w.innovations)
            add(w.innovations, -1.0, w.errors)
            write(call, w.innovations[:count], 0, begin)
        else:
            write(call, w.smoothed[:count], 0, begin)
        if is_steady and not converged:
            converged = has_converged(w.adjoint, w.adjoint_before, call.tolerance)
    if gradient:
        write_slopes(call, w, 0, False)
        write(call, w.scores[0:1], 5, 0)
        multiply(w.square, w.scores[0:1].T, w.scores[0:1])
        add(w.square, -1.0, w.adjoint)
        write(call, w.square, 6, 0)
