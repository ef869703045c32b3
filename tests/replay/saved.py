"""Checkpoints of plain arrays, in blocks so small that a few bytes take several writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rlcpu.replay import checkpoint
from rlcpu.replay.checkpoint import Section, reading, save
from rlcpu.replay.folder import LOCK

Bytes = npt.NDArray[np.uint8]


@contextmanager
def small_blocks(size: int = 8) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "BLOCK", size)
        yield


def store(path: Path, header: Any, arrays: dict[str, Bytes], since: str | None = None) -> str:
    return save(path, header, [Section(name, data) for name, data in arrays.items()], since)


def load(path: Path) -> tuple[Any, dict[str, bytes]]:
    with reading(path) as reader:
        arrays = {
            name: np.zeros(reader.num_bytes(name), np.uint8) for name in tuple(reader.sections)
        }
        for name, out in arrays.items():
            reader.read_into(name, out)
        return reader.header, {name: out.tobytes() for name, out in arrays.items()}


def make_arrays(value: int, sizes: tuple[int, ...] = (77, 8, 0, 1)) -> dict[str, Bytes]:
    rng = np.random.default_rng(value)
    return {f"part_{k}": rng.integers(0, 256, n, np.uint8) for k, n in enumerate(sizes)}


def as_bytes(arrays: dict[str, Bytes]) -> dict[str, bytes]:
    return {name: data.tobytes() for name, data in arrays.items()}


def files(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def named(path: Path) -> set[str]:
    """Every file that belongs to the checkpoint in a folder."""
    with reading(path) as reader:
        files = {part.file for _, parts in reader.sections.values() for part in parts}
    return {checkpoint.MANIFEST, LOCK, *files}
