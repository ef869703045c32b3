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

#: Classes that the device has, and what they are called with.
CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (SumTree, (10,)),
    (ReplayBuffer, (10, 0.0)),
    (PrioritizedReplayBuffer, (10, 0.0)),
    (ReturnWeightedBuffer, (10, 0.0)),
    (TrajectoryBuffer, (2, 10, 0.0, 5)),
    (PrioritizedTrajectoryBuffer, (2, 10, 0.0, 5)),
    (TrajectoryQueue, (2, 10, 0.0, 5)),
]


@pytest.mark.parametrize(("kind", "arguments"), CALLS)
def test_the_counterpart_is_made_with_the_same_arguments(
    kind: Any, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip("rlcpu.cuda.replay")
    made = []
    monkeypatch.setattr(module, kind.__name__, lambda *args, **given: made.append((args, given)))
    assert kind(*arguments, seed=1, device="cuda") is None
    assert made == [(arguments, {"seed": 1})]


@pytest.mark.parametrize(("kind", "arguments"), [*CALLS, (ItemBuffer, (10, 0.0))])
def test_the_cpu_is_the_default(kind: Any, arguments: tuple[Any, ...]) -> None:
    assert type(kind(*arguments)) is type(kind(*arguments, device="cpu")) is kind
    assert type(copy.copy(kind(*arguments))) is kind


def test_bad_devices() -> None:
    with pytest.raises(ValueError, match="device='tpu'"):
        SumTree(10, device="tpu")
    with pytest.raises(NotImplementedError, match="no ItemBuffer"):
        ItemBuffer(10, 0.0, device="cuda")


@pytest.mark.parametrize("kind", [call[0] for call in CALLS] + [ItemBuffer])
def test_help_and_type_checkers_see_the_arguments(kind: Any) -> None:
    """A `__new__` that takes anything would hide those of `__init__`."""
    names = list(inspect.signature(kind).parameters)
    assert names == list(inspect.signature(kind.__init__).parameters)[1:]
    assert {"args", "options"}.isdisjoint(names)
