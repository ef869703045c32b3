"""`peers all` and its report: what is measured when, and what the page shows."""

from __future__ import annotations

import datetime as dt
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.peers import __main__ as command  # noqa: E402
from asv_benches.peers import (  # noqa: E402
    chapter_paper,
    chapters,
    page,
    panel,
    printed,
    report,
    saved,
    suite,
    tables,
)
from asv_benches.peers.duel import Measurement  # noqa: E402
from asv_benches.peers.timing import QUICK  # noqa: E402


@dataclass
class Counted:
    """Stands for a measurement."""

    calls: list[str]
    name: str

    def __call__(self, effort: Any) -> Measurement:
        self.calls.append(self.name)
        peer: float | str = "not installed" if self.name == "absent" else 1.0
        ratio = None if self.name == "absent" else 8.0
        return Measurement(8.0, peer, ratio, None, "a <note>")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two tables of cheap rows; the list of what was measured."""
    measured: list[str] = []

    def rows(*names: str) -> list[report.Row]:
        return [
            report.Row(n, f"job {n}", "peer", Counted(measured, n), 4, limit_s=None) for n in names
        ]

    monkeypatch.setattr(suite, "TABLES", {"a": lambda: rows("x", "y"), "b": lambda: rows("absent")})
    monkeypatch.setattr(page, "TABLES", {"a": None, "b": None})
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
    "changes",
    [
        {"measured": (dt.datetime.now(dt.UTC) - dt.timedelta(hours=2)).isoformat()},
        {"effort": QUICK._replace(rounds=1)._asdict()},
        {"peer": "failed"},
    ],
)
def test_what_is_old_or_failed_is_measured_again(calls, tmp_path, changes):
    suite.measure_all(plan(tmp_path, only="x"))
    (row,) = suite.load(tmp_path / "m-a.json").values()
    assert suite.is_fresh(row, plan(tmp_path))
    assert not suite.is_fresh(row | changes, plan(tmp_path))
    assert not suite.is_fresh(None, plan(tmp_path))


def test_a_hang_is_not_waited_for_twice(calls, tmp_path):
    suite.measure_all(plan(tmp_path, only="x"))
    (row,) = suite.load(tmp_path / "m-a.json").values()
    assert suite.is_fresh(row | {"peer": "timed out"}, plan(tmp_path))


def test_a_page_without_pictures_still_has_the_tables(calls, tmp_path, monkeypatch):
    suite.measure_all(plan(tmp_path))
    part = chapters.Chapter("c", "A & B", "text", [], ("a", "b", "none"))
    monkeypatch.setattr(chapters, "make", lambda tables: [part])
    page.write(tmp_path / "m.html", tmp_path, "m")
    text = (tmp_path / "m.html").read_text()
    assert "A &amp; B" in text
    assert "a &lt;note&gt;" in text
    assert "table a: 2 rows" in text
    assert "Our own targets: 2 of 2 are met" in text[text.index("A &amp; B") :]
    assert "<td>job absent</td><td>peer</td><td>not installed: a &lt;note&gt;</td>" in text


def test_a_report_of_nothing_says_how_to_measure(tmp_path):
    with pytest.raises(FileNotFoundError, match="asv_benches"):
        command.main(["report", "--results", str(tmp_path), "--machine", "m"])


def saved_rows() -> dict[str, Any]:
    """A table `paper` as if measured: throughput N * K / (N + 1)."""
    curves = {
        "4": ("rlcpu, K=1", "rlcpu, K=100", "jax scan, K=1", "jax scan, K=100", *printed_labels()),
        "8": ("rlcpu, K=1", "rlcpu, K=1000", "jax scan, K=1", "jax scan, K=1000"),
    }
    rows = []
    for figure, labels in curves.items():
        for n in (1, 256, 2**16):
            times = {label: (k + 1.0) * (n + 1) / n for k, label in enumerate(labels)}
            details = {"size": n, "seconds": times, "missing": {}}
            measurement = Measurement(1.0, 1.0, 1.0, details=details)
            row = report.Row(f"figure-{figure}-{n}", "job", "peer", measurement.__hash__)
            rows.append(report.result(row, measurement))
    machine = {"cpu": "c", "cores": 2, "system": "s", "date": "2026-01-01", "versions": {}}
    return {"paper": {"what": "paper", "machine": machine, "rows": rows}}


def printed_labels() -> tuple[str, str]:
    return printed.TORCH, printed.GYM


def test_the_papers_ratios_come_from_the_curves():
    claims = {text: here for _, text, _, here in chapter_paper.claims(saved_rows())}
    # Labels are made k + 1 times as slow as the first, the k-th of them.
    assert claims["XLA over PyTorch, up to 2^13 envs"] == "1.25x"
    assert claims["plateau of rlcpu over Gym's"] == "3x"
    assert claims["written by hand over XLA, 1000 steps (CUDA in the paper, rlcpu here)"] == "2x"
    empty = {"paper": saved_rows()["paper"] | {"rows": []}}
    assert {here for *_, here in chapter_paper.claims(empty)} == {"not measured"}


def test_every_printed_figure_belongs_to_a_row():
    names = {row.name for make in tables.TABLES.values() for row in make()}
    assert set(printed.ROWS) <= names


def test_the_report_is_one_file_with_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    for what, content in saved_rows().items():
        (tmp_path / f"m-{what}.json").write_text(json.dumps(content))
    command.main(["report", "--results", str(tmp_path), "--machine", "m"])
    text = (tmp_path / "m.html").read_text()
    assert text.count("data:image/svg+xml;base64,") == 2  # Figures 4 and 8
    assert "http" not in text.replace("data:image", "")


def test_the_report_begins_with_how_much_faster_than_whom(tmp_path):
    if not list(report.RESULTS.glob("*-simulate.json")):
        pytest.skip("no results: python -m asv_benches.peers all")
    name = next(report.RESULTS.glob("*-simulate.json")).name.removesuffix("-simulate.json")
    tables = {k: v for k, v in page.load(report.RESULTS, name).items() if k != "paper"}
    text = page.page(tables, name)
    assert text.index("<svg") < text.index("times as fast</th>") < text.index("<nav>")
    assert text.index("<nav>") < text.index("Our own targets")
    for word in ("target", "met"):
        assert word not in text[text.index("<body>") : text.index("<nav>")]
    assert text.count("<table>") == text.count('<div class="scroll"><table>')


def test_panel_compares_the_best_of_both_sides(monkeypatch):
    class Ready:
        name, work = "fake", 1.0

        def setup(self) -> None:
            pass

    class Missing(Ready):
        def setup(self) -> None:
            raise ModuleNotFoundError("no such peer")

    times = np.array([[2.0, 1.0, 4.0, 0.5]])
    monkeypatch.setattr(panel, "interleave", lambda contenders, effort: times)
    labels = ("rlcpu a", "rlcpu b", "peer", "limit: memory")
    contenders: dict[str, Any] = {label: Ready() for label in labels} | {"absent": Missing()}
    measurement = panel.Panel(16, contenders, rates=False)(QUICK)
    assert (measurement.ours, measurement.peer, measurement.ratio) == (1.0, 4.0, 4.0)
    assert measurement.details["missing"] == {"absent": "not installed: no such peer"}
    assert panel.Panel(16, contenders, pair=("rlcpu a", "peer"))(QUICK).ours == 0.5


def test_saved_curves_are_read_by_label():
    lines = saved.panel_times(saved_rows(), "paper", "figure-8-", scale=10)
    assert lines["rlcpu, K=1"] == {1: 20.0, 256: 10 * 257 / 256, 2**16: 10 * (1 + 2**-16)}


def test_without_cuda_the_command_says_what_is_missing(monkeypatch, capsys):
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(command.importlib, "import_module", absent)
    command.main(["cuda"])
    assert "no CUDA table: No module named 'asv_benches.peers.cuda'" in capsys.readouterr().out
