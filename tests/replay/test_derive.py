"""Buffers without next observations against those that store them, bit for bit."""

import threading

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from rlcpu.replay import Mixer, PrioritizedReplayBuffer, ReplayBuffer, ReturnWeightedBuffer
from rlcpu.replay import derive as derive_module
from tests.replay.derived import EXAMPLE, SMALL, Episodes, check_slots, same, squeeze, state_of
from tests.replay.naive import NaiveRing, take

KINDS = [ReplayBuffer, PrioritizedReplayBuffer, ReturnWeightedBuffer]


def make_pair(kind, capacity, **options):
    """One buffer of each sort, driven by the same random numbers."""
    return [kind(capacity, EXAMPLE, seed=3, derive_next=d, **options) for d in (False, True)]


def add(buffer, batch, num_envs, values):
    if num_envs is None:
        batch = squeeze(batch)
    buffer.add(batch, values) if isinstance(buffer, ReturnWeightedBuffer) else buffer.add(batch)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=80)
def test_batches_are_those_of_a_buffer_that_stores(kind, tmp_path_factory, data):
    weighted = kind is ReturnWeightedBuffer
    num_envs = None if weighted else data.draw(st.sampled_from([None, 1, 3]))
    envs, length = num_envs or 1, data.draw(st.integers(1, 9))
    options = {} if weighted else {"num_envs": num_envs, "n_step": data.draw(st.integers(1, 4))}
    pair = make_pair(kind, envs * length, **options)
    episodes = Episodes(data.draw(st.integers(0, 2**32)), envs, data.draw(st.floats(0, 1)))
    path = tmp_path_factory.mktemp("derived") / "buffer"
    for num_steps in data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=8)):
        batch, values = episodes.take(num_steps), episodes.rng.random(num_steps)
        for buffer in pair:
            add(buffer, batch, num_envs, values)
        check_slots(pair[1])
        if len(pair[0]):
            stored, derived = (buffer.sample(min(20, len(buffer))) for buffer in pair)
            same(stored, derived)
            pair[1].sample(len(derived), out=derived)
            same(pair[0].sample(len(derived)), derived)
        if kind is PrioritizedReplayBuffer and len(pair[0]):
            for buffer in pair:
                buffer.update_priorities(stored.indices, stored["reward"].astype(float) ** 2)
        if data.draw(st.booleans()):
            pair[1].save(path)
            loaded = kind.load(path)
            check_slots(loaded)
            pair[1] = data.draw(st.sampled_from([loaded, pair[1]]))


@given(st.data())
@settings(max_examples=60)
def test_transitions(data):
    """All that a list of steps holds can be drawn, and nothing else."""
    num_envs = data.draw(st.sampled_from([None, 1, 4]))
    envs, length = num_envs or 1, data.draw(st.integers(1, 10))
    buffer = ReplayBuffer(envs * length, EXAMPLE, num_envs=num_envs, seed=0, derive_next=True)
    oracle, episodes = NaiveRing(envs, length), Episodes(data.draw(st.integers(0, 99)), envs, 0.2)
    for num_steps in data.draw(st.lists(st.integers(1, 14), min_size=1, max_size=8)):
        batch = episodes.take(num_steps)
        add(buffer, batch, num_envs, None)
        arrays, _ = buffer.structure.check(batch, 2)  # of the fields' dtypes
        oracle.add(buffer.structure.unflatten(arrays), num_steps)
        out = buffer.sample(50)
        for k, index in enumerate(out.indices.tolist()):
            found, expected = take(out.data, k), oracle.rows[divmod(index, length)]
            assert found == expected


def simple(observation, following):
    """Steps whose flags say that no episode ever ends."""
    zeros = np.zeros(len(observation), bool)
    return {"observation": observation, "next_observation": following, "terminated": zeros}


def test_bytes_count_not_values():
    """NaN equals itself, whatever its bits; -0.0 is not 0.0."""
    quiet, other = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    observation = np.array([1.0, quiet, quiet, -0.0, 2.0], np.float32)
    following = np.array([quiet, quiet, 0.0, 2.0, other], np.float32)
    buffer = ReplayBuffer(8, SMALL, derive_next=True, seed=0)
    buffer.add(simple(observation, following))
    assert np.flatnonzero(buffer._storage.slot_numbers).tolist() == [2, 4]
    buffer.add(simple(np.array([quiet], np.float32), following[:1]))
    assert np.flatnonzero(buffer._storage.slot_numbers).tolist() == [2, 4, 5]
    batch = buffer.sample(100)
    expected = np.append(following, quiet)[batch.indices]
    assert batch["next_observation"].tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "dtype", ["?", "f2", "c8", "S3", "U2", "M8[s]", [("a", "i4"), ("b", "u1", (3,))]]
)
def test_dtypes(dtype):
    item = np.zeros(2, dtype)
    example = {**SMALL, "observation": item, "next_observation": item}
    pair = [ReplayBuffer(40, example, seed=0, derive_next=d) for d in (False, True)]
    numbers = np.random.default_rng(0).integers(0, 2, (51, 2 * item.itemsize), np.uint8)
    rows = (numbers + (49 if item.dtype.kind in "SU" else 0)).astype(np.uint8)
    if item.dtype.kind == "U":
        rows.view(np.uint32)[:] %= 100
    observation = rows.view(dtype).reshape(51, 2)
    following = observation[1:].copy()
    following[::9] = observation[::9][: len(following[::9])]
    for buffer in pair:
        buffer.add(simple(observation[:-1], following))
    assert 1 <= np.count_nonzero(pair[1]._storage.slot_numbers) <= 7
    same(*(buffer.sample(200) for buffer in pair))


def test_equal_observations_need_no_room():
    buffer = ReplayBuffer(50, SMALL, derive_next=True, seed=0)
    zeros = np.zeros(7, np.float32)
    for _ in range(30):
        buffer.add(simple(zeros, zeros))
        assert np.count_nonzero(buffer._storage.slot_numbers) == 1
    assert buffer._storage.free_slots.size == 2
    assert (buffer.sample(100)["next_observation"] == 0).all()


def test_slots_are_used_again():
    episodes = Episodes(0, 4, 0.1)
    buffer = ReplayBuffer(400, EXAMPLE, num_envs=4, derive_next=True, seed=0)
    most = 0
    for _ in range(300):
        buffer.add(episodes.take(7))
        check_slots(buffer)
        most = max(most, np.count_nonzero(buffer._storage.slot_numbers))
    assert 4 < most < 150
    assert buffer._storage.free_slots.size - 1 < 2 * most
    rng = np.random.default_rng(0)
    for num_steps in (*[3] * 40, 99, 100, 101, 250, 1):  # no observation ever follows
        batch = episodes.take(num_steps)
        batch["observation"]["state"] = rng.random((num_steps, 4, 3))
        buffer.add(batch)
        check_slots(buffer)
        assert buffer._storage.free_slots.size - 1 <= 400
    assert np.count_nonzero(buffer._storage.slot_numbers) == 400


def test_half_the_memory():
    wide = np.zeros(100, np.float32)
    example = {**SMALL, "observation": wide, "next_observation": wide}
    stored, derived = (ReplayBuffer(2000, example, derive_next=d) for d in (False, True))
    observation = np.random.default_rng(0).random((2001, 100)).astype(np.float32)
    following = observation[1:].copy()
    following[::20] = 0
    derived.add(simple(observation[:-1], following))
    assert derived.num_bytes < 0.56 * stored.num_bytes
    storage = derived._storage
    parts = (storage.block, storage.slot_numbers, storage.slots, storage.free_slots)
    assert derived.num_bytes == sum(part.nbytes for part in parts)


def test_no_room_changes_nothing(monkeypatch):
    buffer = ReplayBuffer(40, EXAMPLE, num_envs=2, derive_next=True, seed=0)
    episodes = Episodes(0, 2, 0.0)
    buffer.add(episodes.take(5))
    before = state_of(buffer)

    def refuse(num_bytes):
        raise MemoryError(num_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(derive_module, "allocate", refuse)
        episodes.ends = 1.0
        with pytest.raises(MemoryError):
            buffer.add(episodes.take(5))
    assert state_of(buffer) == before
    buffer.add(episodes.take(5))
    assert np.count_nonzero(buffer._storage.slot_numbers) >= 10


def test_no_next_observation_is_torn():
    example = {"observation": np.zeros(30), "next_observation": np.zeros(30)}
    buffer = ReplayBuffer(64, example, num_envs=2, derive_next=True, seed=0)
    stop, errors = threading.Event(), []

    def add(number):
        at = np.full((2, 30), float(number))
        buffer.add({"observation": at, "next_observation": at + (0.5 if number % 3 else 1.0)})

    def sample():
        while not stop.is_set():
            batch = buffer.sample(8)
            number = batch["observation"]
            if (batch["next_observation"] != number + np.where(number % 3, 0.5, 1.0)).any():
                errors.append(batch)

    for number in range(50):
        add(number)
    threads = [threading.Thread(target=sample) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(50, 1000):
        add(number)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors


def test_mixed_with_a_buffer_that_stores(tmp_path):
    pair, episodes = make_pair(ReplayBuffer, 30), Episodes(0, 1, 0.2)
    for buffer in pair:
        buffer.add(squeeze(episodes.take(50)))
    mixer = Mixer(pair, [1, 1])
    mixer.save(tmp_path / "mixer")
    loaded = Mixer.load(tmp_path / "mixer")
    assert loaded.buffers[1].derive_next
    same(mixer.sample(40), loaded.sample(40))


def test_memmap(tmp_path):
    options = {"derive_next": True, "seed": 0}
    buffer = ReplayBuffer(20, EXAMPLE, memmap=tmp_path / "rows", **options)
    memory, episodes = ReplayBuffer(20, EXAMPLE, **options), Episodes(0, 1, 0.3)
    for _ in range(5):
        batch = squeeze(episodes.take(9))
        for each in (buffer, memory):
            each.add(batch)
        same(buffer.sample(30), memory.sample(30))
    assert (tmp_path / "rows").read_bytes() == memory._storage.block.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        ({"reward": 0.0}, ValueError, "derive_next: no field 'observation'"),
        ({"observation": 0}, ValueError, "derive_next: no field 'next_observation'"),
        ((0, 0), ValueError, "derive_next: no field 'observation'"),
        ({"observation": 0, "next_observation": 0.0}, ValueError, "next_observation: float64"),
        (
            {"observation": np.zeros(2), "next_observation": np.zeros(3)},
            ValueError,
            r"derive_next: .* got Transition.*\(observation: float64 \(2,\), next_observation: .*3",
        ),
        ({"observation": {"a": 0}, "next_observation": {"b": 0}}, ValueError, "observation.a"),
        ({"observation": {"a": 0}, "next_observation": 0}, ValueError, "observation.a"),
        ({"x": {"observation": 0, "next_observation": 0}}, ValueError, "no field 'observation'"),
    ],
)
def test_bad_examples(kind, example, error, message, tmp_path):
    with pytest.raises(error, match=message):
        kind(10, example, derive_next=True, memmap=tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_bad_arguments():
    for wrong in (1, "yes", None):
        with pytest.raises(TypeError, match="derive_next="):
            ReplayBuffer(10, SMALL, derive_next=wrong)
    with pytest.raises(ValueError, match="2147483648 transitions"):
        ReplayBuffer(2**31, SMALL, derive_next=True)
    assert ReplayBuffer(10, SMALL, derive_next=np.True_).derive_next is True


def test_bad_batches_change_nothing():
    buffer, episodes = make_pair(ReplayBuffer, 12, num_envs=2)[1], Episodes(0, 2, 0.3)
    buffer.add(episodes.take(9))
    before, good = state_of(buffer), episodes.take(3)
    changes = [
        ({"reward": np.zeros((3, 2, 1), np.float32)}, ValueError),
        ({"next_observation": good["next_observation"]["state"]}, TypeError),
        ({"next_observation": {"state": good["next_observation"]["state"]}}, ValueError),
        ({"observation": {**good["observation"], "camera": np.full((3, 2, 2), 300)}}, ValueError),
        ({"bonus": good["reward"]}, ValueError),
    ]
    for change, error in changes:
        with pytest.raises(error):
            buffer.add({**good, **change})
        assert state_of(buffer) == before
    del good["next_observation"]
    with pytest.raises(ValueError, match="next_observation"):
        buffer.add(good)
    assert state_of(buffer) == before
