"""Checkpoints of buffers that do not store next observations: whole, in part, damaged."""

from copy import deepcopy

import numpy as np
import pytest

from rlcpu.replay import PrioritizedReplayBuffer, ReplayBuffer, ReturnWeightedBuffer, checkpoint
from rlcpu.replay.checkpoint import Section, reading
from tests.replay.derived import EXAMPLE, Episodes, check_slots, same, squeeze
from tests.replay.saved import small_blocks


def filled(kind=ReplayBuffer, num_steps=30, **options):
    """A buffer of 2 x 20 steps (20 of one environment where there is but one)."""
    if kind is not ReturnWeightedBuffer:
        options.setdefault("num_envs", 2)
    buffer = kind(20 * (options.get("num_envs") or 1), EXAMPLE, seed=0, derive_next=True, **options)
    drive(buffer, Episodes(0, options.get("num_envs") or 1, 0.2), num_steps)
    return buffer


def drive(buffer, episodes, num_steps):
    batch = episodes.take(num_steps)
    if isinstance(buffer, ReturnWeightedBuffer):
        buffer.add(squeeze(batch), 1.0 + np.arange(num_steps))
    else:
        buffer.add(batch)


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, ReturnWeightedBuffer])
def test_loaded_goes_on_bit_for_bit(kind, tmp_path):
    buffer = filled(kind, 5)
    episodes = Episodes(1, buffer._envs, 0.3)
    with small_blocks():
        for num_steps in (1, 2, 0, 7, 30, 1, 1):  # saves of what has changed
            drive(buffer, episodes, num_steps)
            buffer.save(tmp_path / "buffer")
            loaded, again = kind.load(tmp_path / "buffer", num_threads=1), deepcopy(episodes)
            check_slots(loaded)
            assert loaded.derive_next
            assert loaded._storage.slot_numbers.tobytes() == buffer._storage.slot_numbers.tobytes()
            for _ in range(4):
                same(buffer.sample(5), loaded.sample(5))
                drive(buffer, episodes, 3)
                drive(loaded, again, 3)
            if num_steps == 7:
                buffer = loaded  # whose next save is of what has changed too
                buffer.save(tmp_path / "buffer")


def test_a_save_writes_what_has_changed(tmp_path):
    observation = np.zeros(500, np.float32)
    example = {"observation": observation, "next_observation": observation}
    buffer, rng = ReplayBuffer(8000, example, derive_next=True, seed=0), np.random.default_rng(0)

    def add(num_steps):
        pair = rng.random((2, num_steps, 500)).astype(np.float32)
        buffer.add({"observation": pair[0], "next_observation": pair[1]})

    add(8000)
    path = tmp_path / "buffer"
    buffer.save(path)
    before = {file.name for file in path.iterdir()}
    add(10)
    buffer.save(path)
    new = sum(file.stat().st_size for file in path.iterdir() if file.name not in before)
    assert new < 4e6 < 32e6 < buffer.num_bytes
    same(buffer.sample(50), ReplayBuffer.load(path).sample(50))


def spoil_rows(change):
    """A change of the section of slots' numbers, as (num_envs, length) int32."""

    def spoil(header, sections):
        numbers = sections["aside"].view(np.int32).reshape(2, 20)
        change(numbers)

    return spoil


def spoil_header(**changes):
    def spoil(header, sections):
        header.update(changes)

    return spoil


def swap_newest(numbers):
    numbers[0, 10], numbers[0, 9] = 0, numbers[0, 10]


def share(numbers):
    numbers[0, 9] = numbers[1, 10]


def set_first(value):
    def change(numbers):
        numbers[1, 12] = value

    return change


def cut(name, num_bytes):
    def spoil(header, sections):
        sections[name] = sections[name][:num_bytes]

    return spoil


def resize(name, num_slots):
    def spoil(header, sections):
        sections[name] = np.zeros(num_slots * 14, np.uint8)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_rows(set_first(10**6)), "aside: expected different slots"),
        (spoil_rows(set_first(-1)), "aside: expected different slots"),
        (spoil_rows(set_first(1)), "aside: expected different slots"),
        (spoil_rows(swap_newest), "aside: expected different slots"),
        (spoil_rows(share), "aside: expected different slots"),
        (resize("kept", 1), "section kept: 1 slots, expected 2 to 40"),
        (resize("kept", 41), "section kept: 41 slots, expected 2 to 40"),
        (spoil_header(added=3), "aside: expected different slots"),
        (spoil_header(added=12), "aside: expected different slots"),
        (cut("aside", 80), "section aside"),
        (cut("kept", 14), "section kept"),
    ],
)
def test_nonsense(spoil, message, tmp_path):
    buffer = filled(num_steps=11)
    header = buffer.describe()
    sections = {part.name: part.data.copy() for part in buffer.sections(0)}
    spoil(header, sections)
    parts = [Section(name, data) for name, data in sections.items()]
    checkpoint.save(tmp_path / "buffer", header, parts)
    with pytest.raises(ValueError, match=message):
        ReplayBuffer.load(tmp_path / "buffer", memmap=tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_no_more_slots_than_rows_need(tmp_path):
    """Their list takes memory, which a few bytes in a file must not take."""
    buffer = filled(num_steps=3)
    rows, aside, _ = buffer.sections(0)
    kept = Section("kept", np.zeros(13 * 14, np.uint8))
    checkpoint.save(tmp_path / "buffer", buffer.describe(), [rows, aside, kept])
    with pytest.raises(ValueError, match="section kept: 13 slots, expected 2 to 12"):
        ReplayBuffer.load(tmp_path / "buffer")


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_nonsense_setting(value, tmp_path):
    buffer = filled()
    header = buffer.describe()
    header["settings"]["derive_next"] = value
    checkpoint.save(tmp_path / "buffer", header, buffer.sections(0))
    with pytest.raises(ValueError, match="derive_next="):
        ReplayBuffer.load(tmp_path / "buffer")
    header["settings"]["derive_next"] = False
    checkpoint.save(tmp_path / "buffer", header, buffer.sections(0))
    with pytest.raises(ValueError, match="section rows"):
        ReplayBuffer.load(tmp_path / "buffer")


def test_sections_missing(tmp_path):
    buffer = filled()
    checkpoint.save(tmp_path / "buffer", buffer.describe(), buffer.sections(0)[:1])
    with reading(tmp_path / "buffer") as reader:
        assert tuple(reader.sections) == ("rows",)
    with pytest.raises(ValueError, match="no section kept"):
        ReplayBuffer.load(tmp_path / "buffer")
