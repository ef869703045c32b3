"""Where `device=` leads, without a device."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest

from rlcpu.replay import (
    ItemBuffer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    SumTree,
    TrajectoryBuffer,
    TrajectoryQueue,
)

#: All that take `device=`, and what they are called with.
CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (SumTree, (10,)),
    (ItemBuffer, (10, 0.0)),
    (ReplayBuffer, (10, 0.0)),
    (PrioritizedReplayBuffer, (10, 0.0)),
    (ReturnWeightedBuffer, (10, 0.0)),
    (TrajectoryBuffer, (2, 10, 0.0, 5)),
    (PrioritizedTrajectoryBuffer, (2, 10, 0.0, 5)),
    (TrajectoryQueue, (2, 10, 0.0, 5)),
]


@pytest.mark.parametrize(("kind", "arguments"), CALLS)
def test_the_cpu_is_the_default(kind: Any, arguments: tuple[Any, ...]) -> None:
    assert type(kind(*arguments)) is type(kind(*arguments, device="cpu")) is kind
    assert type(copy.copy(kind(*arguments))) is kind


def test_bad_devices() -> None:
    with pytest.raises(ValueError, match="device='tpu'"):
        SumTree(10, device="tpu")
    with pytest.raises(ValueError, match="device=1"):
        ItemBuffer(10, 0.0, device=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [call[0] for call in CALLS])
def test_help_and_type_checkers_see_the_arguments(kind: Any) -> None:
    """A `__new__` that takes anything would hide those of `__init__`."""
    names = list(inspect.signature(kind).parameters)
    assert names == list(inspect.signature(kind.__init__).parameters)[1:]
    assert {"args", "options"}.isdisjoint(names)
