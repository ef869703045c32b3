"""The HTML report: one file with every picture and table, made from the saved JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from asv_benches import study
from asv_benches.peers import paper, pictures, readme
from asv_benches.peers.collect import OPERATIONS
from asv_benches.peers.rows import cells, closest, format_figure, format_ratio, format_target
from asv_benches.peers.suite import TABLES

Tables = Mapping[str, Mapping[str, Any]]  # name of a table: its JSON
Curves = dict[str, dict[float, float]]
Limits = Mapping[str, pictures.Curve | float]

# Floating-point operations of one CartPole step with sine and cosine as polynomials; random
# numbers, which are integers, and resets not counted.
SIMULATION_OPERATIONS = 40
STEP_BYTES = 46  # read and written by one step of one environment that comes from memory
# What the sources printed, for the rows that run their jobs again: flashbax's issue on replay
# buffers on a CPU; the post "Code Optimization: 8h to gain 26h", whose three machines are in its
# order Home, Deeplar, Larcc; JAX's issue 2491.
PRINTED = {
    "trajectory-add-1": "72 us on a CPU",
    "trajectory-add-2": "204 ms on a CPU",
    "trajectory-add-100": "209 ms on a CPU, 2.5 ms on a GPU",
    "flashbax-copied": "444 ms on a CPU, 2.5 ms on a GPU",
    "flashbax-steps": "77 us on a CPU",
    "post-1000000-numpy": "Table 3: 24.3, 41.2, 20.0 ms",
    "post-1000000-torch": "Table 3: 8.4, 15.5, 7.7 ms",
    "solve-100000x100-float64-rows-numba": "2.5 times as fast as jax lax.scan on a CPU",
    "solve-100000x100-float64-rows-jax-lax-scan": "about 0.3 s on a CPU",
    "logcumsumexp-scan": "8 to 9 ms on a CPU, 1.5 to 2 s on a GPU",
}


def write(path: Path, results: Path, name: str) -> None:
    """Writes the report of one machine's tables.

    Raises:
        FileNotFoundError: there is none.
    """
    path.write_text(page(load(results, name), name, study.chapter(results, name)))


def load(results: Path, name: str) -> Tables:
    """Every table that was saved for the machine, by name; raises as `write` does."""
    paths = {what: results / f"{name}-{what}.json" for what in TABLES}
    tables = {what: json.loads(path.read_text()) for what, path in paths.items() if path.exists()}
    if not tables:
        raise FileNotFoundError(
            f"no {name}-*.json in {results}: run `python -m asv_benches.peers all` first"
        )
    return tables


def page(tables: Tables, name: str, agents: Mapping[str, Any]) -> str:
    """The whole document, by the template beside this file; `agents` is `study.chapter`'s."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": format_figure, "ratio": format_ratio}
    rows = [row for each in tables.values() for row in closest(each["rows"])]
    chosen = readme.chosen(tables)
    judged = (row for row in rows if row["met"] is not None)
    targets = [
        (*cells(r)[:3], format_target(r["target"], r["kind"]), "yes" if r["met"] else "no")
        for r in judged
    ]
    return environment.get_template("report.html.jinja").render(
        name=name,
        tables=tables,
        chosen=[cells(row) for row in chosen],
        speed=pictures.url(pictures.speed(chosen, dark=False)) if chosen else "",
        faster=[r["ratio"] > 1 for r in rows if r["kind"] == "speed-up" and r["ratio"]],
        units=readme.UNITS,
        chapters=chapters(tables),
        printed=PRINTED,
        gaps=gaps(tables),
        where=readme.measured_on(tables),
        targets=targets,
        agents=agents,
        study=study.NOTE,
    )


def gaps(tables: Tables) -> list[tuple[str, str, str]]:
    """What could not be measured: the job, who was to do it, and what is missing."""
    found = [(f"table {what}", "", "not measured yet") for what in TABLES if what not in tables]
    for table in tables.values():
        for each in table["rows"]:
            if isinstance(each["peer"], str) and each["peer"] != "-":
                why = f"{each['peer']}: {each['note']}" if each["note"] else each["peer"]
                found.append((each["what"], each["against"], why))
            missing = each["details"].get("missing", {})
            found += [(each["what"], label, why) for label, why in missing.items()]
    return found


# ---------------------------------------------------------------- reading saved tables


def rows_of(tables: Tables, what: str, prefix: str | tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of a table whose names begin so; none where it was not measured."""
    listed = tables.get(what, {}).get("rows", [])
    return [each for each in listed if each["name"].startswith(prefix)]


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


def peak(operations: int, tables: Tables) -> Limits:
    """The FMA peak as a line, where it was measured."""
    figure = peer_figure(tables, "collect", "relu-peak")
    label = f"limit: FMA peak at {operations:,} operations a step"
    return {label: figure / operations} if figure else {}


def peak_and_memory(operations: int, tables: Tables) -> Limits:
    """And the memory's bandwidth, measured with five arrays of 10^7 float64."""
    seconds = peer_figure(tables, "scan", "solve-100000x100-float64-rows-plain")
    label = f"limit: memory at {STEP_BYTES} bytes a step (K=1)"
    bandwidth = {label: 5 * 8 * 10**7 / seconds / STEP_BYTES} if seconds else {}
    return {**peak(operations, tables), **bandwidth}


def copies(tables: Tables) -> Limits:
    """What flashbax's issue printed, and a copy of as much data in proportion."""
    lines: dict[str, pictures.Curve | float] = {}
    lines["printed in the issue, donated"] = {1: 72.0, 2: 203_946.0, 100: 208_669.0}
    copy = peer_figure(tables, "replay", "trajectory-copy")
    if copy:
        lines["limit: copy of the data"] = {n: 1e4 * copy * n for n in (1, 2, 100)}
    return lines


# ---------------------------------------------------------------- the pictures


class Growth(NamedTuple):
    """Curves over a size: rows of a table whose names begin with the prefix.

    Attributes:
        table, prefix: which rows.
        axes: their labels.
        scale: of the seconds per unit of work; 0 for units of work per second.
        caption: what the picture shows.
        limits: dashed lines besides.
    """

    table: str
    prefix: str
    axes: pictures.Axes
    scale: float
    caption: str
    limits: Callable[[Tables], Limits] = lambda tables: {}

    def draw(self, tables: Tables) -> str:
        lines, limits = {}, dict(self.limits(tables))
        for label, points in lines_of(tables, self.table, self.prefix).items():
            curve = {n: s * self.scale if self.scale else 1 / s for n, s in points.items()}
            (limits if label.startswith("limit") else lines)[label] = curve
        return pictures.curves(lines, self.axes, limits) if lines else ""


class Dots(NamedTuple):
    """How many times as long as ours each contender of the table `scan` takes."""

    prefixes: tuple[str, ...]
    caption: str

    def draw(self, tables: Tables) -> str:
        groups: dict[str, dict[str, float]] = {}
        limit = "limit: 4 reads, 1 write"
        for row in rows_of(tables, "scan", self.prefixes):
            if row["ratio"] is not None:
                against = limit if row["against"].startswith("4 reads") else row["against"]
                groups.setdefault(row["what"].removeprefix("solve "), {})[against] = row["ratio"]
        label = "times as long as rlcpu (log scale)"
        return pictures.ratios(groups, label, limit) if groups else ""


BY_ENVS = pictures.Axes("parallel environments N", "environment steps/s")
PICTURES: dict[str, tuple[Growth | Dots, ...]] = {
    "paper": (
        Growth(
            "paper",
            "figure-2-",
            BY_ENVS,
            0,
            "Figure 2, throughput of the environments: uniform actions, 100 steps a call, float32. "
            "The paper's CartPole grew up to 2^19 environments on its GPU, Brax's up to 2^12.",
            partial(peak, SIMULATION_OPERATIONS),
        ),
        Growth(
            "paper",
            "figure-4-",
            BY_ENVS,
            0,
            "Figure 4, data collection: CartPole and an MLP 4-64-64, everything recorded, K steps "
            "a call. torch takes every step from Python, so that its K does not matter.",
            partial(peak, OPERATIONS),
        ),
        Growth(
            "paper",
            "figure-8-",
            BY_ENVS,
            0,
            "Figure 8, simulation alone, K steps fused into a call; K=1 is `env.step` with actions "
            "from outside. Up to 2^16 environments the caches hold everything: only above is "
            "memory the limit.",
            partial(peak_and_memory, SIMULATION_OPERATIONS),
        ),
    ),
    "replay": (
        Growth(
            "replay",
            "post-",
            pictures.Axes("items in the buffer", "ms to add 1 and draw 256", 10),
            1e3,
            "The post's Figure 1, time to sample as the buffer grows: its versions grow with it, "
            "up to 20.0 to 41.2 ms (NumPy) and 7.7 to 15.5 ms (torch) at a million on the post's "
            "machines; the tree grows with its logarithm.",
        ),
        Growth(
            "replay",
            "trajectory-add-",
            pictures.Axes("time steps of 16 environments a call", "us a call", 10),
            1e6,
            "Adding to a prioritised buffer of 2 million time steps. In the issue's version of JAX "
            "two time steps cost 2,800 times one; today's has no such copies. The limit is a copy "
            "of 640 KB to a random place, for fewer time steps in proportion.",
            copies,
        ),
        Growth(
            "replay",
            "tree-sample-",
            pictures.Axes("leaves drawn by one call", "us a call"),
            1e6,
            "Drawing from a sum tree of 2^20 leaves, in proportion to their priorities.",
        ),
    ),
    "scan": (
        Growth(
            "scan",
            "gist-",
            pictures.Axes("unknowns, in systems of 100, float64", "ms a call", 10),
            1e3,
            "Tridiagonal systems of 100 unknowns; the report's size is 10^7. The limit is the "
            "memory's: four arrays read and one written by all cores in the same run.",
        ),
        Dots(
            ("solve-",),
            "Shapes of tridiagonal systems, ten million unknowns each. A contender that is missing "
            "failed, hung or needs too long; the table says which.",
        ),
        Dots(
            ("gae-", "logcumsumexp", "kalman", "gradient", "factored"),
            "Gradients, advantages, logcumsumexp, and Kalman filters over 10,000 observations.",
        ),
    ),
}
#: Name, title, tables and text of each chapter.
CHAPTERS = (
    (
        "paper",
        "Data collection",
        ("paper", "simulate", "collect", "games", "mujoco"),
        "The figures of “Optimizing Data Collection in Deep Reinforcement Learning” (2022), drawn "
        "there for a GPU, measured here on a CPU: N environments, K steps a call.",
    ),
    (
        "replay",
        "Store and sample",
        ("replay",),
        "flashbax's issue that adding to a buffer on a CPU is slow, and the post “8h to gain 26h” "
        "on drawing in proportion to returns.",
    ),
    (
        "scan",
        "Recurrences",
        ("scan",),
        "JAX's issue 2491, “Jax scans are slower than expected”, and other scans.",
    ),
    ("train", "Training", ("train", "agents", "distributed"), ""),
)


def chapters(tables: Tables) -> list[dict[str, Any]]:
    """All chapters; a picture whose rows were not measured is left out."""
    return [
        {
            "name": name,
            "title": title,
            "text": text,
            "pictures": [
                (url, each.caption) for each in PICTURES.get(name, ()) if (url := each.draw(tables))
            ],
            "tables": names,
            "claims": claims(tables) if name == "paper" else [],
        }
        for name, title, names, text in CHAPTERS
    ]
