"""What became of each of many systems, and the error that says so."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_SHOWN = 5  # systems that a message names


class Status(enum.IntEnum):
    """What became of a system."""

    SOLVED = 0
    SINGULAR = 1  # a pivot is zero, or the solution exceeds the largest number
    NOT_FINITE = 2  # the matrix or the right-hand side holds NaN or infinity
    INACCURATE = 3  # the backward error is above the limit; only with check="residual"


class TridiagonalInfo(NamedTuple):
    """What `solve_tridiagonal` returns beside the solutions on demand.

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

    Attributes:
        status: (batch...) int8, a `Status` for each system.
    """

    def __init__(self, status: Array) -> None:
        self.status = status
        failed = np.argwhere(np.atleast_1d(status))
        names = [self._name(status, place) for place in failed[:_SHOWN]]
        more = ", ..." if len(failed) > _SHOWN else ""
        super().__init__(
            f"{len(failed)} of {status.size} systems not solved: {', '.join(names)}{more}; "
            "return_info=True returns a status for each instead"
        )

    @staticmethod
    def _name(status: Array, place: Array) -> str:
        word = Status(int(np.atleast_1d(status)[tuple(place)])).name.lower().replace("_", " ")
        return f"{tuple(place.tolist())} {word}" if status.ndim else word

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status,)
