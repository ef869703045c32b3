"""Recurrences over an axis, batched over the others."""

import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

#: Imported at first use: who needs returns does not wait for solvers and filters.
_PLACES = {
    "kalman.loglik": (
        "KalmanGradients",
        "kalman_loglik",
        "kalman_loglik_vjp",
    ),
    "kalman.states": (
        "KalmanStates",
        "SmoothedStates",
        "kalman_filter",
        "kalman_smooth",
    ),
    "log_sums": (
        "logcumsumexp",
        "logcumsumexp_vjp",
    ),
    "recurrences.linear": (
        "LinearGradients",
        "linear_scan",
        "linear_scan_vjp",
    ),
    "recurrences.n_step": ("nstep_returns",),
    "recurrences.off_policy": (
        "Clips",
        "VTrace",
        "retrace",
        "vtrace",
    ),
    "recurrences.returns": (
        "Advantages",
        "discounted_returns",
        "gae",
        "lambda_returns",
    ),
    "tridiagonal.factor": (
        "TridiagonalFactors",
        "factor_tridiagonal",
    ),
    "tridiagonal.solve": ("solve_tridiagonal",),
    "tridiagonal.status": (
        "SingularMatrixError",
        "SingularSystemError",
        "Status",
        "TridiagonalInfo",
    ),
    "tridiagonal.vjp": (
        "TridiagonalGradients",
        "tridiagonal_vjp",
    ),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}
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


if not TYPE_CHECKING:  # type checkers shall find names that there are not

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module 'rlcpu.scan' has no attribute {name!r}")
        value = getattr(_load(_MODULES[name]), name)
        globals()[name] = value
        return value


def _load(place: str) -> types.ModuleType:
    """A module of this package, imported at its first use."""
    if place == "kalman.loglik":
        from rlcpu.scan.kalman import loglik

        return loglik
    if place == "kalman.states":
        from rlcpu.scan.kalman import states

        return states
    if place == "log_sums":
        from rlcpu.scan import log_sums

        return log_sums
    if place == "recurrences.linear":
        from rlcpu.scan.recurrences import linear

        return linear
    if place == "recurrences.n_step":
        from rlcpu.scan.recurrences import n_step

        return n_step
    if place == "recurrences.off_policy":
        from rlcpu.scan.recurrences import off_policy

        return off_policy
    if place == "recurrences.returns":
        from rlcpu.scan.recurrences import returns

        return returns
    if place == "tridiagonal.factor":
        from rlcpu.scan.tridiagonal import factor

        return factor
    if place == "tridiagonal.solve":
        from rlcpu.scan.tridiagonal import solve

        return solve
    if place == "tridiagonal.status":
        from rlcpu.scan.tridiagonal import status

        return status
    from rlcpu.scan.tridiagonal import vjp

    return vjp


def __dir__() -> list[str]:
    return __all__
