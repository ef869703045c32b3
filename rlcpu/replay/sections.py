"""Sections of a checkpoint: which of their chunks are there already, and which to write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.replay import manifest
from rlcpu.replay.chunks import Source, Writer, chunk_bytes, lengths, parts
from rlcpu.replay.manifest import ZEROS, Chunk, Chunked, Manifest


class Section(NamedTuple):
    """A part of a buffer's memory.

    Attributes:
        name: of small letters, digits and underscores.
        data: its bytes, uint8 (num_bytes,), contiguous; nobody may write to them during a save.
        changed: ranges [begin, end) of bytes, shape (num_ranges, 2), outside of which nothing
            changed since the save that `since` names; None: any byte may have changed.
    """

    name: str
    data: npt.NDArray[np.uint8]
    changed: Sequence[tuple[int, int]] | npt.NDArray[np.int64] | None = None


def check_sections(sections: Sequence[Section]) -> None:
    """Raise ValueError for what `save` cannot write."""
    names = [section.name for section in sections]
    if len(set(names)) < len(names) or not all(map(manifest.SECTION.fullmatch, names)):
        raise ValueError(f"sections {names}: expected different names of [a-z0-9_]")
    for name, data, changed in sections:
        check_bytes(name, data)
        ranges = np.zeros((0, 2), np.int64) if changed is None else np.asarray(changed)
        if ranges.size and not (
            ranges.dtype.kind in "iu"
            and ranges.ndim == 2
            and ranges.shape[1] == 2
            and ranges.min() >= 0
            and ranges.max() <= len(data)
            and (ranges[:, 0] <= ranges[:, 1]).all()
        ):
            raise ValueError(f"section {name}: changed: expected ranges within {len(data)} bytes")


def check_bytes(name: str, data: npt.NDArray[np.uint8]) -> None:
    """Raise ValueError unless `data` are contiguous bytes."""
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
        raise ValueError(f"section {name}: {data.dtype} {data.shape}, expected contiguous bytes")


class Update:
    """Brings a folder's data files up to date; what was there stays.

    Args:
        path: the folder.
        old: the manifest in it.
        trusted: whether `Section.changed` counts from that manifest.
        source: reads old chunks.
        writer: takes new ones.
    """

    def __init__(
        self, path: Path, old: Manifest, trusted: bool, source: Source, writer: Writer
    ) -> None:
        self.old, self.trusted = old, trusted
        self.source, self.writer = source, writer
        found = lengths(path, old.files)
        self.whole = {name for name, size in old.files.items() if found[name] == size}

    def run(self, sections: Sequence[Section]) -> dict[str, Chunked]:
        """Every section's chunks, new and old."""
        new = {section.name: self._section(section) for section in sections}
        # At least half of each file is used, so that a folder takes at most twice its data.
        used = Manifest("", {}, {}, new).used()
        sparse = {name for name, size in self.old.files.items() if 2 * used[name] < size}
        for section in sections:
            size, chunks = new[section.name][1:]
            for index, data in enumerate(parts(section.data, size)):
                if chunks[index].file in sparse:
                    chunks[index] = self.writer.append(data)
        return new

    def _section(self, section: Section) -> Chunked:
        size = chunk_bytes(len(section.data))
        num_chunks = -(-len(section.data) // size)
        old = self._kept(section, size, num_chunks)
        touched = self._touched(section, size, num_chunks)
        chunks: list[Chunk] = []
        for chunk, changed, data in zip(old, touched, parts(section.data, size), strict=True):
            if chunk is None or (changed and not self.source.holds(chunk, data)):
                chunk = self.writer.append(data)
            chunks.append(chunk)
        return Chunked(len(section.data), size, chunks)

    def _kept(self, section: Section, size: int, num_chunks: int) -> list[Chunk | None]:
        """The chunks that are there already, perhaps with other bytes."""
        old = self.old.sections.get(section.name)
        if old is None or (old.num_bytes, old.chunk_bytes) != (len(section.data), size):
            return [None] * num_chunks
        kept = {ZEROS.file, *self.whole}
        return [chunk if chunk.file in kept else None for chunk in old.chunks]

    def _touched(self, section: Section, size: int, num_chunks: int) -> npt.NDArray[np.bool_]:
        """Which chunks may have changed."""
        if section.changed is None or not self.trusted:
            return np.ones(num_chunks, np.bool_)
        ranges = np.asarray(section.changed, np.int64).reshape(-1, 2)
        begin, end = ranges[ranges[:, 0] < ranges[:, 1]].T
        edges = np.zeros(num_chunks + 1, np.int64)
        np.add.at(edges, begin // size, 1)
        np.add.at(edges, (end - 1) // size + 1, -1)
        return np.cumsum(edges[:-1]) > 0
