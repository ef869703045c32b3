"""Buffers on the device: the CPU's, item for item."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda import arrays
from rlcpu.cuda.replay import PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.replay import PrioritizedReplayBuffer as HostPrioritized
from rlcpu.replay import ReplayBuffer as HostBuffer
from tests.cuda.replay.transitions import EXAMPLE, assert_same, on_device, steps

pytestmark = pytest.mark.device


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("where", [on_device, lambda batch: batch])
def test_the_same_transitions(num_envs: int | None, where: Any) -> None:
    lead = () if num_envs is None else (num_envs,)
    host = HostBuffer(10, EXAMPLE, num_envs=num_envs, seed=1)
    buffer = ReplayBuffer(10, EXAMPLE, num_envs=num_envs, seed=1)
    for seed, count in enumerate((2, 4, 23)):
        host.add(steps(seed, count, *lead))
        buffer.add(where(steps(seed, count, *lead)))
        assert len(buffer) == len(host)
        expected, found = host.sample(6), buffer.sample(6)
        assert np.array_equal(found.indices, expected.indices)
        assert_same(found.data, expected.data)
    host.add(steps(9, *lead))
    buffer.add(steps(9, *lead))  # one step without its axis
    assert_same(buffer.sample(9)["reward"], host.sample(9)["reward"])


def test_bytes_that_are_not_aligned() -> None:
    example = {"x": np.zeros(4, np.uint8), "y": np.zeros((2, 3), np.uint8)}
    host, buffer = HostBuffer(10, example, seed=1), ReplayBuffer(10, example, seed=1)
    values = np.arange(90, dtype=np.uint8)
    host.add({"x": values[1:29].reshape(7, 4), "y": values[35:77].reshape(7, 2, 3)})
    given = arrays.from_host(values)
    buffer.add({"x": given.view((7, 4), 1), "y": given.view((7, 2, 3), 35)})
    assert_same(buffer.sample(9).data, host.sample(9).data)


def test_priorities() -> None:
    host = HostPrioritized(10, EXAMPLE, num_envs=2, seed=1)
    buffer = PrioritizedReplayBuffer(10, EXAMPLE, num_envs=2, seed=1)
    for seed in range(3):
        host.add(steps(seed, 2, 2))
        buffer.add(steps(seed, 2, 2))
        expected, found = host.sample(8), buffer.sample(8)
        assert np.array_equal(found.indices, expected.indices)
        assert np.allclose(found.probabilities, expected.probabilities, rtol=1e-15)
        assert np.allclose(found.weights, expected.weights, rtol=1e-6)
        assert_same(found.data, expected.data)
        errors = np.random.default_rng(seed).random(8).astype(np.float32)
        host.update_priorities(expected.indices, errors)
        buffer.update_priorities(found.indices, arrays.from_host(errors))
    assert np.allclose(buffer._priorities.tree.leaves, host._sampler.tree.leaves, rtol=1e-14)
    assert np.asarray(buffer._priorities.tree.largest)[0] == pytest.approx(host._sampler.largest)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num_envs", [None, 3])
def test_returns_of_several_steps(num_envs: int | None, dtype: Any) -> None:
    lead = () if num_envs is None else (num_envs,)
    following = {"next_observation": {"number": np.int32(0)}, "truncated": False}
    example = {**EXAMPLE, **following, "reward": dtype(0)}
    options: dict[str, Any] = {"num_envs": num_envs, "n_step": 3, "gamma": 0.7, "seed": 1}
    host, buffer = (
        HostPrioritized(21, example, **options),
        PrioritizedReplayBuffer(21, example, **options),
    )
    for seed, count in enumerate((2, 4, 9)):
        rng = np.random.default_rng(seed)
        batch = {
            **steps(seed, count, *lead),
            "next_observation": {"number": rng.integers(0, 99, (count, *lead), np.int32)},
            "truncated": rng.random((count, *lead)) < 0.2,
        }
        batch["reward"] = batch["reward"].astype(dtype)
        host.add(batch)
        buffer.add(batch)
        expected, found = host.sample(40), buffer.sample(40)
        assert_same(found.data, expected.data)
        assert_same(found.discounts, expected.discounts)


@pytest.mark.parametrize(
    ("indices", "priorities", "error", "message"),
    [
        ([0, 4], 1.0, IndexError, "nothing was written at 4 yet"),
        ([0, 10], 1.0, IndexError, "10 is out of range"),
        ([0, 1], [1.0, np.nan], ValueError, "nan for index 1"),
        ([0, 1], [1.0, 1e101], ValueError, "1e\\+101 for index 1"),
    ],
)
def test_bad_priorities(
    indices: list[int], priorities: Any, error: type[Exception], message: str
) -> None:
    buffer = PrioritizedReplayBuffer(10, EXAMPLE, num_envs=2, seed=1)
    buffer.add(steps(0, 3, 2))
    before = np.asarray(buffer._priorities.tree.numbers)
    with pytest.raises(error, match=message):
        buffer.update_priorities(indices, priorities)
    assert np.array_equal(buffer._priorities.tree.numbers, before)
    assert np.asarray(buffer._priorities.tree.largest)[0] == 1.0


def test_bad_batches_change_nothing() -> None:
    buffer = ReplayBuffer(10, EXAMPLE)
    for change, error, message in (
        ({"reward": arrays.from_host(np.zeros(3, np.float32))}, TypeError, "'reward'"),
        ({"reward": arrays.from_host(np.zeros(4))}, ValueError, "'reward'"),
        ({"reward": "x"}, TypeError, "'reward'"),
        ({"extra": 0.0}, ValueError, "extra"),
    ):
        with pytest.raises(error, match=message):
            buffer.add({**steps(0, 3), **change})
    assert len(buffer) == 0
    with pytest.raises(ValueError, match="the buffer is empty"):
        buffer.sample(1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"derive_next": True}, NotImplementedError, "derive_next=True"),
        ({"memmap": "file"}, NotImplementedError, "memmap='file'"),
        ({"color": 1}, TypeError, "color=1"),
        ({"num_envs": 0}, ValueError, "num_envs=0"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ReplayBuffer(10, EXAMPLE, **options)
    with pytest.raises(TypeError, match="complex128"):
        ReplayBuffer(10, {"x": 1j})
