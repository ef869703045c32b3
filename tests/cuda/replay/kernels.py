"""The kernels of replay, for `ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlcpu.cuda.replay import distinct, draw, storage, upkeep

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
    stream = "uint64, uint64, boolean"
    yield "draw", draw.draw_kernel(), f"{_LEAVES}, {_ITEMS}, {stream}, {_ITEMS}"
    yield "take", draw.take_kernel(), f"{_LEAVES}, {_ITEMS}, {_LEAVES}"
    weigh = f"{_LEAVES}, {_ITEMS}, float64"
    probe = f"{weigh}, {_LEAVES}, {_LEAVES}"
    yield "probabilities", draw.probabilities_kernel(), probe
    weights = f"{_LEAVES}, {_ITEMS}, float32, {_LEAVES}, float32[::1]"
    yield "weights", draw.weights_kernel(), weights
    yield "draw_items", storage.draw_items_kernel(), f"uint64, uint64, {_SIZES}, {_ITEMS}"
    for bits in (8, 16, 32):
        words = f"uint{bits}[::1]"
        rows = f"{words}, {_SIZES}, int64, int64, {words}"
        yield f"write_rows_{bits}", storage.write_rows_kernel(), rows
        gathered = f"{words}, {_ITEMS}, int64, {words}"
        yield f"gather_{bits}", storage.gather_kernel(), gathered
    yield "stamp", distinct.stamp_kernel(), f"{_LEAVES}, {_ITEMS}, {_STAMPS}"
    compact = f"{_ITEMS}, {_STAMPS}, {_ITEMS}, {_ITEMS}"
    yield "compact", distinct.compact_kernel(), compact
    yield "exchange", distinct.exchange_kernel(), f"{_LEAVES}, {_ITEMS}, {_LEAVES}"
    yield "release", distinct.release_kernel(), f"{_ITEMS}, {_STAMPS}"
