"""The tables by name, and how they are measured: row by row, merged into what is saved."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from asv_benches.peers import (
    agents,
    arrays,
    collect,
    cuda,
    distributed,
    games,
    machine,
    mujoco,
    networks,
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
    "arrays": arrays.rows,
    "mujoco": mujoco.rows,
    "replay": replay.rows,
    "scan": scan.rows,
    "train": train.rows,
    "agents": agents.rows,
    "networks": networks.rows,
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
        saved = load(path) if path else {}
        chosen = [row for row in rows if plan.only in row.name]
        chosen = [row for row in chosen if not plan.figures or readme.shows(what, row.name)]
        missing = [row for row in chosen if not is_fresh(saved.get(row.name), plan)]
        left += len(missing)
        if missing:
            print(f"\n{what}: {len(missing)} of {len(chosen)} rows", flush=True)
            for result in print_rows(measured(missing, plan.effort, end)):
                saved[result["name"]] = result
                left -= 1
                if path:  # the rows that the table still has, in its order
                    save(path, what, [saved[row.name] for row in rows if row.name in saved])
        found += saved.values()
    took = sum(row.get("took_s", 0.0) for row in found) / 60
    judged = [row["met"] for row in found if row["met"] is not None]
    todo = f"; {left} rows are left: run the same command again" if left else ""
    return (
        f"\n{machine.cpu_name()}: {len(found)} rows in {took:.0f} minutes, "
        f"{sum(judged)} of {len(judged)} targets met{todo}"
    )


def measured(rows: list[Row], effort: Effort, end: float) -> Iterator[Result]:
    """Measures rows until it is `end`, and notes when, and how long it took."""
    for row in rows:
        begin = time.monotonic()
        if begin >= end:
            return
        result = measure(row, effort)
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        took = round(time.monotonic() - begin, 1)
        yield {**result, "measured": now, "took_s": took, "effort": effort._asdict()}


def is_fresh(result: Result | None, plan: Plan) -> bool:
    """Whether a saved row need not be measured again: a failure is tried again, a hang is not."""
    if result is None or Effort(**result["effort"]).rounds < plan.effort.rounds:
        return False
    if {"failed", "crashed", "not installed"} & {result["ours"], result["peer"]}:
        return False
    age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(result["measured"])
    return age < dt.timedelta(hours=plan.hours)
