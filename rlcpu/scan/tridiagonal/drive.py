"""The kernel that suits the memory of some tridiagonal systems; copies of what suits none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.threads import Kernels, launch
from rlcpu.scan.tridiagonal.columns import column_kernels
from rlcpu.scan.tridiagonal.errors import error_kernels
from rlcpu.scan.tridiagonal.input import is_same
from rlcpu.scan.tridiagonal.long import is_long, solve_long
from rlcpu.scan.tridiagonal.memory import contiguous, side_by_side
from rlcpu.scan.tridiagonal.plan import (
    OUTERS,
    PLACES,
    REFINED,
    Array,
    Arrays,
    Extras,
    batch_order,
    make_plans,
    transposed,
)
from rlcpu.scan.tridiagonal.rings import are_rings, solve_rings
from rlcpu.scan.tridiagonal.rows import row_kernels
from rlcpu.scan.tridiagonal.shared import solve_shared
from rlcpu.scan.tridiagonal.tall import REFUSED, is_tall, tall_kernels

#: `eagerness` of each method, see `steps.eliminate`.
METHODS = {"pivot": 1.0, "thomas": 0.0}


class Mode(NamedTuple):
    """How to solve: `METHODS`' name of the elimination, and whether systems are periodic."""

    method: str
    periodic: bool = False


def solve_arrays(
    arrays: Arrays, extras: Extras, mode: Mode, num_threads: int | None = None, spare: bool = False
) -> bool | None:
    """Solve systems, all checked.

    Args:
        arrays: (batch..., n) of one dtype, any strides; out is overwritten.
        extras: what goes with each system.
        mode: how to solve.
        num_threads: of the kernels; None for all.
        spare: of systems that are tall and not periodic, whether to write nothing if one of them is
            singular or holds NaN or infinity.

    Returns:
        Whether all solutions are finite; None if nothing was written.
    """
    if arrays.out.size == 0:
        return True
    real, eagerness = arrays.out.dtype.type, METHODS[mode.method]
    limit = REFINED * np.finfo(real).eps if extras.errors is not None else -1.0
    if mode.periodic and extras.lengths is None and are_rings(arrays.out):
        return solve_rings(arrays, extras.errors, eagerness, num_threads)
    if mode.periodic or (is_long(arrays.out) and not is_tall(arrays.out)):
        how = (eagerness, limit, mode.periodic)
        return solve_long(arrays, extras, *how, num_threads=num_threads)
    ordinary = mode.method == "pivot" and extras.lengths is None and extras.errors is None
    if ordinary and not spare and solve_shared(arrays, num_threads):
        return True
    settings = real(eagerness), real(limit)
    return _launch(arrays, extras, settings, num_threads, spare=spare)


def solve_transposed(arrays: Arrays, num_threads: int | None) -> bool | None:
    """Solve the transposed systems of what `solve_arrays` takes, by pivoting.

    Refuses (None, with nothing written) systems that are long, unless they are tall.
    """
    if arrays.out.size == 0 or (is_long(arrays.out) and not is_tall(arrays.out)):
        return None
    real = arrays.out.dtype.type
    settings = real(METHODS["pivot"]), real(-1.0)
    return _launch(arrays, Extras(), settings, num_threads, turn=transposed)


def _launch(
    arrays: Arrays,
    extras: Extras,
    settings: Any,
    num_threads: int | None,
    turn: Any = None,
    spare: bool = False,
) -> bool | None:
    kernels, fitted = _fit(arrays, extras)
    size, plans = arrays.out.size, list(make_plans(fitted, extras))
    if spare and len(plans) > 1:
        return None
    if turn is not None:
        plans = [turn(plan, arrays.out.itemsize) for plan in plans]
    found = [
        launch(kernels, size, num_threads, *_arguments(kernels, plan, settings, spare))
        for plan in plans
    ]
    if found == [REFUSED]:
        return None
    check = extras.errors is not None and kernels is not row_kernels()
    if check:
        for plan in plans:
            launch(error_kernels(), size, num_threads, plan, settings[0] * 0)
    if fitted.out is not arrays.out and not np.may_share_memory(fitted.out, arrays.out):
        arrays.out[...] = fitted.out
    if check:
        _refine(arrays._replace(rhs=fitted.rhs), extras, settings, num_threads)
    return all(found)


def _refine(arrays: Arrays, extras: Extras, settings: Any, num_threads: int | None) -> None:
    """Solve systems whose backward error is above the limit as rows, whose kernel refines them."""
    back = np.argsort(batch_order(arrays.out.shape, arrays.out.strides))
    errors = extras.errors.transpose(back)
    again = errors > settings[1]
    if not again.any():
        return
    lengths = None if extras.lengths is None else extras.lengths.transpose(back)[again]
    mine = Extras(lengths, np.zeros(again.sum(), errors.dtype))
    rows = Arrays(*(np.ascontiguousarray(array[again]) for array in arrays))
    if is_long(rows.out):
        eagerness, limit = map(float, settings)
        solve_long(rows, mine, eagerness, limit, periodic=False, num_threads=num_threads)
    else:
        kernels, plan = row_kernels(), next(make_plans(rows, mine))
        launch(kernels, rows.out.size, num_threads, *_arguments(kernels, plan, settings))
    arrays.out[again], errors[again] = rows.out, mine.errors


def _arguments(
    kernels: Kernels, plan: Array, settings: Any, spare: bool = False
) -> tuple[Any, ...]:
    if kernels is row_kernels():
        return (plan, *plan[PLACES:OUTERS].tolist(), *settings)
    return (plan, settings[0], spare) if kernels is tall_kernels() else (plan, *settings)


def _fit(arrays: Arrays, extras: Extras) -> tuple[Kernels, Arrays]:
    """Kernels, and the arrays as they take them."""
    out = arrays.out
    beside = side_by_side(out)
    if beside is not None:
        if extras.errors is not None and is_same(out, arrays.rhs):
            arrays = arrays._replace(rhs=arrays.rhs.copy("K"))
        kernels = tall_kernels() if is_tall(out) else column_kernels()
        return kernels, Arrays(*(contiguous(array, beside) for array in arrays))
    if out.strides[-1] == -out.itemsize and extras.lengths is None:
        arrays = _turned(arrays)
    return row_kernels(), Arrays(*(contiguous(array, -1) for array in arrays))


def _turned(arrays: Arrays) -> Arrays:
    """The systems numbered from the other end."""
    lower, diagonal, upper, rhs, out = (array[..., ::-1] for array in arrays)
    return Arrays(upper, diagonal, lower, rhs, out)
