"""The tables by name, and how they are measured: row by row, merged into what is saved."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from asv_benches.peers import (
    agents,
    collect,
    cuda,
    distributed,
    games,
    machine,
    mujoco,
    paper,
    readme,
    replay,
    scan,
    simulate,
    train,
)
from asv_benches.peers.harness import QUICK, Effort
from asv_benches.peers.rows import Result, Row, load, measure, print_rows, save

# In the order in which `all` measures them; `cuda` is no part of that.
TABLES = {
    "simulate": simulate.rows,
    "collect": collect.rows,
    "games": games.rows,
    "mujoco": mujoco.rows,
    "replay": replay.rows,
    "scan": scan.rows,
    "train": train.rows,
    "agents": agents.rows,
    "distributed": distributed.rows,
    "paper": paper.rows,
}


class Plan(NamedTuple):
    """How much to measure.

    Attributes:
        effort: how long to measure each row.
        minutes: after which no further row is begun.
        hours: age up to which a row is not measured again, if it was measured as thoroughly.
        only: rows whose name contains it.
        figures: whether only the rows that README.md shows.
    """

    effort: Effort
    minutes: float = float("inf")
    hours: float = 0.0
    only: str = ""
    figures: bool = False


def measure_tables(tables: Sequence[str], folder: Path | None, name: str, plan: Plan) -> str:
    """Measures, prints and saves the rows that are not measured yet; returns a line about it.

    Args:
        tables: names of the tables.
        folder: of the JSON files; None saves nothing.
        name: of the machine, for theirs.
        plan: how much.
    """
    end, left, found = time.monotonic() + 60 * plan.minutes, 0, []
    for what in tables:
        rows = cuda.rows(plan.effort == QUICK) if what == "cuda" else TABLES[what]()
        whose = cuda.device_name() if what == "cuda" else name
        path = folder / f"{whose}-{what}.json" if folder else None
        minutes = (end - time.monotonic()) / 60
        saved, more = measure_table(what, rows, path, plan._replace(minutes=minutes))
        found, left = [*found, *saved], left + more
    took = sum(row.get("took_s", 0.0) for row in found) / 60
    judged = [row["met"] for row in found if row["met"] is not None]
    todo = f"; {left} rows are left: run the same command again" if left else ""
    return (
        f"\n{machine.cpu_name()}: {len(found)} rows in {took:.0f} minutes, "
        f"{sum(judged)} of {len(judged)} targets met{todo}"
    )


def measure_table(
    what: str, rows: list[Row], path: Path | None, plan: Plan
) -> tuple[list[Result], int]:
    """One table: its results, old and new, and how many rows are left for the next time."""
    old = load(path) if path else {}
    chosen = [row for row in rows if plan.only in row.name]
    chosen = [row for row in chosen if not plan.figures or readme.shows(what, row.name)]
    missing = [row for row in chosen if not is_fresh(old.get(row.name), plan)]
    left = len(missing)
    if missing:
        print(f"\n{what}: {len(missing)} of {len(chosen)} rows", flush=True)
        for result in print_rows(measured(missing, plan)):
            old[result["name"]] = result
            left -= 1
            if path:  # the rows that the table still has, in its order
                save(path, what, [old[row.name] for row in rows if row.name in old])
    return list(old.values()), left


def measured(rows: list[Row], plan: Plan) -> Iterator[Result]:
    """Measures rows as long as there is time, and notes when, and how long it took."""
    end = time.monotonic() + 60 * plan.minutes
    for row in rows:
        begin = time.monotonic()
        if begin >= end:
            return
        result = measure(row, plan.effort)
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        took = round(time.monotonic() - begin, 1)
        yield {**result, "measured": now, "took_s": took, "effort": plan.effort._asdict()}


def is_fresh(result: Result | None, plan: Plan) -> bool:
    """Whether a saved row need not be measured again: a failure is tried again, a hang is not."""
    if result is None or Effort(**result["effort"]).rounds < plan.effort.rounds:
        return False
    if {"failed", "crashed", "not installed"} & {result["ours"], result["peer"]}:
        return False
    age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(result["measured"])
    return age < dt.timedelta(hours=plan.hours)
