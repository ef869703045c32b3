"""One time step of the Kalman filter backward: of its gradient, and of the smoother.

The functions append their operations to a program; for the letters see `update`.
"""

from __future__ import annotations

from rlcpu.scan.kalman.plan import (
    COV_SLOPE,
    DESIGN,
    DESIGN_SLOPE,
    FEW,
    FILTERED,
    FILTERED_COV,
    GAIN,
    INNOVATION,
    LINE,
    MEAN_SLOPE,
    OBSERVATION_COV_SLOPE,
    OTHER,
    PRECISION,
    PROJECTED,
    SCORE,
    SMALL,
    SQUARE,
    TRANSITION,
    TRANSITION_COV_SLOPE,
    TRANSITION_SLOPE,
    TURNED,
    ZERO,
)
from rlcpu.scan.kalman.program import Program


def retreat(on: Program) -> None:
    """Reverse mode through prediction, update and log-likelihood.

    Turns the adjoint of the next step's state into this one's, adds to the slopes of the matrices,
    and leaves that of the observation in `INNOVATION`.

    With D twice the gradient with respect to P[t + 1], which is symmetric, and e that with respect
    to a[t + 1]: after the prediction D = F'DF and e = F'e; then, with w = K'e and Y = K'D,

    * R: G = (Y K - w u' - u (w - u)' - M) / 2; y: w - u;
    * H: -Y cov + u (cov e)' - (w - u) mean' - K';
    * P: D + H'Z + Z'H with Z = u e' - Y + G H; a: e - H'(w - u).
    """
    _retreat_predicted(on)
    on.add(FEW, ZERO, GAIN, COV_SLOPE)
    _retreat_observed(on)
    _retreat_designed(on)
    _absorb(on, True)


def _retreat_predicted(on: Program) -> None:
    """Q, F, and D and e of the state after the update; e in `LINE`."""
    on.combine(TRANSITION_COV_SLOPE, TRANSITION_COV_SLOPE, 1, COV_SLOPE)
    on.add(SQUARE, ZERO, TURNED, COV_SLOPE)
    on.add(TRANSITION_SLOPE, TRANSITION_SLOPE, ~SQUARE, FILTERED_COV)
    on.add(TRANSITION_SLOPE, TRANSITION_SLOPE, ~MEAN_SLOPE, FILTERED)
    on.add(COV_SLOPE, ZERO, SQUARE, TRANSITION)
    on.add(LINE, ZERO, MEAN_SLOPE, TRANSITION)


def _retreat_observed(on: Program) -> None:
    """R and y; G in `SMALL`, w - u in `INNOVATION`."""
    on.add_dots(INNOVATION, ZERO, LINE, GAIN)
    on.add_dots(SMALL, PRECISION, FEW, GAIN, -1)
    on.add(SMALL, SMALL, ~INNOVATION, SCORE)
    on.combine(INNOVATION, INNOVATION, -2, SCORE)
    on.add(SMALL, SMALL, ~SCORE, INNOVATION)
    on.combine(SMALL, ZERO, -1, SMALL)
    on.combine(OBSERVATION_COV_SLOPE, OBSERVATION_COV_SLOPE, 2, SMALL)


def _retreat_designed(on: Program) -> None:
    """H."""
    on.subtract(DESIGN_SLOPE, DESIGN_SLOPE, FEW, FILTERED_COV)
    on.add(OTHER, ZERO, LINE, FILTERED_COV)
    on.add(DESIGN_SLOPE, DESIGN_SLOPE, ~SCORE, OTHER)
    on.subtract(DESIGN_SLOPE, DESIGN_SLOPE, ~INNOVATION, FILTERED)
    on.combine(DESIGN_SLOPE, DESIGN_SLOPE, -2, GAIN)


def _absorb(on: Program, scored: bool) -> None:
    """D + H'Z + Z'H with Z = `SMALL` H - Y + u e', and e - H' `INNOVATION`; Y is in `FEW`.

    The term u e' is there with `scored` only.
    """
    on.subtract(PROJECTED, FEW, SMALL, DESIGN)  # -Z
    if scored:
        on.subtract(PROJECTED, PROJECTED, ~SCORE, LINE)
    on.subtract(COV_SLOPE, COV_SLOPE, ~DESIGN, PROJECTED)
    on.subtract(COV_SLOPE, COV_SLOPE, ~PROJECTED, DESIGN)
    on.symmetrise(COV_SLOPE)
    on.subtract(MEAN_SLOPE, LINE, INNOVATION, DESIGN)


def smooth(on: Program) -> None:
    """Fixed-interval smoothing without an inverse of a state's covariance.

    Leaves the smoothed mean in `FILTERED` and its covariance in `OTHER`.

    With r and N of the next step (Bryson and Frazier 1963; de Jong 1989), r = F'r and N = F'NF:
    mean + cov r and cov - cov N cov are smoothed; then, with w = K'r, Y = K'N and
    G = (Y K + M) / 2, r becomes r - H'(w - u) and N becomes N + H'Z + Z'H with Z = G H - Y.
    """
    on.add(SQUARE, ZERO, TURNED, COV_SLOPE)
    on.add(COV_SLOPE, ZERO, SQUARE, TRANSITION)
    on.add(LINE, ZERO, MEAN_SLOPE, TRANSITION)
    on.add(SQUARE, ZERO, COV_SLOPE, FILTERED_COV)
    on.subtract(OTHER, FILTERED_COV, FILTERED_COV, SQUARE)
    on.symmetrise(OTHER)
    on.add(FILTERED, FILTERED, LINE, FILTERED_COV)
    on.add(FEW, ZERO, GAIN, COV_SLOPE)
    on.add_dots(INNOVATION, ZERO, LINE, GAIN)
    on.combine(INNOVATION, INNOVATION, -2, SCORE)
    on.add_dots(SMALL, PRECISION, FEW, GAIN)
    on.combine(SMALL, ZERO, 1, SMALL)
    _absorb(on, False)
