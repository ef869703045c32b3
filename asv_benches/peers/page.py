"""The HTML report: one file with every picture and table, made from the saved JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from asv_benches.peers import chapters, readme, saved
from asv_benches.peers.chapters import Chapter
from asv_benches.peers.printed import ROWS as PRINTED
from asv_benches.peers.report import format_figure, format_ratio, format_target
from asv_benches.peers.saved import Tables
from asv_benches.peers.tables import TABLES

STAMPED = ("rlcpu", "numba", "numpy", "jax", "torch", "flashbax", "gcc")
HEADINGS = ("what", "against", "rlcpu", "peer", "ratio", "quartiles", "source printed")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1c1c; overflow-wrap: break-word; }
h1 { margin-bottom: 0.2rem; } h2 { margin-top: 2.8rem; border-bottom: 1px solid #ccc; }
figure { margin: 1.4rem 0; } .first svg { width: 100%; max-width: 44rem; height: auto; }
.scroll { overflow-x: auto; } figure .scroll img { min-width: 32rem; max-width: 100%; }
figcaption, .small { color: #555; font-size: 0.85rem; }
nav a { display: inline-block; margin: 0.2rem 1rem 0.2rem 0; }
summary { cursor: pointer; color: #0b3d91; }
table { border-collapse: collapse; font-size: 0.82rem; margin: 0.8rem 0; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid #e4e4e4; text-align: left;
  vertical-align: top; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
"""


def write(path: Path, results: Path, name: str) -> None:
    """Writes the report of one machine's tables.

    Raises:
        FileNotFoundError: there is none.
    """
    tables = load(results, name)
    path.write_text(page(tables, name))


def load(results: Path, name: str) -> Tables:
    """Every table that was saved for the machine, by name.

    Raises:
        FileNotFoundError: there is none.
    """
    paths = {what: results / f"{name}-{what}.json" for what in TABLES}
    tables = {what: json.loads(path.read_text()) for what, path in paths.items() if path.exists()}
    if not tables:
        raise FileNotFoundError(
            f"no {name}-*.json in {results}: run `python -m asv_benches.peers all` first"
        )
    return tables


def page(tables: Tables, name: str) -> str:
    """The whole document."""
    parts = chapters.make(tables)
    named = {c.name: c.title for c in parts} | {"how": "How it was measured", "targets": "Targets"}
    links = "".join(f'<a href="#{name}">{html.escape(title)}</a>' for name, title in named.items())
    chosen = first(tables)
    body = "".join(chapter(each, tables) for each in parts)
    last = not_measured(tables) + measured_on(tables) + targets(tables)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>rlcpu beside its peers: {html.escape(name)}</title>\n<style>{STYLE}</style>\n"
        f"</head>\n<body>\n<h1>rlcpu beside its peers</h1>\n{chosen}"
        f"<nav>{links}</nav>\n{body}{last}</body>\n</html>\n"
    )


def first(tables: Tables) -> str:
    """What a reader wants to know first: how much faster, at what, than whom."""
    rows = readme.chosen(tables)
    if not rows:
        return ""
    faster = [
        row["ratio"] > 1
        for each in tables.values()
        for row in saved.closest(each["rows"])
        if row["kind"] == "speed-up" and row["ratio"]
    ]
    cells = (
        (
            *(row["what"], row["against"], format_ratio(row["ratio"], row["kind"])),
            *(format_figure(row[key], row["unit"]) for key in ("ours", "peer")),
        )
        for row in rows
    )
    return (
        "<p>How many times as fast as other libraries rlcpu is, on the same cores in the same run. "
        f"Of all {len(faster)} comparisons below, it is the faster side in {sum(faster)}.</p>\n"
        f'<figure class="first">{readme.draw(rows, dark=False)}</figure>\n'
        + table(("what", "against", "times as fast", "rlcpu", "peer"), cells)
        + paragraph(f"{readme.UNITS}.")
    )


def measured_on(tables: Tables) -> str:
    """Machine, versions, dates, and how it was measured."""
    machines = [table["machine"] for table in tables.values()]
    newest = max(machines, key=lambda machine: machine["date"])
    dates = sorted({machine["date"] for machine in machines})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    versions: dict[str, str] = {}
    for machine in sorted(machines, key=lambda machine: machine["date"]):
        versions |= machine["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    where = f"{newest['cpu']}, {newest['cores']} cores, {newest['system']}, {span}. {listed}."
    how = (
        "Contenders of a row alternate in one process; figures are medians over the rounds, ratios "
        "the medians of the rounds' ratios. Quote ratios: absolute figures move with the load of "
        "the machine. Written by `python -m asv_benches.peers all`."
    )
    return f'<h2 id="how">How it was measured</h2>\n{paragraph(where)}{paragraph(how)}'


def chapter(part: Chapter, tables: Tables) -> str:
    """Heading, text, pictures, tables."""
    stamp = html.escape(measured_in(tables, part))
    pictures = "".join(
        f'<figure><div class="scroll"><img src="{picture.url}" alt="{caption}"></div>'
        f"<figcaption>{caption}<br>{stamp}</figcaption></figure>\n"
        for picture in part.pictures
        for caption in [html.escape(picture.caption)]
    )
    listed = "".join(details(what, tables[what]["rows"]) for what in part.tables if what in tables)
    claims = table(("paper's figure", "ratio", "printed", "here"), part.claims)
    return (
        f'<h2 id="{part.name}">{html.escape(part.title)}</h2>\n{paragraph(part.text)}'
        f"{pictures}{claims}{listed}"
    )


def measured_in(tables: Tables, part: Chapter) -> str:
    """Machine, date and versions of a chapter's first table that was measured."""
    what = next((what for what in (*part.tables, *tables) if what in tables), "")
    machine = tables[what]["machine"]
    versions = machine["versions"]
    listed = (f"{name} {versions[name]}" for name in STAMPED if name in versions)
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}; {', '.join(listed)}."


def not_measured(tables: Tables) -> str:
    """Peers and tables that are missing, and how to get them."""
    absent = [(f"table {what}", "", "not measured yet") for what in TABLES if what not in tables]
    listed = [*absent, *saved.gaps(tables)]
    if not listed:
        return ""
    hint = (
        "`make peers` installs every peer that installs here; C++ needs g++; the rest of a table "
        "goes on without them. `python -m asv_benches.peers all` measures what is left."
    )
    rows = table(("job", "contender", "what is missing"), listed)
    return f'<h2 id="missing">Not measured</h2>\n{paragraph(hint)}{rows}'


def targets(tables: Tables) -> str:
    """What we had set ourselves, for those who work on the library."""
    rows = [row for each in tables.values() for row in saved.closest(each["rows"])]
    judged = [row for row in rows if row["met"] is not None]
    if not judged:
        return ""
    cells = (
        (
            *(row["what"], row["against"], format_target(row["target"], row["kind"])),
            *(format_ratio(row["ratio"], row["kind"]), "yes" if row["met"] else "no"),
        )
        for row in judged
    )
    listed = table(("what", "against", "target", "ratio", "met"), cells)
    summary = f"Our own targets: {sum(row['met'] for row in judged)} of {len(judged)} are met"
    return (
        f'<h2 id="targets">Targets</h2>\n<details><summary>{summary}</summary>\n{listed}</details>'
    )


def paragraph(text: str) -> str:
    """Small print."""
    return f'<p class="small">{html.escape(text)}</p>\n' if text else ""


def details(what: str, rows: list[dict[str, Any]]) -> str:
    """A table that opens on a click."""
    body = "".join(line(row) for row in rows)
    heads = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    return (
        f"<details><summary>table {what}: {len(rows)} rows</summary>\n"
        f'<div class="scroll"><table><tr>{heads}</tr>\n{body}</table></div></details>\n'
    )


def line(row: dict[str, Any]) -> str:
    """One row of a table, its note below the peer's name."""
    low, high = (format_ratio(each, row["kind"]) for each in row["spread"] or (None, None))
    note = f'<br><span class="small">{html.escape(row["note"])}</span>' if row["note"] else ""
    numbers = (
        format_figure(row["ours"], row["unit"]),
        format_figure(row["peer"], row["unit"]),
        format_ratio(row["ratio"], row["kind"]),
        f"{low} to {high}" if row["spread"] else "",
    )
    cells = "".join(f'<td class="number">{html.escape(number)}</td>' for number in numbers)
    return (
        f"<tr><td>{html.escape(row['what'])}</td><td>{html.escape(row['against'])}{note}</td>"
        f"{cells}<td>{html.escape(PRINTED.get(row['name'], ''))}</td></tr>\n"
    )


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A plain table, "" without rows."""
    body = [
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    ]
    if not body:
        return ""
    heads = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    return f'<div class="scroll"><table><tr>{heads}</tr>\n{"".join(body)}</table></div>\n'
