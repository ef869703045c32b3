"""The Kalman filter, as loops over time.

x[t + 1] = F x[t] + w[t] and y[t] = H x[t] + v[t], with w ~ N(0, Q) and v ~ N(0, R). The letters are
those of the public functions; Durbin and Koopman (2012, Time series analysis by state space
methods, 2nd edition, section 4.3) write T, Z, Q and H for F, H, Q and R. Before y[t] is seen, the
state has mean a and covariance P. With their recursion (4.24):

* innovation v = y - H a, its covariance S = H P H' + R, u = S^-1 v, gain K = P H' S^-1;
* update: mean a + P H' u, covariance P - K H P or, in Joseph's form,
  (I - K H) P (I - K H)' + K R K' (Anderson and Moore 1979, Optimal filtering, chapter 5; Bucy and
  Joseph 1968);
* prediction: a = F mean, P = F cov F' + Q;
* log-likelihood (section 7.2): -(p log(2 pi) + log(det(S)) + v' u) / 2.

Time is cut into chunks. With constant matrices P converges. Where no number of it has changed over
a chunk by more than `CONVERGED` units of rounding, it is no longer computed in the following chunks
without missing observations. If the distance to the limit shrinks by a factor d a step, what is
left of it is at most CONVERGED / (32 (1 - d)) units, below the 1 / (1 - d) that the recursion's own
rounding adds up to.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rlcpu.scan.kalman.matrices import (
    add_product,
    add_symmetric,
    apply,
    apply_to,
    called,
    clear,
    copy,
    inlined,
    invert,
    multiply,
    numbers_of,
    set_identity,
    take,
)

CONVERGED = 2.0  # units of the dtype's epsilon, of correlations
#: What is computed: log-likelihoods alone; with all states; smoothed states; gradients.
VALUE, STATES, SMOOTH, GRADIENT = range(4)


class WantedResults(NamedTuple):
    """Results that a call wants of a block of models, one in each lane.

    Attributes:
        kind: `VALUE`, `STATES`, `SMOOTH` or `GRADIENT`.
        joseph: whether to update in Joseph's form.
        varies: whether a matrix varies with time.
        models: number of models of the call.
        first: number of the first lane's model; lanes beyond the last model repeat it.
        steps: T.
        state: m.
        observation: p.
        chunk: time steps of a chunk.
        tolerance: squared change of a covariance, in proportion, that counts as rounding.
        observations: of all models, flat.
        matrices: F, Q, H, R, initial mean and covariance, flat.
        places: (7, lanes) where the part of each lane of all blocks begins, of each input.
        paces: (7,) numbers from one time step to the next of each input, 0 where it is constant.
        out: all outputs, flat.
        outputs: (outputs, 3) where each begins, and its numbers from one model and from one time
            step to the next.
        logliks: (lanes,) float64.
    """

    kind: Any
    joseph: Any
    varies: Any
    models: Any
    first: Any
    steps: Any
    state: Any
    observation: Any
    chunk: Any
    tolerance: Any
    observations: Any
    matrices: Any
    places: Any
    paces: Any
    out: Any
    outputs: Any
    logliks: Any


class Workspace(NamedTuple):
    """The matrices of a block of models, of cells.

    Attributes:
        transition: F (m, m).
        transition_cov: Q (m, m).
        design: H (p, m).
        observation_cov: R (p, p).
        cov: P (m, m) of the current step.
        projected: H P (p, m) of the current step.
        observed: y (chunk, p), 0 where it is missing.
        missing: (chunk, p) 1 where y is missing, else 0.
        means: a (chunk + 1, m), up to that of the next chunk's first step.
        filtered: means after the update (chunk, m).
        innovations: v (chunk, p).
        weighted: u (chunk, p).
        pivots: (chunk, p) whose product is det(S).
        filtered_covs: (records, m, m) covariances after the update; of the current step alone,
            unless a reverse pass needs those of the whole chunk. So the next two.
        gains: K (records, m, p).
        precisions: S^-1 (records, p, p).
        starts: (chunks, m + 1, m) a and P at the beginning of each chunk, if a reverse pass needs
            it, else of one.
        flags: (chunks, 1) 1 where P stands still, else 0.
        closed: F (I - K H) (m, m) where P stands still.
        square, square2, few, small: (m, m), (m, m), (p, m) and (p, p), for in between.
        scores: r (chunk + 1, m), gradients with respect to a.
        turned: F' r (chunk, m).
        smoothed: (chunk, m) means given all observations.
        errors: s (chunk, p), the smoothing errors.
        adjoint: N (m, m).
        adjoint_before: N at the end of the chunk.
        slopes: gradients with respect to F, Q, H and R.
    """

    transition: Any
    transition_cov: Any
    design: Any
    observation_cov: Any
    cov: Any
    projected: Any
    observed: Any
    missing: Any
    means: Any
    filtered: Any
    innovations: Any
    weighted: Any
    pivots: Any
    filtered_covs: Any
    gains: Any
    precisions: Any
    starts: Any
    flags: Any
    closed: Any
    square: Any
    square2: Any
    few: Any
    small: Any
    scores: Any
    turned: Any
    smoothed: Any
    errors: Any
    adjoint: Any
    adjoint_before: Any
    transition_slope: Any
    transition_cov_slope: Any
    design_slope: Any
    observation_cov_slope: Any


def size_of(m: int, p: int, chunk: int, records: int, chunks: int) -> int:
    """Return the number of cells of a workspace."""
    fixed = 11 * m * m + 4 * p * m + 3 * p * p + chunks * ((m + 1) * m + 1)
    return fixed + 5 * (chunk + 1) * m + 6 * chunk * p + records * (m * m + m * p + p * p)


@inlined
def lay_out(memory, m, p, chunk, records, chunks):
    """Return a workspace in memory of `size_of` cells that are zero."""
    squares = take(memory, 0, (11, m, m))
    at = squares.size
    wides = take(memory, at, (4, p, m))
    at += wides.size
    smalls = take(memory, at, (3, p, p))
    at += smalls.size
    states = take(memory, at, (5, chunk + 1, m))
    at += states.size
    observations = take(memory, at, (6, chunk, p))
    at += observations.size
    filtered_covs = take(memory, at, (records, m, m))
    at += filtered_covs.size
    gains = take(memory, at, (records, m, p))
    at += gains.size
    precisions = take(memory, at, (records, p, p))
    at += precisions.size
    starts = take(memory, at, (chunks, m + 1, m))
    at += starts.size
    return Workspace(
        transition=squares[0],
        transition_cov=squares[1],
        design=wides[0],
        observation_cov=smalls[0],
        cov=squares[2],
        projected=wides[1],
        means=states[0],
        filtered=states[1],
        observed=observations[0],
        missing=observations[1],
        innovations=observations[2],
        weighted=observations[3],
        pivots=observations[4],
        filtered_covs=filtered_covs,
        gains=gains,
        precisions=precisions,
        starts=starts,
        flags=take(memory, at, (chunks, 1)),
        closed=squares[3],
        square=squares[4],
        square2=squares[5],
        few=wides[2],
        small=smalls[1],
        scores=states[2],
        turned=states[3],
        smoothed=states[4],
        errors=observations[5],
        adjoint=squares[6],
        adjoint_before=squares[7],
        transition_slope=squares[8],
        transition_cov_slope=squares[9],
        design_slope=wides[3],
        observation_cov_slope=smalls[2],
    )


# ---------------------------------------------------------------- numbers in and out


@called
def read(call, matrix, which, step):
    """Read a matrix of every lane's model, one of the seven inputs, of a time step."""
    numbers = numbers_of(matrix)
    for lane in range(numbers.shape[1]):
        begin = call.places[which, call.first + lane] + step * call.paces[which]
        for i in range(numbers.shape[0]):
            numbers[i, lane] = call.matrices[begin + i]


@called
def write(call, matrix, which, step):
    """Write a matrix of every lane's model to one of the outputs, from a time step on."""
    numbers = numbers_of(matrix)
    begin, model, pace = call.outputs[which, 0], call.outputs[which, 1], call.outputs[which, 2]
    for lane in range(min(numbers.shape[1], call.models - call.first)):
        to = begin + (call.first + lane) * model + step * pace
        for i in range(numbers.shape[0]):
            call.out[to + i] = numbers[i, lane]


@called
def read_matrices(call, w, step):
    """Read F, Q, H and R of a time step: those that vary, at the first one all."""
    if call.paces[1] or step == 0:
        read(call, w.transition, 1, step)
    if call.paces[2] or step == 0:
        read(call, w.transition_cov, 2, step)
    if call.paces[3] or step == 0:
        read(call, w.design, 3, step)
    if call.paces[4] or step == 0:
        read(call, w.observation_cov, 4, step)


@called
def observe(call, w, begin, count):
    """Read the observations of a chunk, and return whether some are missing."""
    observed, missing, gaps = numbers_of(w.observed), numbers_of(w.missing), 0
    for lane in range(observed.shape[1]):
        first = call.places[0, call.first + lane] + begin * call.observation
        for i in range(count * call.observation):
            y = call.observations[first + i]
            is_missing = y != y
            gaps += is_missing
            observed[i, lane] = 0.0 if is_missing else y
            missing[i, lane] = 1.0 if is_missing else 0.0
    return gaps > 0


# ---------------------------------------------------------------- a step


@called
def update(w, k, j, joseph):
    """Go from a and P of step k to mean and covariance given y; results are record j."""
    gain, precision, cov = w.gains[j], w.precisions[j], w.filtered_covs[j]
    multiply(w.projected, w.design, w.cov)
    copy(precision, w.observation_cov)
    add_symmetric(precision, 1.0, w.projected, w.design.T)
    invert(precision, w.missing[k], w.pivots[k])
    multiply(gain, w.projected.T, precision)
    apply_to(w.innovations[k], w.observed[k], -1.0, w.design, w.means[k])
    apply(w.weighted[k], precision, w.innovations[k])
    apply_to(w.filtered[k], w.means[k], 1.0, w.projected.T, w.weighted[k])
    if joseph:
        set_identity(w.square)
        add_product(w.square, -1.0, gain, w.design)
        multiply(w.square2, w.cov, w.square.T)
        clear(cov)
        add_symmetric(cov, 1.0, w.square, w.square2)
        multiply(w.few, w.observation_cov, gain.T)
        add_symmetric(cov, 1.0, gain, w.few)
    else:
        copy(cov, w.cov)
        add_symmetric(cov, -1.0, gain, w.projected)


@called
def predict(w, k, j):
    """Go on to the next step's a and P."""
    apply(w.means[k + 1], w.transition, w.filtered[k])
    multiply(w.square, w.filtered_covs[j], w.transition.T)
    copy(w.cov, w.transition_cov)
    add_symmetric(w.cov, 1.0, w.transition, w.square)


@called
def predict_all(w, count, filtered):
    """Go through a chunk in which P stands still, after the `update` of its first step.

    The next mean is F (I - K H) a + F K y, not by way of the innovation: so it waits for less.
    """
    gain, precision = w.gains[0], w.precisions[0]
    multiply(w.few.T, w.transition, gain)
    copy(w.closed, w.transition)
    add_product(w.closed, -1.0, w.few.T, w.design)
    multiply(w.means[1 : count + 1], w.observed[:count], w.few)
    for k in range(count):
        apply_to(w.means[k + 1], w.means[k + 1], 1.0, w.closed, w.means[k])
    copy(w.innovations[:count], w.observed[:count])
    add_product(w.innovations[:count], -1.0, w.means[:count], w.design.T)
    multiply(w.weighted[:count], w.innovations[:count], precision)
    if filtered:
        copy(w.filtered[:count], w.means[:count])
        add_product(w.filtered[:count], 1.0, w.weighted[:count], w.projected)


# ---------------------------------------------------------------- chunks


@called
def has_converged(cov, before, tolerance):
    """Return whether a covariance stands still, in proportion to the standard deviations."""
    n, now, then = cov.shape[0], numbers_of(cov), numbers_of(before)
    converged = True
    for i in range(n):
        for j in range(i + 1):
            for lane in range(now.shape[1]):
                change = now[i * n + j, lane] - then[i * n + j, lane]
                scale = now[i * n + i, lane] * now[j * n + j, lane]
                converged &= change * change <= tolerance * scale
    return converged


@called
def add_log_densities(call, w, count, is_steady):
    """Add the log-densities of a chunk's observations to those of each lane."""
    innovations, weighted, pivots = (
        numbers_of(w.innovations),
        numbers_of(w.weighted),
        numbers_of(w.pivots),
    )
    p = w.pivots.shape[1]
    for lane in range(pivots.shape[1]):
        squares = volume = 0.0
        for i in range(count * p):
            squares += innovations[i, lane] * weighted[i, lane]
        for i in range(p if is_steady else count * p):
            volume += math.log(pivots[i, lane])
        call.logliks[call.first + lane] -= 0.5 * (squares + volume * (count if is_steady else 1))


@called
def pass_chunk(call, w, begin, count, is_steady, recorded):
    """Go forward through a chunk, from its first time step; P may stand still in it.

    Each step gets a record of its own if `recorded` and P does not stand still.
    """
    for k in range(1 if is_steady else count):
        j = k if recorded else 0
        if call.varies:
            read_matrices(call, w, begin + k)
        update(w, k, j, call.joseph)
        if call.kind == STATES:
            for step in range(begin + k, begin + (count if is_steady else k + 1)):
                write(call, w.cov, 1, step)
                write(call, w.filtered_covs[j], 3, step)
        if not is_steady:
            predict(w, k, j)
    if is_steady:
        predict_all(w, count, recorded or call.kind == STATES)


def forward(call, w):
    """Go through all chunks; write down where each began and whether P stood still in it."""
    read_matrices(call, w, 0)
    read(call, w.means[0:1], 5, 0)
    read(call, w.cov, 6, 0)
    m, is_steady, converged = call.state, False, False
    for begin in range(0, call.steps, call.chunk):
        count = min(call.chunk, call.steps - begin)
        number = begin // call.chunk if call.kind >= SMOOTH else 0
        gaps = observe(call, w, begin, count)
        is_steady = converged and not gaps
        start = w.starts[number]
        copy(start[:m], w.cov)
        copy(start[m:], w.means[0:1])
        numbers_of(w.flags)[number, 0] = 1.0 if is_steady else 0.0
        pass_chunk(call, w, begin, count, is_steady, False)
        add_log_densities(call, w, count, is_steady)
        if call.kind == STATES:
            write(call, w.means[:count], 0, begin)
            write(call, w.filtered[:count], 2, begin)
        copy(w.means[0:1], w.means[count : count + 1])
        converged = is_steady
        if not (is_steady or gaps or call.varies):
            converged = has_converged(w.cov, start[:m], call.tolerance)
