"""`all`: every table, row by row, within a time; the same command goes on where it stopped."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asv_benches.peers import machine, report
from asv_benches.peers.report import Result, Row
from asv_benches.peers.tables import TABLES
from asv_benches.peers.timing import Effort


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
        rows = [row for row in make_rows() if plan.only in row.name]
        saved = load(plan.path(what))
        missing = [row for row in rows if not is_fresh(saved.get(row.name), plan)]
        if missing:
            print(f"\n{what}: {len(missing)} of {len(rows)} rows", flush=True)
            report.print_header()
        for result in timed(missing, plan.effort, end):
            report.print_row(result)
            saved = {**load(plan.path(what)), result["name"]: result}
            save(plan, what, [row.name for row in make_rows()], saved)
            left -= 1
        left += len(missing)
    return left


def timed(rows: Iterable[Row], effort: Effort, end: float) -> Iterator[Result]:
    """Measures rows as long as there is time, and notes when, and how long it took."""
    for row in rows:
        begin = time.monotonic()
        if begin >= end:
            return
        (result,) = report.measure([row], effort)
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        took = round(time.monotonic() - begin, 1)
        yield {**result, "measured": now, "took_s": took, "effort": effort._asdict()}


def load(path: Path) -> dict[str, Result]:
    """The saved rows of a table, by name."""
    if not path.exists():
        return {}
    return {row["name"]: row for row in json.loads(path.read_text())["rows"]}


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


def save(plan: Plan, what: str, names: list[str], rows: dict[str, Result]) -> None:
    """Writes the rows that the table still has, in its order."""
    ordered: list[Any] = [rows[name] for name in names if name in rows]
    report.save(plan.path(what), what, ordered, plan.effort)


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
