"""The sum tree on the device: the CPU's, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import rlcpu.cuda
from rlcpu.cuda import trees
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


def assert_alike(host: SumTree, tree: SumTree) -> None:
    """Leaves and sums, bit for bit; and nothing is left over from an update."""
    assert equal(tree._tree.numbers, host._tree.numbers[: tree._tree.numbers.size])
    assert_clean(tree)


def assert_clean(tree: SumTree) -> None:
    claims = tree._tree._claims.value
    assert not to_host(claims.stamps).any()
    assert not to_host(claims.record)[1:].any()


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_sums(capacity: int) -> None:
    host, tree = filled(capacity)
    assert_alike(host, tree)
    assert (tree.total, tree.min, tree.max) == (host.total, host.min, host.max)


@given(st.data())
@settings(max_examples=8)
def test_updates_are_the_cpus_bit_for_bit(data: Any) -> None:
    """Of equal indices the last counts; blocks, levels and nodes that are full or not."""
    sizes = st.sampled_from([1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 600])
    capacity = data.draw(sizes)
    host, tree = SumTree(capacity), SumTree(capacity, device="cuda")
    for _ in range(data.draw(st.integers(1, 2))):
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        size = data.draw(st.sampled_from([1, 2, 8, 9, 20]))
        spread = data.draw(st.integers(1, capacity))  # few: the same leaf many times
        indices = rng.integers(0, spread, size)
        numbers = np.exp(rng.normal(scale=20.0, size=size)) * (rng.random(size) < 0.8)
        host.update(indices, numbers)
        where = data.draw(st.sampled_from([np.array, asarray]))
        tree.update(where(indices), where(numbers))
        assert_alike(host, tree)
        assert tree.total == host.total
    host.rebuild()
    tree.rebuild()
    assert_alike(host, tree)


@pytest.mark.parametrize("options", [{}, {"stratified": True, "seed": 5}])
@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_same_items_are_drawn(capacity: int, replace: bool, options: dict[str, Any]) -> None:
    host, tree = filled(capacity)
    positive = int(np.count_nonzero(host.leaves))
    for size in (33,) if replace else (1, positive):
        expected = host.sample(size, replace=replace, **options)
        assert equal(tree.sample(size, replace=replace, **options), expected)
    assert_alike(host, tree)


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
    tree.update(asarray([8, 0, 9], np.int32)[::2], asarray([6.0, 1.0, 7.0])[::2])
    tree.update(asarray([7], np.uint64), asarray(np.float64(2.0)))
    assert to_host(tree.leaves).tolist() == [0, 1, 3, 0, 0.5, 0.5, 0, 2, 6, 7]
    tree.update(asarray([2, 1, 0]), tree.leaves[:3])  # read before any is written
    assert to_host(tree.leaves[:3]).tolist() == [3, 1, 0]
    tree.rebuild(asarray(np.arange(10)))
    for where in (np.array, asarray):
        with pytest.raises(ValueError, match="priorities: nan at 3"):
            tree.rebuild(where([1.0, 2.0, 3.0, np.nan, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]))
    assert tree.total == 45.0


def test_runs_of_items() -> None:
    host, tree = SumTree(12), SumTree(12, device="cuda")
    for begin, end in ((0, 3), (3, 5), (5, 12)):
        host._tree.write_runs(3, begin, end, np.array([float(end)]))
        tree._tree.write_runs(3, begin, end, np.array([float(end)]))
    assert_alike(host, tree)


BAD = [
    ([0, 70], 1.0, IndexError, "70 is out of range"),
    ([-1, 0], 1.0, IndexError, "-1 is out of range"),
    ([0, 1], [1.0, np.nan], ValueError, "nan for index 1"),
    ([0], -1.0, ValueError, "-1.0 for index 0"),
    ([0], np.inf, ValueError, "inf for index 0"),
    ([0, 1], [1.0], ValueError, "priorities: expected shape"),
    ([0.5], 1.0, TypeError, "indices: expected whole numbers"),
]


@pytest.mark.parametrize(("indices", "priorities", "error", "message"), BAD)
def test_bad_input_changes_nothing(
    indices: Any, priorities: Any, error: type[Exception], message: str
) -> None:
    """What the host can check raises at once, of arrays of the device too."""
    host, tree = filled(70)
    for there in (np.array, asarray):
        if there is asarray and error is not TypeError and "shape" not in message:
            continue
        for where in (np.array, there):
            with pytest.raises(error, match=message):
                tree.update(there(indices), where(priorities))
    assert_alike(host, tree)
    tree.update([0], 1.0)
    assert to_host(tree[[0]]).tolist() == [1.0]


#: Indices and priorities of the device, and the exception of the next call.
FAULTS = [
    ([3, 70, 5], [1.0, 1.0, 9.0], IndexError, "indices: number 1 .* expected 0 to 69"),
    ([3, 5, -1], [1.0, 9.0, 1.0], IndexError, "indices: number 2 .* expected 0 to 69"),
    ([3, 4], [9.0, np.nan], ValueError, "priorities: number 1 of an earlier call"),
    ([3, 3], [-1.0, 2.0], ValueError, "priorities: number 0 .* finite and not negative"),
    ([3], [np.inf], ValueError, "priorities: number 0"),
    ([3, -(2**62)], [np.inf, 1.0], IndexError, "indices: number 1"),  # both kinds
    ([3], [1e308], ValueError, "priorities: number 0"),  # 70 of them have no finite sum
]


@pytest.mark.parametrize(
    ("indices", "priorities", "error", "message", "call"),
    [
        *((*fault, "synchronize") for fault in FAULTS),
        *((*FAULTS[0], call) for call in ("update", "sample", "distinct", "total")),
    ],
)
def test_bad_numbers_of_the_device_change_nothing(
    indices: list[int], priorities: list[float], error: type[Exception], message: str, call: str
) -> None:
    host, tree = filled(70)
    tree.update(asarray(indices), asarray(priorities))  # raises nothing
    assert_alike(host, tree)
    calls: dict[str, Callable[[], Any]] = {
        "update": lambda: tree.update([1], 5.0),
        "sample": lambda: tree.sample(3),
        "distinct": lambda: tree.sample(3, replace=False),
        "total": lambda: tree.total,
        "synchronize": rlcpu.cuda.synchronize,
    }
    with pytest.raises(error, match=message):
        calls[call]()
    assert_alike(host, tree)
    rlcpu.cuda.synchronize()  # it is told once
    assert equal(tree.sample(5), host.sample(5))
    for each in (host, tree):
        each.update([4, 4], [3.0, 2.0])
    assert_alike(host, tree)


def test_a_side_of_the_host_is_checked_at_once() -> None:
    host, tree = filled(70)
    for indices, priorities, error in (
        ([70, 0], asarray([1.0, 1.0]), IndexError),
        (asarray([0, 1]), [1.0, np.nan], ValueError),
    ):
        with pytest.raises(error, match=r"70 is out of range|nan at 1"):
            tree.update(indices, priorities)
    tree.update([0, 1], asarray([1.0, np.nan]))
    with pytest.raises(ValueError, match="priorities: number 1"):
        rlcpu.cuda.synchronize()
    assert_alike(host, tree)


@pytest.mark.parametrize("kernel", ["claim", "apply_claims"])
def test_an_update_that_is_interrupted_is_done(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stamps would stand for numbers of the next one; `launch` is where Ctrl-C can come."""
    host, tree = filled(70)
    wanted, launch = getattr(trees, kernel), trees.launch

    def interrupted(launched: Any, *args: Any, **options: Any) -> None:
        if launched is wanted:
            monkeypatch.setattr(trees, "launch", launch)
            raise KeyboardInterrupt
        launch(launched, *args, **options)

    monkeypatch.setattr(trees, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tree.update([3, 9, 3], [5.0, 6.0, 7.0])
    host.update([3, 9, 3], [5.0, 6.0, 7.0])
    assert_alike(host, tree)


def test_copies_know_no_faults() -> None:
    host, tree = filled(70)
    tree.update(asarray([70]), 1.0)
    other = copy.deepcopy(tree)
    assert other.total == host.total
    other.update([1], 2.0)
    with pytest.raises(IndexError, match="number 0"):
        tree.update([1], 2.0)
    assert_alike(host, tree)
    host.update([1], 2.0)
    assert_alike(host, other)


def test_bad_indices_are_not_read() -> None:
    _, tree = filled(70)
    with pytest.raises(IndexError, match="70 is out of range"):
        tree[[3, 70]]
    assert_clean(tree)


def test_nothing_to_draw() -> None:
    tree = SumTree(10, seed=0, device="cuda")
    assert to_host(tree.sample(2)).tolist() == [0, 0]
    with pytest.raises(ValueError, match="the total is 0"):
        tree.sample(2)
    tree.update([1, 2], 1.0)
    with pytest.raises(ValueError, match="expected at most 2"):
        tree.sample(3, replace=False)
    assert sorted(to_host(tree.sample(2, replace=False))) == [1, 2]
