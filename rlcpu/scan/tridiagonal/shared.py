"""Many right-hand sides of one matrix: it is factored once."""

from __future__ import annotations

import math

from rlcpu.scan.tridiagonal.factor import factor_tridiagonal
from rlcpu.scan.tridiagonal.input import is_same
from rlcpu.scan.tridiagonal.plan import Arrays
from rlcpu.scan.tridiagonal.status import SingularSystemError

#: Systems, and right-hand sides' numbers, from which one matrix is factored: 128 systems of 1,000
#: take 0.22 ms either way on one core, 256 take 0.32 in place of 0.49.
SYSTEMS, NUMBERS = 64, 2**17


def is_shared(arrays: Arrays) -> bool:
    """Whether many systems (batch..., n) have one matrix, repeated by strides of zero."""
    batch = arrays.out.shape[:-1]
    if math.prod(batch) < SYSTEMS or arrays.out.size < NUMBERS:
        return False
    return not any(
        stride
        for array in arrays[:3]
        for stride, size in zip(array.strides, batch, strict=False)
        if size > 1
    )


def solve_shared(arrays: Arrays, num_threads: int | None) -> bool:
    """Solve systems of one matrix; whether out holds all solutions, and all are finite.

    If not, out is to be overwritten by a kernel that tells what failed: the right-hand sides are
    as they were.
    """
    if not is_shared(arrays) or is_same(arrays.out, arrays.rhs):
        return False
    first = (0,) * (arrays.out.ndim - 1)
    try:
        factors = factor_tridiagonal(*(a[first] for a in arrays[:3]), num_threads=num_threads)
        factors.solve(arrays.rhs, out=arrays.out, num_threads=num_threads)
    except SingularSystemError:
        return False
    return True
