"""The kernels of replay, for `ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlcpu.cuda import replay, trees
from rlcpu.replay.items import ReturnSettings

_LEAVES, _ITEMS, _STAMPS = "float64[::1]", "int64[::1]", "int32[::1]"
_TREE = trees.TreeMemory, _LEAVES, _ITEMS, "float64"
_STREAM = "uint64, uint64"


def jobs() -> Iterator[tuple[Any, ...]]:
    """Name, kernel, types of its arguments."""
    yield "claim", trees.claim, f"{_ITEMS}, {_STAMPS}"
    yield "write", trees.write, f"{_ITEMS}, {_LEAVES}, {_STAMPS}, {_LEAVES}"
    yield "refresh_level", trees.refresh_level, _TREE, f"int64, boolean, int64, {_ITEMS}"
    yield "refresh_top", trees.refresh_top, _TREE, "int64"
    yield "summarise", trees.summarise, _TREE, _LEAVES
    yield "draw", trees.draw, _TREE, f"{_STREAM}, boolean, boolean, {_ITEMS}"
    items = "int64, int64, int64, int64"
    yield "draw_items", replay.draw_items_kernel, f"{_STREAM}, {items}, {_ITEMS}"
    for name in ("float32", "float64"):
        kind = "single" if name == "float32" else "double"
        columns = f"Tuple(({name}[::1], uint8[::1], uint8[::1]))"
        settings = ReturnSettings, "int64", "int64", "int64", "float64"
        ahead = f"{columns}, {_ITEMS}", settings, f"{_LEAVES}, float32[::1], {_ITEMS}"
        yield f"look_ahead_{kind}", replay.look_ahead_kernel, *ahead
