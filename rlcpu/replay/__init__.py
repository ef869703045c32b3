"""Store and sample."""

from rlcpu.replay.buffers import (
    ItemBuffer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
    TrajectoryQueue,
)
from rlcpu.replay.items import Batch
from rlcpu.replay.mixer import MixedBatch, Mixer
from rlcpu.replay.sum_tree import SumTree

__all__ = [
    "Batch",
    "ItemBuffer",
    "MixedBatch",
    "Mixer",
    "PrioritizedReplayBuffer",
    "PrioritizedTrajectoryBuffer",
    "ReplayBuffer",
    "ReturnWeightedBuffer",
    "SumTree",
    "TrajectoryBuffer",
    "TrajectoryQueue",
]


def __dir__() -> list[str]:
    return __all__
