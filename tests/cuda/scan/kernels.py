"""The kernels of scans, for `ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcpu.cuda.chunks import (
    Grouping,
    close_kernel,
    expand_kernel,
    join_kernel,
    reduce_kernel,
    spread_kernel,
)
from rlcpu.cuda.equations import DeviceSystems, PlainEquation, way_of
from rlcpu.cuda.recurrences import (
    AHEAD,
    DeviceStrided,
    LaneInputs,
    LaneSizes,
    lane_kernel,
    linear_kernel,
    sums_kernel,
    sums_lane_kernel,
    window_kernel,
)
from rlcpu.cuda.tridiagonal import solve_kernel
from rlcpu.scan.recurrences.rules import (
    ADVANTAGES,
    LAMBDA_RETURNS,
    LINEAR,
    RETRACE,
    RETURNS,
    VTRACE,
    Step,
)
from rlcpu.scan.tridiagonal.plans import Cut

RULES = {
    "discounted_returns": RETURNS,
    "gae": ADVANTAGES,
    "lambda_returns": LAMBDA_RETURNS,
    "linear_scan": LINEAR,
    "retrace": RETRACE,
    "vtrace": VTRACE,
}
SIZES, FLAGS = (LaneSizes, "int64, int64, int64"), "uint8[::1]"


def strided(memory: str) -> tuple[Any, ...]:
    return DeviceStrided, memory, "int64, int64, int64"


def jobs() -> Iterator[tuple[Any, ...]]:
    """Name, kernel, types of its arguments."""
    for dtype in (np.float32, np.float64):
        name = dtype.__name__
        real, flags, options = strided(f"{name}[::1]"), strided(FLAGS), f"UniTuple({name}, 3)"
        steps = (Step, real, real, flags, flags, *[real] * 5)
        inputs = LaneInputs, steps, real, real, options
        # Rules differ in a few operations: in float64, one speaks for all.
        for word, rule in RULES.items() if dtype is np.float32 else [("gae", ADVANTAGES)]:
            lanes = SIZES, "int64, int32[::1]", real, real
            yield f"{word}_{name}", lane_kernel(rule, dtype, AHEAD), inputs, *lanes
        window = window_kernel(LAMBDA_RETURNS, dtype)
        yield f"nstep_returns_{name}", window, inputs, SIZES, "int64", real
        yield f"linear_rows_{name}", linear_kernel(dtype), *scan_types(real)
        systems = DeviceSystems, (PlainEquation, *[real] * 4), SIZES, name
        solve = systems, f"int64, int64[::1], {name}[::1]", real, "int8[::1], int64[::1]"
        for word, pivoting in (("pivot", True), ("thomas", False)):
            for lie, rows in (("rows", True), ("columns", False)):
                driver = solve_kernel(dtype, pivoting, way_of(rows, dtype))
                yield f"{word}_{lie}_{name}", driver, *solve
        numbers, cut = f"{name}[::1]", (Cut, "int64, int64")
        for lie, rows in (("rows", True), ("columns", False))[: 1 + (dtype is np.float64)]:
            way = way_of(rows, dtype)
            yield f"reduce_{lie}_{name}", reduce_kernel(dtype, way), systems, cut, numbers
            expand = systems, cut, f"int64, {numbers}, {numbers}", real, "int32[::1], int64[::1]"
            yield f"expand_{lie}_{name}", expand_kernel(dtype, way), *expand
    # They compute in float64, whatever they read.
    for name, memory in (("single", "float32[::1]"), ("double", "float64[::1]")):
        real = strided(memory)
        grouping = (Grouping, "int64, int64, int64"), "float64[::1]"
        yield f"join_{name}", join_kernel(), memory, *grouping, "float64[::1]"
        yield f"close_{name}", close_kernel(), memory, *grouping, memory
        yield f"spread_{name}", spread_kernel(), "float64[::1]", *grouping, memory
        yield f"logcumsumexp_rows_{name}", sums_kernel(), *scan_types(real)
        yield f"logcumsumexp_lanes_{name}", sums_lane_kernel(), real, SIZES, "int64", real


def scan_types(real: Any) -> tuple[Any, ...]:
    """Types of the arguments of `row_kernel`'s drivers."""
    return real, real, real, SIZES, "int64, int32[::1]", real
