"""The peers' harness and report: no figure of theirs is asserted, only how they come about."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import operator
import os
import pickle
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

from asv_benches.peers import __main__ as command  # noqa: E402
from asv_benches.peers import (  # noqa: E402
    harness,
    machine,
    paper,
    readme,
    report,
    rows,
    suite,
    train,
)
from asv_benches.peers.harness import FULL, QUICK, Contender, Job, Measurement  # noqa: E402

EFFORT = QUICK._replace(rounds=4, burst_s=16.0)


# ---------------------------------------------------------------- timing


class Clock:
    """Time that passes only while a job runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.diary: list[str] = []
        self.seen: list[float] = []

    def __call__(self) -> float:
        return self.now

    def job(self, name: str, seconds: float) -> Job:
        """A job of two units of work, whose calls take so long."""

        def call(number: float) -> None:
            self.seen.append(number)
            self.now += seconds

        def inputs(rng: np.random.Generator, count: int) -> list[tuple[float]]:
            return [(number,) for number in rng.random(count).tolist()]

        return Job(call, inputs, work=2.0, finish=lambda: self.diary.append(name))


def test_calibrate_lasts_the_burst_and_no_longer_than_needed():
    clock, rng = Clock(), np.random.default_rng(0)
    a, b = clock.job("a", 1.0), clock.job("b", 4.0)
    assert harness.seconds_per_unit(a, rng, 5, clock) == 0.5
    assert harness.calibrate(a, rng, 16.0, clock) == 16
    assert harness.calibrate(b, rng, 16.0, clock) == 4
    assert harness.calibrate(b, rng, 0.1, clock) == 1


def test_interleave_alternates_on_fresh_inputs():
    clock = Clock()
    jobs = clock.job("a", 1.0), clock.job("b", 4.0)
    seconds = harness.interleave(jobs, EFFORT, clock=clock, pause_s=0)
    np.testing.assert_array_equal(seconds, [[0.5, 2.0]] * EFFORT.rounds)
    assert clock.diary[-2 * EFFORT.rounds :] == ["a", "b", "b", "a"] * (EFFORT.rounds // 2)
    assert len(set(clock.seen)) == len(clock.seen)


def test_inputs_are_drawn_anew_or_taken_in_turn():
    rng = np.random.default_rng(0)
    drawn = harness.drawn(lambda rng: (rng.random(),), 4)
    first, second = (list(drawn(rng, 6)) for _ in range(2))
    assert first[:2] == first[4:]
    assert len({*first, *second}) == 8
    turns = [list(harness.in_turn([(0,), (1,), (2,)])(rng, 4)) for _ in range(20)]
    assert {turn[0] for turn in turns} == {(0,), (1,), (2,)}
    assert all((turn[k + 1][0] - turn[k][0]) % 3 == 1 for turn in turns for k in range(3))


# ---------------------------------------------------------------- the sums that decide a verdict


def idle() -> Job:
    return Job(lambda: None)


def absent() -> Job:
    return importlib.import_module("no_such_peer").job()


OURS, PEER, ABSENT = Contender("a", idle), Contender("b", idle), Contender("c", absent)


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
    assert harness.Duel(OURS, PEER, how)(QUICK) == expected


def test_a_duel_shows_the_other_figure_where_a_peer_is_missing(monkeypatch):
    monkeypatch.setattr(harness, "interleave", lambda jobs, effort: np.full((3, len(jobs)), 0.5))
    for how, figure in (("rate", 2.0), ("peak", 2.0), ("time", 0.5)):
        measurement = harness.Duel(OURS, ABSENT, how)(QUICK)
        assert (measurement.ours, measurement.peer) == (figure, "not installed")
        assert measurement.ratio is None
        assert "no_such_peer" in measurement.note
    nobody = harness.Duel(ABSENT, ABSENT)(QUICK)
    assert (nobody.ours, nobody.peer, nobody.ratio) == ("not installed", "not installed", None)


def test_best_keeps_the_fastest_variant(monkeypatch):
    monkeypatch.setattr(harness, "interleave", lambda jobs, effort: np.array([[3.0, 2.0]]))
    job = harness.best_of("peer", {"a": idle, "c": absent, "b": lambda: Job(max)}).make()
    assert job.call is max
    assert job.note == "peer: b (slower: a 0.67x)"
    with pytest.raises(ModuleNotFoundError, match="no_such_peer"):
        harness.best_of("peer", {"c": absent}).make()


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
    assert measurement.details[train.ZOO][1]["episode_return"] == 100.0


def test_a_missing_agent_is_a_figure_without_ratio(monkeypatch):
    missing = harness.Outcome(None, "not installed", "no such peer")
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


def test_the_papers_ratios_come_from_the_curves():
    claims = {text: here for _, text, _, here in report.claims(PAPER)}
    # Labels are made k + 1 times as slow as the first, the k-th of them.
    assert claims["XLA over PyTorch, up to 2^13 envs"] == "1.25x"
    assert claims["plateau of rlcpu over Gym's"] == "3x"
    assert claims["written by hand over XLA, 1000 steps (CUDA in the paper, rlcpu here)"] == "2x"
    empty = {"paper": PAPER["paper"] | {"rows": []}}
    assert {here for *_, here in report.claims(empty)} == {"not measured"}
    assert report.claims({}) == []


def paper_table() -> dict[str, Any]:
    """A table `paper` as if measured: throughput N * K / (N + 1)."""
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


PAPER = {"paper": paper_table()}


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("table", suite.TABLES)
def test_rows_are_named_and_travel_to_their_process(table):
    made = suite.TABLES[table]()
    assert len({row.name for row in made}) == len(made)
    for each in made:
        assert repr(pickle.loads(pickle.dumps(each))) == repr(each)
        assert each.unit == "s" or each.limit_s


def test_the_saved_rows_are_those_of_the_tables():
    for path in rows.RESULTS.glob("*.json"):
        content = json.loads(path.read_text())
        made = {row.name: row for row in suite.TABLES[content["what"]]()}
        for saved in content["rows"]:
            each = made[saved["name"]]
            fields = ("what", "against", "target", "kind", "unit", "ranked")
            assert [saved[field] for field in fields] == [getattr(each, field) for field in fields]
            assert rows.met(each, saved["ratio"]) == saved["met"]


def test_command_measures_prints_and_saves(tmp_path, capsys):
    file = tmp_path / "figures.json"
    command.main(["simulate", "--quick", "--only", "step-16-cart", "--json", str(file)])
    content = json.loads(file.read_text())
    assert content["what"] == "simulate"
    assert content["effort"] == QUICK._asdict()
    assert content["machine"]["cores"] == machine.cores() >= 1
    assert content["machine"]["versions"]["python"]
    (saved,) = content["rows"]
    assert saved["against"] == "CartPoleVectorEnv"
    assert saved["ratio"] > 0
    printed = capsys.readouterr().out
    assert "env.step, 16 envs, float32" in printed
    assert rows.format_figure(saved["ours"], saved["unit"]) in printed


def test_command_refuses_an_unknown_table(capsys):
    with pytest.raises(SystemExit):
        command.main(["sleep"])
    assert "invalid choice: 'sleep'" in capsys.readouterr().err


def test_a_row_that_cannot_be_measured_says_why():
    failed = rows.measure(row(measure=operator.neg, limit_s=60.0), QUICK)
    assert (failed["peer"], failed["ratio"], failed["met"]) == ("failed", None, None)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (4.614e9, "env-steps/s", "4.61 G/s"),
        (34_100.0, "env-steps/s", "34.1 k/s"),
        (0.5, "env-steps/s", "0.50 /s"),
        (3.2e11, "FLOP/s", "320 GFLOP/s"),
        (2.5e12, "B/s", "2,500 GB/s"),
        (0.0123, "s", "12.3 ms"),
        (13.4, "s", "13.4 s"),
        (3.14159e-6, "s", "3.14 us"),
        (813e6, "B", "813 MB"),
        (1234.0, "calls", "1,234"),
        ("timed out", "s", "timed out"),
    ],
)
def test_format_figure(value, unit, expected):
    assert rows.format_figure(value, unit) == expected


def test_format_ratio_and_target():
    assert rows.format_ratio(12_345.6, "speed-up") == "12,346x"
    assert rows.format_ratio(1.083, "time") == "1.08x"
    assert rows.format_ratio(0.678, "share") == "68 %"
    assert rows.format_ratio(None, "share") == "-"
    assert rows.format_target(10_000, "speed-up") == ">= 10,000x"
    assert rows.format_target(1.15, "time") == "<= 1.15x"
    assert rows.format_target(0.65, "share") == ">= 65 %"
    assert rows.format_target(None, "share") == "-"


def test_machine_name_is_a_file_name(monkeypatch):
    monkeypatch.setattr(machine, "cpu_name", lambda: "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz")
    monkeypatch.setattr(machine, "cores", lambda: 28)
    assert machine.name() == "intel-xeon-e5-2680-v4-28-cores"


# ---------------------------------------------------------------- `all`


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


def plan(folder: Path, **changes: Any) -> suite.Plan:
    fields = {"machine": "m", "effort": QUICK, "minutes": 1.0, "hours": 1.0}
    return suite.Plan(folder, **(fields | changes))


def test_all_measures_once_and_tries_failures_again(calls, tmp_path):
    assert suite.measure_all(plan(tmp_path)) == 0
    assert suite.measure_all(plan(tmp_path)) == 0
    assert calls == ["x", "y", "absent", "absent"]
    assert "3 rows in" in suite.summary(plan(tmp_path), 0)
    assert "2 of 2 targets met" in suite.summary(plan(tmp_path), 0)


def test_all_stops_when_the_time_is_up_and_goes_on(calls, tmp_path, monkeypatch):
    clock = iter([0.0, 1.0, 1.0, 90.0, 90.0])
    monkeypatch.setattr(suite.time, "monotonic", lambda: next(clock))
    assert suite.measure_all(plan(tmp_path)) == 2
    assert "2 rows are left: run the same command again" in suite.summary(plan(tmp_path), 2)
    monkeypatch.undo()
    assert calls == ["x"]


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
    suite.measure_all(plan(tmp_path, only="x", tables=("a",)))
    (result,) = rows.load(tmp_path / "m-a.json").values()
    assert suite.is_fresh(result | changes, plan(tmp_path)) is fresh
    assert not suite.is_fresh(None, plan(tmp_path))


# ---------------------------------------------------------------- the report


def test_a_page_has_every_table_and_what_is_missing(calls, tmp_path, monkeypatch):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    suite.measure_all(plan(tmp_path))
    part = {"name": "c", "title": "A & B", "tables": ("a", "b", "none")}
    monkeypatch.setattr(report, "chapters", lambda tables: [part])
    report.write(tmp_path / "m.html", tmp_path, "m")
    text = (tmp_path / "m.html").read_text()
    assert "A &amp; B" in text
    assert "a &lt;note&gt;" in text
    assert "table a: 2 rows" in text
    assert "Our own targets: 2 of 2 are met" in text[text.index("A &amp; B") :]
    assert "<td>job absent</td><td>peer</td><td>not installed: a &lt;note&gt;</td>" in text


def test_a_report_of_nothing_says_how_to_measure(tmp_path):
    with pytest.raises(FileNotFoundError, match="asv_benches"):
        command.main(["report", "--results", str(tmp_path), "--machine", "m"])


def test_every_printed_figure_belongs_to_a_row():
    names = {row.name for make in suite.TABLES.values() for row in make()}
    assert set(report.PRINTED) <= names


def test_the_report_is_one_file_with_pictures(tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    (tmp_path / "m-paper.json").write_text(json.dumps(PAPER["paper"]))
    command.main(["report", "--results", str(tmp_path), "--machine", "m"])
    text = (tmp_path / "m.html").read_text()
    assert text.count("data:image/svg+xml;base64,") == 2  # Figures 4 and 8
    assert "http" not in text.replace("data:image", "")


def test_the_report_begins_with_how_much_faster_than_whom():
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    if not list(rows.RESULTS.glob("*-simulate.json")):
        pytest.skip("no results: python -m asv_benches.peers all")
    name = next(rows.RESULTS.glob("*-simulate.json")).name.removesuffix("-simulate.json")
    text = report.page(report.load(rows.RESULTS, name), name)
    assert text.count("data:image/svg+xml;base64,") == 14  # the README's, and thirteen more
    assert text.index("<img") < text.index("times as fast</th>") < text.index("<nav>")
    for word in ("target", "met"):
        assert word not in text[text.index("</h1>") : text.index("<nav>")].split("</figure>")[1]
    assert text.index("<nav>") < text.index("Our own targets")
    assert text.count("<table>") == text.count('<div class="scroll"><table>')


# ---------------------------------------------------------------- the README's figures


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
        content = rows.result(row(), measurement) | {"ratio": ratio}
        aside = rows.result(row(what="shown for information", target=None), measurement)
        path = folder / f"{name}.json"
        rows.save(path, "collect", [content, aside], effort)
        saved = json.loads(path.read_text())
        saved["machine"] |= {"date": date}
        path.write_text(json.dumps(saved))
    return folder


def test_readme_gets_the_newest_full_figures_and_keeps_its_text(tmp_path, results, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(readme, "FIGURES", [readme.Figure("collect", row().name, "a <job>")])
    file, picture = tmp_path / "README.md", tmp_path / "speed.svg"
    for old in ("", "old figures\n"):
        file.write_text(f"before\n{readme.BEGIN}\n{old}{readme.END}\nafter\n")
        readme.rewrite(file, results, picture)
        lines = file.read_text().splitlines()
        assert lines[:2] == ["before", readme.BEGIN]
        assert lines[-2:] == [readme.END, "after"]
        assert "| a <job> | peer | 8.00x | 8.00 /s | 1.00 /s |" in lines
        assert any("2030-02-02" in line for line in lines)
        assert "old figures" not in lines
        assert ">a &lt;job&gt; | peer<" in picture.read_text()
        assert "prefers-color-scheme: dark" in picture.read_text()
    assert "| job | peer | 8.00x | 8.00 /s | 1.00 /s |" in readme.every(readme.newest(results))
    assert "shown for information" not in readme.every(readme.newest(results))


def test_readme_without_markers_or_results_is_left_alone(tmp_path, results):
    pytest.importorskip("matplotlib")
    file = tmp_path / "README.md"
    file.write_text("no markers")
    with pytest.raises(ValueError, match="figures:begin"):
        readme.rewrite(file, results)
    file.write_text(f"{readme.BEGIN}\n{readme.END}")
    with pytest.raises(ValueError, match="no result"):
        readme.rewrite(file, tmp_path / "nowhere")
    assert file.read_text() == f"{readme.BEGIN}\n{readme.END}"
