"""The peers' tools: no figure of theirs is asserted, only how they come about."""

from __future__ import annotations

import importlib
import json
import operator
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.peers import duel, isolate, machine, readme, report, timing  # noqa: E402
from asv_benches.peers.duel import Measurement  # noqa: E402
from asv_benches.peers.timing import FULL, QUICK  # noqa: E402

EFFORT = QUICK._replace(rounds=4, burst_s=16.0)


class FakeClock:
    """Time that passes only while a contender runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Fake:
    """A contender whose calls take `seconds` each."""

    name: str
    seconds: float
    clock: FakeClock
    diary: list[tuple[str, float]]
    work: float = 2.0
    seen: list[float] = field(default_factory=list)

    def setup(self) -> None:
        pass

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[float]:
        return rng.random(count).tolist()

    def run(self, inputs: Iterable[float]) -> None:
        for number in inputs:
            self.seen.append(number)
            self.clock.now += self.seconds
        self.diary.append((self.name, self.clock.now))


@dataclass
class Missing(Fake):
    def setup(self) -> None:
        importlib.import_module("no_such_peer")


@pytest.fixture
def fakes() -> tuple[FakeClock, Fake, Fake]:
    clock: FakeClock = FakeClock()
    diary: list[tuple[str, float]] = []
    return clock, Fake("a", 1.0, clock, diary), Fake("b", 4.0, clock, diary)


def test_seconds_per_unit_divides_by_calls_and_work(fakes):
    clock, a, _ = fakes
    assert timing.seconds_per_unit(a, np.random.default_rng(0), 5, clock) == 0.5


def test_calibrate_lasts_the_burst_and_no_longer_than_needed(fakes):
    clock, a, b = fakes
    rng = np.random.default_rng(0)
    assert timing.calibrate(a, rng, 16.0, clock) == 16
    assert timing.calibrate(b, rng, 16.0, clock) == 4
    assert timing.calibrate(b, rng, 0.1, clock) == 1


def test_interleave_alternates_on_fresh_inputs(fakes):
    clock, a, b = fakes
    seconds = timing.interleave((a, b), EFFORT, clock=clock, pause_s=0)
    np.testing.assert_array_equal(seconds, [[0.5, 2.0]] * EFFORT.rounds)
    names = [name for name, _ in a.diary[-2 * EFFORT.rounds :]]
    assert names == ["a", "b", "b", "a"] * (EFFORT.rounds // 2)
    assert len(set(a.seen)) == len(a.seen)


def test_duel_takes_the_median_of_paired_ratios(fakes, monkeypatch):
    _, a, b = fakes
    # The machine is ten times slower in one round: the ratio is not.
    seconds = np.array([[1.0, 3.0], [10.0, 30.0], [1.0, 2.0], [1.0, 5.0], [1.0, 4.0]])
    monkeypatch.setattr(duel, "interleave", lambda contenders, effort: seconds)
    measurement = duel.Duel(a, b)(QUICK)
    assert measurement == Measurement(1.0, 0.25, 3.0, (3.0, 4.0), "")


def test_the_peak_is_the_fastest_round(fakes, monkeypatch):
    _, a, b = fakes
    seconds = np.array([[1.0, 0.5], [1.0, 10.0], [2.0, 0.8]])
    monkeypatch.setattr(duel, "interleave", lambda contenders, effort: seconds)
    measurement = duel.PeakDuel(a, b)(QUICK)
    assert (measurement.ours, measurement.peer, measurement.ratio) == (1.0, 2.0, 0.5)


def test_duel_shows_the_other_figure_where_a_peer_is_missing(fakes, monkeypatch):
    clock, a, _ = fakes
    missing = Missing("c", 1.0, clock, [])
    monkeypatch.setattr(duel, "interleave", lambda contenders, effort: np.full((3, 1), 0.5))
    measurement = duel.Duel(a, missing)(QUICK)
    assert (measurement.ours, measurement.peer) == (2.0, "not installed")
    assert measurement.ratio is None
    assert "no_such_peer" in measurement.note


def test_best_keeps_the_fastest_variant(fakes, monkeypatch):
    clock, a, b = fakes
    missing = Missing("c", 1.0, clock, [])
    monkeypatch.setattr(duel, "interleave", lambda contenders, effort: np.array([[3.0, 2.0]]))
    best = duel.Best("peer", [a, missing, b])
    best.setup()
    assert best.chosen is b
    assert best.work == b.work
    assert best.note == "peer: b (slower: a 0.67x)"
    best.run(best.inputs(np.random.default_rng(0), 3))
    assert len(b.seen) == 3


def test_best_without_any_variant_says_why(fakes):
    clock, _, _ = fakes
    with pytest.raises(ModuleNotFoundError, match="no_such_peer"):
        duel.Best("peer", [Missing("c", 1.0, clock, [])]).setup()


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
    value, status, detail = isolate.call(
        function, *arguments, limit_s=3 if function is time.sleep else 60
    )
    assert (value, status) == expected[:2]
    assert expected[2] in detail


def row(**changes: Any) -> report.Row:
    fields = {"name": "n", "what": "job", "against": "peer", "measure": operator.abs, "target": 4}
    return report.Row(**(fields | changes))


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
    assert report.met(row(kind=kind, target=target), ratio) is expected


def test_rows_are_measured_or_say_why_not():
    rows = [row(measure=operator.neg, limit_s=60.0), row(limit_s=None, measure=measured)]
    failed, succeeded = report.measure(rows, QUICK)
    assert (failed["peer"], failed["ratio"], failed["met"]) == ("failed", None, None)
    assert (succeeded["ours"], succeeded["ratio"], succeeded["met"]) == (8.0, 8.0, True)


def measured(effort: timing.Effort) -> Measurement:
    return Measurement(8.0, 1.0, 8.0, (7.0, 9.0), "a note", {"effort": effort.rounds})


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (4.614e9, "env-steps/s", "4.61 G/s"),
        (34_100.0, "env-steps/s", "34.1 k/s"),
        (0.5, "env-steps/s", "0.50 /s"),
        (3.2e11, "FLOP/s", "320 GFLOP/s"),
        (0.0123, "s", "12.3 ms"),
        (13.4, "s", "13.4 s"),
        ("timed out", "s", "timed out"),
    ],
)
def test_format_figure(value, unit, expected):
    assert report.format_figure(value, unit) == expected


def test_format_ratio_and_target():
    assert report.format_ratio(12_345.6, "speed-up") == "12,346x"
    assert report.format_ratio(1.083, "time") == "1.08x"
    assert report.format_ratio(0.678, "share") == "68 %"
    assert report.format_ratio(None, "share") == "-"
    assert report.format_target(10_000, "speed-up") == ">= 10,000x"
    assert report.format_target(1.15, "time") == "<= 1.15x"
    assert report.format_target(0.65, "share") == ">= 65 %"
    assert report.format_target(None, "share") == "-"


def test_json_holds_figures_machine_and_effort(tmp_path):
    path = tmp_path / "results" / "file.json"
    report.save(path, "simulate", [report.result(row(), measured(QUICK))], QUICK)
    content = json.loads(path.read_text())
    assert content["what"] == "simulate"
    assert content["effort"] == QUICK._asdict()
    assert content["machine"]["cores"] == machine.cores() >= 1
    assert content["machine"]["versions"]["python"]
    (saved,) = content["rows"]
    assert (saved["ours"], saved["ratio"], saved["met"]) == (8.0, 8.0, True)
    assert saved["details"] == {"effort": QUICK.rounds}


def test_machine_name_is_a_file_name(monkeypatch):
    monkeypatch.setattr(machine, "cpu_name", lambda: "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz")
    monkeypatch.setattr(machine, "cores", lambda: 28)
    assert machine.name() == "intel-xeon-e5-2680-v4-28-cores"


@pytest.fixture
def results(tmp_path) -> Path:
    """One quick result and two full ones, the newer of which has the ratio 8."""
    folder = tmp_path / "results"
    for name, effort, date, ratio in (
        ("quick", QUICK, "2030-03-03", 1.0),
        ("old", FULL, "2030-01-01", 2.0),
        ("new", FULL, "2030-02-02", 8.0),
    ):
        content = report.result(row(), measured(effort)) | {"ratio": ratio}
        aside = report.result(row(what="shown for information", target=None), measured(effort))
        path = folder / f"{name}.json"
        report.save(path, "collect", [content, aside], effort)
        saved = json.loads(path.read_text())
        saved["machine"] |= {"date": date}
        path.write_text(json.dumps(saved))
    return folder


def test_readme_gets_the_newest_full_figures_and_keeps_its_text(tmp_path, results, monkeypatch):
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
        assert ">a &lt;job&gt; " in picture.read_text()
    assert "| job | peer | 8.00x | 8.00 /s | 1.00 /s |" in readme.every(readme.newest(results))
    assert "shown for information" not in readme.every(readme.newest(results))


def test_readme_without_markers_or_results_is_left_alone(tmp_path, results):
    file = tmp_path / "README.md"
    file.write_text("no markers")
    with pytest.raises(ValueError, match="figures:begin"):
        readme.rewrite(file, results)
    file.write_text(f"{readme.BEGIN}\n{readme.END}")
    with pytest.raises(ValueError, match="no result"):
        readme.rewrite(file, tmp_path / "nowhere")
    assert file.read_text() == f"{readme.BEGIN}\n{readme.END}"
