"""Bytes that a full buffer holds: growth of the process's resident memory."""

from __future__ import annotations

import dataclasses
import gc
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asv_benches.peers.duel import Measurement, prepare
from asv_benches.peers.isolate import explain
from asv_benches.peers.replay_buffers import CHUNK, BufferCalls
from asv_benches.peers.replay_calls import num_bytes, transitions
from asv_benches.peers.timing import Effort

STATUS = Path("/proc/self/statm")
NOTE = "growth of the process's resident memory from before the buffer is made until it is full"


@dataclass
class Held:
    """Ours against a peer's, or against the data alone. Called in a process of its own.

    Attributes:
        ours: made and filled first.
        peer: made and filled second; None stands for the data alone.
    """

    ours: BufferCalls
    peer: BufferCalls | None = None

    def __call__(self, effort: Effort) -> Measurement:
        """Measures once: pages are counted, not timed."""
        ours = growth(self.ours)
        peer = growth(self.peer) if self.peer else data_alone(self.ours.capacity)
        figures = [explain(x)[0] if isinstance(x, Exception) else float(x) for x in (ours, peer)]
        errors = [": ".join(explain(x)) for x in (ours, peer) if isinstance(x, Exception)]
        note = "; ".join([NOTE, *errors])
        if errors:
            return Measurement(*figures, note=note)
        return Measurement(*figures, ratio=figures[0] / figures[1], note=note)


def growth(contender: BufferCalls) -> int | Exception:
    """Bytes by which the process grows, after a small buffer has imported and compiled all."""
    small = dataclasses.replace(contender, capacity=8 * CHUNK)
    for each in (small, contender):
        gc.collect()
        before = resident()
        error = prepare(each)
        if error is not None:
            return error
        gc.collect()
        grown = resident() - before
    return grown


def resident() -> int:
    """Bytes of the process's resident memory; Linux only."""
    return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def data_alone(capacity: int) -> int:
    """Bytes of the transitions themselves."""
    return capacity * num_bytes(transitions(np.random.default_rng(0), 1))
