"""`python -m asv_benches.peers all|report|readme`, or the name of one table."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from asv_benches.peers import cuda, machine, readme, report, rows, suite
from asv_benches.peers.harness import FULL, QUICK, REPORT
from asv_benches.peers.suite import TABLES

SAVED = ("report", "readme")  # made from the saved figures; nothing is measured


def main(arguments: list[str] | None = None) -> None:
    """Measures one table or all of them, and writes what is asked for."""
    options = parse(arguments)
    if options.what == "all":
        measure_all(options)
    elif options.what not in SAVED:
        measure(options)
    if options.what in ("all", "report"):
        path = options.html or options.results / f"{options.machine}.html"
        report.write(path, options.results, options.machine)
        print(f"wrote {os.path.relpath(path)}")
    if options.what == "readme" or options.readme:
        readme.rewrite()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m asv_benches.peers", description=__doc__)
    parser.add_argument("what", choices=["all", *TABLES, "cuda", *SAVED])
    parser.add_argument(
        "--quick", action="store_true", help="few repetitions: figures mean nothing"
    )
    parser.add_argument("--only", metavar="NAME", default="", help="rows whose name contains NAME")
    parser.add_argument("--json", metavar="FILE", type=Path, help="where to save the figures")
    parser.add_argument("--machine", metavar="NAME", default=machine.name(), help="for file names")
    parser.add_argument("--readme", action="store_true", help="rewrite README.md's figures after")
    whole = parser.add_argument_group("all, report")
    whole.add_argument("--minutes", type=float, default=30.0, help="begin no row after (30)")
    whole.add_argument("--hours", type=float, default=24.0, help="keep rows as young as (24)")
    whole.add_argument("--tables", nargs="+", choices=[*TABLES], default=(), help="these alone")
    whole.add_argument("--results", metavar="DIR", type=Path, default=rows.RESULTS)
    whole.add_argument("--html", metavar="FILE", type=Path, help="the report (DIR/MACHINE.html)")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> None:
    """Measures, prints and saves one table.

    A quick or partial table is saved only where `--json` names a file.
    """
    name, effort = options.machine, QUICK if options.quick else FULL
    if options.what == "cuda":
        if missing := cuda.missing():
            print(f"no GPU figures: {missing}")
            return
        listed, name = cuda.rows(options.quick), cuda.device_name()
        print(name)
    else:
        listed = TABLES[options.what]()
        print(f"{machine.cpu_name()}, {machine.cores()} cores; each row in a process of its own")
    chosen = [row for row in listed if options.only in row.name]
    results = list(rows.print_rows(rows.measure(row, effort) for row in chosen))
    path = options.json
    if path is None and not (options.quick or options.only):
        path = options.results / f"{name}-{options.what}.json"
    if path is not None:
        rows.save(path, options.what, results, effort)
        print(f"saved {os.path.relpath(path)}")


def measure_all(options: argparse.Namespace) -> None:
    """Measures what is not measured yet."""
    place = options.results, options.machine, QUICK if options.quick else REPORT
    bounds = options.minutes, options.hours, options.only, tuple(options.tables)
    plan = suite.Plan(*place, *bounds)
    left = suite.measure_all(plan)
    print(suite.summary(plan, left))


if __name__ == "__main__":
    main()
