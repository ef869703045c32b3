"""Store and sample.

A buffer (`buffer`, and its kinds in `buffers`) is a storage, items and a sampler. Read `fields` and
`structure` (what a transition is), `storage` and `derive` (where it lies), `items` (what can be
drawn), `samplers` and `sum_tree` (which of them are); then `tree`, the rules of drawing by weight,
and `tree_cpu`, which drives them. `hindsight` draws transitions with other goals, `loop` is a
buffer inside of kernels, `checkpoint` and `folder` bring one to disk, `mixer` draws from several.
"""

from rlcpu.replay.buffers import (
    ItemBuffer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
    TrajectoryQueue,
)
from rlcpu.replay.hindsight import HindsightReplayBuffer
from rlcpu.replay.items import Batch
from rlcpu.replay.mixer import MixedBatch, Mixer
from rlcpu.replay.sum_tree import SumTree

__all__ = [
    "Batch",
    "HindsightReplayBuffer",
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
