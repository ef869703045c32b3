"""The tables by name, and `all`: row by row, within a time; the same command goes on later."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from asv_benches.peers import collect, machine, paper, replay, scan, simulate, sources, train
from asv_benches.peers.harness import Effort
from asv_benches.peers.rows import Result, Row, load, measure, print_rows, save

# In the order in which `all` measures them.
TABLES = {
    "simulate": simulate.rows,
    "collect": collect.rows,
    "replay": replay.rows,
    "scan": scan.rows,
    "train": train.rows,
    "sources": sources.rows,
    "paper": paper.rows,
}


@dataclass(frozen=True)
class Plan:
    """What `all` is to do.

    Attributes:
        folder: of the JSON files.
        machine: its name, for theirs.
        effort: how long to measure.
        minutes: after which no further row is begun.
        hours: age up to which a row is not measured again, if it was measured as thoroughly.
        only: rows whose name contains it.
        tables: names of the tables; () for all.
    """

    folder: Path
    machine: str
    effort: Effort
    minutes: float
    hours: float
    only: str = ""
    tables: tuple[str, ...] = ()

    def path(self, what: str) -> Path:
        """The file of one table."""
        return self.folder / f"{self.machine}-{what}.json"


def measure_all(plan: Plan) -> int:
    """Measures, prints and saves whatever is not measured yet.

    Returns:
        Rows that are left for the next time.
    """
    end = time.monotonic() + 60 * plan.minutes
    left = 0
    for what, make_rows in TABLES.items():
        if plan.tables and what not in plan.tables:
            continue
        rows, path = make_rows(), plan.path(what)
        chosen = [row for row in rows if plan.only in row.name]
        missing = [row for row in chosen if not is_fresh(load(path).get(row.name), plan)]
        left += len(missing)
        if not missing:
            continue
        print(f"\n{what}: {len(missing)} of {len(chosen)} rows", flush=True)
        for result in print_rows(measured(missing, plan.effort, end)):
            saved = {**load(path), result["name"]: result}
            # The rows that the table still has, in its order.
            ordered = [saved[row.name] for row in rows if row.name in saved]
            save(path, what, ordered, plan.effort)
            left -= 1
    return left


def measured(rows: list[Row], effort: Effort, end: float) -> Iterator[Result]:
    """Measures rows as long as there is time, and notes when, and how long it took."""
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
    if result is None or "measured" not in result:
        return False
    if Effort(**result["effort"]).rounds < plan.effort.rounds:
        return False
    if {"failed", "crashed", "not installed"} & {result["ours"], result["peer"]}:
        return False
    age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(result["measured"])
    return age < dt.timedelta(hours=plan.hours)


def summary(plan: Plan, left: int) -> str:
    """What was done, in one line."""
    rows = [row for what in TABLES for row in load(plan.path(what)).values()]
    took = sum(row.get("took_s", 0.0) for row in rows) / 60
    judged = [row["met"] for row in rows if row["met"] is not None]
    todo = f"; {left} rows are left: run the same command again" if left else ""
    return (
        f"\n{machine.cpu_name()}: {len(rows)} rows in {took:.0f} minutes, "
        f"{sum(judged)} of {len(judged)} targets met{todo}"
    )
