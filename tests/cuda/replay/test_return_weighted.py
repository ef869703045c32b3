"""Sampling by value on the device: the CPU's, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda.device import asarray, to_host
from rlcpu.replay import ReturnWeightedBuffer
from tests.cuda.compare import equal
from tests.cuda.replay.transitions import EXAMPLE, assert_same, on_device, steps

pytestmark = pytest.mark.device

#: One node, two levels, several levels with padding.
CAPACITIES = [3, 70, 600]


def make(capacity: int, fill_up: bool = False) -> tuple[ReturnWeightedBuffer, ReturnWeightedBuffer]:
    host, buffer = (
        ReturnWeightedBuffer(capacity, {"x": 0}, seed=1, fill_up=fill_up, device=device)
        for device in ("cpu", "cuda")
    )
    return host, buffer


def add(host: ReturnWeightedBuffer, buffer: ReturnWeightedBuffer, values: Any) -> None:
    x = np.arange(len(values))
    host.add({"x": x}, values)
    buffer.add({"x": x}, asarray(values))


def filled(capacity: int) -> tuple[ReturnWeightedBuffer, ReturnWeightedBuffer]:
    """Values of both signs, after writing has gone round."""
    host, buffer = make(capacity)
    rng = np.random.default_rng(capacity)
    for count in (capacity - 1, 4, 2 * capacity + 5, capacity // 2):
        add(host, buffer, rng.normal(size=count))
    return host, buffer


def assert_alike(host: ReturnWeightedBuffer, buffer: ReturnWeightedBuffer) -> None:
    assert equal(buffer._sampler.tree.numbers, host._sampler.tree.numbers)
    assert equal(buffer._stream, host._stream)
    assert not to_host(buffer._sampler.tree._claims.value.stamps).any()


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_sums(capacity: int) -> None:
    host, buffer = make(capacity)
    rng = np.random.default_rng(0)
    for count in (1, capacity // 3, capacity // 2, capacity // 3 + 1, capacity, 0, 2 * capacity):
        add(host, buffer, rng.normal(size=count))
        assert_alike(host, buffer)


@pytest.mark.parametrize("where", [np.array, asarray])
def test_new_values(where: Any) -> None:
    host, buffer = filled(200)
    indices = np.array([7, 199, 7, 0, 7])
    for values in (np.array([1.0, -9.0, 2.0, 3.0, -5.0], np.float32), np.array(4.0)):
        host.update_values(indices, values)
        buffer.update_values(where(indices), where(values))
        assert_alike(host, buffer)


@pytest.mark.parametrize("size", [1, 20, 60, 69])
def test_the_same_items_are_drawn(size: int) -> None:
    host, buffer = filled(70)
    for _ in range(3):
        expected = host.sample_indices(size)
        found = to_host(buffer.sample_indices(size))
        assert equal(found, expected)
        assert np.unique(found).size == size
        assert_alike(host, buffer)


def test_of_several_levels() -> None:
    host, buffer = filled(600)
    for _ in range(2):
        assert equal(buffer.sample_indices(90), host.sample_indices(90))
    assert_alike(host, buffer)


@pytest.mark.parametrize("size", [2, 9])
def test_equal_weights(size: int) -> None:
    host, buffer = make(20)
    add(host, buffer, np.full(10, -3.0))
    for _ in range(2):
        assert equal(buffer.sample_indices(size), host.sample_indices(size))
    assert_alike(host, buffer)


@pytest.mark.parametrize("spread", [4.0, 64.0])
def test_weights_below_the_rounding_errors_of_sums(spread: float) -> None:
    host, buffer = make(200)
    values = np.full(200, -1e17)
    values[[5, 77, 150]] += spread * 16
    add(host, buffer, values)
    for size in (1, 3):
        assert equal(buffer.sample_indices(size), host.sample_indices(size))
        assert_alike(host, buffer)


def test_too_few_have_a_weight() -> None:
    host, buffer = make(20)
    add(host, buffer, np.array([-1.0, 0.0, 3.0, -1.0]))
    for size, message in ((3, "of 4 there are, 2 have"), (5, "of 4 there are, 2 have")):
        for each in (host, buffer):
            with pytest.raises(ValueError, match=message):
                each.sample(size)
        assert_alike(host, buffer)
    for each in (host, buffer):
        assert [each.can_sample(size) for size in (1, 2, 3, 5)] == [True, True, False, False]
    assert_alike(host, buffer)
    assert sorted(to_host(buffer.sample_indices(2))) == [1, 2]
    with pytest.raises(ValueError, match="1 different transitions wanted, of 0"):
        make(3)[1].sample(1)


@pytest.mark.parametrize("low", [0.0, -3.7])
def test_batches_are_filled_up(low: float) -> None:
    host, buffer = make(80, fill_up=True)
    values = np.full(70, low)
    values[[3, 8, 21, 64]] = 1.0, 2.0, 3.0, 4.0
    add(host, buffer, values)
    for size in (2, 4, 5, 60):
        assert buffer.can_sample(size)
        assert equal(buffer.sample_indices(size), host.sample_indices(size))
        assert_alike(host, buffer)
    assert not buffer.can_sample(71)


@pytest.mark.parametrize("where", [on_device, lambda batch: batch])
def test_transitions(where: Any) -> None:
    host = ReturnWeightedBuffer(10, EXAMPLE, seed=1)
    buffer = ReturnWeightedBuffer(10, EXAMPLE, seed=1, device="cuda")
    for seed, count in enumerate((4, 9)):
        values = np.random.default_rng(seed).random(count)
        host.add(steps(seed, count), values)
        buffer.add(where(steps(seed, count)), where(values))
        expected, found = host.sample(3), buffer.sample(3)
        assert len(found) == 3
        assert_same(found.data, expected.data)
    host.add(steps(5), 2.0)
    buffer.add(where(steps(5)), 2.0)
    assert len(buffer) == len(host)
    assert_alike(host, buffer)


@pytest.mark.parametrize("where", [np.array, asarray])
@pytest.mark.parametrize(
    ("indices", "values", "error", "message"),
    [
        ([0, 4], [1.0, 1.0], IndexError, "nothing was written at 4 yet"),
        ([0, 10], [1.0, 1.0], IndexError, "10 is out of range"),
        ([0, 1], [1.0, np.nan], ValueError, "nan for index 1"),
        ([0, 1], [-np.inf, 1.0], ValueError, "-inf for index 0"),
        ([0, 1], [1.0], ValueError, "expected shape"),
    ],
)
def test_bad_values(
    indices: list[int], values: Any, error: type[Exception], message: str, where: Any
) -> None:
    host, buffer = make(10)
    add(host, buffer, np.array([1.0, -2.0, 3.0]))
    late = where is asarray and "shape" not in message
    if late:
        name = "indices" if error is IndexError else "values"
        buffer.update_values(where(indices), where(values))
        with pytest.raises(error, match=f"{name}.* of an earlier call"):
            buffer.sample(2)
    else:
        with pytest.raises(error, match=message):
            buffer.update_values(where(indices), where(values))
    if error is ValueError:
        with pytest.raises(ValueError, match="values: "):
            buffer.add({"x": np.arange(2)}, where(values))
    assert len(buffer) == 3
    assert_alike(host, buffer)
