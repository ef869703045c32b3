"""Checkpoints: what is loaded is what was saved, and nothing else is loaded."""

from __future__ import annotations

import shutil
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.replay.checkpoint import Section, reading, save
from tests.replay.saved import as_bytes, files, load, make_arrays, named, small_blocks, store

HEADER = {
    "integers": [0, -(2**63), 2**64 - 1, 2**127, True, None],
    "floats": [0.1, -0.0, 1e-323, 1.7976931348623157e308, 1.0],
    "text": "\u00e4 \U0001f600 \ud800 \x00 \n",
    "nested": {"": [[], {}]},
}


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    path, arrays = tmp_path / "buffer", make_arrays(0)
    with small_blocks():
        token = store(path, HEADER, arrays)
        header, loaded = load(path)
    assert repr(header) == repr(HEADER)
    assert loaded == as_bytes(arrays)
    with reading(path) as reader:
        assert reader.token == token
        assert tuple(reader.sections) == tuple(arrays)
        assert reader.num_bytes("part_0") == 77


def test_block_sizes_of_another_time_are_read(tmp_path: Path) -> None:
    arrays = make_arrays(0)
    with small_blocks(8):
        token = store(tmp_path / "buffer", {}, arrays)
    assert load(tmp_path / "buffer")[1] == as_bytes(arrays)
    store(tmp_path / "buffer", {}, arrays, token)
    assert load(tmp_path / "buffer")[1] == as_bytes(arrays)


RANGES = st.tuples(st.integers(0, 90), st.integers(0, 90)).map(sorted).map(tuple)
# Bytes to change; whether to say which; whether to say since when; the folder.
STEP = st.tuples(
    st.lists(RANGES, max_size=4), st.booleans(), st.booleans(), st.sampled_from(["first", "second"])
)


@given(st.lists(STEP, max_size=12), st.integers(1, 90), st.integers(0, 2**32 - 1))
def test_any_sequence_of_saves(steps: list[Any], size: int, seed: int) -> None:
    """Two folders take turns: what changed since a save to one says nothing about the other."""
    rng, data, extra = np.random.default_rng(seed), np.zeros(size, np.uint8), np.zeros(9, np.uint8)
    token = None
    with small_blocks(), tempfile.TemporaryDirectory() as folder:
        for number, (ranges, tell, known, name) in enumerate(steps):
            ranges = [(min(begin, size), min(end, size)) for begin, end in ranges]
            for begin, end in ranges:
                data[begin:end] = rng.integers(0, 3, end - begin)
            extra[:] = rng.integers(0, 2)
            written = [(0, size // 2), (size // 3, size)] if number % 2 else None
            changed = ranges if tell else None
            sections = [Section("data", data, changed, written), Section("extra", extra)]
            since = token if known else None
            token = save(Path(folder) / name, {"step": number}, sections, since)
            expected = {"data": data.tobytes(), "extra": extra.tobytes()}
            assert load(Path(folder) / name) == ({"step": number}, expected)
            assert files(Path(folder) / name).keys() == named(Path(folder) / name)


def test_sections_come_go_and_change_their_size(tmp_path: Path) -> None:
    path, token = tmp_path / "buffer", None
    with small_blocks():
        for sizes in [(50, 9), (50,), (50, 10, 3), (51, 9), (), (7, 80)]:
            arrays = make_arrays(len(sizes), sizes)
            token = store(path, {"sizes": list(sizes)}, arrays, token)
            assert load(path) == ({"sizes": list(sizes)}, as_bytes(arrays))
            assert files(path).keys() == named(path)


def damage(content: bytes) -> list[bytes]:
    """Every truncation and every flipped bit of a small file, a byte more, and nothing at all."""
    bits = [bytearray(content) for _ in range(8 * len(content))]
    for position, flipped in enumerate(bits):
        flipped[position // 8] ^= 1 << position % 8
    return [*map(bytes, bits), *(content[:size] for size in range(len(content))), content + b"\n"]


def test_damage_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    path, arrays = tmp_path / "buffer", make_arrays(0, (40, 3))
    with small_blocks():
        store(path, {"x": [1.5, "text"]}, arrays)
        for name in named(path) - {"rlcpu.lock"}:
            whole = (path / name).read_bytes()
            for content in damage(whole):
                (path / name).write_bytes(content)
                with pytest.raises(ValueError, match="buffer"):
                    load(path)
            (path / name).unlink()
            with pytest.raises((FileNotFoundError, ValueError), match="buffer"):
                load(path)
            (path / name).mkdir()
            with pytest.raises(ValueError, match="buffer"):
                load(path)
            (path / name).rmdir()
            (path / name).write_bytes(whole)
            assert load(path)[1] == as_bytes(arrays)


def test_damage_after_opening_is_noticed(tmp_path: Path) -> None:
    store(tmp_path / "buffer", {}, {"data": np.ones(50, np.uint8)})
    (name,) = named(tmp_path / "buffer") - {"rlcpu.lock", "manifest.json"}
    file, out = tmp_path / "buffer" / name, np.empty(50, np.uint8)
    with reading(tmp_path / "buffer") as reader:
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(ValueError, match="too short"):
            reader.read_into("data", out)
    with pytest.raises(ValueError, match="65 bytes, expected 66"):
        reading(tmp_path / "buffer").__enter__()


def test_damaged_segments_are_healed_by_a_save_of_everything(tmp_path: Path) -> None:
    path, arrays = tmp_path / "buffer", make_arrays(0)
    with small_blocks():
        token = store(path, {}, arrays)
        for name in named(path) - {"rlcpu.lock", "manifest.json"}:
            whole = (path / name).read_bytes()
            for content in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:], None):
                (path / name).unlink(missing_ok=True)
                if content is not None:
                    (path / name).write_bytes(content)
                token = store(path, {}, arrays, token)
                assert load(path)[1] == as_bytes(arrays)


@pytest.mark.parametrize(
    "size",
    [0, 3, 5],
)
def test_reading_into_what_does_not_fit(tmp_path: Path, size: int) -> None:
    out = np.zeros(size, np.uint8)
    store(tmp_path / "buffer", {}, {"data": np.ones(4, np.uint8)})
    with reading(tmp_path / "buffer") as reader:
        with pytest.raises(ValueError, match="data"):
            reader.read_into("data", out)
        with pytest.raises(ValueError, match="no section other"):
            reader.num_bytes("other")
    assert not out.any()


@pytest.mark.parametrize(
    "header",
    [
        {"x": float("nan")},
        {"x": -float("inf")},
        {1: 2},
        {"x": (1, 2)},
        {"x": "\ud83d\ude00"},
    ],
)
def test_headers_that_would_not_come_back_are_refused(tmp_path: Path, header: Any) -> None:
    with pytest.raises(ValueError, match=r"header|JSON"):
        save(tmp_path / "buffer", header, [])
    with pytest.raises(TypeError):
        save(tmp_path / "buffer", {"x": np.zeros(2)}, [])
    assert not list(tmp_path.iterdir())


def test_a_copy_goes_on_by_itself(tmp_path: Path) -> None:
    data = np.zeros(90, np.uint8)
    with small_blocks():
        token = save(tmp_path / "a", {}, [Section("data", data)])
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        data[3] = 1
        save(tmp_path / "a", {}, [Section("data", data, [(3, 4)])], token)
        data[80] = 2
        save(tmp_path / "b", {}, [Section("data", data, [(3, 4), (80, 81)])], token)
        assert load(tmp_path / "b")[1] == {"data": data.tobytes()}
        assert load(tmp_path / "a")[1]["data"][80] == 0


def test_a_sparse_file_larger_than_the_memory_taken(tmp_path: Path) -> None:
    size, names = 1 << 26, ("from", "to")
    source, target = (np.memmap(tmp_path / n, np.uint8, "w+", shape=(size,)) for n in names)
    source[:: 1 << 22] = 7
    tracemalloc.start()
    try:
        save(tmp_path / "buffer", {}, [Section("data", source)])
        save(tmp_path / "buffer", {}, [Section("data", source)])
        with reading(tmp_path / "buffer") as reader:
            reader.read_into("data", target)
        assert tracemalloc.get_traced_memory()[1] < 1 << 21
    finally:
        tracemalloc.stop()
    assert target[:: 1 << 22].min() == 7
    assert int(target[: 1 << 22].sum()) == 7
