"""Recurrences over an axis, batched over the others."""

from rlcpu.scan.linear import LinearGradients, linear_scan, linear_scan_vjp
from rlcpu.scan.logcumsumexp import logcumsumexp, logcumsumexp_vjp
from rlcpu.scan.n_step import nstep_returns
from rlcpu.scan.off_policy import Clips, VTrace, retrace, vtrace
from rlcpu.scan.returns import Advantages, discounted_returns, gae, lambda_returns

__all__ = [
    "Advantages",
    "Clips",
    "LinearGradients",
    "VTrace",
    "discounted_returns",
    "gae",
    "lambda_returns",
    "linear_scan",
    "linear_scan_vjp",
    "logcumsumexp",
    "logcumsumexp_vjp",
    "nstep_returns",
    "retrace",
    "vtrace",
]
