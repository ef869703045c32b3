"""Drivers of the backward errors of tridiagonal systems, and of what refines a few of them."""

from __future__ import annotations

import functools
from typing import Any

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.steps import device_step
from rlcpu.cuda.scan.tridiagonal_steps import (
    INNER,
    LENGTH,
    OUT,
    OUTER,
    OWN_LENGTHS,
    Raw,
    place,
)
from rlcpu.scan.tridiagonal.equations import backward_error, lacking, scaled
from rlcpu.scan.tridiagonal.status import Status

_SOLVED, _INACCURATE = int(Status.SOLVED), int(Status.INACCURATE)


def _make_look(dtype: Any) -> Any:
    """Function: residual and backward error of equation k of a system of `stop` ones."""
    scale, rest = device_step(scaled, dtype), device_step(lacking, dtype)
    error, zero = device_step(backward_error, dtype), dtype(0.0)

    def look(arrays: Any, x: Any, plan: Any, spot: Any, periodic: Any) -> Any:
        outer, inner, k, stop = spot
        low, high = k > 0 or periodic, k + 1 < stop or periodic
        before, after = k - 1 if k > 0 else stop - 1, k + 1 if k + 1 < stop else 0
        raw = Raw(
            arrays.lower[place(plan, 0, outer, inner, k)] if low else zero,
            arrays.diagonal[place(plan, 1, outer, inner, k)],
            arrays.upper[place(plan, 2, outer, inner, k)] if high else zero,
            arrays.rhs[place(plan, 3, outer, inner, k)],
        )
        around = (
            x[place(plan, OUT, outer, inner, before)] if low else zero,
            x[place(plan, OUT, outer, inner, k)],
            x[place(plan, OUT, outer, inner, after)] if high else zero,
        )
        lack = rest(raw.lower, raw.diagonal, raw.upper, raw.rhs, around)
        return lack, error(scale(raw.lower, raw.diagonal, raw.upper, raw.rhs), around)

    return look


@functools.cache
def residual_kernel(dtype: Any) -> Any:
    """Driver: (lower, diagonal, upper, rhs, x, lengths, plan, periodic, lacking, errors).

    Residuals of all equations to `lacking`, which lies as x does; backward errors to `errors`, of
    each system, zeros before. What is not a number counts as no error. Threads next to each other
    take numbers next to each other, whatever the layout.
    """
    look, zero = _make_look(dtype), dtype(0.0)

    @kernel(dtype=dtype, exact=True)
    def check(lower, diagonal, upper, rhs, x, lengths, plan, periodic, lack, errors):
        arrays = Raw(lower, diagonal, upper, rhs)
        n, lanes = plan[LENGTH], plan[INNER]
        last, worst = 0, zero
        for number in range(cuda.grid(1), plan[OUTER] * n * lanes, cuda.gridsize(1)):
            row, inner = number // lanes, number % lanes
            outer, k = row // n, row % n
            system = outer * lanes + inner
            stop = lengths[system] if plan[OWN_LENGTHS] > 0 else n
            if system != last:  # an atomic operation only for what may be the largest
                if worst > errors[last]:
                    cuda.atomic.max(errors, last, worst)
                last, worst = system, zero
            found = zero
            if k < stop:
                found, error = look(arrays, x, plan, (outer, inner, k, stop), periodic)
                worst = error if error > worst else worst
            lack[number] = found
        if worst > errors[last]:
            cuda.atomic.max(errors, last, worst)

    return check


@functools.cache
def judge_kernel(dtype: Any) -> Any:
    """Driver: (limit, errors, status, failed): marks solved systems with errors above the limit.

    Errors of systems that are not solved become NaN. The limit is an array of one number.
    """
    nan = dtype("nan")

    @kernel(dtype=dtype, exact=True)
    def judge(limit, errors, status, failed):
        system = cuda.grid(1)
        if system < status.size:
            if status[system] != _SOLVED:
                errors[system] = nan
            elif errors[system] > limit[0]:
                status[system] = _INACCURATE
                failed[0] = 1

    return judge


@functools.cache
def gather_kernel(dtype: Any) -> Any:
    """Driver: (source, array, plan, numbers, gathered): some systems of one array, as rows."""

    @kernel(dtype=dtype, exact=True)
    def gather(source, array, plan, numbers, gathered):
        at = cuda.grid(1)
        if at < gathered.size:
            system, k = numbers[at // plan[LENGTH]], at % plan[LENGTH]
            outer, inner = system // plan[INNER], system % plan[INNER]
            gathered[at] = source[place(plan, array, outer, inner, k)]

    return gather


@functools.cache
def improve_kernel(dtype: Any) -> Any:
    """Driver: (steps, plan, numbers, out): adds rows to some systems where they are finite."""

    @kernel(dtype=dtype, exact=True)
    def improve(steps, plan, numbers, out):
        at = cuda.grid(1)
        if at < steps.size:
            system, k = numbers[at // plan[LENGTH]], at % plan[LENGTH]
            outer, inner = system // plan[INNER], system % plan[INNER]
            if steps[at] - steps[at] == 0:
                out[place(plan, OUT, outer, inner, k)] += steps[at]

    return improve
