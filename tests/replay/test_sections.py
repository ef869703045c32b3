"""What a save writes: the chunks that changed, and those that keep the folder small."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.replay import chunks
from rlcpu.replay.checkpoint import Reader, Section, save
from tests.replay.saved import files, load, small_chunks

SIZE, CHUNK, FILE = 1000, 10, 200


@pytest.fixture(autouse=True)
def small() -> Any:
    with small_chunks(CHUNK, FILE):
        yield


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what is checksummed, to see what is read."""
    lengths: list[int] = []

    def count(data: memoryview, checksum: Any = chunks.checksum) -> int:
        lengths.append(len(data))
        return checksum(data)

    monkeypatch.setattr(chunks, "checksum", count)
    return lengths


def written(path: Path, before: dict[str, bytes]) -> int:
    """Bytes of data files that were not there before."""
    new = files(path).items() - before.items()
    return sum(len(content) for name, content in new if name.endswith(".data"))


@pytest.mark.parametrize(
    ("ranges", "num_chunks"),
    [
        ([], 0),
        ([(0, 0), (500, 500), (SIZE, SIZE)], 0),
        ([(0, 1)], 1),
        ([(9, 11)], 2),
        ([(10, 20)], 1),
        ([(SIZE - 1, SIZE)], 1),
        ([(5, 6), (990, 1000), (4, 9), (100, 130)], 5),
        ([(20, 60), (10, 40), (39, 41)], 5),
        (np.array([[300, 304], [9, 12]], np.uint64), 3),
    ],
)
def test_only_chunks_that_changed_are_read_and_written(
    tmp_path: Path, checked: list[int], ranges: Any, num_chunks: int
) -> None:
    data, path = np.zeros(SIZE, np.uint8), tmp_path / "buffer"
    token = save(path, {}, [Section("data", data)])
    before = files(path)
    checked.clear()
    data[...] = 1
    token = save(path, {}, [Section("data", data, ranges)], token)
    assert written(path, before) == num_chunks * CHUNK
    assert sum(checked) <= 2 * num_chunks * CHUNK
    loaded = np.frombuffer(load(path)[1]["data"], np.uint8)
    assert loaded.sum() == num_chunks * CHUNK
    assert all(loaded[begin:end].all() for begin, end in np.asarray(ranges, int).reshape(-1, 2))


@pytest.mark.parametrize("tell", [True, False])
def test_what_is_the_same_is_not_written_again(tmp_path: Path, tell: bool) -> None:
    data, path = np.arange(SIZE).astype(np.uint8), tmp_path / "buffer"
    token = save(path, {"x": 1}, [Section("data", data)])
    before = files(path)
    changed = [(0, SIZE)] if tell else None
    save(path, {"x": 2}, [Section("data", data.copy(), changed)], token if tell else None)
    assert written(path, before) == 0
    assert load(path) == ({"x": 2}, {"data": data.tobytes()})


@pytest.mark.parametrize("since", [None, "0" * 32, "", "another"])
def test_changes_since_another_save_do_not_count(tmp_path: Path, since: str | None) -> None:
    data, path = np.zeros(SIZE, np.uint8), tmp_path / "buffer"
    first = save(path, {}, [Section("data", data)])
    second = save(path, {}, [Section("data", data + 1)])
    for token in (first if since == "another" else since, second, first):
        data[...] += 2
        save(path, {}, [Section("data", data, None if token == second else [])], token)
        assert load(path)[1] == {"data": data.tobytes()}


def test_equal_checksums_alone_are_not_equality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "checksum", lambda data: 0)
    data = np.zeros(SIZE, np.uint8)
    for value in (1, 2):
        data[500] = value
        save(tmp_path / "buffer", {}, [Section("data", data)])
        assert load(tmp_path / "buffer")[1]["data"][500] == value


def test_a_folder_takes_at_most_twice_its_data(tmp_path: Path) -> None:
    rng, data, path, token = (
        np.random.default_rng(0),
        np.zeros(SIZE, np.uint8),
        tmp_path / "b",
        None,
    )
    for _ in range(200):
        begin = int(rng.integers(0, SIZE - 30))
        data[begin : begin + 30] = rng.integers(0, 256, 30)
        token = save(path, {}, [Section("data", data, [(begin, begin + 30)])], token)
        sizes = [len(content) for name, content in files(path).items() if name.endswith(".data")]
        assert sum(sizes) <= 2 * SIZE
        assert max(sizes) <= FILE
    assert load(path)[1] == {"data": data.tobytes()}


def test_the_token_of_a_reader_counts(tmp_path: Path) -> None:
    data, path = np.zeros(SIZE, np.uint8), tmp_path / "buffer"
    save(path, {}, [Section("data", data)])
    with Reader(path) as reader:
        token = reader.token
    before = files(path)
    data[55] = 1
    save(path, {}, [Section("data", data, [(55, 56)])], token)
    assert written(path, before) == CHUNK
    assert load(path)[1] == {"data": data.tobytes()}


@pytest.mark.parametrize(
    "changed",
    [[(-1, 3)], [(0, 11)], [(4, 3)], [(0.0, 1.0)], [(1, 2, 3)], [1, 2], [("a", "b")]],
)
def test_ranges_outside_are_refused(tmp_path: Path, changed: Any) -> None:
    with pytest.raises(ValueError, match="section data: changed"):
        save(tmp_path / "buffer", {}, [Section("data", np.zeros(10, np.uint8), changed)])
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("names", [["a", "a"], [""], ["A"], ["a/b"], [".."], ["a\n"]])
def test_names_are_checked(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(ValueError, match="names"):
        save(tmp_path / "buffer", {}, [Section(name, np.zeros(1, np.uint8)) for name in names])
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("data", [np.zeros(3), np.zeros((2, 2), np.uint8), np.zeros(8, "u1")[::2]])
def test_data_are_checked(tmp_path: Path, data: Any) -> None:
    with pytest.raises(ValueError, match="contiguous bytes"):
        save(tmp_path / "buffer", {}, [Section("data", data)])
    assert not os.listdir(tmp_path)


def test_zeros_take_no_room(tmp_path: Path) -> None:
    data, path = np.zeros(SIZE - 3, np.uint8), tmp_path / "buffer"
    data[[55, 994]] = 1
    token = save(path, {}, [Section("data", data)])
    assert written(path, {}) == CHUNK + (SIZE - 3) % CHUNK
    assert load(path)[1] == {"data": data.tobytes()}
    for value in (3, 0, 0, 4):  # nothing, then something, then nothing again
        data[300] = value
        token = save(path, {}, [Section("data", data, [(300, 301)])], token)
        with Reader(path) as reader:
            found = np.full_like(data, 255)
            reader.read_into("data", found)
        np.testing.assert_array_equal(found, data)


@pytest.mark.parametrize("place", [None, 0, 7, 8, 11])
@pytest.mark.parametrize("size", [0, 5, 12])
def test_zeros_are_told_from_all_else(size: int, place: int | None) -> None:
    data = np.zeros(size, np.uint8)
    if place is not None:
        data[place:size][:1] = 1
    assert chunks.is_zero(data.data) == (not data.any())


def test_large_sections_have_larger_chunks() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "MIN_CHUNK_BYTES", 1 << 18)
        assert chunks.chunk_bytes(0) == chunks.chunk_bytes(1 << 32) == 1 << 18
        assert chunks.chunk_bytes((1 << 32) + 1) == 1 << 19
        assert chunks.chunk_bytes(10**12) == 1 << 26
