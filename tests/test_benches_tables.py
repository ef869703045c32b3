"""The benchmarks' tables: rows, contenders and the command line."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.peers import __main__ as command  # noqa: E402
from asv_benches.peers import cpp, isolate, machine, report, solve, train  # noqa: E402
from asv_benches.peers.timing import QUICK  # noqa: E402


@pytest.mark.parametrize("table", command.TABLES)
def test_rows_are_named_and_travel_to_their_process(table):
    rows = command.TABLES[table]()
    assert len({row.name for row in rows}) == len(rows)
    for each in rows:
        assert repr(pickle.loads(pickle.dumps(each))) == repr(each)
        assert each.unit == "s" or each.limit_s


RUN = train.Run(process_s=3.0, seconds=1.0, steps=1000, episode_return=480.0)


def test_runs_that_do_not_solve_count_in_full(monkeypatch):
    unsolved = RUN._replace(seconds=9.0, episode_return=100.0)
    runs = {train.ZOO: [RUN, unsolved, unsolved], train.PEER: [RUN._replace(seconds=18.0)] * 3}
    monkeypatch.setattr(train, "training_runs", lambda seeds: runs)
    measurement = train.to_solved((train.ZOO, "seconds"), (train.PEER, "seconds"), QUICK)
    assert (measurement.ours, measurement.peer, measurement.ratio) == (9.0, 18.0, 2.0)
    assert "rlcpu-zoo: 1 of 3 seeds solved" in measurement.note
    assert measurement.details[train.ZOO][1]["episode_return"] == 100.0


def test_a_missing_agent_is_a_figure_without_ratio(monkeypatch):
    missing = isolate.Outcome(None, "not installed", "no such peer")
    runs = {train.DEFAULT: [RUN], train.PEER: [missing]}
    monkeypatch.setattr(train, "training_runs", lambda seeds: runs)
    measurement = train.to_solved((train.DEFAULT, "process_s"), (train.PEER, "seconds"), QUICK)
    assert (measurement.ours, measurement.peer, measurement.ratio) == (3.0, "not installed", None)
    assert measurement.note.endswith("stable-baselines3: no such peer")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('noise'); print('{\"a\": 1}')", ({"a": 1}, "", "")),
        ("raise SystemExit(3)", (None, "failed", "exit code 3")),
        (
            "import no_such_peer",
            (None, "not installed", "ModuleNotFoundError: No module named 'no_such_peer'"),
        ),
    ],
)
def test_run_process(code, expected):
    assert train.run_process([sys.executable, "-c", code], dict(os.environ)) == expected


def test_every_trained_agent_has_its_function():
    assert set(solve.AGENTS) == {train.PEER, train.ZOO, train.DEFAULT}


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_cpp_cartpole_is_cartpole():
    contender = cpp.CppSimulate("plain", 2048, 500, ("-ffast-math",))
    contender.setup()
    contender.run(contender.inputs(np.random.default_rng(0), 1))
    episodes, returns, lengths = contender.statistics
    assert returns == lengths
    # Random actions keep the pole up for 22.2 steps in Gymnasium, with a standard deviation of 12;
    # about 46,000 episodes have a standard error of 0.06.
    assert 21.9 < lengths / episodes < 22.5


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", cpp.VARIANTS)
def test_cpp_leaves_the_process_its_subnormals(name):
    cpp.CppSimulate(name, 16, 1, cpp.VARIANTS[name]).setup()
    assert np.all(np.full(16, 1e-310) / 2 > 0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_fma_peak_counts_its_operations():
    peak = cpp.FmaPeak(iterations=10)
    peak.setup()
    assert peak.work == 2 * cpp.LANES * cpp.CHAINS * 10 * machine.cores()
    # 12 chains x -> x / 2 + 1 from 0, 1, ... 11: after ten steps 2 - (2 - i) / 1024 each.
    total = peak.run_once(0.5, 1.0)
    assert total == pytest.approx(machine.cores() * sum(2 - (2 - i) / 1024 for i in range(12)))


def test_exact_mode_is_compared_with_gymnasium():
    from asv_benches.peers.exact import compare

    assert compare(num_envs=8, seed=0) > 8


def test_users_cartpole_is_ours(monkeypatch):
    import rlcpu
    from rlcpu.envs.cartpole import DYNAMICS

    registered: list[Any] = []
    monkeypatch.setattr(rlcpu, "register", registered.append)
    users = importlib.import_module("asv_benches.peers.user_cartpole")
    assert registered == [users.DYNAMICS]
    rng = np.random.default_rng(0)
    for state, action in zip(rng.uniform(-1, 1, (100, 4)), itertools.cycle((0, 1))):
        new, reward, terminated = users.step(tuple(state), action, users.DYNAMICS.params)
        expected, *rest = DYNAMICS.step(tuple(state), action, DYNAMICS.params)
        np.testing.assert_allclose(new, expected, rtol=1e-13)
        assert [reward, terminated] == rest


def test_command_measures_prints_and_saves(tmp_path, capsys):
    file = tmp_path / "figures.json"
    command.main(["simulate", "--quick", "--only", "step-16-cart", "--json", str(file)])
    (saved,) = json.loads(file.read_text())["rows"]
    assert saved["against"] == "CartPoleVectorEnv"
    assert saved["ratio"] > 0
    printed = capsys.readouterr().out
    assert "env.step, 16 envs, float32" in printed
    assert report.format_figure(saved["ours"], saved["unit"]) in printed


def test_command_refuses_an_unknown_table(capsys):
    with pytest.raises(SystemExit):
        command.main(["sleep"])
    assert "invalid choice: 'sleep'" in capsys.readouterr().err
