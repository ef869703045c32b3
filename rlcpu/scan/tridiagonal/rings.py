"""Many periodic tridiagonal systems, each solved in one pass: fitted to a kernel, refined."""

from __future__ import annotations

import numpy as np

from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.threads import launch
from rlcpu.scan.tridiagonal.input import is_same
from rlcpu.scan.tridiagonal.long import LONGEST, refine
from rlcpu.scan.tridiagonal.memory import contiguous, side_by_side
from rlcpu.scan.tridiagonal.plan import REFINED, Array, Arrays, Extras, batch_order, make_plans
from rlcpu.scan.tridiagonal.ring_columns import ring_column_kernels
from rlcpu.scan.tridiagonal.ring_rows import ring_row_kernels


def are_rings(out: Array) -> bool:
    """Whether periodic systems (batch..., n) of one length fill registers, uncut."""
    n, count = out.shape[-1], out.size // max(out.shape[-1], 1)
    return 2 <= n < LONGEST and count >= VECTOR_BYTES // out.itemsize


def solve_rings(
    arrays: Arrays, errors: Array | None, eagerness: float, num_threads: int | None
) -> bool:
    """Solve periodic systems.

    Args:
        arrays: (batch..., n) as `are_rings` wants them, any strides; out is overwritten.
        errors: overwritten with backward errors, see `Extras`; None for no check.
        eagerness: see `steps.eliminate`.
        num_threads: of the kernels; None for all.

    Returns:
        Whether all solutions are finite.
    """
    out, axis, checked = arrays.out, side_by_side(arrays.out), errors is not None
    fitted = Arrays(*(contiguous(array, -1 if axis is None else axis) for array in arrays))
    if is_same(out, arrays.rhs):  # the right-hand side is needed to refine
        fitted = fitted._replace(out=np.empty_like(fitted.out))
    order = batch_order(out.shape, out.strides)
    if errors is None:
        errors = np.zeros([out.shape[i] for i in order], out.dtype)
    kernels = ring_row_kernels() if axis is None else ring_column_kernels()
    settings = out.dtype.type(eagerness), checked
    plans = make_plans(fitted, Extras(None, errors))
    wells = [launch(kernels, out.size, num_threads, plan, *settings) for plan in plans]
    if checked or eagerness > 0:
        _refine(fitted, errors.transpose(np.argsort(order)), eagerness, num_threads)
    if fitted.out is not out:
        out[...] = fitted.out
    return all(wells)


def _refine(arrays: Arrays, errors: Array, eagerness: float, num_threads: int | None) -> None:
    """Refine solutions with large errors (batch...); both are overwritten."""
    limit = REFINED * float(np.finfo(errors.dtype).eps)
    again = errors > limit
    if not again.any():
        return

    def solve(own: Arrays) -> None:
        unused = np.zeros(own.out.shape[:-1], own.out.dtype)
        for plan in make_plans(own, Extras(None, unused)):
            settings = own.out.dtype.type(eagerness), False
            launch(ring_row_kernels(), own.out.size, num_threads, plan, *settings)

    own = Arrays(*(np.ascontiguousarray(array[again]) for array in arrays))
    errors[again] = refine(own, limit, True, num_threads, solve)
    arrays.out[again] = own.out
