"""The table `replay`: our contenders run without the peers, and the peers' rules are right."""

from __future__ import annotations

import operator
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.peers import (  # noqa: E402
    duel,
    replay,
    replay_calls,
    replay_held,
    replay_ours,
    replay_post,
    replay_trees,
    report,
)
from asv_benches.peers.duel import Measurement  # noqa: E402
from asv_benches.peers.timing import QUICK  # noqa: E402


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Everything of a size that is filled at once."""
    for module, name, value in (
        (replay_trees, "LEAVES", 1000),
        (replay_ours, "LEAVES", 1000),
        (replay_ours, "LENGTH", 400),
        (replay_ours, "REFRESHES", 2),
    ):
        monkeypatch.setattr(module, name, value)


def run(contender: Any, calls: int = 3) -> Any:
    contender.setup()
    contender.run(contender.inputs(np.random.default_rng(1), calls))
    return contender


@pytest.mark.parametrize("operation", ["update", "sample"])
def test_our_tree_runs(operation):
    tree = run(replay_ours.OurTree("rlcpu", operation, 32))._call.__self__
    assert len(tree) == 1000
    assert 400 < tree.total < 600


@pytest.mark.parametrize(("operation", "size"), [("add", 1600), ("sample", 256)])
@pytest.mark.parametrize("reuse", [True, False])
def test_our_buffer_runs(operation, size, reuse):
    contender = replay_ours.OurBuffer("rlcpu", operation, size, reuse=reuse, capacity=5000)
    assert len(run(contender)._buffer) == 5000


def test_our_prioritized_buffer_runs():
    run(replay_ours.OurBuffer("rlcpu", "prioritized", 256, capacity=5000))


@pytest.mark.parametrize(("operation", "size"), [("add", 2), ("sample", 256)])
def test_our_trajectory_buffer_runs(operation, size):
    run(replay_ours.OurTrajectory("rlcpu", operation, size))


def test_ours_draws_by_return():
    contender = run(replay_ours.OurPost("rlcpu", "draw", 1000))
    drawn = contender.draw(7.0)
    assert np.unique(drawn).size == drawn.size == replay_post.DRAWS


def test_numpys_draws_follow_the_post():
    contender = run(replay_post.NumpyPost("numpy", "draw", 1000))
    lowest = int(contender._values.argmin())  # of weight zero
    for value in (10.0, 20.0):
        drawn = contender.draw(value)
        assert np.unique(drawn).size == replay_post.DRAWS
        assert lowest not in drawn
    assert contender._values[3:5].tolist() == [10.0, 20.0]


def test_blocks_are_copied_to_their_places(monkeypatch):
    contender = replay_ours.CopyBlocks("copy", "copy", 2)
    contender.setup()
    inputs = contender.inputs(np.random.default_rng(0), 20)
    contender.run(inputs)
    places, blocks = zip(*inputs, strict=True)
    assert len(set(places)) > 10
    assert all(block.shape == (32, 100) for block in blocks)
    assert 0 <= min(places) <= max(places) <= 16 * 400 - 32


def test_inputs_are_fresh_every_repetition():
    rng = np.random.default_rng(0)
    contender = replay_trees.TreeCalls("tree", "update", 8)
    first, second = (contender.inputs(rng, 2) for _ in range(2))
    assert not any(np.array_equal(a[0], b[0]) for a in first for b in second)


class Grower(replay_held.BufferCalls):
    """Holds twice the bytes of the data."""

    def setup(self) -> None:
        self.memory = np.ones(2 * replay_held.data_alone(self.capacity), np.uint8)


@pytest.mark.skipif(not replay_held.STATUS.exists(), reason="no /proc")
def test_held_bytes_are_the_growth():
    held = replay_held.Held(Grower("peer", "sample", 256, capacity=40_000))(QUICK)
    assert held.peer == 813 * 40_000
    assert held.ratio == pytest.approx(2, abs=0.2)


def test_held_says_why_a_peer_has_no_figure():
    ours = Grower("ours", "sample", 256, capacity=40_000)
    held = replay_held.Held(ours, replay_held.BufferCalls("peer", "sample", 256))(QUICK)
    assert (held.peer, held.ratio) == ("failed", None)
    assert "NotImplementedError" in held.note


SECONDS = np.array([[1.0, 4.0], [2.0, 6.0], [1.0, 5.0]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(duel.Duel, (1.0, 0.2, 4.0)), (duel.TimeDuel, (1, 5, 4.0)), (duel.CostDuel, (1, 5, 0.25))],
)
def test_figures_and_ratios_of_duels(kind, expected, monkeypatch):
    class Idle(replay_calls.Calls):
        def setup(self) -> None:
            pass

    monkeypatch.setattr(duel, "interleave", lambda contenders, effort: SECONDS)
    measurement = kind(Idle("a", "", 1), Idle("b", "", 1))(QUICK)
    assert (measurement.ours, measurement.peer, measurement.ratio) == expected


def result(peer: str, ratio: float | None, what: str = "job", ranked: bool = True) -> Any:
    row = report.Row("name", what, peer, operator.abs, target=4, unit="s", ranked=ranked)
    return report.result(row, Measurement(1e-6, 1e-6, ratio))


def test_only_the_best_of_ranked_peers_counts(capsys):
    rows = [
        *(result("slow", 9.0), result("missing", None), result("fast", 3.0)),
        *(result("a", 2.0, "other", False), result("b", 1.0, "other", False)),
    ]
    assert [row["against"] for row in report.closest(rows)] == ["fast", "a", "b"]
    report.print_closest(rows)
    printed = capsys.readouterr().out
    assert "fast" in printed
    assert "NO" in printed
    assert "slow" not in printed


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [(3.14159e-6, "s", "3.14 us"), (2e-3, "s", "2 ms"), (813e6, "B", "813 MB")],
)
def test_short_times_and_bytes(value, unit, expected):
    assert report.format_figure(value, unit) == expected


def test_every_target_of_the_trees_holds_for_every_peer():
    rows = [row for row in replay.tree_rows() if row.name.startswith("tree-update-1600")]
    assert {row.against for row in rows} == {"flashbax", "torchrl", "tianshou", "cpprb"}
    assert {row.target for row in rows} == {3}
