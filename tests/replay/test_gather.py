"""Rows to and from a storage against NumPy, in storages of every size."""

from __future__ import annotations

import numpy as np
import pytest

from rlcpu.replay import storage as gather
from rlcpu.replay.storage import allocate


@pytest.mark.parametrize("row_bytes", [1, 12, 400, 5000, 20000])
@pytest.mark.parametrize("num_bytes", [2**22, gather._BEYOND_CACHES])
@pytest.mark.parametrize("num_steps", [1, 2, 45])
def test_rows_of_many_environments_reach_their_slots(row_bytes, num_bytes, num_steps):
    num_envs = 3
    length = num_bytes // (num_envs * row_bytes)
    begin, slot = num_bytes - num_envs * length * row_bytes, length - num_steps
    rng = np.random.default_rng(row_bytes)
    steps = rng.integers(1, 256, (num_steps, num_envs, row_bytes), np.uint8)
    storage = allocate(num_bytes)
    first = begin + slot * row_bytes
    gather.scatter(steps.reshape(-1), storage, first, row_bytes, steps.shape[:2], length)
    rows = storage[begin:].reshape(num_envs, length, row_bytes)
    np.testing.assert_array_equal(rows[:, slot:], steps.swapaxes(0, 1))
    assert np.count_nonzero(storage) == steps.size


@pytest.mark.parametrize("each", [1, 32, 128])
@pytest.mark.parametrize("kernel", ["serial", "parallel"])
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("row_bytes", [1, 2, 4, 8, 100, 9000])
def test_sequences_are_copied_round_the_ring(each, kernel, steps, row_bytes):
    num_envs, length, batch_size = 2, 11, 45
    rng = np.random.default_rng(row_bytes)
    storage = rng.integers(0, 256, 64 + num_envs * length * row_bytes, np.uint8)
    rows = rng.integers(0, num_envs * length, batch_size)
    out = np.zeros(steps * batch_size * row_bytes, np.uint8)
    fields = np.array([[64, row_bytes, 0]])
    getattr(gather.GATHER, kernel)(storage, out, fields, rows, steps, length, each)
    ring = storage[64:].reshape(num_envs, length, row_bytes)
    env, slot = np.divmod(rows, length)
    expected = [ring[env, (slot + t) % length] for t in range(steps)]
    np.testing.assert_array_equal(out.reshape(steps, batch_size, row_bytes), expected)
