"""One time step of the Kalman filter, forward.

x[t + 1] = F x[t] + w[t], y[t] = H x[t] + v[t], with w and v normal, of covariances Q and R. The
state before y[t] is seen has mean a and covariance P. With v = y - H a, S = H P H' + R, M = S^-1,
K = P H' M and u = M v:

* update: mean a + K v, covariance P - K H P or, in Joseph's form, (I - K H) P (I - K H)' + K R K'
  (Anderson and Moore 1979, Optimal filtering, chapter 5; Bucy and Joseph 1968);
* prediction: a = F mean, P = F cov F' + Q;
* log-likelihood: -(p log(2 pi) + log(det(S)) + v' u) / 2.

The functions append their operations to a program; see `plan` for the blocks.
"""

from __future__ import annotations

from rlcpu.scan.kalman.plan import (
    COV,
    CURRENT,
    DESIGN,
    FEW,
    FILTERED,
    FILTERED_COV,
    GAIN,
    IDENTITY,
    INNOVATION,
    LINE,
    MEAN,
    MEANS,
    OBSERVATION_COV,
    OBSERVED,
    OTHER,
    PRECISION,
    PROJECTED,
    SCORE,
    SQUARE,
    SQUARES,
    TRANSITION_COV,
    TURNED,
    ZERO,
)
from rlcpu.scan.kalman.program import Program


def update(on: Program, gaps: bool, joseph: bool) -> None:
    """Fill the record from the state and the current observation, and add to the sums.

    Args:
        on: the program.
        gaps: some numbers of the observation may be missing.
        joseph: the covariance's update in Joseph's form.
    """
    on.add(PROJECTED, ZERO, DESIGN, COV)
    on.add_dots(INNOVATION, OBSERVED, MEAN, DESIGN, -1)
    on.add_dots(PRECISION, OBSERVATION_COV, PROJECTED, DESIGN)
    if gaps:
        on.mask()
    on.invert()
    if gaps:
        on.unmask()
    weigh(on)
    on.add(GAIN, ZERO, PRECISION, PROJECTED)
    on.add(FILTERED, MEAN, SCORE, PROJECTED)
    if joseph:
        _update_joseph(on)
    else:
        on.subtract(FILTERED_COV, COV, ~PROJECTED, GAIN)


def weigh(on: Program) -> None:
    """U = M v, and its product with v added to the sum of squares."""
    on.add_dots(SCORE, ZERO, INNOVATION, PRECISION)
    on.add_dots(SQUARES, SQUARES, INNOVATION, SCORE)


def _update_joseph(on: Program) -> None:
    on.subtract(SQUARE, IDENTITY, ~DESIGN, GAIN)
    on.add(OTHER, ZERO, COV, SQUARE)
    on.add(FILTERED_COV, ZERO, ~SQUARE, OTHER)
    on.add(FEW, ZERO, OBSERVATION_COV, GAIN)
    on.add(FILTERED_COV, FILTERED_COV, ~GAIN, FEW)


def predict(on: Program) -> None:
    """The next step's state."""
    on.add(MEAN, ZERO, FILTERED, TURNED)
    on.add(SQUARE, ZERO, FILTERED_COV, TURNED)
    on.add(COV, TRANSITION_COV, ~TURNED, SQUARE)
    on.symmetrise(COV)


# ---------------------------------------------------------------- where the covariance stands still


def freeze(on: Program) -> None:
    """What `drift` needs: F - F K H and (F K)', from the record."""
    on.add(PROJECTED, ZERO, GAIN, TURNED)
    on.subtract(SQUARE, TURNED, ~DESIGN, PROJECTED)


def glide(on: Program, whole: bool) -> None:
    """An update without the covariances, which the record has; nothing is missing.

    Args:
        on: the program.
        whole: with the filtered mean.
    """
    on.add_dots(INNOVATION, OBSERVED, MEAN, DESIGN, -1)
    weigh(on)
    if whole:
        on.add(FILTERED, MEAN, INNOVATION, GAIN)


def drift(on: Program) -> None:
    """Prediction of the mean where the gain stands still: a = (F - F K H) a + F K y.

    Not by way of the innovation: the next mean waits 16 cycles for this one instead of 60.
    """
    on.add(LINE, ZERO, MEAN, SQUARE)
    on.add(MEAN, LINE, CURRENT, PROJECTED)


def drift_on(on: Program) -> None:
    """All steps of a chunk but the first, whose `drift` has been: sums, and the mean after them."""
    mean, means = on.places[MEAN], on.places[MEANS]
    on.copy(means.at, mean.at, mean.row)
    on.recur_means()
    on.copy(mean.at, means.at, mean.row, (0, mean.row))
    on.square_innovations()
