"""The HTML report: one file with every picture and table, made from the saved JSON.

`report.toml` has what it says, `report.html.jinja` how it looks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from asv_benches import study
from asv_benches.peers import paper, pictures, readme
from asv_benches.peers.rows import cells, closest, format_figure, format_ratio
from asv_benches.peers.suite import TABLES

Tables = Mapping[str, Mapping[str, Any]]  # name of a table: its JSON
Curves = dict[str, dict[float, float]]

FOLDER = Path(__file__).parent
LIMIT = "limit: 4 reads, 1 write"
#: What stands in the place of a figure; other words are figures, such as "-611 +- 286".
NOT_MEASURED = ("not installed", "failed", "crashed", "timed out")


def write(path: Path, results: Path, name: str) -> None:
    """Writes the report of one machine's tables.

    Raises:
        FileNotFoundError: there is none.
    """
    paths = {what: results / f"{name}-{what}.json" for what in TABLES}
    tables = {what: json.loads(path.read_text()) for what, path in paths.items() if path.exists()}
    if not tables:
        raise FileNotFoundError(
            f"no {name}-*.json in {results}: run `python -m asv_benches.peers all` first"
        )
    path.write_text(page(tables, name, study.chapter()))


def page(tables: Tables, name: str, agents: Mapping[str, Any], home: str = "") -> str:
    """The whole document; `agents` is `study.chapter`'s, `home` where its title leads."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": format_figure, "ratio": format_ratio}
    rows = [row for each in tables.values() for row in closest(each["rows"])]
    chosen = readme.chosen(tables)
    return environment.get_template("report.html.jinja").render(
        name=name,
        tables=tables,
        chosen=[cells(row) for row in chosen],
        charts=[pictures.url(svg) for each in readme.CHARTS if (svg := readme.draw(each, tables))],
        faster=[r["ratio"] > 1 for r in rows if r["kind"] == "speed-up" and r["ratio"]],
        units=readme.UNITS,
        chapters=[chapter(each, tables) for each in readme.CONTENT["chapter"]],
        printed=readme.CONTENT["printed"],
        gaps=gaps(tables),
        where=readme.measured_on(tables),
        agents=agents,
        home=home,
    )


def chapter(content: Mapping[str, Any], tables: Tables) -> dict[str, Any]:
    """A chapter with its pictures; those whose rows were not measured are left out."""
    drawn = [(growth(each, tables), each["caption"]) for each in content.get("curves", ())]
    drawn += [(dots(each, tables), each["caption"]) for each in content.get("dots", ())]
    claimed = claims(tables) if content["name"] == "paper" else []
    return {**content, "pictures": [each for each in drawn if each[0]], "claims": claimed}


def gaps(tables: Tables) -> list[tuple[str, str, str]]:
    """What could not be measured: the job, who was to do it, and what is missing."""
    found = [(f"table {what}", "", "not measured yet") for what in TABLES if what not in tables]
    for table in tables.values():
        for each in table["rows"]:
            if each["peer"] in NOT_MEASURED:
                why = f"{each['peer']}: {each['note']}" if each["note"] else each["peer"]
                found.append((each["what"], each["against"], why))
            missing = each["details"].get("missing", {})
            found += [(each["what"], label, why) for label, why in missing.items()]
    return found


# ---------------------------------------------------------------- reading saved tables


def rows_of(tables: Tables, what: str, prefix: str | list[str]) -> list[dict[str, Any]]:
    """The rows of a table whose names begin so; none where it was not measured."""
    prefixes = (prefix,) if isinstance(prefix, str) else tuple(prefix)
    listed = tables.get(what, {}).get("rows", [])
    return [each for each in listed if each["name"].startswith(prefixes)]


def lines_of(tables: Tables, what: str, prefix: str) -> Curves:
    """Label, size, seconds per unit of work: of panels, and of duels "prefix-size-..."."""
    lines: Curves = {}
    for row in rows_of(tables, what, prefix):
        size = row["name"].removeprefix(prefix).split("-")[0]
        if "size" in row["details"]:
            for label, seconds in row["details"]["seconds"].items():
                lines.setdefault(label, {})[row["details"]["size"]] = seconds
        elif size.isdecimal():
            for label, seconds in (("rlcpu", row["ours"]), (row["against"], row["peer"])):
                if isinstance(seconds, float):
                    lines.setdefault(label, {})[int(size)] = seconds
    return lines


def rates(tables: Tables, figure: str) -> Curves:
    """Label, size, environment steps per second, of a figure of the paper."""
    times = lines_of(tables, "paper", f"figure-{figure}-")
    return {label: {n: 1 / s for n, s in points.items()} for label, points in times.items()}


def claims(tables: Tables) -> list[tuple[str, str, str, str]]:
    return paper.claims(partial(rates, tables)) if "paper" in tables else []


def peer_figure(tables: Tables, what: str, prefix: str) -> float | None:
    """The peer's figure of the first such row, None where there is none."""
    found = [each["peer"] for each in rows_of(tables, what, prefix)]
    return found[0] if found and isinstance(found[0], float) else None


# ---------------------------------------------------------------- the pictures


def growth(picture: Mapping[str, Any], tables: Tables) -> str:
    """Curves over a size; "" where nothing was measured."""
    lines, limits = {}, dashed(picture, tables)
    for label, points in lines_of(tables, picture["table"], picture["rows"]).items():
        unit = picture.get("unit_s")
        curve = {n: s / unit if unit else 1 / s for n, s in points.items()}
        (limits if label.startswith("limit") else lines)[label] = curve
    axes = picture["x"], picture["y"], picture.get("base", 2)
    return pictures.curves(lines, axes, limits) if lines else ""


def dashed(picture: Mapping[str, Any], tables: Tables) -> dict[str, Any]:
    """The dashed lines of a picture: numbers or curves, by their labels."""
    lines = {
        label: {float(n): y for n, y in points.items()}
        for label, points in picture.get("printed", {}).items()
    }
    operations, size = picture.get("operations"), picture.get("bytes")
    peak = peer_figure(tables, "collect", "relu-peak")
    # Five arrays of 10^7 float64.
    memory = peer_figure(tables, "scan", "solve-100000x100-float64-rows-plain")
    copy = peer_figure(tables, "replay", "trajectory-copy")
    if operations and peak:
        lines[f"limit: FMA peak at {operations:,} operations a step"] = peak / operations
    if size and memory:
        lines[f"limit: memory at {size} bytes a step (K=1)"] = 5 * 8 * 10**7 / memory / size
    if "copied" in picture and copy:
        lines["limit: copy of the data"] = {n: 1e4 * copy * n for n in picture["copied"]}
    return lines


def dots(picture: Mapping[str, Any], tables: Tables) -> str:
    """How many times as long as ours each contender takes; "" where nothing was measured."""
    groups: dict[str, dict[str, float]] = {}
    for row in rows_of(tables, picture["table"], picture["rows"]):
        if row["ratio"] is not None:
            against = LIMIT if row["against"].startswith("4 reads") else row["against"]
            groups.setdefault(row["what"].removeprefix("solve "), {})[against] = row["ratio"]
    return pictures.ratios(groups, "times as long as rlcpu (log scale)", LIMIT) if groups else ""
