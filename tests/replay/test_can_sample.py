"""`can_sample` says True exactly where `sample` does not raise, for every buffer."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from rlcpu.replay import (
    ItemBuffer,
    Mixer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
    TrajectoryQueue,
)
from tests.replay.naive import state_of

EXAMPLE = {"reward": 0.0, "terminated": False, "truncated": False}
#: Leaves of the last two are 0 of a priority that is 0, or too small for float64.
EXPONENTS: list[dict[str, float]] = [
    {},
    {"epsilon": 0.0, "alpha": 0.0},
    {"epsilon": 0.0},
    {"epsilon": 1e-200, "alpha": 2.0},
]
VALUES = st.sampled_from([0.0, 0.0, -5.0, 10.0, 10.0, 1e-300, -1e300, 1e-17])


def draw_buffer(data: Any, kind: Any, device: str = "cpu") -> Any:
    """Return an empty buffer of random arguments."""
    options: dict[str, Any] = {"seed": 0, "device": device}
    if hasattr(kind, "update_priorities"):
        options |= data.draw(st.sampled_from(EXPONENTS))
    if issubclass(kind, TrajectoryQueue | TrajectoryBuffer):
        period = 1 if kind is TrajectoryQueue else data.draw(st.sampled_from([1, 2]))
        length = period * data.draw(st.integers(1, 5))
        options |= {} if kind is TrajectoryQueue else {"period": period}
        steps = data.draw(st.integers(1, length))
        return kind(data.draw(st.integers(1, 2)), length, EXAMPLE, steps, **options)
    if kind is ReturnWeightedBuffer:
        options["fill_up"] = data.draw(st.booleans())
    elif kind is not ItemBuffer:
        num_envs = data.draw(st.sampled_from([None, 2]))
        options |= {"num_envs": num_envs, "n_step": data.draw(st.sampled_from([1, 3]))}
    return kind(data.draw(st.integers(2, 12)), EXAMPLE, **options)


def change(data: Any, buffer: Any) -> None:
    """Add to a buffer, or change what it draws by."""
    choice = data.draw(st.sampled_from(["add", "add", "priorities", "cut"]))
    if choice == "cut" and hasattr(buffer, "cut"):
        buffer.cut()
    elif choice == "priorities" and hasattr(buffer, "update_priorities"):
        if buffer.can_sample():  # all that have one, or some of them
            size = data.draw(st.sampled_from([1, 200]))
            priority = data.draw(st.sampled_from([0.0, 0.0, 1e-300, 2.0]))
            buffer.update_priorities(buffer.sample(size).indices, priority)
    elif isinstance(buffer, ReturnWeightedBuffer):
        values = data.draw(st.lists(VALUES, max_size=6))
        buffer.add(steps_of(len(values)), np.array(values))
    elif isinstance(buffer, ItemBuffer):
        buffer.add(steps_of())
    else:
        count = data.draw(st.integers(0, 4))
        if not isinstance(buffer, TrajectoryQueue) or count == 0 or buffer.can_add(count):
            buffer.add(steps_of(count, *filter(None, [buffer.num_envs])))


def steps_of(*lead: int) -> dict[str, Any]:
    return {name: np.zeros(lead, np.asarray(each).dtype) for name, each in EXAMPLE.items()}


def samples(buffer: Any, count: int, finish: Any = lambda: None) -> bool:
    """Tell whether a copy of a buffer is sampled without an exception, `finish`'s neither."""
    drawn = copy.deepcopy(buffer)
    try:
        if isinstance(buffer, TrajectoryQueue):  # of which a call takes one
            for _ in range(count):
                drawn.sample()
        else:
            assert len(drawn.sample(count)) == count
        finish()
    except ValueError:
        return False
    return True


KINDS = [
    ReplayBuffer,
    ItemBuffer,
    PrioritizedReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
    PrioritizedTrajectoryBuffer,
    TrajectoryQueue,
]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=60)
def test_it_is_true_where_sample_does_not_raise(kind: Any, data: Any) -> None:
    buffer = draw_buffer(data, kind)
    for _ in range(data.draw(st.integers(0, 6))):
        change(data, buffer)
        before = state_of(buffer)
        count = data.draw(st.integers(1, 13))
        assert buffer.can_sample(count) == samples(buffer, count)
        assert state_of(buffer) == before


@given(st.data())
@settings(max_examples=40)
def test_a_mixer_asks_all_of_its_buffers(data: Any) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS[:4]), min_size=1, max_size=3))
    mixer = Mixer([draw_buffer(data, kind) for kind in kinds], [1.0, 2.0, 0.3][: len(kinds)])
    for _ in range(data.draw(st.integers(0, 6))):
        change(data, data.draw(st.sampled_from(mixer.buffers)))
        count = data.draw(st.integers(1, 13))
        assert mixer.can_sample(count) == samples(mixer, count)


def test_different_transitions_with_a_weight_are_counted() -> None:
    buffer = ReturnWeightedBuffer(10, EXAMPLE)
    buffer.add(steps_of(3), [-5.0, 10.0, 10.0])
    assert [buffer.can_sample(count) for count in (1, 2, 3, 4)] == [True, True, False, False]
    assert not buffer.can_sample(10**13)  # no memory is taken for so many


def test_there_is_no_sequence_right_after_a_cut() -> None:
    buffer = PrioritizedTrajectoryBuffer(1, 6, EXAMPLE, 3)
    buffer.add(steps_of(2, 1))
    buffer.cut()
    for expected in (False, False, True):
        buffer.add(steps_of(1, 1))
        assert buffer.can_sample() is expected


def test_no_priority_is_above_zero() -> None:
    buffer = PrioritizedReplayBuffer(10, EXAMPLE, epsilon=0.0)
    buffer.add(steps_of(4))
    buffer.update_priorities(np.arange(4), 0.0)
    assert not buffer.can_sample()
    with pytest.raises(ValueError, match="no item has a priority above zero"):
        buffer.sample(1)
    buffer.add(steps_of(1))
    assert buffer.can_sample()


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=30)
def test_a_peek_draws_what_is_there_and_changes_nothing(kind: Any, data: Any) -> None:
    buffer = draw_buffer(data, kind)
    for _ in range(data.draw(st.integers(0, 6))):
        change(data, buffer)
    before = state_of(buffer)
    first, end = buffer._items.numbers(buffer._ring)
    if first == end:
        with pytest.raises(ValueError, match="sample: "):
            buffer.peek(3)
    else:
        batch, again = buffer.peek(50, seed=1), buffer.peek(50, seed=1)
        np.testing.assert_array_equal(batch.indices, again.indices)
        slots = batch.indices % buffer._items.per_env
        assert set(slots) <= {number % buffer._items.per_env for number in range(first, end)}
        assert batch.weights is None
    assert state_of(buffer) == before


def test_a_peek_is_uniform_whatever_the_priorities() -> None:
    buffer = PrioritizedReplayBuffer(10, EXAMPLE, epsilon=0.0)
    buffer.add(steps_of(10))
    buffer.update_priorities(np.arange(10), np.eye(10)[3])
    counts = np.bincount(buffer.peek(10_000).indices, minlength=10)
    assert set(buffer.sample(100).indices) == {3}
    assert np.abs(counts - 1000).max() < 4 * 30  # four standard deviations
