"""Learning from collectors and shards of this process, which die when the test says so."""

from __future__ import annotations

import pytest

from rlcpu import make_vec
from rlcpu.distributed import learning
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.replay import ReplayBuffer
from rlcpu.train import DQN, SAC, Evaluations
from tests.distributed.local import Here


@pytest.mark.parametrize("is_idle", [True, False])
def test_what_a_dead_collector_kept_is_lost(monkeypatch, is_idle):
    """Whether it died with a call to answer, or noticed by nobody."""
    monkeypatch.setattr(learning, "Cluster", Here)
    agent = DQN("CartPole-v1", seed=0, hidden=(8,), n_step=3, learning_starts=10**6)
    with learning.Session(agent, 10_000) as session:
        (collector,), ledger = session._collectors, session.ledger
        session.advance(agent.history)
        kept = 2 * agent.config.num_envs  # steps that wait for the two after them
        assert ledger.carried == kept
        if not is_idle:
            session._dispatch()
        collector.die()
        for _ in range(3):
            session.advance(agent.history)
    block = 0 if is_idle else session._block
    assert (ledger.collector_restarts, ledger.lost_with_collectors) == (1, kept + block)
    assert ledger.carried == kept
    ledger.check()


def test_a_block_that_has_no_room_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(learning, "Cluster", Here)
    agent = DQN("CartPole-v1", seed=0, hidden=(8,), n_step=3, learning_starts=10**6)
    with learning.Session(agent, 10_000) as session:
        (collector,), ledger = session._collectors, session.ledger
        session._dispatch()
        collector.no_room = 3  # the answer, the question for it, and its answer
        session._gather(agent.history, 0.0)
        session.replay.take_answers(wait=True)
        assert ledger.waits == 3
        assert ledger.stored == session._block - ledger.carried
        assert agent.steps == session._block
        session._dispatch()
        collector.no_room = 1
        collector.work()
        call = collector.call

        def die(method, *arguments):
            if method == "again":
                collector.die()
            return call(method, *arguments)

        collector.call = die
        session._gather(agent.history, 0.0)
    assert (ledger.collector_restarts, ledger.carried) == (1, 0)
    assert ledger.lost_with_collectors == session._block + 2 * agent.config.num_envs
    ledger.check()


def test_discounts_are_those_of_the_settings(monkeypatch):
    """A buffer of one step has a `gamma` that nothing reads."""
    monkeypatch.setattr(learning, "Cluster", Here)
    own = ReplayBuffer(500, example_of(make_vec("CartPole-v1", 1)), gamma=0.9)
    settings = {"hidden": (8,), "learning_starts": 10**6, "n_step": 1}
    agent = DQN("CartPole-v1", seed=0, buffer=own, gamma=0.5, **settings)
    with learning.Session(agent, 10_000) as session:
        session.advance(agent.history)
        session.replay.take_answers(wait=True)
        assert set(session.replay.sample(50).discounts.tolist()) == {0.5}


@pytest.mark.parametrize("num_collectors", [1, 2])
def test_learning_starts_when_it_should_in_long_runs(monkeypatch, num_collectors):
    """A block of a run of ten million steps would be 20,000 transitions."""
    monkeypatch.setattr(learning, "Cluster", Here)
    agent = SAC("Pendulum-v1", seed=0, hidden=(8,), learning_starts=500)
    with learning.Session(agent, 10_000_000, num_collectors=num_collectors) as session:
        for _ in range(8):
            session.advance(agent.history)
            session.replay.take_answers(wait=True)
            if session.ledger.sampled:
                break
        assert 500 <= agent.steps <= 2000
        assert session.ledger.sampled > 0


class Awake(Here):
    """Actors that do their work by themselves."""

    def wait(self, calls, timeout):
        for actor in self.actors:
            actor.work()
        return super().wait(calls, timeout)


def test_an_agent_is_evaluated_and_saved_while_collectors_act(monkeypatch, tmp_path):
    """Its file has its own buffer: shards keep theirs."""
    monkeypatch.setattr(learning, "Cluster", Awake)
    agent = DQN("CartPole-v1", seed=0, hidden=(8,), learning_starts=200, capacity=2000)
    best, last = tmp_path / "best.npz", tmp_path / "last.npz"
    history = agent.learn(
        2000,
        num_collectors=1,
        evaluations=Evaluations(2, num_episodes=3),
        keep_best=best,
        save_to=last,
        save_every=600,
    )
    assert len(history.evaluations) == 2
    loaded = DQN.load(best)
    assert loaded.evaluate(3, seed=0).mean() == agent.best_evaluation.mean_return
    assert DQN.load(last).steps == agent.steps == history.saved_at
    assert len(DQN.load(last).buffer) == 0
