"""Store and sample on the device."""

from rlcpu.cuda.replay.batch import Batch
from rlcpu.cuda.replay.buffers import ReplayBuffer
from rlcpu.cuda.replay.mixer import MixedBatch
from rlcpu.cuda.replay.prioritized import PrioritizedReplayBuffer
from rlcpu.cuda.replay.queue import TrajectoryQueue
from rlcpu.cuda.replay.return_weighted import ReturnWeightedBuffer
from rlcpu.cuda.replay.sum_tree import SumTree
from rlcpu.cuda.replay.trajectory import PrioritizedTrajectoryBuffer, TrajectoryBuffer

__all__ = [
    "Batch",
    "MixedBatch",
    "PrioritizedReplayBuffer",
    "PrioritizedTrajectoryBuffer",
    "ReplayBuffer",
    "ReturnWeightedBuffer",
    "SumTree",
    "TrajectoryBuffer",
    "TrajectoryQueue",
]
