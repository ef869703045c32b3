"""Recurrences over an axis of arrays on the device, batched over the others."""

from rlcpu.cuda.scan.linear import linear_scan
from rlcpu.cuda.scan.logcumsumexp import logcumsumexp
from rlcpu.cuda.scan.returns import discounted_returns, gae, lambda_returns, retrace, vtrace
from rlcpu.cuda.scan.tridiagonal import solve_tridiagonal

__all__ = [
    "discounted_returns",
    "gae",
    "lambda_returns",
    "linear_scan",
    "logcumsumexp",
    "retrace",
    "solve_tridiagonal",
    "vtrace",
]
