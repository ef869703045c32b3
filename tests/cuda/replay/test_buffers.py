"""Buffers on the device: the CPU's, item for item."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.cuda.device import asarray, to_host
from rlcpu.replay import Batch, ItemBuffer, Mixer, PrioritizedReplayBuffer, ReplayBuffer
from tests.cuda.compare import close, equal
from tests.cuda.replay.transitions import (
    EXAMPLE,
    assert_batches_are_same,
    assert_same,
    on_device,
    steps,
)

pytestmark = pytest.mark.device


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("where", [on_device, lambda batch: batch])
def test_the_same_transitions(num_envs: int | None, where: Any) -> None:
    lead = () if num_envs is None else (num_envs,)
    host = ReplayBuffer(10, EXAMPLE, num_envs=num_envs, seed=1)
    buffer = ReplayBuffer(10, EXAMPLE, num_envs=num_envs, seed=1, device="cuda")
    for seed, count in enumerate((2, 4, 23)):
        host.add(steps(seed, count, *lead))
        buffer.add(where(steps(seed, count, *lead)))
        assert len(buffer) == len(host)
        expected, found = host.sample(6), buffer.sample(6)
        assert equal(found.indices, expected.indices)
        assert_same(found.data, expected.data)
    host.add(steps(9, *lead))
    buffer.add(steps(9, *lead))  # one step without its axis
    assert_same(buffer.sample(9)["reward"], host.sample(9)["reward"])


def test_bytes_that_are_not_aligned() -> None:
    example = {"x": np.zeros(4, np.uint8), "y": np.zeros((2, 3), np.uint8)}
    host, buffer = (
        ReplayBuffer(10, example, seed=1),
        ReplayBuffer(10, example, seed=1, device="cuda"),
    )
    values = np.arange(90, dtype=np.uint8)
    host.add({"x": values[1:29].reshape(7, 4), "y": values[35:77].reshape(7, 2, 3)})
    given = asarray(values)
    buffer.add({"x": given[1:29].reshape(7, 4), "y": given[35:77].reshape(7, 2, 3)})
    assert_same(buffer.sample(9).data, host.sample(9).data)


def test_priorities() -> None:
    host = PrioritizedReplayBuffer(10, EXAMPLE, num_envs=2, seed=1)
    buffer = PrioritizedReplayBuffer(10, EXAMPLE, num_envs=2, seed=1, device="cuda")
    for seed in range(3):
        host.add(steps(seed, 2, 2))
        buffer.add(steps(seed, 2, 2))
        expected, found = host.sample(8), buffer.sample(8)
        assert equal(found.indices, expected.indices)
        assert close(found.probabilities, expected.probabilities, rtol=1e-15)
        assert close(found.weights, expected.weights, rtol=1e-6)
        assert_same(found.data, expected.data)
        errors = np.random.default_rng(seed).random(8).astype(np.float32)
        host.update_priorities(expected.indices, errors)
        buffer.update_priorities(found.indices, asarray(errors))
    assert close(buffer._sampler.tree.leaves, host._sampler.tree.leaves, rtol=1e-14)
    assert buffer._sampler.largest == pytest.approx(host._sampler.largest)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("gamma", [0.7, 0.0])
def test_returns_of_several_steps(num_envs: int | None, dtype: Any, gamma: float) -> None:
    lead = () if num_envs is None else (num_envs,)
    following = {"next_observation": {"number": np.int32(0)}, "truncated": False}
    example = {**EXAMPLE, **following, "reward": dtype(0)}
    options: dict[str, Any] = {"num_envs": num_envs, "n_step": 3, "gamma": gamma, "seed": 1}
    host, buffer = (
        PrioritizedReplayBuffer(21, example, **options),
        PrioritizedReplayBuffer(21, example, **options, device="cuda"),
    )
    for seed, count in enumerate((2, 4, 9)):
        rng = np.random.default_rng(seed)
        batch = {
            **steps(seed, count, *lead),
            "next_observation": {"number": rng.integers(0, 99, (count, *lead), np.int32)},
            "truncated": rng.random((count, *lead)) < 0.2,
        }
        batch["reward"] = batch["reward"].astype(dtype)
        batch["reward"][1] = np.inf  # counts where it is discounted, and where it comes first
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
    buffer = PrioritizedReplayBuffer(10, EXAMPLE, num_envs=2, seed=1, device="cuda")
    buffer.add(steps(0, 3, 2))
    before = to_host(buffer._sampler.tree.numbers)
    with pytest.raises(error, match=message):
        buffer.update_priorities(indices, priorities)
    assert equal(buffer._sampler.tree.numbers, before)
    buffer.update_priorities(asarray(indices), asarray(priorities))
    with pytest.raises(error, match="number 1 of an earlier call"):
        buffer.sample(2)
    assert equal(buffer._sampler.tree.numbers, before)
    assert buffer._sampler.largest == 1.0


def test_no_priority_is_above_zero() -> None:
    """The device tells by the next call; a batch of nothing is all zeros."""
    buffer = PrioritizedReplayBuffer(10, EXAMPLE, epsilon=0.0, seed=1, device="cuda")
    with pytest.raises(ValueError, match="the buffer is empty"):
        buffer.sample(2)
    buffer.add(steps(0, 5))
    buffer.update_priorities(np.arange(5), 0.0)
    assert not buffer.can_sample()
    batch = buffer.sample(3)
    assert not any(to_host(x).any() for x in (batch.indices, batch.probabilities, batch.weights))
    with pytest.raises(ValueError, match="no item has a priority above zero"):
        buffer.update_priorities([1], 2.0)
    assert not buffer.can_sample()
    buffer.update_priorities([1], 2.0)
    assert to_host(buffer.sample(3).indices).tolist() == [1, 1, 1]


def test_bad_batches_change_nothing() -> None:
    buffer = ReplayBuffer(10, EXAMPLE, device="cuda")
    for change, error, message in (
        ({"reward": asarray(np.zeros(3, np.float32))}, TypeError, "'reward'"),
        ({"reward": asarray(np.zeros(4))}, ValueError, "'reward'"),
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
        ({"color": 1}, TypeError, "'color'"),
        ({"num_envs": 0}, ValueError, "num_envs=0"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ReplayBuffer(10, EXAMPLE, **options, device="cuda")
    with pytest.raises(TypeError, match="complex128"):
        ReplayBuffer(10, {"x": 1j}, device="cuda")


@dataclasses.dataclass
class Step:
    observation: np.ndarray
    reward: float


class Doubled(ReplayBuffer):
    """A user's buffer: its rewards are doubled."""

    def add(self, batch: Any) -> None:
        super().add(dataclasses.replace(batch, reward=2.0 * batch.reward))


def test_a_subclass_is_itself_on_every_device(tmp_path: Path) -> None:
    example = Step(np.zeros(3, np.float32), 0.0)
    host, buffer = (Doubled(9, example, seed=1, device=device) for device in ("cpu", "cuda"))
    for each in (host, buffer):
        assert type(each) is Doubled
        each.add(Step(np.ones((4, 3), np.float32), np.arange(4.0)))
    assert_batches_are_same(buffer.sample(5), host.sample(5))
    mixer = Mixer([buffer, ReplayBuffer(9, example, seed=2, device="cuda")], [1, 1])
    mixer.add(Step(np.ones((4, 3), np.float32), np.arange(4.0)), to=1)
    assert sorted(mixer.sample(4).data.reward.tolist())
    buffer.save(tmp_path / "buffer")
    mixer.save(tmp_path / "mixer")
    loaded = Doubled.load(tmp_path / "buffer", example=example)
    again = Mixer.load(tmp_path / "mixer", example=example, device="cuda")
    assert [type(each) for each in (loaded, *again.buffers)] == [Doubled, Doubled, ReplayBuffer]
    assert_batches_are_same(loaded.sample(5), buffer.sample(5))


def test_items_one_by_one() -> None:
    host, buffer = (ItemBuffer(4, EXAMPLE, seed=1, device=device) for device in ("cpu", "cuda"))
    for seed in range(6):
        host.add(steps(seed))
        buffer.add(on_device(steps(seed)))
    assert_same(buffer.sample(7).data, host.sample(7).data)
    with pytest.raises(ValueError, match="expected"):
        buffer.add(steps(0, 2))


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_a_batch_is_the_same_class_everywhere(kind: Any) -> None:
    """It was a tuple whose `_replace` failed, since its items are those of the data."""
    buffer = kind(9, EXAMPLE, seed=1, device="cuda")
    buffer.add(steps(0, 5))
    batch = buffer.sample(4)
    assert type(batch) is Batch
    assert "reward" in repr(batch)
    assert "reward" in batch._repr_html_()
    before = batch.indices
    assert buffer.sample(4, out=batch) is batch
    assert batch.indices is not before
    for other in (copy.copy(batch), copy.deepcopy(batch)):
        assert_same(other.data, batch.data)
        assert equal(other.indices, batch.indices)
        with pytest.raises(ValueError, match="out=Batch"):
            buffer.sample(4, out=other)


def test_copies() -> None:
    buffer = PrioritizedReplayBuffer(9, EXAMPLE, seed=1, device="cuda")
    buffer.add(steps(0, 5))
    for other in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        other.add(steps(1, 2))
        assert (len(other), len(buffer), other.device) == (7, 5, "cuda")
        other.sample(3)
