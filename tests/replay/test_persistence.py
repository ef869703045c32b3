"""Buffers saved and loaded go on as if nothing had happened."""

import copy
import dataclasses
import os
import pickle
import threading

import numpy as np
import pytest

from rlcpu.replay import (
    ItemBuffer,
    Mixer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    SumTree,
    TrajectoryBuffer,
    TrajectoryQueue,
    tree_cpu,
)
from tests.replay.naive import EXAMPLE, state_of, steps


def make(kind, **options):
    if kind is TrajectoryQueue:
        return kind(2, 20, EXAMPLE, 7, seed=5, **options)
    if kind in (TrajectoryBuffer, PrioritizedTrajectoryBuffer):
        return kind(2, 20, EXAMPLE, 3, 2, seed=5, **options)
    following = {"next_observation": EXAMPLE["observation"]} if "derive_next" in options else {}
    return kind(40, {**EXAMPLE, **following}, seed=5, **options)


def drive(buffer, rng, rounds):
    """Add, sample and update for a while; returns all that was sampled."""
    seen = []
    for _ in range(rounds):
        if isinstance(buffer, TrajectoryBuffer | TrajectoryQueue):
            buffer.add(steps(rng, 7, 2))
        elif isinstance(buffer, ReturnWeightedBuffer):
            buffer.add(steps(rng, 7), rng.normal(size=7))
        elif isinstance(buffer, ItemBuffer):
            buffer.add(steps(rng))
        elif buffer.derive_next:
            buffer.add({**steps(rng, 7), "next_observation": steps(rng, 7)["observation"]})
        else:
            buffer.add(steps(rng, 7))
        batch = buffer.sample() if isinstance(buffer, TrajectoryQueue) else buffer.sample(4)
        if hasattr(buffer, "update_priorities"):
            buffer.update_priorities(batch.indices, rng.random(4))
        seen.append((batch.indices.tobytes(), batch["observation"]["state"].tobytes()))
    return seen


KINDS = [
    ItemBuffer,
    ReplayBuffer,
    PrioritizedReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
    PrioritizedTrajectoryBuffer,
]


@pytest.mark.parametrize("kind", KINDS)
def test_loaded_goes_on_bit_for_bit(kind, tmp_path):
    buffer, rng = make(kind), np.random.default_rng(0)
    for rounds in (4, 1, 2, 9):  # full and incremental saves, before and after going round
        drive(buffer, rng, rounds)
        buffer.save(tmp_path / "buffer")
        loaded = kind.load(tmp_path / "buffer", num_threads=1)
        assert state_of(loaded) == state_of(buffer)
        state = rng.bit_generator.state
        expected = drive(buffer, rng, 5)
        rng.bit_generator.state = state
        assert drive(loaded, rng, 5) == expected
        if rounds == 1:
            buffer = loaded  # whose next save is incremental too
            buffer.save(tmp_path / "buffer")


@pytest.mark.parametrize("kind", [*KINDS, TrajectoryQueue])
def test_a_save_is_told_the_truth(kind):
    """What is zero, and what has not changed since the save before."""
    buffer, rng, added = make(kind), np.random.default_rng(0), 0
    before = {part.name: part.data.copy() for part in buffer.sections(0)}
    for rounds in (0, 1, 1, 2, 9, 1):
        drive(buffer, rng, rounds)
        for name, data, changed, written in buffer.sections(added):
            for ranges, expected in ((changed, before[name]), (written, 0)):
                apart = np.ones(data.size, bool)
                for begin, end in [(0, data.size)] if ranges is None else ranges:
                    apart[begin:end] = False
                assert (data == expected)[apart].all()
            before[name] = data.copy()
        added = buffer._ring.added


OTHERS = [(TrajectoryQueue, {}), (ReplayBuffer, {"derive_next": True})]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
@pytest.mark.parametrize(("kind", "options"), [*((kind, {}) for kind in KINDS), *OTHERS])
def test_a_copy_goes_on_bit_for_bit_and_by_itself(kind, options, copied):
    buffer, rng = make(kind, **options), np.random.default_rng(0)
    for rounds in (1, 9):  # before and after going round
        drive(buffer, rng, rounds)
        other = copied(buffer)
        assert state_of(other) == state_of(buffer)
        state = rng.bit_generator.state
        expected = drive(buffer, rng, 5)
        before = state_of(buffer)
        rng.bit_generator.state = state
        assert drive(other, rng, 5) == expected
        drive(other, rng, 2)
        assert state_of(buffer) == before != state_of(other)


def test_a_copy_is_of_what_is_in_the_buffer(tmp_path):
    buffer = ReplayBuffer(10**6, EXAMPLE, seed=0)
    drive(buffer, np.random.default_rng(0), 1)
    assert len(pickle.dumps(buffer)) < 9999
    with pytest.raises(TypeError, match=r"in a file .* save\(\) it"):
        copy.deepcopy(make(ReplayBuffer, memmap=tmp_path / "rows"))


def test_trees_mixers_and_batches_are_copied():
    tree = SumTree(100, seed=0)
    tree.update(np.arange(50), np.arange(50.0))
    assert tree.max == 49.0
    mixer = Mixer([make(ReplayBuffer), make(PrioritizedReplayBuffer)], [1, 2])
    for buffer in mixer.buffers:
        drive(buffer, np.random.default_rng(0), 3)
    other, again = pickle.loads(pickle.dumps((tree, mixer)))
    assert other.sample(9).tolist() == tree.sample(9).tolist()
    assert (other.max, other.min, other.total) == (tree.max, tree.min, tree.total)
    batch, same = mixer.sample(9), again.sample(9)
    for each in (same, copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert len(each) == 9
        for name in ("indices", "sources", "weights"):
            assert getattr(each, name).tolist() == getattr(batch, name).tolist()
        assert each["observation"]["state"].tobytes() == batch["observation"]["state"].tobytes()
    part = mixer.buffers[0].sample(4)
    assert len(pickle.dumps(part)) < 2000  # without its buffer
    with pytest.raises(ValueError, match="out=Batch"):
        mixer.buffers[0].sample(4, out=copy.copy(part))


def test_saves_while_another_thread_adds(tmp_path):
    """Each holds whole transitions, of one moment."""
    buffer = ReplayBuffer(64, {"row": np.zeros(40), "number": 0}, seed=0)
    stop, held = threading.Event(), set()

    def add():
        first = 0
        while not stop.is_set():
            numbers = first + np.arange(5)
            buffer.add({"row": np.repeat(numbers[:, None], 40, 1), "number": numbers})
            first += 5

    writer = threading.Thread(target=add)
    writer.start()
    try:
        for _ in range(30):
            buffer.save(tmp_path / "buffer")
            loaded = ReplayBuffer.load(tmp_path / "buffer")
            row, number = loaded._storage.fields
            added, filled = loaded._ring.added, loaded._ring.filled
            assert sorted(number[0, :filled]) == list(range(added - filled, added))
            assert (row[0, :filled] == number[0, :filled, None]).all()
            held.add(added)
    finally:
        stop.set()
        writer.join()
    assert len(held) > 2


def test_incremental_save_writes_what_changed(tmp_path):
    buffer = ReplayBuffer(20_000, {"x": np.zeros(200)}, seed=0)
    buffer.add({"x": np.random.default_rng(0).random((20_000, 200))})
    path = tmp_path / "buffer"
    buffer.save(path)
    before = {file.name for file in path.iterdir()}
    buffer.add({"x": np.ones((100, 200))})
    buffer.save(path)
    new = sum(file.stat().st_size for file in path.iterdir() if file.name not in before)
    assert new < 4e6 < 32e6
    np.testing.assert_array_equal(
        ReplayBuffer.load(path)._storage.fields[0], buffer._storage.fields[0]
    )


def test_memmap(tmp_path):
    buffer = ReplayBuffer(50, EXAMPLE, memmap=tmp_path / "rows", seed=0)
    rng = np.random.default_rng(0)
    drive(buffer, rng, 5)
    buffer.save(tmp_path / "saved")
    loaded = ReplayBuffer.load(tmp_path / "saved", memmap=tmp_path / "again")
    assert loaded._storage.block.tobytes() == buffer._storage.block.tobytes()
    assert (tmp_path / "again").read_bytes() == loaded._storage.block.tobytes()
    with pytest.raises(FileExistsError):
        ReplayBuffer(50, EXAMPLE, memmap=tmp_path / "rows")


def test_foreign_and_damaged(tmp_path):
    buffer = make(ReplayBuffer)
    drive(buffer, np.random.default_rng(0), 3)
    path = tmp_path / "buffer"
    with pytest.raises(FileNotFoundError):
        ReplayBuffer.load(path)
    buffer.save(path)
    with pytest.raises(ValueError, match="holds a ReplayBuffer, expected a TrajectoryBuffer"):
        TrajectoryBuffer.load(path)
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        if not content:
            continue
        for damaged in (content[:-1], content[: len(content) // 2] + b"!"):
            file.write_bytes(damaged)
            with pytest.raises(ValueError, match=str(tmp_path)):
                ReplayBuffer.load(path, memmap=tmp_path / "rows")
            assert not (tmp_path / "rows").exists()
        file.write_bytes(content)
    assert len(ReplayBuffer.load(path)) == len(buffer)
    other = tmp_path / "notes"
    other.mkdir()
    (other / "a").write_text("text")
    with pytest.raises(ValueError, match="notes"):
        buffer.save(other)
    assert [f.name for f in other.iterdir()] == ["a"]


def test_dataclass_needs_the_example(tmp_path):
    @dataclasses.dataclass
    class Data:
        x: float

    buffer = ReplayBuffer(4, Data(0.0), seed=0)
    buffer.add(Data(np.arange(3.0)))
    buffer.save(tmp_path / "b")
    with pytest.raises(ValueError, match="example"):
        ReplayBuffer.load(tmp_path / "b")
    assert isinstance(ReplayBuffer.load(tmp_path / "b", example=Data(0.0)).sample(2).data, Data)


@pytest.mark.parametrize("memmap", [True, False, 1, 1.5, b"rows"])
def test_what_is_no_path_is_no_file(memmap):
    before = os.fstat(1)
    for kind in KINDS:
        with pytest.raises(TypeError, match=r"memmap=.* expected a path"):
            make(kind, memmap=memmap)
    assert os.fstat(1)[:7] == before[:7]


def test_a_file_that_was_made_goes_with_its_buffer(tmp_path, monkeypatch):
    """Where the constructor raises in the end; a file that was there before stays."""
    rows = tmp_path / "rows"
    for kind in (PrioritizedReplayBuffer, PrioritizedTrajectoryBuffer):
        with pytest.raises(ValueError, match="alpha"):
            make(kind, memmap=rows, alpha=np.nan)
        assert not rows.exists()
    places = ((tree_cpu, "make_tree", ReturnWeightedBuffer), (np, "memmap", ReplayBuffer))
    for module, name, kind in places:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, refuse)
            with pytest.raises(MemoryError):
                make(kind, memmap=rows)
        assert not rows.exists()
    with pytest.raises(MemoryError, match="no room"):
        ReplayBuffer(2**47, {"x": np.zeros(2**20)}, memmap=rows)
    assert not rows.exists()
    rows.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        make(ReplayBuffer, memmap=rows)
    assert rows.read_bytes() == b"precious"


def refuse(*_, **__):
    raise MemoryError
