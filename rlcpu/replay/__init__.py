"""Store and sample."""

from rlcpu.replay.sum_tree import SumTree

__all__ = ["SumTree"]
