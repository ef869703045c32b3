"""The page of the documentation on the history of our own kernels, from what asv has saved.

asv's own pages ask other servers for scripts; this one shows the same results without any.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asv_benches import colours
from asv_benches.peers.rows import format_figure

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results" / "asv"
WIDTH, HEIGHT = 120, 24  # pixels of a curve


def page(results: Path = RESULTS, commits: Path = FOLDER / "history.txt") -> str:
    """A table of all benchmarks for each machine, with a curve over the commits."""
    lines = commits.read_text("utf-8").splitlines()
    subjects = dict(line.split(" ", 1) for line in lines if line)
    parts = [
        "# History of our kernels",
        "Seconds that a job of ours took, commit by commit: `make history` measures it with asv. "
        "A curve that falls is a kernel that became faster; its axis is logarithmic.",
    ]
    for machine in sorted(path for path in results.iterdir() if path.is_dir()):
        runs = [json.loads(path.read_text("utf-8")) for path in machine.glob("*-*.json")]
        order = [*subjects]
        runs.sort(key=lambda run: position(run["commit_hash"], order, run["date"]))
        rows = [row for name in names(runs) if (row := line_of(name, runs))]
        if rows:
            last = max(run["date"] for run in runs) / 1000  # asv's are in milliseconds
            day = datetime.fromtimestamp(last, UTC).date()
            head = ["| Job | First | Last | Course |", "| --- | ---: | ---: | --- |"]
            about = f"The last commit that was measured here is of {day}."
            parts += [f"## {machine.name}", about, "\n".join([*head, *rows])]
    told = [
        f"{number}. `{commit}` {text}" for number, (commit, text) in enumerate(subjects.items(), 1)
    ]
    return "\n\n".join([*parts, "## The commits", "\n".join(told), ""])


def position(commit: str, order: list[str], date: int) -> tuple[int, int]:
    """Where a commit stands: in the order of the list, then by its date."""
    places = [number for number, short in enumerate(order) if commit.startswith(short)]
    return (places[0] if places else len(order), date)


def names(runs: list[dict[str, Any]]) -> list[str]:
    """Benchmarks of one figure each, in alphabetic order."""
    listed = {name for run in runs for name in run["results"] if name.startswith("milestones.")}
    return sorted(listed)


def line_of(name: str, runs: list[dict[str, Any]]) -> str:
    """A row of the table; "" where fewer than two commits have a figure."""
    values = [run["results"].get(name) for run in runs]
    figures = [value[0][0] for value in values if value and value[0]]
    figures = [x for x in figures if isinstance(x, float) and math.isfinite(x)]
    if len(figures) < 2:
        return ""
    job = re.sub(r"milestones\.(\w+)\.track_", lambda m: f"{m[1]}: ", name).replace("_", " ")
    ends = (format_figure(figures[0], "s"), format_figure(figures[-1], "s"))
    return f"| {job} | {ends[0]} | {ends[1]} | {curve(figures, job)} |"


def curve(figures: list[float], job: str) -> str:
    """A line on a logarithmic axis, as SVG inside of a page."""
    logs = [math.log(figure) for figure in figures]
    low, span = min(logs), (max(logs) - min(logs)) or 1.0
    step = (WIDTH - 4) / (len(logs) - 1)
    points = " ".join(
        f"{2 + k * step:.1f},{2 + (HEIGHT - 4) * (1 - (y - low) / span):.1f}"
        for k, y in enumerate(logs)
    )
    return (
        f'<svg width="{WIDTH}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="seconds of {job}" '
        'style="max-width: 100%; overflow: visible">'
        f'<polyline points="{points}" fill="none" stroke="{colours.BLUE}" stroke-width="2"/></svg>'
    )
