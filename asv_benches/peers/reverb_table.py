"""Reverb's table in a process of its own, whose Python has Reverb: it wants an old NumPy.

    python3.11 -m venv .venv-reverb && .venv-reverb/bin/pip install "dm-reverb[tensorflow]==0.14.0"

Its last release is of 2023, for Python 3.8 to 3.11. The table `distributed` writes lines `add 500`
and `draw 8` to this program, which does that, and answers each with a line.
"""

from __future__ import annotations

import sys

import numpy as np
import reverb
import tensorflow as tf

NAME, ALPHA = "transitions", 0.6
#: Transitions between two flushes of the writer, and batches that are fetched ahead.
FLUSH, AHEAD = 100, 16


class Table:
    """Transitions of CartPole, drawn by priority through a dataset of TensorFlow.

    Args:
        capacity: of the table, which is filled.
        batch_size: of a draw.
    """

    def __init__(self, capacity: int, batch_size: int) -> None:
        self.transition = {
            "observation": np.zeros(4, np.float32),
            "next_observation": np.zeros(4, np.float32),
            "action": np.int64(0),
            "reward": np.float32(0),
            "discount": np.float32(0),
            "terminated": np.bool_(False),
            "truncated": np.bool_(False),
        }
        table = reverb.Table(
            NAME,
            reverb.selectors.Prioritized(ALPHA),
            reverb.selectors.Fifo(),
            max_size=capacity,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature={
                name: tf.TensorSpec(np.shape(leaf), np.asarray(leaf).dtype)
                for name, leaf in self.transition.items()
            },
        )
        self.server = reverb.Server([table])
        address = f"localhost:{self.server.port}"
        self.writer = reverb.Client(address).trajectory_writer(num_keep_alive_refs=1)
        self.add(capacity)
        self.client = reverb.TFClient(address)
        dataset = reverb.TrajectoryDataset.from_table_signature(
            address, NAME, max_in_flight_samples_per_worker=AHEAD * batch_size
        )
        self.batches = iter(dataset.batch(batch_size).prefetch(AHEAD))
        self.rng = np.random.default_rng(0)

    def add(self, count: int) -> None:
        for number in range(1, count + 1):
            self.writer.append(self.transition)
            columns = {name: column[-1] for name, column in self.writer.history.items()}
            self.writer.create_item(NAME, 1.0, columns)
            if number % FLUSH == 0:
                self.writer.flush()
        self.writer.flush()

    def draw(self, count: int) -> None:
        for _ in range(count):
            sample = next(self.batches)
            priorities = self.rng.random(len(sample.info.key))
            self.client.update_priorities(NAME, sample.info.key, priorities)


if __name__ == "__main__":
    table = Table(int(sys.argv[1]), int(sys.argv[2]))
    print("ready", flush=True)
    for line in sys.stdin:
        what, count = line.split()
        {"add": table.add, "draw": table.draw}[what](int(count))
        print("done", flush=True)
