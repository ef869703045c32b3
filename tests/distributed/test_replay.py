"""Many shards draw as one buffer would, and lose count of nothing when they die."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlcpu.distributed import EmptyError, ReplayShard, ShardedReplay, StoreFullError
from rlcpu.replay import PrioritizedReplayBuffer
from rlcpu.replay.structure import TransitionStructure
from tests.distributed.local import Local
from tests.distributed.test_shard import (
    EXAMPLE,
    block_of,
    make_sequences,
    make_shard,
    steps_of,
)

STRUCTURE = TransitionStructure(EXAMPLE)


def make_replay(count=3, capacity=50, folder=None, **options):
    def make(number):
        place = None if folder is None else folder / f"{number}"
        return Local(lambda: make_shard(place, capacity))

    shards = [make(number) for number in range(count)]
    return ShardedReplay(shards, STRUCTURE, **options), shards


def test_the_joint_distribution_is_that_of_one_buffer():
    replay, _ = make_replay(capacity=100, beta=0.7, prefetch=0)
    one = PrioritizedReplayBuffer(300, EXAMPLE, beta=0.7, seed=0)
    for first, count in [(0, 5), (5, 60), (65, 20), (85, 40)]:
        replay.add(block_of(first, count))
        one.add(block_of(first, count))
    replay.take_answers(wait=True)
    priorities = np.random.default_rng(0).gamma(0.5, size=125)
    one.update_priorities(np.arange(125), priorities)
    for _ in range(40):  # every transition is drawn, and gets its priority
        batch = replay.sample(100)
        replay.update_priorities(batch.indices, priorities[batch["x"]])
    replay.take_answers(wait=True)
    leaves = (priorities + one.epsilon) ** one.alpha
    known = np.unique(batch["x"])
    counts = np.zeros(125)
    for _ in range(100):
        batch = replay.sample(1000)
        np.add.at(counts, batch["x"], 1)
    assert replay.can_sample()
    seen = counts > 0
    assert seen[known].all()
    expected = leaves / leaves.sum() * counts.sum()
    often = expected > 5
    observed = np.append(counts[often], counts[~often].sum())
    wanted = np.append(expected[often], expected[~often].sum())
    assert stats.chisquare(observed, wanted).pvalue > 1e-3
    np.testing.assert_allclose(batch.probabilities, (leaves / leaves.sum())[batch["x"]], rtol=1e-6)
    ratio = (125 * batch.probabilities) ** -0.7
    np.testing.assert_allclose(batch.weights, ratio / ratio.max(), rtol=1e-5)


def test_weights_are_of_the_probabilities_that_were_drawn_with():
    replay, shards = make_replay(count=2, prefetch=0, beta=1.0)
    replay.add(block_of(0, 10))
    replay.add(block_of(10, 10))
    replay.take_answers(wait=True)
    # The shard's weights move, and nobody has told the replay: shares are still a half each.
    shard = shards[0].object
    _, drawn = shard.sample(200)
    shard.update_priorities(drawn.slots, drawn.tickets, np.full(200, 100.0))
    batch = replay.sample(4000)
    assert abs((batch.indices["shard"] == 0).mean() - 0.5) < 0.05
    np.testing.assert_allclose(batch.probabilities, 0.05, rtol=1e-9)


def test_nothing_is_sampled_where_no_shard_has_a_weight():
    options = {"capacity": 50, "example": EXAMPLE, "epsilon": 0.0, "seed": 2}
    shard = Local(lambda: ReplayShard(PrioritizedReplayBuffer, options))
    replay = ShardedReplay([shard], STRUCTURE, prefetch=4)
    assert not replay.can_sample()
    replay.add(block_of(0, 20))
    replay.take_answers(wait=True)
    assert replay.can_sample(10_000)
    batch = replay.sample(100)  # of all items; 300 more are here
    assert len(set(batch["x"].tolist())) == 20
    replay.update_priorities(batch.indices, 0.0)
    for client in replay._shards:
        client.send_priorities()
        client.take_answers(wait=True)
    assert [replay.can_sample(count) for count in (1, 300, 301)] == [True, True, False]
    assert len(replay.sample(300)) == 300
    assert not replay.can_sample()
    with pytest.raises(EmptyError):
        replay.sample(1)


def test_the_order_of_a_batch_is_random():
    replay, _ = make_replay(count=2, prefetch=0)
    replay.add(block_of(0, 50))
    replay.add(block_of(50, 50))
    replay.take_answers(wait=True)
    shards = replay.sample(1000).indices["shard"]
    assert abs(np.corrcoef(shards[1:], shards[:-1])[0, 1]) < 0.15


def test_a_batch_is_overwritten_and_prefetched():
    replay, shards = make_replay(count=1, prefetch=1)
    replay.add(block_of(0, 20))
    replay.take_answers(wait=True)
    batch = replay.sample(8)
    assert len(shards[0].line) == 1  # the next one
    again = replay.sample(8, out=batch)
    assert again is batch
    assert batch.discounts.tolist() == [1.0] * 8
    assert len(replay.sample(5)) == 5  # another size
    with pytest.raises(ValueError, match="expected a Batch that this replay returned"):
        replay.sample(5, out=batch)


def test_a_message_asks_for_several_batches(monkeypatch):
    """Of any size, none of them twice; the next message brings the priorities of those before."""
    replay, shards = make_replay(count=2, capacity=5000, prefetch=4)
    for first in (0, 5000):
        replay.add(block_of(first, 5000))
    replay.take_answers(wait=True)
    sent, drawn = [], []
    for shard in shards:
        call = shard.call
        monkeypatch.setattr(shard, "call", lambda *new, call=call: sent.append(new) or call(*new))
    for size in (3000, 3000, 3000, 3000, 3000, 3000, 2000, 4000):
        batch = replay.sample(size)
        np.testing.assert_array_equal(batch["x"] // 5000, batch.indices["shard"])
        np.testing.assert_array_equal(batch["x"] % 5000, batch.indices["slot"])
        drawn += batch["x"].tolist()
        replay.update_priorities(batch.indices, 1.0 + batch["x"])
    assert [method for method, *_ in sent] == ["sample"] * 6  # three messages to each shard
    updates = [[len(slots) for slots, _, _ in each] for _, _, *each in sent]
    assert all(size <= 4000 for each in updates for size in each)
    assert sum(map(sum, updates)) == 3000 + 12_000  # with the second, and with the third
    assert abs(len(set(drawn[:12_000])) - 10_000 * (1 - np.exp(-1.2))) < 200
    replay.take_answers(wait=True)
    assert replay.ledger.priorities_applied == replay.ledger.sampled == 24_000
    again = replay.sample(10_000)  # those that were drawn before have priorities of their own
    known = np.isin(again["x"], drawn)
    ratio = again.probabilities / (1.0 + again["x"]) ** 0.6
    np.testing.assert_allclose(ratio[known], ratio[known][0], rtol=1e-3)


def test_priorities_wait_for_no_message_that_never_comes():
    """Nothing is drawn from a shard without weights; what waits for it stays bounded."""
    replay, shards = make_replay(count=2, prefetch=2)
    replay.add(block_of(0, 10))
    replay.take_answers(wait=True)
    batch = replay.sample(4)
    for _ in range(50):
        replay.update_priorities(batch.indices, 1.0)
    assert sum(call.method == "update_priorities" for call in shards[0].line) == 48


ACTIONS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 9)),
    st.tuples(st.just("work"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("die"), st.integers(0, 2)),
    st.tuples(st.just("save"), st.integers(0, 2)),
    st.tuples(st.just("lose"), st.integers(0, 2)),
    st.tuples(st.just("fill"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("sample"), st.integers(1, 20)),
    st.tuples(st.just("take_answers")),
)


@pytest.fixture(autouse=True, scope="module")
def _no_pauses():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlcpu.distributed.remote.PAUSE", 0.0)
        yield


@given(st.lists(ACTIONS, max_size=40), st.sampled_from([0, 1, 3]))
def test_nothing_is_lost_uncounted_torn_or_stored_twice(tmp_path_factory, actions, prefetch):
    folder = tmp_path_factory.mktemp("shards")
    replay, shards = make_replay(capacity=12, folder=folder, prefetch=prefetch)
    added = updated = filled = 0
    for name, *arguments in actions:
        if name == "add":
            replay.add(block_of(added, *arguments))
            added += arguments[0]
        elif name == "work":
            shards[arguments[0]].work(arguments[1])
        elif name == "die":
            shards[arguments[0]].die()
        elif name == "save":
            shards[arguments[0]].object.save()
        elif name == "lose":
            shards[arguments[0]].lose_block()
        elif name == "sample":
            with contextlib.suppress(EmptyError):
                batch = replay.sample(*arguments)
                assert ((batch["x"] >= 0) & (batch["x"] < added)).all()
                replay.update_priorities(batch.indices, 1.0)
                updated += len(batch)
        elif name == "fill":
            shards[arguments[0]].no_room += arguments[1]
            filled += arguments[1]
        else:
            replay.take_answers()
        replay.ledger.check()
    replay.take_answers(wait=True)
    replay.ledger.check()
    ledger = replay.ledger
    assert ledger.requested == added
    assert ledger.on_the_way == 0
    assert ledger.stored == added - ledger.lost_on_the_way
    kept = [shard.object.status() for shard in shards]
    assert sum(status.added for status in kept) == ledger.stored - ledger.lost_with_shards
    assert sum(status.held for status in kept) == ledger.held == len(replay)
    drawn = [shard.object.sample(500)[1] for shard in shards]
    places = [
        (shard, slot, x)
        for shard, each in enumerate(drawn)
        for slot, x in zip(each.slots.tolist(), each.leaves[0].tolist(), strict=True)
    ]
    assert len({x for *_, x in places}) == len(set(places))  # no transition is in two places
    assert ledger.priorities_applied + ledger.priorities_dropped == updated
    assert ledger.waits == filled - sum(shard.no_room for shard in shards)


@given(st.lists(ACTIONS, max_size=30), st.sampled_from([0, 1, 3]))
def test_sequences_are_whole_and_none_is_lost_uncounted(tmp_path_factory, actions, prefetch):
    """Blocks that get lost, and shards that go on from a save, tear no sequence."""
    folder = tmp_path_factory.mktemp("shards")
    shards = [
        Local(lambda place=folder / f"{number}": make_sequences(place)) for number in range(2)
    ]
    sizes = {"num_envs": 2, "sequence_length": 3}
    replay = ShardedReplay(shards, STRUCTURE, **sizes, prefetch=prefetch)
    begins, updated = [0], 0
    for name, *arguments in actions:
        if name == "add":
            count = arguments[0] + 2
            replay.add(steps_of(begins[-1], count))
            begins.append(begins[-1] + count)
        elif name == "sample":
            with contextlib.suppress(EmptyError):
                batch = replay.sample(*arguments)
                x = batch["x"]
                assert x.shape == (3, *arguments)
                assert (x[1:] == x[:-1] + 2).all()
                first, last = (np.searchsorted(begins, x[i] // 2, side="right") for i in (0, -1))
                np.testing.assert_array_equal(first, last)
                replay.update_priorities(batch.indices, 1.0)
                updated += len(batch)
        elif name == "work":
            shards[arguments[0] % 2].work(arguments[1])
        elif name == "die":
            shards[arguments[0] % 2].die()
        elif name == "save":
            shards[arguments[0] % 2].object.save()
        elif name == "lose":
            shards[arguments[0] % 2].lose_block()
        replay.ledger.check()
    replay.take_answers(wait=True)
    ledger = replay.ledger
    ledger.check()
    assert ledger.requested == 2 * begins[-1]
    kept = [shard.object.status() for shard in shards]
    assert sum(status.added for status in kept) == ledger.stored - ledger.lost_with_shards
    assert sum(status.held for status in kept) == ledger.held
    assert ledger.priorities_applied + ledger.priorities_dropped == updated


def test_sequences_of_two_shards_are_drawn_as_those_of_one_buffer():
    shards = [Local(lambda: make_sequences(length=40)) for _ in range(2)]
    replay = ShardedReplay(shards, STRUCTURE, num_envs=2, sequence_length=3, prefetch=0)
    for first, count in ((0, 20), (20, 8), (28, 14)):
        replay.add(steps_of(first, count))
    replay.take_answers(wait=True)
    drawn = np.concatenate([replay.sample(1000)["x"][0] for _ in range(20)])
    expected = [
        2 * step + env
        for first, count in ((0, 20), (20, 8), (28, 14))
        for step in range(first, first + count - 2, 2)
        for env in (0, 1)
    ]
    seen, counts = np.unique(drawn, return_counts=True)
    assert seen.tolist() == sorted(expected)
    assert stats.chisquare(counts).pvalue > 1e-3
    for block in (steps_of(0, 2), {"x": np.zeros((4, 3), int), "discount": np.zeros((4, 3))}):
        with pytest.raises(ValueError, match=r"expected \(num_steps, 2\) with 3 steps at least"):
            replay.add(block)


def test_the_ledger_is_right_after_a_death_that_a_draw_notices(tmp_path):
    """The answer that was asked for ahead does not come; no other call is under way."""
    replay, shards = make_replay(count=1, folder=tmp_path, prefetch=1)
    replay.add(block_of(0, 5))
    replay.take_answers(wait=True)
    shards[0].object.save()
    replay.add(block_of(5, 5))
    replay.take_answers(wait=True)
    replay.sample(3)
    shards[0].die()
    replay.sample(3)
    replay.ledger.check()
    assert (replay.ledger.held, replay.ledger.lost_with_shards) == (5, 5)


def test_what_has_no_room_waits_and_is_counted():
    """Blocks, batches and priorities: all arrive once there is room, and none twice."""
    replay, shards = make_replay(count=1)
    shards[0].no_room = 3
    replay.add(block_of(0, 20))
    replay.take_answers(wait=True)
    assert (replay.ledger.waits, replay.ledger.stored) == (3, 20)
    shards[0].no_room = 2
    batch = replay.sample(50)  # the call has no room, then the answer has none
    assert replay.ledger.waits == 5
    replay.update_priorities(batch.indices, 1.0)
    replay.sample(50)
    shards[0].no_room = 2  # the answer with what became of the priorities comes all the same
    replay.sample(50)
    replay.take_answers(wait=True)
    assert replay.ledger.priorities_applied == 50
    assert replay.ledger.waits == 7
    replay.ledger.check()


def test_a_store_that_stays_full_is_an_error_in_the_end(monkeypatch):
    monkeypatch.setattr("rlcpu.distributed.remote.PATIENCE", 0.0)
    replay, shards = make_replay(count=1)
    shards[0].no_room = 10**9
    with pytest.raises(StoreFullError):
        replay.add(block_of(0, 20))


def test_what_waits_at_a_death_is_sent_again(tmp_path):
    replay, shards = make_replay(count=1, folder=tmp_path)
    replay.add(block_of(0, 5))
    replay.take_answers(wait=True)
    shards[0].object.save()
    replay.add(block_of(5, 5))
    shards[0].work()  # stored, but neither saved nor told
    replay.add(block_of(10, 5))
    shards[0].die()
    replay.take_answers(wait=True)
    assert replay.ledger.lost_with_shards == 0
    assert len(replay) == 15
    assert sorted(set(replay.sample(1000)["x"])) == list(range(15))


def test_a_draw_after_a_death_takes_a_handshake_and_a_question(tmp_path, monkeypatch):
    """What was asked for ahead is lost: the shard is greeted and asked again, and no more."""
    replay, shards = make_replay(count=1, folder=tmp_path, prefetch=1)
    replay.add(block_of(0, 20))
    replay.take_answers(wait=True)
    shards[0].object.save()
    replay.sample(8)
    shards[0].die()
    revive, call, done = shards[0].revive, shards[0].call, []
    monkeypatch.setattr(shards[0], "revive", lambda: done.append("handshake") or revive())
    monkeypatch.setattr(shards[0], "call", lambda *sent: done.append(sent[0]) or call(*sent))
    assert len(replay.sample(8)) == 8
    assert done == ["handshake", "sample", "sample"]  # the last one is for the next batch


def test_a_block_that_is_lost_on_its_way_holds_up_none_behind_it():
    replay, shards = make_replay(count=1)
    for first in (0, 5, 10):
        replay.add(block_of(first, 5))
    assert shards[0].lose_block()
    replay.take_answers(wait=True)
    ledger = replay.ledger
    ledger.check()
    assert (ledger.lost_on_the_way, ledger.stored, ledger.shard_restarts) == (5, 10, 0)
    assert sorted(set(replay.sample(1000)["x"])) == list(range(5, 15))


def test_bad_arguments_are_named():
    replay, _ = make_replay(count=1)
    with pytest.raises(EmptyError, match="no shard holds"):
        replay.sample(3)
    replay.add({"x": 4, "discount": 1.0})
    replay.take_answers(wait=True)
    batch = replay.sample(3)
    with pytest.raises(TypeError, match="batch_size='3'"):
        replay.sample("3")
    with pytest.raises(TypeError, match="expected those of a batch of this replay"):
        replay.update_priorities(np.arange(3), 1.0)
    for priorities in (np.nan, -1.0, np.inf):
        with pytest.raises(ValueError, match="finite numbers that are not negative"):
            replay.update_priorities(batch.indices, priorities)
    with pytest.raises(ValueError, match="lacks field 'discount'"):
        replay.add({"x": np.arange(3)})
    with pytest.raises(ValueError, match="shards: there is none"):
        ShardedReplay([], STRUCTURE)
