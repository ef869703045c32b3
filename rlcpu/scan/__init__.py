"""Recurrences over an axis, batched over the others."""

from rlcpu.scan.kalman.loglik import KalmanGradients, kalman_loglik, kalman_loglik_vjp
from rlcpu.scan.kalman.states import KalmanStates, SmoothedStates, kalman_filter, kalman_smooth
from rlcpu.scan.log_sums import logcumsumexp, logcumsumexp_vjp
from rlcpu.scan.recurrences.linear import LinearGradients, linear_scan, linear_scan_vjp
from rlcpu.scan.recurrences.n_step import nstep_returns
from rlcpu.scan.recurrences.off_policy import Clips, VTrace, retrace, vtrace
from rlcpu.scan.recurrences.returns import Advantages, discounted_returns, gae, lambda_returns
from rlcpu.scan.tridiagonal.factor import TridiagonalFactors, factor_tridiagonal
from rlcpu.scan.tridiagonal.solve import solve_tridiagonal
from rlcpu.scan.tridiagonal.status import (
    SingularMatrixError,
    SingularSystemError,
    Status,
    TridiagonalInfo,
)
from rlcpu.scan.tridiagonal.vjp import TridiagonalGradients, tridiagonal_vjp

__all__ = [
    "Advantages",
    "Clips",
    "KalmanGradients",
    "KalmanStates",
    "LinearGradients",
    "SingularMatrixError",
    "SingularSystemError",
    "SmoothedStates",
    "Status",
    "TridiagonalFactors",
    "TridiagonalGradients",
    "TridiagonalInfo",
    "VTrace",
    "discounted_returns",
    "factor_tridiagonal",
    "gae",
    "kalman_filter",
    "kalman_loglik",
    "kalman_loglik_vjp",
    "kalman_smooth",
    "lambda_returns",
    "linear_scan",
    "linear_scan_vjp",
    "logcumsumexp",
    "logcumsumexp_vjp",
    "nstep_returns",
    "retrace",
    "solve_tridiagonal",
    "tridiagonal_vjp",
    "vtrace",
]


def __dir__() -> list[str]:
    return __all__
