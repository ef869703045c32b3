"""Checkpoints of buffers on the device: the CPU's, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu.replay
from rlcpu.replay import Mixer, PrioritizedReplayBuffer
from tests.cuda.replay.transitions import EXAMPLE, assert_batches_are_same, steps

pytestmark = pytest.mark.device

#: Kinds, arguments, and what each gets beside transitions.
KINDS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (rlcpu.replay.ReplayBuffer, (12, EXAMPLE), {"num_envs": 2, "n_step": 2, "truncated": False}),
    (rlcpu.replay.PrioritizedReplayBuffer, (12, EXAMPLE), {"num_envs": 2, "alpha": 0.5}),
    (rlcpu.replay.TrajectoryBuffer, (2, 6, EXAMPLE, 3), {"period": 2}),
    (rlcpu.replay.PrioritizedTrajectoryBuffer, (2, 6, EXAMPLE, 3), {"beta": 0.1}),
]


@pytest.mark.parametrize("places", [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")])
@pytest.mark.parametrize(("kind", "arguments", "options"), KINDS)
def test_saved_here_and_loaded_there(
    kind: Any, arguments: Any, options: Any, places: tuple[str, str], tmp_path: Path
) -> None:
    buffer = kind(*arguments, **options, seed=3, device=places[0])
    for seed, count in enumerate((4, 5)):
        buffer.add(steps(seed, count, 2))
        drawn = buffer.sample(5)
        if hasattr(buffer, "update_priorities"):
            buffer.update_priorities(drawn.indices, np.arange(5.0))
        buffer.save(tmp_path / "buffer")
        loaded = kind.load(tmp_path / "buffer", device=places[1])
        assert type(loaded) is kind
        assert loaded.device == places[1]
        assert len(loaded) == len(buffer)
        assert_batches_are_same(loaded.sample(9), buffer.sample(9))
    loaded.add(steps(7, 4, 2))
    buffer.add(steps(7, 4, 2))
    loaded.save(tmp_path / "other")
    assert_batches_are_same(loaded.sample(9), buffer.sample(9))


@pytest.mark.parametrize("places", [("cuda", "cpu"), ("cpu", "cuda")])
def test_values(places: tuple[str, str], tmp_path: Path) -> None:
    buffer = rlcpu.replay.ReturnWeightedBuffer(9, EXAMPLE, seed=3, device=places[0])
    for seed, count in enumerate((4, 8)):
        buffer.add(steps(seed, count), np.arange(count) - 2.0)
        buffer.save(tmp_path / "buffer")
        loaded = rlcpu.replay.ReturnWeightedBuffer.load(tmp_path / "buffer", device=places[1])
        assert_batches_are_same(loaded.sample(3), buffer.sample(3))


def test_a_mixer(tmp_path: Path) -> None:
    kinds: list[Any] = [rlcpu.replay.ReplayBuffer, rlcpu.replay.PrioritizedReplayBuffer]
    mixer = Mixer([kind(9, EXAMPLE, seed=0, device="cuda") for kind in kinds], [1, 2])
    for number in (0, 1):
        mixer.add(steps(number, 7), to=number)
    mixer.save(tmp_path / "mixer")
    here = Mixer.load(tmp_path / "mixer", device="cuda")
    there = Mixer.load(tmp_path / "mixer")
    expected = mixer.sample(6)
    assert (here.device, there.device) == ("cuda", "cpu")
    assert_batches_are_same(here.sample(6), expected)
    assert_batches_are_same(there.sample(6), expected)


def test_what_is_not_loaded(tmp_path: Path) -> None:
    example = {"observation": 0, "next_observation": 0}
    host = rlcpu.replay.ReplayBuffer(9, example, derive_next=True)
    host.save(tmp_path / "derived")
    with pytest.raises(NotImplementedError, match="derive_next=True"):
        rlcpu.replay.ReplayBuffer.load(tmp_path / "derived", device="cuda")
    with pytest.raises(ValueError, match="holds a ReplayBuffer"):
        PrioritizedReplayBuffer.load(tmp_path / "derived")
    rlcpu.replay.ReplayBuffer(9, example).save(tmp_path / "plain")
    with pytest.raises(NotImplementedError, match="memmap"):
        rlcpu.replay.ReplayBuffer.load(tmp_path / "plain", memmap="file", device="cuda")
