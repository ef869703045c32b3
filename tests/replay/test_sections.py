"""What a save writes: the ranges that changed, or everything where that keeps the folder small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.replay import checkpoint
from rlcpu.replay.checkpoint import Section, reading, save
from tests.replay.saved import files, load, small_blocks

SIZE, TABLE = 1000, 16  # bytes of the data, and of a range in a table


@pytest.fixture(autouse=True)
def small() -> Any:
    with small_blocks(10):
        yield


def written(path: Path, before: dict[str, bytes]) -> int:
    """Bytes of data files that were not there before."""
    new = files(path).items() - before.items()
    return sum(len(content) for name, content in new if name.endswith(".data"))


@pytest.mark.parametrize(
    ("ranges", "num_ranges", "num_bytes"),
    [
        ([], 0, 0),
        ([(0, 0), (500, 500), (SIZE, SIZE)], 0, 0),
        ([(0, 1)], 1, 1),
        ([(9, 11)], 1, 2),
        ([(SIZE - 1, SIZE)], 1, 1),
        ([(990, 1000), (4, 9), (100, 130), (9, 11)], 4, 47),
        (np.array([[300, 304], [9, 12]], np.uint64), 2, 7),
    ],
)
def test_only_what_changed_is_written(
    tmp_path: Path, ranges: Any, num_ranges: int, num_bytes: int
) -> None:
    data, path = np.zeros(SIZE, np.uint8), tmp_path / "buffer"
    token = save(path, {}, [Section("data", data)])
    before = files(path)
    data[...] = 1
    save(path, {}, [Section("data", data, ranges)], token)
    assert written(path, before) == num_ranges * TABLE + num_bytes
    assert files(path).items() >= {n: b for n, b in before.items() if n.endswith("data")}.items()
    loaded = np.frombuffer(load(path)[1]["data"], np.uint8)
    assert loaded.sum() == num_bytes
    assert all(loaded[begin:end].all() for begin, end in np.asarray(ranges, int).reshape(-1, 2))


@pytest.mark.parametrize("since", [None, "0" * 32, "", "another"])
def test_changes_since_another_save_do_not_count(tmp_path: Path, since: str | None) -> None:
    data, path = np.zeros(SIZE, np.uint8), tmp_path / "buffer"
    first = save(path, {}, [Section("data", data)])
    second = save(path, {}, [Section("data", data + 1)])
    for token in (first if since == "another" else since, second, first):
        data[...] += 2
        save(path, {}, [Section("data", data, None if token == second else [])], token)
        assert load(path)[1] == {"data": data.tobytes()}


def test_a_folder_takes_at_most_twice_its_data(tmp_path: Path) -> None:
    rng, path, token = np.random.default_rng(0), tmp_path / "buffer", None
    data, most = np.zeros(SIZE, np.uint8), 0
    for _ in range(200):
        begin = int(rng.integers(0, SIZE - 30))
        data[begin : begin + 30] = rng.integers(0, 256, 30)
        token = save(path, {}, [Section("data", data, [(begin, begin + 30)])], token)
        sizes = [len(content) for name, content in files(path).items() if name.endswith(".data")]
        assert sum(sizes) <= 2 * (SIZE + TABLE)
        most = max(most, len(sizes))
    assert most > 10
    assert load(path)[1] == {"data": data.tobytes()}


def test_many_small_saves_do_not_become_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "MOST_PARTS", 5)
    data, path, token = np.zeros(SIZE, np.uint8), tmp_path / "buffer", None
    for at in range(20):
        data[at] = 1 + at
        token = save(path, {}, [Section("data", data, [(at, at + 1)])], token)
        assert sum(name.endswith(".data") for name in files(path)) == 1 + at % 5
        assert load(path)[1] == {"data": data.tobytes()}


def test_the_token_of_a_reader_counts(tmp_path: Path) -> None:
    data, path = np.zeros(SIZE, np.uint8), tmp_path / "buffer"
    save(path, {}, [Section("data", data)])
    with reading(path) as reader:
        token = reader.token
    before = files(path)
    data[55] = 1
    save(path, {}, [Section("data", data, [(55, 56)])], token)
    assert written(path, before) == TABLE + 1
    assert load(path)[1] == {"data": data.tobytes()}


def test_what_was_never_written_takes_no_room(tmp_path: Path) -> None:
    data, path = np.zeros(SIZE, np.uint8), tmp_path / "buffer"
    data[:30] = 1
    token = save(path, {}, [Section("data", data, None, [(0, 30)])])
    assert written(path, {}) == TABLE + 30
    before = files(path)
    data[30:40] = 2
    save(path, {}, [Section("data", data, [(30, 40)], [(0, 40)])], token)
    assert written(path, before) == TABLE + 10
    with reading(path) as reader:
        assert (reader.num_bytes("data"), reader.num_stored("data")) == (SIZE, 40)
        found = np.zeros_like(data)
        reader.read_into("data", found)
    np.testing.assert_array_equal(found, data)


def test_a_section_that_grew_is_written_in_part(tmp_path: Path) -> None:
    data, path = np.ones(SIZE, np.uint8), tmp_path / "buffer"
    token = save(path, {}, [Section("data", data)])
    before, data = files(path), np.concatenate([data, np.zeros(SIZE, np.uint8)])
    data[[3, SIZE + 1]] = 2
    changed = [(3, 4), (SIZE + 1, SIZE + 2)]
    token = save(path, {}, [Section("data", data, changed, [(0, SIZE + 2)])], token)
    assert written(path, before) == 2 * TABLE + 2
    assert load(path)[1] == {"data": data.tobytes()}
    save(path, {}, [Section("data", data[:50], [])], token)  # and one that shrank, wholly
    assert load(path)[1] == {"data": data[:50].tobytes()}


def test_parts_of_a_name(tmp_path: Path) -> None:
    arrays = {name: np.full(3, value, np.uint8) for value, name in enumerate(["a_x", "a_b_x", "x"])}
    save(tmp_path / "buffer", {}, [Section(*each) for each in arrays.items()])
    with reading(tmp_path / "buffer") as reader:
        for value, part in enumerate(
            [reader.within("a_"), reader.within("a_").within("b_"), reader]
        ):
            out = np.zeros(3, np.uint8)
            part.read_into("x", out)
            assert out.tolist() == [value] * 3
        with pytest.raises(ValueError, match="no section a_y"):
            reader.within("a_").num_bytes("y")
