"""Whether matrices are covariances: finite, symmetric and positive semi-definite."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.kernels.compile import EXACT, kernel, specialise
from rlcpu.kernels.threads import Kernels, launch

#: What can be wrong with a matrix, by code.
DEFECTS = ("", "not finite", "not symmetric", "not positive semi-definite")
#: Rounding errors that are forgiven, in units of the size times the dtype's epsilon.
SLACK = 64.0
_TOLERANCES = {char: SLACK * float(np.finfo(char).eps) for char in "fd"}
GRAIN = 2**15  # numbers of all matrices from which a second core is worth waking
_SLICE = 256  # matrices that a thread takes at a time, with one workspace


def correlate(matrix: Any, work: Any, tolerance: float) -> int:
    """Correlations of a covariance matrix in `work`; a code of `DEFECTS`.

    Args:
        matrix: (n, n).
        work: (n, n), overwritten.
        tolerance: of correlations.
    """
    n = matrix.shape[0]
    for i in range(n):
        for j in range(n):
            if not math.isfinite(matrix[i, j]):
                return 1
        if matrix[i, i] < 0.0:
            return 3
    for i in range(n):
        for j in range(n):
            scale = math.sqrt(matrix[i, i]) * math.sqrt(matrix[j, j])
            if abs(matrix[i, j] - matrix[j, i]) > tolerance * scale:
                return 2
            if scale == 0.0 and matrix[i, j] != 0.0:
                return 3
            work[i, j] = matrix[i, j] / scale if scale > 0.0 else 0.0
    return 0


def defect(matrix: Any, work: Any, tolerance: float) -> int:
    """Code of `DEFECTS` of one matrix; see `correlate`.

    Semi-definite is a matrix whose correlations plus the tolerance on the diagonal have positive
    pivots: no correlation matrix with an eigenvalue below minus the tolerance passes.
    """
    code = correlate(matrix, work, tolerance)
    if code != 0:
        return code
    n = matrix.shape[0]
    for k in range(n):
        pivot = work[k, k] + tolerance
        if pivot <= 0.0:
            return 3
        for i in range(k + 1, n):
            factor = work[i, k] / pivot
            for j in range(k + 1, i + 1):
                work[i, j] -= factor * work[j, k]
    return 0


@functools.cache
def _kernels() -> Kernels:
    return Kernels(_make(False), _make(True), GRAIN)


def _make(parallel: bool) -> Any:
    """Driver of `defect` over (count, n, n) float64 matrices; codes (count,) int8."""
    scalar = specialise(defect, np.float64, exact=True)

    @kernel(parallel=parallel, fastmath=EXACT)
    def find_defects(matrices, tolerance, codes):  # type: ignore[no-untyped-def]
        count, n = matrices.shape[0], matrices.shape[1]
        for part in prange((count + _SLICE - 1) // _SLICE):
            work = np.empty((n, n), matrices.dtype)
            for k in range(part * _SLICE, min((part + 1) * _SLICE, count)):
                codes[k] = scalar(matrices[k], work, tolerance)

    return find_defects


def check_covariances(name: str, matrices: npt.NDArray[Any]) -> None:
    """Raise ValueError for the first of the matrices that is no covariance.

    Args:
        name: of the argument.
        matrices: (..., n, n) float32 or float64.

    Raises:
        ValueError: a matrix is not finite, not symmetric or not positive semi-definite.
    """
    size = matrices.shape[-1]
    flat = np.ascontiguousarray(matrices, np.float64).reshape(-1, size, size)
    codes = np.empty(len(flat), np.int8)
    launch(_kernels(), flat.size, None, flat, size * _TOLERANCES[matrices.dtype.char], codes)
    if np.count_nonzero(codes):
        first = int(np.flatnonzero(codes)[0])
        index = tuple(int(i) for i in np.unravel_index(first, matrices.shape[:-2]))
        raise ValueError(
            f"{name}: expected covariance matrices, {np.count_nonzero(codes)} of {len(flat)} are "
            f"not; the first, at {index}, is {DEFECTS[codes[first]]}: {flat[first].tolist()}"
        )
