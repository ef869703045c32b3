"""The sum tree on the device: the CPU's, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda import trees as module
from rlcpu.cuda.device import asarray, to_host
from rlcpu.replay import SumTree
from tests.cuda.compare import equal

pytestmark = pytest.mark.device

#: One node, two levels, several levels with padding.
CAPACITIES = [3, 70, 150]


def pairs(capacity: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices that come again, and priorities of which some are zero."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    return rng.integers(0, capacity, count), rng.random(count) * (rng.random(count) < 0.7)


def filled(capacity: int, rounds: int = 2) -> tuple[SumTree, SumTree]:
    host, tree = SumTree(capacity, seed=1), SumTree(capacity, seed=1, device="cuda")
    for seed in range(rounds):
        host.update(*pairs(capacity, seed))
        tree.update(*pairs(capacity, seed))
    return host, tree


@pytest.mark.parametrize("few", [0, module._FEW])
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_sums(capacity: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", few)  # level by level, or one block
    host, tree = filled(capacity)
    assert equal(tree.leaves, host.leaves)
    assert equal(tree._tree.numbers, host._tree.numbers[: tree._tree.numbers.size])
    assert (tree.total, tree.min, tree.max) == (host.total, host.min, host.max)
    assert not to_host(tree._tree.stamps).any()


def test_leaves_followed_up_and_whole_levels_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 0)
    host, _ = filled(150)
    for choice in (True, False):
        monkeypatch.setattr(module, "wants_all", lambda count, entries, choice=choice: choice)
        _, tree = filled(150)
        assert equal(tree._tree.numbers, host._tree.numbers[: tree._tree.numbers.size])


@pytest.mark.parametrize("options", [{}, {"stratified": True, "seed": 5}])
@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_same_items_are_drawn(capacity: int, replace: bool, options: dict[str, Any]) -> None:
    host, tree = filled(capacity)
    positive = int(np.count_nonzero(host.leaves))
    for size in (33,) if replace else (1, positive):
        expected = host.sample(size, replace=replace, **options)
        assert equal(tree.sample(size, replace=replace, **options), expected)
    assert equal(tree.leaves, host.leaves)
    assert not to_host(tree._tree.stamps).any()


def test_zero_is_never_drawn() -> None:
    priorities = np.where(np.arange(100) % 7, 0.0, 1e-300)
    priorities[49] = 1e300  # between its share and the next one there are gaps
    tree = SumTree(100, seed=0, device="cuda")
    tree.update(np.arange(100), priorities)
    drawn = to_host(tree.sample(200, stratified=True))
    assert (priorities[drawn] > 0).all()


def test_the_last_of_equal_indices_counts() -> None:
    tree = SumTree(10, device="cuda")
    tree.update(np.array([3, 5, 3, 3]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert to_host(tree[[3, 5]]).tolist() == [4.0, 2.0]
    assert tree.total == 6.0


def test_arrays_of_the_device() -> None:
    tree = SumTree(10, device="cuda")
    tree.update(asarray([1, 2]), asarray([1.0, 3.0], np.float32))
    tree.update(asarray([4, 5]), 0.5)
    assert to_host(tree.leaves).tolist() == [0, 1, 3, 0, 0.5, 0.5, 0, 0, 0, 0]


def test_runs_of_items() -> None:
    host, tree = SumTree(12), SumTree(12, device="cuda")
    for begin, end in ((0, 3), (3, 5), (5, 12)):
        host._tree.write_runs(3, begin, end, np.array([float(end)]))
        tree._tree.write_runs(3, begin, end, float(end))
    assert equal(tree.leaves, host.leaves)
    assert tree.total == host.total


BAD = [
    ([0, 70], 1.0, IndexError, "70 is out of range"),
    ([-1, 0], 1.0, IndexError, "-1 is out of range"),
    ([0, 1], [1.0, np.nan], ValueError, "nan for index 1"),
    ([0], -1.0, ValueError, "-1.0 for index 0"),
    ([0], np.inf, ValueError, "inf for index 0"),
    ([0, 1], [1.0], ValueError, "priorities: expected shape"),
    ([0.5], 1.0, TypeError, "indices: expected whole numbers"),
]


@pytest.mark.parametrize("where", [np.array, asarray])
@pytest.mark.parametrize(("indices", "priorities", "error", "message"), BAD)
def test_bad_input_changes_nothing(
    indices: Any, priorities: Any, error: type[Exception], message: str, where: Any
) -> None:
    _, tree = filled(70)
    before = to_host(tree._tree.numbers)
    with pytest.raises(error, match=message):
        tree.update(where(indices), where(priorities) if np.ndim(priorities) else priorities)
    assert equal(tree._tree.numbers, before)
    assert not to_host(tree._tree.stamps).any()
    tree.update([0], 1.0)
    assert to_host(tree[[0]]).tolist() == [1.0]


def test_bad_indices_are_not_read() -> None:
    _, tree = filled(70)
    with pytest.raises(IndexError, match="70 is out of range"):
        tree[[3, 70]]
    assert not to_host(tree._tree.stamps).any()


def test_nothing_to_draw() -> None:
    tree = SumTree(10, seed=0, device="cuda")
    with pytest.raises(ValueError, match="the total is 0"):
        tree.sample(2)
    tree.update([1, 2], 1.0)
    with pytest.raises(ValueError, match="expected at most 2"):
        tree.sample(3, replace=False)
    assert sorted(to_host(tree.sample(2, replace=False))) == [1, 2]
