"""The tables by name, and how they are measured: row by row, saved as they come."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from asv_benches.peers import (
    agents,
    collect,
    distributed,
    games,
    machine,
    mujoco,
    paper,
    replay,
    scan,
    simulate,
    train,
)
from asv_benches.peers.harness import Effort
from asv_benches.peers.rows import Result, Row, load, measure, print_rows, save

# In the order in which `all` measures them.
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
    """

    effort: Effort
    minutes: float = float("inf")
    hours: float = 0.0
    only: str = ""


def measure_table(what: str, rows: list[Row], path: Path | None, plan: Plan) -> int:
    """Measures, prints and saves the rows that are not measured yet.

    Args:
        what: the table's name.
        rows: all of them.
        path: of its JSON file; None saves nothing.
        plan: how much.

    Returns:
        Rows that are left for the next time.
    """
    old = load(path) if path else {}
    chosen = [row for row in rows if plan.only in row.name]
    missing = [row for row in chosen if not is_fresh(old.get(row.name), plan)]
    if not missing:
        return 0
    print(f"\n{what}: {len(missing)} of {len(chosen)} rows", flush=True)
    left = len(missing)
    for result in print_rows(measured(missing, plan)):
        old[result["name"]] = result
        left -= 1
        if path:  # the rows that the table still has, in its order
            save(path, what, [old[row.name] for row in rows if row.name in old], plan.effort)
    return left


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
    if result is None or "measured" not in result:
        return False
    if Effort(**result["effort"]).rounds < plan.effort.rounds:
        return False
    if {"failed", "crashed", "not installed"} & {result["ours"], result["peer"]}:
        return False
    age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(result["measured"])
    return age < dt.timedelta(hours=plan.hours)


def measure_all(folder: Path, name: str, plan: Plan, tables: tuple[str, ...] = ()) -> str:
    """Measures whatever is not measured yet.

    Args:
        folder: of the JSON files.
        name: of the machine, for theirs.
        plan: how much.
        tables: names of the tables; () for all.

    Returns:
        What was done, in one line.
    """
    end, left, found = time.monotonic() + 60 * plan.minutes, 0, []
    for what, rows in TABLES.items():
        path = folder / f"{name}-{what}.json"
        if not tables or what in tables:
            minutes = (end - time.monotonic()) / 60
            left += measure_table(what, rows(), path, plan._replace(minutes=minutes))
        found += load(path).values()
    took = sum(row.get("took_s", 0.0) for row in found) / 60
    judged = [row["met"] for row in found if row["met"] is not None]
    todo = f"; {left} rows are left: run the same command again" if left else ""
    return (
        f"\n{machine.cpu_name()}: {len(found)} rows in {took:.0f} minutes, "
        f"{sum(judged)} of {len(judged)} targets met{todo}"
    )
