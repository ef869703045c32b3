"""Mixed batches on the device: the CPU's, part for part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlcpu.replay
from rlcpu.cuda.device import asarray, to_host
from rlcpu.replay import MixedBatch, Mixer
from tests.cuda.compare import close, equal
from tests.cuda.replay.transitions import EXAMPLE, assert_same, steps

pytestmark = pytest.mark.device


def transitions(device: str) -> Mixer:
    """A mixer of three kinds of buffers of transitions."""
    options: dict[str, Any] = {"seed": 0, "device": device}
    mixer = Mixer(
        [
            rlcpu.replay.ReplayBuffer(12, EXAMPLE, n_step=2, truncated=False, **options),
            rlcpu.replay.PrioritizedReplayBuffer(12, EXAMPLE, beta=1.0, **options),
            rlcpu.replay.ReturnWeightedBuffer(12, EXAMPLE, **options),
        ],
        [1, 2, 1],
    )
    for number in (0, 1):
        mixer.add(steps(number, 9), to=number)
    mixer.add(steps(3, 9), to=2, values=np.arange(9.0))
    return mixer


def sequences(device: str) -> Mixer:
    """A mixer of two kinds of buffers of sequences."""
    kinds: list[Any] = [
        rlcpu.replay.TrajectoryBuffer,
        rlcpu.replay.PrioritizedTrajectoryBuffer,
    ]
    mixer = Mixer([kind(2, 9, EXAMPLE, 4, seed=0, device=device) for kind in kinds], [1, 1])
    for number in (0, 1):
        mixer.add(steps(number, 7, 2), to=number)
    return mixer


@pytest.mark.parametrize("make", [transitions, sequences])
def test_the_same_batches(make: Any) -> None:
    host, mixer = make("cpu"), make("cuda")
    assert isinstance(mixer, Mixer)
    assert mixer.device == "cuda"
    assert len(mixer) == len(host)
    assert mixer.can_sample(8)
    for size in (8, 1, 5):
        expected, found = host.sample(size), mixer.sample(size)
        assert isinstance(found, MixedBatch)
        assert len(found) == size
        assert equal(found.indices, expected.indices)
        assert equal(found.sources, expected.sources)
        assert_same(found.data, expected.data)
        if expected.weights is None:
            assert found.weights is None
        else:
            assert close(found.weights, expected.weights, rtol=1e-6)
        assert (found.discounts is None) == (expected.discounts is None)
        priorities = np.random.default_rng(size).random(size)
        host.update_priorities(expected, priorities)
        mixer.update_priorities(found, asarray(priorities))
        trees = [host.buffers[1]._sampler.tree, mixer.buffers[1]._sampler.tree]
        assert close(trees[1].leaves, trees[0].leaves, rtol=1e-14)
    host.update_priorities(host.sample(3), 2.0)
    mixer.update_priorities(mixer.sample(3), asarray(np.float64(2.0)))
    assert close(trees[1].leaves, trees[0].leaves, rtol=1e-14)


def test_bad_priorities_change_nothing() -> None:
    mixer = sequences("cuda")
    batch = mixer.sample(6)
    before = to_host(mixer.buffers[1]._sampler.tree.numbers)
    with pytest.raises(ValueError, match="nan at 1"):
        mixer.update_priorities(batch, [1.0, 1.0, 1.0, 1.0, np.nan, 1.0])
    with pytest.raises(ValueError, match="expected shape"):
        mixer.update_priorities(batch, [1.0, 1.0])
    with pytest.raises(TypeError, match="batch=list"):
        mixer.update_priorities([], 1.0)
    assert equal(mixer.buffers[1]._sampler.tree.numbers, before)
    mixer.update_priorities(batch, [np.nan, 1.0, 1.0, 1.0, 1.0, 1.0])  # not drawn by priority


def test_one_place() -> None:
    buffers = [rlcpu.replay.ReplayBuffer(9, EXAMPLE, device=each) for each in ("cpu", "cuda")]
    with pytest.raises(ValueError, match="some are on the CPU, some on a CUDA device"):
        Mixer(buffers, [1, 1])
