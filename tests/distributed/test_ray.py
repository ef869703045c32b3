"""The same on Ray: processes that are killed, clusters that are not there, learning."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray")

import rlcpu
from rlcpu import cli
from rlcpu.distributed import Cluster, ClusterError, ReplayShard, ShardedReplay
from rlcpu.replay import PrioritizedReplayBuffer
from rlcpu.replay.structure import TransitionStructure
from rlcpu.train import DQN, PPO, PQN, QRDQN, SAC, TQC
from tests.distributed.local import Here
from tests.distributed.soak import actors
from tests.distributed.test_shard import EXAMPLE, block_of
from tests.kernels.processes import run_python


@pytest.fixture(scope="module")
def machines():
    """Two of Ray's machines, small ones, whose deaths are noticed in seconds."""
    from ray.cluster_utils import Cluster as Machines

    folder = tempfile.mkdtemp(prefix="rlcpu-ray-")  # or Ray leaves files in /tmp/ray
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_TMPDIR", folder)
    small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    noticed = {
        "health_check_initial_delay_ms": 1000,
        "health_check_period_ms": 1000,
        "health_check_failure_threshold": 2,
    }
    machines = Machines(
        initialize_head=True, head_node_args={"num_cpus": 4, "_system_config": noticed, **small}
    )
    machines.add_node(num_cpus=2, **small)
    yield machines
    machines.shutdown()
    patch.undo()
    shutil.rmtree(folder, ignore_errors=True)  # its processes may still write


@pytest.fixture(scope="module")
def cluster(machines):
    """One cluster for all tests that do not start their own; sessions in it use it too."""
    with Cluster(4, machines.address) as cluster:
        yield cluster


def test_a_killed_shard_comes_back_with_its_last_save(cluster, tmp_path):
    options = {"capacity": 10_000, "example": EXAMPLE}
    save = {"save_period": 1e6}
    shards = [
        cluster.start(ReplayShard, PrioritizedReplayBuffer, options, folder=tmp_path / name, **save)
        for name in ("one", "two")
    ]
    replay = ShardedReplay(shards, TransitionStructure(EXAMPLE), prefetch=0)
    for first in range(0, 400, 100):
        replay.add(block_of(first, 100))
    replay.take_answers(wait=True)
    replay.save()
    for first in range(400, 600, 100):
        replay.add(block_of(first, 100))
    replay.take_answers(wait=True)
    batch = replay.sample(500)
    for process in actors():
        process.kill()
    again = replay.sample(500)
    assert (again["x"] < 400).all()
    replay.update_priorities(batch.indices, 1.0)
    replay.take_answers(wait=True)
    ledger = replay.ledger
    ledger.check()
    assert ledger.shard_restarts == 2
    assert (ledger.lost_with_shards, ledger.held) == (200, 400)
    assert ledger.priorities_applied == (batch["x"] < 400).sum()
    assert ledger.priorities_dropped == (batch["x"] >= 400).sum()
    for shard in shards:
        shard.stop()


def test_a_constructor_that_fails_is_one_clear_error(cluster):
    actor = cluster.start(ReplayShard, int, {})
    with pytest.raises(ClusterError, match="an actor does not start"):
        actor.revive()


def test_what_an_actor_raises_is_raised_here(cluster, monkeypatch):
    """And one of another version is refused."""
    actor = cluster.start(ReplayShard, PrioritizedReplayBuffer, {"capacity": 5, "example": EXAMPLE})
    status = actor.revive()
    call = actor.call("add", status.life, 0, {"x": np.arange(3)})
    with pytest.raises(ValueError, match="lacks field 'discount'"):
        actor.result(call)
    monkeypatch.setattr("rlcpu.__version__", "9.9.9")
    with pytest.raises(ClusterError, match=r"an actor has rlcpu .*, expected 9\.9\.9"):
        actor.revive()
    actor.stop()


def test_a_cluster_that_does_not_start_leaves_no_folder(monkeypatch, tmp_path):
    class Ray:
        is_initialized, shutdown = (staticmethod(lambda: False) for _ in range(2))

        @staticmethod
        def init(*_, _temp_dir, **options):
            assert Path(_temp_dir).is_dir()
            raise OSError("no room for sockets")

    monkeypatch.setattr("rlcpu.distributed.actors.import_ray", Ray)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match="no room for sockets"):
        Cluster(1)
    assert list(tmp_path.iterdir()) == []


def test_resources_that_are_not_there_are_named(cluster):
    with pytest.raises(
        ClusterError, match=r"1000 actors want a CPU each: .* of the cluster's 6 are free"
    ):
        DQN("CartPole-v1").learn(100, num_collectors=999)


@pytest.mark.parametrize("kind", [DQN, PPO])
def test_more_processes_than_a_machine_has_room_for_are_refused(kind, monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    agent = kind("CartPole-v1", num_envs=1000)
    with pytest.raises(
        ValueError,
        match=r"ask for 100\d processes: expected at most 8 on this machine, 8 for each CPU",
    ):
        agent.learn(100, num_collectors=1000)
    assert agent.steps == 0


def test_what_cannot_be_sharded_is_refused():
    with pytest.raises(
        ValueError, match=r"SAC with buffer=ReturnWeightedBuffer.* learns here alone"
    ):
        SAC("Pendulum-v1", replay="return").learn(100, num_collectors=1)
    own = dataclasses.replace(rlcpu.envs.find("Pendulum-v1"), id="Own-v0")  # nobody tuned it
    for settings, advice in (
        ({}, r"SAC\(..., normalize_observations=False, normalize_rewards=False\)"),
        ({"normalize_rewards": False}, r"SAC\(..., normalize_observations=False\)"),
    ):
        with pytest.raises(ValueError, match=f"learns here alone, .*; write {advice}"):
            SAC(own, **settings).learn(100, num_collectors=1)
    with pytest.raises(ValueError, match=r"num_shards=2.*: PQN has no replay"):
        PQN("CartPole-v1").learn(100, num_collectors=1, num_shards=2)
    with pytest.raises(ValueError, match="num_collectors=5: expected at most num_envs=4"):
        PQN("CartPole-v1").learn(100, num_collectors=5)


def test_learning_keeps_the_count_and_the_agents_own_buffer(cluster):
    agent = DQN("CartPole-v1", seed=0, replay="prioritized")
    own = agent.buffer
    history = agent.learn(2000, num_collectors=2, num_shards=2)
    assert history.stopped == "steps"
    assert agent.buffer is own
    ledger = agent.ledger
    ledger.check()
    assert ledger.lost_with_collectors == ledger.lost_with_shards == 0
    assert agent.steps >= 2000
    assert agent.num_updates > 0
    ratio = agent.config.num_updates * agent.config.batch_size / (16 * 8)
    learnt = agent.num_updates * agent.config.batch_size
    assert learnt <= ratio * ledger.requested + 3 * ratio * 8 * 128 + 64 * 128
    assert ledger.priorities_applied > 0
    for options in ({}, {"num_collectors": 1}):  # batches of the other buffer are not reused
        before = agent.num_updates
        agent.learn(1500, **options)
        assert agent.num_updates > before


@pytest.mark.parametrize(
    ("kind", "env", "drawn"),
    [(QRDQN, "CartPole-v1", "prioritized"), (TQC, "Pendulum-v1", "uniform")],
)
def test_agents_of_quantiles_learn_from_shards(cluster, kind, env, drawn):
    """Of several outputs they act by the first, and errors of values are the priorities."""
    agent = kind(env, seed=0, replay=drawn, learning_starts=500)
    assert agent.learn(1500, num_collectors=1).stopped == "steps"
    agent.ledger.check()
    assert agent.num_updates > 0
    assert np.isfinite(np.array([*agent.history.losses], float)).all()
    assert (agent.ledger.priorities_applied > 0) == (drawn == "prioritized")


def test_collectors_wait_while_shards_do_not_keep_up(cluster):
    """A part of the object store is filled, and then no more is made until blocks are stored."""
    agent = DQN("CartPole-v1", seed=0, learning_starts=10**8)
    stopped = []

    def stop(progress):
        if not stopped:
            stopped.extend(each for each in actors() if "Shard" in each.cmdline()[0])
            for process in stopped:
                process.suspend()
            threading.Thread(target=resume).start()
        return agent.ledger.waits == 0

    def resume():
        while agent.ledger.waits == 0:
            time.sleep(0.1)
        for process in stopped:
            process.resume()

    agent.learn(10**9, num_collectors=1, num_shards=1, callback=stop)
    ledger = agent.ledger
    ledger.check()
    assert len(stopped) == 1
    assert ledger.waits > 0
    assert ledger.lost == 0
    assert ledger.stored + ledger.carried + ledger.being_made == ledger.requested


def test_ppo_learns_bit_for_bit_what_one_process_learns(cluster):
    """Also where collectors are killed: a rollout is a function of numbers and states alone."""
    killed = []

    def kill(progress):
        if not killed:
            killed.extend(actors())
            for process in killed:
                process.kill()

    curves, states = [], []
    for options in ({}, {"num_collectors": 2, "callback": kill}):
        agent = PPO("CartPole-v1", seed=3, num_envs=5, num_steps=100)
        curves.append(agent.learn(2000, **options).curve)
        states.append({**agent.policy.state(), **agent.env.engine.take(slice(None))})
    assert curves[0] == curves[1]
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name], name)
    agent.ledger.check()
    assert agent.ledger.collector_restarts == len(killed) == 2
    assert agent.ledger.received == agent.steps
    assert "collect_rollout" not in vars(agent)


def test_the_command_line_tells_what_became_of_transitions(cluster, capsys, monkeypatch):
    """Of those in a replay, and of PPO's, which collectors of this process make."""
    command = ["train", "CartPole-v1", "--algo", "dqn", "--steps", "1500", "--target", "0"]
    assert cli.main([*command, "--collectors", "1", "--episodes", "5"]) == 0
    told = capsys.readouterr()
    assert "transitions stored" in told.out
    assert re.search(r"collector 0 steps per second [\d,]+\nshard 0     size [\d,]+\n", told.out)
    command[3] = "ppo"
    monkeypatch.setattr("rlcpu.distributed.rollouts.Cluster", Here)
    assert cli.main([*command, "--collectors", "2", "--episodes", "5", "--seed", "3"]) == 0
    assert "steps made, 0 lost in 0 restarts" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        cli.main([*command[:2], "--collectors", "1", "--shards", "1"])
    assert "--shards: PPO has no replay buffer" in capsys.readouterr().err


def test_kills_of_a_machine_and_of_a_process_lose_no_count(cluster, machines):
    """The machine dies with a shard and a collector; its actors go on at the other one."""
    (machine,) = machines.worker_nodes
    agent = DQN("CartPole-v1", seed=0)
    found, killed, updates = [], [], []
    end = time.monotonic() + 600.0  # of a machine that is busy with other tests

    def num_restarts():
        return agent.ledger.collector_restarts + agent.ledger.shard_restarts

    def kill(progress):
        """Kill the machine, then a process; stop once much was learnt after both were noticed."""
        if not found:
            states = cluster.ray._private.state.actors().values()
            alive = [each for each in states if each["State"] == "ALIVE"]
            there = [each for each in alive if each["Address"]["NodeID"] == machine.node_id]
            found.extend(each["ActorClassName"] for each in there)
            machines.remove_node(machine, allow_graceful=False)
        elif num_restarts() > len(found):
            updates[:] = updates or [agent.num_updates]
        elif num_restarts() == len(found) and (not killed or time.monotonic() > killed[-1] + 15.0):
            actors()[0].kill()
            killed.append(time.monotonic())
        goes_on = not updates or agent.num_updates < updates[0] + 200
        return goes_on and time.monotonic() < end

    agent.learn(10**9, num_collectors=2, num_shards=2, callback=kill)
    agent.ledger.check()
    assert {"Collector", "ReplayShard"} <= set(found)
    assert num_restarts() > len(found)
    assert agent.num_updates >= updates[0] + 200
    end = time.monotonic() + 120.0
    while actors() and time.monotonic() < end:  # they are told to end, which takes a busy machine
        time.sleep(0.1)
    assert not actors()


@pytest.mark.parametrize("prefix", ["", "ray://"])
@pytest.mark.parametrize("kind", ["nobody", "silent", "web"])
def test_an_address_that_does_not_answer_is_an_error_in_seconds(kind, prefix, monkeypatch):
    """Nobody listens, or somebody takes the connection and says nothing, or something else."""
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("rlcpu.distributed.actors.CONNECT", 0.5)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if kind != "nobody":
            server.listen()
        if kind == "web":
            threading.Thread(target=_say_bad_request, args=[server]).start()
        address = f"{prefix}127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match="does not answer"):
            Cluster(1, address)


def _say_bad_request(server):
    connection, _ = server.accept()
    with connection:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_nothing_is_left_behind():
    """A cluster that was started here ends with its context: its processes and its files.

    Also where Ray's own process died, which is told. (Of the other one, the GCS, no error tells:
    Ray ends a process that misses it for a minute.) A cluster that nobody closes ends with its
    process. It is started whatever cluster RAY_ADDRESS names.
    """
    script = """if True:
        import json, psutil
        import rlcpu.distributed as d
        from tests.distributed.soak import remains
        with d.Cluster(1) as cluster:
            assert len(remains()) > 1, remains()
            found = psutil.Process().children(recursive=True)
            (raylet,) = (each for each in found if each.name() == "raylet")
            raylet.kill()
            try:
                cluster.start(d.ReplayShard, int, {}).revive()
            except d.ClusterError as error:
                message = str(error)
        assert not remains(), remains()
        d.Cluster(1)
        print(json.dumps(message))
    """
    with tempfile.TemporaryDirectory(
        ignore_cleanup_errors=True
    ) as folder:  # other tests have clusters at the same time
        told = run_python("-c", script, RAY_ADDRESS="127.0.0.1:9", TMPDIR=folder)
        assert told.startswith("Ray's own process on this machine, the raylet, has died")
        assert not [each for each in os.listdir(folder) if "rlcpu-ray" in each]
