"""Slow, obvious buffers: every step in a list."""

import numpy as np

EXAMPLE = {
    "observation": {"camera": np.zeros((2, 3), np.uint8), "state": np.zeros(5, np.float32)},
    "action": 0,
    "reward": np.float32(0),
    "terminated": False,
}


def steps(rng, *lead):
    """Random transitions with leading axes; "action" numbers them."""
    return {
        "observation": {
            "camera": rng.integers(0, 256, (*lead, 2, 3)).astype(np.uint8),
            "state": rng.random((*lead, 5)).astype(np.float32),
        },
        "action": rng.integers(0, 2**62, lead) if lead else np.int64(rng.integers(0, 2**62)),
        "reward": rng.random(lead).astype(np.float32) if lead else np.float32(rng.random()),
        "terminated": rng.random(lead) < 0.3 if lead else np.bool_(rng.random() < 0.3),
    }


def take(batch, *place):
    """One transition of a batch, as nested bytes."""
    if isinstance(batch, dict):
        return {name: take(value, *place) for name, value in batch.items()}
    return np.asarray(batch)[place].tobytes()


class NaiveRing:
    """What a buffer of so many environments and slots holds: {(env, slot): transition}."""

    def __init__(self, num_envs, length):
        self.num_envs, self.length, self.added, self.rows = num_envs, length, 0, {}

    def add(self, batch, num_steps):
        for t in range(num_steps):
            for env in range(self.num_envs):
                self.rows[env, self.added % self.length] = take(batch, t, env)
            self.added += 1

    def starts(self, sequence_length, period):
        """Items from which a whole sequence is there, as env * items + item."""
        oldest, items = max(self.added - self.length, 0), self.length // period
        whole = range(oldest, self.added - sequence_length + 1)
        slots = [s % self.length // period for s in whole if s % period == 0]
        return {env * items + slot for env in range(self.num_envs) for slot in slots}

    def sequence(self, index, sequence_length, period):
        items = self.length // period
        env, slot = index // items, index % items * period
        return [self.rows[env, (slot + t) % self.length] for t in range(sequence_length)]


def state_of(buffer):
    """Every byte of a buffer."""
    parts = [buffer._storage.block.tobytes(), buffer._stream.tobytes(), buffer._ring]
    if hasattr(buffer._sampler, "tree"):
        parts.append(buffer._sampler.tree.numbers.tobytes())
    return [*parts, buffer._sampler.state()]
