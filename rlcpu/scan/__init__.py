"""Recurrences over an axis, batched over the others.

`arguments` has all checks, `layout` says how an axis of an array is read. `recurrences` are linear
scans, returns and advantages: read `rules` there first. `tridiagonal` are systems of equations:
read `equations`. `kalman` are state-space models: read `filter`. `torch` and `jax` show the solver
to other libraries.
"""

from typing import TYPE_CHECKING

from rlcpu.scan.recurrences.returns import (
    Advantages,
    Clips,
    VTrace,
    discounted_returns,
    gae,
    lambda_returns,
    nstep_returns,
    retrace,
    vtrace,
)

if TYPE_CHECKING:
    from rlcpu.scan.kalman.functions import (
        KalmanGradients,
        KalmanStates,
        SmoothedStates,
        kalman_filter,
        kalman_loglik,
        kalman_loglik_vjp,
        kalman_smooth,
    )
    from rlcpu.scan.recurrences.linear import LinearGradients, linear_scan, linear_scan_vjp
    from rlcpu.scan.recurrences.log_sums import logcumsumexp, logcumsumexp_vjp
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


if not TYPE_CHECKING:  # type checkers shall find names that there are not

    def __getattr__(name):
        # Imported at first use: who needs returns does not wait for solvers and filters.
        if name not in __all__:
            raise AttributeError(f"module 'rlcpu.scan' has no attribute {name!r}")
        from rlcpu.scan.kalman import functions
        from rlcpu.scan.recurrences import linear, log_sums
        from rlcpu.scan.tridiagonal import factor, solve, status, vjp

        chapters = linear, log_sums, solve, status, factor, vjp, functions
        value = next(getattr(each, name) for each in chapters if hasattr(each, name))
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
