"""The figures in README.md: written from the JSON files, never by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from asv_benches.peers.report import RESULTS, closest, format_figure, format_ratio
from asv_benches.peers.timing import REPORT

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
# Tables of figures that go together.
GROUPS = (("simulate", "collect", "train"), ("replay",), ("scan",))
TABLES = tuple(what for group in GROUPS for what in group)
DISTRIBUTIONS = (
    *("python", "numba", "gymnasium", "jax", "torch", "envpool", "stable_baselines3"),
    *("flashbax", "torchrl", "tianshou", "cpprb", "scipy", "statsmodels", "rlax", "gcc"),
)


def rewrite(readme: Path = README, results: Path = RESULTS) -> None:
    """Replaces everything between the two markers by a table of the newest results.

    Raises:
        ValueError: the markers are missing, or there is no result to write.
    """
    text = readme.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{readme} has no {BEGIN} ... {END}")
    readme.write_text(f"{before}{BEGIN}\n{block(newest(results))}{END}{after}")


def newest(results: Path = RESULTS) -> list[dict[str, Any]]:
    """The newest full measurement of each table; quick ones mean nothing and are left out.

    Raises:
        ValueError: there is none.
    """
    files = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    full = [content for content in files if content["effort"]["rounds"] >= REPORT.rounds]
    chosen = []
    for what in TABLES:
        of_table = [content for content in full if content["what"] == what]
        if of_table:
            chosen.append(max(of_table, key=lambda content: content["machine"]["date"]))
    if not chosen:
        raise ValueError(f"no result in {results}: run `python -m asv_benches.peers all`")
    return chosen


def block(tables: list[dict[str, Any]]) -> str:
    """The Markdown between the markers: tables, and below them what they were measured on.

    They hold the rows that have a target, of ranked peers the best one; the JSON files hold all.
    """
    grouped = ([table for table in tables if table["what"] in group] for group in GROUPS)
    lines = [line for group in grouped if group for line in [*markdown(group), ""]]
    machines = dict.fromkeys(measured_on(table["machine"]) for table in tables)
    return "\n".join([*lines, *machines, ""])


def markdown(tables: list[dict[str, Any]]) -> list[str]:
    """The lines of one Markdown table."""
    rows = [row for table in tables for row in closest(table["rows"])]
    lines = ["| What | Against | rlcpu | Peer | Ratio |", "| --- | --- | ---: | ---: | ---: |"]
    return [*lines, *(line(row) for row in rows if row["target"] is not None)]


def line(row: dict[str, Any]) -> str:
    """One row of the Markdown table."""
    figures = (format_figure(row[key], row["unit"]) for key in ("ours", "peer"))
    ratio = format_ratio(row["ratio"], row["kind"])
    return f"| {row['what']} | {row['against']} | {' | '.join(figures)} | {ratio} |"


def measured_on(machine: dict[str, Any]) -> str:
    """The sentence below the table."""
    versions = machine["versions"]
    listed = ", ".join(f"{name} {versions[name]}" for name in DISTRIBUTIONS if name in versions)
    return (
        "Medians, interleaved: rates in environment steps per second, times per call; "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}; {listed}."
    )
