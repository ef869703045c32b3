"""Checkpoints made by somebody else: refused or loaded, and nothing else happens."""

import copy
import os
import random
import shutil

import numpy as np
import pytest

from rlcpu.replay import (
    Mixer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryQueue,
)
from tests.replay.saved import files, named
from tests.replay.test_manifest import forge, read_content

EXAMPLE = {"observation": np.zeros(3, np.float32), "next_observation": np.zeros(3, np.float32)}
DATA = {name: np.arange(30, dtype=np.float32).reshape(10, 3) for name in EXAMPLE}


def make(name):
    """A buffer of a kind that holds something."""
    if name == "mixer":
        return Mixer([make("replay"), make("prioritized")], [1, 2])
    if name in ("queue", "trajectory"):
        kind = TrajectoryQueue if name == "queue" else PrioritizedTrajectoryBuffer
        buffer = kind(2, 8, EXAMPLE, 2, seed=0)
        buffer.add({name: rows.reshape(5, 2, 3) for name, rows in DATA.items()})
        return buffer
    if name == "weighted":
        buffer = ReturnWeightedBuffer(16, EXAMPLE, seed=0)
        buffer.add(DATA, np.arange(10.0))
        return buffer
    kind = PrioritizedReplayBuffer if name == "prioritized" else ReplayBuffer
    buffer = kind(16, EXAMPLE, derive_next=name == "replay", seed=0)
    buffer.add(DATA)
    return buffer


NAMES = ["replay", "prioritized", "weighted", "trajectory", "queue", "mixer"]
# What is put in the place of anything in a manifest.
ODD = [
    *(None, True, -1, 0, 1, 2, 1.5, 10**6, 2**31, 10**9, 2**47, 2**63, 10**18, 10**400, -(10**400)),
    *(
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        "1",
        "../x",
        "cuda",
        "/tmp/x",
        "\x00",
        "a" * 9999,
    ),
    *([], [0], [[]], [None] * 9, {}, {"memmap": "outside"}, {"device": "cuda"}, {"": None}),
]
EXTRA = ["memmap", "device", "example", "num_threads", "seed", "structure", "self", "", "kind"]


def places(value, path=()):
    """The way to everything in a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(pairs):
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


def change(content, rng):
    """Replace, remove, add or swap something."""
    *way, last = rng.choice(list(places(content)))
    parent = content
    for key in way:
        parent = parent[key]
    match rng.randrange(5):
        case 0:
            del parent[last]
        case 1 if isinstance(parent, dict):
            parent[rng.choice(EXTRA)] = copy.deepcopy(rng.choice(ODD))
        case 2 if isinstance(parent, list):
            parent.append(copy.deepcopy(rng.choice([parent[last], *ODD])))
        case _:
            parent[last] = copy.deepcopy(rng.choice(ODD))


def attack(folder, buffer, count, seed):
    """Load so many damaged copies of a buffer's checkpoint; how many were loaded after all."""
    rng, path, outside = random.Random(seed), folder / "saved", folder / "outside"
    buffer.save(path)
    outside.write_bytes(b"precious")
    whole, content, loaded = files(path), read_content(path), 0
    os.chdir(folder)
    for _ in range(count):
        shutil.rmtree(path)
        path.mkdir()
        for name, data in whole.items():
            (path / name).write_bytes(data)
        match rng.randrange(6):
            case 0:  # bits, or an end that is cut off
                name = rng.choice([name for name, data in whole.items() if data])
                data = bytearray(whole[name])
                for _ in range(rng.randrange(1, 4)):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                (path / name).write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
            case 1:  # no file
                name = rng.choice([*whole, *named(path)])
                (path / name).unlink(missing_ok=True)
                match rng.randrange(4):
                    case 0:
                        (path / name).symlink_to(rng.choice([outside, folder / "none", path]))
                    case 1:
                        os.mkfifo(path / name)
                    case 2:
                        (path / name).mkdir()
            case _:
                changed = copy.deepcopy(content)
                for _ in range(rng.choice([1, 1, 1, 2, 3])):
                    change(changed, rng)
                (path / "manifest.json").write_bytes(forge(changed))
        before = sorted(entry.name for entry in path.iterdir())
        try:
            again = type(buffer).load(path)
            if again.can_sample(1):
                queue = isinstance(again, TrajectoryQueue)
                again.sample() if queue else again.sample(1)
            loaded += 1
        except (ValueError, OSError, MemoryError):
            pass
        assert sorted(entry.name for entry in path.iterdir()) == before
        assert sorted(entry.name for entry in folder.iterdir()) == ["outside", "saved"]
        assert outside.read_bytes() == b"precious"
    return loaded


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("name", NAMES)
def test_damaged_checkpoints_are_refused_or_loaded(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    attack(tmp_path, make(name), 100, NAMES.index(name))


def forged(buffer, path, *changes):
    """A checkpoint in whose manifest each (keys, value) is put."""
    buffer.save(path)
    content = read_content(path)
    for keys, value in changes:
        place = content
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
    (path / "manifest.json").write_bytes(forge(content))
    return path


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [("memmap", "memmap", "outside"), ("device", "device", "cuda"), ("threads", "num_threads", 1)],
)
def test_settings_are_those_of_the_buffer_alone(name, setting, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = forged(
        make("mixer"), tmp_path / "mixer", (("header", "parts", 1, "settings", setting), value)
    )
    with pytest.raises(ValueError, match=f"settings: .*{setting}"):
        Mixer.load(path)
    path = forged(make("replay"), tmp_path / "replay", (("header", "settings", setting), value))
    with pytest.raises(ValueError, match=f"settings: .*{setting}"):
        ReplayBuffer.load(path)
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("name", ["rlcpu.lock", "manifest.json", "data"])
@pytest.mark.parametrize("put", ["link", "dangling", "pipe"])
def test_links_and_pipes_are_neither_followed_nor_waited_for(name, put, tmp_path):
    path, outside = tmp_path / "saved", tmp_path / "outside"
    buffer = make("replay")
    buffer.save(path)
    name = next(file.name for file in path.iterdir() if name in file.name)
    if put == "link":
        shutil.copy(path / name, outside)
    (path / name).unlink()
    os.mkfifo(path / name) if put == "pipe" else (path / name).symlink_to(outside)
    with pytest.raises(ValueError, match="saved"):
        ReplayBuffer.load(path)
    if name != "manifest.json" and not name.endswith(".data"):
        with pytest.raises(ValueError, match="saved"):
            buffer.save(path)
    assert outside.exists() == (put == "link")


def test_a_few_bytes_do_not_become_many_items(tmp_path):
    items, size = 10**8, 24 * 10**8
    large = (("header", "settings", "capacity"), items), (("header", "added"), items)
    rows = (("sections", "rows"), [size, []])
    path = forged(ReplayBuffer(9, EXAMPLE), tmp_path / "a", *large, rows)
    with pytest.raises(ValueError, match="100000000 transitions in 0 bytes of files"):
        ReplayBuffer.load(path)
    path = forged(ReplayBuffer(9, EXAMPLE), tmp_path / "b", *large)
    with pytest.raises(ValueError, match="100000000 transitions in 256 bytes"):
        ReplayBuffer.load(path)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_memory_is_taken_for_what_is_in_the_files(tmp_path):
    """A large buffer with little in it: its checkpoint is small, and its items take no memory."""

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    buffer = PrioritizedReplayBuffer(2**25, EXAMPLE, seed=0)
    buffer.add(DATA)
    buffer.save(tmp_path / "saved")
    before = resident()
    again = PrioritizedReplayBuffer.load(tmp_path / "saved")
    assert resident() - before < 5e7  # of 1.1e9
    assert set(again.sample(50).indices.tolist()) <= set(range(10))
