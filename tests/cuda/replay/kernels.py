"""The kernels of replay, for `ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlcpu.cuda import replay, trees
from rlcpu.replay.checks import LeafRule
from rlcpu.replay.items import ReturnSettings

_LEAVES, _ITEMS = "float64[::1]", "int64[::1]"
_TREE = trees.TreeMemory, _LEAVES, _ITEMS, "float64"
_CLAIMS = trees.Claims, f"int32[::1], {_ITEMS}, {_LEAVES}, {_LEAVES}"
_RULE = (
    LeafRule,
    "int64, float64, float64, int64, int64, int64, int64",
    "boolean, float64, float64",
)
_STREAM = "uint64, uint64"


def jobs() -> Iterator[tuple[Any, ...]]:
    """Name, kernel, types of its arguments."""
    for name, dtype in (("singles", "float32"), ("doubles", "float64")):  # leaves are doubles
        given = f"{_ITEMS}, {dtype}[::1]"
        yield f"claim by {name}", trees.claim, given, _RULE, _CLAIMS, _ITEMS
    run = trees.NewItems, "int64, int64, int64, int64"
    yield "claim_run", trees.claim_run, run, _LEAVES, _CLAIMS
    yield "apply_claims", trees.apply_claims, _TREE, _CLAIMS, "boolean"
    yield "summarise", trees.summarise, _TREE, _LEAVES
    request = trees.DrawRequest, f"{_STREAM}, boolean, boolean, boolean"
    yield "draw", trees.draw, _TREE, request, f"{_ITEMS}, {_ITEMS}, {_LEAVES}, {_LEAVES}"
    yield (
        "write_importance_weights",
        trees.write_importance_weights,
        _TREE,
        f"{_ITEMS}, {_LEAVES}, float32, float32[::1]",
    )
    items = "int64, int64, int64, int64"
    yield "draw_items", replay.draw_items_kernel, f"{_STREAM}, {items}, {_ITEMS}"
    yield "follow", replay.follow_kernel, f"{_ITEMS}, int64, {_ITEMS}"
    for name in ("float32", "float64"):
        kind = "single" if name == "float32" else "double"
        columns = f"Tuple(({name}[::1], uint8[::1], uint8[::1]))"
        settings = ReturnSettings, "int64", "int64", "int64", "float64"
        ahead = f"{columns}, {_ITEMS}", settings, f"{_LEAVES}, float32[::1], {_ITEMS}"
        yield f"look_ahead_{kind}", replay.look_ahead_kernel, *ahead
