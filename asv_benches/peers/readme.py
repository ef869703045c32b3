"""The figures that a reader decides by: ten rows of the tables, as Markdown and as a picture.

README.md and docs/speed.svg are written from the JSON files, never by hand.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from asv_benches.peers.report import RESULTS, closest, format_figure, format_ratio
from asv_benches.peers.timing import REPORT

ROOT = Path(__file__).parents[2]
README, PICTURE = ROOT / "README.md", ROOT / "docs" / "speed.svg"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
# Tables of figures that go together.
GROUPS = {
    "Simulate, collect, train": ("simulate", "collect", "train"),
    "Store and sample": ("replay",),
    "Scan": ("scan",),
}
TABLES = tuple(what for group in GROUPS.values() for what in group)
DISTRIBUTIONS = (
    *("python", "numba", "gymnasium", "jax", "torch", "envpool", "stable_baselines3"),
    *("flashbax", "torchrl", "tianshou", "cpprb", "scipy", "statsmodels", "rlax", "gcc"),
)
HEAD = ["| What | Against | Ratio | rlcpu | Peer |", "| --- | --- | ---: | ---: | ---: |"]
UNITS = "Medians, interleaved: rates in environment steps per second, times per call"


class Figure(NamedTuple):
    """A row of a table in a reader's words.

    Attributes:
        table: its name.
        row: how the row's name begins; of ranked peers the best one is taken.
        job: what is done.
        peer: who else does it; "" takes the row's own word.
    """

    table: str
    row: str
    job: str
    peer: str = ""


FIGURES = (
    Figure("simulate", "step-4096-cart", "step 4,096 CartPoles", "Gymnasium's CartPoleVectorEnv"),
    Figure("simulate", "step-256-envpool", "step 256 CartPoles", "EnvPool"),
    Figure(
        "simulate", "exact-4096", "step 4,096, bit for bit as Gymnasium", "its CartPoleVectorEnv"
    ),
    Figure("simulate", "simulate-jax", "4,096 CartPoles x 1,000 steps a call", "JAX, lax.scan"),
    Figure("simulate", "simulate-c++", "4,096 CartPoles x 1,000 steps a call", "C++ by hand"),
    Figure("collect", "relu-torch", "collect with a network", "PyTorch and CartPoleVectorEnv"),
    Figure("collect", "relu-jax", "collect with a network", "JAX, lax.scan"),
    Figure("train", "zoo", "PPO until CartPole is solved, same settings", "stable-baselines3"),
    Figure("replay", "buffer-prioritized", "sample 256 by priority of 1 million, update"),
    Figure("scan", "gae-2048x1024-time-major-jax", "GAE, 2,048 steps x 1,024", "JAX, lax.scan"),
)


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
    picture.write_text(draw(chosen(tables)))


def newest(results: Path = RESULTS) -> dict[str, Any]:
    """The newest full measurement of each table; quick ones mean nothing and are left out.

    Raises:
        ValueError: there is none.
    """
    files = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    full = [content for content in files if content["effort"]["rounds"] >= REPORT.rounds]
    full.sort(key=lambda content: content["machine"]["date"])
    newest = {content["what"]: content for content in full if content["what"] in TABLES}
    if not newest:
        raise ValueError(f"no result in {results}: run `python -m asv_benches.peers all`")
    return newest


def chosen(tables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of `FIGURES` that were measured, in a reader's words."""
    found = []
    for figure in FIGURES:
        rows = tables[figure.table]["rows"] if figure.table in tables else []
        named = [row for row in rows if row["name"].startswith(figure.row) and row["ratio"]]
        if named:
            row = closest(named)[0]
            found.append({**row, "what": figure.job, "against": figure.peer or row["against"]})
    return found


def block(tables: Mapping[str, Any]) -> str:
    """The Markdown between the markers: the chosen rows, and what they were measured on."""
    return "\n".join([*HEAD, *map(line, chosen(tables)), "", measured_on(tables), ""])


def every(tables: Mapping[str, Any]) -> str:
    """The Markdown of the documentation: all rows that have a target, of ranked peers the best."""
    lines = []
    for title, names in GROUPS.items():
        rows = [row for name in names if name in tables for row in closest(tables[name]["rows"])]
        lines += [f"### {title}", "", *HEAD]
        lines += [*(line(row) for row in rows if row["target"] is not None), ""]
    return "\n".join([*lines, measured_on(tables), ""])


def line(row: Mapping[str, Any]) -> str:
    """One row of a Markdown table."""
    figures = (format_figure(row[key], row["unit"]) for key in ("ours", "peer"))
    ratio = format_ratio(row["ratio"], row["kind"])
    return f"| {row['what']} | {row['against']} | {ratio} | {' | '.join(figures)} |"


def measured_on(tables: Mapping[str, Any]) -> str:
    """The sentence below the table."""
    machines = sorted((each["machine"] for each in tables.values()), key=lambda m: str(m["date"]))
    versions = {k: v for machine in machines for k, v in machine["versions"].items()}
    listed = ", ".join(f"{name} {versions[name]}" for name in DISTRIBUTIONS if name in versions)
    places = dict.fromkeys(f"{machine['cpu']}, {machine['cores']} cores" for machine in machines)
    dates = " to ".join(sorted({machines[0]["date"], machines[-1]["date"]}))
    return f"{UNITS}; {'; '.join(places)}, {dates}; {listed}."


# ---------------------------------------------------------------- the picture

WIDTH, ROW, TOP = 640, 42, 34
FIRST, LAST = 0.5, 300.0  # ratios at the picture's left and right edge
STYLE = """text { font: 14px system-ui, sans-serif; fill: #1f2328; }
text { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
.page { fill: #ffffff; } .peer { fill: #59636e; } .grid { stroke: #d1d9e0; }
.one { stroke: #1f2328; } .faster { fill: #0b5cad; } .slower { fill: #c0392b; }
"""
DARK = """@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; stroke: #0d1117; } .page { fill: #0d1117; } .peer { fill: #9198a1; }
.grid { stroke: #3d444d; } .one { stroke: #e6edf3; }
.faster { fill: #58a6ff; } .slower { fill: #f85149; } }
"""


def draw(rows: list[dict[str, Any]], dark: bool = True) -> str:
    """Bars on a logarithmic axis: how many times as fast as the peer, as SVG.

    Args:
        rows: what `chosen` gives.
        dark: whether the picture follows a reader's dark colours.
    """
    height = TOP + ROW * len(rows) + 8
    names = "; ".join(f"{r['what']}: {format_ratio(r['ratio'], r['kind'])}" for r in rows)
    body = "\n".join([*_axis(height), *(part for n, r in enumerate(rows) for part in _bar(n, r))])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>Times as fast as others: {html.escape(names)}</title>\n"
        f"<style>{STYLE}{DARK if dark else ''}</style>\n"
        f'<rect class="page" width="{WIDTH}" height="{height}"/>\n{body}\n</svg>\n'
    )


def _axis(height: int) -> Iterator[str]:
    """A line for each power of ten, and one where both are as fast."""
    for ratio in (1, 10, 100):
        x, kind = _place(ratio), "one" if ratio == 1 else "grid"
        yield f'<path class="{kind}" d="M{x} 26V{height - 8}"/>'
        label = "as fast" if ratio == 1 else f"{ratio} times as fast"
        yield f'<text class="peer" x="{x}" y="18" text-anchor="middle">{label}</text>'


def _bar(number: int, row: Mapping[str, Any]) -> Iterator[str]:
    """What and against whom in one line, the bar and its figure below."""
    y, end, one = TOP + ROW * number, _place(row["ratio"]), _place(1)
    kind = "faster" if row["ratio"] >= 1 else "slower"
    left, width = min(one, end), abs(end - one)
    what, against = html.escape(row["what"]), html.escape(row["against"])
    yield (
        f'<text x="{one + 6}" y="{y + 13}">{what} <tspan class="peer">| {against}</tspan></text>'
    )
    yield f'<rect class="{kind}" x="{left:.1f}" y="{y + 19}" width="{width:.1f}" height="15"/>'
    ratio = format_ratio(row["ratio"], row["kind"])
    yield f'<text x="{max(one, end) + 6:.1f}" y="{y + 32}">{ratio}</text>'


def _place(ratio: float) -> float:
    """Where a ratio lies on the axis, in pixels."""
    share = math.log(ratio / FIRST) / math.log(LAST / FIRST)
    return round(WIDTH * min(max(share, 0.0), 1.0), 1)
