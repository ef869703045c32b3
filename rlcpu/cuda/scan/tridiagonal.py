"""Many tridiagonal systems at once, on the device."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.operands import is_same
from rlcpu.cuda.scan.tridiagonal_check import copied, judge, refine
from rlcpu.cuda.scan.tridiagonal_drive import Found, Mode
from rlcpu.cuda.scan.tridiagonal_input import Systems, check_systems
from rlcpu.cuda.scan.tridiagonal_long import is_long, solve
from rlcpu.scan.tridiagonal.solve import METHODS
from rlcpu.scan.tridiagonal.status import SingularSystemError, TridiagonalInfo


def solve_tridiagonal(
    lower: Any,
    diagonal: Any,
    upper: Any,
    rhs: Any,
    *,
    axis: int = -1,
    method: Literal["pivot", "thomas"] = "pivot",
    periodic: bool = False,
    lengths: Any = None,
    check: Literal["residual"] | None = None,
    return_info: bool = False,
    out: Any = None,
) -> Any:
    """`rlcpu.scan.solve_tridiagonal` of C-contiguous arrays on the device.

    Numbers and arrays on the host are copied there. Any axis will do for the unknowns; the last one
    goes through shared memory, unless systems are periodic. Few systems of at least 2,048 unknowns
    are cut into chunks, and refined. With `return_info` nothing is read back, but of those and with
    `check`: the call returns before the result is there, and statuses and backward errors stay on
    the device. Where systems fail, `out` holds the solutions of the others.

    Raises:
        SingularSystemError, TypeError, ValueError: see `rlcpu.scan.solve_tridiagonal`.
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r}: expected one of {', '.join(map(repr, METHODS))}")
    if check not in (None, "residual"):
        raise ValueError(f'check={check!r}: expected "residual" or None')
    systems = check_systems((lower, diagonal, upper, rhs), lengths, axis, out)
    ends, dtype = systems.layout.ends, systems.out.dtype
    found = Found(arrays.zeros(ends, np.int8), arrays.zeros(1, np.int32))
    errors = None if check is None else arrays.zeros(ends, dtype)
    if systems.out.size:
        errors = _solve(systems, Mode(method == "pivot", bool(periodic)), check is not None, found)
    if not return_info and systems.out.size and found.failed.copy_to_host()[0]:
        raise SingularSystemError(found.status.copy_to_host())
    result = systems.out if out is None else out
    return (result, TridiagonalInfo(found.status, errors)) if return_info else result


def _solve(systems: Systems, mode: Mode, check: bool, found: Found) -> DeviceArray | None:
    """Overwrite solutions and what became of them; their backward errors on demand."""
    refined = check or (mode.pivoting and is_long(systems, mode))
    if refined and is_same(systems.out, systems.inputs[3]):
        systems = systems._replace(inputs=[*systems.inputs[:3], copied(systems.inputs[3])])
    solve(systems, mode, found)
    errors = refine(systems, mode, solve) if refined else None
    if not check or errors is None:
        return None
    judge(errors, found)
    return errors
