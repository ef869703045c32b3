"""Sequences on the device: the CPU's, step for step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda.device import asarray, to_host
from rlcpu.replay import PrioritizedTrajectoryBuffer, TrajectoryBuffer, TrajectoryQueue
from tests.cuda.compare import close, equal
from tests.cuda.replay.transitions import EXAMPLE, assert_same, on_device, steps

pytestmark = pytest.mark.device

#: Environments, length, sequence length, period.
SIZES = [(2, 12, 5, 1), (3, 12, 4, 3), (1, 6, 6, 2)]


@pytest.mark.parametrize("where", [on_device, lambda batch: batch])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_same_sequences(sizes: tuple[int, int, int, int], where: Any) -> None:
    num_envs, length, *rest = sizes
    host = TrajectoryBuffer(num_envs, length, EXAMPLE, *rest, seed=1)
    buffer = TrajectoryBuffer(num_envs, length, EXAMPLE, *rest, seed=1, device="cuda")
    with pytest.raises(ValueError, match="0 steps were added"):
        buffer.sample(1)
    for seed, count in enumerate((6, 3, 1, 29)):
        host.add(steps(seed, count, num_envs))
        buffer.add(where(steps(seed, count, num_envs)))
        assert len(buffer) == len(host)
        assert buffer.can_sample() == host.can_sample()
        if host.can_sample():
            expected, found = host.sample(9), buffer.sample(9)
            assert equal(found.indices, expected.indices)
            assert_same(found.data, expected.data)


def pair(
    num_envs: int, length: int, *rest: int
) -> tuple[PrioritizedTrajectoryBuffer, PrioritizedTrajectoryBuffer]:
    """A prioritised buffer of the CPU, and one of the device."""
    host, buffer = (
        PrioritizedTrajectoryBuffer(num_envs, length, EXAMPLE, *rest, seed=1, device=device)
        for device in ("cpu", "cuda")
    )
    return host, buffer


@pytest.mark.parametrize("sizes", SIZES)
def test_priorities(sizes: tuple[int, int, int, int]) -> None:
    host, buffer = pair(*sizes)
    indices = np.zeros(0, np.int64)
    for seed, count in enumerate((7, 3, 4, 17)):
        host.add(steps(seed, count, sizes[0]))
        buffer.add(steps(seed, count, sizes[0]))
        # Some of what was drawn before is no longer there.
        errors = np.random.default_rng(seed).random(indices.size) * 9.0
        host.update_priorities(indices, errors)
        buffer.update_priorities(asarray(indices), asarray(errors, np.float32))
        leaves = buffer._sampler.tree.leaves
        assert close(leaves, host._sampler.tree.leaves, rtol=1e-6, atol=0.0)
        assert buffer._sampler.largest == pytest.approx(host._sampler.largest)
        assert buffer.can_sample() == host.can_sample()
        if not host.can_sample():
            continue
        expected, found = host.sample(8), buffer.sample(8)
        assert equal(found.indices, expected.indices)
        assert close(found.probabilities, expected.probabilities, rtol=1e-6)
        assert close(found.weights, expected.weights, rtol=1e-5)
        assert_same(found.data, expected.data)
        indices = expected.indices


def test_one_priority_for_all() -> None:
    host, buffer = pair(2, 12, 5, 1)
    for each in (host, buffer):
        each.add(steps(0, 12, 2))
    host.update_priorities([0, 3, 0], 4.0)
    buffer.update_priorities([0, 3, 0], asarray(np.float64(4.0)))
    assert close(buffer._sampler.tree.leaves, host._sampler.tree.leaves)


@pytest.mark.parametrize(
    ("indices", "priorities", "error", "message"),
    [
        ([0, 3], 1.0, IndexError, "nothing was written at 3 yet"),
        ([24], 1.0, IndexError, "24 is out of range"),
        ([0, 1], [1.0, np.nan], ValueError, "nan for index 1"),
    ],
)
def test_bad_priorities(
    indices: list[int], priorities: Any, error: type[Exception], message: str
) -> None:
    _, buffer = pair(2, 12, 5, 1)
    with pytest.raises(IndexError, match="nothing was written at 0 yet"):
        buffer.update_priorities([0], 1.0)
    buffer.add(steps(0, 7, 2))
    before = to_host(buffer._sampler.tree.numbers)
    with pytest.raises(error, match=message):
        buffer.update_priorities(indices, priorities)
    assert equal(buffer._sampler.tree.numbers, before)


def test_a_queue() -> None:
    host = TrajectoryQueue(2, 7, EXAMPLE, 3)
    queue = TrajectoryQueue(2, 7, EXAMPLE, 3, device="cuda")
    for seed, count in enumerate((4, 5, 1, 4)):
        host.add(steps(seed, count, 2))
        queue.add(on_device(steps(seed, count, 2)))
        assert (len(queue), queue.can_add(3)) == (len(host), host.can_add(3))
        while host.can_sample():
            assert_same(queue.sample().data, host.sample().data)
        assert not queue.can_sample()
    with pytest.raises(ValueError, match="2 steps wait, expected 3"):
        queue.sample()
    with pytest.raises(ValueError, match="batch has 6 steps: expected at most 5"):
        queue.add(steps(0, 6, 2))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((2, 12, 5, 5), {}, ValueError, "length=12: expected a multiple of period=5"),
        ((2, 4, 5, 1), {}, ValueError, "length=4"),
        ((0, 12, 5, 1), {}, ValueError, "num_envs=0"),
        ((2, 12, 5, 1), {"memmap": "file"}, NotImplementedError, "memmap='file'"),
        ((2, 12, 5, 1), {"alpha": 3.0}, ValueError, "alpha"),
    ],
)
def test_bad_arguments(
    arguments: tuple[int, int, int, int],
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    num_envs, length, *rest = arguments
    with pytest.raises(error, match=message):
        PrioritizedTrajectoryBuffer(num_envs, length, EXAMPLE, *rest, **options, device="cuda")
