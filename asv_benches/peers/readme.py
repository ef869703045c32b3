"""The figures that a reader decides by: rows of the tables, as Markdown, as pictures, as a page.

README.md and the pictures in docs are written from the JSON files, never by hand.
"""

from __future__ import annotations

import html
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from asv_benches.peers import pictures
from asv_benches.peers.harness import FULL
from asv_benches.peers.rows import RESULTS, cells, format_figure, rank

ROOT = Path(__file__).parents[2]
README, PICTURES = ROOT / "README.md", ROOT / "docs"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
# Tables of figures that go together.
GROUPS = {
    "Simulate, collect, train": ("simulate", "collect", "train", "agents", "networks"),
    "Games, grids and MuJoCo": ("games", "arrays", "mujoco"),
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
#: Rows of tables in a reader's words: names of rows, what is done and who else does it. Of several
#: peers the best one is taken; without a peer the row names it.
FIGURES: list[dict[str, str]] = CONTENT["figure"]
#: Pictures: a title, and jobs with our rows and those of others.
CHARTS: list[dict[str, Any]] = CONTENT["chart"]


def rewrite(readme: Path = README, results: Path = RESULTS, folder: Path = PICTURES) -> None:
    """Replaces everything between the two markers by the newest figures, and draws the pictures.

    Raises:
        ValueError: the markers are missing, or there is no result to write.
    """
    text = readme.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{readme} has no {BEGIN} ... {END}")
    tables = newest(results)
    readme.write_text(f"{before}{BEGIN}\n{block(tables)}{END}{after}", "utf-8")
    for each in CHARTS:
        if svg := draw(each, tables):
            (folder / each["file"]).write_text(svg, "utf-8")
    if len(where := machines(chosen(tables))) > 1:
        print(f"README's figures are of several machines: {'; '.join(where)}", file=sys.stderr)


def newest(results: Path = RESULTS, names: Sequence[str] = TABLES) -> dict[str, Any]:
    """The newest measurement of each row, table by table; quick ones mean nothing and are left out.

    Each row has its `machine`, on a GPU the card; versions of libraries are those of the newest
    file that names them.

    Args:
        results: folder of the JSON files.
        names: tables.

    Raises:
        ValueError: there is none.
    """
    tables = [(json.loads(p.read_text()), p.stem) for p in sorted(results.glob("*.json"))]
    found: dict[str, Any] = {}
    for table, file in sorted(tables, key=lambda pair: str(pair[0]["machine"]["date"])):
        machine = table["machine"]
        rows = [row for row in table["rows"] if row["effort"]["rounds"] >= FULL.rounds]
        if not rows or table["what"] not in names:
            continue
        merged = found.setdefault(table["what"], {"what": table["what"], "rows": {}, "machine": {}})
        versions = {**merged["machine"].get("versions", {}), **machine["versions"]}
        merged["machine"] = {**machine, "versions": versions}
        for row in rows:
            last = merged["rows"].get(row["name"])
            if last is None or last["measured"] <= row["measured"]:
                place = f"{machine['cpu']}, {machine['cores']} cores"
                if table["what"] == "cuda":
                    place = file.removesuffix("-cuda")
                merged["rows"][row["name"]] = {**row, "machine": place}
    if not found:
        raise ValueError(f"no result in {results}: run `python -m asv_benches.peers all`")
    return {what: {**table, "rows": [*table["rows"].values()]} for what, table in found.items()}


def is_named(row: str, name: str) -> bool:
    """Whether a row has the name, or begins with one that ends in "-"."""
    return row.startswith(name) if name.endswith("-") else row == name


def shows(table: str, name: str) -> bool:
    """Whether a row is needed for README.md and its pictures."""
    jobs = [job for each in CHARTS for job in each["job"] if job["table"] == table]
    drawn = {row for job in jobs for row in (*job["ours"], *job["peers"])}
    listed = [each["row"] for each in FIGURES if each["table"] == table]
    return name in drawn or any(is_named(name, row) for row in listed)


def chosen(tables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of `FIGURES` that were measured, in a reader's words."""
    found = []
    for figure in FIGURES:
        rows = tables[figure["table"]]["rows"] if figure["table"] in tables else []
        named = [row for row in rows if is_named(row["name"], figure["row"]) and row["ratio"]]
        if named:
            row = min(named, key=rank)
            against = figure.get("peer", row["against"])
            found.append({**row, "what": figure["job"], "against": against})
    return found


def draw(chart: Mapping[str, Any], tables: Mapping[str, Any], dark: bool = True) -> str:
    """A picture of `CHARTS` as SVG; what was not measured is left out."""
    rows = {row["name"]: row for table in tables.values() for row in table["rows"]}
    jobs, used, places = {}, [], {}
    for job in chart["job"]:
        bars = {}
        for side, names in (("ours", job["ours"]), ("peer", job["peers"])):
            for name, label in names.items():
                if name in rows and isinstance(rows[name][side], float):
                    value, unit = rows[name][side], rows[name]["unit"]
                    bars[label] = (value, format_figure(value, unit))
                    used.append(rows[name])
                    place = short_place(rows[name])
        if bars:
            places.setdefault(place, []).append(job["job"])
            jobs[job["job"]] = bars
    if not jobs:
        return ""
    usual = max(places, key=lambda place: len(places[place]))
    jobs = {
        job if job in places[usual] else f"{job} ({where_of(places, job)})": bars
        for job, bars in jobs.items()
    }
    measured = max((row["measured"][:10] for row in used), default="")
    kind = "shorter is better" if chart.get("time") else "right is faster, logarithmic"
    below = f"{kind}; {usual}; {measured}"
    return pictures.chart(chart["title"], below, jobs, chart.get("time", False), dark)


def where_of(places: Mapping[str, list[str]], job: str) -> str:
    """The machine of a job, without the number of its cores."""
    return next(place for place, jobs in places.items() if job in jobs).partition(",")[0]


def short_place(row: Mapping[str, Any]) -> str:
    """A machine in few words."""
    return str(row.get("machine", "")).replace("(R)", "").replace(" Processor", "")


def machines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Where rows were measured."""
    return list(dict.fromkeys(str(row.get("machine", "")) for row in rows))


def block(tables: Mapping[str, Any]) -> str:
    """The Markdown between the markers: the chosen rows, and what they were measured on."""
    rows = chosen(tables)
    used = {
        what: {**table, "rows": [row for row in table["rows"] if row["name"] in names]}
        for what, table in tables.items()
        if (names := {row["name"] for row in rows} & {row["name"] for row in table["rows"]})
    }
    return "\n".join([*lines(rows), "", measured_on(used, NAMED), ""])


def lines(rows: list[dict[str, Any]]) -> list[str]:
    return [*HEAD, *(f"| {' | '.join(told(row))} |" for row in rows)]


def told(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a row, with a word where ours is slower."""
    what, against, ratio, ours, peer = cells(row)
    slower = row["kind"] == "speed-up" and row["ratio"] is not None and row["ratio"] < 1.0
    return what, against, f"{ratio}, slower" if slower else ratio, ours, peer


# ---------------------------------------------------------------- the page of all rows

#: Kinds of rows, and what their ratio is.
KINDS = {
    "speed-up": ("Speed", "How many times as fast rlcpu is; below 1 it is slower."),
    "share": ("Shares of a limit", "How much of what the machine can do at most rlcpu reaches."),
    "time": ("Costs", "The time of the first over that of the second: 1 costs nothing."),
}
FIELD = """<input class="figures" type="search" placeholder="filter, such as: jax gae"
aria-label="filter the rows" style="border: 1px solid; border-radius: 4px; padding: 0.4em 0.6em;
width: 100%; color: inherit; background: none; font: inherit">"""
FILTER = """<script>
document.querySelector("input.figures").addEventListener("input", function (event) {
  var words = event.target.value.toLowerCase().split(" ").filter(Boolean);
  document.querySelectorAll("div.figures tbody tr").forEach(function (row) {
    var text = row.textContent.toLowerCase();
    row.hidden = !words.every(function (word) { return text.includes(word); });
  });
});
</script>"""


def appendix(tables: Mapping[str, Any]) -> str:
    """All rows as HTML, a table for each kind of row and machine, and a field that filters them."""
    parts = [FIELD]
    for kind, (title, meaning) in KINDS.items():
        rows = [
            row
            for name in TABLES
            for row in tables.get(name, {"rows": []})["rows"]
            if row["kind"] == kind and row["ratio"] is not None
        ]
        parts += [f"## {title}", meaning]
        for place in machines(rows):
            body = "\n".join(html_row(row) for row in rows if row.get("machine", "") == place)
            head = "".join(f"<th>{name}</th>" for name in COLUMNS)
            table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
            parts += [f"### {title}: {place}", f'<div class="figures">{table}</div>']
    return "\n\n".join([*parts, measured_on(tables), FILTER, ""])


COLUMNS = ("What", "Against", "Ratio", "rlcpu", "Other", "When")


def html_row(row: Mapping[str, Any]) -> str:
    """A row of the page of all rows."""
    shown = (*told(row), row["measured"][:10])
    return f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in shown)}</tr>"


def measured_on(tables: Mapping[str, Any], names: tuple[str, ...] = ()) -> str:
    """The sentence below the table, with the versions of all or of some."""
    used = sorted((each["machine"] for each in tables.values()), key=lambda m: str(m["date"]))
    versions = {k: v for machine in used for k, v in machine["versions"].items()}
    listed = ", ".join(f"{name} {versions[name]}" for name in names or versions if name in versions)
    rows = [row for each in tables.values() for row in each["rows"]]
    places = dict.fromkeys(f"{machine['cpu']}, {machine['cores']} cores" for machine in used)
    if all("machine" in row for row in rows):
        places = dict.fromkeys(row["machine"] for row in rows)
    dates = sorted(row["measured"][:10] for row in rows)
    span = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    return f"{UNITS}; {'; '.join(places)}, {span}; {listed}."
