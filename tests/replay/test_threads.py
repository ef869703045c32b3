"""One writer and several samplers."""

import threading

import numpy as np
import pytest

from rlcpu.replay import (
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
    tree_cpu,
)

KINDS = [
    ReplayBuffer,
    PrioritizedReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
    PrioritizedTrajectoryBuffer,
]


@pytest.mark.parametrize("kind", KINDS)
def test_no_item_is_torn(kind):
    trajectories = kind in (TrajectoryBuffer, PrioritizedTrajectoryBuffer)
    example = {"a": np.zeros(40), "b": np.zeros(3, np.int32)}
    buffer = kind(2, 64, example, 3, seed=0) if trajectories else kind(128, example, seed=0)
    lead = (20, 2) if trajectories else (20,)

    def add(number):
        batch = {"a": np.full((*lead, 40), number, float), "b": np.full((*lead, 3), number)}
        batch["b"] = batch["b"].astype(np.int32)
        buffer.add(batch, number % 7 - 3.0) if kind is ReturnWeightedBuffer else buffer.add(batch)

    stop, errors = threading.Event(), []

    def sample():
        while not stop.is_set():
            batch = buffer.sample(4)
            first = batch["a"][..., :1]
            if (batch["a"] != first).any() or (batch["b"] != first).any():
                errors.append(batch)
            if hasattr(buffer, "update_priorities"):
                buffer.update_priorities(batch.indices, 0.5)

    for number in range(20):
        add(number)
    threads = [threading.Thread(target=sample) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(400):
        add(number)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors


def test_the_limit_of_threads_holds_for_draws_by_priority(monkeypatch):
    asked = []
    launch = tree_cpu.launch

    def spy(kernels, size, num_threads, *arguments):
        asked.append(num_threads)
        return launch(kernels, size, num_threads, *arguments)

    monkeypatch.setattr(tree_cpu, "launch", spy)
    buffer = PrioritizedReplayBuffer(8, {"x": 0}, num_threads=1)
    buffer.add({"x": np.arange(8)})
    buffer.sample(3)
    assert asked == [1]
