"""Statuses of tridiagonal systems that were solved, and the errors that tell of them."""

from __future__ import annotations

import copyreg
import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcpu.scan.arguments import Array, is_same

#: Backward error, in multiples of the dtype's epsilon, from which solutions are refined: 3 of 1,000
#: random systems of 100 unknowns are beyond. Without, the worst of 768,000 random equations in
#: chunks of 32 is 1e-12 in float64.
REFINED = 2**7

#: The same, from which a solution counts as a failure: partial pivoting stays below 1,000 on random
#: matrices, and elimination without it reaches 1e13.
INACCURATE = 2**13

_SHOWN = 5  # systems that a message names


class Status(enum.IntEnum):
    """Outcome of a solve, for each system."""

    SOLVED = 0
    SINGULAR = 1  # a pivot is zero, or the solution exceeds the largest number
    NOT_FINITE = 2  # the matrix or the right-hand side holds NaN or infinity
    INACCURATE = 3  # the backward error is above the limit; only with check="residual"


class TridiagonalInfo(NamedTuple):
    """Statuses of systems, which `solve_tridiagonal` returns beside the solutions on demand.

    Attributes:
        status: (batch...) int8, a `Status` for each system.
        backward_error: (batch...) of the solution's dtype, or None without check="residual": the
            smallest relative change of single coefficients and right-hand sides that makes the
            solution exact (Oettli and Prager 1964); NaN where there is no solution.
    """

    status: Any
    backward_error: Any


class SingularSystemError(np.linalg.LinAlgError):
    """Some systems have no finite solution, or none that is accurate enough.

    The content of `out` is undefined after it.

    Attributes:
        status: (batch...) int8, a `Status` for each system.
    """

    _advice = "; return_info=True returns a status for each instead"

    def __init__(self, status: Array, what: str = "systems not solved") -> None:
        # `what` follows the count of those that failed in the message.
        self.status = status
        failed = np.argwhere(np.atleast_1d(status))
        names = [self._name(status, place) for place in failed[:_SHOWN]]
        names += ["..."] if len(failed) > _SHOWN else []
        super().__init__(f"{len(failed)} of {status.size} {what}: {', '.join(names)}{self._advice}")

    @staticmethod
    def _name(status: Array, place: Array) -> str:
        word = Status(int(np.atleast_1d(status)[tuple(place)])).name.lower().replace("_", " ")
        return f"{tuple(place.tolist())} {word}" if status.ndim else word

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is not made from the status: the text and what was added to the error stay.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class SingularMatrixError(SingularSystemError):
    """Some matrices cannot be factored or inverted, or what is solved with them is not finite.

    The content of `out` is undefined after it, unless a function says that it is not written.

    Attributes:
        status: (batch...) int8, a `Status` for each matrix, system or model.
    """

    _advice = ""


def status_of(
    arrays: Sequence[Array],
    lengths: Array | None,
    periodic: bool,
    solve: Callable[..., Array] | None = None,
) -> Array:
    """Return a `Status`, int8, for each system that was solved, by what is finite.

    Args:
        arrays: lower, diagonal, upper, rhs and out, (batch..., n); out as a solve left it.
        lengths: (batch...), or None.
        periodic: whether the first coefficient of `lower` and the last one of `upper` count.
        solve: x (systems, n) from lower, diagonal, upper, rhs and lengths of some systems; it may
            overwrite rhs. Needed where out is rhs.
    """
    out = arrays[4]
    failed = ~np.isfinite(out).all(-1)
    status = np.zeros(failed.shape, np.int8)
    if not failed.any():
        return status
    lower, diagonal, upper, rhs = (array[failed] for array in arrays[:4])
    k, n = np.arange(out.shape[-1]), out.shape[-1]
    ends = np.full((len(rhs), 1), n) if lengths is None else lengths[failed][:, None]
    inside = k < ends
    finite_matrix = np.isfinite(diagonal) | ~inside
    finite_matrix &= np.isfinite(lower) | ~inside | (k < 1 - periodic)
    finite_matrix &= np.isfinite(upper) | (k >= ends - 1 + periodic)
    if solve is not None and is_same(out, arrays[3]):
        # The solution has taken the place of rhs. A matrix with which zeros can be solved for is
        # not singular: rhs was not finite.
        x = solve(lower, diagonal, upper, np.zeros_like(rhs), ends[:, 0])
        is_singular = ~np.isfinite(x).all(-1)
    else:
        is_singular = (np.isfinite(rhs) | ~inside).all(-1)
    is_singular &= finite_matrix.all(-1)
    status[failed] = np.where(is_singular, Status.SINGULAR, Status.NOT_FINITE)
    return status


def info_of(status: Array, errors: Array | None) -> TridiagonalInfo:
    """Return statuses and backward errors (batch...) as users get them; `errors` may be None.

    Overwrites statuses where errors are too large, and errors with NaN where nothing is solved.
    """
    if errors is not None:
        solved = status == Status.SOLVED
        limit = INACCURATE * float(np.finfo(errors.dtype).eps)
        status[solved & ~(errors <= limit)] = Status.INACCURATE  # NaN too: nobody knows
        errors[~solved] = np.nan
    return TridiagonalInfo(status, errors)
