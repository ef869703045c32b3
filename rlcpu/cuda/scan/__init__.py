"""Recurrences over an axis of arrays on the device, batched over the others."""

from rlcpu.cuda.scan.factor import TridiagonalFactors, factor_tridiagonal
from rlcpu.cuda.scan.gradients import linear_scan_vjp, logcumsumexp_vjp, tridiagonal_vjp
from rlcpu.cuda.scan.linear import linear_scan
from rlcpu.cuda.scan.logcumsumexp import logcumsumexp
from rlcpu.cuda.scan.returns import (
    discounted_returns,
    gae,
    lambda_returns,
    nstep_returns,
    retrace,
    vtrace,
)
from rlcpu.cuda.scan.tridiagonal import solve_tridiagonal

__all__ = [
    "TridiagonalFactors",
    "discounted_returns",
    "factor_tridiagonal",
    "gae",
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
