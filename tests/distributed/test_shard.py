"""One shard: each block is stored once, and no priority reaches another transition than its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.distributed import ReplayShard
from rlcpu.replay import (
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    TrajectoryBuffer,
)

EXAMPLE = {"x": np.int64(0), "discount": np.float32(0)}


def make_shard(folder=None, capacity=7, kind=PrioritizedReplayBuffer, save_period=1e6):
    options = {"capacity": capacity, "example": EXAMPLE}
    return ReplayShard(kind, options, folder=folder, save_period=save_period)


def block_of(first, count):
    return {"x": np.arange(first, first + count), "discount": np.ones(count, np.float32)}


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), capacity=st.integers(1, 11))
def test_tickets_name_what_is_in_their_slot(sizes, capacity):
    shard, added = make_shard(capacity=capacity), 0
    life = shard.status().life
    for number, size in enumerate(sizes):
        status = shard.add(life, number, block_of(added, size))
        added += size
        assert status.added == added
        assert status.held == min(added, capacity)
        _, drawn = shard.sample(20)
        np.testing.assert_array_equal(drawn.tickets - life, drawn.leaves[0])


def test_a_block_of_another_number_or_life_is_not_stored():
    shard = make_shard()
    life = shard.status().life
    assert shard.add(life, 1, block_of(0, 2)) is None
    assert shard.add(life + 1, 0, block_of(0, 2)) is None
    assert shard.status().added == 0
    assert shard.add(life, 0, block_of(0, 2)).added == 2
    assert shard.add(life, 0, block_of(0, 2)) is None  # the same again


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_a_shard_has_one_thread_unless_it_is_told(tmp_path, kind):
    """Also where it goes on from a folder: an actor has one CPU."""
    for _ in range(2):
        shard = make_shard(tmp_path, kind=kind)
        assert shard.buffer.num_threads == 1
        shard.save()
    options = {"capacity": 7, "example": EXAMPLE, "num_threads": 2}
    assert ReplayShard(kind, options).buffer.num_threads == 2


SEQUENCES = {"num_envs": 2, "sequence_length": 3, "period": 2, "length": 12}


def make_sequences(folder=None, **options):
    options = {"example": EXAMPLE, "alpha": 0.0, **SEQUENCES, **options}
    return ReplayShard(PrioritizedTrajectoryBuffer, options, folder=folder, save_period=1e6)


def steps_of(first, count):
    """Steps of two environments: even numbers are those of the first one."""
    numbers = 2 * np.arange(first, first + count)[:, None] + np.arange(2)
    return {"x": numbers, "discount": np.ones((count, 2), np.float32)}


@given(sizes=st.lists(st.integers(1, 15), min_size=1, max_size=8), reload=st.booleans())
def test_sequences_lie_in_one_block_and_have_tickets_of_their_own(tmp_path_factory, sizes, reload):
    folder = tmp_path_factory.mktemp("sequences") / "shard"
    shard, begins, known, lives = make_sequences(folder), [], {}, []
    for number, size in enumerate(sizes):
        if reload and number == len(sizes) // 2:
            shard.save()
            shard = make_sequences(folder)
        begins.append(sum(sizes[:number]))
        status = shard.add(shard.status().life, number, steps_of(begins[-1], size))
        assert (status.blocks, status.added) == (number + 1, 2 * (begins[-1] + size))
        lives.append(status.life)
        _, drawn = shard.sample(50)
        steps = drawn.leaves[0] // 2
        if len(drawn.slots):
            assert (drawn.leaves[0][1:] == drawn.leaves[0][:-1] + 2).all()
            block = [np.searchsorted(begins, each, side="right") for each in (steps[0], steps[-1])]
            np.testing.assert_array_equal(*block)
        for slot, ticket, x in zip(drawn.slots, drawn.tickets, drawn.leaves[0][0], strict=True):
            assert known.setdefault((int(slot), int(ticket)), int(x)) == x
    _, drawn = shard.sample(1)
    for (slot, ticket), x in known.items():  # a priority reaches its sequence, or none
        arrays = np.array([slot]), np.array([ticket])
        applied, _ = shard.update_priorities(*arrays, np.ones(1))
        there = x // 2 >= sum(sizes) - SEQUENCES["length"]
        assert applied == there


def test_priorities_of_sequences_come_with_their_block():
    shard = make_sequences(alpha=1.0, epsilon=0.0)
    block, priorities = steps_of(0, 8), np.zeros((3, 2))
    priorities[1, 1] = 2.0  # the sequence of steps 2, 3, 4 of the second environment
    shard.add(shard.status().life, 0, block, priorities)
    _, drawn = shard.sample(20)
    np.testing.assert_array_equal(drawn.leaves[0], np.tile([[5], [7], [9]], 20))


def test_an_empty_shard_of_sequences_draws_none():
    _, drawn = make_sequences().sample(5)
    assert [leaf.shape for leaf in drawn.leaves] == [(3, 0), (3, 0)]


def test_priorities_of_what_was_overwritten_are_dropped():
    shard = make_shard(capacity=4)
    life = shard.status().life
    shard.add(life, 0, block_of(0, 4))
    _, drawn = shard.sample(50)
    shard.add(life, 1, block_of(4, 2))  # takes the slots of 0 and 1
    before = shard.buffer.total_weight()
    old = drawn.leaves[0] < 2
    applied, _ = shard.update_priorities(
        drawn.slots[old], drawn.tickets[old], np.full(50, 9.0)[old]
    )
    assert old.any()
    assert applied == 0
    assert shard.buffer.total_weight() == before
    applied, status = shard.update_priorities(drawn.slots, drawn.tickets, np.full(50, 9.0))
    assert applied == 50 - old.sum()
    assert status.total > before


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, ReplayBuffer])
def test_a_shard_goes_on_from_its_last_save(tmp_path, kind):
    shard = make_shard(tmp_path / "shard", kind=kind)
    life = shard.status().life
    shard.add(life, 0, block_of(0, 5))
    _, drawn = shard.sample(30)
    shard.save()
    shard.add(life, 1, block_of(5, 4))
    _, lost = shard.sample(30)
    again = make_shard(tmp_path / "shard", kind=kind)
    status = again.status()
    assert (status.blocks, status.added, status.held) == (1, 5, 5)
    assert status.life > lost.tickets.max()
    assert again.add(life, 1, block_of(5, 4)) is None
    assert again.add(status.life, 1, block_of(100, 4)).added == 9
    if kind is PrioritizedReplayBuffer:
        there = drawn.leaves[0] >= 2  # 0 and 1 were overwritten
        applied, _ = again.update_priorities(drawn.slots, drawn.tickets, np.ones(30))
        assert applied == there.sum()
        new = lost.leaves[0] >= 5  # in the slots of what was added since
        applied, _ = again.update_priorities(lost.slots[new], lost.tickets[new], np.ones(new.sum()))
        assert applied == 0


def test_saves_come_in_time(tmp_path):
    shard = make_shard(tmp_path / "shard", save_period=0.0)
    shard.add(shard.status().life, 0, block_of(0, 5))
    assert make_shard(tmp_path / "shard").status().added == 5


def test_an_empty_shard_draws_nothing():
    _, drawn = make_shard().sample(5)
    assert len(drawn.slots) == 0
    assert [leaf.shape for leaf in drawn.leaves] == [(0,), (0,)]


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(TypeError, match="kind=<class 'int'>"):
        ReplayShard(int, {})
    with pytest.raises(TypeError, match=r"kind=.*expected .* or PrioritizedTrajectoryBuffer"):
        ReplayShard(TrajectoryBuffer, {})
    make_sequences(tmp_path / "sequences").save()
    with pytest.raises(ValueError, match="holds sequence_length=3, expected 4"):
        make_sequences(tmp_path / "sequences", sequence_length=4)
    with pytest.raises(TypeError, match="n_step: not for a shard"):
        ReplayShard(ReplayBuffer, {"capacity": 5, "example": EXAMPLE, "n_step": 3})
    ReplayBuffer(5, EXAMPLE).save(tmp_path / "other")
    with pytest.raises(ValueError, match="holds a ReplayBuffer, expected a ReplayShard"):
        make_shard(tmp_path / "other")
    make_shard(tmp_path / "shard").save()
    with pytest.raises(ValueError, match="holds capacity=7, expected 8"):
        make_shard(tmp_path / "shard", capacity=8)
