"""Sum trees of the peers, each through its own class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asv_benches.peers.duel import Best
from asv_benches.peers.replay_calls import Arguments, Calls

LEAVES = 2**20


@dataclass
class TreeCalls(Calls):
    """`update` or `sample` of a tree in which every leaf has a priority of its own."""

    def make(self) -> tuple[Callable[..., Any], Callable[[int], Any]]:
        """A new tree: its update(indices, priorities) and its sample(size)."""
        raise NotImplementedError

    def convert(self, indices: np.ndarray, priorities: np.ndarray) -> Arguments:
        """The peer's own kind of array. Not timed."""
        return indices, priorities

    def setup(self) -> None:
        """Makes and fills the tree."""
        update, sample = self.make()
        update(*self.convert(np.arange(LEAVES), np.random.default_rng(0).random(LEAVES)))
        self.choose(update=update, sample=sample)

    def inputs(self, rng: np.random.Generator, count: int) -> list[Arguments]:
        """Random indices and priorities; or only the size, every library drawing by itself."""
        if self.operation == "sample":
            return [(self.size,)] * count
        indices = rng.integers(0, LEAVES, (count, self.size))
        priorities = rng.random((count, self.size))
        return [self.convert(*pair) for pair in zip(indices, priorities, strict=True)]


@dataclass
class TianshouTree(TreeCalls):
    """tianshou's SegmentTree, sampled as its prioritised buffer does."""

    def make(self) -> tuple[Callable[..., Any], Callable[[int], Any]]:
        """The tree's assignment and search."""
        from tianshou.data import SegmentTree

        tree, rng = SegmentTree(LEAVES), np.random.default_rng(0)

        def sample(size: int) -> Any:
            return tree.get_prefix_sum_idx(rng.random(size) * tree.reduce())

        return tree.__setitem__, sample


@dataclass
class TorchrlTree(TreeCalls):
    """torchrl's compiled tree, sampled as its prioritised sampler does.

    Attributes:
        tensors: whether indices and priorities come as tensors, not as NumPy's arrays.
    """

    tensors: bool = True

    def make(self) -> tuple[Callable[..., Any], Callable[[int], Any]]:
        """The tree's assignment and search. The name tells the precision."""
        import torchrl._torchrl as compiled

        double = self.name.startswith("float64")
        self._dtype = np.dtype(np.float64 if double else np.float32)
        kind = compiled.SumSegmentTreeFp64 if double else compiled.SumSegmentTreeFp32
        tree, rng = kind(LEAVES), np.random.default_rng(0)

        def sample(size: int) -> Any:
            return tree.scan_lower_bound(rng.uniform(0.0, tree.query(0, LEAVES), size))

        return tree.__setitem__, sample

    def convert(self, indices: np.ndarray, priorities: np.ndarray) -> Arguments:
        """Priorities in the tree's precision."""
        priorities = priorities.astype(self._dtype)
        if not self.tensors:
            return indices, priorities
        import torch

        return torch.from_numpy(indices), torch.from_numpy(priorities)


@dataclass
class CpprbTree(TreeCalls):
    """cpprb's tree is reachable only through its prioritised buffer; here that holds one flag."""

    note = "cpprb: through its buffer of one number per item, there is no other way to its tree"

    def make(self) -> tuple[Callable[..., Any], Callable[[int], Any]]:
        """The buffer's update and sample."""
        from cpprb import PrioritizedReplayBuffer

        buffer = PrioritizedReplayBuffer(LEAVES, {"done": {}}, alpha=1.0)
        buffer.add(done=np.zeros(LEAVES))
        return buffer.update_priorities, buffer.sample


def torchrl_tree(operation: str, size: int) -> Best:
    """The fastest of torchrl's precisions and kinds of array."""
    variants = [
        TorchrlTree(f"{precision}, {kind}", operation, size, tensors)
        for precision in ("float32", "float64")
        for kind, tensors in (("tensors", True), ("arrays", False))
        if tensors or operation == "update"
    ]
    return Best("torchrl", variants)
