"""The object store is full, and the disk behind it: everything waits, nothing is lost."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time

import numpy as np
import pytest

pytest.importorskip("ray")

import ray

from rlcpu.distributed import Cluster, ReplayShard, ShardedReplay, StoreFullError
from rlcpu.distributed.learning import Session
from rlcpu.replay import ReplayBuffer
from rlcpu.replay.structure import TransitionStructure
from rlcpu.train import DQN, PPO, SAC
from tests.distributed.soak import actors


@pytest.fixture(scope="module")
def small():
    """A cluster whose object store is the smallest that Ray makes, and that may use no disk."""
    folder = tempfile.mkdtemp(prefix="rlcpu-ray-")
    ray.init(
        num_cpus=4,
        object_store_memory=80 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=folder,
        _system_config={"local_fs_capacity_threshold": 1e-6},
    )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


class Filler:
    """Fills what room there is in the object store, and gives it back."""

    def __init__(self):
        self.held = []

    def fill(self):
        """Take room until there is none for what is larger than messages."""
        for size in (4 * 2**20, 2**18, 2**16):
            while True:
                try:
                    reference = ray.put(np.zeros(size, np.uint8))
                except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError):
                    break
                self.held.append((reference, ray.get(reference)))  # what is read is not moved

    def let_go(self):
        self.held.clear()

    def let_go_after(self, replay, waits):
        """Fill, and let go as soon as the replay has waited so often, by a thread."""
        before = replay.ledger.waits
        self.fill()

        def watch():
            while replay.ledger.waits < before + waits:
                time.sleep(0.01)
            self.let_go()

        threading.Thread(target=watch, daemon=True).start()


def collectors():
    return [each for each in actors() if "Collector" in each.cmdline()[0]]


def test_learning_waits_and_loses_nothing(small):
    large = {"num_envs": 64, "hidden": (256, 256)}  # what is below 100 kB needs no room
    agent = SAC("Pendulum-v1", seed=0, learning_starts=256, **large)
    filler, filled = Filler(), []

    def fill(progress):
        if not filled:
            filler.fill()
            filled.append(threading.Thread(target=let_go))
            filled[0].start()

    def let_go():
        while agent.ledger.waits < 10 and not agent.history.stopped:
            time.sleep(0.05)
        filler.let_go()

    agent.learn(1500, num_collectors=2, num_shards=1, callback=fill)
    filled[0].join()
    ledger = agent.ledger
    ledger.check()
    assert ledger.waits >= 10
    assert ledger.lost == ledger.collector_restarts == ledger.shard_restarts == 0
    assert ledger.stored + ledger.carried + ledger.being_made == ledger.requested
    assert agent.steps >= 1500


def test_a_block_that_has_no_room_is_sent_again(small):
    agent, filler = DQN("CartPole-v1", seed=0, learning_starts=10**8), Filler()
    with Session(agent, 10**7) as session:
        (collector,) = collectors()
        collector.suspend()
        session._dispatch()
        filler.let_go_after(session, 1)
        collector.resume()
        while not session.ledger.waits:
            session._gather(agent.history, 1.0)
        session.replay.take_answers(wait=True)
        ledger = session.ledger
        ledger.check()
        assert ledger.stored + ledger.carried == agent.steps == session._block
        assert ledger.collector_restarts == 0


def test_a_rollout_that_has_no_room_is_the_same_in_the_end(small):
    agents = [PPO("CartPole-v1", seed=3, num_envs=64, num_steps=128) for _ in range(2)]
    agents[0].learn(40_000)
    ledgers, stopped, filler = [], [], Filler()

    def fill():
        while not ledgers[0].being_made:
            time.sleep(0.01)
        filler.fill()
        for each in stopped:
            each.resume()
        while ledgers[0].waits < 10 and not agents[1].history.stopped:
            time.sleep(0.01)
        filler.let_go()

    def stop(progress):
        if not stopped:
            ledgers.append(agents[1].ledger)
            stopped.extend(collectors())
            for each in stopped:
                each.suspend()
            threading.Thread(target=fill).start()

    agents[1].learn(40_000, num_collectors=2, callback=stop)
    ledger = agents[1].ledger
    ledger.check()
    assert ledger.waits >= 10
    assert ledger.received == agents[1].steps
    assert ledger.lost == 0
    one, two = (agent.policy.state() for agent in agents)
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], name)


def test_blocks_and_batches_wait_but_not_for_ever(small, monkeypatch):
    """Through the client alone: large blocks by value, and batches that have no room."""
    example = {"x": np.zeros(1024, np.float32)}
    with Cluster(1) as cluster:
        shard = cluster.start(ReplayShard, ReplayBuffer, {"capacity": 2000, "example": example})
        replay = ShardedReplay([shard], TransitionStructure(example), prioritized=False)
        replay.add({"x": np.ones((500, 1024), np.float32)})
        replay.take_answers(wait=True)
        filler = Filler()
        filler.let_go_after(replay, 1)
        assert (replay.sample(500)["x"] == 1.0).all()
        filler.let_go_after(replay, 3)
        replay.add({"x": np.full((500, 1024), 2, np.float32)})
        replay.take_answers(wait=True)
        assert replay.ledger.waits >= 4
        assert replay.ledger.held == 1000
        replay.ledger.check()
        filler.fill()
        monkeypatch.setattr("rlcpu.distributed.remote.PATIENCE", 0.5)
        with pytest.raises(StoreFullError, match="store is full"):
            replay.add({"x": np.full((500, 1024), 3, np.float32)})
        filler.let_go()
