"""Linear-Gaussian state-space models: likelihood, gradient, filtered and smoothed states."""

from rlcpu.scan.kalman.loglik import KalmanGradients, kalman_loglik, kalman_loglik_vjp
from rlcpu.scan.kalman.states import KalmanStates, SmoothedStates, kalman_filter, kalman_smooth

__all__ = [
    "KalmanGradients",
    "KalmanStates",
    "SmoothedStates",
    "kalman_filter",
    "kalman_loglik",
    "kalman_loglik_vjp",
    "kalman_smooth",
]
