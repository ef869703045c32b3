"""Saving and loading."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from ._common import Quick, require
from .replay import example, fill, transitions


class Checkpoint(Quick):
    """A full `PrioritizedReplayBuffer` of transitions of 44 bytes."""

    params, param_names = ([10**4, 10**5, 10**6],), ("capacity",)
    number = 1

    def setup(self, capacity):
        self.kind = require("rlcpu.replay.PrioritizedReplayBuffer")
        self.buffer = fill(self.kind(capacity, example(), seed=0), capacity)
        self.folder = Path(tempfile.mkdtemp())
        self.saved = self.folder / "saved"
        self.buffer.save(self.saved)
        self.batch = transitions(1000)

    def teardown(self, *_):
        shutil.rmtree(self.folder)

    def time_save(self, *_):
        """Into an empty folder."""
        target = self.folder / "new"
        self.buffer.save(target)
        shutil.rmtree(target)

    def time_save_changes(self, *_):
        """After 1,000 new transitions, into the folder of the last time."""
        self.buffer.add(self.batch)
        self.buffer.save(self.saved)

    def time_load(self, *_):
        self.kind.load(self.saved)


class Agent(Quick):
    """A PPO agent of CartPole-v1 that has learned next to nothing."""

    number = 1

    def setup(self):
        self.kind = require("rlcpu.train.PPO")
        self.agent = self.kind("CartPole-v1", seed=0)
        self.agent.learn(1)
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "agent.npz"
        self.agent.save(self.path)

    def teardown(self):
        shutil.rmtree(self.folder)

    def time_save(self):
        self.agent.save(self.path)

    def time_load(self):
        self.kind.load(self.path)
