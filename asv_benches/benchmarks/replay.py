"""Saving."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from asv_benches.peers.replay import filled_buffer, transitions

from ._common import Quick


class Checkpoint(Quick):
    """A full `PrioritizedReplayBuffer`. asv runs `setup` again before each timing."""

    params, param_names = ([10**4, 10**5],), ("capacity",)
    number = 1

    def setup(self, capacity):
        self.buffer = filled_buffer("prioritized", capacity)
        self.folder = Path(tempfile.mkdtemp())
        self.saved = self.folder / "saved"
        self.buffer.save(self.saved)
        self.batch = transitions(np.random.default_rng(0), 1000)

    def teardown(self, *_):
        shutil.rmtree(self.folder)

    def time_save(self, *_):
        """Into an empty folder."""
        self.buffer.save(self.folder / "new")

    def time_save_changes(self, *_):
        """After 1,000 new transitions, into the folder of the last time."""
        self.buffer.add(self.batch)
        self.buffer.save(self.saved)

    def time_load(self, *_):
        type(self.buffer).load(self.saved)
