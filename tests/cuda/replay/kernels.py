"""The kernels of replay, for `ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlcpu.cuda.replay import (
    distinct,
    draw,
    mixer,
    n_step,
    rows,
    trajectory,
    upkeep,
    value_kernels,
)

_LEAVES, _ITEMS, _STAMPS = "float64[::1]", "int64[::1]", "int32[::1]"
_SIZES = "int64, int64, int64"


def jobs() -> Iterator[tuple[str, Any, str]]:
    """Name, kernel, types of its arguments."""
    for name in ("float32", "float64"):
        pairs = f"{_ITEMS}, {name}[::1], int64"
        kind = "single" if name == "float32" else "double"
        limits = f"int64, int64, float64, {_STAMPS}, {_ITEMS}"
        yield f"claim_{kind}", upkeep.claim_kernel(), f"{pairs}, {limits}"
        written = f"{_STAMPS}, {_ITEMS}, {_LEAVES}, {_LEAVES}"
        yield f"write_{kind}", upkeep.write_kernel(), f"{pairs}, {written}"
        power = f"{name}[::1], float64, float64, {_LEAVES}"
        yield f"raise_{kind}", upkeep.raise_kernel(), power
    some = f"{_ITEMS}, int64, {_ITEMS}, int64, {_LEAVES}"
    yield "refresh_some", upkeep.refresh_some_kernel(), some
    yield "refresh_all", upkeep.refresh_all_kernel(), f"{_ITEMS}, int64, {_LEAVES}"
    finish = f"{_ITEMS}, int64, {_LEAVES}, {_ITEMS}, {_LEAVES}"
    yield "finish", upkeep.finish_kernel(), finish
    yield "fill", upkeep.fill_kernel(), f"int64, int64, int64, int64, {_LEAVES}, {_LEAVES}"
    yield "extremes", upkeep.extremes_kernel(), f"{_LEAVES}, int64, {_LEAVES}"
    yield from _values()
    yield from _buffers()
    stream = "uint64, uint64, boolean"
    yield "draw", draw.draw_kernel(), f"{_LEAVES}, {_ITEMS}, {stream}, {_ITEMS}"
    yield "take", draw.take_kernel(), f"{_LEAVES}, {_ITEMS}, {_LEAVES}"
    weigh = f"{_LEAVES}, {_ITEMS}, float64"
    probe = f"{weigh}, {_LEAVES}, {_LEAVES}"
    yield "probabilities", draw.probabilities_kernel(), probe
    weights = f"{_LEAVES}, {_ITEMS}, float32, {_LEAVES}, float32[::1]"
    yield "weights", draw.weights_kernel(), weights
    yield "draw_items", rows.draw_items_kernel(), f"uint64, uint64, {_SIZES}, int64, {_ITEMS}"
    for bits in (8, 16, 32):
        words = f"uint{bits}[::1]"
        written = f"{words}, {_SIZES}, int64, int64, {words}"
        yield f"write_rows_{bits}", rows.write_rows_kernel(), written
        gathered = f"{words}, {_ITEMS}, int64, {words}"
        yield f"gather_{bits}", rows.gather_kernel(), gathered
        sequences = f"{words}, {_ITEMS}, {_SIZES}, {words}"
        joined = f"{words}, {_SIZES}, {words}"
        yield f"join_{bits}", mixer.join_kernel(), joined
        yield f"gather_steps_{bits}", rows.gather_steps_kernel(), sequences
    yield "stamp", distinct.stamp_kernel(), f"{_LEAVES}, {_ITEMS}, {_STAMPS}"
    compact = f"{_ITEMS}, {_STAMPS}, {_ITEMS}, {_ITEMS}"
    yield "compact", distinct.compact_kernel(), compact
    yield "exchange", distinct.exchange_kernel(), f"{_LEAVES}, {_ITEMS}, {_LEAVES}"
    yield "release", distinct.release_kernel(), f"{_ITEMS}, {_STAMPS}"


def _values() -> Iterator[tuple[str, Any, str]]:
    """The kernels of trees of values."""
    for name in ("float32", "float64"):
        kind, given = "single" if name == "float32" else "double", f"{name}[::1]"
        bounds = f"{given}, float64, float64, {_ITEMS}"
        yield f"outside_{kind}", value_kernels.outside_kernel(), bounds
        yield f"magnitudes_{kind}", value_kernels.magnitudes_kernel(), f"{given}, {_LEAVES}"
        run = f"{given}, {_SIZES}, int64, {_LEAVES}"
        yield f"write_run_{kind}", value_kernels.write_run_kernel(), run
    run = f"{_ITEMS}, {_SIZES}, float64, {_LEAVES}"
    yield "refresh_run", value_kernels.refresh_run_kernel(), run
    above = f"{_ITEMS}, int64, {_ITEMS}, int64, float64, {_LEAVES}"
    yield "refresh_above", value_kernels.refresh_above_kernel(), above
    finish = f"{_ITEMS}, int64, float64, float64, {_LEAVES}, {_ITEMS}, {_LEAVES}"
    yield "finish_values", value_kernels.finish_values_kernel(), finish
    drawn = f"{_LEAVES}, {_ITEMS}, float64, float64, uint64, uint64, {_ITEMS}"
    yield "draw_values", value_kernels.draw_values_kernel(), drawn
    stamped = f"{_LEAVES}, float64, float64, {_ITEMS}, {_STAMPS}"
    yield "stamp_values", value_kernels.stamp_values_kernel(), stamped


def _buffers() -> Iterator[tuple[str, Any, str]]:
    """The kernels of sequences and of n-step returns."""
    for name in ("float32", "float64"):
        kind, given = "single" if name == "float32" else "double", f"{name}[::1]"
        powers = f"{_ITEMS}, {given}, float64, float64, {_SIZES}, {_LEAVES}"
        yield f"raise_there_{kind}", trajectory.raise_there_kernel(), powers
        columns = f"{given}, uint8[::1], uint8[::1], {_ITEMS}"
        ahead = f"{columns}, {_SIZES}, float64, {given}, float32[::1], {_ITEMS}"
        yield f"look_ahead_{kind}", n_step.look_ahead_kernel(), ahead
