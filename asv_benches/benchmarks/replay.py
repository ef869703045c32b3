"""Saving, and drawing with other goals."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from asv_benches.peers.replay import filled_buffer, transitions

from ._common import Quick, require


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


class Goals(Quick):
    """A batch of 256 of 10^6 transitions of 8 environments, plain or with other goals.

    Goals of 3 numbers, as in Gymnasium-Robotics' FetchReach, episodes of 50 steps.
    """

    params, param_names = (["plain", "hindsight"],), ("kind",)

    def setup(self, kind):
        parts = {"observation": (10,), "achieved_goal": (3,), "desired_goal": (3,)}
        numbers, steps = {"action": (4,), "reward": ()}, 12_500
        names = ("observation", "next_observation")

        def batch_of(make):
            batch = {
                name: {part: make(part, shape) for part, shape in parts.items()} for name in names
            }
            return batch | {name: make(name, shape) for name, shape in numbers.items()}

        example = batch_of(lambda name, shape: np.zeros(shape, np.float32))
        example |= {"terminated": False, "truncated": False}
        options = {"num_envs": 8, "seed": 0}
        name = "ReplayBuffer"
        if kind == "hindsight":
            name, options = "HindsightReplayBuffer", {**options, "compute_reward": reward}
        self.buffer = require(f"rlcpu.replay.{name}")(10**6, example, **options)
        rng = np.random.default_rng(0)
        path = rng.standard_normal((steps + 1, 8, 3), np.float32)
        for _ in range(10**6 // (8 * steps)):
            batch = batch_of(lambda name, shape: np.zeros((steps, 8, *shape), np.float32))
            batch["observation"]["achieved_goal"] = path[:-1]
            batch["next_observation"]["achieved_goal"] = path[1:]
            ends = np.repeat((np.arange(steps) % 50 == 49)[:, None], 8, axis=1)
            self.buffer.add({**batch, "terminated": np.zeros_like(ends), "truncated": ends})
        self.batch = self.buffer.sample(256)

    def time_sample(self, *_):
        """Into the memory of the last batch."""
        self.buffer.sample(256, out=self.batch)


def reward(achieved, desired):
    """0 near the goal, else -1."""
    return -(np.square(achieved - desired).sum(axis=1) > 0.0025).astype(np.float32)
