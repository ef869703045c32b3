"""The peers' benchmarks: the sums that decide a verdict, that contenders do the same work, one run.

No figure is asserted, only how it comes about.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib.util
import json
import operator
import os
import pickle
import re
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches import colours, study  # noqa: E402
from asv_benches.peers import __main__ as command  # noqa: E402
from asv_benches.peers import (  # noqa: E402
    cpp,
    cuda,
    harness,
    machine,
    networks,
    paper,
    readme,
    replay,
    report,
    reports,
    rows,
    scan,
    simulate,
    suite,
    train,
)
from asv_benches.peers.harness import FULL, QUICK, Job, Measurement  # noqa: E402
from asv_benches.peers.recurrences import Line, Models, Rollouts  # noqa: E402
from asv_benches.peers.scan import Systems  # noqa: E402

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


def run(job: Job, calls: int = 3) -> Any:
    """What the last call returns."""
    results = [job.call(*each) for each in job.inputs(np.random.default_rng(1), calls)]
    return results[-1]


# ---------------------------------------------------------------- timing


def test_contenders_alternate_on_fresh_inputs() -> None:
    finished: list[str] = []
    numbers: list[float] = []

    def job(name: str) -> Job:
        def inputs(rng: np.random.Generator, count: int) -> list[tuple[float]]:
            return [(number,) for number in rng.random(count).tolist()]

        return Job(numbers.append, inputs, work=2.0, finish=lambda: finished.append(name))

    effort = QUICK._replace(rounds=4, burst_s=0.0)
    seconds = harness.interleave((job("a"), job("b")), effort, pause_s=0)
    assert seconds.shape == (4, 2)
    assert (seconds > 0).all()
    assert finished[-8:] == ["a", "b", "b", "a"] * 2
    assert len(set(numbers)) == len(numbers)


def test_prepared_inputs_are_different_and_the_same_for_all():
    rng = np.random.default_rng(0)
    first, second = (harness.prepared(Line(2**20), len) for _ in range(2))
    pools = [list(job.inputs(np.random.default_rng(0), 9)) for job in (first, second)]
    assert len({float(x[0]) for (x,) in pools[0]}) == 8
    assert pools[0][0] is pools[0][8]
    np.testing.assert_array_equal(pools[0][3][0], pools[1][3][0])
    drawn = list(harness.drawn(lambda rng: (rng.random(),), 4)(rng, 6))
    assert drawn[:2] == drawn[4:]


# ---------------------------------------------------------------- the sums that decide a verdict


def idle() -> Job:
    return Job(lambda: None)


def absent() -> Job:
    return importlib.import_module("no_such_peer").job()


@pytest.mark.parametrize(
    ("how", "seconds", "expected"),
    [
        # The machine is ten times slower in one round: the ratio is not.
        (
            "rate",
            [[1, 3], [10, 30], [1, 2], [1, 5], [1, 4]],
            Measurement(1.0, 0.25, 3.0, (3.0, 4.0)),
        ),
        ("time", [[1, 4], [2, 6], [1, 5]], Measurement(1.0, 5.0, 4.0, (3.5, 4.5))),
        ("cost", [[1, 4], [1, 4], [1, 4]], Measurement(1.0, 4.0, 0.25, (0.25, 0.25))),
        # The peak is its fastest round.
        ("peak", [[1, 0.5], [1, 10], [2, 0.8]], Measurement(1.0, 2.0, 0.5, (0.375, 0.5))),
        # A share is of the best rounds of both sides, a fifth of them.
        ("share", [[5, 1], [2, 9], [3, 2], [9, 3]], Measurement(2.0, 1.0, 0.5, (0.5, 0.5))),
        ("share", [[4, 1]] * 10, Measurement(4.0, 1.0, 0.25, (0.25, 0.25))),
    ],
)
def test_figures_and_ratios_of_duels(how, seconds, expected, monkeypatch):
    monkeypatch.setattr(harness, "interleave", lambda jobs, effort: np.array(seconds, float))
    assert harness.Duel(idle, idle, how)(QUICK) == expected


def test_a_duel_shows_the_other_figure_where_a_peer_is_missing(monkeypatch):
    monkeypatch.setattr(harness, "interleave", lambda jobs, effort: np.full((3, len(jobs)), 0.5))
    for how, figure in (("rate", 2.0), ("peak", 2.0), ("time", 0.5)):
        measurement = harness.Duel(idle, absent, how)(QUICK)
        assert (measurement.ours, measurement.peer) == (figure, "not installed")
        assert measurement.ratio is None
        assert "no_such_peer" in measurement.note
    nobody = harness.Duel(absent, absent)(QUICK)
    assert (nobody.ours, nobody.peer, nobody.ratio) == ("not installed", "not installed", None)


def test_best_keeps_the_fastest_variant(monkeypatch):
    monkeypatch.setattr(harness, "interleave", lambda jobs, effort: np.array([[3.0, 2.0]]))
    job = harness.best_of("peer", {"a": idle, "c": absent, "b": lambda: Job(max)})()
    assert job.call is max
    assert job.note == "peer: b (slower: a 0.67x)"
    with pytest.raises(ModuleNotFoundError, match="no_such_peer"):
        harness.best_of("peer", {"c": absent})()


def test_panel_compares_the_best_of_both_sides(monkeypatch):
    times = np.array([[2.0, 1.0, 4.0, 0.5]])
    monkeypatch.setattr(harness, "interleave", lambda jobs, effort: times)
    labels = ("rlcpu a", "rlcpu b", "peer", "limit: memory")
    makers = dict.fromkeys(labels, idle) | {"absent": absent}
    measurement = harness.Panel(16, makers, rates=False)(QUICK)
    assert (measurement.ours, measurement.peer, measurement.ratio) == (1.0, 4.0, 4.0)
    missing = {"absent": "not installed: No module named 'no_such_peer'"}
    seconds = dict(zip(labels, times[0], strict=True))
    assert measurement.details == {"size": 16, "seconds": seconds, "missing": missing}
    assert harness.Panel(16, makers, pair=("rlcpu a", "peer"))(QUICK).ours == 0.5
    assert harness.Panel(16, dict.fromkeys(labels, idle), pair=("peer",))(QUICK).ours == "-"


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (operator.add, (1, 2), (3, "", "")),
        (importlib.import_module, ("no_such_peer",), (None, "not installed", "no_such_peer")),
        (operator.truediv, (1, 0), (None, "failed", "ZeroDivisionError: division by zero")),
        (os._exit, (3,), (None, "crashed", "exit code 3")),
        (time.sleep, (600,), (None, "timed out", "no answer within 3 s")),
    ],
)
def test_isolated_call_survives_whatever_a_peer_does(function, arguments, expected):
    limit_s = 3 if function is time.sleep else 60
    value, status, detail = harness.isolated(function, *arguments, limit_s=limit_s)
    assert (value, status) == expected[:2]
    assert expected[2] in detail


def row(**changes: Any) -> rows.Row:
    fields = {"name": "n", "what": "job", "against": "peer", "measure": operator.abs, "target": 4}
    return rows.Row(**(fields | changes))


@pytest.mark.parametrize(
    ("kind", "ratio", "target", "expected"),
    [
        ("speed-up", 4.0, 4, True),
        ("speed-up", 3.9, 4, False),
        ("share", 0.7, 0.65, True),
        ("share", 1.1, 0.65, None),
        ("time", 1.2, 1.15, False),
        ("time", 0.9, 1.15, True),
        ("time", 0.9, None, None),
        ("speed-up", None, 4, None),
    ],
)
def test_met(kind, ratio, target, expected):
    assert rows.met(row(kind=kind, target=target), ratio) is expected


def test_only_the_best_of_ranked_peers_counts(capsys):
    def result(peer: str, ratio: float | None, what: str = "job", ranked: bool = True) -> Any:
        each = row(what=what, against=peer, unit="s", ranked=ranked)
        return rows.result(each, Measurement(1e-6, 1e-6, ratio))

    results = [
        *(result("slow", 9.0), result("missing", None), result("fast", 3.0)),
        *(result("a", 2.0, "other", False), result("b", 1.0, "other", False)),
    ]
    assert [row["against"] for row in rows.closest(results)] == ["fast", "a", "b"]
    assert list(rows.print_rows(iter(results))) == results
    again = capsys.readouterr().out.partition("against the best of them:")[2]
    assert "fast" in again
    assert "NO" in again
    assert "slow" not in again


RUN = train.Run(process_s=3.0, seconds=1.0, steps=1000, episode_return=480.0)


def test_runs_that_do_not_solve_count_in_full(monkeypatch):
    unsolved = RUN._replace(seconds=9.0, episode_return=100.0)
    runs = {train.ZOO: [RUN, unsolved, unsolved], train.PEER: [RUN._replace(seconds=18.0)] * 3}
    monkeypatch.setattr(train, "training_runs", lambda seeds: runs)
    measurement = train.to_solved((train.ZOO, "seconds"), (train.PEER, "seconds"), QUICK)
    assert (measurement.ours, measurement.peer, measurement.ratio) == (9.0, 18.0, 2.0)
    assert "rlcpu-zoo: 1 of 3 seeds solved" in measurement.note
    missing = {**runs, train.PEER: [harness.Outcome(None, "not installed", "no such peer")]}
    monkeypatch.setattr(train, "training_runs", lambda seeds: missing)
    measurement = train.to_solved((train.ZOO, "seconds"), (train.PEER, "seconds"), QUICK)
    assert (measurement.peer, measurement.ratio) == ("not installed", None)
    assert measurement.note.endswith("stable-baselines3: no such peer")


def paper_table() -> dict[str, Any]:
    """A table `paper` as if measured: the k-th label takes k + 1 times as long as the first."""
    curves = {
        "4": ("rlcpu, K=1", "rlcpu, K=100", "jax scan, K=1", paper.JAX, paper.TORCH, paper.GYM),
        "8": ("rlcpu, K=1", paper.OURS_LONG, "jax scan, K=1", paper.JAX_LONG),
    }
    results = []
    for figure, labels in curves.items():
        for n in (1, 256, 2**16):
            times = {label: (k + 1.0) * (n + 1) / n for k, label in enumerate(labels)}
            details = {"size": n, "seconds": times, "missing": {}}
            measurement = Measurement(1.0, 1.0, 1.0, details=details)
            results.append(rows.result(row(name=f"figure-{figure}-{n}"), measurement))
    on = {"cpu": "c", "cores": 2, "system": "s", "date": "2026-01-01", "versions": {}}
    return {"what": "paper", "machine": on, "rows": results}


def test_the_papers_ratios_come_from_the_curves():
    claims = {text: here for _, text, _, here in report.claims({"paper": paper_table()})}
    assert claims["XLA over PyTorch, up to 2^13 envs"] == "1.25x"
    assert claims["plateau of rlcpu over Gym's"] == "3x"
    assert claims["by hand over XLA, 1000 steps (CUDA in the paper, rlcpu here)"] == "2x"
    empty = {"paper": paper_table() | {"rows": []}}
    assert {here for *_, here in report.claims(empty)} == {"not measured"}


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (4.614e9, "env-steps/s", "4.61 G/s"),
        (34_100.0, "env-steps/s", "34.1 k/s"),
        (0.5, "env-steps/s", "0.50 /s"),
        (3.2e11, "FLOP/s", "320 GFLOP/s"),
        (0.0123, "s", "12.3 ms"),
        (3.14159e-6, "s", "3.14 us"),
        ("timed out", "s", "timed out"),
    ],
)
def test_format_figure(value, unit, expected):
    assert rows.format_figure(value, unit) == expected


def test_format_ratio_and_target():
    assert rows.format_ratio(12_345.6, "speed-up") == "12,346x"
    assert rows.format_ratio(0.678, "share") == "68 %"
    assert rows.format_ratio(None, "share") == "-"
    assert rows.format_target(10_000, "speed-up") == ">= 10,000x"
    assert rows.format_target(1.15, "time") == "<= 1.15x"


# ---------------------------------------------------------------- everyone does the same work


@functools.singledispatch
def shrunk(argument: Any) -> Any:
    """A problem of a size that is solved at once; everything else as it is."""
    return argument


@shrunk.register
def _(problem: Systems) -> Systems:
    return problem._replace(batch=5, n=7)


@shrunk.register
def _(problem: Rollouts) -> Rollouts:
    return problem._replace(num_steps=6, num_envs=5)


@shrunk.register
def _(problem: Line) -> Line:
    return Line(50)


@shrunk.register
def _(problem: Models) -> Models:
    return problem._replace(batch=min(problem.batch, 3), num_steps=20)


def small(make: Any) -> partial[Job]:
    return partial(make.func, *map(shrunk, make.args), **make.keywords)


def pairs() -> dict[str, tuple[partial[Job], partial[Job]]]:
    """Both sides of the rows of the table `scan`, once for each of their small problems."""
    found = {}
    for each in scan.rows():
        if each.name != "gradient-library" and isinstance(each.measure, harness.Duel):
            ours, peer = small(each.measure.ours), small(each.measure.peer)
            if peer.func not in (harness.fastest, scan.roofline):
                found.setdefault(repr(peer), (each.name, (ours, peer)))
    return dict(found.values())


PAIRS = pairs()


def leaves(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, tuple | list):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [np.asarray(tree)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the peers
@pytest.mark.parametrize("name", PAIRS)
def test_peers_find_what_we_find(name):
    ours, peer = PAIRS[name]
    try:
        jobs = ours(), peer()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    mine, theirs = (leaves(run(job, 1)) for job in jobs)
    assert len(mine) == len(theirs)
    if name.startswith("kalman") and "gradient" in name:  # JAX's is not that of a symmetric matrix
        theirs[2] = (theirs[2] + np.swapaxes(theirs[2], 1, 2)) / 2
    tolerance = 1e-10 if mine[0].dtype == np.float64 else 2e-5
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(other.reshape(one.shape), one, rtol=tolerance, atol=tolerance)


@needs_compiler
def test_limits_count_their_work():
    job = scan.roofline(Systems(7, 149), "streaming")
    arguments = next(iter(job.inputs(np.random.default_rng(0), 1)))
    np.testing.assert_allclose(job.call(*arguments), sum(arguments), rtol=1e-5, atol=1e-6)
    peak = cpp.fma_peak(iterations=10)
    assert peak.work == 2 * cpp.LANES * cpp.CHAINS * 10 * machine.cores()
    # 12 chains x -> x / 2 + 1 from 0, 1, ... 11: after ten steps 2 - (2 - i) / 1024 each.
    total = peak.call(0.5, 1.0)
    assert total == pytest.approx(machine.cores() * sum(2 - (2 - i) / 1024 for i in range(12)))


@needs_compiler
def test_cpp_cartpole_is_cartpole_and_leaves_the_process_its_subnormals():
    episodes, returns, lengths = run(cpp.cpp_cartpole(("-ffast-math",), 2048, 500), 1)
    assert returns == lengths
    # Random actions keep the pole up for 22.2 steps in Gymnasium, with a standard deviation of 12:
    # 0.3 less where episodes that do not end within the 500 steps are left out, which are long
    # ones. About 46,000 episodes have a standard error of 0.06.
    assert 21.6 < lengths / episodes < 22.2
    assert np.all(np.full(16, 1e-310) / 2 > 0)


def test_exact_mode_is_compared_with_gymnasium():
    assert simulate.compare(num_envs=8, seed=0) > 8


@pytest.mark.parametrize(
    "make",
    [
        partial(simulate.single, "rlcpu/CartPole-v1"),
        *(partial(replay.our_tree, operation, 32) for operation in ("update", "sample")),
        partial(replay.our_buffer, "add", 1600, 5000),
        partial(replay.our_buffer, "sample", 256, 5000, reuse=False),
        partial(replay.our_buffer, "prioritized", 256, 5000),
        partial(reports.our_trajectory, "add", 2),
        partial(reports.our_trajectory, "sample"),
        partial(reports.copy_blocks, 2),
    ],
    ids=lambda make: "-".join(map(str, (make.func.__name__, *make.args))),
)
def test_jobs_that_need_no_peer_run(make, monkeypatch):
    monkeypatch.setattr(replay, "LEAVES", 1000)
    monkeypatch.setattr(reports, "LENGTH", 400)
    run(make())


@pytest.mark.parametrize("make", [reports.our_post, reports.numpy_post])
def test_draws_by_return_repeat_nothing(make):
    drawn = run(make(1000))
    assert np.unique(drawn).size == drawn.size == reports.DRAWS


# ---------------------------------------------------------------- networks


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a compiler")
def test_exported_policies_are_timed_in_c():
    """It raises where the file says something else than the agent."""
    job = networks.exported()
    (seen,) = next(iter(job.inputs(np.random.default_rng(0), 1)))
    assert 0 <= job.call(seen) <= job.work == len(seen)


@pytest.mark.parametrize("is_learnt", [False, True])
def test_products_of_convolution_are_counted(is_learnt):
    job = networks.convolution(32, is_learnt)
    run(job)
    multiply_adds = networks.IMAGES * 10 * 10 * 32 * (3 * 3 * 32)
    assert job.work == 2 * multiply_adds * (3 if is_learnt else 1)


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("table", suite.TABLES)
def test_rows_are_named_and_travel_to_their_process(table):
    made = suite.TABLES[table]()
    assert len({row.name for row in made}) == len(made)
    for each in made:
        assert repr(pickle.loads(pickle.dumps(each))) == repr(each)
        assert each.unit == "s" or each.limit_s


def test_the_saved_rows_are_those_of_the_tables():
    tables = {**suite.TABLES, "cuda": cuda.rows}  # a table that machines without a card leave out
    for path in rows.RESULTS.glob("*.json"):
        content = json.loads(path.read_text())
        made = {row.name: row for row in tables[content["what"]]()}
        for saved in content["rows"]:
            each = made[saved["name"]]
            fields = ("what", "against", "target", "kind", "unit", "ranked")
            assert [saved[field] for field in fields] == [getattr(each, field) for field in fields]
            assert rows.met(each, saved["ratio"]) == saved["met"]


def test_command_measures_prints_and_merges(tmp_path, capsys, monkeypatch):
    file = tmp_path / f"{machine.name()}-simulate.json"
    measure = ["simulate", "--quick", "--results", str(tmp_path), "--only"]
    command.main([*measure, "step-16-cart"])
    (saved,) = json.loads(file.read_text())["rows"]
    assert saved["effort"] == QUICK._asdict()
    assert saved["against"] == "CartPoleVectorEnv"
    assert saved["ratio"] > 0
    printed = capsys.readouterr().out
    assert "env.step, 16 envs, float32" in printed
    assert rows.format_figure(saved["ours"], saved["unit"]) in printed
    monkeypatch.setattr(suite, "measure", lambda row, effort: rows.result(row, Measurement(1, 1)))
    command.main([*measure, "step-1-cart"])
    content = json.loads(file.read_text())
    assert content["what"] == "simulate"
    assert content["machine"]["cores"] == machine.cores() >= 1
    assert [row["name"] for row in content["rows"]] == [
        "step-1-cartpolevectorenv",
        "step-16-cartpolevectorenv",
    ]
    assert content["rows"][1] == saved


def test_quick_figures_are_saved_only_where_one_asks_for_them(calls, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    command.main(["all", "--quick", "--machine", "m"])
    assert calls == ["x", "y", "absent"]
    assert not list(tmp_path.iterdir())
    command.main(["a", "--machine", "m"])
    assert [*rows.load(tmp_path / "m-a.json")] == ["x", "y"]


def test_figures_are_the_rows_that_the_readme_shows(calls, monkeypatch):
    monkeypatch.setattr(readme, "FIGURES", [{"table": "a", "row": "y", "job": "a job"}])
    command.main(["all", "--quick", "--figures"])
    assert calls == ["y"]


def test_a_row_that_cannot_be_measured_says_why():
    failed = rows.measure(row(measure=operator.neg, limit_s=60.0), QUICK)
    assert (failed["peer"], failed["ratio"], failed["met"]) == ("failed", None, None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two tables of cheap rows; the list of what was measured."""
    measured: list[str] = []

    def measure(name: str, effort: Any) -> Measurement:
        measured.append(name)
        figures = ("not installed", None) if name == "absent" else (1.0, 8.0)
        return Measurement(8.0, *figures, note="a <note>")

    def table(*names: str) -> Callable[[], list[rows.Row]]:
        made = [
            row(name=n, what=f"job {n}", measure=partial(measure, n), limit_s=None) for n in names
        ]
        return lambda: made

    for module in (suite, report):
        monkeypatch.setattr(module, "TABLES", {"a": table("x", "y"), "b": table("absent")})
    return measured


PLAN = suite.Plan(QUICK, minutes=1.0, hours=1.0)


def test_all_measures_once_and_tries_failures_again(calls, tmp_path):
    suite.measure_tables(["a", "b"], tmp_path, "m", PLAN)
    said = suite.measure_tables(["a", "b"], tmp_path, "m", PLAN)
    assert calls == ["x", "y", "absent", "absent"]
    assert "3 rows in" in said
    assert "2 of 2 targets met" in said


def test_all_stops_when_the_time_is_up_and_goes_on(calls, tmp_path):
    said = suite.measure_tables(["a", "b"], tmp_path, "m", PLAN._replace(minutes=0.0))
    assert "3 rows are left: run the same command again" in said
    assert calls == []
    assert "left" not in suite.measure_tables(["a", "b"], tmp_path, "m", PLAN)


@pytest.mark.parametrize(
    ("changes", "fresh"),
    [
        ({}, True),
        ({"measured": (dt.datetime.now(dt.UTC) - dt.timedelta(hours=2)).isoformat()}, False),
        ({"effort": QUICK._replace(rounds=1)._asdict()}, False),
        ({"peer": "failed"}, False),
        ({"peer": "timed out"}, True),  # a hang is not waited for twice
    ],
)
def test_what_is_old_or_failed_is_measured_again(calls, tmp_path, changes, fresh):
    suite.measure_tables(["a", "b"], tmp_path, "m", PLAN._replace(only="x"))
    (result,) = rows.load(tmp_path / "m-a.json").values()
    assert suite.is_fresh(result | changes, PLAN) is fresh


# ---------------------------------------------------------------- the report and the README


def test_a_page_has_every_table_and_what_is_missing(calls, tmp_path, monkeypatch):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    suite.measure_tables(["a", "b"], tmp_path, "m", PLAN)
    chapter = {"name": "c", "title": "A & B", "tables": ["a", "b", "none"]}
    monkeypatch.setitem(readme.CONTENT, "chapter", [chapter])
    monkeypatch.setattr(study, "chapter", lambda: {"cells": []})  # which has pictures to draw
    report.write(tmp_path / "m.html", tmp_path, "m")
    text = (tmp_path / "m.html").read_text()
    assert "A &amp; B" in text
    assert "table a: 2 rows" in text
    assert "<td>job absent</td><td>peer</td><td>not installed: a &lt;note&gt;</td>" in text


def test_a_report_of_nothing_says_how_to_measure(tmp_path):
    with pytest.raises(FileNotFoundError, match="asv_benches"):
        command.main(["report", "--results", str(tmp_path), "--machine", "m"])


def test_every_printed_figure_belongs_to_a_row():
    names = {row.name for make in suite.TABLES.values() for row in make()}
    assert set(readme.CONTENT["printed"]) <= names


@pytest.fixture
def results(tmp_path) -> Path:
    """One quick result and two full ones, the newer of which has the ratio 8."""
    folder = tmp_path / "results"
    measurement = Measurement(8.0, 1.0, 8.0, (7.0, 9.0))
    for name, effort, date, ratio in (
        ("quick", QUICK, "2030-03-03", 1.0),
        ("old", FULL, "2030-01-01", 2.0),
        ("new", FULL, "2030-02-02", 8.0),
    ):
        taken = {"effort": effort._asdict(), "measured": f"{date}T00:00:00+00:00"}
        content = rows.result(row(), measurement) | taken | {"ratio": ratio}
        aside = rows.result(row(what="shown for information", target=None), measurement) | taken
        path = folder / f"{name}.json"
        rows.save(path, "collect", [content, aside])
        saved = json.loads(path.read_text())
        saved["machine"] |= {"date": date}
        path.write_text(json.dumps(saved))
    return folder


def test_readme_gets_the_newest_full_figures_and_keeps_its_text(tmp_path, results, monkeypatch):
    pytest.importorskip("matplotlib")
    figure = {"table": "collect", "row": row().name, "job": "a <job>"}
    monkeypatch.setattr(readme, "FIGURES", [figure])
    drawn = {"table": "collect", "job": "a <job>", "ours": {row().name: "rlcpu"}}
    chart = {"file": "speed.svg", "title": "Speed", "job": [drawn | {"peers": {row().name: "JAX"}}]}
    monkeypatch.setattr(readme, "CHARTS", [chart, chart | {"file": "b.svg", "job": []}])
    file, picture = tmp_path / "README.md", tmp_path / "speed.svg"
    file.write_text(f"before\n{readme.BEGIN}\nold figures\n{readme.END}\nafter\n")
    readme.rewrite(file, results, tmp_path)
    lines = file.read_text().splitlines()
    assert lines[:2] == ["before", readme.BEGIN]
    assert lines[-2:] == [readme.END, "after"]
    assert "| a <job> | peer | 8.00x | 8.00 /s | 1.00 /s |" in lines
    assert any("2030-02-02" in line for line in lines)
    assert "old figures" not in lines
    assert all(f">{text}<" in picture.read_text() for text in ("a &lt;job&gt;", "JAX", "8.00 /s"))
    assert not (tmp_path / "b.svg").exists()


def test_the_page_of_all_rows_has_each_with_its_machine_and_says_what_is_slower(results):
    tables = readme.newest(results)
    slow = tables["collect"]["rows"][0] | {"name": "slow", "ratio": 0.5, "what": "<slow>"}
    cost = slow | {"name": "cost", "kind": "time", "what": "cost of <it>"}
    tables["collect"]["rows"] += [slow, cost]
    page = readme.appendix(tables)
    speed, costs = page.split("\n## Costs\n")
    assert f"### Speed: {tables['collect']['rows'][0]['machine']}" in speed
    assert "<td>8.00x</td><td>8.00 /s</td><td>1.00 /s</td><td>2030" in speed
    assert "<td>&lt;slow&gt;</td><td>peer</td><td>0.50x, slower</td>" in speed
    assert "cost of" not in speed
    assert "<td>cost of &lt;it&gt;</td><td>peer</td><td>0.50x</td>" in costs
    assert "src=" not in page


def test_the_newest_figure_of_each_row_counts_whatever_its_machine(results):
    new = json.loads((results / "new.json").read_text())
    new["rows"] = new["rows"][:1]
    new["machine"] |= {"cpu": "another one", "date": "2031-01-01"}
    new["rows"][0] |= {"measured": "2031-01-01T00:00:00+00:00", "ratio": 3.0}
    (results / "newer.json").write_text(json.dumps(new))
    rows = readme.newest(results)["collect"]["rows"]
    assert {row["name"]: row["ratio"] for row in rows}[row().name] == 3.0
    assert rows[0]["machine"].startswith("another one")


def test_readme_shows_the_best_of_several_peers(monkeypatch):
    def peer(name: str, ratio: float) -> dict[str, Any]:
        return rows.result(row(name=name, against=name), Measurement(8.0, 1.0, ratio))

    listed = [peer("step-sync", 90.0), peer("step-vector", 3.0), peer("steps", 1.0)]
    figure = {"table": "collect", "row": "step-", "job": "steps"}
    monkeypatch.setattr(readme, "FIGURES", [figure])
    (best,) = readme.chosen({"collect": {"rows": listed}})
    assert best["against"] == "step-vector"


def test_every_row_that_the_readme_shows_is_one_of_the_tables():
    made = {(what, row.name) for what, make in suite.TABLES.items() for row in make()}
    for each in readme.FIGURES:
        names = [name for what, name in made if what == each["table"]]
        assert any(readme.is_named(name, each["row"]) for name in names), each
    for job in (job for chart in readme.CHARTS for job in chart["job"]):
        assert all((job["table"], name) in made for name in (*job["ours"], *job["peers"])), job
        assert all(readme.shows(job["table"], name) for name in job["peers"])


def test_each_library_has_one_colour():
    assert colours.colour("EnvPool of 256") == colours.colour("envpool, 2 threads")
    named = [colours.colour(name) for name in colours.LIBRARIES]
    assert len(set(named)) == len(named)
    assert colours.colour("C++ by hand") == colours.GREY


def test_readme_without_markers_or_results_is_left_alone(tmp_path, results):
    file = tmp_path / "README.md"
    file.write_text("no markers")
    with pytest.raises(ValueError, match="figures:begin"):
        readme.rewrite(file, results)
    file.write_text(f"{readme.BEGIN}\n{readme.END}")
    with pytest.raises(ValueError, match="no result"):
        readme.rewrite(file, tmp_path / "nowhere")
    assert file.read_text() == f"{readme.BEGIN}\n{readme.END}"


def test_commands_of_contributing_are_taken() -> None:
    """By `make` and the parsers: what they do takes minutes to hours."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    lines = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)).splitlines()
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = [line.partition("#")[0].strip() for line in lines]
    for target in re.findall(r"^make ([\w-]+)", "\n".join(lines), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    taken = 0
    for name, given in re.findall(r"-m asv_benches\.(\w+)(.*)", "\n".join(commands)):
        assert importlib.util.find_spec(f"asv_benches.{name}")
        if name == "peers":
            assert command.parse(given.split()).what
            taken += 1
    assert taken == 3
    (pairs,) = re.findall(r'make study ARGS="(\S+) --seeds \d+"', text)
    assert study.named(pairs)
    options = command.parse(["all", "--figures", "readme"])
    assert options.figures
    assert options.what == ["all", "readme"]
