"""One thread's tridiagonal system: what both drivers do with an equation and with a pivot."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from rlcpu.cuda.scan.steps import IN_ORDER, device_step
from rlcpu.scan.tridiagonal.equations import Pending, Pivot, eliminate, scaled, substitute
from rlcpu.scan.tridiagonal.status import Status

#: Integers of a plan: sizes of the axes before the unknowns, of the unknowns, after them; 1 if
#: systems have lengths of their own, else 0; then strides of lower, diagonal, upper, rhs and out
#: over outer indices, unknowns, inner indices.
OUTER, LENGTH, INNER, OWN_LENGTHS, STRIDES, ARRAYS = 0, 1, 2, 3, 4, 5
OUT = 4
SINGULAR, NOT_FINITE = int(Status.SINGULAR), int(Status.NOT_FINITE)


class Raw(NamedTuple):
    """One equation as it lies in memory, what is ignored being zero."""

    lower: Any
    diagonal: Any
    upper: Any
    rhs: Any


class System(NamedTuple):
    """Which system a thread solves, and where.

    Attributes:
        outer: index of the axes before the unknowns.
        inner: index of the axes after them.
        stop: number of unknowns.
        thread: of the grid.
        room: threads of the grid.
    """

    outer: Any
    inner: Any
    stop: Any
    thread: Any
    room: Any


class State(NamedTuple):
    """What a thread knows on its way down.

    Attributes:
        pending: what is left of the equations above.
        health: 0, or NaN after a coefficient or a right-hand side that is not finite.
    """

    pending: Any
    health: Any


class Known(NamedTuple):
    """What a thread knows on its way up.

    Attributes:
        following: x[k+1].
        second: x[k+2].
        health: 0, or NaN after an unknown that is not finite.
    """

    following: Any
    second: Any
    health: Any


class Steps(NamedTuple):
    """Device functions for one dtype and one method.

    Attributes:
        open: (raw) -> State after the first equation.
        down: (state, raw, pivots, at, room) -> State; the pivot is written from `at` on.
        turn: (state) -> Known, of the last unknown.
        up: (known, pivot) -> Known.
        pivot: (pivots, at, room) -> what `down` wrote.
        healthy: (raw) -> 0, or NaN if one of its numbers is not finite.
        keeps: numbers of a pivot.
    """

    open: Callable[..., Any]
    down: Callable[..., Any]
    turn: Callable[..., Any]
    up: Callable[..., Any]
    pivot: Callable[..., Any]
    healthy: Callable[..., Any]
    keeps: int


def place(plan: Any, array: Any, outer: Any, inner: Any, k: Any) -> Any:
    """Where an array has the number of unknown k."""
    at = STRIDES + array
    begin = outer * plan[at] + inner * plan[at + 2 * ARRAYS]
    return begin + k * plan[at + ARRAYS]


def report(matrix_health: Any, health: Any, number: Any, status: Any, failed: Any) -> Any:
    """Write a system's `Status`, from `State.health` and `Known.health`, if it is not solved."""
    if health != 0:  # as NaN is
        status[number] = SINGULAR if matrix_health == 0 else NOT_FINITE
        failed[0] = 1


@functools.cache
def make_steps(dtype: Any, pivoting: bool) -> Steps:
    """The functions; without pivoting a pivot never holds x[k+2]."""
    scale = device_step(scaled, dtype)
    free = device_step(eliminate, dtype, None if pivoting else IN_ORDER)
    find = device_step(substitute, dtype)
    zero, one = dtype(0.0), dtype(1.0)

    def healthy(raw: Any) -> Any:
        """0, or NaN: of all numbers, one minus itself."""
        matrix = (raw.lower - raw.lower) + (raw.diagonal - raw.diagonal)
        return matrix + (raw.upper - raw.upper) + (raw.rhs - raw.rhs)

    def open_(raw: Any) -> Any:
        first = scale(raw.lower, raw.diagonal, raw.upper, raw.rhs)
        return State(Pending(first.diagonal, first.upper, first.rhs), healthy(raw))

    def down(state: Any, raw: Any, pivots: Any, at: Any, room: Any) -> Any:
        equation = scale(raw.lower, raw.diagonal, raw.upper, raw.rhs)
        pivot, pending = free(state.pending, equation, one)
        pivots[at] = pivot.upper
        pivots[at + room] = pivot.rhs
        if pivoting:
            pivots[at + 2 * room] = pivot.second
        return State(pending, state.health + healthy(raw))

    def turn(state: Any) -> Any:
        x = state.pending.rhs / state.pending.diagonal
        return Known(x, zero, x - x)

    def pivot(pivots: Any, at: Any, room: Any) -> Any:
        second = pivots[at + 2 * room] if pivoting else zero
        return Pivot(pivots[at], second, pivots[at + room])

    def up(known: Any, pivot: Any) -> Any:
        x = find(pivot, known.following, known.second)
        return Known(x, known.following, known.health + (x - x))

    return Steps(open_, down, turn, up, pivot, healthy, 3 if pivoting else 2)
