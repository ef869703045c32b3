"""`python -m asv_benches.peers all|report|readme`, or the name of one table."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from asv_benches.peers import cuda, machine, readme, report, rows, suite
from asv_benches.peers.harness import FULL, QUICK, REPORT
from asv_benches.peers.suite import TABLES, Plan

SAVED = ("report", "readme")  # made from the saved figures; nothing is measured


def main(arguments: list[str] | None = None) -> None:
    """Measures one table or all of them, and writes what is asked for."""
    options = parse(arguments)
    folder, name = options.results, options.machine
    if options.what == "all":
        effort = QUICK if options.quick else REPORT
        plan = Plan(effort, options.minutes, options.hours, options.only)
        print(suite.measure_all(folder, name, plan, tuple(options.tables)))
    elif options.what not in SAVED:
        measure(options)
    if options.what in ("all", "report"):
        path = options.html or folder / f"{name}.html"
        report.write(path, folder, name)
        print(f"wrote {os.path.relpath(path)}")
    if options.what == "readme" or options.readme:
        readme.rewrite()


def parse(arguments: list[str] | None) -> argparse.Namespace:
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
    """One table, saved where `--json` says; without, only if it is whole and not quick."""
    what, name = options.what, options.machine
    if what == "cuda":
        if missing := cuda.missing():
            print(f"no GPU figures: {missing}")
            return
        listed, name = cuda.rows(options.quick), cuda.device_name()
        print(name)
    else:
        listed = TABLES[what]()
        print(f"{machine.cpu_name()}, {machine.cores()} cores; each row in a process of its own")
    path = options.json
    if path is None and not (options.quick or options.only):
        path = options.results / f"{name}-{what}.json"
    plan = Plan(QUICK if options.quick else FULL, only=options.only)
    suite.measure_table(what, listed, path, plan)
    if path is not None:
        print(f"saved {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
