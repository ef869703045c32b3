"""The second process that compiles an update: what it leaves, and that it never stays behind."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rlcpu
from rlcpu.kernels.compiler.cache import KernelCache
from rlcpu.kernels.compiler.compile import kernel_in
from rlcpu.kernels.compiler.hooks import cache_of
from rlcpu.nn import Learner
from rlcpu.nn.learning.update import update
from rlcpu.train import PPOConfig
from rlcpu.train.running import precompile
from tests.kernels.processes import ROOT

from .cases import improve, make_agent, make_batch, make_policy


def make_learning(num_threads: int = 2, **options: Any) -> Any:
    return make_agent(make_policy(**options), PPOConfig(), num_threads=num_threads)


def precompiled(agent: Any) -> Any:
    return precompile.precompiled(agent.learner, precompile.describe(agent, agent._kind))


@pytest.fixture
def nothing_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a script that finds an empty cache, whatever ran in this process before."""
    monkeypatch.setattr(Learner, "is_uncompiled", lambda self: True)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # who runs a notebook imports it


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_what_is_compiled_ahead_is_what_learning_runs(env_id: str) -> None:
    agent = rlcpu.train.PPO(env_id, num_envs=2, num_steps=8)
    kernel = kernel_in(agent.learner.dtype, update, by_address=True)
    discrete = agent.policy.log_std.size == 0
    make_learning(discrete=discrete, hidden=(1,)).learner.compile()
    before = list(kernel.signatures)
    agent.learn(1)
    assert kernel.signatures == before
    assert not agent.learner.is_uncompiled()


@pytest.mark.usefixtures("nothing_cached")
@pytest.mark.parametrize("discrete", [True, False])
def test_the_first_update_shares_the_work_with_it(discrete: bool) -> None:
    agent = make_learning(discrete=discrete)
    with precompiled(agent):
        process = agent.learner.compiling_process
        assert process is not None
        losses = improve(agent, make_batch(agent.policy, 64), 1e-3, 0.2)
        assert not agent.learner.compiling_process
    assert process.returncode is not None
    expected = improve(make_learning(discrete=discrete), make_batch(agent.policy, 64), 1e-3, 0.2)
    assert losses == expected


@pytest.mark.usefixtures("nothing_cached")
def test_one_that_fails_or_is_not_needed_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_learning()
    with precompiled(agent):
        unneeded: Any = agent.learner.compiling_process
    assert unneeded.returncode is not None
    assert unneeded.stdin.closed
    assert agent.learner.compiling_process is None
    monkeypatch.setattr(precompile, "_PROGRAM", "raise SystemExit(3)")
    with precompiled(agent):
        assert improve(agent, make_batch(agent.policy, 64), 1e-3, 0.2).num_gradients > 0
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with precompiled(agent):
        assert agent.learner.compiling_process is None


@pytest.mark.usefixtures("nothing_cached")
def test_only_where_it_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert precompile._is_worth_it(make_learning().learner)
    assert not precompile._is_worth_it(make_learning(num_threads=1).learner)
    for module, name, value in (
        (multiprocessing, "parent_process", lambda: "one"),
        (sys, "executable", None),
        (sys, "frozen", True),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value, raising=False)
            assert not precompile._is_worth_it(make_learning().learner)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert not precompile._is_worth_it(make_learning().learner)


@pytest.mark.parametrize("agent", ["DQN", "PQN", "QRDQN", "SAC", "TQC", "TD3"])
def test_every_agent_has_a_learner_of_its_kernels(agent: str) -> None:
    """Whatever a user's subclass brings, and with any environment's numbers of inputs."""
    made: Any = getattr(rlcpu.train, agent)
    kind = "discrete" if agent.endswith("QN") else "continuous"
    env_id = {"discrete": "FrozenLake-v1", "continuous": "MountainCarContinuous-v0"}[kind]
    more = dataclasses.field(default_factory=lambda: own_layers)
    config = dataclasses.make_dataclass(
        "Config", [("more", object, more)], bases=(made.Config,), frozen=True
    )
    mine = type("Mine", (made,), {"Config": config, "defaults": {}})(
        env_id, num_envs=2, hidden=(8, 8), network=own_layers
    )
    module, name, settings, described_kind = json.loads(precompile.describe(mine, kind))
    assert (module, name, described_kind) == (made.__module__, agent, kind)
    learner, own = made.learner_of(made.Config(**settings), kind), mine.learner
    functions = [{str(each) for each in x.tape.functions} for x in (learner, own)]
    instructions = [{each["kind"] for each in x.tape.instructions} for x in (learner, own)]
    assert functions[0] == functions[1]
    assert instructions[0] == instructions[1]
    kernels = [kernel_in(x.dtype, update, by_address=True) for x in (learner, own)]
    assert kernels[0] is kernels[1]


def own_layers(space: Any) -> Any:
    return rlcpu.nn.Dense(8) >> rlcpu.nn.Relu()


def test_nothing_is_missing_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_learning()
    kernel = kernel_in(agent.learner.dtype, update, by_address=True)
    monkeypatch.setattr(KernelCache, "_path", lambda *_: Path("nowhere"))
    assert cache_of(kernel).lacks(())
    monkeypatch.setattr(KernelCache, "_path", lambda *_: None)
    assert not cache_of(kernel).lacks(())


KILLED = """
import json, os, signal
from rlcpu.nn import Learner
from rlcpu.train import PPOConfig
from rlcpu.train.running import precompile
from tests.train.cases import make_agent, make_policy
from tests.train.test_precompile import precompiled
Learner.is_uncompiled = lambda self: True
start = "from rlcpu.train.running.precompile import "
sleep = "import time; from rlcpu.nn import Learner; Learner.compile = lambda _: time.sleep(600); "
precompile._PROGRAM = precompile._PROGRAM.replace(start, sleep + start)
agent = make_agent(make_policy(), PPOConfig(), num_threads=2)
block = precompiled(agent)
block.__enter__()
print(json.dumps(agent.learner.compiling_process.pid), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_it_ends_with_a_process_that_is_killed() -> None:
    command = [sys.executable, "-W", "error", "-c", KILLED]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == -9, result.stderr
    status = Path(f"/proc/{json.loads(result.stdout)}/stat")
    end = time.monotonic() + 60.0
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] not in "ZX":
        assert time.monotonic() < end
        time.sleep(0.05)
