"""Episodes for buffers that do not store next observations, and what must hold of such buffers."""

import numpy as np

from rlcpu.replay.structure import TransitionStructure
from tests.replay.naive import state_of as state_of_any

EXAMPLE = {
    "next_observation": {"state": np.zeros(3, np.float32), "camera": np.zeros(2, np.uint8)},
    "action": 0,
    "observation": {"camera": np.zeros(2, np.uint8), "state": np.zeros(3, np.float32)},
    "reward": np.float32(0),
    "terminated": False,
    "truncated": False,
}
SMALL = {"observation": np.float32(0), "next_observation": np.float32(0), "terminated": False}
# NaN twice, of other bits, and both zeros.
STATES = np.array([0x7FC00000, 0xFFC00001, 0, 0x80000000, 0x3F800000], np.uint32).view(np.float32)


class Episodes:
    """Endless steps of some environments, of any memory layout; flags lie as often as not.

    Observations have few values, so that they are equal by chance too.

    Args:
        seed: of all.
        num_envs: number of environments.
        ends: how often the next observation is not the one that follows.
    """

    def __init__(self, seed, num_envs, ends):
        self.rng, self.num_envs, self.ends = np.random.default_rng(seed), num_envs, ends
        self.now = self._observations(1)

    def _observations(self, num_steps):
        lead = (num_steps, self.num_envs)
        state = STATES[self.rng.integers(0, 5, (*lead, 3))]
        return {"camera": self.rng.integers(0, 2, (*lead, 2), np.uint8), "state": state}

    def take(self, num_steps):
        """The next steps, each leaf (num_steps, num_envs, ...)."""
        rng, lead = self.rng, (num_steps, self.num_envs)
        new, others = self._observations(num_steps), self._observations(num_steps)
        line = {name: np.concatenate([self.now[name], new[name]]) for name in new}
        self.now = {name: line[name][-1:] for name in new}
        ended = rng.random(lead)[..., None] < self.ends
        following = {n: np.where(ended, others[n], line[n][1:]) for n in ("camera", "state")}
        observation = {name: line[name][:-1] for name in ("state", "camera")}
        return {
            "observation": {name: self._laid_out(value) for name, value in observation.items()},
            "next_observation": {name: self._laid_out(v) for name, v in following.items()},
            "action": rng.integers(0, 9, lead),
            "reward": rng.random(lead).astype(np.float32),
            "terminated": rng.random(lead) < 0.2,
            "truncated": rng.random(lead) < 0.1,
        }

    def _laid_out(self, array):
        """The same values in another layout or dtype."""
        way = self.rng.integers(0, 4)
        if way == 0:
            return np.asfortranarray(array)
        if way == 1:
            return np.repeat(array, 2, axis=0)[::2]
        if way == 2 and array.dtype == np.uint8:
            return array.astype(np.int64)
        return array


def squeeze(batch):
    """(T, 1, ...) leaves as (T, ...)."""
    if isinstance(batch, dict):
        return {name: squeeze(value) for name, value in batch.items()}
    return batch[:, 0]


def state_of(buffer):
    """Every byte of a buffer that derives."""
    storage = buffer._storage
    parts = (storage.slot_numbers, storage.slots, storage.free_slots)
    return [*state_of_any(buffer), *(part.tobytes() for part in parts)]


def check_slots(buffer):
    """Every slot is free or one row's; the newest rows have one, those never written none."""
    storage, ring = buffer._storage, buffer._ring
    count, taken = storage.free_slots.size - 1, storage.slot_numbers[storage.slot_numbers > 0]
    free = storage.free_slots[1 : 1 + storage.free_slots[0]]
    assert sorted([*taken.tolist(), *free.tolist()]) == list(range(1, count + 1))
    assert (storage.slot_numbers >= 0).all()
    assert not storage.slot_numbers[:, ring.filled :].any()
    if ring.added:
        assert storage.slot_numbers[:, (ring.added - 1) % ring.length].all()
    assert storage.slots.size == count * storage._slot_bytes


def same(one, other):
    """Two batches are equal to the last bit."""
    assert one.indices.tobytes() == other.indices.tobytes()
    for name in ("probabilities", "weights", "discounts"):
        pair = [getattr(batch, name) for batch in (one, other)]
        assert (pair[0] is None) == (pair[1] is None)
        assert pair[0] is None or pair[0].tobytes() == pair[1].tobytes()
    leaves = [TransitionStructure(batch.data).collect(batch.data) for batch in (one, other)]
    for found, expected in zip(*leaves, strict=True):
        assert found.tobytes() == expected.tobytes()
