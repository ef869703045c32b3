"""The model of what a hop costs: its fit, and measuring without another process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches import hops  # noqa: E402
from rlcpu.distributed import ReplayShard  # noqa: E402
from rlcpu.replay import PrioritizedReplayBuffer  # noqa: E402


def test_latency_and_bandwidth_are_found():
    cost = hops.Cost(latency=1e-3, store=2e-3, bandwidth=2e9)
    found = hops.fit({size: cost(size) for size in (1e3, 1e4, 1e5, 1e6, 1e7)})
    assert found == pytest.approx(cost)
    assert str(found) == "1.0 ms (+ 2.0 ms in the store) + bytes / (2.0 GB/s)"
    # Errors count in proportion: a large call that takes a tenth longer hides no latency.
    points = {size: cost(size) for size in (1e3, 1e4, 1e6, 1e8)} | {1e9: 1.1 * cost(1e9)}
    assert hops.fit(points)(1e3) == pytest.approx(1e-3, rel=0.1)


def test_each_size_is_added_and_drawn(monkeypatch):
    monkeypatch.setattr(hops, "COUNTS", (1, 8))
    options = {"capacity": 16, "example": hops.EXAMPLE}
    shard = ReplayShard(PrioritizedReplayBuffer, options)
    found = hops.measure(hops.Here(shard))
    assert {name: set(of_size) for name, of_size in found.items()} == {
        name: {hops.ITEM_BYTES, 8 * hops.ITEM_BYTES} for name in ("add", "draw")
    }
    assert shard.status().added == 9 * hops.ROUNDS
