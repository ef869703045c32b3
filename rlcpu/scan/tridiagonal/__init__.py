"""Batched tridiagonal systems: solved, factored, differentiated."""

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
    "SingularMatrixError",
    "SingularSystemError",
    "Status",
    "TridiagonalFactors",
    "TridiagonalGradients",
    "TridiagonalInfo",
    "factor_tridiagonal",
    "solve_tridiagonal",
    "tridiagonal_vjp",
]
