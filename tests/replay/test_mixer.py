"""Mixed batches: where each part comes from, and goes back to."""

import dataclasses

import numpy as np
import pytest

from rlcpu.replay import (
    Mixer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    TrajectoryBuffer,
    TrajectoryQueue,
)

EXAMPLE = {"x": 0, "y": np.zeros(3, np.float32)}


def filled(kind, first, **options):
    buffer = kind(50, EXAMPLE, seed=0, **options)
    buffer.add({"x": np.arange(first, first + 50), "y": np.full((50, 3), first, np.float32)})
    return buffer


def make_mixer():
    buffers = [filled(ReplayBuffer, 0), filled(PrioritizedReplayBuffer, 100, beta=1.0)]
    return Mixer(buffers, [1, 2])


@pytest.mark.parametrize(
    ("size", "sizes"), [(1, [0, 1]), (2, [1, 1]), (3, [1, 2]), (100, [33, 67])]
)
def test_proportions(size, sizes):
    mixer = make_mixer()
    assert mixer.can_sample(size)
    batch = mixer.sample(size)
    assert np.bincount(batch.sources, minlength=2).tolist() == sizes
    np.testing.assert_array_equal(batch["x"] // 100, batch.sources)
    np.testing.assert_array_equal(batch["x"] % 100, batch.indices)
    np.testing.assert_array_equal(batch["y"][:, 1], batch.sources * 100)
    assert (batch.weights == 1).all()
    assert len(mixer) == 100


def test_priorities_go_back():
    mixer = make_mixer()
    batch = mixer.sample(30)
    priorities = np.arange(30.0)
    mixer.update_priorities(batch, priorities)
    leaves = mixer.buffers[1]._sampler.tree.leaves[batch.indices[batch.sources == 1]]
    last = dict(zip(batch.indices[10:].tolist(), priorities[10:], strict=True))
    expected = [(last[i] + 1e-6) ** 0.6 for i in batch.indices[10:].tolist()]
    np.testing.assert_allclose(leaves, expected)
    before = mixer.buffers[1]._sampler.tree.numbers.tobytes()
    with pytest.raises(ValueError, match="nan"):
        mixer.update_priorities(batch, np.append(priorities[:-1], np.nan))
    with pytest.raises(TypeError, match="batch=list"):
        mixer.update_priorities([], 1.0)
    assert mixer.buffers[1]._sampler.tree.numbers.tobytes() == before


def test_sequences():
    buffers = [
        kind(2, 20, EXAMPLE, 4, seed=0) for kind in (TrajectoryBuffer, PrioritizedTrajectoryBuffer)
    ]
    mixer = Mixer(buffers, [0.5, 0.5])
    assert not mixer.can_sample(2)
    for to in (0, 1):
        x = np.arange(20).reshape(10, 2) + 100 * to
        mixer.add({"x": x, "y": np.zeros((10, 2, 3), np.float32)}, to=to)
    batch = mixer.sample(10)
    assert batch["y"].shape == (4, 10, 3)
    np.testing.assert_array_equal(batch["x"][0] // 100, batch.sources)
    assert (np.diff(batch["x"], axis=0) == 2).all()


def test_saved_and_loaded(tmp_path):
    mixer = make_mixer()
    for _ in range(2):
        mixer.update_priorities(mixer.sample(9), 2.0)
        mixer.add({"x": 7, "y": np.ones(3, np.float32)}, to=0)
        mixer.save(tmp_path / "mixer")
        loaded = Mixer.load(tmp_path / "mixer")
        a, b = mixer.sample(40), loaded.sample(40)
        np.testing.assert_array_equal(a["x"], b["x"])
        np.testing.assert_array_equal(a.weights, b.weights)
    with pytest.raises(ValueError, match="holds a Mixer, expected a ReplayBuffer"):
        ReplayBuffer.load(tmp_path / "mixer")
    mixer.buffers[0].save(tmp_path / "buffer")
    with pytest.raises(ValueError, match="holds a ReplayBuffer, expected a Mixer"):
        Mixer.load(tmp_path / "buffer")


@dataclasses.dataclass
class Scaled(PrioritizedReplayBuffer):
    """A user's buffer, whose batches have another array in the place of one; it has no hash."""

    def sample(self, batch_size, **options):
        batch = super().sample(batch_size, **options)
        batch.data["y"] = 2 * batch.data["y"]
        return batch


def test_a_users_subclass(tmp_path):
    mixer = Mixer([filled(ReplayBuffer, 0), filled(Scaled, 100)], [1, 2])
    mixer.save(tmp_path / "mixer")
    for each in (mixer, Mixer.load(tmp_path / "mixer")):
        assert type(each.buffers[1]) is Scaled
        batch = each.sample(9)
        np.testing.assert_array_equal(batch["y"][:, 0], batch.sources * 200)
        each.update_priorities(batch, 1.0)


def test_bad_arguments():
    one = filled(ReplayBuffer, 0)
    for buffers, proportions, error in (
        ([], [], ValueError),
        ([one], [1, 2], ValueError),
        ([one], [0], ValueError),
        ([one], ["x"], TypeError),
        ([one, 3], [1, 1], TypeError),
        ([one, one], [1, 1], ValueError),
        ([one, ReplayBuffer(5, {"x": 0})], [1, 1], ValueError),
        ([one, TrajectoryBuffer(1, 5, EXAMPLE, 2)], [1, 1], ValueError),
        ([TrajectoryQueue(1, 5, EXAMPLE, 2)], [1], TypeError),
    ):
        with pytest.raises(error):
            Mixer(buffers, proportions)
    with pytest.raises(IndexError, match="to=1"):
        Mixer([one], [1]).add({}, to=1)
    with pytest.raises(ValueError, match="batch_size=0"):
        Mixer([one], [1]).sample(0)
