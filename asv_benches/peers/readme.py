"""The figures that a reader decides by: ten rows of the tables, as Markdown and as a picture.

README.md and docs/speed.svg are written from the JSON files, never by hand.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asv_benches.peers import pictures
from asv_benches.peers.harness import FULL
from asv_benches.peers.rows import RESULTS, cells, closest

ROOT = Path(__file__).parents[2]
README, PICTURE = ROOT / "README.md", ROOT / "docs" / "speed.svg"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
# Tables of figures that go together.
GROUPS = {
    "Simulate, collect, train": ("simulate", "collect", "train", "agents"),
    "Games and MuJoCo": ("games", "mujoco"),
    "Store and sample": ("replay",),
    "Scan": ("scan",),
    "Past one process": ("distributed",),
}
TABLES = tuple(what for group in GROUPS.values() for what in group)
NAMED = (  # in the README; the others' versions stand below the tables of all rows
    *("python", "numba", "gymnasium", "mujoco", "jax", "gymnax", "envpool"),
    *("stable_baselines3", "torch", "tianshou", "gcc"),
)
HEAD = ["| What | Against | Ratio | rlcpu | Peer |", "| --- | --- | ---: | ---: | ---: |"]
UNITS = "Medians, interleaved: rates in environment steps per second, times per call"


#: What the report and the README say.
CONTENT: dict[str, Any] = tomllib.loads((Path(__file__).parent / "report.toml").read_text("utf-8"))
#: Rows of tables in a reader's words: how a row's name begins, what is done and who else does it.
#: Of ranked peers the best one is taken; without a peer the row names it.
FIGURES: list[dict[str, str]] = CONTENT["figure"]


def rewrite(readme: Path = README, results: Path = RESULTS, picture: Path = PICTURE) -> None:
    """Replaces everything between the two markers by the newest figures, and draws them.

    Raises:
        ValueError: the markers are missing, or there is no result to write.
    """
    text = readme.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{readme} has no {BEGIN} ... {END}")
    tables = newest(results)
    readme.write_text(f"{before}{BEGIN}\n{block(tables)}{END}{after}")
    picture.write_text(pictures.speed(chosen(tables)))


def newest(results: Path = RESULTS) -> dict[str, Any]:
    """The newest measurement of each table; quick rows mean nothing and are left out.

    Raises:
        ValueError: there is none.
    """
    tables = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    found = {}
    for table in sorted(tables, key=lambda table: str(table["machine"]["date"])):
        rows = [row for row in table["rows"] if row["effort"]["rounds"] >= FULL.rounds]
        if rows and table["what"] in TABLES:
            found[table["what"]] = {**table, "rows": rows}
    if not found:
        raise ValueError(f"no result in {results}: run `python -m asv_benches.peers all`")
    return found


def shows(table: str, name: str) -> bool:
    """Whether a row is needed for README.md."""
    return any(table == each["table"] and name.startswith(each["row"]) for each in FIGURES)


def chosen(tables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of `FIGURES` that were measured, in a reader's words."""
    found = []
    for figure in FIGURES:
        rows = tables[figure["table"]]["rows"] if figure["table"] in tables else []
        named = [row for row in rows if row["name"].startswith(figure["row"]) and row["ratio"]]
        if named:
            row = closest(named)[0]
            against = figure.get("peer", row["against"])
            found.append({**row, "what": figure["job"], "against": against})
    return found


def block(tables: Mapping[str, Any]) -> str:
    """The Markdown between the markers: the chosen rows, and what they were measured on."""
    tables = {
        what: {**table, "rows": [row for row in table["rows"] if shows(what, row["name"])]}
        for what, table in tables.items()
    }
    used = {what: table for what, table in tables.items() if table["rows"]}
    return "\n".join([*lines(chosen(used)), "", measured_on(used, NAMED), ""])


def every(tables: Mapping[str, Any]) -> str:
    """The Markdown of the documentation: all rows that have a target, of ranked peers the best."""
    parts = []
    for title, names in GROUPS.items():
        rows = [row for name in names if name in tables for row in closest(tables[name]["rows"])]
        judged = [row for row in rows if row["target"] is not None]
        parts += [f"### {title}", "", *lines(judged), ""] if judged else []
    return "\n".join([*parts, measured_on(tables), ""])


def lines(rows: list[dict[str, Any]]) -> list[str]:
    return [*HEAD, *(f"| {' | '.join(cells(row))} |" for row in rows)]


def measured_on(tables: Mapping[str, Any], names: tuple[str, ...] = ()) -> str:
    """The sentence below the table, with the versions of all or of some."""
    machines = sorted((each["machine"] for each in tables.values()), key=lambda m: str(m["date"]))
    versions = {k: v for machine in machines for k, v in machine["versions"].items()}
    listed = ", ".join(f"{name} {versions[name]}" for name in names or versions if name in versions)
    places = dict.fromkeys(f"{machine['cpu']}, {machine['cores']} cores" for machine in machines)
    dates = sorted(row["measured"][:10] for each in tables.values() for row in each["rows"])
    span = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    return f"{UNITS}; {'; '.join(places)}, {span}; {listed}."
