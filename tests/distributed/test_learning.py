"""Learning from collectors and shards of this process, which die when the test says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import pytest

from rlcpu.distributed import learning
from rlcpu.train import DQN
from tests.distributed.local import Local


class Part(NamedTuple):
    """One of the three results of a collector's call."""

    call: object
    index: int

    @property
    def state(self):
        return self.call.state


class Worker(Local):
    """Hands on references to parts of results, as Ray does."""

    def call(self, method, *arguments):
        given = [a.call.answer[a.index] if isinstance(a, Part) else a for a in arguments]
        call = super().call(method, *given)
        return [Part(call, i) for i in range(3)] if method == "collect" else call

    def result(self, call):
        return (
            super().result(call.call)[call.index]
            if isinstance(call, Part)
            else super().result(call)
        )


class Here:
    """Workers of this process, in the place of a cluster."""

    ray = SimpleNamespace(cluster_resources=dict)

    def __init__(self, num_actors, address):
        pass

    def start(self, kind, *arguments, results=None, **options):
        return Worker(lambda: kind(*arguments, **options))

    def put(self, value):
        return value

    def wait(self, calls, timeout):
        return calls

    def close(self):
        pass


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
