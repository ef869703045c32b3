"""Store and sample on the device."""

from rlcpu.cuda.replay.buffers import Batch, PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.cuda.replay.sum_tree import SumTree

__all__ = ["Batch", "PrioritizedReplayBuffer", "ReplayBuffer", "SumTree"]
