"""A batch is a mapping of the parts of its data."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from rlcpu.replay import (
    Batch,
    ItemBuffer,
    Mixer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
    TrajectoryQueue,
)


class Step(NamedTuple):
    """A transition."""

    x: Any
    y: Any


@dataclasses.dataclass
class Record:
    """Another one."""

    x: Any
    y: Any


#: Examples, and the keys of their batches.
EXAMPLES: list[tuple[Any, list[Any]]] = [
    ({"x": 0, "y": np.zeros(3)}, ["x", "y"]),
    (Step(0, np.zeros(3)), ["x", "y"]),
    (Record(0, np.zeros(3)), ["x", "y"]),
    ((0, np.zeros(3)), [0, 1]),
    ([0, np.zeros(3)], [0, 1]),
    (np.zeros(3), []),
]


def batch_of(example: Any) -> Batch:
    buffer = ItemBuffer(10, example, seed=0)
    buffer.add(example)
    return buffer.sample(4)


def test_a_batch_is_a_mapping() -> None:
    batch = batch_of({"x": 7, "y": {"left": np.zeros(3), "right": 0.5}})
    assert isinstance(batch, Mapping)
    assert "x" in batch
    assert "left" not in batch
    assert 0 not in batch
    assert list(batch) == ["x", "y"]
    assert (len(batch), len(batch.keys()), len(batch.values()), len(batch.items())) == (4, 2, 2, 2)
    assert dict(batch) == {**batch} == batch.data
    assert dict(batch)["x"] is batch["x"] is batch.get("x")
    assert batch.get("z") is None
    with pytest.raises(KeyError, match="'z'"):
        batch["z"]
    for name, part in batch.items():
        assert part is batch.data[name]
    batch.data["x"] = np.arange(4)
    assert batch["x"].tolist() == [0, 1, 2, 3]
    assert ((lambda x, y: x)(**batch) == batch["x"]).all()


@pytest.mark.parametrize(("example", "keys"), EXAMPLES)
def test_keys_are_those_of_the_example(example: Any, keys: list[Any]) -> None:
    batch = batch_of(example)
    leaves = list(batch)
    assert list(batch.keys()) == leaves == keys
    for copied in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch), copy.copy(batch)):
        assert (list(copied), len(copied)) == (keys, 4)
        for key in keys:
            np.testing.assert_array_equal(copied[key], batch[key])
    for key, shape in zip(keys, [(4,), (4, 3)], strict=False):
        assert batch[key].shape == shape
    with pytest.raises(KeyError, match="'z'"):
        batch["z"]


def test_batches_of_all_buffers() -> None:
    example = {"x": 0, "y": np.zeros(3)}
    steps = {"x": np.arange(12).reshape(6, 2), "y": np.zeros((6, 2, 3))}
    flat = {"x": np.arange(12), "y": np.zeros((12, 3))}
    buffers: list[Any] = [
        kind(20, example, seed=0) for kind in (ReplayBuffer, PrioritizedReplayBuffer)
    ]
    for buffer in buffers:
        buffer.add(flat)
    weighted = ReturnWeightedBuffer(20, example, seed=0)
    weighted.add(flat, np.arange(12.0))
    sequences, queue = TrajectoryBuffer(2, 20, example, 3), TrajectoryQueue(2, 20, example, 3)
    sequences.add(steps), queue.add(steps)
    drawn = [each.sample(4) for each in (*buffers, weighted, sequences, Mixer(buffers, [1, 1]))]
    for batch in (*drawn, queue.sample()):
        assert list(batch) == ["x", "y"]
        assert batch != copy.copy(batch)  # of identity, as arrays have no single answer
        assert len({batch, batch}) == 1
    again = ReplayBuffer(20, example)
    again.add(drawn[0])  # structured like the example, as a dict of its arrays is
    assert len(again) == 4
