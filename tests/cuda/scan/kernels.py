"""The kernels of scans, for `ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcpu.cuda.scan import recurrence_kernels
from rlcpu.cuda.scan.linear import linear_drivers
from rlcpu.cuda.scan.logcumsumexp import exponential_drivers, lane_kernel
from rlcpu.cuda.scan.tridiagonal_columns import column_kernel
from rlcpu.cuda.scan.tridiagonal_rings import ring_kernel
from rlcpu.cuda.scan.tridiagonal_rows import row_kernel
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
        systems = [*[real] * 4, whole, whole, real, real, "int8[::1]", "int32[::1]"]
        for word, pivoting in (("pivot", True), ("thomas", False)):
            for layout, make in LAYOUTS:
                yield f"{word}_{layout}_{name}", make(dtype, pivoting), ", ".join(systems)
        totals, scan = linear_drivers(dtype)
        inputs = ", ".join([real] * 3)
        yield f"linear_totals_{name}", totals, f"{inputs}, {_SIZES}, {real}"
        yield f"linear_rows_{name}", scan, f"{inputs}, {_SIZES}, {real}, {real}"
    # They compute in float64, whatever they read.
    totals, scan = exponential_drivers()
    for name, real in (("single", "float32[::1]"), ("double", "float64[::1]")):
        inputs = ", ".join([real] * 3)
        yield f"logcumsumexp_totals_{name}", totals, f"{inputs}, {_SIZES}, float64[::1]"
        yield f"logcumsumexp_rows_{name}", scan, f"{inputs}, {_SIZES}, float64[::1], {real}"
        yield f"logcumsumexp_lanes_{name}", lane_kernel(), f"{real}, int64, int64, boolean, {real}"
