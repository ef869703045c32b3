"""The kernels of scans, for `ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcpu.cuda.scan import recurrence_kernels
from rlcpu.cuda.scan.factor_kernels import column_solver, factor_kernel, row_solver
from rlcpu.cuda.scan.gradient_kernels import (
    decay_kernel,
    fold_kernel,
    linear_kernel,
    shift_kernel,
    tridiagonal_kernel,
    weigh_kernel,
)
from rlcpu.cuda.scan.linear import linear_drivers
from rlcpu.cuda.scan.logcumsumexp import exponential_drivers, lane_kernel
from rlcpu.cuda.scan.tridiagonal_chunks import expand_kernel, reduce_kernel
from rlcpu.cuda.scan.tridiagonal_columns import column_kernel
from rlcpu.cuda.scan.tridiagonal_error_kernels import (
    gather_kernel,
    improve_kernel,
    judge_kernel,
    residual_kernel,
)
from rlcpu.cuda.scan.tridiagonal_joins import close_kernel, join_kernel, part_kernel
from rlcpu.cuda.scan.tridiagonal_rings import ring_kernel
from rlcpu.cuda.scan.tridiagonal_rows import row_kernel
from rlcpu.cuda.scan.window_kernels import window_kernel
from rlcpu.scan.recurrences.linear import LINEAR
from rlcpu.scan.recurrences.off_policy import RETRACE, VTRACE
from rlcpu.scan.recurrences.returns import ADVANTAGES, LAMBDA_RETURNS, RETURNS

RULES = {
    "discounted_returns": RETURNS,
    "gae": ADVANTAGES,
    "lambda_returns": LAMBDA_RETURNS,
    "linear_scan": LINEAR,
    "retrace": RETRACE,
    "vtrace": VTRACE,
}
LAYOUTS = ("columns", column_kernel), ("rings", ring_kernel), ("rows", row_kernel)
_SIZES = "int64, int64, int64, boolean"


def jobs() -> Iterator[tuple[str, Any, str]]:
    """Name, kernel, types of its arguments."""
    for dtype in (np.float32, np.float64):
        name = dtype.__name__
        real, flags, whole = f"{name}[::1]", "boolean[::1]", "int64[::1]"
        steps = [real, real, flags, flags, *[real] * 5]
        arguments = ", ".join([*steps, real, real, real, whole, real, real])
        for word, rule in RULES.items():
            yield f"{word}_{name}", recurrence_kernels.lane_kernel(rule, dtype), arguments
        arguments = ", ".join([*steps, real, real, whole, "int64", real])
        yield f"nstep_returns_{name}", window_kernel(LAMBDA_RETURNS, dtype), arguments
        systems = [*[real] * 4, whole, whole, real, real, "int8[::1]", "int32[::1]"]
        for word, pivoting in (("pivot", True), ("thomas", False)):
            for layout, make in LAYOUTS:
                yield f"{word}_{layout}_{name}", make(dtype, pivoting), ", ".join(systems)
        yield from _checks(dtype, real, whole)
        yield from _gradients(dtype, real, whole)
        marks = "int8[::1], int32[::1]"
        yield (
            f"factor_{name}",
            factor_kernel(dtype),
            f"{real}, {real}, {real}, {whole}, {real}, {marks}",
        )
        for layout, solver in (("columns", column_solver), ("rows", row_solver)):
            arguments = f"{real}, {real}, {whole}, {real}, {marks}"
            yield f"factored_{layout}_{name}", solver(dtype), arguments
        totals, scan = linear_drivers(dtype)
        inputs = ", ".join([real] * 3)
        yield f"linear_totals_{name}", totals, f"{inputs}, {_SIZES}, {real}"
        yield f"linear_rows_{name}", scan, f"{inputs}, {_SIZES}, {real}, {real}"
    yield from _long()
    # They compute in float64, whatever they read.
    totals, scan = exponential_drivers()
    for name, real in (("single", "float32[::1]"), ("double", "float64[::1]")):
        inputs = ", ".join([real] * 3)
        yield f"logcumsumexp_totals_{name}", totals, f"{inputs}, {_SIZES}, float64[::1]"
        yield f"logcumsumexp_rows_{name}", scan, f"{inputs}, {_SIZES}, float64[::1], {real}"
        yield f"logcumsumexp_lanes_{name}", lane_kernel(), f"{real}, int64, int64, boolean, {real}"


def _checks(dtype: Any, real: str, whole: str) -> Iterator[tuple[str, Any, str]]:
    name = dtype.__name__
    five = ", ".join([real] * 5)
    yield (
        f"residual_{name}",
        residual_kernel(dtype),
        f"{five}, {whole}, {whole}, boolean, {real}, {real}",
    )
    yield f"judge_{name}", judge_kernel(dtype), f"{real}, {real}, int8[::1], int32[::1]"
    yield f"gather_{name}", gather_kernel(dtype), f"{real}, int64, {whole}, {whole}, {real}"
    yield f"improve_{name}", improve_kernel(dtype), f"{real}, {whole}, {whole}, {real}"


def _gradients(dtype: Any, real: str, whole: str) -> Iterator[tuple[str, Any, str]]:
    name, sizes = dtype.__name__, "int64, int64"
    three = ", ".join([real] * 3)
    yield f"fold_{name}", fold_kernel(dtype), f"{real}, {sizes}, {real}"
    yield f"shift_{name}", shift_kernel(dtype), f"{real}, {sizes}, {whole}, int64, {real}"
    arguments = f"{real}, {real}, {sizes}, {three}"
    yield f"tridiagonal_gradients_{name}", tridiagonal_kernel(dtype), arguments
    arguments = f"{three}, {real}, {sizes}, {whole}, int64, {real}, {real}"
    yield f"linear_gradients_{name}", linear_kernel(dtype), arguments
    yield f"decay_{name}", decay_kernel(dtype), f"{real}, {sizes}, int64, {real}"
    yield f"weigh_{name}", weigh_kernel(dtype), three


def _long() -> Iterator[tuple[str, Any, str]]:
    """What chunks leave is float64, whatever the systems are."""
    whole, mark, wide = "int64[::1]", "int8[::1]", "float64[::1]"
    for name, dtype in (("single", np.float32), ("double", np.float64)):
        real = f"{dtype.__name__}[::1]"
        given = ", ".join([*[real] * 4, whole, whole, whole, wide])
        for word, pivoting in (("pivot", True), ("thomas", False)):
            reduce, expand = reduce_kernel(dtype, pivoting), expand_kernel(dtype, pivoting)
            yield f"{word}_reduce_{name}", reduce, f"{given}, {mark}"
            arguments = f"{given}, {real}, {mark}, {real}, {mark}, int32[::1]"
            yield f"{word}_expand_{name}", expand, arguments
    yield "join", join_kernel(), f"{wide}, int64, int64, {wide}, {wide}"
    yield "close", close_kernel(), f"{wide}, {wide}"
    yield "part", part_kernel(), f"{wide}, {wide}, int64, int64, {wide}"
