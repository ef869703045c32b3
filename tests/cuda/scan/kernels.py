"""The kernels of scans, for `ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcpu.cuda.recurrences import (
    lane_kernel,
    linear_kernel,
    sums_kernel,
    sums_lane_kernel,
    window_kernel,
)
from rlcpu.cuda.tridiagonal import solve_kernel
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
WHOLE, MARK, FLAGS = "int64[::1]", "int32[::1]", "uint8[::1]"


def jobs() -> Iterator[tuple[str, Any, str]]:
    """Name, kernel, types of its arguments."""
    for dtype in (np.float32, np.float64):
        name = dtype.__name__
        real = f"{name}[::1]"
        inputs = [real, real, FLAGS, FLAGS, *[real] * 7]
        lanes = ", ".join([*inputs, real, WHOLE, MARK, real, real])
        for word, rule in RULES.items():
            yield f"{word}_{name}", lane_kernel(rule, dtype), lanes
        yield f"nstep_returns_{name}", window_kernel(LAMBDA_RETURNS, dtype), lanes
        yield f"linear_rows_{name}", linear_kernel(dtype), rows(real, real)
        systems = ", ".join([*[real] * 4, WHOLE, WHOLE, real, real, "int8[::1]"])
        for word, pivoting in (("pivot", True), ("thomas", False)):
            yield f"{word}_{name}", solve_kernel(dtype, pivoting), systems
    # They compute in float64, whatever they read.
    for name, real in (("single", "float32[::1]"), ("double", "float64[::1]")):
        yield f"logcumsumexp_rows_{name}", sums_kernel(), rows(real, "float64[::1]")
        yield f"logcumsumexp_lanes_{name}", sums_lane_kernel(), f"{real}, {WHOLE}, {real}"


def rows(real: str, state: str) -> str:
    """Types of the arguments of `row_kernel`'s drivers."""
    return f"{', '.join([real] * 3)}, {WHOLE}, int64, int64, boolean, {state}, {MARK}, {real}"
