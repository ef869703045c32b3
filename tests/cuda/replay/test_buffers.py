"""Buffers on the device: the CPU's, item for item."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda import arrays
from rlcpu.cuda.replay import PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.replay import PrioritizedReplayBuffer as HostPrioritized
from rlcpu.replay import ReplayBuffer as HostBuffer

pytestmark = pytest.mark.device

#: Rows of words of four, two and one bytes.
EXAMPLE = {
    "observation": {"camera": np.zeros((1, 3), np.uint8), "state": np.zeros(2, np.float32)},
    "action": np.int16(0),
    "reward": 0.0,
    "terminated": False,
}


def steps(seed: int, *lead: int) -> Any:
    """Transitions with leading axes."""
    rng = np.random.default_rng(seed)
    return {
        "observation": {
            "camera": rng.integers(0, 256, (*lead, 1, 3)).astype(np.uint8),
            "state": rng.random((*lead, 2)).astype(np.float32),
        },
        "action": rng.integers(0, 9, lead).astype(np.int16),
        "reward": rng.random(lead),
        "terminated": rng.random(lead) < 0.3,
    }


def on_device(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: on_device(item) for name, item in value.items()}
    return arrays.from_host(value)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name, item in expected.items():
            assert_same(found[name], item)
    else:
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


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
    assert np.allclose(buffer._tree.leaves, host._priorities.tree.leaves, rtol=1e-14)
    assert np.asarray(buffer._tree.largest)[0] == pytest.approx(host._priorities.largest)


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
    before = np.asarray(buffer._tree.numbers)
    with pytest.raises(error, match=message):
        buffer.update_priorities(indices, priorities)
    assert np.array_equal(buffer._tree.numbers, before)
    assert np.asarray(buffer._tree.largest)[0] == 1.0


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
        ({"n_step": 3}, NotImplementedError, "n_step=3"),
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
