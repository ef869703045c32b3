"""Store and sample."""

from rlcpu.replay.batch import Batch
from rlcpu.replay.buffers import ItemBuffer, ReplayBuffer
from rlcpu.replay.mixer import MixedBatch, Mixer
from rlcpu.replay.prioritized import PrioritizedReplayBuffer
from rlcpu.replay.queue import TrajectoryQueue
from rlcpu.replay.return_weighted import ReturnWeightedBuffer
from rlcpu.replay.sum_tree import SumTree
from rlcpu.replay.trajectory import PrioritizedTrajectoryBuffer, TrajectoryBuffer

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
